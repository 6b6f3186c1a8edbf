"""A model in PyTorch: loaded, traced, run and differentiated. What every engine is compared with.

This file knows torch and no TVM; it runs in an engine's child process.
"""

from __future__ import annotations

import copy
import pickle
import random
import re
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from relascope.core.errors import EngineError, lines_of, refusing
from relascope.core.graph import TensorType
from relascope.engine.files.archive import Archive, plainly
from relascope.engine.files.opening import opening
from relascope.engine.files.operators import DYNAMIC_INT8, UNPACKED, allowed
from relascope.engine.files.tensors import Saved, read_tensors
from relascope.engine.files.torchscript import check_code, recorded_inputs
from relascope.engine.protocol.results import PYTORCH, ModelInputs, OpenSize
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.source import CODE, ModelSource, file_digest, has_name
from relascope.engine.pytorch.draws import numbers_of
from relascope.engine.pytorch.exported_program import Exported, reader
from relascope.engine.pytorch.flat_trace import (
    Flattener,
    FlatTrace,
    TraceCall,
    frames_in,
    runs_alone,
)
from relascope.engine.pytorch.in_place import without_writes
from relascope.engine.pytorch.inputs.tensors import (
    Input,
    assigned,
    described,
    dtype_in_run,
    file_of,
    fitting,
    input_tensors,
    rows_of_trace,
    tensor_type,
    types_of,
    with_rows,
)
from relascope.engine.pytorch.named import models as named
from relascope.engine.pytorch.nested import apart, flat_tensors, leaves, nesting
from relascope.engine.pytorch.pairs import NOTE, as_pairs, leaf, take_pairs
from relascope.engine.pytorch.watch import Watch, line_of, variances_shown
from relascope.samples import SAMPLES, build

Tensors = tuple[Tensor, ...]
_ALIGNMENT = 64  # bytes, of memory that TVM reads
_QUIET = {"train": False, "training": False, "dropout": 0, "dropout_p": 0, "num_layers": 1}
"""Arguments with which an operator that may draw random numbers draws none."""
_TRACE_HINT = "Write it with torch.jit.trace(module.eval(), inputs).save(path)."


