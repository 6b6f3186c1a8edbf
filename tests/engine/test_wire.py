"""What an engine sends is read without running it."""

import pickle

import pytest

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind, Literal, Node, TensorType
from relascope.engine import wire
from relascope.engine.protocol.results import SplitResult
from relascope.passes.pipeline import Pipeline


def test_our_own_types_and_errors_arrive_equal_and_what_is_shared_stays_shared():
    shape = TensorType((2, "n"), "float32")
    node = Node("a", Kind.CALL, "add", attrs={"x": [1, None]}, inputs=(Literal("1"),))
    body = Graph("f", "relay", (node,), (), ("a",))
    value = {"split": SplitResult(body, body, 1.5), "pipeline": Pipeline.parse("cse|-fold")}
    value |= {"plain": (shape, [b"x", {1.0, "s"}, frozenset((3,)), 1 << 80, True, None])}
    read = wire.loads(wire.dumps(value))
    assert read == value
    assert read["split"].forward is read["split"].backward
    assert read["split"].forward.nodes[0].kind is Kind.CALL
    told = EngineError("pass", "no", "here", "try").to_json()
    assert wire.loads(wire.dumps(EngineError(**told))).to_json() == told


class Reduced:
    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


GRAPH = _global("relascope.core.graph", "Graph")
HOSTILE = {
    "a system's function": pickle.dumps(Reduced(print, ("ran",))),
    "eval": pickle.dumps(Reduced(eval, ("1",))),
    "getattr": pickle.dumps(Reduced(getattr, (1, "real"))),
    "an import of a module of ours": _global("relascope.engine.client", "EngineClient") + b".",
    "what a module of ours imports": _global("relascope.core.graph", "field") + b".",
    "a function of a module of ours": _global("relascope.core.graph", "replace") + b".",
    "an attribute of a type": b"\x80\x04\x8c\x14relascope.core.graph\x8c\x0bGraph.named\x93.",
    "a new object without its fields": GRAPH + b")\x81.",
    "state of a word": _global("relascope.core.graph", "Kind") + b"(Vcall\ntR}V_value_\nVx\nsb.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_else_is_read(name, capsys):
    with pytest.raises((pickle.UnpicklingError, TypeError)):
        wire.loads(HOSTILE[name])
    assert capsys.readouterr().out == ""
    assert Kind.CALL.value == "call"


def test_a_type_cannot_be_changed():
    wire.loads(GRAPH + b"(N}V__eq__\nVno\nstb.")  # sets an attribute of what stands for the type
    assert callable(Graph.__eq__)
