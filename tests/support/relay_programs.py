"""Relay programs as JSON, each with inputs and what Relay makes of them; runs where Relay is.

python tests/support/relay_programs.py FOLDER"""

import sys
from pathlib import Path

import numpy as np

from relascope.engine.relay.tvm.boot import boot

boot()

import tvm  # noqa: E402
from tvm import relay  # noqa: E402
from tvm.contrib import graph_executor  # noqa: E402

from relascope.passes.relay.training import weight_gradient  # noqa: E402

weight_gradient.register()

_RANDOM = np.random.default_rng(0)


def _var(name, *shape, dtype="float32"):
    return relay.var(name, shape=shape, dtype=dtype)


def _plain(operator, *shapes, low=-2.0, high=2.0, dtype="float32", **options):
    def made():
        args = [_var(f"x{i}", *s, dtype=dtype) for i, s in enumerate(shapes)]
        found = operator(*args, **options)
        drawn = [_RANDOM.uniform(low, high, s).astype(dtype) for s in shapes]
        return found, dict(zip((a.name_hint for a in args), drawn, strict=True))

    return made


def _unary():
    wide = "abs ceil cos cosh erf exp floor negative round sigmoid sign sin sinh tanh atan asinh"
    for name in (wide + " trunc isnan isfinite isinf tan").split():
        yield name, _plain(getattr(relay, name), (3, 4), low=-2.5, high=2.5)
    for name in ["log", "rsqrt", "sqrt", "acosh"]:
        yield name, _plain(getattr(relay, name), (3, 4), low=1.1, high=3.0)
    for name in ["asin", "acos", "atanh"]:
        yield name, _plain(getattr(relay, name), (3, 4), low=-0.9, high=0.9)
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    yield "round of halves", lambda: (relay.round(_var("x", 6)), {"x": halves})


_BINARY = "add subtract multiply divide floor_divide floor_mod maximum minimum"


def _binary():
    for name in _BINARY.split():
        yield name, _plain(getattr(relay, name), (3, 4), (4,))
    for name in ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]:
        yield name, _plain(getattr(relay, name), (3, 4), (3, 1), low=0, high=3, dtype="int32")
    for name in ["divide", "floor_divide", "floor_mod"]:
        numbers = {"a": np.array([-7, 7, -8], np.int32), "b": np.array([2, -2, 3], np.int32)}
        given = _var("a", 3, dtype="int32"), _var("b", 3, dtype="int32")
        yield (
            f"{name} of int32",
            lambda name=name, g=given, n=numbers: (getattr(relay, name)(*g), n),
        )
    for name in ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]:
        yield name, _plain(getattr(relay, name), (3, 4), (4,), low=0, high=9, dtype="int32")
    for name in ["logical_and", "logical_or", "logical_xor"]:
        yield name, _plain(getattr(relay, name), (3, 4), (4,), low=0, high=2, dtype="bool")
    yield "power", _plain(relay.power, (3, 4), (4,), low=0.1)
    yield "where", _plain(lambda a, b: relay.where(a < b, a, b * relay.const(2.0)), (3, 4), (3, 1))


def _reductions():
    for name in ["sum", "mean", "max", "min", "prod", "variance"]:
        reduced = getattr(relay, name)
        yield name, _plain(reduced, (2, 3, 4))
        yield f"{name} over some", _plain(reduced, (2, 3, 4), axis=(0, -1), keepdims=True)
        yield f"{name} without one", _plain(reduced, (2, 3, 4), axis=1, exclude=True)
    yield "variance, unbiased", _plain(relay.variance, (2, 3, 4), axis=[1, 2], unbiased=True)
    for name in ["argmax", "argmin"]:
        yield name, _plain(getattr(relay, name), (3, 5), axis=-1)
        yield f"{name} over all", _plain(getattr(relay, name), (3, 5))


