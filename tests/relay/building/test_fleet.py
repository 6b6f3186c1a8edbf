"""Relay's programs on a fleet."""

from unittest.mock import patch

import pytest
import tvm
from tvm import relay

from fleets import PLAIN, FleetTests
from relascope.engine.relay.tune import trial
from relascope.engine.relay.tune.trial import CannotMeasure, Place
from relay_functions import var

SHAPES = ((2, 64), (256, 64))
DENSE = *(("TENSOR", shape, "float32") for shape in SHAPES), None, "float32"


class TestRelayOnAFleet(FleetTests):
    ir, other, library = "relay", "relax", "-libs=mkl"

    def test_a_trial_is_built_here_and_measured_there(self, fleet):
        """What the process of a tuner's own is sent, in this one."""
        place = Place(PLAIN, 1, fleet)
        assert 0 < trial.template("dense_nopack.x86", DENSE, 0, place) < 1000
        x, w = var("x", *SHAPES[0]), var("w", *SHAPES[1])
        mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
        kernel = tvm.ir.save_json(relay.transform.InferType()(mod))
        before, tuned = trial.alone(kernel, ("w",), None, place)
        assert 0 < before < 1000
        assert tuned is None
        with (
            patch.object(trial.measure_methods, "_build_func_common", side_effect=ValueError("no")),
            pytest.raises(CannotMeasure, match="no"),
        ):
            trial.template("dense_nopack.x86", DENSE, 0, place)
