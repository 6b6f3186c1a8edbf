"""A report's fault as one script to paste: it needs TVM and numpy, and nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from relascope.engine.protocol.fault import Where
from relascope.passes.tvm_calls import TvmCall

Values = Mapping[str, np.ndarray]

FEW = 400
"""Numbers that a script may spell out."""

_SCRIPT = """\
import numpy as np
import tvm
from tvm import relax
{program}

target = tvm.target.Target({target!r})
{constants}before = relax.transform.Normalize()({module})
with target{context}:
    after = {module_of_pass}.{function}({arguments})(before)
relax.analysis.well_formed(after)
assert str(after["main"].ret_ty) == str(before["main"].ret_ty)
"""
_RUN = """\

values = {{
{values}}}


def run(mod):
    built = tvm.compile(mod, target, relax_pipeline={pipeline})
    given = [tvm.runtime.tensor(values[str(p.name)]) for p in mod["main"].params]
    made = relax.VirtualMachine(built, tvm.cpu())["main"](*given)
    several = isinstance(made, (tvm.ir.Array, list, tuple))
    return [one.numpy() for one in (made if several else [made])]


for expected, seen in zip(run(before), run(after)):
    scale = max(abs(expected).max(initial=0.0), {floor!r})
    np.testing.assert_allclose(seen, expected, rtol=0, atol={limit!r} * scale)
"""

_DEFAULT = "relax.get_default_pipeline(target)"


def script(
    call: TvmCall, program: str, constants: Values, values: Values, where: Where, floor: float
) -> str:
    """A script that fails while a pass of Relax's shows its fault, and ends well when it does not.

    Args:
        call: the pass.
        program: TVMScript of the module before it, as TVM prints it.
        constants: what is bound to arguments of `main` in it.
        values: of its other arguments.
        floor: what differences are relative to at least.

    Returns:
        "" where the program or its numbers are too many to paste.
    """
    if not program or sum(v.size for v in (*constants.values(), *values.values())) > FEW:
        return ""
    kinds = {v.dtype for v in (*constants.values(), *values.values())}
    if any(k.isbuiltin != 1 for k in kinds):  # bfloat16 and others that numpy lacks
        return ""
    bound = "".join(
        f"    {n!r}: tvm.runtime.tensor({_spelled(v)}),\n" for n, v in constants.items()
    )
    text = _SCRIPT.format(
        program=program.replace("# from tvm.script", "from tvm.script"),
        target=where.target,
        constants=f"constants = {{\n{bound}}}\n" if bound else "",
        module='relax.transform.BindParams("main", constants)(Module)' if bound else "Module",
        context=f", tvm.transform.PassContext(config={dict(call.config)})" if call.config else "",
        module_of_pass=call.module.removeprefix("tvm."),
        function=call.function,
        arguments=", ".join(f"{n}={v!r}" for n, v in call.arguments.items()),
    )
    if where.building:
        given = "".join(f"    {n!r}: {_spelled(v)},\n" for n, v in values.items())
        kind = 'relax.get_pipeline("default_build")' if where.plain else _DEFAULT
        text += _RUN.format(values=given, pipeline=kind, floor=floor, limit=where.limit or 1e-5)
    return text


def _spelled(value: np.ndarray) -> str:
    """An array as Python: the shortest numbers that are these."""
    numbers = np.array2string(
        value, max_line_width=88, separator=", ", threshold=FEW + 1, floatmode="unique"
    ).replace("\n", "\n       ")
    words = numbers.replace("nan", "np.nan").replace("inf", "np.inf")
    return f"np.array({words}, {str(value.dtype)!r})"
