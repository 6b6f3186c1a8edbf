"""TVM's own Relay passes, as functions from program to program."""

from collections.abc import Callable
from typing import Any, Literal

import tvm
from tvm import relay

from relascope.core.errors import EngineError
from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.doubles import without_doubles
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import copied, op_name, post_order, with_mod
from relascope.passes.relay.ir.span_recovery import with_origins
from relascope.passes.tvm_calls import run


def applied(
    program: RelayProgram, make: Callable[..., Any], *arguments: Any, target: str = ""
) -> RelayProgram:
    """A program after a pass of TVM's, made from plain arguments; itself if the pass rebuilt it as
    it was. Each pass gets a copy of the module, because some (Inline, RemoveUnusedFunctions) change
    it."""
    mod = run(copied(program.mod), make, *arguments, target=target)
    same = tvm.ir.structural_equal(mod, program.mod)
    return program if same else with_origins(program, mod)


def tvm_pass(
    make: Callable[[], Any], summary: str, before: str = "", after: str = "", looking: bool = False
) -> Callable[[RelayProgram], RelayProgram]:
    """A pass of TVM's that takes no parameters; the catalogue reads the rest from this file."""
    return lambda program: applied(program, make)


_t = relay.transform

cse = tvm_pass(
    _t.EliminateCommonSubexpr,
    "Computes equal expressions once: one reshape of the input for q, k and v, not three.",
    after="Equal calls of equal operands occur once; dropouts stay separate.",
)
dce = tvm_pass(
    _t.DeadCodeElimination,
    "Removes values that no output needs.",
    before="The program has let bindings.",
    after="Every let binding is read.",
)
backward_fold_scale_axis = tvm_pass(
    _t.BackwardFoldScaleAxis,
    "Folds a factor per channel into the weight of the convolution or dense layer before it.",
    before="A scale follows a convolution or dense layer, with only sums and ReLUs between; behind "
    "a ReLU, it must be a positive constant.",
    after="The scale multiplies the weight; fold makes one constant of both.",
)
forward_fold_scale_axis = tvm_pass(
    _t.ForwardFoldScaleAxis,
    "Folds a factor per channel into the weights of the convolutions or dense layers after it.",
    before="Every reader of the scaled value is a convolution or dense layer, with only sums "
    "and ReLUs between; before a ReLU, the scale must be a positive constant.",
    after="The scale multiplies each weight; fold makes one constant of the two.",
)
canonicalize_ops = tvm_pass(
    _t.CanonicalizeOps,
    "Replaces nn.bias_add by a sum with the bias, reshaped to broadcast.",
    after="No nn.bias_add is left.",
)
fold_explicit_padding = tvm_pass(
    _t.FoldExplicitPadding,
    "Moves padding into the convolution or pooling that reads it.",
    before="Only convolutions or poolings read the padding, and pad with the same value.",
    after="The padding is an attribute of its reader.",
)
fast_math = tvm_pass(
    _t.FastMath,
    "Computes exp, tanh, erf and softmax by polynomials: faster, with other rounding.",
    before="The program computes in float32. Take no gradient later: the fast forms have none.",
    after="exp, tanh, erf and softmax became fast_exp, fast_tanh, fast_erf and fast_softmax.",
)
inline = tvm_pass(
    _t.Inline,
    "Inlines functions of the module that are marked Inline.",
    before="main calls functions of the module that are marked Inline=1 and call no others.",
    after="Those functions are gone.",
)
remove_unused_functions = tvm_pass(
    _t.RemoveUnusedFunctions,
    "Removes functions of the module that main does not reach.",
    before="The module has functions besides main.",
    after="Every function is main or called from it.",
)


@listed("SimplifyExpr", "TVM")
def simplify_expr(program: RelayProgram) -> RelayProgram:
    """Applies about forty small rules: views of views, casts of casts, sums and products of
    constants, x * 1, and the like.
    """
    return applied(without_doubles(program), _t.SimplifyExpr)


@listed("FuseOps", "TVM", looking=True)
def fuse(program: RelayProgram) -> RelayProgram:
    """Groups operators into the kernels that will run. For inspection: building fuses anyway.

    After: Every operator is in a function marked Primitive, which will be one kernel.
    """
    calls = (e for e in post_order(program.main) if op_name(e))
    if any(e.op.get_attr("TOpPattern") is None for e in calls):  # as relay.build begins
        program = with_origins(program, _t.SimplifyInference()(copied(program.mod)))
    # At relay.build's own level, so that the page shows the kernels that will run.
    return with_mod(program, run(copied(program.mod), _t.FuseOps, 2))


@listed("DefuseOps", "TVM", looking=True)
def defuse(program: RelayProgram) -> RelayProgram:
    """Undoes the groups of FuseOps. For inspection.

    Before: fuse ran right before it.
    After: The program is as it was before fuse.
    """
    return with_mod(program, run(copied(program.mod), _t.DefuseOps))


