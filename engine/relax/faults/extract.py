"""A Relax program made of some nodes of another, and its text that TVM reads back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from relascope.core.errors import EngineError
from relascope.engine.faults.narrow import Cutout, Written, constant_name
from relascope.engine.relax.faults import replay
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import (
    bindings,
    function_of,
    substituted,
    variables,
    with_main,
)


def extract(program: RelaxProgram, exprs: Mapping[str, Any], cutout: Cutout) -> RelaxProgram:
    """A program of its own that computes a few nodes of another.

    Args:
        program: normalised.
        exprs: by the id of each node of its graph, the variable that holds its value.

    Raises:
        EngineError: kind "pass"; it reads what is no node; kind "usage"; it has control flow.
    """
    instead: dict[int, Any] = {}
    given = []
    for ident, name in cutout.arguments.items():
        variable = relax.Var(name, exprs[ident].ty)
        instead[exprs[ident].__chandle__()] = variable
        given.append(variable)
    wanted = {exprs[n.id].__chandle__() for n in cutout.nodes}
    bound, known = [], {v.__chandle__() for v in given}
    for variable, value in bindings(program.main):
        handle = variable.__chandle__()
        if handle in instead:
            continue
        value = substituted(value, instead)
        if isinstance(value, tvm.ir.Var | tvm.ir.GenericConst):
            instead[handle] = value  # another name
        elif handle in wanted:
            fresh = relax.DataflowVar(str(variable.name), variable.ty)
            instead[handle] = fresh
            bound.append((fresh, value))
            known.add(fresh.__chandle__())
    results = [substituted(exprs[i], instead) for i in cutout.outputs]
    read = [v for _, value in bound for v in variables(value)]
    if not {v.__chandle__() for v in [*read, *results]} <= known:
        raise EngineError("pass", "This part of the program cannot be cut out by itself.")
    main = function_of(given, bound, results)
    if len(results) == 1:
        main = _untupled(main, results[0].ty)
    mod = tvm.IRModule({"main": main.with_attr("global_symbol", "main")})
    for name, function in _called(program.mod, main).items():
        mod[name] = function
    params = {n: program.params[old] for n, old in cutout.parameters.items()}
    inputs = tuple(n for n in cutout.arguments.values() if n not in params)
    mod = relax.transform.Normalize()(mod)
    return RelaxProgram(mod, params, inputs, len(results))


def _untupled(main: Any, kind: Any) -> Any:
    """The same function with its one result in no tuple."""
    *rest, last = main.body.blocks[0].bindings
    out = relax.Var("result", kind)
    block = relax.DataflowBlock([*rest, relax.VarBinding(out, last.value.fields[0])])
    return relax.Function(list(main.params), relax.SeqExpr([block], out), kind, True)


def _called(mod: Any, main: Any) -> dict[Any, Any]:
    """The functions of a module that "main" calls, and those that these call."""
    found: dict[Any, Any] = {}
    todo = [main]
    while todo:
        met: list[Any] = []
        relax.analysis.post_order_visit(todo.pop(), met.append)
        for name in met:
            if isinstance(name, tvm.ir.GlobalVar) and name not in found:
                found[name] = mod[name]
                if isinstance(mod[name], relax.Function):
                    todo.append(mod[name])
    return found


def written(program: RelaxProgram) -> Written:
    """A program as TVMScript that TVM reads back to the same; as TVM's JSON where there is no
    such."""
    for inline in (True, False):
        try:
            mod, constants = _spelled_out(program, inline)
            text = str(mod.script(show_meta=False))
            again = replay.read(text, "", constants)
        except Exception:  # the parser raises whatever it meets; the next way to write is taken
            continue
        if tvm_ffi.structural_equal(again, program.mod):
            return Written(text, constants, "", tuple(replay.signature(again)[0]))
    json = str(tvm.ir.save_json(program.mod))
    return Written("", {}, json, tuple(replay.signature(program.mod)[0]))


def _spelled_out(program: RelaxProgram, inline: bool) -> tuple[Any, dict[str, np.ndarray]]:
    """A module with the constants of "main" as its arguments.

    Args:
        inline: leave single numbers where they are.
    """
    values: dict[str, np.ndarray] = {}
    made: dict[int, Any] = {}
    main = program.main
    taken = {str(p.name) for p in main.params}

    def visit(expr: Any) -> None:
        known = expr.__chandle__() in made
        if known or not isinstance(expr, tvm.ir.GenericConst) or not hasattr(expr.value, "numpy"):
            return  # a dtype is a constant, too
        array = expr.value.numpy()
        if inline and not array.shape:
            return
        name = constant_name(len(values), taken)
        made[expr.__chandle__()] = relax.Var(name, expr.ty)
        values[name] = array

    relax.analysis.post_order_visit(main, visit)
    if not made:
        return program.mod, {}
    bound = [relax.VarBinding(v, substituted(value, made)) for v, value in bindings(main)]
    body = relax.SeqExpr([relax.DataflowBlock(bound)], main.body.body)
    function = relax.Function([*main.params, *made.values()], body, main.ret_ty, True)
    return with_main(program, function).mod, values
