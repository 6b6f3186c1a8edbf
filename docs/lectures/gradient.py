"""Reverse-mode gradient by hand: a rule for each operator, and one walk from the end."""

from dataclasses import replace

from tvm import relax

from relascope.passes.relax.ir import rewrite

IR = "relax"
OPS = relax.op


def _matmul(g, y, x, w):
    return OPS.matmul(g, OPS.permute_dims(w, [1, 0])), OPS.matmul(OPS.permute_dims(x, [1, 0]), g)


def _add(g, y, *args):
    same = rewrite.shape(y)
    return [g if rewrite.shape(a) == same else OPS.collapse_sum_to(g, a.ty.shape) for a in args]


def _relu(g, y, x):
    zero = relax.const(0, rewrite.dtype(y))
    return (OPS.where(OPS.less_equal(y, zero), zero, g),)


def _permute_dims(g, y, x):
    return (OPS.permute_dims(g, [1, 0]),)  # of matrices, as above


RULES = {"matmul": _matmul, "add": _add, "nn.relu": _relu, "permute_dims": _permute_dims}
"""From the gradient of a call's result, the result, and the arguments, to the gradient of each."""


def gradient_by_hand(program):
    """Takes the gradient of a model with one output: an argument `grad_out_0`, and the chain rule
    from there to every input."""
    main, bound = program.main, rewrite.bindings(program.main)
    (out,) = rewrite.results(main, bound)
    seed = relax.Var("grad_out_0", out.ty)
    maker = rewrite.Maker({str(v.name) for v, _ in bound}, program.provenance)
    adjoints = {out.__chandle__(): seed}
    for variable, call in reversed(bound):
        adjoint, maker.origin = adjoints.get(variable.__chandle__()), f"{variable.name}_grad"
        if adjoint is None:
            continue  # the output does not depend on it
        parts = RULES[rewrite.op_name(call)](adjoint, variable, *call.args)
        for argument, part in zip(call.args, parts, strict=True):
            key, made = argument.__chandle__(), maker.emit(part)
            adjoints[key] = maker.emit(OPS.add(adjoints[key], made)) if key in adjoints else made
    returned = [out, *(adjoints[p.__chandle__()] for p in main.params)]
    names = tuple(str(p.name) for p in main.params)
    made = rewrite.function_of([*main.params, seed], [*bound, *maker.bound], returned, main.attrs)
    joint = replace(program, grad_outs=("grad_out_0",), gradients=names)
    return rewrite.with_main(joint, made)
