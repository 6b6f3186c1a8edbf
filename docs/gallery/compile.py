"""A small module, compiled as TVM's users do: `relascope record -o run.rsc -- python …`."""

from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class Gated:
    @R.function
    def main(x: R.Tensor((8, 64), "float32"), w: R.Tensor((64, 32), "float32")) -> R.Tensor(
        (8, 32), "float32"
    ):
        with R.dataflow():
            product = R.matmul(x, w)
            gate = R.sigmoid(product)
            out = R.multiply(product, gate)
            R.output(out)
        return out


relax.build(Gated, target="llvm")
