"""What AutoTVM can tune of a Relay function: operators with a template, and where they are called.

A template is a schedule with open choices (tile sizes, unrolling). A kernel has at most one such
operator, its task. Templates are for operators in their original layouts, so AlterOpLayout is left
out; the kernels of the real build are matched in order.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import autotvm, relay, te
from tvm.autotvm.task.topi_integration import TaskExtractEnv
from tvm.relay.backend import te_compiler

from relascope.core.graph import TensorType
from relascope.engine.building.options import BuildOptions
from relascope.engine.measure.tuner import Workload
from relascope.engine.protocol.target_text import library
from relascope.engine.relay.building.targets import LIBRARIES, parse
from relascope.engine.relay.draw.to_graph import tensor_types
from relascope.engine.relay.tvm.quiet import quiet
from relascope.passes.relay.ir.rewrite import children, op_name, post_order

_LEFT_OUT = ("AlterOpLayout", "FoldConstant")  # the latter computes, which can take a minute
_ANCHOR = 4  # TOpPattern of operators that FuseOps builds a kernel around: kOutEWiseFusable
_PACKS_CONSTANTS = frozenset({"dense_pack.x86"})
"""Templates that read a weight in their own layout. The build lays out a constant ahead of time; an
argument would be packed in every run, which AutoTVM does not time."""


@dataclass(frozen=True)
class Operator:
    """An operator that a kernel is built around. `key` identifies its types, attributes, constants,
    and whether a library does it; `module` has a function that calls it alone, of in0, in1 and so
    on; `constants` are those arguments that are constants in the program; `choices` are names and
    arguments of AutoTVM's tasks for it."""

    key: str
    call: Any
    module: Any
    constants: tuple[str, ...]
    choices: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(tensor_types(e.checked_type)[0] for e in (*self.call.args, self.call))


def optimised(function: Any, options: BuildOptions) -> Any:
    """A function as TVM's templates see it: its kernels are calls of functions."""
    with tvm.transform.PassContext(
        opt_level=options.opt_level, disabled_pass=[*options.disabled, *_LEFT_OUT]
    ):
        mod, _ = relay.optimize(tvm.IRModule({"main": function}), parse(options.target))
    return mod["main"]


def groups(function: Any) -> list[Any]:
    calls = (e for e in post_order(function) if isinstance(e, relay.Call))
    return [c for c in calls if isinstance(c.op, relay.Function)]


def anchor(group: Any) -> Any | None:
    """The operator that a kernel is built around; None if it has none."""
    calls = (e for e in post_order(group.op) if isinstance(e, relay.Call))
    known = (c for c in calls if isinstance(c.op, tvm.ir.Op))
    return next((c for c in known if c.op.get_attr("TOpPattern") == _ANCHOR), None)


def operators(function: Any, options: BuildOptions) -> list[Operator]:
    """The operators that a function's kernels are built around, in order of the kernels."""
    fixed = _fixed(function)
    run = [g for g in groups(function) if g.handle.value not in fixed]
    found = [(g, a) for g in run if (a := anchor(g)) is not None]
    alone = [_alone(call) for _, call in found]
    texts = [str(mod) for mod in alone]
    # AutoTVM tells operators apart by their types alone: one is laid out only if all can be.
    constants: dict[str, frozenset[str]] = {}
    for text, (group, call) in zip(texts, found, strict=True):
        here = frozenset(_constants(group, call, fixed))
        constants[text] = constants.get(text, here) & here
    made = []
    for text, mod, (_, call) in zip(texts, alone, found, strict=True):
        mine = tuple(sorted(constants[text]))
        about = json.dumps([text, mine, bool(library(options.target, LIBRARIES))])
        digest = hashlib.sha256(about.encode()).hexdigest()[:8]
        made.append(Operator(f"{str(call.op.name).rpartition('.')[2]}-{digest}", call, mod, mine))
    return made


