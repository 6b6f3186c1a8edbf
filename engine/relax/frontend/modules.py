"""Relax modules from files of TVMScript or TVM's JSON. Reading runs nothing of a file."""

import types
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import tvm
from tvm import relax
from tvm.script.parser import relax as words

from relascope.core.errors import EngineError, lines_of, reporting
from relascope.engine.files import program_file
from relascope.engine.files.formats import is_relax_json
from relascope.engine.files.script import check_script
from relascope.engine.files.tvm_json import check_relax_json
from relascope.engine.limits import uncounted
from relascope.engine.protocol.results import PYTORCHS_OPERATORS
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.source import ModelSource
from relascope.engine.relax.frontend.branches import branches_of, forced
from relascope.engine.relax.frontend.by_operator import ByOperator, unknown
from relascope.engine.relax.frontend.from_relay import from_relay
from relascope.engine.relax.frontend.programs import imported, others
from relascope.engine.server.program_model import Beside, Imported, Judge
from relascope.passes.relax.ir.rewrite import everything

_CODE = {"ExternFunc", "If", "Then", "Else", "SeqExpr", "macro", "function", "rewriter", "emit_te"}
_FAMILIES = ("nn", "image", "vision", "grad", "builtin", "memory", "vm")
_INFOS = ("module_attrs", "module_global_infos", "vdevice", "dummy_global_info")
_CALLED = "tir tir_inplace tir_with_grad dps_packed pure_packed packed inplace_packed"
_CALLS = frozenset(f"call_{name}" for name in _CALLED.split())
_LOOPS = """
    prim_func Buffer match_buffer handle grid serial parallel vectorized unroll thread_binding
    sblock init reads writes where func_attr sblock_attr sblock_alloc_buffer alloc_buffer
    decl_buffer evaluate likely if_then_else Select Cast cast max min max_value min_value infinity
    floordiv floormod truncdiv truncmod ceildiv abs fabs ceil floor round nearbyint trunc exp exp2
    log log2 log10 log1p sqrt rsqrt pow sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh
    erf sigmoid fma fmod isnan isinf isfinite bitwise_and bitwise_or bitwise_xor bitwise_not
    Add Sub Mul Div Mod FloorDiv FloorMod Min Max EQ NE LT LE GT GE And Or Not Let
    shift_left shift_right reinterpret Broadcast Ramp bool int8 int16 int32 int64 uint8 uint16
    uint32 uint64 float16 bfloat16 float32 float64
"""
_TIR = frozenset(_LOOPS.split())
_AXES = ("spatial", "reduce", "remap", "S", "R")
_FOREIGN_NAMES = """
    call_ invoke_ vm. memory. builtin. ccl. dist. make_closure
    print assert_op hint_on_device to_vdevice inspect. run_codegen
"""
_FOREIGN = tuple(_FOREIGN_NAMES.split())


def is_known_name(path: tuple[str, ...]) -> bool:
    """Whether a path in TVMScript is an operator, type or number that a file may use."""
    match path:
        case ("I", name):
            return name in _INFOS
        case ("T", name):
            return name in _TIR
        case ("T", "axis", name):
            return name in _AXES
        case ("R", name):
            called = name.startswith("call_") and name not in _CALLS
            plain = name not in _CODE and not called and not name.startswith(("emit", "func_ret"))
            value = getattr(words, name, None) if name in words.__all__ else None
            return plain and value is not None and not isinstance(value, types.ModuleType)
        case ("R", family, name) if family in _FAMILIES and not name.startswith("_"):
            value = getattr(getattr(words, family), name, None)
            return str(getattr(value, "__module__", "")).startswith("tvm.relax.op")
    return False


def read_program(path: Path, source: ModelSource, progress: Progress) -> Imported:
    """A Relax module, or an ONNX model, as a program. Raises EngineError of kind "file" if it is
    neither, or cannot be read, and "input" if sizes of an ONNX model are left open."""
    if program_file.is_onnx_file(path):
        # The importer is large, and rarely needed.
        from relascope.engine.relax.frontend import onnx
        from relascope.engine.server import onnx_program

        return onnx_program.read(path, source, progress, "relax", onnx)
    progress(0.0, "reading the module")
    pieces = program_file.taken_apart(path)
    if pieces.format == "relay":
        progress(0.1, "asking Relay's TVM to read its text")
        pieces = replace(pieces, format="json", text=_json_of(pieces, path.name))

    with reporting(lambda wrong: program_file.not_read(path.name, "Relax", lines_of(wrong))):
        mod = _read(pieces, path.name)
        code = _code(mod, path.name)
        main, shown = _main(mod, path.name)
        mod = tvm.IRModule({"main": main.with_attr("global_symbol", "main"), **others(mod, main)})
        mod = _pinned(relax.transform.Normalize()(mod), source)
        branches, computed = branches_of(mod)
        mod = forced(mod, computed, dict(source.sides)) if source.sides else mod
        # Code may write into memory, so its order must stay.
        mod = mod if code else _one_block(mod)
    made, notes = imported(mod, pieces.params, path.name), list[str]()
    program, judge = replace(made.program, code=code), made.judge
    if pieces.format == "json" and not is_relax_json(pieces.text):
        calls = sum(isinstance(b.value, tvm.ir.Call) for b in mod["main"].body.blocks[0].bindings)
        notes.append(f"A Relay module, translated to {calls} Relax calls and compared with these.")
    if not program.not_run and (why := unknown(program.mod)):
        notes.append(
            f"PyTorch has no counterpart of {why}, so nothing outside TVM judges its numbers."
        )
    elif not program.not_run:
        run = ByOperator(program.mod, {n: t.numpy() for n, t in made.tensors.items()})
        judge = Judge(PYTORCHS_OPERATORS, run)
    if ill := _ill_formed(mod):
        notes.append(f"TVM says that it is not well-formed: {ill}")
    notes += [*([shown] if shown else []), *made.notes]
    return replace(made, program=program, judge=judge, branches=branches, notes=tuple(notes))


