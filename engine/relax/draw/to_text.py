"""Relax's own text of a program, without what its readers do not need."""

import re
from typing import Any

from tvm import relax

from relascope.passes.relax.ir.program import RelaxProgram

_HEAD = re.compile(r"^def (\w+)\((.+?)\)( -> .+)?:$", re.MULTILINE)


def to_text(program: RelaxProgram) -> str:
    """The text of every Relax function, "main" first: constants by number, one argument a line.
    Kernels follow if they came with the program, or if TVM's own passes ran: after relascope's
    passes they would be most of the text."""
    every = {str(v.name_hint): f for v, f in program.mod.functions.items()}
    functions = {name: f for name, f in every.items() if isinstance(f, relax.Function)}
    names = sorted(functions, key=lambda name: (name != "main", name))
    texts = [own_text(functions[name], name) for name in names]
    if program.tvm_passes or program.code:
        texts += [own_text(every[name], name) for name in sorted(every.keys() - functions)]
    return "\n".join(texts)


def function_text(function: Any, name: str) -> str:
    """TVM's own text of one function or kernel, without the values of its constants."""
    # Alone, it does not know which of the module's devices it means.
    return str(function.script(show_meta=False, name=name)).replace(":-1:global", "")


def own_text(function: Any, name: str) -> str:
    """The text of one function or kernel, one argument a line."""
    lines = function_text(function, name).splitlines()
    text = "\n".join(line for line in lines if line and not line.startswith("# "))
    return _HEAD.sub(_spread, text, count=1) + "\n"


def _spread(head: re.Match[str]) -> str:
    arguments = re.sub(r", (?=\w+: )", ",\n    ", head[2])
    return f"def {head[1]}(\n    {arguments}\n){head[3] or ''}:"
