"""Parts of programs that branch, or write into memory, cut out as programs of their own."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from limits import ELEMENTWISE
from relascope.core.errors import EngineError
from relascope.engine.faults.narrow import Start, extracted
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.engine.relax.faults import replay
from relascope.engine.relax.session import RelaxBackend
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.search.reduce import Piece, whole


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), up: R.Tensor((), "bool")) -> R.Tensor((2, 3)):
        ahead = R.tanh(x)
        if up:
            once = R.add(ahead, x)
            out = R.multiply(once, once)
        else:
            twice = R.exp(ahead)
            out = R.negative(twice)
        return R.sin(out)


def start(mod, passes=()):
    mod = relax.transform.Normalize()(mod)
    with tvm.target.Target("llvm"):
        mod = tvm.transform.Sequential(list(passes))(mod)
    program = RelaxProgram(mod, {}, ("x", "up"), 1)
    return Start(program, *to_graph(program), (), ())


def cut(begin, *ops, ends=None):
    graph = begin.graph
    nodes = tuple(n.id for n in graph if n.op in ops)
    outputs = tuple(n.id for n in graph if n.op in (ends or ops))
    return extracted(RelaxBackend(), begin, Piece(nodes, outputs)).program


def run(program, *arrays):
    mod = program.mod
    names = [str(p.name) for p in mod["main"].params]
    made = replay.runner(mod, dict(zip(names, arrays, strict=True)), "llvm", False)
    made()
    return made.results()


X = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.5]], "float32")


@pytest.mark.parametrize("up", [True, False])
def test_a_branch_is_cut_inside_and_the_rest_of_it_is_an_argument(up):
    made = cut(start(Branches), "multiply", "if", ends=("if",))
    kinds = [str(p.ty.dtype) for p in made.mod["main"].params]
    assert sorted(kinds) == ["bool", "float32", "float32"]
    given = {"bool": [np.array(up)], "float32": [X, X + 1]}
    (found,) = run(made, *(given[k].pop(0) for k in kinds))
    sides = [X * X, (X + 1) * (X + 1), X, X + 1]
    assert any(np.array_equal(found, s) for s in (sides[:2] if up else sides[2:]))


def test_what_is_left_of_a_branch_stands_in_its_place_or_is_no_result():
    made = cut(start(Branches), "multiply", "exp")
    assert not any(isinstance(b.value, relax.If) for b in made.mod["main"].body.blocks[0].bindings)
    left, right = run(made, *[X] * len(made.mod["main"].params))
    assert np.array_equal(left, X * X) and np.allclose(right, np.exp(X), rtol=ELEMENTWISE)
    made = cut(start(Branches), "if", "add", ends=("if", "add"))
    assert made.outputs == 1


def test_a_kernel_that_writes_into_memory_is_cut_with_its_place_or_without_it():
    names = "LegalizeOps", "RemovePurityChecking", "CallTIRRewrite"
    begin = start(Branches, [getattr(relax.transform, n)() for n in names])
    made = cut(begin, "tir_tanh")  # its place is an argument, and what it returns
    (found,) = run(made, *(X.copy() for _ in made.mod["main"].params))
    assert np.allclose(found, np.tanh(X), rtol=ELEMENTWISE)
    # It reads what others wrote.
    made = cut(begin, "tir_sin", "builtin.alloc_tensor", ends=("tir_sin",))
    found = run(made, *[X] * len(made.mod["main"].params))
    assert any(np.allclose(f, np.sin(X), rtol=ELEMENTWISE) for f in found)


def test_a_part_that_is_no_program_is_refused():
    begin = start(Branches)
    inner = [n.id for n in begin.graph if n.op == "add"]
    outer = [n.id for n in begin.graph if n.op == "if"]
    with pytest.raises(EngineError, match="cannot be cut out on its own"):
        extracted(RelaxBackend(), begin, Piece((*inner, *outer), tuple(inner)))
    assert extracted(RelaxBackend(), begin, whole(begin.graph)).program.outputs == 1
