"""A report's fault as one script to paste. It needs TVM and numpy, and relascope for our passes.

`engine.faults.report` checks that the fault shows with drawn numbers, so every script fails.
"""

import base64
import re
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relascope.engine.faults.narrow import ProgramText, Start
from relascope.engine.faults.show import ProgramCall
from relascope.passes.tvm_calls import TvmCall

Values = Mapping[str, np.ndarray]

FEW = 400
"""The most literals that a script spells out."""
_SHORT = 16
"""The most literals of an array that is spelled out among drawn ones."""
_MOST = 16_000
"""The most characters of passes, and of a program, packed if TVM's parser does not read it."""
_OURS = {"PROGRAM", "bound", "rng", "target", "constants", "values", "before", "after", "run"}
_OURS |= {"Module", "program", "parameters", "__name__", "if"}
"""Words that begin no line of a file of passes within a script."""


@dataclass(frozen=True)
class _Dialect:
    """The code of a script's parts, for one IR."""

    imports: str
    program: str
    module: str
    bound: str
    array: str
    typed: str
    check: str
    result: str
    run: str


_RELAX = _Dialect(
    imports="from tvm import relax",
    program="{program}\n",
    module="Module",
    bound='relax.transform.BindParams("main", constants)({module})',
    array="tvm.runtime.tensor",
    typed="relax.transform.Normalize()",
    check="relax.analysis.well_formed(after)",
    result='["main"].ret_ty',
    run="""\
    with tvm.transform.PassContext(opt_level={level}):
        built = tvm.compile(relax.transform.LambdaLift()(mod), target, relax_pipeline={pipeline})
    given = [tvm.runtime.tensor(values[str(p.name)]) for p in mod["main"].params]
    made = relax.VirtualMachine(built, tvm.cpu())["main"](*given)
    several = isinstance(made, (tvm.ir.Array, list, tuple))
    return [one.numpy() for one in (made if several else [made])]
""",
)
_RELAY = _Dialect(
    imports="from tvm import relay\nfrom tvm.contrib import graph_executor",
    program='PROGRAM = r"""\n{program}\n"""\n',
    module="relay.parse(PROGRAM.strip())",
    bound="bound({module}, constants)",
    array="tvm.nd.array",
    typed="relay.transform.InferType()",
    check='assert relay.analysis.well_formed(after["main"])',
    result='["main"].checked_type.ret_type',
    run="""\
    with tvm.transform.PassContext({level}, ["Legalize"], {disabled}):
        built = relay.build(mod, target=target)
    module = graph_executor.GraphModule(built["default"](tvm.cpu()))
    for name, value in values.items():
        if module.get_input_index(name) >= 0:
            module.set_input(name, value)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]
""",
)
_DIALECTS = {"relax": _RELAX, "relay": _RELAY}
_BY_DEFAULT = {"level": 3, "pipeline": "relax.get_default_pipeline(target)", "disabled": []}
_PLAINLY = {
    "level": 0,
    "pipeline": 'relax.get_pipeline("default_build")',
    "disabled": ["SimplifyExpr"],
}
_PACKED = "# TVM does not read this module's text back: this is its JSON, packed.\n"
_PACKED += 'PROGRAM = """\n{program}\n"""\n'
_UNPACK = "tvm.ir.load_json(zlib.decompress(base64.b64decode(PROGRAM)).decode())"
_BOUND = """\


def bound(mod, constants):
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], constants)
    return mod


"""
_COMPARED = """\


for expected, seen in zip(run(before), run(after)):
    scale = max(abs(expected).max(initial=0), {floor!r})
    np.testing.assert_allclose(seen, expected, rtol=0, atol={limit!r} * scale)
"""


@dataclass(frozen=True)
class OwnPasses:
    """Passes from program to program, the text of the file of the user's own ones, or "", and the
    program that they are called on, of a type of `passes`."""

    calls: Sequence[ProgramCall]
    source: str
    program: Any


@dataclass(frozen=True)
class Literals:
    """Arrays in a script, their texts as Python, and whether drawn ones replace some."""

    values: Values
    texts: Mapping[str, str]
    drawn: bool = False


def numbers(arrays: Values) -> Literals | None:
    """Arrays spelled out; if they have too many numbers, the longer ones are drawn from a seed.
    None if numpy lacks a dtype."""
    if any(a.dtype.isbuiltin != 1 for a in arrays.values()):  # bfloat16
        return None
    few = sum(a.size for a in arrays.values()) <= FEW
    generator = np.random.default_rng(0)
    values, texts = dict[str, np.ndarray](), dict[str, str]()
    for name, array in arrays.items():
        if few or array.size <= _SHORT:
            values[name], texts[name] = array, _spelled(array)
        else:
            kind, (method, *given) = str(array.dtype), _drawing(array)
            texts[name] = f"rng.{method}({', '.join(map(repr, given))}).astype({kind!r})"
            values[name] = np.asarray(getattr(generator, method)(*given)).astype(kind)
    return Literals(values, texts, not few)


