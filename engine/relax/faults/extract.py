"""A Relax program made of some nodes of another, and its text, which TVM can read back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from relascope.core.errors import EngineError
from relascope.core.graph import reached
from relascope.engine.faults.narrow import Cutout, ProgramText, plain_name
from relascope.engine.relax.draw.to_graph import written_arguments
from relascope.engine.relax.faults import replay
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import bindings, everything, substituted, with_main


def extract(program: RelaxProgram, exprs: Mapping[str, Any], cutout: Cutout) -> RelaxProgram:
    """See `engine.faults.narrow.PieceBackend`; the program is normalised."""
    cut = _Cut(program, exprs, cutout)
    mod = tvm.IRModule({"main": cut.main.with_attr("global_symbol", "main")})
    for name, function in _called(program.mod, cut.main).items():
        mod[name] = function
    params = {n: program.params[old] for n, old in cutout.parameters.items()}
    inputs = tuple(n for n in cutout.arguments.values() if n not in params)
    mod = relax.transform.Normalize()(mod)
    try:
        relax.analysis.well_formed(mod)
    except Exception as wrong:  # TVM raises anything if it is not well-formed
        raise EngineError("pass", _NOT_CUT) from wrong
    return RelaxProgram(mod, params, inputs, cut.outputs)


_NOT_CUT = "This part of the program cannot be cut out on its own."


class _Cut:
    """The wanted bindings of a function, in order. What is left of a branch stays in it, or
    replaces an `if` that is not wanted. A value that a branch does not return is not a result."""

    def __init__(self, program: RelaxProgram, exprs: Mapping[str, Any], cutout: Cutout) -> None:
        old, self._mod = program.main, program.mod
        blocks = old.body.blocks
        self._plain = len(blocks) == 1 and isinstance(blocks[0], relax.DataflowBlock)
        self._variable = relax.DataflowVar if self._plain else relax.Var
        self._places = self._written_into(old.body)
        ends = {i: exprs[i] for i in (*cutout.arguments, *cutout.outputs)}
        places = {i: self._places.get(e.__chandle__(), e) for i, e in ends.items()}
        arguments = cutout.arguments.items()
        self._given = {exprs[i].__chandle__(): relax.Var(n, places[i].ty) for i, n in arguments}
        given = list(self._given.values())
        self._wanted = {exprs[n.id].__chandle__() for n in cutout.nodes}
        self._returned = {places[i].__chandle__() for i in cutout.outputs}
        self._instead = {h: v for h, v in self._given.items() if h not in self._places}
        self._known = {v.__chandle__() for v in given}
        blocks = self._blocks(old.body)
        found = [substituted(places[i], self._instead) for i in cutout.outputs]
        results = [r for r in found if r.__chandle__() in self._known]
        self.outputs = len(results)
        if not results:
            raise EngineError("pass", _NOT_CUT)
        result = results[0] if len(results) == 1 else relax.Tuple(results)
        about: tuple[Any, ...] = old.is_pure, old.attrs
        if self._plain:
            out = relax.Var("result", result.ty)
            bound = [*blocks[0].bindings, relax.VarBinding(out, result)]
            blocks, result, about = [relax.DataflowBlock(bound)], out, (True,)
        self.main = relax.Function(given, relax.SeqExpr(blocks, result), result.ty, *about)

    def _written_into(self, body: Any) -> dict[int, Any]:
        """The argument that a call writes into, by the call's variable."""
        found: dict[int, Any] = {}
        for binding in (b for block in body.blocks for b in block.bindings):
            value, callee = binding.value, getattr(binding.value, "op", None)
            if isinstance(value, relax.If):
                found |= self._written_into(value.true_branch)
                found |= self._written_into(value.false_branch)
            kernel = self._mod[callee] if isinstance(callee, tvm.ir.GlobalVar) else None
            if isinstance(kernel, tvm.tirx.PrimFunc):
                places = written_arguments(kernel)
                if len(places) == 1:
                    found[binding.var.__chandle__()] = value.args[places[0]]
        return found

    def _blocks(self, body: Any) -> list[Any]:
        made: list[Any] = []
        for block in body.blocks:
            kind, kept = type(block), list[Any]()
            for binding in block.bindings:
                inside = self._of(binding)
                if isinstance(inside, list):
                    made += [kind(kept), *inside]
                    kept = []
                elif inside is not None:
                    kept.append(inside)
            made.append(kind(kept))
        return [b for b in made if len(b.bindings)]

    def _of(self, binding: Any) -> Any:
        """What becomes of a binding: a binding, None, or the blocks left of an unwanted `if`."""
        variable, value = binding.var, binding.value
        handle = variable.__chandle__()
        if handle in self._given and handle in self._places:
            # From here on, the argument is what it wrote.
            self._instead[self._places[handle].__chandle__()] = self._given[handle]
        if isinstance(value, relax.If):
            parts = value.true_branch, value.false_branch
            if handle not in self._wanted:
                return [*self._blocks(parts[0]), *self._blocks(parts[1])]
            value = relax.If(substituted(value.cond, self._instead), *map(self._branch, parts))
        elif handle in self._given:
            return None
        elif isinstance(value, tvm.ir.Var | tvm.ir.GenericConst):
            value = substituted(value, self._instead)
            if not isinstance(binding, relax.MatchCast):  # another name
                self._instead[handle] = value
            if value.__chandle__() not in self._known or handle in self._instead:
                return None
        elif handle not in self._wanted:
            return None
        else:
            value = substituted(value, self._instead)
        if self._plain or (isinstance(variable, relax.DataflowVar) and handle in self._returned):
            variable = self._variable(str(variable.name), variable.ty)
            self._instead[handle] = variable
        self._known.add(variable.__chandle__())
        if isinstance(binding, relax.MatchCast):
            return relax.MatchCast(variable, value, binding.ty)
        return relax.VarBinding(variable, value)

    def _branch(self, part: Any) -> Any:
        known = set(self._known)
        blocks = self._blocks(part)
        self._known = known
        return relax.SeqExpr(blocks, substituted(part.body, self._instead))


