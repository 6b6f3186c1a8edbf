"""Products ask memory for the part of a weight that comes next, all of it, while they compute."""

import itertools

import pytest
import torch
import tvm
from tvm import relay, te, tir

from relascope.engine.cpu_kernels import packed_matmul
from relascope.engine.cpu_kernels.prefetch import read_ahead
from relascope.engine.cpu_kernels.schedules import scheduled
from relascope.engine.relay.kernels import schedules
from relay_functions import OURS, compiled, constant, var

LINE = 16
TREE = ("body", "block")


def product(kind, rows, inner, columns, lanes):
    x = te.placeholder((rows, inner), name="x")
    turned = kind == "turned"
    registers = schedules._REGISTERS[lanes]
    tile = (
        packed_matmul.row_tile(rows, columns, inner, registers)
        if turned
        else packed_matmul.tile(rows, columns, registers)
    )
    shape = {
        "turned": (columns, inner),
        "as it lies": (inner, columns),
        "packed": (columns // tile.columns, inner, tile.columns),
    }[kind]
    weight = te.placeholder(shape, name="w")
    make = packed_matmul.dots if turned else packed_matmul.product
    function = te.create_prim_func([x, weight, make(te, tir, x, weight, tile, [rows])])
    return scheduled(schedules._DIALECT, function, sure=True).mod["main"], tile


def asked(function):
    """Loops around the requests, and what is asked for: numbers of elements in memory."""
    loops, found = [], []

    def visit(node, around):
        if isinstance(node, tir.For):
            around = [*around, node]
        if isinstance(node, tir.Evaluate) and node.value.op.name == "tir.prefetch":
            loops[:] = around
            found.append(node.value.args[0].args[0])
        for part in (*getattr(node, "seq", ()), *(getattr(node, n, None) for n in TREE)):
            if part is not None:
                visit(part, around)

    visit(function.body, [])
    places = []
    for load in found:
        place = tir.const(0, "int32")
        for index, extent in zip(load.indices, load.buffer.shape, strict=True):
            place = place * extent + index
        places.append(place)
    return loops, places


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize(
    ("kind", "rows", "inner", "columns"),
    [
        ("packed", 14, 48, 32),
        ("packed", 3, 16, 48),
        ("as it lies", 14, 192, 64),
        ("as it lies", 6, 64, 192),
        ("turned", 14, 64, 48),
        ("turned", 5, 32, 24),
    ],
)
def test_all_of_a_weight_but_its_first_part_is_asked_for(kind, rows, inner, columns, lanes):
    function, tile = product(kind, rows, inner, columns, lanes)
    loops, places = asked(read_ahead(schedules._DIALECT, function))
    lines = set()
    for step in itertools.product(*(range(int(loop.extent)) for loop in loops)):
        now = {loop.loop_var: value for loop, value in zip(loops, step, strict=True)}
        for place in places:
            found = tir.stmt_functor.substitute(place, now)
            lines.add(int(tvm.arith.Analyzer().simplify(found)) // LINE)
    if kind == "as it lies":  # lines that are read before anything can be asked for
        width = -(-tile.columns // LINE)
        first = (
            packed_matmul.parts(columns // tile.columns) * packed_matmul.strip(rows, inner) * width
        )
    else:
        first = tile.columns * inner // LINE * (packed_matmul.ROW_BLOCK if kind == "turned" else 1)
    missed = set(range(inner * columns // LINE)) - lines
    assert len(missed) <= first
    assert len(lines) <= inner * columns // LINE + first


def test_a_loop_that_is_not_marked_stays_as_it_is():
    x = te.placeholder((8, 16), name="x")
    function = te.create_prim_func([x, te.compute((8, 16), lambda i, j: x[i, j] * 2.0)])
    assert read_ahead(schedules._DIALECT, function).same_as(function)


@pytest.mark.parametrize("kind", ["packed", "turned"])
def test_the_code_has_the_requests(kind):
    weight = torch.randn(48, 64)
    right = constant(weight) if kind == "packed" else var("w", 48, 64)
    function = compiled(relay.nn.dense(var("x", 14, 64), right), OURS)
    assert "prefetch" in function.library.get_lib().get_source("asm")
