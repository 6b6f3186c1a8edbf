"""Relay modules from files: their text, and TVM's JSON. Nothing of a file is run to read it."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from relascope.core.errors import EngineError, lines_of, reporting
from relascope.engine.files.formats import is_relax_json
from relascope.engine.files.program_file import Pieces, is_onnx_file, not_read, taken_apart
from relascope.engine.files.tvm_json import check_relay_json
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.source import ModelSource
from relascope.engine.relay.draw.to_graph import tensor_types
from relascope.engine.relay.frontend.branches import branches_of, forced
from relascope.engine.relay.frontend.judge import judge_of
from relascope.engine.relay.frontend.programs import imported
from relascope.engine.server.program_model import Imported
from relascope.passes.relay.ir.rewrite import everything

_FOREIGN_NAMES = """
    vm. memory. call_lowered on_device device_copy debug contrib.
    relax. tir. relay.op.annotation annotation.compiler
"""
_FOREIGN = tuple(_FOREIGN_NAMES.split())
_ATTRS = {"hash", "Primitive", "global_symbol", "Composite", "PartitionedFromPattern"}
_ATTRS |= {"weight_layout"}
_METADATA = "#[metadata]"
_HINT = "Give the module as it was before it was compiled."


def read_program(path: Path, source: ModelSource, progress: Progress) -> Imported:
    """A Relay module, or an ONNX model, as a program. Raises EngineError of kind "file" if it is
    neither, or brings code, and "input" if sizes are left open."""
    if is_onnx_file(path):
        # The importer is large, and rarely needed.
        from relascope.engine.relay.frontend import onnx
        from relascope.engine.server import onnx_program

        return onnx_program.read(path, source, progress, "relay", onnx)
    progress(0.0, "reading the module")
    pieces = taken_apart(path)
    with reading(path.name):
        mod = read_pieces(pieces, path.name)
        _check(mod, path.name)
        typed = relay.transform.InferType()(_pinned(mod, source))
        branches = branches_of(typed)
        typed = forced(typed, dict(source.sides)) if source.sides else typed
        made = replace(imported(typed, pieces.params, path.name), branches=branches)
    own = {n: t.numpy() for n, t in made.tensors.items()}
    return replace(made, judge=judge_of(lambda: str(tvm.ir.save_json(typed)), path.name, own))


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Report TVM's diagnosis of a malformed file, which TVM only prints. EngineErrors of the block
    pass; anything else that TVM raises becomes one of kind "file"."""
    found: list[str] = []

    def render(context: Any) -> None:
        for one in context.diagnostics:
            found.append(f"line {one.span.line}: {one.message}" if one.span else str(one.message))

    tvm.ir.diagnostics.override_renderer(render)
    try:
        with reporting(lambda wrong: not_read(name, "Relay", found[:1] or lines_of(wrong))):
            yield
    finally:
        tvm.ir.diagnostics.override_renderer(None)


def read_pieces(pieces: Pieces, name: str) -> Any:
    """The module of a file that was taken apart, as the file types it. Raises EngineError of kind
    "file" if it is not Relay's; TVM may raise anything else."""
    if pieces.format == "json":
        if is_relax_json(pieces.text):
            message = f"{name} is JSON of a TVM without Relay."
            raise EngineError("file", message, name, "Choose the Relax engine.")
        return tvm.ir.load_json(check_relay_json(pieces.text, name))
    if pieces.format != "relay":
        message = f"{name} is TVMScript, which is Relax."
        raise EngineError("file", message, name, "Choose the Relax engine.")
    text, mark, metadata = pieces.text.partition(_METADATA)
    if mark:
        text = f"{text}{mark}\n{check_relay_json(metadata, name)}\n"
    return _parsed(text, pieces.params)