def _called(mod: Any, main: Any) -> dict[Any, Any]:
    """The functions of a module that "main" calls, directly or through others."""

    def named(function: Any) -> list[Any]:
        inside = everything(function) if isinstance(function, relax.Function) else []
        return [one for one in inside if isinstance(one, tvm.ir.GlobalVar)]

    return {name: mod[name] for name in reached(named(main), lambda name: named(mod[name]))}


def written(program: RelaxProgram) -> ProgramText:
    """A program as TVMScript that TVM reads back unchanged, else as TVM's JSON."""
    for inline in (True, False):
        try:
            mod, constants = _spelled_out(program, inline)
            text = str(mod.script(show_meta=False))
            again = replay.read(text, "", constants)
        except Exception:  # the parser raises anything; then try the other way
            continue
        if tvm_ffi.structural_equal(again, program.mod):
            return ProgramText(text, constants, "", tuple(replay.signature(again)[0]))
    json = str(tvm.ir.save_json(program.mod))
    return ProgramText("", {}, json, tuple(replay.signature(program.mod)[0]))


def _spelled_out(program: RelaxProgram, inline: bool) -> tuple[Any, dict[str, np.ndarray]]:
    """A module with the constants of "main" as arguments; `inline` keeps single numbers."""
    values: dict[str, np.ndarray] = {}
    made: dict[int, Any] = {}
    main = program.main
    taken = {str(p.name) for p in main.params}

    for expr in everything(main):
        known = expr.__chandle__() in made
        if known or not isinstance(expr, tvm.ir.GenericConst) or not hasattr(expr.value, "numpy"):
            continue  # a dtype is also a constant
        array = expr.value.numpy()
        if inline and not array.shape:
            continue
        name = plain_name(f"c{len(values)}", taken)
        made[expr.__chandle__()] = relax.Var(name, expr.ty)
        values[name] = array
    if not made:
        return program.mod, {}
    bound = [relax.VarBinding(v, substituted(value, made)) for v, value in bindings(main)]
    body = relax.SeqExpr([relax.DataflowBlock(bound)], main.body.body)
    function = relax.Function([*main.params, *made.values()], body, main.ret_ty, True)
    return with_main(program, function).mod, values
