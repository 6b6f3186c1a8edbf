"""What PyTorch does while tracing that a trace cannot express: regions without gradients, hooks on
tensors, `tensor.data`, and numbers read out of a tensor, which a trace fixes."""

import linecache
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from relascope.core.errors import EngineError
from relascope.core.visible import visible
from relascope.engine.files.exported import TORCHS, file_line, lines_in
from relascope.engine.pytorch.draws import DRAWING

_DATA: Any = Tensor.data
_SHAPE = Tensor.shape.__get__  # type: ignore[attr-defined]
_DETACHING = (Tensor.detach, torch.detach, _DATA.__get__)
_HOOKS = (Tensor.register_hook, Tensor.register_post_accumulate_grad_hook, Tensor.retain_grad)
_GRADIENTS = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)
_IN_PLACE = re.compile(
    r".*[^_]_|__i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor)__|__setitem__"
)


_READS = (
    "item tolist numpy equal allclose is_nonzero _local_scalar_dense.default item.default "
    "__array__ __bool__ __complex__ __contains__ __float__ __index__ __int__"
)
"""Names of functions that turn a tensor's values into numbers."""
_WIDEST = 200  # characters of a line of source
_SHAPES = ("size", "numel", "nelement", "__len__")
_PYTORCH = str(Path(torch.__file__).parent)


