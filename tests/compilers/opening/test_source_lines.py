"""The line of a model's source travels to the nodes, the tables and the exported files."""

import json

import pytest
import torch

from command_line import document, run
from relascope.core.graph import GRADIENT_OF, Graph, Kind
from relascope.engine.files.exported import file_line, lines_in
from relascope.engine.protocol.source import source_from_file
from relascope.engine.pytorch.model import load_model
from relascope.viz.drawing.drawing import drawing_of
from relascope.viz.handed_on.interchange import to_model_explorer

MODEL = """\
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 3)

    def forward(self, x):
        hidden = self.dense(x)
        scaled = hidden.tanh() * 2.0
        return torch.relu(
            scaled
        )


def small():
    return Small(), (torch.ones(2, 4),)
"""
TEXTS = {
    "aten::linear": "small_lines.py:11: hidden = self.dense(x)",
    "aten::tanh": "small_lines.py:12: scaled = hidden.tanh() * 2.0",
    "aten::mul": "small_lines.py:12: scaled = hidden.tanh() * 2.0",
    "aten::relu": "small_lines.py:13: return torch.relu(",
}
ENGINES = pytest.mark.parametrize("ir", ["relay", "relax"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The module, and what PyTorch saves of it."""
    at = tmp_path_factory.mktemp("lines")
    (at / "small_lines.py").write_text(MODEL, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(at))
        from small_lines import small

        module, inputs = small()
        torch.export.save(torch.export.export(module.eval(), inputs), at / "small.pt2")
        torch.jit.save(torch.jit.trace(module, inputs), at / "small.pt")
    return at


def written(folder, model, *more):
    """The graph that `graph` writes, and its text."""
    to = folder / "graph.json"
    done = run("graph", str(folder / model), "-o", str(to), *more, real=True)
    assert done.returncode == 0, done.stderr
    text = to.read_text(encoding="utf-8")
    return Graph.from_json(json.loads(text)), text


def lines(graph):
    """The lines of the calls and functions of a graph by framework operator."""
    made = [n for n in graph if n.kind in (Kind.CALL, Kind.FUNCTION)]
    return {(n.source, n.line) for n in made}


@ENGINES
def test_a_graph_has_the_lines_of_a_module_and_of_its_saved_program(folder, ir):
    for model in ("small_lines.py:small", "small.pt2"):
        graph, text = written(folder, model, "--engine", ir)
        assert lines(graph) == set(TEXTS.items())
        assert str(folder) not in text
    traced, text = written(folder, "small.pt", "--engine", ir)
    assert lines(traced) == {(op, line.partition(": ")[0]) for op, line in TEXTS.items()}
    assert str(folder) not in text
    assert all(not n.line for n in graph if n.kind in (Kind.INPUT, Kind.PARAMETER))


@pytest.mark.parametrize(
    ("ir", "passes", "gradient"),
    [
        ("relay", "default", ""),
        ("relax", "cse|combine_matmul|bind|fold|legalize|annotate_pattern|fuse_ops", ""),
        ("relay", "default", "tvm"),
        ("relax", "default", "tvm"),
        ("relax", "default", "pytorch"),
    ],
)
def test_passes_and_the_gradient_keep_the_line_with_the_operator(folder, ir, passes, gradient):
    more = ("--training", "--gradient", gradient) if gradient else ()
    about = "small_lines.py:small", "--engine", ir, "--passes", passes, *more
    graph, _ = written(folder, *about)
    found = [n for g in graph.with_bodies() for n in g if n.source]
    assert {n.source.removeprefix(GRADIENT_OF) for n in found} == TEXTS.keys()
    assert all(n.line == TEXTS[n.source.removeprefix(GRADIENT_OF)] for n in found)
    assert any(n.source.startswith(GRADIENT_OF) for n in found) == bool(gradient)


@ENGINES
def test_captures_name_the_line(folder, ir):
    model = str(folder / "small_lines.py:small")
    about = "captures", model, "--engine", ir, "--strategy", "keep_all"
    found = document(*about, real=True)
    rows = found["captures"] + found["spared"] + found["held"]["at_peak"]["tensors"]
    assert {c["line"] for c in found["captures"]} <= {*TEXTS.values()}
    rows = [r for r in rows if r["source"]]
    assert all(r["line"] == TEXTS[r["source"].removeprefix(GRADIENT_OF)] for r in rows)
    assert str(folder) not in json.dumps(found["captures"])
    text = run(*about, real=True).stdout
    assert "small_lines.py:12 " in text and "scaled =" not in text


@ENGINES
def test_the_viewer_and_model_explorer_have_the_line(folder, ir):
    graph, _ = written(folder, "small_lines.py:small", "--engine", ir)
    drawn = drawing_of(graph, 10)
    texts = [*drawn.strings]
    shown = dict(zip(drawn.block["node"]["id"], drawn.block["node"]["line"], strict=True))
    assert {i: texts[at] for i, at in shown.items()} == {n.id: n.line for n in drawn.graph}
    assert {texts[at] for at in shown.values()} == {"", *TEXTS.values()}
    nodes = json.loads(to_model_explorer(graph))["graphs"][0]["nodes"]
    found = [{a["key"]: a["value"] for a in n["attrs"]} for n in nodes]
    assert {a["line"] for a in found if "line" in a} == {*TEXTS.values()}


def test_a_file_that_a_saved_trace_names_is_not_read(folder):
    # Without the sandbox, in which an engine could not read it either.
    model = load_model(source_from_file(folder / "small.pt"), lambda done, what: None)
    found = [o for o in model.flat.origins.values() if o.line]
    assert {o.line for o in found} == {line.partition(": ")[0] for line in TEXTS.values()}
    assert not any(o.text for o in found)


def test_a_line_is_of_the_model_and_without_its_folders():
    trace = '  File "/home/ann/model.py", line 7, in forward\n    x = self.f(x)\n'
    for torchs in ("/usr/lib/python3/dist-packages/torch/", "/home/ann/pytorch/torch/"):
        inner = f'  File "{torchs}nn/functional.py", line 9, in relu\n    return g(x)\n'
        assert lines_in(trace + inner) == [("/home/ann/model.py", "7", "x = self.f(x)")]
    assert lines_in(trace.replace("    x = self.f(x)\n", "") + trace)[0][2] == ""
    assert file_line("C:\\ann\\model.py", 7) == file_line("/ann/model.py", 7) == "model.py:7"
    assert file_line("/ann/mo\x1bdel.py", 7) == "mo\\u001bdel.py:7"
