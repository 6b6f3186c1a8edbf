"""TVM's own Relay passes, as functions from program to program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relay

from relascope.core.errors import EngineError
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import copied, with_mod
from relascope.passes.relay.ir.span_recovery import with_origins

_t = relay.transform


def applied(program: RelayProgram, made: Any) -> RelayProgram:
    """A program after a pass of TVM's.

    Some of them (Inline, RemoveUnusedFunctions) change the module that they are given, so each gets
    a copy.
    """
    return with_origins(program, made(copied(program.mod)))


def _module_pass(make: Callable[[], Any]) -> Callable[[RelayProgram], RelayProgram]:
    return lambda program: applied(program, make())


eliminate_common_subexpr = _module_pass(_t.EliminateCommonSubexpr)
dead_code_elimination = _module_pass(_t.DeadCodeElimination)
backward_fold_scale_axis = _module_pass(_t.BackwardFoldScaleAxis)
forward_fold_scale_axis = _module_pass(_t.ForwardFoldScaleAxis)
canonicalize_ops = _module_pass(_t.CanonicalizeOps)
simplify_expr = _module_pass(_t.SimplifyExpr)
fold_explicit_padding = _module_pass(_t.FoldExplicitPadding)
fast_math = _module_pass(_t.FastMath)
inline = _module_pass(_t.Inline)
remove_unused_functions = _module_pass(_t.RemoveUnusedFunctions)


def fuse_ops(program: RelayProgram) -> RelayProgram:
    """FuseOps, at level 2 as `relay.build` runs it, so that what is shown is what will run."""
    return with_mod(program, _t.FuseOps(fuse_opt_level=2)(copied(program.mod)))


def defuse_ops(program: RelayProgram) -> RelayProgram:
    """DefuseOps."""
    return with_mod(program, _t.DefuseOps()(copied(program.mod)))


def combine_parallel_batch_matmul(program: RelayProgram, branches: int = 3) -> RelayProgram:
    """CombineParallelBatchMatmul.

    Args:
        branches: how many products of one operand are joined at least.
    """
    return applied(program, _t.CombineParallelBatchMatmul(branches))


def combine_parallel_dense(
    program: RelayProgram, branches: int = 3, batch: bool = True
) -> RelayProgram:
    """CombineParallelDense.

    Args:
        branches: how many layers of one input are joined at least.
        batch: make a batch_matmul of them, which asks for one shape; else one dense of all rows.
    """
    return applied(program, _t.CombineParallelDense(branches, batch))


def combine_parallel_conv2d(program: RelayProgram, branches: int = 3) -> RelayProgram:
    """CombineParallelConv2D.

    Args:
        branches: how many convolutions of one input are joined at least.
    """
    return applied(program, _t.CombineParallelConv2D(branches))


def convert_layout(program: RelayProgram, data: str = "NHWC") -> RelayProgram:
    """ConvertLayout for 2D convolutions, and for pooling as far as it has to follow.

    Args:
        data: the wanted layout of data; weights get the one that goes with it.
    """
    wanted = {"nn.conv2d": [data, "default"], "nn.max_pool2d": [data], "nn.avg_pool2d": [data]}
    return applied(program, _t.ConvertLayout(wanted))


def to_mixed_precision(program: RelayProgram) -> RelayProgram:
    """ToMixedPrecision to float16; what the program returns keeps its dtype."""
    keep = {"relay.ToMixedPrecision.keep_orig_output_dtype": True}
    mod = copied(program.mod)
    for name, f in program.mod.functions.items():  # it takes the types off those it is given
        mod[name] = relay.Function(f.params, f.body, f.ret_type, f.type_params, f.attrs)
    with tvm.transform.PassContext(config=keep):
        return with_origins(program, _t.ToMixedPrecision()(relay.transform.InferType()(mod)))


def alter_op_layout(program: RelayProgram, cpu: str = "") -> RelayProgram:
    """AlterOpLayout for a CPU, as `relay.build` runs it.

    Args:
        cpu: LLVM's name of it, such as "skylake-avx512"; "" is any of its family.

    Raises:
        EngineError: kind "target"; LLVM knows no such CPU.
    """
    with _cpu(cpu):
        return applied(program, _t.AlterOpLayout())


def qnn_legalize(program: RelayProgram, cpu: str = "") -> RelayProgram:
    """QNN's Legalize for a CPU: quantized products and convolutions.

    Args:
        cpu: as of `alter_op_layout`.
    """
    with _cpu(cpu):
        return applied(program, relay.qnn.transform.Legalize())


def qnn_canonicalize(program: RelayProgram) -> RelayProgram:
    """QNN's CanonicalizeOps: what is left of the quantized operators."""
    with _cpu(""):
        return applied(program, relay.qnn.transform.CanonicalizeOps())


def _cpu(name: str) -> Any:
    generic = tvm.target.Target("llvm")
    if not name:
        return generic
    if name not in map(str, tvm.target.codegen.llvm_get_cpu_archlist(generic)):
        raise EngineError(
            "target",
            f"LLVM knows no CPU called {name!r}.",
            f"cpu={name}",
            "Take a name of LLVM's, such as skylake-avx512 or znver2.",
        )
    return tvm.target.Target(f"llvm -mcpu={name}")
