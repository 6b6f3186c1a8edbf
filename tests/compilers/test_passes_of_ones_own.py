"""What passes return is checked, what they print is shown, and where they cannot stand is said."""

import re

import pytest
import torch

from command_line import document
from engines import Shared, shared
from limits import GRADIENT, rounding
from quick import QUICK
from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.faults.bundle import siblings
from relascope.engine.jobs.cut import joint_of, with_cut
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import INPUTS, ModelSource
from relascope.engine.registry import ENGINES
from relascope.passes import catalogue
from relascope.passes.catalogue import default_pipeline, read_pipeline, user

MLP = ModelSource("mlp")
TRAINED = ModelSource("mlp", training=True)

PASSES = """
IR = "relax"
import time
import own_helper
import tvm
from tvm import relax
from relascope.passes.relax.ir import rewrite

def with_main(program, params=None, more=(), bound=()):
    main = program.main
    old = rewrite.bindings(main)
    returned = bound and [bound[-1][0]] or [*rewrite.results(main, old), *more]
    function = rewrite.function_of(params or main.params, [*old, *bound], returned)
    return rewrite.with_main(program, function)

def more(main):
    return [*main.params, relax.Var("more", relax.TensorType((1,), "float32"))]

def twice(main):
    return {"more": rewrite.results(main, rewrite.bindings(main))}

def double(main):
    maker = rewrite.Maker(set(), {})
    maker.emit(relax.op.astype(rewrite.results(main, rewrite.bindings(main))[0], "float64"))
    return {"bound": maker.bound}

def unbound(program):
    return with_main(program, program.main.params[1:])

def nothing(program):
    pass

def bare(program):
    return program.mod

def argument(program):
    return with_main(program, more(program.main))

def result(program):
    return with_main(program, **twice(program.main))

def retyped(program):
    return with_main(program, **double(program.main))

def leaves(program):
    raise SystemExit("enough")

def says(program):
    print("seen by", own_helper.WORD)
    return program

def hang(program):
    while True:
        time.sleep(0.1)

def clips(program):
    maker = rewrite.Maker(set(), {})
    result = rewrite.results(program.main, rewrite.bindings(program.main))[0]
    maker.emit(relax.op.clip(result, -100.0, 100.0))
    return with_main(program, bound=maker.bound)
"""

SAID = {
    "nothing": "nothing returned NoneType; a pass returns a RelaxProgram whose mod is IRModule.",
    "bare": "bare returned IRModule; a pass returns a RelaxProgram whose mod is IRModule.",
    "unbound": "unbound returned a program that is not well-formed: .*",
    "argument": "argument added an argument more, which gets no value.",
    "result": "result changed the number of results from 1 to 2.",
    "retyped": r"retyped changed result 0 from float32\[.*\] to float64\[.*\].",
    "leaves": "SystemExit: enough",
}


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A file of passes, and an engine, which has to start with it; what judges them is both's."""
    folder, engine = tmp_path_factory.mktemp("own"), Shared("relax", None)
    (folder / "own_helper.py").write_text("WORD = 'a sibling'\n")
    (folder / "own.py").write_text(PASSES)
    yield folder / "own.py", engine
    EngineClient.close(engine)


@pytest.fixture
def own(started, monkeypatch):
    """Runs a command with the passes of the file; `own.call` asks the engine itself."""
    file, engine = started
    monkeypatch.setenv(user.VARIABLE, "")
    monkeypatch.setattr(catalogue, "CATALOGUE", dict(catalogue.CATALOGUE))
    user.name_files([str(file)])

    def ask(command, model, *options):
        given = [command, str(model), "--engine", "relax", *options]
        return document(*given, connect=lambda ir: engine)

    ask.call = engine.call
    return ask


def test_what_a_pass_returns_is_checked_and_what_it_prints_is_shown(own):
    pipeline = read_pipeline("relax", "|".join([*SAID, "says", "cse"]))
    *failed, said, last = own.call("step", MLP, pipeline)
    for one, pattern in zip(failed, SAID.values(), strict=True):
        typed = one.pass_name not in ("nothing", "bare", "leaves")
        assert one.error.kind == ("type" if typed else "pass")
        assert re.fullmatch(pattern, one.error.message.partition("\n")[0]), one.error.message
    assert (said.error, said.printed) == (None, "seen by a sibling\n")
    assert (last.error, last.printed) == (None, "")


