"""TVM in training code: a module whose forward and backward run what TVM built.

Calls with inputs like the samples (shapes, dtypes, device) go through TVM, inside one
`torch.autograd.Function`; any other call runs the module's own forward. PyTorch's generator draws
the dropout masks in the order of the module's own dropouts, so one seed gives the same numbers.

TVM runs what the module did when it was traced, hooks on submodules included, in the mode (train,
eval, each submodule for itself) that it is called in. Numbers that the trace read out of a tensor
(`x.sum().item()`, `if x.any()`) are fixed; a warning names where.
"""

import inspect
import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import torch

from relascope.core.errors import EngineError
from relascope.core.graph import reached
from relascope.engine.cpu_kernels.buffer_pool import SHARED
from relascope.engine.cpu_kernels.dropout_masks import draw_masks, drawn_again
from relascope.engine.measure.compare import comparison, gradient_floor
from relascope.engine.measure.difference import scale_of
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch import nested
from relascope.engine.pytorch.effects import Effects
from relascope.engine.pytorch.model import (
    device_of,
    generator_states,
    kept_buffers,
    recorded,
    seeded,
)
from relascope.engine.pytorch.pairs import as_pairs
from relascope.engine.registry import ENGINES

_is_graph_kept = torch._C._autograd._get_current_graph_task_keep_graph
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks

_TENSORS = (torch.Tensor, torch.nn.Parameter)  # no subclasses: what they add would be lost


def add_tvm_dispatch(
    module: torch.nn.Module,
    sample_inputs: Any,
    sample_kwargs: Mapping[str, Any] | None = None,
    *,
    engine: str = "relay",
    captures: str = "min_cut",
    budget: float | int | None = None,
    target: str | None = None,
    verify: bool = True,
) -> None:
    """Let calls with inputs like these run through TVM, forward and backward.

    The module is traced and imported now, in train mode with its gradient taken, so this call
    raises what TVM cannot do. It is built when first called, once for each mode and each set of
    wanted gradients. Further calls add samples. Raises EngineError: kind "usage" for wrong
    arguments; kind "engine" if the engine's TVM cannot be loaded, or another TVM is imported
    already; kind "input" if the module does not run with these inputs; kind "operator" if the IR
    cannot express what it does; kind "pass" if TVM cannot take its gradient.

    Args:
        module: any module whose parameters and inputs are dense tensors on one device.
        sample_inputs: a tensor, or a tuple or list of positional arguments of forward(). Containers
            are flattened like PyTorch's pytrees, dataclasses too; numbers, strings and None are
            constants of the program, and a call with others runs the module's own forward.
        sample_kwargs: arguments of forward() by name, the same way.
        engine: "relay" or "relax"; a process can have only one of them.
        captures: name of a strategy in `passes.cuts.cut.STRATEGIES`: what the forward saves.
        budget: the most bytes to save, or for `peak` those of a step: an int counts bytes, a float
            is a fraction of the bytes where all that crosses is saved; None is 0.5, and for `peak`
            the least possible.
        target: TVM's target; None takes the device's own, on the CPU with PyTorch's BLAS.
        verify: before its first use, compare a build with the module's own `forward`, on the
            samples and on other values (see `_other_values`): outputs, gradients, changed buffers,
            and the generator's state. Where they differ, that call raises an EngineError of kind
            "engine".

    Warns:
        UserWarning: the module reads a number out of a tensor, which stays as the samples give it;
            names the submodule and the line, once.
    """
    _check_options(engine, captures, budget)
    args = (sample_inputs,) if isinstance(sample_inputs, torch.Tensor) else sample_inputs
    if not isinstance(args, tuple | list):
        message = f"The samples are a {type(args).__name__}, not a tensor, tuple or list."
        hint = "Pass positional arguments in a tuple, and the others as sample_kwargs."
        raise EngineError("usage", message, "sample_inputs", hint)
    from relascope.engine.in_process import load_engine

    backend = load_engine(engine)
    dispatch = module.__dict__.get("forward")
    if not isinstance(dispatch, Dispatch):
        dispatch = Dispatch(module)
    given = tuple(args), dict(sample_kwargs or {})
    try:
        inspect.signature(dispatch.own).bind(*given[0], **given[1])
    except TypeError as wrong:
        message = f"forward() does not take these samples: {wrong}."
        raise EngineError("usage", message, type(module).__name__) from wrong
    leaves, nest = nested.opened(given)
    apart = [v.clone() if isinstance(v, torch.Tensor) else v for _, v in leaves]
    samples = nested.call_apart(dispatch.own, *nested.closed(nest, iter(apart)))
    wanted = any(t.requires_grad for t in (*samples.tensors, *module.parameters()))
    about = samples, backend, (captures, budget), target, verify
    route = _Route(module, dispatch.own, *about)
    try:
        mode = route.mode()
    except EngineError as error:
        if error.instead:
            listed = ", ".join(error.instead[:3])
            error.__notes__.append(f"Submodules without it: {listed}.")
        raise
    if mode.training and wanted:
        mode.live.joint()
    dispatch.routes.insert(0, route)
    module.__dict__["forward"] = dispatch


