"""TVM's own Relax passes, as functions from program to program."""

from collections.abc import Callable
from typing import Any, Literal

from tvm import relax
from tvm_ffi import structural_equal

from relascope.core.errors import EngineError
from relascope.core.graph import NodeOrigin
from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import bindings, op_name, with_mod
from relascope.passes.tvm_calls import run


def applied(program: RelaxProgram, make: Callable[..., Any], *arguments: Any) -> RelaxProgram:
    """A program after a pass of TVM's, made from plain arguments; itself if the pass rebuilt it as
    it was."""
    mod = run(program.mod, make, *arguments)
    return program if structural_equal(mod, program.mod) else with_mod(program, mod)


def tvm_pass(
    make: Callable[[], Any], summary: str, before: str = "", after: str = "", looking: bool = False
) -> Callable[[RelaxProgram], RelaxProgram]:
    """A pass of TVM's that takes no parameters; the catalogue reads the rest from this file."""
    return lambda program: applied(program, make)


_t = relax.transform

cse = tvm_pass(
    _t.EliminateCommonSubexpr,
    "Computes equal expressions once.",
    after="Equal calls of equal operands occur once; a renaming replaces each other one.",
)
combine_matmul = tvm_pass(
    _t.CombineParallelMatmul,
    "Joins matmuls that read one input into one: q, k and v become a single product. Works only "
    "before the weights are constants.",
    before="Two products read one left operand, and their right operands are not constants yet.",
    after="Each is a slice of one product, whose weight is a constant after bind and fold.",
)
remove_redundant_reshape = tvm_pass(
    _t.RemoveRedundantReshape,
    "Merges two reshapes into one, and removes reshapes to the same shape.",
    after="No reshape reads another, and each changes the shape.",
)
canonicalize = tvm_pass(
    _t.CanonicalizeBindings,
    "Removes variables that only rename other variables.",
    after="No variable only renames another one.",
)
dce = tvm_pass(
    _t.DeadCodeElimination,
    "Removes values that no output needs.",
    after="Every binding is read, and every function is called.",
)
legalize = tvm_pass(
    _t.LegalizeOps,
    "Lowers every operator to a kernel: a loop nest in TVM's tensor IR. For inspection: building "
    "does this anyway.",
    looking=True,
    after="Every operator is a call to a kernel.",
)
annotate_pattern = tvm_pass(
    _t.AnnotateTIROpPattern,
    "Marks each kernel as elementwise, a reduction and so on, to decide what can be fused.",
    looking=True,
    before="legalize made the operators kernels.",
    after="Every kernel has an op_pattern.",
)
fuse_ops = tvm_pass(
    _t.FuseOps,
    "Groups kernels into the functions that will run as one.",
    looking=True,
    before="annotate_pattern gave each kernel an op_pattern.",
    after="Kernels that will run as one are in a function marked Primitive.",
)
fuse_tir = tvm_pass(
    _t.FuseTIR,
    "Merges each group of kernels into one kernel.",
    looking=True,
    before="fuse_ops made functions marked Primitive.",
    after="Each such function is one kernel.",
)
fuse_transpose_matmul = tvm_pass(
    _t.FuseTransposeMatmul,
    "Fuses a matmul with the transpose of its right operand.",
    before="The right operand of a matmul is a permute_dims: the weights are not folded.",
    after="Such a pair is one kernel and no longer an operator.",
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
    before="A matmul reads a sum, which is not a constant.",
    after="Such a product is a sum of two.",
)
adjust_matmul_order = tvm_pass(
    _t.AdjustMatmulOrder,
    "Writes x @ (A @ B) as (x @ A) @ B, or the other way round, whichever takes less work.",
    before="A matmul reads a matmul.",
    after="Such a pair is in the order that takes less work.",
)
reorder_permute_dims_after_concat = tvm_pass(
    _t.ReorderPermuteDimsAfterConcat,
    "Concatenates weights first, and transposes them together instead of one by one.",
    before="A concat reads only transposes, as combine_matmul leaves it before fold.",
    after="One transpose reads the concat.",
)
fast_math = tvm_pass(
    _t.FastMathTransform,
    "Replaces exp, erf, tanh and softmax by approximations in float32.",
    before="The program computes in float32. Take no gradient later: the fast forms have none.",
    after="exp, tanh, erf and softmax became kernels: fast_exp, fast_tanh, fast_erf, fast_softmax.",
)