def script(
    start: Start, calls: Sequence[TvmCall] | OwnPasses, written: ProgramText, given: Literals
) -> str:
    """A script that fails while passes show their fault, and else exits with 0. It is "" where the
    program is too long to paste, or needs more than TVM and these passes. `written` is the module
    before them; `given` has the arrays that it takes, those of its constants by the same names."""
    ir, where = start.backend.ir, start.where
    source = calls.source.strip() if isinstance(calls, OwnPasses) else ""
    if len(source) > _MOST or _OURS & {*re.findall(r"^(?:def |class )?(\w+)", source, re.M)}:
        return ""
    source += "\n\n" * bool(source)
    words, program, constants = _DIALECTS[ir], written.text, written.constants
    packed = "" if program else _packed(written.json)
    if "relascope" in program + written.json or len(packed or program) > _MOST:
        return ""
    if where.building and not where.target.startswith("llvm"):
        return ""
    source += "import base64\nimport zlib\n\n" * bool(packed)
    text = "\n".join([f"{source}import numpy as np", "import tvm", words.imports]) + "\n"
    program = packed or program.strip().replace("# from tvm.script", "from tvm.script")
    text += (_PACKED if packed else words.program).format(program=program)
    bound = "".join(f"    {n!r}: {words.array}({given.texts[n]}),\n" for n in constants)
    text += _BOUND if bound and ir == "relay" else "\n"
    text += "rng = np.random.default_rng(0)\n" * given.drawn
    text += f"target = tvm.target.Target({where.target!r})\n"
    text += f"constants = {{\n{bound}}}\n" * bool(bound)
    module = _UNPACK if packed else words.module
    module = words.bound.format(module=module) if bound else module
    rest = "".join(f"    {n!r}: {t},\n" for n, t in given.texts.items() if n not in constants)
    text += f"values = {{\n{rest}}}\n" if rest or where.building else ""
    text += f"before = {words.typed}({module})\n" + _through(calls, words)
    text += f"{words.check}\nassert str(after{words.result}) == str(before{words.result})\n"
    if not where.building:
        return text
    built = _PLAINLY if where.plain else _BY_DEFAULT
    text += "\n\ndef run(mod):\n" + words.run.format_map(built)
    return text + _COMPARED.format(floor=start.floor, limit=where.limit or 1e-5)


def _through(calls: Sequence[TvmCall] | OwnPasses, words: _Dialect) -> str:
    if isinstance(calls, OwnPasses):
        return _through_own(calls, words)
    text, within, source = "", "", "before"
    for call in calls:
        config = f", tvm.transform.PassContext(config={dict(call.config)})" if call.config else ""
        if within != (within := f"with target{config}:\n"):
            text += within
        arguments = ", ".join(f"{n}={v!r}" for n, v in call.arguments.items())
        made = f"{call.module.removeprefix('tvm.')}.{call.function}({arguments})({source})"
        text += f"    after = {made}\n"
        source = "after"
    return f"{text}after = {words.typed}(after)\n"


def _through_own(own: OwnPasses, words: _Dialect) -> str:
    program, kind = own.program, type(own.program)
    names = {kind.__name__: kind.__module__}
    names |= {c.function: c.module for c in own.calls if c.module.startswith("relascope.")}
    given = ", ".join(f"{n!r}: {words.array}(values[{n!r}])" for n in program.params)
    text = "".join(f"from {module} import {name}\n" for name, module in names.items())
    text += f"program = {kind.__name__}(before, {{{given}}}, {program.inputs}, {program.outputs})\n"
    for call in own.calls:
        more = "".join(f", {n}={v!r}" for n, v in call.arguments.items())
        text += f"program = {call.function}(program{more})\n"
    return f"{text}after = {words.typed}(program.mod)\n"


def _packed(json: str) -> str:
    """A module that TVM's parser does not read back, packed into lines of text."""
    data = zlib.compress(json.encode(), 9)
    return "\n".join(textwrap.wrap(base64.b64encode(data).decode(), 88))


def _drawing(value: np.ndarray) -> tuple[Any, ...]:
    """The method of numpy's generator, with arguments, that draws an array of the same sign and
    range."""
    if value.dtype.kind == "f":
        return "random" if (value >= 0).all() else "standard_normal", value.shape
    least, most = (0, 1) if value.dtype.kind == "b" else (int(value.min()), int(value.max()))
    return "integers", least, most + 1, value.shape


def _spelled(value: np.ndarray) -> str:
    """An array as Python, in the shortest numbers that read back as the same."""
    words = np.array2string(
        value, max_line_width=88, separator=", ", threshold=FEW + 1, floatmode="unique"
    ).replace("\n", "\n       ")
    words = words.replace("nan", "np.nan").replace("inf", "np.inf")
    return f"np.array({words}, {str(value.dtype)!r})"
