"""TVM's own Relax passes, as functions from program to program."""

from collections.abc import Callable
from typing import Any, Literal

from tvm import relax

from relascope.core.errors import EngineError
from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import bindings, op_name, with_mod
from relascope.passes.tvm_calls import run


def applied(program: RelaxProgram, make: Callable[..., Any], *arguments: Any) -> RelaxProgram:
    """A program after a pass of TVM's, made of plain arguments."""
    return with_mod(program, run(program.mod, make, *arguments))


def tvm_pass(
    make: Callable[[], Any], summary: str, before: str = "", after: str = "", looking: bool = False
) -> Callable[[RelaxProgram], RelaxProgram]:
    """A pass of TVM's that takes no parameters; the catalogue reads the rest from this file."""
    return lambda program: applied(program, make)


_t = relax.transform

cse = tvm_pass(
    _t.EliminateCommonSubexpr,
    "Computes equal expressions once.",
    after="Equal calls of equal operands occur once; a renaming replaces the second.",
)
combine_matmul = tvm_pass(
    _t.CombineParallelMatmul,
    "Joins matmuls that read one input into one: q, k and v become a single product. Finds them "
    "before the weights are constants.",
    before="Two products read one left operand, and their right sides are no constants yet.",
    after="Each is a slice of one product, whose weight is a constant after bind and fold.",
)
remove_redundant_reshape = tvm_pass(
    _t.RemoveRedundantReshape,
    "Merges two reshapes into one, and removes those that keep the shape.",
    after="No reshape reads another, and each changes the shape.",
)
canonicalize = tvm_pass(
    _t.CanonicalizeBindings,
    "Removes variables that only rename another.",
    after="No variable only renames another.",
)
dce = tvm_pass(
    _t.DeadCodeElimination,
    "Removes what no output needs.",
    after="Every binding is read, and every function is called.",
)
legalize = tvm_pass(
    _t.LegalizeOps,
    "Lowers every operator to a kernel: a loop nest in TVM's tensor IR. Only for looking: building "
    "does this itself.",
    looking=True,
    after="Every operator is a call of a kernel.",
)
annotate_pattern = tvm_pass(
    _t.AnnotateTIROpPattern,
    "Marks each kernel as elementwise, reduction, and so on, which decides what may fuse.",
    looking=True,
    before="It has kernels: legalize made them.",
    after="Every kernel has an op_pattern.",
)
fuse_ops = tvm_pass(
    _t.FuseOps,
    "Groups kernels into the functions that will run as one.",
    looking=True,
    before="Its kernels have an op_pattern: annotate_pattern gave it.",
    after="Kernels that will run as one are in a function marked Primitive.",
)
fuse_tir = tvm_pass(
    _t.FuseTIR,
    "Makes one kernel of each group.",
    looking=True,
    before="It has functions marked Primitive: fuse_ops made them.",
    after="Each such function is one kernel.",
)
fuse_transpose_matmul = tvm_pass(
    _t.FuseTransposeMatmul,
    "Fuses a matmul with the transpose of its right operand.",
    before="A matmul reads a permute_dims on its right: the weights are not folded.",
    after="Such a pair is one kernel, which is no operator any more.",
)
inline = tvm_pass(
    _t.InlinePrivateFunctions,
    "Inlines private functions where they are called.",
    before="main calls private functions of the module.",
    after="Those functions are gone.",
)
expand_matmul_of_sum = tvm_pass(
    _t.ExpandMatmulOfSum,
    "Writes x @ (A + B) as x @ A + x @ B.",
    before="A matmul reads a sum that does not depend on weights alone, or is not bound.",
    after="Such a product is a sum of two.",
)
adjust_matmul_order = tvm_pass(
    _t.AdjustMatmulOrder,
    "Writes x @ (A @ B) as (x @ A) @ B, or the other way round, whichever takes less work.",
    before="A matmul reads a matmul.",
    after="Such a pair is written in the order of less work.",
)
reorder_permute_dims_after_concat = tvm_pass(
    _t.ReorderPermuteDimsAfterConcat,
    "Concatenates weights first, and transposes them once instead of each by itself.",
    before="A concat reads only transposes, as combine_matmul leaves it before fold.",
    after="One transpose reads the concat.",
)
fast_math = tvm_pass(
    _t.FastMathTransform,
    "Replaces exp, erf, tanh and softmax by approximations in float32.",
    before="It computes in float32; no gradient follows, because the fast forms have none.",
    after="exp, tanh, erf and softmax are kernels: fast_exp, fast_tanh, fast_erf and fast_softmax.",
)


