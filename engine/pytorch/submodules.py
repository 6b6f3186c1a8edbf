"""A submodule of a model alone, on the inputs that it gets when the whole model runs.

Hooks see one run of the whole model and are then removed; a trace from a file, where hooks do not
run, is run flat. The submodule is the same module, not a copy.
"""

import difflib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from relascope.core.errors import EngineError, lines_of, reporting
from relascope.engine.protocol.results import ModuleRow
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.flat_trace import LATER, Flattener, TraceCall, body
from relascope.engine.pytorch.inputs.tensors import tensor_type
from relascope.engine.pytorch.model import Model, Opened, kept_buffers, load_model, seeded
from relascope.engine.pytorch.nested import Arguments, call_apart, opened, taking, unlike

_LIST = "`relascope modules MODEL` lists the modules."
_QUICK = 1.0  # s; a run that takes no longer is done once before it is timed


def load(source: ModelSource, progress: Progress, whole: Callable[[], Opened]) -> Model:
    """A model, or the submodule that a source names, traced; `whole` gives the whole, as
    `open_model`. Raises what `load_model` and `cut_out` do."""

    def opened() -> Opened:
        found = whole()
        if not source.module:
            return found
        progress(0.4, "running the whole model once")
        return cut_out(found, source)

    return load_model(source, progress, opened)


def cut_out(whole: Opened, source: ModelSource) -> Opened:
    """The submodule that a source names, with the inputs of the call that it names: tensors, each
    once; all else is fixed as in that call. Its outputs are the tensors that it returns. `whole` is
    not changed. Refused (kind "input") if there is no such module or call, no tensor among its
    arguments, or one that cannot be fixed."""
    path = source.module
    modules = _called(whole.module, path)
    if isinstance(whole.module, torch.jit.ScriptModule):
        try:
            with _running(path):
                flat = Flattener(whole.module, whole.names, whole.inputs, whole.allowed)
                found = flat.watched(path)
        except EngineError as wrong:
            said = f"The module {path} cannot be cut out of the trace. {wrong.message}"
            raise EngineError(wrong.kind, said, wrong.where, wrong.hint) from wrong
        _check_calls(whole.module, path, len(found), source.call)
        call = found[source.call - 1]
        formal = list(body(modules[0], call.method).inputs())[1:]
        names = unlike(v.debugName().partition(".")[0] for v in formal)
        arguments = dict(zip(names, call.arguments, strict=True))
        about = call_apart(lambda **_: None, (), arguments, lambda name, value: value)
        return _opened(whole, modules[0], about, len(found), path, call)
    calls: list[tuple[nn.Module, Arguments] | None] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        wanted, keep = len(calls) + 1 == source.call, partial(_copied, path)
        calls.append((module, call_apart(module.forward, args, kwargs, keep)) if wanted else None)

    with _running(path), _hooked(modules, before, None):
        _run(whole, source)
    _check_calls(whole.module, path, len(calls), source.call)
    chosen = calls[source.call - 1]
    assert chosen is not None
    return _opened(whole, taking(*chosen, path), chosen[1], len(calls), path, None)


def module_rows(whole: Opened, source: ModelSource) -> tuple[ModuleRow, ...]:
    """Every module of a model: its class, the types of its arguments and results, and the seconds
    that it takes. Raises (kind "input") if the model does not run."""
    seen: dict[str, list[TraceCall]] = defaultdict(list)  # of types in place of tensors
    paths = {m: LATER.sub("", p) for p, m in whole.module.named_modules()}
    with _running(source.model):
        if isinstance(whole.module, torch.jit.ScriptModule):
            flat = Flattener(whole.module, whole.names, whole.inputs, whole.allowed)
            for one in flat.watched():
                types = _types(one.arguments), _types(one.results)
                seen[one.path].append(TraceCall(one.path, one.method, *types, one.seconds))
        else:
            begun: list[float] = []

            def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
                seconds = time.perf_counter() - begun.pop()
                path, types = paths[module], (_types((args, kwargs)), _types(output))
                seen[path].append(TraceCall(path, "forward", *types, seconds))

            with _hooked([*paths], lambda *_: begun.append(time.perf_counter()), after):
                _run(whole, source)
                if seen[""][0].seconds <= _QUICK:
                    seen.clear()
                    _run(whole, source)
    rows = []
    for path, module in whole.module.named_modules(remove_duplicate=False):
        if not LATER.search(path):
            calls = seen.get(paths[module], [])
            count = sum(p.numel() for p in module.parameters())
            types = (calls[0].arguments, calls[0].results) if calls else ((), ())
            seconds = sum(c.seconds for c in calls) if calls else None
            rows.append(ModuleRow(path, _kind(module), count, len(calls), *types, seconds))
    return tuple(rows)


