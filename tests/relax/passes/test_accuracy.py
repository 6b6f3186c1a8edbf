"""The accuracy report in Relax: right where it is right, and where a fault was put it is found."""

import pytest
import tvm
from tvm import relax

import relascope.passes.relax.transpose_dedup as dedup
from accuracies import check_all_passed, quiet, table
from limits import LIMITS
from quick import QUICK
from relascope.engine.jobs import accuracy
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.relax.frontend.converters import Converter
from relascope.engine.relax.session import RelaxSession
from relascope.passes.catalogue import default_pipeline
from relascope.passes.program import Program
from relascope.passes.relax.ir.intermediates import with_intermediates
from relascope.passes.relax.ir.rewrite import op_name, rewrite

MLP = ModelSource("mlp")


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("mlp", accuracy.DTYPES),
        pytest.param("bert_self_attention", ("float64",), marks=pytest.mark.exhaustive),
    ],
)
def test_every_stage_agrees_with_pytorch(session, name, dtypes):
    rows = table(session, ModelSource(name), dtypes=dtypes)
    check_all_passed(rows, dtypes)
    assert rows["gradient", "float64"].compared > 7
    assert rows["cut", "float64"].compared > 1
    assert accuracy.verdict(list(rows.values())).startswith("Every stage agrees with PyTorch: ")


def test_a_gelu_in_its_tanh_form_is_found(monkeypatch):
    right = Converter.create_convert_map

    def faulty(self):
        def gelu(node):
            return self.block_builder.emit(relax.op.nn.gelu_tanh(self.env[node.args[0]]))

        return {**right(self), "gelu.default": gelu}

    monkeypatch.setattr(Converter, "create_convert_map", faulty)
    row = table(RelaxSession(), MLP, dtypes=("float64",), stages=("forward",))["forward", "float64"]
    assert not row.passed
    assert 1e-5 < row.max_rel < 1e-1
    assert (row.first_bad.source, row.first_bad.scope) == ("aten::gelu", "act")
    assert row.first_bad.id == row.first_bad_node


def test_a_wrong_gradient_is_found_where_the_forward_is_right(monkeypatch):
    right = dedup.transpose_dedup

    def fault(program):
        done = []

        def rule(call, maker):
            _, source = maker.provenance.get(maker.origin, ("", ""))
            if done or source != "gradient of aten::gelu" or op_name(call) != "multiply":
                return None
            done.append(call)
            return relax.op.multiply(maker.emit(call), relax.const(1.01, "float64"))

        program = rewrite(program, rule)
        assert done
        return right(program)

    monkeypatch.setattr(dedup, "transpose_dedup", fault)
    rows = table(
        RelaxSession(),
        MLP,
        dtypes=("float64",),
        stages=("training forward", "gradient", "cut and split"),
    )
    assert rows["training forward", "float64"].passed
    assert rows["cut", "float64"].passed
    before = ("gradient of x", "gradient of hidden.weight", "gradient of hidden.bias")
    for stage in ("gradient", "split"):
        row = rows[stage, "float64"]
        assert not row.passed
        assert row.worst in before
        assert (row.first_bad.source, row.first_bad.scope) == ("gradient of aten::gelu", "act")


def test_inside_every_counterpart_of_a_right_program_is_near(session):
    source = ModelSource("mlp", training=True, dtype="float64")
    pipeline = default_pipeline("relax", True)
    found = session.inside(BuildRequest(source, pipeline, QUICK), progress=quiet)
    names = {e.counterpart for e in found}
    assert {
        "aten::linear in hidden",
        "aten::gelu in act",
        "aten::layer_norm in norm",
        "aten::dropout in dropout",
        "aten::linear in head",
    } < names
    assert {"gradient of x", "gradient of hidden.weight", "gradient of norm.bias"} < names
    assert max(e.max_rel for e in found) < LIMITS["float64"][1]


def test_a_program_shows_what_is_inside_a_dataflow_block():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            inner = builder.emit(relax.op.exp(x))
            made = builder.emit_output(relax.op.negative(inner))
        builder.emit_func_output(made)
    program = with_intermediates(Program(builder.get(), {}, ("x",), 1), "main", [inner, x])
    assert program.outputs == 2
    assert isinstance(program.main.ret_ty, tvm.ir.TupleType)
    assert not any(isinstance(b, relax.DataflowBlock) for b in program.main.body.blocks)
