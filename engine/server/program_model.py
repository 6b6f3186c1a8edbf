"""A program that came without PyTorch, as the model to compare its numbers with."""

import atexit
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, TensorType
from relascope.core.place import with_import_root
from relascope.core.sizes import size_of, sizes_in
from relascope.engine.protocol.results import IMPORTED, Branches, ModelInputs
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.flat_trace import FlatTrace
from relascope.engine.pytorch.inputs.tensors import Input, described, input_tensors, types_of
from relascope.engine.pytorch.model import Model, saved_in

Arrays = Mapping[str, np.ndarray]
Run = Callable[[], Collection[np.ndarray]]
"""A program with its arguments in place; runs it once. Results are flat."""


def calling_themselves(calls: Mapping[str, Collection[str]]) -> list[str]:
    """Recursive functions, also by way of others; `calls` has the functions that each one calls."""
    import networkx  # slow to import

    reached = networkx.transitive_closure(networkx.DiGraph({n: [*c] for n, c in calls.items()}))
    return [name for name in calls if reached.has_edge(name, name)]


@dataclass(frozen=True)
class Judge:
    """What decides the right outputs of a program; gradients are the imported program's. `name`
    stands after "against". `run` gives outputs for inputs by name, and raises NotImplementedError
    with what has no counterpart for them; `lacks` names what in the program has no counterpart, or
    is "", and takes seconds."""

    name: str
    run: Callable[[Arrays], Collection[np.ndarray]]
    lacks: Callable[[], str] = str


@dataclass(frozen=True)
class Imported:
    """A program as read from a file. `program` is the engine's own, without masks, updates or
    gradients yet; floating `tensors` are parameters, others buffers; `outputs` are the types of
    what it returns, flat. `run` gives outputs for inputs by name, and None runs the import without
    optimisation; `against` is what `run` is, after "against". A `judge` decides the outputs instead
    of `run`, and `branches` what decides each of its `if`."""

    program: Any
    inputs: tuple[tuple[str, TensorType], ...]
    tensors: Mapping[str, torch.Tensor]
    outputs: tuple[TensorType, ...]
    run: Callable[[Arrays], Collection[np.ndarray]] | None = None
    against: str = IMPORTED
    judge: Judge | None = None
    notes: tuple[str, ...] = ()
    branches: Branches = field(default_factory=Branches)