@listed("CombineParallelBatchMatmul", "TVM, by the tutorial's author", least={"branches": 2})
def combine_batch_matmul(program: RelayProgram, branches: int = 3) -> RelayProgram:
    """Joins matmuls that read one input into one: q, k and v become a single product.

    Before: Three batch_matmuls, or as many as branches says, read one left operand, in the form
        that batch_matmul_nt makes.
    After: Each is a slice of one product, whose weight is a constant after bind and fold.

    Args:
        branches: The fewest to join.
    """
    return applied(program, _t.CombineParallelBatchMatmul, branches)


@listed("CombineParallelDense", "TVM", least={"branches": 2})
def combine_dense(program: RelayProgram, branches: int = 3, batch: bool = True) -> RelayProgram:
    """Joins dense layers that read one input into one product.

    Before: Three nn.dense, or as many as branches says, read one input; linear_to_dense makes them.
    After: Each is a slice of one product.

    Args:
        branches: The fewest to join.
        batch: Whether to make one batch_matmul; else one nn.dense.
    """
    return applied(program, _t.CombineParallelDense, branches, batch)


@listed("CombineParallelConv2D", "TVM", least={"branches": 2})
def combine_conv2d(program: RelayProgram, branches: int = 3) -> RelayProgram:
    """Joins convolutions that read one input, with kernels of one size, into one.

    Before: Three 2D convolutions, or as many as branches says, read one input, and differ only
        in the number of channels.
    After: Each is a slice of one convolution.

    Args:
        branches: The fewest to join.
    """
    return applied(program, _t.CombineParallelConv2D, branches)


@listed("ConvertLayout", "TVM")
def convert_layout(program: RelayProgram, data: Literal["NHWC", "NCHW"] = "NHWC") -> RelayProgram:
    """Converts 2D convolutions, and operators that can follow, to another order of axes.

    After: Convolutions have the layout; a layout_transform is where it begins and ends.

    Args:
        data: The order of the data's axes.
    """
    wanted = {"nn.conv2d": [data, "default"], "nn.max_pool2d": [data], "nn.avg_pool2d": [data]}
    return applied(program, _t.ConvertLayout, wanted)


@listed("ToMixedPrecision", "TVM")
def mixed_precision(program: RelayProgram) -> RelayProgram:
    """Computes products and convolutions in float16; results differ by its rounding.

    After: Products and convolutions, and operators that may follow, are in float16; results of the
        program keep their types.
    """
    keep, mod = {"relay.ToMixedPrecision.keep_orig_output_dtype": True}, copied(program.mod)
    for name, f in program.mod.functions.items():  # the pass removes types from its functions
        mod[name] = relay.Function(f.params, f.body, f.ret_type, f.type_params, f.attrs)
    mod = relay.transform.InferType()(mod)
    return with_origins(program, run(mod, _t.ToMixedPrecision, config=keep))


@listed("AlterOpLayout", "TVM")
def alter_op_layout(program: RelayProgram, cpu: str | None = None) -> RelayProgram:
    """Gives convolutions the blocked layout that a CPU's schedules expect, such as NCHW16c.
    Building does this anyway.

    After: Convolutions are nn.contrib_conv2d_NCHWc; a layout_transform is where the layout begins
        and ends.

    Args:
        cpu: LLVM's name of the CPU; by default a generic one.

    Raises:
        EngineError: kind "target", if LLVM has no such CPU.
    """
    return applied(program, _t.AlterOpLayout, target=_cpu(cpu))


@listed("QNN Legalize", "TVM")
def qnn_legalize(program: RelayProgram, cpu: str | None = None) -> RelayProgram:
    """Replaces quantized products and convolutions by integer operators that a CPU has.

    Before: The program has quantized operators (qnn.dense, qnn.conv2d).
    After: The CPU's instructions fit the remaining quantized operators.

    Args:
        cpu: LLVM's name of the CPU; by default a generic one.
    """
    return applied(program, relay.qnn.transform.Legalize, target=_cpu(cpu))


@listed("QNN CanonicalizeOps", "TVM")
def qnn_canonicalize(program: RelayProgram) -> RelayProgram:
    """Replaces the remaining quantized operators by plain ones, with scales as fixed-point
    products.

    Before: The program has quantized operators.
    After: No operator of the qnn dialect is left, so the program can be built.
    """
    return applied(program, relay.qnn.transform.CanonicalizeOps, target=_cpu(None))


def _cpu(name: str | None) -> str:
    if not name:
        return "llvm"
    if name not in map(str, tvm.target.codegen.llvm_get_cpu_archlist(tvm.target.Target("llvm"))):
        hint = "Use one of LLVM's names, such as skylake-avx512 or znver2."
        raise EngineError("target", f"LLVM has no CPU called {name!r}.", f"cpu={name}", hint)
    return f"llvm -mcpu={name}"