def _shapes():
    x = (2, 3, 4)
    yield "reshape", _plain(relay.reshape, x, newshape=(-1, 6))
    yield "transpose", _plain(relay.transpose, x)
    yield "transpose of axes", _plain(relay.transpose, x, axes=(1, 0, 2))
    yield "expand_dims", _plain(relay.expand_dims, x, axis=-1, num_newaxis=2)
    yield "squeeze", _plain(relay.squeeze, (2, 1, 3, 1), axis=[1])
    yield "concatenate", _plain(lambda a, b: relay.concatenate([a, b], 1), (2, 3), (2, 4))
    yield "stack", _plain(lambda a, b: relay.stack([a, b], 1), (2, 3), (2, 3))
    yield "split", _plain(lambda a: relay.split(a, 3, 1)[1], x)
    yield "split at places", _plain(lambda a: relay.split(a, [1, 3], 2).astuple(), x)
    yield "strided_slice", _plain(relay.strided_slice, x, begin=[0, -2], end=[2, 9])
    yield "steps back", _plain(relay.strided_slice, x, begin=[3], end=[0], strides=[-2], axes=[2])
    size = {"begin": [0, 1], "end": [-1, 2], "slice_mode": "size"}
    yield "slice by sizes", _plain(relay.strided_slice, x, **size)
    yield "tile", _plain(relay.tile, (2, 3), reps=(2, 1, 2))
    yield "repeat", _plain(relay.repeat, (2, 3), repeats=2, axis=1)
    yield "reverse", _plain(relay.reverse, x, axis=1)
    yield "broadcast_to", _plain(relay.broadcast_to, (3, 1), shape=(2, 3, 4))
    yield "collapse_sum_like", _plain(relay.collapse_sum_like, x, (3, 1))
    yield "cast", _plain(lambda a: relay.cast(a, "int32"), x)
    yield "clip", _plain(relay.clip, x, a_min=-0.5, a_max=1.0)
    yield "cumsum", _plain(relay.cumsum, x, axis=1)
    yield "cumsum of what is before", _plain(relay.cumsum, x, axis=1, exclusive=True)
    yield "full", _plain(lambda a: a + relay.full(relay.const(2.5), (3, 1), "float32"), (3, 4))
    yield "ones", _plain(lambda a: a + relay.ones((3, 1), "float32"), (3, 4))
    steps = [relay.const(v) for v in (0.0, 4.0, 1.0)]
    yield "arange", _plain(lambda a: a + relay.arange(*steps), (3, 4))


def _indices():
    which = relay.const(np.array([[0, -1], [2, 1]], np.int32))
    yield "take", _plain(lambda a: relay.take(a, which, axis=0, mode="wrap"), (3, 4))
    yield "take clipped", _plain(lambda a: relay.take(a, which, axis=1, mode="clip"), (3, 4))
    yield "take of all", _plain(lambda a: relay.take(a, relay.abs(which)), (3, 4))
    flat = relay.const(np.array([[0, 1, 2, 0]], np.int64))
    yield "gather", _plain(lambda a: relay.gather(a, 0, flat), (3, 4))
    pairs = relay.const(np.array([[0, 1], [2, 0]], np.int64))
    yield "gather_nd", _plain(lambda a: relay.gather_nd(a, pairs), (3, 4))
    ones = relay.const(np.ones((1, 4), "float32"))
    put = {"indices": flat, "updates": ones, "axis": 0, "reduction": "add"}
    yield "scatter_elements", _plain(relay.scatter_elements, (3, 4), **put)
    values = relay.const(2.5), relay.const(0.5)
    hot = {"depth": 4, "axis": -1, "dtype": "float32"}
    yield (
        "one_hot",
        _plain(
            lambda a: relay.one_hot(relay.cast(a, "int32"), *values, **hot), (5,), low=0, high=4
        ),
    )
    yield "topk", _plain(lambda a: relay.topk(a, 2, axis=-1, dtype="int64").astuple(), (3, 5))