@listed("TopologicalSort", "TVM")
def topological_sort(
    program: RelaxProgram,
    order: Literal["depth-first", "breadth-first"] = "depth-first",
    direction: Literal["from-inputs", "from-outputs"] = "from-inputs",
) -> RelaxProgram:
    """Sorts bindings in another order, each after those it reads. The graph stays the same; the
    memory held at a time may not.

    After: Each binding comes after those that it reads, in the chosen order.

    Args:
        order: How to walk the graph.
        direction: Where the walk begins."""
    return applied(program, _t.TopologicalSort, order, direction)


@listed("DecomposeOpsForInference", "TVM")
def decompose_inference(program: RelaxProgram) -> RelaxProgram:
    """Writes out batch norm with its running statistics, which is right only in inference.

    Before: Batch norm is in eval mode.
    After: No nn.batch_norm is left; fold computes the parts that depend on weights alone.

    Raises:
        EngineError: kind "pass", if a batch norm is in train mode. TVM ignores its mode and would
            use the running statistics."""
    _refuse_batch_norm(program, True, "decompose_inference")
    return applied(program, _t.DecomposeOpsForInference)


@listed("DecomposeOpsForTraining", "TVM")
def decompose_training(program: RelaxProgram) -> RelaxProgram:
    """Writes out layer norm, and batch norm with the batch's statistics, in operators that have a
    gradient.

    Before: Batch norm is in train mode.
    After: No nn.layer_norm and no nn.batch_norm is left.

    Raises:
        EngineError: kind "pass", if a batch norm is in eval mode. TVM ignores its mode and would
            use the batch's statistics."""
    _refuse_batch_norm(program, False, "decompose_training")
    return applied(program, _t.DecomposeOpsForTraining)


def _refuse_batch_norm(program: RelaxProgram, training: bool, name: str) -> None:
    """Refuse a batch norm in a mode in which a pass would silently change its meaning."""
    for variable, value in bindings(program.main):
        if op_name(value) == "nn.batch_norm" and bool(value.attrs.training) == training:
            where = program.provenance.get(str(variable.name), NodeOrigin()).named("nn.batch_norm")
            mode, others = ("train", "the running") if training else ("eval", "the batch's")
            message = f"In {mode} mode, a batch norm does not normalise by {others} statistics."
            better = "training" if training else "inference or decompose_batch_norm"
            hint = f"Switch {name} off, and use decompose_{better}."
            raise EngineError("pass", message, where, hint)


@listed("ConvertLayout", "TVM")
def convert_layout(
    program: RelaxProgram,
    data: Literal["NHWC", "NCHW"] = "NHWC",
    kernel: Literal["OHWI", "OIHW", "HWIO"] = "OHWI",
) -> RelaxProgram:
    """Converts 2D convolutions to another order of axes, by default NHWC.

    After: Convolutions have the layout; a permute_dims is where it begins and ends.

    Args:
        data: The order of the data's axes.
        kernel: The order of the weights' axes."""
    return applied(program, _t.ConvertLayout, {"relax.nn.conv2d": [data, kernel]})


@listed("ToMixedPrecision", "TVM")
def mixed_precision(
    program: RelaxProgram, out: Literal["float32", "float16"] = "float32"
) -> RelaxProgram:
    """Computes matmuls and convolutions in float16; results differ by its rounding.

    Before: The program computes in float32.
    After: Products and convolutions take float16, and results of the program keep their types.

    Args:
        out: The type of the sums.

    Raises:
        EngineError: kind "pass", if the program computes in float64: TVM would convert a part."""
    if any(str(p.ty.dtype) == "float64" for p in program.main.params) or any(
        str(v.dtype).endswith("float64") for v in program.params.values()
    ):
        message = "ToMixedPrecision needs float32, but this program computes in float64."
        raise EngineError("pass", message, "mixed_precision", "Switch it off in float64.")
    return applied(program, _t.ToMixedPrecision, out)
