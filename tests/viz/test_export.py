"""Files for other programs: complete, well-formed, with the palette's colours."""

import io
import json
import re
import zipfile
from types import SimpleNamespace

import pytest

from graphs import Builder, chain, fused, joint, random_graph, transformer
from relascope.core.graph import Graph, Kind
from relascope.viz.drawing import palette
from relascope.viz.drawing.modules import fold_constants, module_groups
from relascope.viz.handed_on.interchange import to_dot, to_json_text
from relascope.viz.rows.artefact import zipped


def _nodes(dot: str) -> list[str]:
    return re.findall(r"^\s*n\d+ \[.*$", dot, re.M)


def _edges(dot: str) -> list[tuple[str, str]]:
    return re.findall(r"^\s*(n\d+) -> (n\d+)", dot, re.M)


@pytest.mark.parametrize("graph", [transformer(2), joint(), random_graph(4)], ids=lambda g: g.name)
def test_dot_has_every_node_edge_and_module(graph):
    dot = to_dot(graph)
    folded = fold_constants(graph)
    assert len(_nodes(dot)) == len(folded)
    assert len(_edges(dot)) == folded.edge_count
    assert len(re.findall(r"subgraph cluster_\d+", dot)) == len(module_groups(folded).groups)
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", dot)  # brackets balance outside texts
    assert outside.count("{") == outside.count("}")
    assert outside.count("[") == outside.count("]")
    assert '"' not in outside


def test_dot_draws_inputs_as_ellipses_in_the_palettes_colours():
    for theme in ("light", "dark"):
        dot = to_dot(transformer(), theme=theme)
        mask = next(line for line in _nodes(dot) if "attention_mask" in line)
        assert "shape=ellipse" in mask
        assert palette.STYLES[theme]["input"].fill in mask
        assert "shape=ellipse" not in next(line for line in _nodes(dot) if "softmax" in line)


def test_dot_shows_roles_and_crossings():
    dot = to_dot(joint())
    light = palette.STYLES["light"]
    for role in ("forward", "captured", "backward"):
        assert light[role].fill in dot
    graph = fold_constants(joint())
    for sign in ('label="▌nn.batch_matmul ▐', 'label="▌transpose', 'label="sum ▐'):
        assert sign in dot  # reads in grey
    assert any("penwidth=2.6" in line for line in _nodes(dot))
    numbers = {n.id: f"n{i}" for i, n in enumerate(graph.nodes)}
    blue = re.findall(rf'(n\d+) -> (n\d+) \[.*"{palette.SURFACES["light"]["crossing"]}"', dot)
    assert blue
    captured = {numbers[n.id] for n in graph.nodes if n.role.value in ("captured", "forward")}
    assert {a for a, _ in blue} <= captured


def test_labels_have_constants_shapes_on_demand_and_what_is_fused_in_order():
    assert "(·, 4.0)" in to_dot(transformer())
    assert "(·, 4.0)" not in to_dot(transformer(), fewer_than=0)
    assert "float32[1, 4, 14, 14]" not in to_dot(transformer())
    assert "float32[1, 4, 14, 14]" in to_dot(transformer(), shapes=True)
    dot = to_dot(fused())
    for said in ("dense + add + relu", "3 nodes fused", "peripheries=2"):
        assert said in dot


def test_names_are_text_whatever_they_hold():
    b = Builder('na"me')
    x = b.add(Kind.INPUT, name='a"b\\n{c}<d>', id="x:1")
    dot = to_dot(b.graph(b.call("nn.relu", x, attr='q"\\')))
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", dot)
    assert '"' not in outside
    assert "{c}" not in outside
    assert len(_nodes(dot)) == 2
    assert _edges(dot) == [("n0", "n1")]
    b = Builder("<b>")
    b.scope = "<img src=x onerror=alert(1)>"
    b.call("nn.relu", b.add(Kind.INPUT, name="<i>x</i>", id="<u>"))
    dot = to_dot(b.graph("<u>"))
    assert 'label="<i>x</i>' in dot and 'label="<img src=x onerror=alert(1)>' in dot
    assert not re.search(r"=<|^digraph <", dot, re.M)


def test_json_text_reads_back_equal():
    graph = joint(2)
    assert Graph.from_json(json.loads(to_json_text(graph))) == graph
    deep = chain(20_000)
    assert Graph.from_json(json.loads(to_json_text(deep))) == deep


def test_no_kernels_code_is_lost_where_names_of_files_are_equal():
    kernels = [
        SimpleNamespace(phase="forward", name=n, code=(("llvm", n),)) for n in ("a b", "a_b")
    ]
    packed = zipped(SimpleNamespace(kernels=kernels))
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        assert [file.read(n) for n in file.namelist()] == [b"a b\na_b\n"]
