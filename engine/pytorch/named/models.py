"""Models by name: from transformers, torchvision and timm, and from a person's own code.

Nothing is downloaded, and no code that comes with a configuration is run. A configuration from a
folder or the local cache is not trusted: its model is first built and counted on the meta device,
which allocates nothing.
"""

import difflib
import fnmatch
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import psutil
import torch
from torch import nn

from relascope.core.errors import EngineError, reporting
from relascope.engine.files.archive import plainly
from relascope.engine.files.opening import opening
from relascope.engine.protocol.results import NamedModel
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.source import CODE, ModelSource
from relascope.engine.pytorch.named import code, families, hub
from relascope.engine.pytorch.nested import call_apart, taking
from relascope.samples.weights import settle, stir

_LIBRARIES: dict[str, ModuleType] = {"hf": hub, "torchvision": families, "timm": families}
_RANDOM = "The weights are random."


def guarded(source: ModelSource) -> AbstractContextManager[None]:
    """Where a model is built and first run, within limits if its configuration is not trusted;
    refused without such a model or enough memory (kind "usage"), or the library ("engine")."""
    library, _, name = source.model.partition(":")
    if library == CODE:
        return nullcontext()
    make = _maker(library, name)
    strange = library == "hf" and hub.folder_of(name) is not None
    shown = Path(source.model.partition("?")[0])
    with opening(shown, "sizes", source.model, size=0) if strange else _told(source.model):
        module = on_meta(make)
        size = sum(t.nbytes for t in (*module.parameters(), *module.buffers()))
    size *= 2 if source.dtype == "float64" else 1
    free = psutil.virtual_memory().available
    if 2 * size > free:
        count = sum(p.numel() for p in module.parameters())
        message = f"This model has {count:,} parameters, {size / 1e9:,.1f} GB in {source.dtype}; "
        message += f"only {free / 1e9:,.1f} GB of memory are free."
        hint = "Make it smaller with a setting, such as hf:NAME?num_hidden_layers=2."
        raise EngineError("usage", message, source.model, hint if library == "hf" else "")
    return opening(shown, source, size=size) if strange else _told(source.model)


def build(
    source: ModelSource, progress: Progress
) -> tuple[nn.Module, tuple[str, ...], tuple[torch.Tensor, ...] | None, tuple[str, ...]]:
    """A model by its name, which takes tensors in order; their names; inputs, or None if a person's
    own code gives none; and sentences for people. Weights and inputs are drawn from the source's
    seed; torch's generator is left as it was. Raises what `guarded` does, and kind "usage" if there
    are no weights here and random ones were not asked for."""
    library, _, name = source.model.partition(":")
    progress(0.0, f"building {source.model}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(source.seed)
        own = True
        notes: tuple[str, ...] = ()
        if library == CODE:
            module, (args, kwargs), own = code.build(name, source.batch, source.tokens)
        else:
            if source.weights == "random":
                module, notes = _maker(library, name)(), (_RANDOM,)
                stir(module)
            else:
                module, notes = _LIBRARIES[library].with_weights(library, name)
            args, kwargs = _LIBRARIES[library].inputs(module, source)
        all_of_them = *args, *kwargs.values()
        norms = any(isinstance(m, nn.BatchNorm2d) for m in module.modules())
        if notes == (_RANDOM,) and len(all_of_them) == 1 and norms:
            settle(module, *all_of_them)
    wanted = getattr(torch, source.dtype)
    module = module.to(wanted).train(source.training)
    call = call_apart(module.forward, args, kwargs)
    inputs = tuple(t.to(wanted) if t.is_floating_point() else t for t in call.tensors)
    return taking(module, call), call.names, inputs if own else None, (*notes, *call.notes())


def listed(pattern: str, counted: bool, progress: Progress) -> tuple[NamedModel, ...]:
    """The models that can be opened by name; last, a row for each library that cannot be imported,
    or an error (kind "engine") if the pattern names it. A pattern is a name, such as `hf:bert`, a
    pattern of `fnmatch`, or text that names contain. If `counted`, each model is built on the meta
    device, and classes of transformers need a pattern with a capital letter."""
    wild = pattern if set(pattern) & set("*?[") else f"*{pattern}*"
    found: list[tuple[str, str, bool]] = []
    broken = []
    for library, module in _LIBRARIES.items():
        try:
            names = [*module.names(library, wild, not counted)]
            found += [(f"{library}:{n}", k, here) for n, k, here in names]
        except EngineError as error:
            if pattern.startswith(f"{library}:"):
                raise
            broken.append(NamedModel(f"{library}:", error.message, None, False))
    only = [one for one in found if one[0] == pattern]
    tries = {one: (one[0], one[0].partition(":")[2]) for one in found}
    found = only or [o for o in found if any(fnmatch.fnmatchcase(n, wild) for n in tries[o])]
    rows = []
    for index, (name, kind, cached) in enumerate(found):
        progress(index / len(found), name)
        count = _count(*name.split(":", 1)) if counted else None
        rows.append(NamedModel(name, kind, count, cached))
    return *rows, *broken


def _told(name: str) -> AbstractContextManager[None]:
    """Report what a library's code raises."""
    message = f"{name} cannot be built, or run on the inputs made for it: "
    return reporting(lambda wrong: EngineError("operator", f"{message}{plainly(wrong)}.", name))


def on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    on_cpu = partial(torch.linspace, device="cpu")  # because its values are read
    with patch.object(torch, "linspace", on_cpu), torch.device("meta"):
        return make()


def _count(library: str, name: str) -> int | None:
    try:
        return sum(p.numel() for p in on_meta(_maker(library, name)).parameters())
    except Exception:  # from a library's own code; the model says why when it is opened
        return None


def _maker(library: str, name: str) -> Callable[[], nn.Module]:
    make: Callable[[], nn.Module] | None = _LIBRARIES[library].maker(library, name)
    if make is not None:
        return make
    known = [n for n, _, _ in _LIBRARIES[library].names(library, "*", True)]
    close = difflib.get_close_matches(name.partition("?")[0], known, 3)
    message = f"{library} has no model called {name.partition('?')[0]!r} on this machine."
    hint = f"Similar names: {', '.join(close)}. " if close else ""
    hint += "`relascope models --search TEXT` lists the names; nothing is downloaded."
    raise EngineError("usage", message, f"{library}:{name}", hint)