def _opened(
    whole: Opened,
    module: nn.Module,
    about: Arguments,
    calls: int,
    path: str,
    call: TraceCall | None,
) -> Opened:
    if not about.tensors:
        message = "This module gets no tensor, so there is nothing to run it on."
        raise EngineError("input", message, path, "Open the module around it.")
    several = [f"The model calls this module {calls} times."] if calls > 1 else []
    inputs = tuple(t if call else t.detach().clone() for t in about.tensors)
    more: Any = {"call": call, "calls": calls, "notes": (*whole.notes, *several, *about.notes())}
    return replace(whole, module=module, names=about.names, inputs=inputs, **more)


def _called(whole: nn.Module, path: str) -> list[nn.Module]:
    """The module of a path; more than one if torch.export made one for each call."""
    known = list(whole.named_modules(remove_duplicate=False))
    found = dict.fromkeys(m for p, m in known if p and LATER.sub("", p) == path)
    if not found:
        close = difflib.get_close_matches(path, [p for p, _ in known], 3)
        hint = f"Similar names: {', '.join(close)}. {_LIST}" if close else _LIST
        raise EngineError("input", f"The model has no module {path!r}.", path, hint)
    return list(found)


def _check_calls(whole: nn.Module, path: str, count: int, wanted: int) -> None:
    if 0 < wanted <= count:
        return
    if count:
        times = "once" if count == 1 else f"{count} times"
        message = f"The model calls this module {times}; there is no call {wanted}."
        raise EngineError("input", message, path, f"Choose a call from 1 to {count}.")
    module = dict(whole.named_modules(remove_duplicate=False))[path]
    message = f"The model never calls forward() of this {_kind(module)}."
    inside = [f"{path}.{name}" for name, _ in module.named_children()]
    around = path.rpartition(".")[0]
    choices = [*inside[:1], *inside[-1:], *([around] if around else [])]
    hint = f"Open {' or '.join(dict.fromkeys(choices))}." if choices else "Open the whole model."
    raise EngineError("input", message, path, hint)


def _kind(module: nn.Module) -> str:
    """A module's class, as far as a file tells."""
    told = getattr(module, "original_name", None) or getattr(module, "_ty", None)
    if told is None and type(module).__module__.startswith("torch.export"):
        return "module"
    return (told or type(module).__name__).rpartition(".")[2]


def _copied(path: str, name: str, value: Any) -> Any:
    """A copy of an argument that is not a tensor."""
    if isinstance(value, nn.Module):
        message = f"This module is passed a module ({type(value).__name__}), not a tensor."
        raise EngineError("input", message, path, "Open the module around it.")
    message = f"This module is given a {type(value).__name__}, which cannot be copied: "
    hint = "Open the module around it."
    with reporting(lambda e: EngineError("input", f"{message}{lines_of(e)[0]}.", path, hint)):
        return deepcopy(value)


def _types(value: Any) -> tuple[Any, ...]:
    return tuple(tensor_type(v) for _, v in opened(value)[0] if isinstance(v, torch.Tensor))


def _run(whole: Opened, source: ModelSource) -> None:
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it bypasses the modules inside
    try:
        with torch.no_grad(), seeded(source.seed), kept_buffers(whole.module):
            whole.module(*(t.clone() for t in whole.inputs))
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _running(where: str) -> AbstractContextManager[None]:
    """Report what a model's run raises."""
    message, hint = "The whole model does not run with its inputs: ", "Give inputs that it accepts."
    return reporting(lambda e: EngineError("input", f"{message}{lines_of(e)[-1]}", where, hint))


@contextmanager
def _hooked(
    modules: list[nn.Module], before: Callable[..., None], after: Callable[..., None] | None
) -> Iterator[None]:
    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_pre_hook(before, with_kwargs=True))
            if after is not None:
                hooks.enter_context(module.register_forward_hook(after, with_kwargs=True))
        yield