def constant_weights(function: Any) -> bool:
    """Whether the weights of all linear layers are constants, which a build can lay out ahead."""
    fixed, kernels = _fixed(function), groups(function)
    handed = {k: a for c in kernels for k, a in _handed(c).items()}
    for expr in (*post_order(function), *(e for c in kernels for e in post_order(c.op))):
        if op_name(expr) == "nn.dense":
            weight = handed.get(expr.args[1].handle.value, expr.args[1])
            if not isinstance(weight, relay.Constant) and weight.handle.value not in fixed:
                return False
    return True


def workload(operator: Operator, target: Any) -> Workload | None:
    """The task of an operator, with its choices; None if AutoTVM has none for it."""
    tasks = [_task(name, arguments, target) for name, arguments in _known(operator, target)]
    flops = [float(t.flop) for t in tasks if t is not None]
    choices = tuple(
        (t.name, t.args)
        for t in tasks
        if t is not None
        and t.config_space.range_length > 1
        and (operator.constants or t.name not in _PACKS_CONSTANTS)
    )
    if not choices:
        return None
    task, name = replace(operator, choices=choices), str(operator.call.op.name)
    return Workload(operator.key, name, operator.types, min(flops), task)


def _known(operator: Operator, target: Any) -> list[tuple[str, tuple[Any, ...]]]:
    """AutoTVM's tasks for an operator, by name and arguments."""
    call = operator.call
    inputs = [te.placeholder(t.shape, t.dtype) for t in operator.types[:-1]]
    tracing = TaskExtractEnv.get()
    found: list[tuple[str, tuple[Any, ...]]] = []
    asked = call.op, call.attrs, inputs, call.checked_type, target
    for way in te_compiler.get_valid_implementations(*asked):
        with target, tracing, quiet():
            try:
                way.compute(call.attrs, inputs, call.checked_type)
            except Exception:  # it does not fit these shapes
                continue
        found += tracing.get_tasks()
    return list(dict.fromkeys(found))


def _task(name: str, arguments: tuple[Any, ...], target: Any) -> Any | None:
    try:
        with quiet():
            return autotvm.task.create(name, arguments, target=target)
    except Exception:  # topi.InvalidShapeError, or an error in a template's own division
        return None


def _alone(call: Any) -> Any:
    arguments = [relay.var(f"in{k}", a.checked_type) for k, a in enumerate(call.args)]
    function = relay.Function(arguments, relay.Call(call.op, arguments, call.attrs))
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


def _fixed(function: Any) -> set[int]:
    """Handles of the expressions that depend on no argument: the build will compute them."""
    found: set[int] = set()
    for expr in post_order(function.body):
        reads = [c for c in children(expr) if not isinstance(c, relay.Function | tvm.ir.Op)]
        computed = isinstance(expr, relay.Call | relay.Tuple | relay.TupleGetItem)
        known = computed and all(c.handle.value in found for c in reads)
        if known or isinstance(expr, relay.Constant):
            found.add(expr.handle.value)
    return found


def _handed(group: Any) -> dict[int, Any]:
    """The arguments in a kernel's call, by the handles of its parameters."""
    return {p.handle.value: a for p, a in zip(group.op.params, group.args, strict=True)}


def _constants(group: Any, call: Any, fixed: set[int]) -> Iterator[str]:
    """Which arguments of a kernel's operator are constants in the program."""
    handed = _handed(group)
    for place, argument in enumerate(call.args):
        given = handed.get(argument.handle.value, argument)
        if given.handle.value in fixed or isinstance(given, relay.Constant):
            yield f"in{place}"


def matched(
    kernels: Sequence[Any], function: Any, options: BuildOptions
) -> list[Operator | None] | None:
    """The operator that each kernel of the real build, a call that FuseOps made, is built around;
    None if the build changed the program so that kernels cannot be matched."""
    known = operators(optimised(function, options), options)
    anchored = [anchor(g) is not None for g in kernels]
    if len(known) != sum(anchored):
        return None
    rest = iter(known)
    return [next(rest) if has else None for has in anchored]