def _check_options(engine: str, captures: str, budget: float | None) -> None:
    from relascope.passes.cuts.cut import STRATEGIES

    if engine not in ENGINES:
        message, hint = f"There is no engine {engine!r}.", f"Use {' or '.join(ENGINES)}."
        raise EngineError("usage", message, engine, hint)
    if captures not in STRATEGIES:
        message = f"No capture strategy is called {captures!r}."
        raise EngineError("usage", message, captures, f"Choose one of {', '.join(STRATEGIES)}.")
    if budget is not None and not (STRATEGIES[captures].has_budget and budget >= 0):
        message = f"The strategy {captures} does not take a budget of {budget}."
        having = ", ".join(s.name for s in STRATEGIES.values() if s.has_budget)
        hint = f"Strategies that take a budget, of 0 or more: {having}."
        raise EngineError("usage", message, "budget", hint)


def remove_tvm_dispatch(module: torch.nn.Module) -> None:
    """Give a module its own forward back. Without a dispatch, nothing happens."""
    dispatch = module.__dict__.get("forward")
    if isinstance(dispatch, Dispatch):
        del module.__dict__["forward"]
        SHARED.release()
        if dispatch.replaced is not None:
            module.__dict__["forward"] = dispatch.replaced


class Dispatch:
    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.replaced = module.__dict__.get("forward")
        self.own = module.forward
        self.routes: list[_Route] = []
        self.calls = {"tvm": 0, "own": 0}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _must_fall_back():
            for route in self.routes:
                inputs = route.matching(args, kwargs)
                if inputs is not None:
                    self.calls["tvm"] += 1
                    return route.mode().run(inputs)
        self.calls["own"] += 1
        return self.own(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Dispatch":
        # The copied module is in `memo` before its attributes are copied.
        module = memo.get(id(self.module), self.module)
        copy = Dispatch.__new__(Dispatch)
        copy.module, copy.replaced = module, deepcopy(self.replaced, memo)
        copy.own = copy.replaced or type(module).forward.__get__(module)
        copy.calls = {"tvm": 0, "own": 0}
        copy.routes = [replace(r, module=module, own=copy.own, modes={}) for r in self.routes]
        return copy

    def __reduce__(self) -> Any:
        message = "A module with TVM dispatch cannot be pickled."
        hint = "Call remove_tvm_dispatch first, or save its state_dict()."
        raise EngineError("usage", message, type(self.module).__name__, hint)


@dataclass
class _Route:
    module: torch.nn.Module
    own: Callable[..., Any]
    given: nested.Arguments
    backend: Any
    captures: tuple[str, float | int | None]
    target: str | None
    verify: bool
    modes: "dict[tuple[Any, ...], _Mode]" = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.samples = tuple(t.detach() for t in self.given.tensors)
        self.names = self.given.names
        # Most calls give tensors in order.
        nests = self.given.bound.values()
        self.plain = len(self.given.leaves) == len(nests) == len(self.samples)
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        known = [*self.given.signature.parameters.values()][: len(nests)]
        self.plain = self.plain and all(p.kind in positional for p in known)
        self.plain = self.plain and [p.name for p in known] == [*self.given.bound]

    def matching(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, ...] | None:
        """The inputs of a call that is like the samples; None for any other call."""
        inputs: Sequence[Any] | None = args
        if not self.plain or kwargs or len(args) != len(self.samples):
            inputs = self._inputs(args, kwargs)
        alike = inputs is not None and all(map(_alike, inputs, self.samples))
        return tuple(inputs) if inputs is not None and alike and self.mode().is_current() else None

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The tensors of a call with the samples' nesting and constants; None for any other."""
        parameters = self.given.signature.parameters
        try:
            bound = self.given.signature.bind(*args, **kwargs).arguments
        except TypeError:
            return None
        leaves: list[Any] = []
        for name, nest in self.given.bound.items():
            found, own = nested.opened(bound.pop(name, parameters[name].default))
            if own != nest:
                return None
            leaves += (leaf for _, leaf in found)
        if not all(nested.same_constant(v, parameters[n].default) for n, v in bound.items()):
            return None
        tensors: list[Any] = []
        for value, own in zip(leaves, self.given.leaves, strict=True):
            if isinstance(own, nested.Slot):
                tensors.append(value)
            elif not nested.same_constant(value, own):
                return None
        return tensors

    def run(self, forward: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        args, kwargs = self.given.call(tensors)
        return forward(*args, **kwargs)

    def mode(self) -> "_Mode":
        """The trace and builds for the module's present modes."""
        # The rate of a dropout is part of what was traced, like its switch.
        switches = tuple((m.training, getattr(m, "p", None)) for m in self.module.modules())
        differentiable = torch.is_grad_enabled() or any(on for on, _ in switches)
        key = (differentiable, switches)
        if key not in self.modes:
            self.modes[key] = _Mode(self, differentiable)
        return self.modes[key]


class _Mode:
    """One trace of a module, its builds, and how outputs are put together. Unless it is
    `differentiable`, it may use operators of TVM's, such as resize."""

    def __init__(self, route: _Route, differentiable: bool) -> None:
        from relascope.engine.in_process import LiveProgram
        from relascope.engine.pytorch.model import model_from_module

        self.route = route
        module, samples = route.module, route.samples
        training = self.training = any(m.training for m in module.modules())
        floats = (t.dtype for t in (*samples, *module.parameters()) if t.is_floating_point())
        dtype = str(next(floats, torch.float32)).removeprefix("torch.")
        source = ModelSource(type(module).__name__, training=training, dtype=dtype)
        outputs: list[tuple[list[tuple[bool, Any]], nested.Nest]] = []

        def begin(hooked: Any, tensors: Any, _: Any) -> Any:
            effects.start(call := route.given.call(tensors))
            return call

        def flatten(hooked: Any, args: Any, kwargs: Any, output: Any) -> tuple[torch.Tensor, ...]:
            # A trace can return tuples of tensors, but not everything that a module can.
            found, nest = nested.opened(output)
            outputs.append(([(nested.is_constant(v), v) for _, v in found], nest))
            return (*nested.flat_tensors(output), *effects.replaced((args, kwargs)).values())

        with _own_forwards(module), _without_hooks(module):
            effects = Effects(module)
            before = module.register_forward_pre_hook(begin, with_kwargs=True)
            with before, module.register_forward_hook(flatten, with_kwargs=True):
                about = module, route.names, samples, source, silent
                model = model_from_module(*about, differentiable=differentiable)
        self.live = LiveProgram(route.backend, model, route.captures, route.target)
        self.reads = model.reads
        self.ties = any(n.kind() in _TIED for n in model.flat.graph.nodes())
        for text in set(model.reads) - route.warned:
            route.warned.add(text)
            warnings.warn(text, stacklevel=4)  # the call of add_tvm_dispatch
        effects.check(self.live.program.updates)
        self.replaced = tuple(effects.new)
        self.verified: set[frozenset[str] | None] = set()
        self.name = type(module).__name__
        self.inputs, self.pairs = model.input_names, model.pairs
        self.reached: list[set[str]] | None = None
        # Marks the places of tensors; everything else in an output is returned as it was.
        found, self.nest = outputs[-1]
        numbers = [v.item() if fixed and isinstance(v, torch.Tensor) else v for fixed, v in found]
        self.leaves = [v if f else _TENSOR for v, (f, _) in zip(numbers, found, strict=True)]
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self.owners = {
            n: (module.get_submodule(n.rpartition(".")[0]), n.rpartition(".")[2])
            for n in (*self.live.program.params, *self.replaced)
        }
        self.types = {n: _type_of(held[n]) for n in self.owners}

    def is_current(self) -> bool:
        """Whether the module's parameters are still of the types they were traced with."""
        now = ((n, getattr(*place, None)) for n, place in self.owners.items())
        return all(isinstance(v, torch.Tensor) and _type_of(v) == self.types[n] for n, v in now)

    def run(self, inputs: tuple[torch.Tensor, ...]) -> Any:
        """Run through TVM, with autograd where it records; verify a new build first."""
        tensors = dict(zip(self.inputs, inputs, strict=True))
        tensors.update({n: getattr(*self.owners[n]) for n in self.live.program.params})
        buffers = self.live.program.buffers
        wanted = [n for n, t in tensors.items() if t.requires_grad and n not in buffers]
        if not torch.is_grad_enabled():
            wanted = []
        if self.route.verify and frozenset(wanted) not in self.verified:
            self._verify(frozenset(wanted))
        return self._run(inputs, tensors, wanted)

    def _run(
        self, inputs: tuple[torch.Tensor, ...], tensors: dict[str, torch.Tensor], wanted: list[str]
    ) -> Any:
        device = inputs[0].device if inputs else torch.get_default_device()
        if self.pairs:
            tensors = {n: as_pairs(t) for n, t in tensors.items()}
        step = self.live.step(wanted) if wanted else None
        again = step.drawn_again if step else ()
        masks = draw_masks(self.live.masks, None, device, SHARED.pool, again)
        if step:
            for name in self.live.program.updates:
                if name in step.read_by_backward:  # the backward reads what was there before
                    tensors[name] = tensors[name].clone()
            self.reached = self._reached() if self.reached is None else self.reached
            kept = [found & set(wanted) for found in self.reached]
            names = tuple(n if any(n in k for k in kept) else None for n in tensors)
            redraw = partial(drawn_again, again, device=device, pool=SHARED.pool)
            about = step, self.name, self._update, names, tuple(tensors), masks, redraw
            results = _TvmFunction.apply(*about, [*map(bool, kept)], *tensors.values())
        else:
            results = self._update(self.live.forward({**tensors, **masks}))
        if self.pairs:
            made = [(r, f"output {i}" in self.pairs) for i, r in enumerate(results)]
            results = tuple(torch.view_as_complex(r) if pair else r for r, pair in made)
        rest = iter(results)
        leaves = [next(rest) if v is _TENSOR else v for v in self.leaves]
        for name, value in zip(self.replaced, rest, strict=True):
            setattr(*self.owners[name], value.detach())
        return nested.closed(self.nest, iter(leaves))

    def _reached(self) -> list[set[str]]:
        """For each output, then each replaced buffer, the inputs and parameters that PyTorch's
        gradient reaches from it."""
        module, route = self.route.module, self.route
        samples = [t.clone() for t in route.samples]
        values = dict(zip(self.inputs, samples, strict=True))
        values |= {n: getattr(*self.owners[n]) for n in self.live.program.params}
        continuous = {n: t for n, t in values.items() if t.is_floating_point() or t.is_complex()}
        leaves = {n: t for n, t in continuous.items() if t.is_leaf}
        buffers = self.live.program.buffers
        recording = recorded(t for n, t in leaves.items() if n not in buffers)
        with _own_run(module), recording, torch.enable_grad():
            # An input may be changed in place where it is no leaf.
            tensors = nested.flat_tensors(route.run(route.own, [t.clone() for t in samples]))
        names = {id(t): n for n, t in leaves.items()}
        found = [{names[i] for i in _leaves_of(t) if i in names} for t in tensors]
        return [*found, *(set() for _ in self.replaced)]

    def _verify(self, wanted: frozenset[str]) -> None:
        module, samples = self.route.module, self.route.samples
        first = self._results(samples, wanted, module)
        worst, words = self._difference(samples, wanted, first), "on the samples"
        scales = {n: scale_of(t) for n, t in first.items()}
        # Where it reads values, others give another program; a warning has said so.
        others = () if self.reads else _other_values(module, samples, self.ties)
        for name, values in others:
            if worst[1] > 1:
                break
            try:
                theirs = self._results(values, wanted, module)
            except _REFUSALS:
                continue
            # A norm of zeros gives only rounding, which has no scale of its own.
            least = scales if name == _ZEROS else {}
            worst, words = self._difference(values, wanted, theirs, least), f"on {name}"
        if worst[1] > 1:
            message = (
                f"TVM's build of {self.name} differs from the module's own run {words}: "
                f"{worst[0]} by {worst[1]:.3g} times the limit."
            )
            hint = "Leave this module to PyTorch, or pass verify=False to use the build anyway."
            raise EngineError("engine", message, worst[0], hint)
        self.verified.add(wanted)

    def _difference(
        self,
        inputs: tuple[torch.Tensor, ...],
        wanted: frozenset[str],
        theirs: dict[str, torch.Tensor],
        least: Mapping[str, float] = MappingProxyType({}),
    ) -> tuple[str, float]:
        """The tensor that differs most from the module's own run, and by how many limits. Beyond
        one, the module in float64 decides, because its rounding is not our error. `least` has the
        least scales by name."""
        scales = {n: max(scale_of(t), least.get(n, 0.0)) for n, t in theirs.items()}
        ours = self._results(inputs, wanted, None)
        worst = _worst(ours, theirs, scales, {})
        if 1 < worst[1] < math.inf:
            with suppress(*_REFUSALS):
                exact = self._results(inputs, wanted, deepcopy(self.route.module).double())
                judged = _worst(ours, theirs, scales, exact)
                worst = judged if judged[1] <= 1 else worst
        return worst

    def _results(
        self,
        inputs: tuple[torch.Tensor, ...],
        wanted: frozenset[str],
        module: torch.nn.Module | None,
    ) -> dict[str, torch.Tensor]:
        """Outputs, buffers, the generator's state and gradients of one run: of the own forward of
        `module` (the dispatched one, or its copy in float64), or of the build where it is None."""
        owner, route = module or self.route.module, self.route
        double = module is not None and module is not route.module
        fresh = (s.double() if double and s.is_floating_point() else s.clone() for s in inputs)
        named = zip(self.inputs, fresh, strict=True)
        values = {n: t.requires_grad_(n in wanted) for n, t in named}
        given = tuple(values.values())
        values |= {n: attrgetter(n)(owner) for n in self.live.program.params}
        with _own_run(owner):
            if module is None:
                out = self._run(given, values, list(wanted))
            else:
                out = route.run(owner.forward if double else route.own, given)
            tensors = nested.flat_tensors(out)
            found = {f"output {i}": t.detach().clone() for i, t in enumerate(tensors)}
            found |= {f"buffer {n}": b.detach().clone() for n, b in owner.named_buffers()}
            *_, found["the generator's state"] = generator_states(device_of(owner, inputs))
            leaves = {n: values[n] for n in values if n in wanted}
            grads = _gradients(tensors, [*leaves.values()])
        found |= {f"gradient of {n}": g for n, g in zip(leaves, grads, strict=True)}
        return {n: as_pairs(t) for n, t in found.items()}

    def _update(self, results: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Write the new values of buffers (running statistics); give back the outputs alone."""
        names = self.live.program.updates
        count = len(results) - len(names)
        with torch.no_grad():
            for name, value in zip(names, results[count:], strict=True):
                getattr(*self.owners[name]).copy_(value)
        return results[:count]


def _worst(
    ours: dict[str, torch.Tensor],
    theirs: dict[str, torch.Tensor],
    scales: dict[str, float],
    exact: dict[str, torch.Tensor],
) -> tuple[str, float]:
    """The tensor that differs most, and by how many limits. Errors are relative to its scale; the
    rounding of `theirs` is subtracted where `exact`, the same in float64, is known."""
    floor = gradient_floor(s for n, s in scales.items() if n.startswith("gradient"))
    worst = "", 0.0
    for name in dict.fromkeys((*theirs, *ours)):
        error = math.inf
        if name in ours and name in theirs and ours[name].shape == theirs[name].shape:
            least = floor if name.startswith("gradient") else 0.0
            about = theirs[name], scales[name], max(scales[name], least), False
            error = comparison(name, ours[name], *about).max_rel
            if name in exact and theirs[name].is_floating_point():
                own = comparison(name, exact[name].to(theirs[name]), *about).max_rel
                error -= _ROUNDINGS * own if math.isfinite(own) else 0.0
            error /= _LIMITS.get(theirs[name].dtype, 0.5)
            error = math.inf if ours[name].dtype != theirs[name].dtype else error
        worst = max(worst, (name, error), key=lambda pair: pair[1])
    return worst


def _gradients(
    tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Gradients of leaves for random ones of outputs; zeros for a leaf that no output uses."""
    drawn = torch.Generator().manual_seed(_WEIGHTS_SEED)
    # One for every tensor: which of them require a gradient may differ.
    weights = [(torch.rand(t.shape, generator=drawn).to(t.device) - 0.5).to(t) for t in tensors]
    ends = [pair for pair in zip(tensors, weights, strict=True) if pair[0].requires_grad]
    found: Sequence[Any] = [None] * len(leaves)
    if ends and leaves:
        outs, grad_outs = zip(*ends, strict=True)
        found = torch.autograd.grad(outs, leaves, grad_outs, allow_unused=True)
    pairs = zip(leaves, found, strict=True)
    return [torch.zeros_like(leaf) if g is None else g.to_dense() for leaf, g in pairs]


def _other_values(
    module: torch.nn.Module, samples: tuple[torch.Tensor, ...], ties: bool
) -> Iterator[tuple[str, tuple[torch.Tensor, ...]]]:
    """Inputs that differ from samples in kind, and their names.

    Special integers (-100, 0, and the submodules' padding and ignored labels) at every second place
    and everywhere; masks that hide one row, or all; zeros, small negative and large numbers. A
    module may refuse some. With `ties`, it may pick any of equal numbers, so zeros are left out."""

    def instead(kind: Callable[[torch.dtype], bool], change: Callable[[torch.Tensor], Any]) -> Any:
        return tuple(change(s) if kind(s.dtype) else s for s in samples)

    def integer(dtype: torch.dtype) -> bool:
        return not dtype.is_floating_point and dtype != torch.bool

    kinds = {s.dtype for s in samples if s.numel()}
    cpu = all(s.device.type == "cpu" for s in samples)  # a GPU does not survive a wrong index
    if cpu and any(map(integer, kinds)):
        for label in _labels(module):
            yield f"{label} at every second place", instead(integer, partial(_spotted, label))
            filled = partial(torch.full_like, fill_value=label)
            yield f"{label} everywhere", instead(integer, filled)
    if torch.bool in kinds:
        if all(s.dim() > 1 for s in samples if s.dtype == torch.bool):
            yield "a row that is False", instead(lambda d: d == torch.bool, _with_a_row_hidden)
        yield "False everywhere", instead(lambda d: d == torch.bool, torch.zeros_like)
    if any(d.is_floating_point for d in kinds):
        zeros = () if ties else ((_ZEROS, 0.0),)
        for name, factor in (*zeros, ("small negative numbers", -1e-6), ("large numbers", 30.0)):
            change = partial(torch.mul, other=factor)
            yield name, instead(lambda d: d.is_floating_point, change)


def _labels(module: torch.nn.Module) -> list[int]:
    names = ("padding_idx", "ignore_index")
    named = {getattr(m, n, None) for m in module.modules() for n in names}
    return sorted({-100, 0} | {n for n in named if isinstance(n, int)})


def _with_a_row_hidden(mask: torch.Tensor) -> torch.Tensor:
    mask = mask.clone()
    mask[..., :1, :] = False
    return mask


def _spotted(value: int, sample: torch.Tensor) -> torch.Tensor:
    sample = sample.clone(memory_format=torch.contiguous_format)
    sample.view(-1)[1::2] = value
    return sample


_TIED = [
    f"aten::{n}"
    for n in ["sort", "argsort", "msort", "topk", "kthvalue", "mode", "median", "nanmedian"]
]
_REFUSALS = (RuntimeError, IndexError, ValueError, TypeError, AssertionError)
"""What PyTorch's modules raise for values that they refuse."""
_ZEROS = "zeros"
_WEIGHTS_SEED = 0x5EED7E57
"""Of the gradients that outputs get in `verify`: nobody else's, and no normal numbers."""

_TENSOR = object()
_ROUNDINGS = 16
"""How many times the module's own rounding error is none of ours."""
_LIMITS = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""How far `verify` lets a tensor be from PyTorch's, over its largest magnitude. Integers and bools
are equal or not."""


class _TvmFunction(torch.autograd.Function):
    """A forward and a backward that TVM built, as one node of autograd's graph."""

    @staticmethod
    def forward(
        ctx: Any,
        step: Any,
        name: str,
        update: Callable[[tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...]],
        differentiated: tuple[str | None, ...],
        names: tuple[str, ...],
        masks: dict[str, torch.Tensor],
        redraw: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
        flowing: list[bool],
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        values = {**dict(zip(names, tensors, strict=True)), **masks}
        results, captures = step.forward(values)
        outputs = update(results)
        ctx.spent = {n: v for n, v in {**masks, **captures}.items() if n in step.read_by_backward}
        saved = {n: v for n, v in values.items() if n in step.read_by_backward - ctx.spent.keys()}
        ctx.held = SHARED.hold(sum(t.nbytes for t in ctx.spent.values()))
        if _top_hooks(False) is not None:  # they must see all that is saved
            saved, ctx.spent = {**saved, **ctx.spent}, {}
        ctx.save_for_backward(*saved.values())
        ctx.step, ctx.name, ctx.names, ctx.saved = step, name, differentiated, tuple(saved)
        ctx.redraw = redraw
        still = (o for o, flows in zip(outputs, flowing, strict=True) if not flows)
        ctx.mark_non_differentiable(*still)
        ctx.floating = [o.is_floating_point() for o in outputs]
        return outputs

    @staticmethod
    def backward(ctx: Any, *grad_outs: Any) -> tuple[Any, ...]:
        step, saved = ctx.step, ctx.saved_tensors
        given = [g for g, floating in zip(grad_outs, ctx.floating, strict=True) if floating]
        values = dict(zip(ctx.saved, saved, strict=True))
        values.update(zip(step.grad_outs, given, strict=True))
        # A tensor that nothing reads after this is freed with its last reader.
        again = _is_graph_kept()
        spent = dict(ctx.spent) if again else ctx.spent
        with torch.no_grad():
            gradients = step.backward({**values, **ctx.redraw({**values, **spent})}, spent)
        if not again:
            spent.clear()
            SHARED.settle(ctx.held)
        if torch.is_grad_enabled():  # create_graph: a second derivative may follow
            leaves = [t for t in saved if t.requires_grad]
            read = *given, *leaves
            passed = _NotTwice.apply(ctx.name, len(read), *read, *gradients.values())
            gradients = dict(zip(gradients, passed, strict=True))
        return (*[None] * 8, *(gradients.get(n) for n in ctx.names))


class _NotTwice(torch.autograd.Function):
    """Passes gradients on, and raises EngineError when they are differentiated themselves."""

    @staticmethod
    def forward(ctx: Any, name: str, skipped: int, *tensors: torch.Tensor) -> Any:
        ctx.name = name
        return tuple(t.view_as(t) for t in tensors[skipped:])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        text = "has no gradient of its own, so it cannot be differentiated twice."
        hint = "Call remove_tvm_dispatch on it, or take its gradient without create_graph."
        raise EngineError("usage", f"TVM's backward of {ctx.name} {text}", ctx.name, hint)


def _leaves_of(tensor: torch.Tensor) -> set[int]:
    if tensor.grad_fn is None:
        return {id(tensor)} if tensor.requires_grad else set()
    nodes: Any = reached([tensor.grad_fn], lambda n: [m for m, _ in n.next_functions if m])
    return {id(n.variable) for n in nodes if hasattr(n, "variable")}


def _type_of(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device


def _alike(value: Any, sample: torch.Tensor) -> bool:
    same = type(value) in _TENSORS and _type_of(value) == _type_of(sample)
    return same and value.layout == torch.strided


def _must_fall_back() -> bool:
    """Whether PyTorch's operators are watched or replaced, which TVM would bypass."""
    return (
        torch.jit.is_tracing()
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
        or torch.is_autocast_enabled("cuda")
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


@contextmanager
def _own_run(module: torch.nn.Module) -> Iterator[None]:
    """Run a module without dispatch; what it changes is restored afterwards."""
    with _own_forwards(module), kept_buffers(module), seeded(0):
        yield


@contextmanager
def _without_hooks(module: torch.nn.Module) -> Iterator[None]:
    """Take the module's own hooks off: they run around the forward that is dispatched."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    kept = {kind: module.__dict__[kind] for kind in kinds}
    module.__dict__.update({kind: OrderedDict() for kind in kinds})
    try:
        yield
    finally:
        module.__dict__.update(kept)


@contextmanager
def _own_forwards(module: torch.nn.Module) -> Iterator[None]:
    """Take every dispatch in a module off, so that a trace sees PyTorch's operators only."""
    off = [m for m in module.modules() if isinstance(m.__dict__.get("forward"), Dispatch)]
    dispatches = [m.__dict__["forward"] for m in off]
    for inner in off:
        remove_tvm_dispatch(inner)
    try:
        yield
    finally:
        for inner, dispatch in zip(off, dispatches, strict=True):
            inner.__dict__["forward"] = dispatch