@listed("TopologicalSort", "TVM")
def topological_sort(
    program: RelaxProgram,
    order: Literal["depth-first", "breadth-first"] = "depth-first",
    direction: Literal["from-inputs", "from-outputs"] = "from-inputs",
) -> RelaxProgram:
    """Puts bindings into another order in which each stands behind what it reads. The graph stays;
    what is held in memory at a time may not.

    After: Each binding stands behind what it reads, in the order that was asked for.

    Args:
        order: How the graph is gone through.
        direction: Where that begins.
    """
    return applied(program, _t.TopologicalSort, order, direction)


@listed("DecomposeOpsForInference", "TVM")
def decompose_inference(program: RelaxProgram) -> RelaxProgram:
    """Spells out batch norm by its running statistics, as only inference may.

    Before: Batch norm is in eval mode.
    After: There is no nn.batch_norm; fold computes what is left of weights.

    Raises:
        EngineError: kind "pass"; a batch norm is in train mode. TVM does not look at its mode and
            would take the running statistics all the same.
    """
    _refuse_batch_norm(program, True, "decompose_inference")
    return applied(program, _t.DecomposeOpsForInference)


@listed("DecomposeOpsForTraining", "TVM")
def decompose_training(program: RelaxProgram) -> RelaxProgram:
    """Spells out layer norm, and batch norm by the batch's statistics, in operators that have a
    gradient.

    Before: Batch norm is in train mode.
    After: There is no nn.layer_norm and no nn.batch_norm.

    Raises:
        EngineError: kind "pass"; a batch norm is in eval mode. TVM does not look at its mode and
            would take the batch's statistics all the same.
    """
    _refuse_batch_norm(program, False, "decompose_training")
    return applied(program, _t.DecomposeOpsForTraining)


def _refuse_batch_norm(program: RelaxProgram, training: bool, name: str) -> None:
    """Refuse a batch norm of a mode in which a pass would change its meaning without a word."""
    for variable, value in bindings(program.main):
        if op_name(value) == "nn.batch_norm" and bool(value.attrs.training) == training:
            scope, source = program.provenance.get(str(variable.name), ("", ""))
            where = " in ".join(p for p in (source or "nn.batch_norm", scope) if p)
            mode, others = ("train", "the running") if training else ("eval", "the batch's")
            message = f"This batch norm is in {mode} mode, and the pass would normalise by "
            message += f"{others} statistics all the same."
            better = "training" if training else "inference or decompose_batch_norm"
            hint = f"Switch {name} off; take decompose_{better}."
            raise EngineError("pass", message, where, hint)


@listed("ConvertLayout", "TVM")
def convert_layout(
    program: RelaxProgram,
    data: Literal["NHWC", "NCHW"] = "NHWC",
    kernel: Literal["OHWI", "OIHW", "HWIO"] = "OHWI",
) -> RelaxProgram:
    """Turns 2D convolutions to another order of axes, NHWC where none is named.

    After: Convolutions have the layout; permute_dims stands where it begins and ends.

    Args:
        data: The order of the data's axes.
        kernel: The order of the weights' axes.
    """
    return applied(program, _t.ConvertLayout, {"relax.nn.conv2d": [data, kernel]})


@listed("ToMixedPrecision", "TVM")
def mixed_precision(
    program: RelaxProgram, out: Literal["float32", "float16"] = "float32"
) -> RelaxProgram:
    """Lets matmuls and convolutions take float16; results differ by its rounding.

    Before: It computes in float32.
    After: Products and convolutions take float16, and what the program returns keeps its type.

    Args:
        out: The type in which results are summed up.

    Raises:
        EngineError: kind "pass"; the program computes in float64, and TVM would convert a part.
    """
    if any(str(p.ty.dtype) == "float64" for p in program.main.params) or any(
        str(v.dtype).endswith("float64") for v in program.params.values()
    ):
        message = "ToMixedPrecision takes float32, and this program computes in float64."
        raise EngineError("pass", message, "mixed_precision", "Leave it out in float64.")
    return applied(program, _t.ToMixedPrecision, out)
