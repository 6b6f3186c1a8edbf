"""Every pass that a pipeline can contain: a line on what it does, and its origin.

Plain data, read from each function's `@listed` by `passes.catalogue.reader`, so that the app
imports no TVM. `function` is `module:attribute`, which an engine imports."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from relascope.passes.catalogue import recorded, tvm_named
from relascope.passes.catalogue.entry import PassInfo
from relascope.passes.catalogue.pipelines import INFERENCE, JOINT, ORDER, TRAINING
from relascope.passes.catalogue.reader import listed_in
from relascope.passes.pipeline import Pipeline, Step, is_tvms


def _read(ir: str) -> dict[tuple[str, str], PassInfo]:
    found = {p.name: p for p in listed_in(_ROOT / ir, ir, f"{_PACKAGE}.{ir}")}
    return {(ir, name): found[name] for name in dict.fromkeys((*ORDER[ir].split(), *found))}


_ROOT, _PACKAGE = Path(__file__).parents[1], __name__.rpartition(".")[0]
CATALOGUE: dict[tuple[str, str], PassInfo] = {k: p for ir in ORDER for k, p in _read(ir).items()}

_GRADIENTS = {"tvm": TRAINING, "pytorch": JOINT}

GRADIENTS = {"tvm": "TVM's", "pytorch": "PyTorch's"}  # whose gradient, and its label


def names(ir: str) -> list[str]:
    return [p.name for p in CATALOGUE.values() if p.ir == ir]


def info(ir: str, step: Step | str) -> PassInfo:
    """The catalogue's entry for a step. Raises KeyError if no pass of this IR has that name."""
    if isinstance(step, Step) and step.name == recorded.NAME:
        return recorded.entry(ir, step)
    name = step if isinstance(step, str) else step.name
    return tvm_named.entry(ir, name) if is_tvms(name) else CATALOGUE[ir, name]


def read_pipeline(ir: str, text: str) -> Pipeline:
    """Read a pipeline's text, and check every pass and parameter against the catalogue. Raises
    ValueError that names a step which is malformed, unknown, or has wrong parameters."""
    pipeline = Pipeline.parse(text, names(ir))
    for step in pipeline:
        info(ir, step).arguments(step)
    return pipeline


def typed_pipeline(ir: str, text: str, training: bool, gradient: str = "tvm") -> Pipeline:
    """Read a pipeline as people type it: after `default|` come passes that follow the default
    pipeline and, with a minus, passes of it to switch off. Raises ValueError like `read_pipeline`
    and `default_pipeline`."""
    first, _, rest = text.partition("|")
    if first.strip() != "default":
        return read_pipeline(ir, text)
    usual = default_pipeline(ir, training, gradient)
    return _with(usual, read_pipeline(ir, rest)) if rest.strip() else usual


def with_tvms(ir: str, text: str, pipelines: Mapping[str, str]) -> str:
    """Spell out the text of a pipeline that contains one of TVM's, such as
    `AdjustMatmulOrder|tvm:zero|-FuseOps`. `pipelines` has TVM's by name; see
    `passes.tvm_pipelines`. Raises ValueError like `read_pipeline`, or if TVM lacks the pipeline."""
    before, _, text = text.partition(tvm_named.MARK)
    name, _, rest = text.partition("|")
    if name.strip() not in pipelines:
        known = ", ".join(tvm_named.MARK + n for n in pipelines) or "none with a gradient"
        raise ValueError(f"TVM has no pipeline {name.strip()!r}; known: {known}")
    ahead = read_pipeline(ir, before.strip().removesuffix("|"))
    usual = _with(read_pipeline(ir, pipelines[name.strip()]), read_pipeline(ir, rest))
    return str(Pipeline((*ahead, *usual)))


def _with(usual: Pipeline, more: Pipeline) -> Pipeline:
    """A pipeline with further steps; a further step that is off switches off those of its name."""
    off = {s.name for s in more if not s.enabled}
    steps = (replace(s, enabled=s.enabled and s.name not in off) for s in usual)
    known = {s.name for s in usual}
    return Pipeline((*steps, *(s for s in more if s.enabled or s.name not in known)))


def gradients(ir: str) -> tuple[str, ...]:
    """Whose gradients an IR supports, the default first: "tvm", "pytorch"."""
    return tuple(n for n, way in _GRADIENTS.items() if ir in way)


def check_gradient(ir: str, gradient: str) -> None:
    """Refuse a gradient that an IR does not support. Raises ValueError, which says why."""
    if gradient not in _GRADIENTS:
        raise ValueError(f"there is no gradient {gradient!r}; known: {', '.join(_GRADIENTS)}")
    if gradient not in gradients(ir):
        raise ValueError(
            f"PyTorch's joint graph cannot become {ir.capitalize()}, whose frontend reads traces "
            "only, and a trace has no backward"
        )


def default_pipeline(ir: str, training: bool, gradient: str = "tvm") -> Pipeline:
    """The page's first pipeline, for inference or training. In training, passes take the `gradient`
    "tvm"; with "pytorch", the program comes with it. Raises ValueError if the IR lacks it."""
    if training:
        check_gradient(ir, gradient)
    return read_pipeline(ir, _GRADIENTS[gradient][ir] if training else INFERENCE[ir])


def last_built(ir: str, pipeline: Pipeline) -> int:
    """Index of the step whose program is built: the last that is not for inspection; or -1."""
    steps = enumerate(pipeline)
    return max((i for i, s in steps if s.enabled and not info(ir, s).looking), default=-1)