@dataclass
class ProgramModel(Model):
    """An imported program as a model. It runs only on the CPU; only its tensors move. `plain`
    builds it without optimisation for values of its arguments; with True, also its gradients, which
    follow the outputs, and whose names it returns. It draws masks and grad_outs itself."""

    imported: Imported = field(kw_only=True)
    plain: Callable[[bool, Arrays], tuple[Run, tuple[str, ...]]] = field(kw_only=True)

    @property
    def against(self) -> str:
        return self.meant if self._judge or not self.imported.judge else self.imported.against

    @property
    def meant(self) -> str:
        name = self.imported.judge.name if self.imported.judge else self.imported.against
        own = f" (its gradients with {IMPORTED})" if name != IMPORTED else ""
        return name + (own if self.source.training else "")

    @property
    def unjudged(self) -> str:
        judge = self.imported.judge
        if judge is None or not (lacks := judge.lacks()):
            return ""
        return f"Only TVM can judge its numbers, because PyTorch has no counterpart of {lacks}."

    @property
    def _judge(self) -> Judge | None:
        return None if self.unjudged else self.imported.judge

    @property
    def baseline(self) -> str:
        return self.imported.against

    @property
    def parameter_elements(self) -> int:
        return sum(t.numel() for t in self.parameters.values())

    def on(self, device: str) -> Model:
        inputs = tuple(t.to(device) for t in self.inputs)
        parameters = {n: t.to(device) for n, t in self.parameters.items()}
        buffers = {n: t.to(device) for n, t in self.buffers.items()}
        return replace(self, inputs=inputs, parameters=parameters, buffers=buffers)

    def forward(self) -> tuple[torch.Tensor, ...]:
        judge = self._judge
        run = judge.run if judge else self.imported.run
        if run is not None:
            try:
                made = run(_arrays(dict(zip(self.input_names, self.inputs, strict=True))))
            except NotImplementedError as other:
                who = judge.name if judge else self.imported.against
                message = f"{who} has no counterpart of {other}, and these inputs need it."
                raise EngineError("input", message, self.source.model) from other
        else:
            made = self.plain(False, self.arrays())[0]()
        return self._tensors(made)

    def updated(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        return {}

    def gradients(self) -> dict[str, torch.Tensor]:
        run, names = self.plain(True, self.arrays())
        return dict(zip(names, self._tensors(run())[len(self.outputs_flat) :], strict=True))

    def eager(
        self, backward: bool, module: Callable[..., Any] | None = None
    ) -> Callable[[], object]:
        if module is not None:
            raise EngineError("usage", f"{self.source.model} is not a PyTorch model.", "baseline")
        if self.imported.run is not None and not backward:
            run, given = self.imported.run, zip(self.input_names, self.inputs, strict=True)
            return partial(run, _arrays(dict(given)))
        return self.plain(backward, self.arrays())[0]

    def arrays(self) -> dict[str, np.ndarray]:
        inputs = dict(zip(self.input_names, self.inputs, strict=True))
        return _arrays({**inputs, **self.parameters, **self.buffers})

    def _tensors(self, arrays: Collection[np.ndarray]) -> tuple[torch.Tensor, ...]:
        numbers = (a.astype("float32") if str(a.dtype) == "bfloat16" else a for a in arrays)
        return tuple(torch.tensor(a, device=self.device) for a in numbers)


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {n: array_of(t) for n, t in tensors.items()}


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array; numpy has no bfloat16, whose values are float32 there."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def program_model(
    imported: Imported,
    source: ModelSource,
    plain: Callable[[bool, Arrays], tuple[Run, tuple[str, ...]]],
) -> ProgramModel:
    """An imported program with random inputs of its types, drawn from the source's seed. Raises
    EngineError of kind "usage" where the source asks for something that a program lacks."""
    hint = "Leave it out: the file alone decides a program's modules and dtypes."
    for asked, text in ((source.module, "submodules"), (source.dtype != "float32", "dtype")):
        if asked:
            message = f"A program that came without PyTorch has no {text} to choose."
            raise EngineError("usage", message, source.model, hint)
    names, inputs = tuple(n for n, _ in imported.inputs), _inputs(imported)
    given, saved = replace(source, inputs=()), saved_in(source)
    model = ProgramModel(
        source=replace(source, inputs=imported.inputs),
        module=torch.nn.Module(),
        inputs=input_tensors(inputs, types_of(inputs, given, saved), given, saved),
        input_names=names,
        traced=torch.jit.ScriptModule(),
        flat=FlatTrace(None, names),
        parameters={n: t for n, t in imported.tensors.items() if t.is_floating_point()},
        buffers={n: t for n, t in imported.tensors.items() if not t.is_floating_point()},
        unread=(),
        outputs_flat=imported.outputs,
        differentiable=source.training,
        no_gradient=None,
        imported=imported,
        plain=plain,
    )
    for text in imported.notes:
        model.note(text)
    unlike = "" if imported.run else ", built without optimisation"
    unlike = ", if that has counterparts of all of it" if imported.judge else unlike
    model.note(f"It has no PyTorch model: its numbers are compared with {model.meant}{unlike}.")
    return model


def _inputs(imported: Imported) -> tuple[Input, ...]:
    return tuple(Input(n, t) for n, t in imported.inputs)


def of_run(model: ProgramModel, graph: Graph, source: ModelSource) -> tuple[torch.Tensor, ...]:
    """Random inputs of a program, with the sizes and truth values of a source's run."""
    given, open_types = dict(source.run), {graph.by_id[i].name: i for i in graph.inputs}
    known = {n: int(v) for n, v in given.items()}
    inputs = []
    for name, kind in model.imported.inputs:
        (said,) = graph.by_id[open_types[name]].outputs
        sizes = tuple(
            size_of(str(s), known) if sizes_in(str(s)).keys() & known.keys() else int(k)
            for s, k in zip(said.shape, kind.shape, strict=True)
        )
        if any(size < 0 for size in sizes):
            message = f"{name} cannot have the type {TensorType(sizes, kind.dtype)}."
            raise EngineError("input", message, name)
        inputs.append(Input(name, TensorType(sizes, kind.dtype)))
    kinds = {one.name: one.type for one in inputs if one.type is not None}
    drawn = input_tensors(inputs, kinds, replace(source, inputs=()), ())
    pairs = [(one.name, tensor) for one, tensor in zip(inputs, drawn, strict=True)]
    return tuple(torch.full_like(t, bool(given[n])) if n in given else t for n, t in pairs)


