"""ONNX's own node tests (`bench/oracles/onnx_nodes.py`): none is wrong, none crashes."""

import importlib
import subprocess
import sys
from functools import cache

import pytest
from onnx.backend.test.case import node

import onnx_nodes
from quick import ENGINE, QUICK
from relascope.engine.in_process import load_engine

_NAMES = """
    averagepool_2d_same_upper clip_example constant_pad conv_with_strides_padding
    cumsum_2d_axis_1 gather_elements_negative_indices gemm_all_attributes
    layer_normalization_2d_axis1 loop11 matmulinteger mish onehot_with_axis
    qlinearmatmul_2D_uint8_float32 reduce_log_sum_exp_keepdims_example
    resize_upsample_sizes_nearest slice_neg_steps split_variable_parts_2d_opset18
    string_split_basic top_k_smallest where_example
"""
SLICE = [f"test_{name}" for name in _NAMES.split()]
"""Forms of many kinds; some of them are refused."""
_FILES = """
    averagepool clip pad conv cumsum gatherelements gemm layernormalization loop matmulinteger mish
    onehot qlinearmatmul reduce_log_sum_exp resize slice split string_split topk where
"""


@cache
def _engine():
    frontend = importlib.import_module(f"relascope.engine.{ENGINE}.frontend.onnx")
    return load_engine(ENGINE), QUICK, frontend, set(frontend.everything())


@cache
def _tests():
    """Those of ONNX's files that have the slice: ONNX computes all that stand in a file."""
    for name in _FILES.split():
        importlib.import_module(f"{node.__name__}.{name}")
    return {t.name: t for t in node._NodeTestCases}


def _look(name):
    return onnx_nodes.look(*_engine(), _tests()[name])


def test_some_of_every_kind_are_right_or_refused():
    rows = [_look(name) for name in SLICE]
    assert [r for r in rows if r["verdict"] not in ("right", "refused")] == []
    assert sum(r["verdict"] == "right" for r in rows) >= 15
    assert all(r["message"] for r in rows if r["verdict"] == "refused")


def test_the_command_tries_those_that_are_asked_for(in_this_process, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(onnx_nodes, "_tests", _tests)
    asked = ("--test", "test_mish", "test_string_split_basic")
    assert in_this_process(onnx_nodes, "--folder", tmp_path, *asked) == 0
    printed = capsys.readouterr().out
    assert "test_mish right" in printed and "test_string_split_basic refused" in printed
    mish = sum("test_mish" in n for n in _tests())
    told = f"{ENGINE}: of {mish + 1} tests: right {mish}, refused 1, wrong 0"
    assert told in printed


@pytest.mark.exhaustive
def test_the_command_tries_all(tmp_path):
    program = [sys.executable, onnx_nodes.__file__, "--engine", ENGINE, "--folder", tmp_path]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stdout.splitlines() if "TVM's importer has" in line]
    assert "wrong 0, crash 0" in told
    assert float(told.rpartition("(")[2].split()[0]) >= 75