def _parsed(text: str, params: Mapping[str, Any]) -> Any:
    """The module of a text, with the arguments' own names, as in `params`: TVM writes names with
    dots but does not read them, and writes a v before a leading digit."""
    body, mark, metadata = text.partition(_METADATA)
    dotted = dict.fromkeys(re.findall(r"%(\w+(?:\.\w+)+)\s*:", body))
    plain = {name: f"dotted_{index}_" for index, name in enumerate(dotted)}
    if not plain:
        return relay.parse(text)
    longest = "|".join(map(re.escape, sorted(plain, key=len, reverse=True)))
    body = re.sub(rf"%({longest})(?!\w)", lambda m: f"%{plain[m[1]]}", body)
    mod = relay.parse(body + mark + metadata)
    names = {new: old for old, new in plain.items()}
    names |= {n: o[1:] for n, o in names.items() if o[1:2].isdigit() and o[1:] in params}
    for var, function in mod.functions.items():
        instead = {
            p: relay.var(names[str(p.name_hint)], p.type_annotation)
            for p in function.params
            if str(p.name_hint) in names
        }
        arguments = [instead.get(p, p) for p in function.params]
        about = function.ret_type, function.type_params, function.attrs
        mod[var] = relay.Function(arguments, relay.bind(function.body, instead), *about)
    return mod


def _check(mod: Any, name: str) -> None:
    """Refuse code that a module brings or calls by name."""
    if not isinstance(mod, tvm.IRModule):
        raise not_read(name, "Relay", [f"it is a {type(mod).__name__}, not a module"])
    functions = {str(v.name_hint): f for v, f in mod.functions.items()}
    if "main" not in functions:
        listed = ", ".join(functions) or "none"
        message = f'{name} has no function "main". Its functions: {listed}.'
        raise EngineError("file", message[:400], name, 'Rename the one to open to "main".')
    for where, function in functions.items():
        if not isinstance(function, relay.Function):
            message = f"{name} brings a kernel, {where}: that is code, and code is not run."
            raise EngineError("file", message, where, _HINT)
        for one in everything(function):
            if isinstance(one, relay.Function):
                keys = [str(k) for k in one.attrs.keys()] if one.attrs else []  # noqa: SIM118
                if strange := [k for k in keys if k not in _ATTRS]:
                    message = f"{where} of {name} has the attribute {strange[0]!r}, which no "
                    raise EngineError("file", message + "imported module has.", where, _HINT)
            elif isinstance(one, tvm.ir.Op) and str(one.name).startswith(_FOREIGN):
                message = f"{where} of {name} calls {one.name}, which is code, not an operator."
                raise EngineError("file", message, where, _HINT)
            elif isinstance(one, relay.Call) and one.attrs is not None:
                _check_attributes(one, name)


_WANTED = (
    ("Array", (tvm.ir.Array,)),
    ("IntImm", (tvm.tir.IntImm,)),
    ("PrimExpr", (tvm.ir.PrimExpr,)),
    ("runtime.String", (str,)),
)
_PLAIN = (int, float, str, bool, tvm.ir.PrimExpr, tvm.ir.Array, type(None))


def _check_attributes(call: Any, name: str) -> None:
    """Refuse an attribute of another type than its operator expects: TVM would reinterpret it."""
    if not hasattr(call.attrs, "list_field_info"):
        return
    for field in call.attrs.list_field_info():
        value, kind = getattr(call.attrs, field.name), str(field.type_info)
        wanted = next((w for begin, w in _WANTED if kind.startswith(begin)), _PLAIN)
        todo = [value]
        fits = value is None or isinstance(value, wanted)
        while fits and todo:
            one = todo.pop()
            fits = isinstance(one, _PLAIN) or "virtual" in field.name
            todo += list(one) if isinstance(one, tvm.ir.Array) else []
        if not fits:
            message = f"{name}: the attribute {field.name} of {call.op} is of a wrong type."
            raise EngineError("file", message[:300], str(field.name), _HINT)


def _pinned(mod: Any, source: ModelSource) -> Any:
    """The module with open dimensions set to the sizes of the source's inputs."""
    if not source.inputs:
        return mod
    given, main = dict(source.inputs), mod["main"]
    unnamed = iter([t for n, t in source.inputs if not n])
    instead = {}
    for param in main.params:
        kind = given.get(str(param.name_hint)) or next(unnamed, None)
        known = tensor_types(param.type_annotation) if param.type_annotation is not None else ()
        if kind is not None and any(not isinstance(d, int) for t in known for d in t.shape):
            instead[param] = relay.var(param.name_hint, shape=kind.shape, dtype=kind.dtype)
    if not instead:
        return mod
    arguments = [instead.get(p, p) for p in main.params]
    mod["main"] = relay.Function(arguments, relay.bind(main.body, instead))
    return relay.transform.DynamicToStatic()(relay.transform.InferType()(mod))
