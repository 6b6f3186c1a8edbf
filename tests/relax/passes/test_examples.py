"""Each Relax pass on its small program: what the documentation shows, and that numbers stay."""

import numpy as np
import pytest
from tvm import relax

from examples import Run, apply, assert_close, documented, printed, quiet, stepwise
from limits import rounding
from relascope.core.errors import EngineError
from relascope.engine.relax.session import RelaxSession
from relascope.passes.catalogue import info, names
from relascope.passes.relax.ir.rewrite import bindings, op_name

SESSION = RelaxSession()
BACKEND = SESSION.backend
NAMES = names("relax")


def _roots(run, dtype):
    y = np.tanh(run["x"])
    assert_close(run.after, [np.sum(y * run["grad_out_0"]), y], dtype)


def _has_the_gradient(run, dtype):
    y = np.tanh(run["x"])
    assert_close(run.after, [y, (1 - y * y) * run["grad_out_0"]], dtype)


def _is_approximate(run, dtype):
    # TVM's polynomials are for float32; in float64 the pass takes the exact function.
    assert_close(run.after, [np.tanh(run["x"])], dtype)
    assert (dtype == "float32") == bool((run.after[0] != run.before[0]).any())


def _is_rounded(run, dtype):
    assert_close(run.after, run.before, dtype, rounding("float16", 1))
    assert (run.after[0] != run.before[0]).any()


# Passes that change what is computed, on purpose: what their example computes afterwards, as a
# function of a `tests.examples.Run` and the dtype that asserts it.
OTHERWISE = {
    "root_grad_out": _roots,
    "gradient": _has_the_gradient,
    "fast_math": _is_approximate,
    "mixed_precision": _is_rounded,
}

# What is on two devices is not built here.
ELSEWHERE = ("on_device", "plan_devices")


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_shows_what_the_pass_does(name):
    assert documented("relax", name) == printed(SESSION, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_pass_does_something_to_its_example(name):
    example = SESSION.example(name, progress=quiet)
    assert example.before != example.after
    assert bool(example.differs) == (name in OTHERWISE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ELSEWHERE])
def test_the_example_computes_the_same_after_the_pass(name, dtype):
    if (name, dtype) == ("mixed_precision", "float64"):
        with pytest.raises(EngineError, match="takes float32"):
            Run(BACKEND, name, dtype)
        return
    run = Run(BACKEND, name, dtype)
    if name in OTHERWISE:
        OTHERWISE[name](run, dtype)
    else:
        assert_close(run.after, run.before, dtype)


def _interpreted(program, values):
    """What a program of these few operators computes, wherever it is to run."""
    known = {str(p.name): values[str(p.name)] for p in program.main.params}
    compute = {
        "add": np.add,
        "subtract": np.subtract,
        "sqrt": np.sqrt,
        "log": np.log,
        "exp": np.exp,
        "hint_on_device": lambda x, *_: x,
        "to_vdevice": lambda x, *_: x,
        "": lambda x: x,
    }
    for variable, value in bindings(program.main):
        operands = value.args if isinstance(value, relax.Call) else [value]
        read = [known[str(a.name)] for a in operands if isinstance(a, relax.Var)]
        known[str(variable.name)] = compute[op_name(value)](*read)
    return known[str(program.main.body.body.name)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_on_two_devices_computes_the_same(name, dtype):
    example = BACKEND.example(name, dtype)
    rng = np.random.default_rng(5)
    values = {n: rng.uniform(0.5, 2, (1, 10)).astype(dtype) for n in ("x", "y")}
    both = values["x"] + values["y"]
    expected = np.exp(np.sqrt(both) - np.log(both))
    for program in (example.program, apply(info("relax", name), example)):
        assert_close([_interpreted(program, values)], [expected], dtype)


def test_what_is_named_lies_on_the_device_and_copies_stand_between():
    planned = apply(info("relax", "plan_devices"), BACKEND.example("plan_devices", "float32"))
    places = {}
    for variable, value in bindings(planned.main):
        if op_name(value):
            places.setdefault(op_name(value), []).append(str(variable.ty.vdevice.target.kind.name))
    assert places.pop("to_vdevice") == ["cuda", "llvm", "cuda"]
    assert places == {
        "add": ["llvm"],
        "sqrt": ["cuda"],
        "log": ["llvm"],
        "subtract": ["llvm"],
        "exp": ["cuda"],
    }


def test_a_script_runs_passes_one_by_one():
    stepwise("relax")
