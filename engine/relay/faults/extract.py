"""A Relay program made of some nodes of another, and its text, which TVM can read back."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relay

from relascope.core.errors import EngineError
from relascope.core.graph import Node
from relascope.engine.faults.narrow import Cutout, ProgramText, plain_name
from relascope.engine.relay.faults import replay
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import copied, everything


def extract(program: RelayProgram, exprs: Mapping[str, Any], cutout: Cutout) -> RelayProgram:
    """See `engine.faults.narrow.PieceBackend`; the program is typed."""
    made: dict[int, Any] = {}
    variables = []
    for ident, name in cutout.arguments.items():
        variable = relay.var(name, type_annotation=exprs[ident].checked_type)
        made[exprs[ident].handle.value] = variable
        variables.append(variable)

    def of(expr: Any) -> Any:
        return made.get(expr.handle.value, expr)

    for node in cutout.nodes:
        made[exprs[node.id].handle.value] = _again(exprs[node.id], node, of)
    results = [of(exprs[i]) for i in cutout.outputs]
    function = relay.Function(variables, results[0] if len(results) == 1 else relay.Tuple(results))
    if len(relay.analysis.free_vars(function)):
        raise EngineError("pass", "This part of the program cannot be cut out: it binds variables.")
    mod = copied(program.mod)
    mod["main"] = function
    params = {n: program.params[old] for n, old in cutout.parameters.items()}
    inputs = tuple(n for n in cutout.arguments.values() if n not in params)
    return RelayProgram(relay.transform.InferType()(mod), params, inputs, len(results))


def _again(expr: Any, node: Node, of: Callable[[Any], Any]) -> Any:
    """An expression on the new versions of what it reads, without its span."""
    if isinstance(expr, relay.Call):
        return relay.Call(of(expr.op), [of(a) for a in expr.args], expr.attrs, expr.type_args)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple([of(f) for f in expr.fields])
    if isinstance(expr, relay.TupleGetItem):
        return relay.TupleGetItem(of(expr.tuple_value), expr.index)
    if isinstance(expr, relay.Function) and not len(relay.analysis.free_vars(expr)):
        return expr
    message = f"This part of the program cannot be cut out: it has a {type(expr).__name__}."
    raise EngineError("pass", message, node.title)


def written(program: RelayProgram) -> ProgramText:
    """A program as text that TVM reads back unchanged, else as TVM's JSON."""
    for inline in (True, False):
        try:
            mod, constants = _spelled_out(program.mod, inline)
            text = str(mod.astext(show_meta_data=False))
            again = replay.read(text, "", constants)
        except Exception:  # the parser raises anything; then try the other way
            continue
        if tvm.ir.structural_equal(again, program.mod):
            return ProgramText(text, constants, "", tuple(replay.signature(again)[0]))
    json = str(tvm.ir.save_json(program.mod))
    return ProgramText("", {}, json, tuple(replay.signature(program.mod)[0]))


def _spelled_out(mod: tvm.IRModule, inline: bool) -> tuple[tvm.IRModule, dict[str, np.ndarray]]:
    """A module with its constants as arguments of "main", and names that its text can hold;
    `inline` keeps single numbers."""
    values: dict[str, np.ndarray] = {}
    variables: list[Any] = []
    made: dict[int, Any] = {}

    main = mod["main"]
    met = everything(main.body)
    # Functions inside can take nothing from outside.
    functions = (e for e in met if isinstance(e, relay.Function))
    inner = {e.handle.value for f in functions for e in everything(f.body)}
    params: dict[str, Any] = {}
    for param in main.params:
        name = plain_name(str(param.name_hint), params)
        params[name] = param
        if name != param.name_hint:
            params[name] = relay.var(name, type_annotation=param.checked_type)
            made[param.handle.value] = params[name]
    taken = set(params)
    for expr in met:
        if not isinstance(expr, relay.Constant) or expr.handle.value in inner:
            continue
        array = expr.data.numpy()
        if inline and not array.shape:
            continue
        name = plain_name(f"c{len(values)}", taken)
        variable = relay.var(name, shape=array.shape, dtype=str(array.dtype))
        made[expr.handle.value] = variable
        variables.append(variable)
        values[name] = array
    if not made:
        return mod, {}
    body = _Replace(made).visit(main.body)
    new = copied(mod)
    new["main"] = relay.Function([*params.values(), *variables], body)
    return relay.transform.InferType()(new), values


class _Replace(relay.ExprMutator):
    """Replaces constants and variables by variables; it recurses."""

    def __init__(self, made: Mapping[int, Any]) -> None:
        super().__init__()
        self._made = made

    def visit_constant(self, const: Any) -> Any:
        return self._made.get(const.handle.value, const)

    def visit_var(self, var: Any) -> Any:
        return self._made.get(var.handle.value, var)
