"""batch_matmul brought to the one form that CombineParallelBatchMatmul and TVM's schedules take."""

from typing import Any

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite, turned


@listed("batch_matmul to NT form", "ours")
def batch_matmul_nt(program: RelayProgram) -> RelayProgram:
    """Writes batch_matmul(a, b) as batch_matmul(a, transpose(b), transpose_b=True), the form that
    CombineParallelBatchMatmul takes.

    An operand that a transpose of its last two axes made loses that transpose; one without gets
    one, which FoldConstant computes where the operand is a weight.

    After: Every batch_matmul has transpose_a=False and transpose_b=True.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        if op_name(call) != "nn.batch_matmul":
            return None
        turn_a, turn_b = bool(call.attrs.transpose_a), bool(call.attrs.transpose_b)
        if not turn_a and turn_b:
            return None
        a, b = args
        a = turned(a, [0, 2, 1]) if turn_a else a
        b = b if turn_b else turned(b, [0, 2, 1])
        return relay.nn.batch_matmul(a, b, call.attrs.out_dtype, False, True)

    return rewrite(program, visit)