def test_a_fault_shows_on_the_inputs_that_meet_it(own, tmp_path):
    torch.manual_seed(0)
    file = tmp_path / "linear.pt"
    torch.jit.trace(torch.nn.Linear(8, 4).eval(), torch.ones(2, 8)).save(str(file))
    data = own("check", file, "--passes", "cse|clips", "--inputs", "all")
    told = {one["inputs"]: (one["verdict"], one["dtype"]) for one in data["inputs"]}
    right, wrong = ("right", "float32"), ("wrong", "float64")
    assert list(told) == list(INPUTS)
    assert told == {k: wrong if k in ("large", "cancelling", "huge") else right for k in INPUTS}
    assert "forward on large inputs: wrong: over the limit in float64" in data["verdict"]
    large = next(one for one in data["inputs"] if one["inputs"] == "large")
    assert large["error"] > 0.9 and large["scale"] > 1e3 and large["limit"] == 1e-10
    for kind, culprit in (("large", "clips"), ("edges", None)):
        found = own("bisect", file, "--passes", "cse|clips", "--inputs", kind)
        assert ((found["culprit"] or {}).get("pass"), found["inputs"]) == (culprit, kind)
        assert ("This was on large inputs." in found["verdict"]) == (culprit is not None)


def test_a_pass_without_end_is_a_step_that_failed(own):
    steps = own("step", "mlp", "--limit-seconds", "2", "--passes", "hang|cse")["steps"]
    failed = [s["failure"] for s in steps]
    assert [f and f["where"] for f in failed] == ["hang", None]
    assert failed[0]["message"] == "hang took longer than 2 s, the limit, and was stopped."


@pytest.mark.parametrize("ir", ENGINES)
def test_a_cut_does_not_see_passes_that_are_only_for_looking(ir):
    ask = shared(ir).call
    whole = default_pipeline(ir, True)
    looked = read_pipeline(ir, f"{whole}|{'fuse' if ir == 'relay' else 'legalize'}")
    assert joint_of(ask, TRAINED, looked).graph == joint_of(ask, TRAINED, whole).graph


@pytest.mark.parametrize("ir", ENGINES)
def test_the_way_to_a_gradient_is_gone_once_and_in_training(ir):
    ask = shared(ir).call
    (record,) = ask("step", MLP, read_pipeline(ir, "root_grad_out"))
    message = "is the first step to a gradient, and the model was loaded for inference"
    assert message in record.error.message
    whole = default_pipeline(ir, True)
    for name in ("root_grad_out", "gradient"):
        *_, record = ask("step", TRAINED, read_pipeline(ir, f"{whole}|{name}"))
        assert "has run already, and cannot run twice." in record.error.message
    half = whole.upto([s.name for s in whole].index("root_grad_out"))
    target = ask("describe").best
    with pytest.raises(EngineError, match="ends between root_grad_out and the gradient"):
        ask("check", BuildRequest(TRAINED, half, target))


def test_a_relax_program_with_kernels_of_passes_is_split():
    ask, source = shared("relax").call, ModelSource("bert_self_attention", training=True)
    pipeline = default_pipeline("relax", True)
    pipeline = read_pipeline("relax", f"{pipeline}|fast_math|drop_ones|canonicalize")
    request = with_cut(ask, BuildRequest(source, pipeline, QUICK))
    assert max(c.max_rel for c in ask("check", request)) < GRADIENT


@pytest.mark.parametrize("ir", [pytest.param("relay", marks=pytest.mark.exhaustive), "relax"])
def test_products_in_float16(ir):
    ask = shared(ir).call
    source, pipeline = ModelSource("bert_self_attention"), read_pipeline(ir, "bind|mixed_precision")
    for found in ask("check", BuildRequest(source, pipeline, ask("describe").best)):
        assert rounding("float32", 1) < found.max_rel < rounding("float16", 768)


def test_a_report_has_what_a_pass_file_imports_from_beside_it(tmp_path):
    (tmp_path / "own.py").write_text("import os\nfrom first import x\n")
    (tmp_path / "first.py").write_text("import second\n")
    (tmp_path / "second.py").write_text("import first\n")
    (tmp_path / "other.py").write_text("")
    found = siblings([tmp_path / "own.py"])
    assert [f.name for f in found] == ["own.py", "first.py", "second.py"]


def test_a_layer_norm_is_fused_as_building_fuses_it():
    ask, pipeline = shared("relay").call, read_pipeline("relay", "fuse")
    (record,) = ask("step", MLP, pipeline)
    assert record.error is None and "nn.layer_norm" not in record.operators
    assert ask("kernels", MLP, read_pipeline("relay", "cse"), True)
