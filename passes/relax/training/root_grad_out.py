"""One scalar whose gradient is the backward that PyTorch asks for."""

from dataclasses import replace
from functools import reduce

from tvm import relax

from relascope.core.errors import EngineError
from relascope.passes.catalogue.entry import listed
from relascope.passes.gradients import rooted, widest
from relascope.passes.relax.ir import rewrite
from relascope.passes.relax.ir.program import RelaxProgram


@listed("grad_out rooted", "the tutorial", required=True, excludes=("bind", "root_grad_out"))
def root_grad_out(program: RelaxProgram) -> RelaxProgram:
    """Multiplies each output with its grad_out and sums, so that the gradient of this scalar is the
    backward that PyTorch asks for.

    The gradient of that scalar for an argument is the vector-Jacobian product with the grad_outs,
    which is PyTorch's backward. "main" returns (root, outputs...) afterwards; see `rooted`.

    Before: An output is of a floating type, and the parameters are arguments.
    After: main returns the root, then the outputs; each floating output has an argument
        grad_out_<index>.

    Raises:
        EngineError: kind "pass", if no output is floating, or the gradient was taken before.
    """
    main = program.main
    if program.grad_outs:
        hint = "take the gradient once; a joint graph by PyTorch comes with its gradients"
        raise EngineError("pass", "the gradient's root is there already", "root_grad_out", hint)
    bound = rewrite.bindings(main)
    outputs = rewrite.results(main, bound)
    maker = rewrite.Maker({str(v.name) for v in (*(v for v, _ in bound), *main.params)}, {})
    maker.origin = "root"
    taken, types = {str(p.name) for p in main.params}, [o.ty for o in outputs]
    pairs = rooted(program, outputs, types, taken, relax.Var)
    wide = widest([v.ty.dtype for _, v in pairs])
    cast = [[v if str(v.ty.dtype) == wide else relax.op.astype(v, wide) for v in p] for p in pairs]
    root = reduce(relax.op.add, [relax.op.sum(relax.op.multiply(*pair)) for pair in cast])
    params, returned = [*main.params, *(v for _, v in pairs)], [maker.emit(root), *outputs]
    function = rewrite.function_of(params, [*bound, *maker.bound], returned, main.attrs)
    new = replace(program, grad_outs=tuple(str(v.name) for _, v in pairs))
    return rewrite.with_main(new, function)
