"""Examples of the passes before and after the gradient."""

from dataclasses import replace

from tvm.relax import TupleGetItem, op

from relascope.passes.catalogue.example import Example
from relascope.passes.program import Mask
from relascope.passes.relax.examples.building import Tensors


def decompose_gelu(new: Tensors) -> Example:
    return new.example(op.nn.gelu(new.var("x", 2, 3)))


def decompose_layer_norm(new: Tensors) -> Example:
    x, weight, bias = new.var("x", 2, 4), new.weight("weight", 4), new.weight("bias", 4)
    return new.example(op.nn.layer_norm(x, weight, bias, axes=[-1]))


def decompose_batch_norm(new: Tensors) -> Example:
    x = new.var("x", 1, 2, 3, 3)
    given = [new.weight(name, 2) for name in ("weight", "bias", "mean", "variance")]
    n = new.bind("n", op.nn.batch_norm(x, *given, axis=1, training=False))
    return new.example(TupleGetItem(n, 0))


def root_grad_out(new: Tensors) -> Example:
    differs = "the root comes in front of the result"
    return new.example(op.tanh(new.var("x", 2, 4)), differs=differs)


def gradient(new: Tensors) -> Example:
    differs = "the gradient takes the place of the root, behind the result"
    return new.example(op.tanh(new.var("x", 2, 4)), after="root_grad_out", differs=differs)


def drop_zeros(new: Tensors) -> Example:
    x, z = new.var("x", 2, 4), new.bind("z", op.zeros((2, 4), new.dtype))
    return new.example(op.tanh(new.bind("a", op.add(x, z))))


def drop_ones(new: Tensors) -> Example:
    x, o = new.var("x", 2, 4), new.bind("o", op.ones((2, 4), new.dtype))
    return new.example(op.tanh(new.bind("a", op.multiply(x, o))))


def transpose_dedup(new: Tensors) -> Example:
    a = new.bind("a", op.permute_dims(new.var("x", 2, 4), [1, 0]))
    return new.example(op.tanh(new.bind("b", op.permute_dims(a, [1, 0]))))


def transpose_of_matmul(new: Tensors) -> Example:
    h, g = new.var("h", 2, 3), new.var("g", 2, 4)
    t = new.bind("t", op.permute_dims(h, [1, 0]))
    return new.example(op.permute_dims(new.bind("p", op.matmul(t, g)), [1, 0]))


def masks_as_bits(new: Tensors) -> Example:
    x, mask = new.var("x", 4, 4), Mask("dropout_mask_0", 0.5, (4, 4), new.dtype)
    drawn = new.var(mask.name, *mask.shape, dtype=mask.input_dtype)
    kept = new.bind("kept", op.astype(drawn, new.dtype))
    differs = "the mask is read from another input"
    made = new.example(op.multiply(x, kept), differs=differs)
    return replace(made, program=replace(made.program, inputs=("x",), masks=(mask,)))


decompose_inference, decompose_training = decompose_batch_norm, decompose_layer_norm