def _networks():
    picture = (2, 4, 9, 8)
    yield "dense", _plain(relay.nn.dense, (3, 4), (5, 4))
    yield "batch_matmul", _plain(relay.nn.batch_matmul, (2, 3, 4), (2, 5, 4))
    plain = {"transpose_a": True, "transpose_b": False}
    yield "batch_matmul as it is", _plain(relay.nn.batch_matmul, (2, 4, 3), (2, 4, 5), **plain)
    yield "matmul", _plain(relay.nn.matmul, (3, 4), (4, 5))
    around = {"padding": (1, 2), "strides": (2, 1)}
    yield "conv2d", _plain(relay.nn.conv2d, picture, (6, 4, 3, 3), **around)
    grouped = {"groups": 2, "dilation": (2, 1)}
    yield "conv2d in groups", _plain(relay.nn.conv2d, picture, (6, 2, 3, 3), **grouped)
    window = {"channels": 6, "kernel_size": (3, 3)}
    of_weight = relay.nn.conv2d_backward_weight
    yield "conv2d_backward_weight", _plain(of_weight, (2, 6, 5, 10), picture, **window, **around)
    strided = {"strides": (2, 2), **window}  # one column is in no window
    yield "weight of what strides", _plain(of_weight, (2, 6, 4, 3), picture, **strided)
    apart = {"groups": 4, "channels": 4, "kernel_size": (3, 3), "padding": (1, 1)}
    yield "weight of a channel each", _plain(of_weight, picture, picture, **apart)
    last = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    yield "conv2d of NHWC", _plain(relay.nn.conv2d, (1, 5, 5, 3), (3, 3, 3, 4), **last)
    yield "conv1d", _plain(relay.nn.conv1d, (2, 3, 8), (4, 3, 3), padding=1)
    yield "conv3d", _plain(relay.nn.conv3d, (1, 2, 5, 5, 5), (3, 2, 3, 3, 3))
    wider = {"strides": (2, 2), "padding": (1, 1), "output_padding": (1, 1), "channels": 3}
    wider |= {"kernel_size": (3, 3), "kernel_layout": "IOHW"}
    yield "conv2d_transpose", _plain(relay.nn.conv2d_transpose, picture, (4, 3, 3, 3), **wider)
    pooled = {"pool_size": (3, 2), "strides": (2, 2), "padding": (1, 0)}
    yield "max_pool2d", _plain(relay.nn.max_pool2d, picture, ceil_mode=True, **pooled)
    yield "avg_pool2d", _plain(relay.nn.avg_pool2d, picture, count_include_pad=True, **pooled)
    yield "avg_pool2d of what is there", _plain(relay.nn.avg_pool2d, picture, **pooled)
    yield "avg_pool1d", _plain(relay.nn.avg_pool1d, (2, 3, 8), pool_size=2, strides=2)
    yield "global_avg_pool2d", _plain(relay.nn.global_avg_pool2d, picture)
    yield "global_max_pool2d", _plain(relay.nn.global_max_pool2d, picture)
    yield "adaptive_avg_pool2d", _plain(relay.nn.adaptive_avg_pool2d, picture, output_size=(3, 4))
    four = [(4,)] * 4
    yield "batch_norm", _plain(lambda *a: relay.nn.batch_norm(*a)[0], picture, *four, low=0.1)
    yield "layer_norm", _plain(relay.nn.layer_norm, (3, 4), (4,), (4,), epsilon=1e-3)
    yield "group_norm", _plain(relay.nn.group_norm, picture, (4,), (4,), num_groups=2)
    yield "bias_add", _plain(relay.nn.bias_add, picture, (4,))
    yield "pad", _plain(relay.nn.pad, (3, 4), pad_width=((1, 0), (0, 2)), pad_value=1.5)
    for mode in ("edge", "reflect"):
        width = ((0, 0), (0, 0), (1, 2), (2, 1))
        yield f"pad by {mode}", _plain(relay.nn.pad, picture, pad_width=width, pad_mode=mode)
    yield "softmax", _plain(relay.nn.softmax, (3, 4), axis=0)
    yield "log_softmax", _plain(relay.nn.log_softmax, (3, 4))
    yield "leaky_relu", _plain(relay.nn.leaky_relu, (3, 4), alpha=0.2)
    yield "prelu", _plain(relay.nn.prelu, (2, 4, 3), (4,))
    yield "dropout", _plain(lambda a: relay.nn.dropout(a) + relay.nn.relu(a), (3, 4))
    yield "batch_flatten", _plain(relay.nn.batch_flatten, picture)
    for method in ("nearest_neighbor", "linear", "cubic"):
        how = {"coordinate_transformation_mode": "half_pixel", "rounding_method": ""}
        if "near" in method:
            how = {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
        resize = _plain(relay.image.resize2d, picture, size=(12, 5), method=method, **how)
        yield f"resize2d {method}", resize


def programs():
    """(name, a function that gives an expression and its inputs) of each."""
    for group in (_unary, _binary, _reductions, _shapes, _indices, _networks):
        yield from group()


def main():
    """Write them all; they are built as one program, which takes half as long."""
    folder = Path(sys.argv[1])
    made, outputs, given = [], [], {}
    for name, make in programs():
        body, inputs = make()
        body = body.astuple() if isinstance(body, relay.expr.TupleWrapper) else body
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(body))
        (folder / f"{name}.json").write_text(tvm.ir.save_json(mod))
        prefix = f"p{len(made)}_"
        free = relay.analysis.free_vars(body)
        own = {v: relay.var(prefix + v.name_hint, v.type_annotation) for v in free}
        body, made_of = relay.bind(body, own), mod["main"].ret_type
        several = isinstance(made_of, tvm.ir.TupleType)
        count = len(made_of.fields) if several else 1
        outputs += [relay.TupleGetItem(body, i) for i in range(count)] if several else [body]
        given |= {prefix + n: a for n, a in inputs.items()}
        made.append((name, inputs, count))
    with tvm.transform.PassContext(opt_level=0, required_pass=["Legalize"]):
        built = relay.build(tvm.IRModule.from_expr(relay.Tuple(outputs)), "llvm -opt-level=0")
    run = graph_executor.GraphModule(built["default"](tvm.cpu()))
    run.run(**given)
    arrays = iter([run.get_output(i).numpy() for i in range(run.get_num_outputs())])
    for name, inputs, count in made:
        found = {f"out_{i}": next(arrays) for i in range(count)}
        np.savez(folder / name, **{f"in_{n}": a for n, a in inputs.items()}, **found)


if __name__ == "__main__":
    main()
