"""A picture's ten scores: two dense layers, as the lectures take them apart."""

from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((1, 784), "float32"),
        w0: R.Tensor((784, 128), "float32"),
        b0: R.Tensor((128,), "float32"),
        w1: R.Tensor((128, 10), "float32"),
        b1: R.Tensor((10,), "float32"),
    ) -> R.Tensor((1, 10), "float32"):
        with R.dataflow():
            hidden = R.matmul(x, w0)
            hidden_b = R.add(hidden, b0)
            active = R.nn.relu(hidden_b)
            scores = R.matmul(active, w1)
            out = R.add(scores, b1)
            R.output(out)
        return out
