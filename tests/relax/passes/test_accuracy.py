"""The accuracy report in Relax: right where it is right, and where a fault was put it is found."""

import pytest
import tvm
from tvm import relax

import relascope.passes.relax.transpose_dedup as dedup
from accuracies import *  # noqa: F403
from accuracies import check_every_stage, check_gelu_is_found, check_gradient_is_found, check_inside
from relascope.core.graph import NodeOrigin
from relascope.engine.jobs import accuracy
from relascope.engine.relax.frontend.converters import Converter
from relascope.engine.relax.session import RelaxSession
from relascope.passes.program import Program
from relascope.passes.relax.ir.inspection import with_intermediates
from relascope.passes.relax.ir.rewrite import op_name, rewrite
from relax_modules import program


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("mlp", accuracy.DTYPES),
        pytest.param("bert_self_attention", ("float64",), marks=pytest.mark.exhaustive),
    ],
)
def test_every_stage_agrees_with_pytorch(session, name, dtypes):
    check_every_stage(session, name, dtypes)


def test_a_gelu_in_its_tanh_form_is_found(monkeypatch):
    right = Converter.create_convert_map

    def faulty(self):
        def gelu(node):
            return self.block_builder.emit(relax.op.nn.gelu_tanh(self.env[node.args[0]]))

        return {**right(self), "gelu.default": gelu}

    monkeypatch.setattr(Converter, "create_convert_map", faulty)
    check_gelu_is_found(RelaxSession())


def test_a_wrong_gradient_is_found_where_the_forward_is_right(monkeypatch):
    right = dedup.transpose_dedup

    def fault(whole):
        done = []

        def rule(call, maker):
            source = maker.provenance.get(maker.origin, NodeOrigin()).source
            if done or source != "gradient of aten::gelu" or op_name(call) != "multiply":
                return None
            done.append(call)
            return relax.op.multiply(maker.emit(call), relax.const(1.01, "float64"))

        whole = rewrite(whole, rule)
        assert done
        return right(whole)

    monkeypatch.setattr(dedup, "transpose_dedup", fault)
    check_gradient_is_found(RelaxSession())


def test_inside_every_counterpart_of_a_right_program_is_near(session):
    check_inside(session)


def test_a_program_shows_what_is_inside_a_dataflow_block():
    mod = program(lambda x: relax.op.negative(relax.op.exp(x)), ((2,), "float32"))
    (x,), (inner, _) = mod["main"].params, mod["main"].body.blocks[0].bindings
    made = with_intermediates(Program(mod, {}, ("x0",), 1), "main", [inner.var, x])
    assert made.outputs == 2
    assert isinstance(made.main.ret_ty, tvm.ir.TupleType)
    assert not any(isinstance(b, relax.DataflowBlock) for b in made.main.body.blocks)
