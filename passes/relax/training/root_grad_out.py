"""One scalar whose gradient is the backward that PyTorch asks for."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from relascope.core.errors import EngineError
from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir import rewrite
from relascope.passes.relax.ir.program import RelaxProgram


@listed("grad_out rooted", "the tutorial", required=True, excludes=("bind",))
def root_grad_out(program: RelaxProgram) -> RelaxProgram:
    """Multiplies each output with its grad_out and sums, so that the gradient of this scalar is the
    backward that PyTorch asks for.

    The gradient of that scalar for an argument is the vector-Jacobian product with the grad_outs,
    which is PyTorch's backward. "main" returns (root, outputs...) afterwards; each floating output
    has a new argument `grad_out_<index>` of its own type. An output of another type has no
    gradient and gets none, and neither have the new values of buffers.

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
    taken = {str(p.name) for p in main.params}
    variables, root = [], None
    for index, output in enumerate(outputs[: len(outputs) - len(program.updates)]):
        if not rewrite.is_floating(output):
            continue
        name = f"grad_out_{index}"
        while name in taken:
            name += "_"
        variables.append(relax.Var(name, output.ty))
        term = relax.op.sum(relax.op.multiply(output, variables[-1]))
        root = term if root is None else relax.op.add(root, term)
    if root is None:
        raise EngineError(
            "pass",
            "no output of the model is of a floating type, so there is no gradient to take",
            ", ".join(f"output {i}: {o.ty.dtype}" for i, o in enumerate(outputs)),
            "choose a module with a floating output",
        )
    made = maker.emit(root)
    function = rewrite.function_of(
        [*main.params, *variables], [*bound, *maker.bound], [made, *outputs], main.attrs
    )
    rooted = replace(program, grad_outs=tuple(str(v.name) for v in variables))
    return rewrite.with_main(rooted, function)