class Beside:
    """A process with the other TVM, which answers by `answering`, and restarts if it ended.
    `module` is what it runs."""

    def __init__(self, module: str) -> None:
        self._command = [sys.executable, "-m", module]
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, ready for a question; raises as `ask` does."""
        if self._running is None or self._running.poll() is not None:
            env = {**os.environ, "PYTHONPATH": with_import_root(os.environ.get("PYTHONPATH", ""))}
            pipe = subprocess.PIPE
            self._running = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, env=env)
            atexit.register(self.end)
            _heard(self._running.stdout)

    def ask(
        self, words: Mapping[str, Any], arrays: Collection[np.ndarray] = ()
    ) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Its answer. Raises OSError or ValueError where it has ended, or never began."""
        self.start()
        assert self._running is not None
        into: Any = self._running.stdin
        into.write(_said(words, arrays))
        into.flush()
        return _heard(self._running.stdout)

    def end(self) -> str:
        """End it if it runs; return how it ended, in words."""
        if self._running is None:
            return "it never began"
        self._running.kill()
        self._running.communicate()
        code = self._running.returncode
        return signal.Signals(-code).name if code < 0 else "it gave no reason"


def answering(
    begin: Callable[[], Callable[..., tuple[Mapping[str, Any], Collection[np.ndarray]]]],
) -> None:
    """Answer `Beside`, until nobody asks, by the function that `begin` returns, of the arrays and,
    by name, the words. Other output goes to standard error."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer, said = begin(), _said({})
    with contextlib.suppress(OSError, ValueError):  # nobody asks any more
        while True:
            out.write(said)
            out.flush()
            words, arrays = _heard(sys.stdin.buffer)
            said = _said(*answer(arrays, **words))


def _said(words: Mapping[str, Any], arrays: Collection[np.ndarray] = ()) -> bytes:
    """Words and arrays as a line of JSON and what follows it."""
    buffer = io.BytesIO()
    np.savez(buffer, *arrays)
    content = buffer.getvalue()
    return json.dumps({**words, "bytes": len(content)}).encode() + b"\n" + content


def _heard(stream: Any) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The words and arrays of `_said`; a ValueError where some are missing."""
    words = json.loads(stream.readline())
    with np.load(io.BytesIO(stream.read(words.pop("bytes")))) as found:
        return words, [found[f"arr_{i}"] for i in range(len(found.files))]


def input_words(model: Model) -> ModelInputs:
    """A description of a program's inputs, for people."""
    assert isinstance(model, ProgramModel)
    inputs, source, saved = _inputs(model.imported), model.source, saved_in(model.source)
    return described(inputs, types_of(inputs, source, saved), source, saved, ())


def of_module(
    kinds: Mapping[str, TensorType],
    params: Arrays,
    outputs: tuple[TensorType, ...],
    program: Callable[..., Any],
    array: Callable[[np.ndarray], Any],
    notes: Sequence[str] = (),
) -> Imported:
    """A module as a program. `kinds` are the types of its arguments, `params` the values of some,
    `outputs` the types of its results. `program` makes the engine's own, `array` TVM's arrays."""
    inputs = tuple((n, k) for n, k in kinds.items() if n not in params)
    tensors = {n: torch.from_numpy(params[n]) for n in kinds if n in params}
    if not tensors and len(inputs) > 1:
        said = f"It has no parameters: all {len(inputs)} arguments are inputs, with random values."
        notes = *notes, said
    made = program(
        params={n: array(t.numpy()) for n, t in tensors.items()},
        inputs=tuple(n for n, _ in inputs),
        outputs=len(outputs),
        buffers=tuple(n for n, t in tensors.items() if not t.is_floating_point()),
    )
    return Imported(made, inputs, tensors, outputs, notes=tuple(notes))


def no_pytorch(source: ModelSource, what: str) -> EngineError:
    """The error of asking a program for something of PyTorch's; `what` follows "This program"."""
    message = f"This program came without PyTorch, and {what}."
    return EngineError("usage", message, source.model, "Open the PyTorch model for that.")