@dataclass
class Model:
    """A model with inputs, traced.

    Args:
        source: where it came from; `source.inputs` is filled in.
        module: the module itself, in train or eval mode as the source asks.
        inputs: one tensor per input; floats are `source.dtype`, and complex ones pairs of them.
        input_names: forward()'s names for them.
        parameters: those that the graph reads, in the order of `module.named_parameters()`.
        buffers: those that the graph reads, in the order of `module.named_buffers()`, then tensors
            in other attributes of a script: arguments without gradients.
        outputs_flat: types of the outputs, flattened.
        differentiable: whether a gradient may be taken; `detach` is kept for it.
        no_gradient: why PyTorch's own gradient cannot be taken, if that is so.
        reads: sentences, also among the notes, on values read out of tensors, which a trace fixes;
            none for a file.
        calls: how often the whole model calls a submodule.
        pairs: the complex ones of inputs, parameters, buffers and outputs ("output 0"), which are
            pairs of floats here; see `engine.pytorch.pairs`.
        composed: ordinals of operators that an importer has written with others.
    """

    source: ModelSource
    module: nn.Module
    inputs: Tensors
    input_names: tuple[str, ...]
    traced: torch.jit.ScriptModule
    flat: FlatTrace
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    unread: tuple[str, ...]
    outputs_flat: tuple[TensorType, ...]
    differentiable: bool
    no_gradient: EngineError | None
    reads: tuple[str, ...] = ()
    calls: int = 1
    pairs: tuple[str, ...] = ()
    composed: set[int] = field(default_factory=set)
    _notes: dict[str, None] = field(default_factory=dict)

    @property
    def against(self) -> str:
        """What its numbers are compared with, as worded after "against"."""
        return PYTORCH

    @property
    def meant(self) -> str:
        """The same, without asking another process."""
        return self.against

    @property
    def unjudged(self) -> str:
        """Why nothing outside TVM judges its numbers, as a sentence; "" if something does."""
        return ""

    @property
    def baseline(self) -> str:
        """What is timed beside a build."""
        return "pytorch eager"

    def note(self, text: str) -> None:
        """Keep a sentence that a person should read; the same one is kept once."""
        self._notes[text] = None

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def tvm_tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers as TVM takes them, by name, on the CPU. Parameters share the
        module's memory if that is contiguous and aligned; buffers, which runs change, are copies.
        """
        found = {n: t.detach().cpu().contiguous() for n, t in self.parameters.items()}
        found = {n: t.clone() if t.data_ptr() % _ALIGNMENT else t for n, t in found.items()}
        return found | {n: t.detach().cpu().clone() for n, t in self.buffers.items()}

    @property
    def parameter_elements(self) -> int:
        """Number of elements of all the module's parameters, read or not."""
        return sum(p.numel() for p in self.module.parameters())

    @cached_property
    def device(self) -> torch.device:
        return device_of(self.module, self.inputs)

    def on(self, device: str) -> Model:
        """The same model with its tensors on another device; itself if they are there already.

        The traces stay, for import only. On a GPU, this turns TF32 off in the whole process.
        """
        wanted = torch.device(device)
        same = (self.device.index or 0) == (wanted.index or 0)
        if same and self.device.type == wanted.type:
            return self
        if any(n.kind() in DYNAMIC_INT8 for n in self.flat.graph.nodes()):
            message = "PyTorch computes with int8 weights only on the CPU."
            raise EngineError("operator", message, device, "Choose the CPU as the target.")
        if wanted.type == "cuda":
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        module = copy.deepcopy(self.module).to(device)
        moved, held = dict(module.named_parameters()), dict(module.named_buffers())
        parameters = {n: leaf(moved[n]) for n in self.parameters}
        buffers = {n: leaf(held[n]) for n in self.buffers}
        inputs = tuple(t.to(device) for t in self.inputs)
        return replace(self, module=module, inputs=inputs, parameters=parameters, buffers=buffers)

    @cached_property
    def _draws(self) -> bool:
        return bool(self.flat.draws())

    def run(self, *inputs: Tensor) -> Any:
        """What the module's forward() returns; a file's trace runs flat, and complex ones are
        pairs."""
        if not isinstance(self.module, torch.jit.ScriptModule):
            return self._run_of_pairs(inputs) if self.pairs else self.module(*inputs)
        tensors = {**self.flat.tensors, **self.parameters, **self.buffers}
        in_order = torch.jit.optimized_execution(False) if self._draws else nullcontext()
        with in_order:  # TorchScript's optimizer reorders draws
            return self.flat.function(*inputs, *tensors.values())

    def own_inputs(self, inputs: Sequence[Tensor]) -> Tensors:
        """Inputs as the module's own forward() takes them, complex ones made of their pairs."""
        named = zip(self.input_names, inputs, strict=True)
        return tuple(torch.view_as_complex(t) if n in self.pairs else t for n, t in named)

    def _run_of_pairs(self, inputs: Sequence[Tensor]) -> Tensors:
        kept = {**self.parameters, **self.buffers}
        kept = {n: torch.view_as_complex(t) for n, t in kept.items() if n in self.pairs}
        made = torch.func.functional_call(self.module, kept, self.own_inputs(inputs))
        return tuple(map(as_pairs, flat_tensors(made)))

    def forward(self) -> Tensors:
        """The module's outputs, flattened, without autograd history.

        Dropout draws from the source's seed. Buffers that the run updates are put back.
        """
        with torch.no_grad(), seeded(self.source.seed), kept_buffers(self.module):
            return tuple(t.detach().clone() for t in flat_tensors(self.run(*self.inputs)))

    def updated(self, names: Collection[str]) -> dict[str, Tensor]:
        """The values that buffers have after one run of the module, by name.

        Dropout draws from the source's seed. The buffers themselves are put back.
        """
        if not names:
            return {}
        with torch.no_grad(), seeded(self.source.seed), kept_buffers(self.module):
            self.run(*self.inputs)
            return {n: self.buffers[n].detach().clone() for n in names}

    def grad_outs(self) -> Tensors:
        """One gradient for each floating output, in order, of its shape and dtype: normal, drawn in
        float32 from the source's seed, so that float32 and float64 have the same numbers."""
        generator = torch.Generator().manual_seed(self.source.seed + 1)
        kinds = [([int(d) for d in t.shape], getattr(torch, t.dtype)) for t in self.outputs_flat]
        floating = [(s, dtype) for s, dtype in kinds if dtype.is_floating_point]
        drawn = (torch.randn(s, generator=generator).to(dtype) for s, dtype in floating)
        return tuple(t.to(self.device) for t in drawn)

    def gradients(self) -> dict[str, Tensor]:
        """Gradients of the floating inputs, then of the parameters that the graph reads.

        Dropout masks are those of `forward`, outputs are weighted with `grad_outs`. Unused tensors
        have zeros.
        """
        leaves = {
            name: value.detach().clone().requires_grad_()
            for name, value in zip(self.input_names, self.inputs, strict=True)
            if value.is_floating_point()
        }
        arguments = [leaves.get(n, v) for n, v in zip(self.input_names, self.inputs, strict=True)]
        leaves.update((n, p) for n, p in self.parameters.items() if p.is_floating_point())
        # Buffers are put back only after the backward, which may need them as they were left.
        with recorded(leaves.values()), seeded(self.source.seed), kept_buffers(self.module):
            outputs = flat_tensors(self.run(*arguments))
            found = self.backward(outputs, list(leaves.values()), self.grad_outs())
        return {
            name: torch.zeros_like(leaf) if gradient is None else gradient.detach()
            for (name, leaf), gradient in zip(leaves.items(), found, strict=True)
        }

    def eager(
        self, backward: bool, module: Callable[..., Any] | None = None
    ) -> Callable[[], object]:
        """One run of PyTorch's module, or of another such as torch.compile's, to be timed: with the
        gradients of all floating-point inputs and parameters (`backward`), or only the outputs,
        which autograd records if the model is opened for training."""
        training = self.source.training
        run = self.run if module is None else module
        wanting = ((t, training and t.is_floating_point()) for t in self.inputs)
        inputs = tuple(t.detach().clone().requires_grad_(wants) for t, wants in wanting)
        if not training:
            return torch.no_grad()(lambda: run(*inputs))
        if not backward:
            return lambda: run(*inputs)
        leaves = [t for t in (*inputs, *self.parameters.values()) if t.requires_grad]
        grad_outs = self.grad_outs()
        return lambda: self.backward(flat_tensors(run(*inputs)), leaves, grad_outs)

    def backward(
        self, outputs: Sequence[Tensor], leaves: Sequence[Tensor], grad_outs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Gradients of leaves, None where no output depends on one; `grad_outs` belong to the
        floating-point outputs. Raises EngineError of kind "operator" if none of these depends on
        anything that requires a gradient."""
        floats = [o for o in outputs if o.is_floating_point()]
        used = [(o, g) for o, g in zip(floats, grad_outs, strict=True) if o.requires_grad]
        if not used:
            message = "No output depends on a floating-point input or parameter."
            hint = "There is no gradient to take; leave training off."
            raise EngineError("operator", message, self.source.model, hint)
        used_outputs, weights = zip(*used, strict=True)
        return torch.autograd.grad(used_outputs, leaves, weights, allow_unused=True)


@dataclass(frozen=True)
class Opened:
    """A module as built or read, with inputs, before it is traced. `names` are forward()'s names
    for its inputs, and `inputs` one tensor for each; `allowed` says whether an operator may run.
    For a submodule, `calls` is how often the whole model calls it, and `call` how a trace does.
    `given` describes a whole file's inputs, and where their values come from."""

    module: nn.Module
    names: tuple[str, ...]
    inputs: Tensors
    allowed: Callable[[str], bool] = lambda kind: True
    call: TraceCall | None = None
    calls: int = 1
    notes: tuple[str, ...] = ()
    given: ModelInputs | None = None


def load_model(
    source: ModelSource, progress: Progress, opened: Callable[[], Opened] | None = None
) -> Model:
    """Build the sample, or read the file (or take what was opened, such as a submodule), run it
    once, and trace it. Raises an EngineError of kind "file" (missing, changed, or not TorchScript),
    "input" (types missing, wrong in number, or refused by the model), "usage" (no such sample, or a
    size it does not take) or "operator" (an operation that a trace cannot hold)."""
    with guarded(source):
        found = open_model(source, progress) if opened is None else opened()
        about = found.module, found.names, found.inputs, source, progress, found.notes
        model = model_from_module(*about, allowed=found.allowed, call=found.call)
        return replace(model, calls=found.calls)


def guarded(source: ModelSource) -> AbstractContextManager[None]:
    """Where a model is opened and first run: within the limits of files, if it is one."""
    if source.model in SAMPLES:
        return nullcontext()
    if has_name(source.model):
        return named.guarded(source)
    path = checked_path(source)
    if path.suffix == ".pt2":
        reader()  # its import does not count as the file's time
    return opening(path, source)


def open_model(source: ModelSource, progress: Progress) -> Opened:
    """Build the sample, or read the file, whole; raises what `load_model` does."""
    if source.model in SAMPLES:
        progress(0.0, f"building {source.model}")
        about = source.model, source.batch, source.tokens, source.training
        with refusing("usage", "{}.", source.model):
            module, tensors = build(*about, source.seed, source.dtype)
        return _with_saved(Opened(module, SAMPLES[source.model].inputs, tensors), source)
    if has_name(source.model):
        module, names, given, notes = named.build(source, progress)
        if given is not None:
            return _with_saved(Opened(module, names, given, notes=notes), source)
        return _opened(module, tuple(map(Input, names)), source, saved_in(source))
    progress(0.0, "reading the file")
    path, saved = checked_path(source), saved_in(source)
    sizes: tuple[OpenSize, ...] = ()
    if path.suffix == ".pt2":
        program = Exported(path)
        names = tuple(one.name for one in program.inputs)
        kept = assigned(saved, names, file_of(source))
        kinds = {n: tensor_type(t) for n, t in kept.items()}
        chosen = program.pinned(source.pins, assigned(source.inputs, names), kinds)
        sizes = tuple(replace(one, size=chosen[one.symbol]) for one in program.sizes)
        module, wanted = program.filled_in(chosen)
        module = _in_dtype(module, source)
    else:
        if source.pins:
            message = "A trace has no open sizes."
            hint = "Give the shapes of its inputs, or export the model with dynamic dimensions."
            raise EngineError("input", message, source.pins[0][0], hint)
        module, wanted = _read(source, path)
        types = types_of(wanted, source, saved)
        if any("int" in t.dtype for t in types.values()):
            like = tuple(
                torch.empty([int(d) for d in t.shape], dtype=getattr(torch, t.dtype))
                for t in types.values()
            )
            flat = Flattener(module, tuple(types), like, allowed).run()
            wanted = with_rows(wanted, rows_of_trace(flat))
    return _opened(module, wanted, source, saved, sizes, allowed)


def _opened(
    module: nn.Module,
    inputs: tuple[Input, ...],
    source: ModelSource,
    saved: Saved,
    sizes: tuple[OpenSize, ...] = (),
    allowed: Callable[[str], bool] = lambda kind: True,
) -> Opened:
    types = types_of(inputs, source, saved)
    given = described(inputs, types, source, saved, sizes)
    names, tensors = tuple(one.name for one in inputs), input_tensors(inputs, types, source, saved)
    return Opened(module, names, tensors, allowed, given=given)


def _with_saved(found: Opened, source: ModelSource) -> Opened:
    kept = assigned(saved_in(source), found.names, file_of(source))
    inputs = tuple(
        fitting(Input(n, tensor_type(t)), kept[n], t.dtype, source) if n in kept else t
        for n, t in zip(found.names, found.inputs, strict=True)
    )
    return replace(found, inputs=inputs)


def saved_in(source: ModelSource) -> Saved:
    if not source.tensors:
        return ()
    path, digest = Path(source.tensors[0][0]), source.tensors[0][1]
    if not path.is_file() or (digest and file_digest(path) != digest):
        message = f"The saved tensors {path.name} have changed since they were chosen."
        raise EngineError("file", message, path.name, "Choose them again.")
    if source.model not in SAMPLES and not source.model.startswith(CODE):
        return read_tensors(path)  # within the limits of the model
    with opening(path, source.tensors):
        return read_tensors(path)


def model_from_module(
    module: nn.Module,
    names: tuple[str, ...],
    inputs: Tensors,
    source: ModelSource,
    progress: Progress,
    notes: Iterable[str] = (),
    *,
    differentiable: bool | None = None,
    allowed: Callable[[str], bool] = lambda kind: True,
    call: TraceCall | None = None,
) -> Model:
    """Trace a module that exists already, in its mode. The source is remembered; its `training`
    says whether dropout may be on, and, unless `differentiable` does, whether a gradient may be
    taken. The rest is as in `Opened`; raises what `load_model` does."""
    said = list(notes)
    states: Tensors = ()
    if isinstance(module, torch.jit.ScriptModule):
        flat = Flattener(module, names, inputs, allowed).run(call)
        progress(0.4, "running it once")
        traced, outputs = module, _first_run(module, flat, names, inputs, source)
        watch = Watch(module)
    else:
        progress(0.4, "tracing")
        traced, outputs, states, watch = _trace(module, inputs, source, said)
        flat = Flattener(traced, names, inputs, programs=watch.programs).run()
    with flat.naming_parts(module):
        no_gradient = watch.no_gradient or _gradient_unlike(flat)
        if no_gradient is not None and source.training:
            raise no_gradient
        _leave_out_nothing(flat)
        _check_elements(flat, inputs, outputs)
        _check_dropout(flat, source, said)
        _check_momentum(module, flat)
        _check_draws(flat, source, device_of(module, inputs), states, watch)
        # Arguments are identified by name, so no input may have a parameter's.
        names = flat.input_names = apart(names, flat.tensors)
        own: dict[str, Tensor] = dict(module.named_parameters())
        parameters = {n: leaf(p) for n, p in own.items() if n in flat.tensors}
        buffers = {n: leaf(b) for n, b in module.named_buffers() if n in flat.tensors}
        # A script may have a tensor that is neither, in an optional attribute.
        buffers |= {n: leaf(t) for n, t in flat.tensors.items() if n not in own | buffers}
        if pairs := take_pairs(flat, inputs, outputs):
            said.append(NOTE.format(", ".join(pairs)))
        said += without_writes(flat, [n for n, _ in module.named_buffers()])
    model = Model(
        source=replace(source, inputs=_types(names, inputs)),
        module=module,
        inputs=tuple(map(as_pairs, inputs)),
        input_names=names,
        traced=traced,
        flat=flat,
        parameters=parameters,
        buffers=buffers,
        unread=tuple(n for n in own if n not in flat.tensors),
        outputs_flat=tuple(tensor_type(as_pairs(o)) for o in outputs),
        differentiable=source.training if differentiable is None else differentiable,
        no_gradient=no_gradient,
        reads=tuple(watch.reads),
        pairs=pairs,
    )
    for text in said:
        model.note(text)
    return model


def _types(names: tuple[str, ...], inputs: Tensors) -> tuple[tuple[str, TensorType], ...]:
    return tuple((n, tensor_type(t)) for n, t in zip(names, inputs, strict=True))


def checked_path(source: ModelSource) -> Path:
    """The file of a source; refused (kind "file") if it is missing or has changed."""
    path = Path(source.model)
    if not path.is_file():
        message = f"There is neither a sample nor a file called {source.model!r}."
        raise EngineError("file", message, source.model, f"The samples are {', '.join(SAMPLES)}.")
    if source.digest and file_digest(path) != source.digest:
        message = "The file has changed since it was opened."
        raise EngineError("file", message, source.model, "Open it again.")
    return path


def _read(source: ModelSource, path: Path) -> tuple[torch.jit.ScriptModule, tuple[Input, ...]]:
    """A trace, and what it records about its inputs."""
    try:
        archive = Archive(path)
        check_code(archive)
        module = torch.jit.load(str(path), map_location="cpu")
    except EngineError as wrong:
        if not wrong.message.startswith("This file is"):
            raise
        hint = f"{_TRACE_HINT} A file written by torch.save holds no program."
        message = "This file is not a TorchScript trace."
        raise EngineError("file", message, path.name, hint) from wrong
    except (RuntimeError, ValueError, EOFError, OSError) as wrong:
        message = f"This file's trace cannot be read: {plainly(wrong)}."
        raise EngineError("file", message, path.name, _TRACE_HINT) from wrong
    recorded = recorded_inputs(archive)
    names = [leaf for name, nested in nesting(module) for leaf in leaves(nested, name)]
    if len(recorded) != len(names):
        recorded = ()
    inputs = tuple(map(Input, names, recorded)) if recorded else tuple(map(Input, names))
    return _in_dtype(module, source).train(source.training), inputs


def _in_dtype(module: Any, source: ModelSource) -> Any:
    """A file's module with its float32 and float64 tensors in the run's dtype.

    Others, such as bfloat16, are part of what it computes. `Module.to` would make complex numbers
    real.
    """
    return module._apply(lambda t: t.to(dtype_in_run(t.dtype, source.dtype)))


def _check_elements(flat: FlatTrace, inputs: Iterable[Tensor], outputs: Any) -> None:
    """Refuse tensors without elements, which TVM's schedules and shape rules do not expect."""
    message = "A tensor without elements (a dimension of 0) cannot be imported."
    hint = "Remove it, or give inputs that do not make it empty."
    for node in flat.graph.nodes():
        kinds = [v.type() for v in (*node.inputs(), *node.outputs())]
        if any(k.kind() == "TensorType" and 0 in (k.sizes() or ()) for k in kinds):
            raise EngineError("operator", message, flat.origin(node).where, hint)
    if not all(t.numel() for t in (*inputs, *outputs)):
        raise EngineError("operator", message, "forward()", hint)


def _leave_out_nothing(flat: FlatTrace) -> None:
    """Remove tensors without elements from concatenations."""
    for node in list(flat.graph.nodes()):
        parts = node.inputsAt(0).node() if node.kind() == "aten::cat" else node
        if parts is node or parts.kind() != "prim::ListConstruct":
            continue
        empty = [i for i, v in enumerate(parts.inputs()) if 0 in (v.type().sizes() or ())]
        if len(empty) < parts.inputsSize():
            for index in reversed(empty):
                parts.removeInput(index)
    torch._C._jit_pass_dce(flat.graph)


def _gradient_unlike(flat: FlatTrace) -> EngineError | None:
    """Why no gradient can be taken: an option that no engine reads, or int8 weights; raises for
    autograd functions that are not PyTorch's, and for other quantized tensors."""
    found = None
    for node in flat.graph.nodes():
        if node.kind() == "prim::PythonOp":
            message = f"The autograd function {node.pyname()} cannot be imported."
            hint = "Write it with PyTorch's own operators."
            raise EngineError("operator", message, flat.origin(node).where, hint)
        if node.kind() in DYNAMIC_INT8:
            message = f"PyTorch has no gradient for {node.kind()}, whose weights are int8."
            hint = "Open it for inference (in a script, eval() each module) or unquantized."
            found = found or EngineError("operator", message, flat.origin(node).where, hint)
        elif node.kind().startswith("quantized::"):
            message = f"{node.kind()} computes with quantized tensors, which cannot be imported."
            raise EngineError("operator", message, flat.origin(node).where, UNPACKED)
        embeds = node.kind() in ("aten::embedding", "aten::embedding_bag")
        if embeds and node.inputsAt(3).toIValue():
            message = "The option scale_grad_by_freq changes the gradient, and cannot be imported."
            hint = "Build the embedding without it."
            found = found or EngineError("operator", message, flat.origin(node).where, hint)
    return found


def _check_dropout(flat: FlatTrace, source: ModelSource, notes: list[str]) -> None:
    """A trace fixes dropout as on or off: refuse (kind "input") or note what was not asked for."""
    active = flat.active_dropouts()
    if active and not source.training:
        message = "This trace was taken in train mode, so its dropout is always on."
        hint = "Open it for training, or trace the module after eval()."
        raise EngineError("input", message, flat.origin(active[0]).where, hint)
    if source.training and flat.dropouts() and not active:
        notes.append("The trace was taken in eval mode: its dropout is off, even in training.")


def _check_momentum(module: nn.Module, flat: FlatTrace) -> None:
    """Refuse a batch norm whose averaging factor a trace would fix; a file does not record it."""
    for path, inner in module.named_modules():
        counts = getattr(inner, "num_batches_tracked", None) is not None and inner.training
        averages = counts and getattr(inner, "momentum", 0) is None
        if averages and f"{path}.running_mean".lstrip(".") in flat.tensors:
            message = "This batch norm averages over all batches: each run has another factor."
            raise EngineError("operator", message, path, "Give it a momentum.")


def _check_draws(
    flat: FlatTrace, source: ModelSource, device: torch.device, states: Tensors, watch: Watch
) -> None:
    """Refuse a model whose random numbers its trace's draws do not explain: these alone must bring
    torch's generators to the states that they had after the watched run. A file has none."""
    draws = flat.draws()
    with seeded(source.seed):
        for _, draw in draws if states else ():
            if draw.draw:
                numbers_of(draw, device)
            else:
                ones = torch.ones(draw.shape, dtype=getattr(torch, draw.dtype), device=device)
                torch.nn.functional.dropout(ones, draw.rate, training=True)
        if states and all(map(torch.equal, generator_states(device), states)):
            return
    explained = [node for node, _ in draws]
    for node in flat.graph.nodes():
        if node in (*flat.dropouts(), *explained) or not node.isNondeterministic():
            continue
        given = zip(torch._C.parse_schema(node.schema()).arguments, node.inputs(), strict=True)
        if not any(a.name in _QUIET and v.toIValue() == _QUIET[a.name] for a, v in given):
            message = f"{node.kind()} draws random numbers that cannot be drawn outside the model."
            hint = "Draw them outside the model, and make them an input."
            raise EngineError("operator", message, flat.origin(node).where, hint)
    if not states:
        return
    message = "The model draws random numbers outside the operators of its trace."
    hint = "Draw only with PyTorch's operators, and use every result."
    origins = map(flat.origin, (*explained, *flat.dropouts()))
    known = {", ".join(filter(None, (o.scope or "forward()", o.line))) for o in origins}
    where = next((place for place in watch.draws if place not in known), source.model)
    raise EngineError("operator", message, where, hint)


def _first_run(
    module: nn.Module, flat: FlatTrace, names: tuple[str, ...], inputs: Tensors, source: ModelSource
) -> Tensors:
    try:
        with torch.no_grad(), seeded(source.seed), kept_buffers(module):
            with suppress(RuntimeError, IndexError, ValueError, torch.jit.Error):
                return flat_tensors(flat.function(*inputs, *flat.tensors.values()))
            return flat_tensors(module(*inputs))  # only this tells where it fails
    except (RuntimeError, IndexError, ValueError, torch.jit.Error) as wrong:
        given = ", ".join(f"{n}: {t}" for n, t in _types(names, inputs))
        reason = plainly(RuntimeError(lines_of(wrong)[-1]))
        message = f"The model does not run with these inputs ({given}): {reason}."
        listed = ", ".join(names)
        hint = f"forward() takes {len(names)} inputs: {listed}. Give their real shapes."
        line, _ = line_of(frames_in(str(wrong).partition("original code")[2]), {})
        where = ", ".join(filter(None, (_failed_at(str(wrong)) or listed, line)))
        raise EngineError("input", message, where, hint) from wrong


_HERE = "~ <--- HERE"


def _failed_at(text: str) -> str:
    """Which operator failed, in which module, according to TorchScript's traceback.

    Arrows mark calls; the last is the operator, and those before it call submodules through
    variables that mostly have the submodules' names.
    """
    pairs = ((line, arrow) for line, arrow in pairwise(text.splitlines()) if _HERE in arrow)
    marked = [line[a.index("~") : a.rindex("~") + 1].strip() for line, a in pairs]
    if not marked:
        return ""
    *calls, last = marked
    path = [match[1] for c in calls if (match := re.match(r"\(?([A-Za-z]\w*)\)?\.forward", c))]
    operator = re.match(r"(?:torch|ops\.aten)\.(\w+)", last)
    name = f"aten::{operator[1]}" if operator else last
    return f"{name} in {'.'.join(path)}" if path else name


def _trace(
    module: nn.Module, inputs: Tensors, source: ModelSource, notes: list[str]
) -> tuple[torch.jit.ScriptModule, Tensors, Tensors, Watch]:
    """The trace, the outputs of its run, the generators' states after it, and what was seen."""
    seen: list[Tensors] = []
    watch, others = Watch(module), _other_generators()

    def flat(hooked: Any, args: Any, output: Any) -> Tensors:
        # A trace can return a tuple of tensors, but not everything that a module can.
        seen.append(flat_tensors(output))
        return seen[-1]

    try:
        with (
            module.register_forward_hook(flat),
            register_module_forward_pre_hook(lambda inner, _: watch.inside.append(inner)),
            register_module_forward_hook(lambda *_: watch.done.append(watch.inside.pop())),
            warnings.catch_warnings(record=True) as caught,
            seeded(source.seed),
        ):
            warnings.simplefilter("always")
            with kept_buffers(module), torch.enable_grad(), variances_shown(), watch:
                traced = torch.jit.trace(module, inputs, check_trace=False, strict=False)
            states = generator_states(device_of(module, inputs))
    except EngineError as error:
        error.instead = _that_ran(module, inputs, watch)
        raise
    except Exception as wrong:  # from the model's own code
        untraced = _untraced(wrong, watch)
        untraced.instead = _that_ran(module, inputs, watch)
        raise untraced from wrong
    if any(issubclass(w.category, torch.jit.TracerWarning) for w in caught):
        notes.append("The trace is valid only for these input shapes.")
    if _other_generators() != others:
        message = "forward() draws random numbers from Python or NumPy, not PyTorch."
        notes.append(f"{message} The program always uses those of this run.")
    notes.extend(watch.reads)
    return traced, seen[-1], states, watch


def _other_generators() -> bytes:
    return pickle.dumps((random.getstate(), np.random.get_state()))


def _that_ran(module: nn.Module, inputs: Tensors, watch: Watch) -> tuple[str, ...]:
    """Submodules traced before the failure, the largest first, if the module itself runs."""
    done = {watch.paths.get(inner, ""): inner for inner in watch.done if runs_alone(inner)}
    try:
        with torch.no_grad(), seeded(0), kept_buffers(module):
            module(*inputs)
    except Exception:  # from the model's own code, and reported already
        return ()
    sizes = {path: sum(p.numel() for p in inner.parameters()) for path, inner in done.items()}
    whole = [p for p in sizes if sizes[p] and not any(p.startswith(f"{o}.") for o in sizes if o)]
    return tuple(sorted(filter(None, whole), key=lambda p: -sizes[p]))


_UNTRACED = (
    (
        r"insert a Tensor that requires grad as a constant",
        "forward() reads a tensor that requires grad and is neither an input nor a parameter.",
        "Make it an nn.Parameter of a module, or detach it.",
    ),
    (
        r"a dynamo-optimized function|kernel for HigherOrderOperator",
        "a trace cannot contain tensor control flow (torch.cond, while_loop) or torch.compile.",
        "Branch in Python, on values that do not change, and compile nothing in forward().",
    ),
    (r"have an op for (\S+) but", "its tracer has no {} for such arguments.", ""),
    (r"of traced region did not have", "its tracer finds no path from inputs to outputs.", ""),
    (
        r"Tensor dtype mismatch! Expected: (\w+), Got: (\w+)",
        "the program needs {} where it gets {}.",
        "Open it in the dtype that it was exported in.",
    ),
    (r"didn't return any values", "forward() returns no tensor.", "Return a tensor."),
    (r"maximum recursion depth", "forward() recurses without end, or nests too deeply.", ""),
)
"""A pattern of PyTorch's message, the message for people, and the hint."""


def _untraced(error: Exception, watch: Watch) -> EngineError:
    """The error that a model cannot be traced, with the module and the line of its own source."""
    text = str(error)
    frames = [(f.f_code.co_filename, n) for f, n in traceback.walk_tb(error.__traceback__)]
    where = ", ".join(filter(None, (watch.where, line_of(reversed(frames), watch.programs)[0])))
    for pattern, said, hint in _UNTRACED:
        if found := re.search(pattern, text):
            message = f"PyTorch cannot trace the model: {said.format(*found.groups())}"
            return EngineError("operator", message, where, hint)
    name = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
    said = plainly(RuntimeError(lines_of(text)[-1])) if text.strip() else "the error has no message"
    message = f"PyTorch cannot run or trace the model: {name}{said}."
    return EngineError("operator", message, where, "Check that PyTorch runs it on these inputs.")


def device_of(module: nn.Module, inputs: Sequence[Tensor]) -> torch.device:
    """The device of a module's parameters, or of its inputs; the CPU without any."""
    return next((t.device for t in (*module.parameters(), *inputs)), torch.device("cpu"))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds torch's generators of the CPU and of GPUs inside the block; restores them after it."""
    used = torch.cuda.is_initialized()
    generators = [torch.default_generator, *(torch.cuda.default_generators if used else ())]
    with torch.random.fork_rng(range(len(generators) - 1)):
        for one in generators:  # torch.manual_seed would also seed GPUs that are used later
            one.manual_seed(seed)
        yield


def generator_states(device: torch.device) -> Tensors:
    """The states of the CPU's generator and, for a GPU, of its generator, as bytes."""
    states = (torch.get_rng_state(),)
    return (*states, torch.cuda.get_rng_state(device)) if device.type == "cuda" else states


@contextmanager
def recorded(leaves: Iterable[Tensor]) -> Iterator[None]:
    """Lets autograd record all leaves inside the block, including frozen ones."""
    frozen = [t for t in leaves if not t.requires_grad]
    try:
        for leaf in frozen:
            leaf.requires_grad_()
        yield
    finally:
        for leaf in frozen:
            leaf.requires_grad_(False)


@contextmanager
def kept_buffers(module: nn.Module) -> Iterator[None]:
    """Puts back, after the block, the buffers that a run updates or replaces."""
    kept = [(b, b.detach().clone()) for b in module.buffers()]
    held = [(m._buffers, dict(m._buffers)) for m in module.modules() if type(m._buffers) is dict]
    try:
        yield
    finally:
        for buffers, were in held:
            buffers.update(were)
        with torch.no_grad():
            for buffer, before in kept:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