def _gaussian_nll(
    data: Tensor,
    target: Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    var = var if isinstance(var, Tensor) else torch.full_like(data, var)
    if var.size() != data.size() and data.size()[:-1] == var.size():
        var = var.unsqueeze(-1)
    var = torch.where(var < eps, eps + (var - var.detach()), var)
    loss = 0.5 * (var.log() + (data - target) ** 2 / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return loss if reduction == "none" else getattr(loss, reduction)()


def variances_shown() -> Any:
    """Inside it, a trace records how a loss bounds its variance, whose gradient passes as without
    the bound: PyTorch hides that from a trace."""
    return patch.object(torch.nn.functional, "gaussian_nll_loss", _gaussian_nll)


class Watch(TorchFunctionMode):
    """Writes into a trace, as `detach`, where gradients end; sees what cannot be written, and
    refuses (kind "operator") hooks of submodules on their gradients.

    `inside` and `done` are the modules that run now, outermost first, and those that have run; the
    tracer keeps them. `paths` are of all modules. `no_gradient` says why no program can take the
    gradient that PyTorch takes, None if one can. `reads` has sentences, in order, on numbers that
    the module reads out of a tensor that depends on an input, parameter or buffer; `draws` modules
    and lines, in order, that call functions that may draw random numbers."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inside: list[nn.Module] = []
        self.done: list[nn.Module] = []
        self.no_gradient: EngineError | None = None
        self.paths = {m: n for n, m in module.named_modules()}
        # Tensors through which no gradient flows, kept so that no id is reused.
        self._constant = {id(b): b for b in module.buffers()}
        # Tensors that depend on no input, parameter or buffer, such as a shape.
        self._fixed: dict[int, Tensor] = {}
        self.reads: dict[str, None] = {}
        self.draws: dict[str, None] = {}
        self.programs = program_lines(module)
        for inner, path in self.paths.items():
            if path and (inner._backward_hooks or inner._backward_pre_hooks):
                message = "A module has a hook on its gradient, which a program cannot run."
                raise EngineError("operator", message, path, "Remove the hook.")

    @property
    def where(self) -> str:
        return next((p for m in reversed(self.inside) if (p := self.paths.get(m))), "forward()")

    @property
    def _here(self) -> str:
        line, _ = line_of(_frames(), self.programs)
        return f"{self.where}, {line}" if line else self.where

    def _keep(self, message: str) -> None:
        hint = "Move that part out of the module, or open the model for inference."
        error = EngineError("operator", message, self._here, hint)
        self.no_gradient = self.no_gradient or error

    def flows(self, tensor: Tensor) -> bool:
        """Whether a gradient may flow through a tensor to an input or parameter."""
        floating = tensor.is_floating_point() or tensor.is_complex()
        return floating and id(tensor) not in self._constant

    def _ends(self, value: Any) -> Any:
        def end(leaf: Any) -> Any:
            if isinstance(leaf, Tensor) and self.flows(leaf):
                leaf = leaf.detach()
                self._constant[id(leaf)] = leaf
            return leaf

        return tree_map(end, value)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        given = _tensors((args, kwargs))
        fixed = all(id(t) in self._fixed for t in given)
        if name in _READS.split() and not fixed:
            call, line = name.strip("_").partition(".")[0], line_of(_frames(), self.programs)[0]
            text = f"{call}() in {self.where} ({line}) reads a tensor's value, which the trace "
            self.reads[f"{text}fixes as it is with these inputs."] = None
        if name.removesuffix("_").removesuffix("_like") in DRAWING:
            self.draws[self._here] = None
        made = self._run(func, name, given, args, kwargs)
        if fixed or name in _SHAPES or func == _SHAPE:
            self._fixed.update((id(t), t) for t in _tensors(made))
        else:
            out = kwargs.get("out")  # which norm() passes on as None
            in_place = out is None and _IN_PLACE.fullmatch(name)
            for tensor in given[:1] if in_place else _tensors(out):
                self._fixed.pop(id(tensor), None)
                self._fixed.pop(id(tensor._base), None)
        return made

    def _run(
        self, func: Any, name: str, given: list[Tensor], args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        if func in _DETACHING:
            return self._ends(args[0] if args else kwargs["input"])
        if func == _DATA.__set__:
            message = "forward() assigns to a tensor's .data, which a trace does not record."
            raise EngineError("operator", message, self._here, "Compute a new tensor.")
        if func in _GRADIENTS:
            message = "forward() computes a gradient itself, which cannot be imported."
            raise EngineError("operator", message, self._here, "Compute it outside the module.")
        if func in _HOOKS:
            self._keep(f"forward() calls {func.__name__} on a tensor; a program cannot run hooks.")
            return func(*args, **kwargs)
        flowing, changed = any(map(self.flows, given)), kwargs.get("out")
        if changed is None and args and _IN_PLACE.fullmatch(name):
            changed = args[0]
        if changed is None:
            made = func(*args, **kwargs)
            if not isinstance(made, Tensor | tuple | list):
                return made
            if flowing and not torch.is_grad_enabled():
                return self._ends(made)
            if not flowing:
                self._constant.update((id(t), t) for t in _tensors(made))
            return made
        targets = _tensors(changed)
        if not flowing or torch.is_grad_enabled():
            if flowing and name != "detach_":
                for target in targets:
                    self._constant.pop(id(target), None)
                    self._constant.pop(id(target._base), None)
            return func(*args, **kwargs)
        if any(map(self.flows, targets)):
            self._keep(f"{name} changes a tensor in place where no gradient is recorded.")
        elif "out" not in kwargs:
            return func(args[0], *self._ends(args[1:]), **self._ends(kwargs))
        return func(*args, **kwargs)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


Programs = Mapping[str, Mapping[int, tuple[str, int, str]]]
"""By the name of code that torch writes for an exported program, and by its lines: file, line and
text of the model's own source."""
_ROOT = Path(__file__).parents[2]
_OTHERS = (f"{_PYTORCH}/", f"{_ROOT}/engine/", f"{_ROOT}/core/")
_NOT_THE_MODELS = re.compile(f".*{TORCHS}|<").match


def line_of(
    frames: Iterable[tuple[str, int]], programs: Programs, reads: bool = False
) -> tuple[str, str]:
    """The first line of a model's own source, "model.py:12", in (file, line) frames, innermost
    first, and its text, as a program has it or, if this `reads` files, as in the file; "" if
    unknown."""
    for frame in frames:
        file, line, *text = programs.get(frame[0], {}).get(frame[1], frame)
        if not file.startswith(_OTHERS) and not _NOT_THE_MODELS(file):
            if reads and not text:
                text = [linecache.getline(file, line)]
            return file_line(file, line), visible("".join(text).strip()[:_WIDEST])
    return "", ""


def program_lines(module: nn.Module) -> Programs:
    """See `Programs`; empty for another module."""
    found: dict[str, dict[int, tuple[str, int, str]]] = {}
    for inner in module.modules():
        made: Any = getattr(inner, "graph_module", None)
        if not isinstance(made, torch.fx.GraphModule):
            continue
        nodes, lines = [*made.graph.nodes], {}
        for line, index in (made._lineno_map or {}).items():
            trace = "" if index is None else nodes[index].meta.get("stack_trace")
            if of_model := lines_in(trace or ""):
                file, number, text = of_model[-1]
                lines[line + made._prologue_start] = file, int(number), text
        found[type(made).forward.__code__.co_filename] = lines
    return found


def _frames() -> Iterator[tuple[str, int]]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
