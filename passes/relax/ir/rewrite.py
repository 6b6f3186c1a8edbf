"""Rewriting a Relax function as a list of bindings."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from relascope.core.errors import EngineError
from relascope.core.graph import NodeOrigin, read_first
from relascope.passes import applications
from relascope.passes.relax.ir.program import RelaxProgram

Binding = tuple[Any, Any]
"""A variable and what it is bound to."""

Provenance = Mapping[str, NodeOrigin]


def with_mod(program: RelaxProgram, mod: Any) -> RelaxProgram:
    """The program with another module, normalised."""
    return replace(program, mod=relax.transform.Normalize()(mod))


def with_main(program: RelaxProgram, main: Any) -> RelaxProgram:
    """The program with another "main", normalised."""
    functions = dict(program.mod.functions.items())  # by the global variables that calls use
    functions[program.mod.get_global_var("main")] = main.with_attr("global_symbol", "main")
    return with_mod(program, tvm.IRModule(functions))


def op_name(expr: Any) -> str:
    """The operator of a call without the dialect ("nn.gelu"); "" of anything else."""
    if isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name).removeprefix("relax.")
    return ""


def shape(expr: Any) -> tuple[int, ...]:
    """The static shape of a typed tensor."""
    return tuple(int(d) for d in expr.ty.shape.values)


def dtype(expr: Any) -> str:
    return str(expr.ty.dtype)


def is_floating(expr: Any) -> bool:
    """Whether a typed expression is a tensor of floats, or a tuple with one among its fields."""
    todo = [expr.ty]
    while todo:
        kind = todo.pop()
        if isinstance(kind, relax.TupleType):
            todo.extend(kind.fields)
        elif isinstance(kind, relax.TensorType) and "float" in str(kind.dtype):
            return True
    return False


def bindings(function: Any) -> list[Binding]:
    """Every variable of a function with its value, in order. Raises EngineError of kind "usage" if
    it branches, matches shapes, or writes memory."""
    found = []
    for block in function.body.blocks:
        for binding in block.bindings:
            plain = isinstance(binding, relax.VarBinding) and isinstance(block, relax.DataflowBlock)
            if not plain:
                message = "This program branches, matches shapes or writes memory, and this "
                message += "works only on plain computations."
                hint = "Choose TVM's own passes or pipelines, such as --passes tvm:target."
                raise EngineError("usage", message, str(binding.var.name), hint)
            found.append((binding.var, binding.value))
    return found


def everything(function: Any) -> list[Any]:
    """All expressions in a function, those inside others first."""
    found: list[Any] = []
    relax.analysis.post_order_visit(function, found.append)
    return found


def results(function: Any, bound: Sequence[Binding]) -> list[Any]:
    """The results of a function with the bindings `bound`, flat, as variables and constants."""
    values = {variable.__chandle__(): value for variable, value in bound}
    flat, todo = [], [function.body.body]
    while todo:
        expr = todo.pop()
        value = values.get(expr.__chandle__(), expr)
        while value.__chandle__() in values:  # a variable that renames another
            value = values[value.__chandle__()]
        if isinstance(value, relax.Tuple):
            todo.extend(reversed(value.fields))
        else:
            flat.append(expr)
    return flat


def function_of(
    params: Sequence[Any], bound: Sequence[Binding], returned: Sequence[Any], attrs: Any = None
) -> Any:
    """A function of one dataflow block that returns a flat tuple of variables or constants.
    Bindings on which no result depends are left out."""
    needed, alive = {v.__chandle__() for v in returned}, []
    for variable, value in reversed(bound):
        if variable.__chandle__() in needed:
            alive.append((variable, value))
            needed.update(v.__chandle__() for v in variables(value))
    made: list[Any] = []
    renamed: dict[int, Any] = {}
    for variable, value in reversed(alive):
        value = substituted(value, renamed)
        if not isinstance(variable, relax.DataflowVar):  # a result of its former block
            inner = relax.DataflowVar(str(variable.name), variable.ty)
            renamed[variable.__chandle__()] = inner
            variable = inner
        made.append(relax.VarBinding(variable, value))
    tupled = relax.Tuple([substituted(r, renamed) for r in returned])
    out = relax.Var("result", relax.TupleType([r.ty for r in returned]))
    block = relax.DataflowBlock([*made, relax.VarBinding(out, tupled)])
    return relax.Function(list(params), relax.SeqExpr([block], out), out.ty, True, attrs)


def variables(value: Any) -> list[Any]:
    """The variables that a bound value reads."""
    found, todo = [], [value]
    while todo:
        expr = todo.pop()
        if isinstance(expr, tvm.ir.Var):
            found.append(expr)
        elif isinstance(expr, tvm.ir.Call):
            todo.extend([*expr.args, expr.op])
        elif isinstance(expr, relax.Tuple):
            todo.extend(expr.fields)
        elif isinstance(expr, relax.TupleGetItem):
            todo.append(expr.tuple_value)
        elif isinstance(expr, relax.Function):  # a local one
            found.extend(relax.analysis.free_vars(expr))
    return found


def read_counts(bound: Sequence[Binding], returned: Sequence[Any]) -> Counter[int]:
    """How often each variable is read or returned, by its handle."""
    read = [v for _, value in bound for v in variables(value)]
    return Counter(v.__chandle__() for v in (*read, *returned))


def substituted(value: Any, instead: Mapping[int, Any]) -> Any:
    """A bound value with parts of it replaced, by handle; itself if none is."""
    if not instead:
        return value
    if (known := instead.get(value.__chandle__())) is not None:
        return known
    if isinstance(value, tvm.ir.Call):
        call = with_args(value, [substituted(a, instead) for a in value.args])
        local = instead.get(value.op.__chandle__())  # a function that is called
        about = {"attrs": call.attrs, "ty_args": call.ty_args}
        return call if local is None else tvm.ir.Call(local, list(call.args), **about)
    if isinstance(value, relax.Tuple):
        fields = [substituted(f, instead) for f in value.fields]
        same = all(a.same_as(b) for a, b in zip(fields, value.fields, strict=True))
        return value if same else relax.Tuple(fields)
    if isinstance(value, relax.TupleGetItem):
        source = substituted(value.tuple_value, instead)
        if not source.same_as(value.tuple_value):
            return relax.TupleGetItem(source, int(value.index))
    return value


def with_args(call: Any, args: Sequence[Any]) -> Any:
    """A call with other arguments; itself if they are the same."""
    if all(a.same_as(b) for a, b in zip(args, call.args, strict=True)):
        return call
    return tvm.ir.Call(call.op, list(args), attrs=call.attrs, ty_args=call.ty_args)


def late(bound: Sequence[Binding], movable: Collection[int]) -> list[Binding]:
    """Bindings reordered so that those with a handle in `movable` come right before their first
    reader, because they would be held from the start otherwise."""
    by_handle = {v.__chandle__(): (v, value) for v, value in bound}

    def read(handle: int) -> list[int]:
        reads = (v.__chandle__() for v in variables(by_handle[handle][1]))
        return [h for h in reads if h in movable and h in by_handle]

    placed = read_first((h for h in by_handle if h not in movable), read)
    return [by_handle[handle] for handle in placed | dict.fromkeys(by_handle)]


class Maker:
    """Makes the bindings of a function that is being rewritten. `variable` is the one whose call is
    being rewritten. `taken` are existing names; `provenance` grows by those made here."""

    variable: Any = None

    def __init__(self, taken: set[str], provenance: Provenance) -> None:
        self.bound: list[Binding] = []
        self.provenance = dict(provenance)
        self.origin = ""
        self._taken = taken
        self._values: dict[int, Any] = {}
        self._builder = relax.BlockBuilder()
        self._made: dict[str, int] = {}

    def look(self, variable: Any) -> Any:
        """The value of a variable; other expressions, and arguments, as they are."""
        return self._values.get(variable.__chandle__(), variable)

    def emit(self, expr: Any) -> Any:
        """Bind a call, and the calls nested in it, to variables named after the current one."""
        if isinstance(expr, tvm.ir.Call):
            expr = self.flat(expr)
        elif not isinstance(expr, relax.TupleGetItem):
            return expr
        expr = self.typed(expr)
        variable = relax.DataflowVar(self._name(), expr.ty)
        self.bind(variable, expr)
        return variable

    def flat(self, call: Any) -> Any:
        """A call of variables and constants: the calls nested in it are bound."""
        args = [self.emit(a) if isinstance(a, tvm.ir.Call) else a for a in call.args]
        return with_args(call, args)

    def typed(self, expr: Any) -> Any:
        """A call of variables and constants with its type inferred."""
        return self._builder.normalize(expr)

    def bind(self, variable: Any, value: Any) -> None:
        """Bind an existing variable."""
        self.bound.append((variable, value))
        self._values[variable.__chandle__()] = value

    def _name(self) -> str:
        name = self.origin
        while name == self.origin or name in self._taken:  # provenance is by unique names
            count = self._made[self.origin] = self._made.get(self.origin, 0) + 1
            name = f"{self.origin}_part{count}"
        self._taken.add(name)
        if self.origin in self.provenance:
            self.provenance[name] = self.provenance[self.origin]
        return name


Rule = Callable[[Any, Maker], Any]
"""From a call with rewritten arguments to its replacement: a variable, another call, or None to
keep it. `Maker.emit` binds calls that need a variable."""
Rules = Rule | Mapping[str, Rule]
"""A rule for all calls, or rules by the names of operators."""


def rewrite(program: RelaxProgram, rules: Rules) -> RelaxProgram:
    """Rewrite the calls of "main", producers first, and remove values that nothing needs
    afterwards. A variable keeps its name and type: a rule's call is bound to the variable of the
    call that it replaces, and further variables are named after it. The result of a `Rule` must
    have the type of the call that it replaces."""
    main = program.main
    old = bindings(main)
    maker = Maker({str(v.name) for v, _ in old}, program.provenance)
    instead: dict[int, Any] = {}
    changed = False
    for variable, value in old:
        given = substituted(value, instead)
        value = value if given.same_as(value) else maker.typed(given)
        maker.origin, maker.variable = str(variable.name), variable
        made = None
        if isinstance(value, tvm.ir.Call):
            rule = rules if callable(rules) else rules.get(op_name(value))
            made = None if rule is None else _replaced(rule, value, maker)
        elif isinstance(value, tvm.ir.Var):
            made = value  # only another name
        elif isinstance(value, relax.TupleGetItem) and isinstance(value.tuple_value, relax.Tuple):
            made = value.tuple_value.fields[int(value.index)]  # a rule spelled the tuple out
        if made is None:
            maker.bind(variable, value)
            continue
        changed = True
        if isinstance(made, tvm.ir.Call):
            maker.bind(variable, maker.flat(made))
        else:
            instead[variable.__chandle__()] = made
    applications.looking_at(None)
    if not changed:
        return program
    returned = [substituted(r, instead) for r in results(main, old)]
    new = replace(program, provenance=maker.provenance)
    return with_main(new, function_like(main, main.params, maker.bound, returned))


def _replaced(rule: Rule, call: Any, maker: Maker) -> Any:
    """A rule's replacement of a call; None to keep it."""
    applications.looking_at(maker.variable)
    before, made = len(maker.bound), rule(call, maker)
    if made is not None and not applications.may_replace(maker.variable):
        del maker.bound[before:]
        return None
    return made


def function_like(
    main: Any, params: Sequence[Any], bound: Sequence[Binding], returned: Sequence[Any]
) -> Any:
    """As `function_of`, with the attributes of `main`; a tuple only if `main` returns one."""
    tupled = function_of(params, bound, returned, main.attrs)
    if isinstance(main.ret_ty, relax.TupleType):
        return tupled
    *rest, last = tupled.body.blocks[0].bindings
    value, name = last.value.fields[0], "result"
    if rest and rest[-1].var.same_as(value):  # nothing reads it, so it is the result itself
        value, name = rest[-1].value, str(value.name)
        rest = rest[:-1]
    out = relax.Var(name, returned[0].ty)
    block = relax.DataflowBlock([*rest, relax.VarBinding(out, value)])
    return relax.Function(list(params), relax.SeqExpr([block], out), out.ty, True, main.attrs)