def _read(pieces: program_file.Pieces, name: str) -> Any:
    if pieces.format == "json":
        if not is_relax_json(pieces.text):
            return from_relay(pieces.text, name)
        return tvm.ir.load_json(check_relax_json(pieces.text, name, kernels=True))
    script, metadata = check_script(pieces.text, is_known_name, name)
    variables: dict[str, Any] = {"R": words, "I": tvm.script.parser.ir, "T": tvm.script.parser.tirx}
    variables["TypeVar"] = TypeVar
    if metadata:
        variables["metadata"] = tvm.ir.load_json(check_relax_json(metadata, name))
    # An ill-formed module is opened to see why.
    return tvm.script.from_source(script, extra_vars=variables, check_well_formed=False)


def _json_of(pieces: program_file.Pieces, name: str) -> str:
    """A Relay module's text as TVM's JSON, from another process, which has a TVM with Relay."""
    beside = Beside("relascope.engine.relay.frontend.as_json")
    try:
        with uncounted("starting a TVM with Relay"):
            beside.start()
        told, _ = beside.ask({"text": pieces.text, "params": [*pieces.params], "name": name})
    except (OSError, ValueError):
        raise program_file.reader_failed(name, beside.end()) from None
    beside.end()
    if "error" in told:
        raise EngineError(**told["error"])
    return str(told["json"])


def _code(mod: Any, name: str) -> tuple[str, ...]:
    """A module's kernels and the functions that it calls by name; raises if it is not Relax."""
    if not isinstance(mod, tvm.IRModule):
        if not isinstance(mod, relax.Function):
            wrong = f"it is a {type(mod).__name__}, not a module"
            raise program_file.not_read(name, "Relax", [wrong])
        mod = tvm.IRModule({"main": mod})
    found: dict[str, None] = {}
    for var, function in mod.functions.items():
        where = str(var.name_hint)
        if not isinstance(function, relax.Function):
            found[where] = None
            continue
        if function.attrs and "Codegen" in function.attrs.keys():  # noqa: SIM118
            found[f"the compiler {function.attrs['Codegen']}"] = None
        for one in everything(function):
            op = str(one.name) if isinstance(one, tvm.ir.Op) else ""
            if isinstance(one, relax.ExternFunc):
                found[str(one.global_symbol)] = None
            elif op and (not op.startswith("relax.") or op[6:].startswith(_FOREIGN)):
                found[op] = None
    return tuple(found)


def _ill_formed(mod: Any) -> str:
    """Why TVM finds a module ill-formed, or ""."""
    try:
        relax.analysis.well_formed(mod)
    except Exception as wrong:  # TVM raises anything on such a module
        return lines_of(wrong)[0]
    return ""


def _main(mod: Any, name: str) -> tuple[Any, str]:
    """The function to show, "main" or the first, and a note if it is not "main"."""
    if isinstance(mod, relax.Function):
        return mod, ""
    every = {str(v.name_hint): f for v, f in mod.functions.items()}
    functions = {n: f for n, f in sorted(every.items()) if isinstance(f, relax.Function)}
    if "main" in functions:
        return functions["main"], ""
    if not functions:
        listed = ", ".join(every) or "none"
        message = f"{name} has no Relax function. Its functions: {listed}."
        raise EngineError("file", message[:400], name, "Open the module that calls them.")
    first, *others = functions
    listed = ", ".join(others)
    return functions[first], f'It has no "main": {first} is shown, not {listed}.' if others else ""


def _pinned(mod: Any, source: ModelSource) -> Any:
    """The module with open dimensions set to the sizes of the source's inputs."""
    given = dict(source.inputs)
    free: dict[str, int] = {}
    unnamed = iter([t for n, t in source.inputs if not n])
    for param in mod["main"].params:
        kind = given.get(str(param.name)) or next(unnamed, None)
        shape = getattr(param.ty, "shape", None)
        if kind is None or not isinstance(shape, relax.ShapeExpr):
            continue
        for size, wanted in zip(shape.values, kind.shape, strict=False):
            if isinstance(size, tvm.tirx.Var):
                free.setdefault(str(size.name), int(wanted))
    return relax.transform.BindSymbolicVars(free, "main")(mod) if free else mod


def _one_block(mod: Any) -> Any:
    """The module with "main" as one dataflow block, as our passes expect; unchanged if it branches,
    has effects, or computes a shape that types depend on."""
    for made in (mod, relax.transform.ConvertToDataflow(1)(mod)):
        blocks = made["main"].body.blocks
        one = len(blocks) == 1 and isinstance(blocks[0], relax.DataflowBlock)
        if one and (made is mod or relax.analysis.check_well_formed(made)):
            return made
    return mod
