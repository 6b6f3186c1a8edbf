"""The variants of a build on this machine, for comparison."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from relascope.core.errors import EngineError
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.target_text import gpu_index, parse_target
from relascope.engine.protocol.targets import Target
from relascope.engine.protocol.times import Variant
from relascope.passes.catalogue import names
from relascope.passes.pipeline import Step

VARIANTS = {
    "tvm": "TVM's own kernels",
    "library": "matrix products and convolutions by PyTorch's library",
    "openblas": "matrix products by OpenBLAS, on TVM's threads",
    "schedules": "the better library here, and our schedules for the rest",
    "tuned": "the same, with kernels that tuning found faster",
    "graphs": "each function launched as one CUDA graph",
    "mixed_precision": "half precision, by the pass mixed_precision",
    "layout": "convolutions in another layout, by the pass convert_layout",
}
"""A description of each variant, by its name."""

_BY_OPTION = {
    "records": "tuned",
    "graphs": "graphs",
    "schedules": "schedules",
    "libs=openblas": "openblas",
    "libs": "library",
}
_BY_PASS = {"mixed_precision": "mixed_precision", "layout": "convert_layout"}


@dataclass(frozen=True)
class Offer:
    """A variant that this machine has: the target, and a pass to add to the pipeline, or ""."""

    name: str
    target: str
    added: str = ""


def way_of(target: str) -> str:
    """The variant that a target alone is, by its most specific option."""
    options = parse_target(target)[1]
    words = {*options, *(f"{name}={value}" for name, value in options.items())}
    return next((name for option, name in _BY_OPTION.items() if option in words), "tvm")


def offers(ir: str, targets: Iterable[Target], target: str) -> tuple[Offer, ...]:
    """Every variant for the chosen target's device, as in `VARIANTS`; passes keep that target."""
    device = (parse_target(target)[0], gpu_index(target))
    found: dict[str, Offer] = {}
    for one in targets:
        if one.runs_here and (parse_target(one.name)[0], gpu_index(one.name)) == device:
            found.setdefault(way_of(one.name), Offer(way_of(one.name), one.name))
    for name, added in _BY_PASS.items():
        if added in names(ir):
            found[name] = Offer(name, target, added)
    return tuple(found[name] for name in VARIANTS if name in found)


def chosen(text: str, offered: Iterable[Offer]) -> tuple[Offer, ...]:
    """The variants that a text names, separated by commas; or "all". Raises EngineError of kind
    "usage" for others."""
    known = {o.name: o for o in offered}
    text = ",".join(known) if text == "all" else text
    wanted = [n.strip() for n in text.split(",") if n.strip()]
    unknown = [n for n in wanted if n not in known]
    if unknown or not wanted:
        message = f"There is no variant called {', '.join(unknown) or text!r} here."
        hint = f"Name some of {', '.join(known)}, or all."
        raise EngineError("usage", message, "--variants", hint)
    return tuple(known[n] for n in dict.fromkeys(wanted))


def variants(
    request: BuildRequest, taken: Iterable[Offer], cut: Callable[[BuildRequest], BuildRequest]
) -> tuple[Variant, ...]:
    made = []
    for offer in taken:
        one = replace(request, target=offer.target)
        if offer.added:
            # After the gradient, else first: inference's passes end in kernels.
            at = len(request.pipeline) if request.source.training else 0
            one = replace(one, pipeline=request.pipeline.inserted(at, Step(offer.added)))
        if one != request:
            made.append(Variant(offer.name, cut(one)))
    return tuple(made)
