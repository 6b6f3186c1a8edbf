"""What is handed on, and files for other programs: complete, well-formed, safe, in the palette's
colours, and small where steps say the same."""

import base64
import csv
import io
import json
import re
import xml.etree.ElementTree as ET
import zipfile
import zlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from answers import refused
from crafted.recorded import HOSTILE, recorded
from graphs import chain, drawn_boxes, fused, graph_of, joint, random_graph, transformer
from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind, Node, Role, TensorType
from relascope.viz.drawing import palette
from relascope.viz.drawing.drawing import View
from relascope.viz.drawing.modules import fold_constants, module_groups
from relascope.viz.handed_on import formats, sheet
from relascope.viz.handed_on.graphs import to_svg
from relascope.viz.handed_on.interchange import to_dot, to_json_text
from relascope.viz.handed_on.notebook import diff, show
from relascope.viz.handed_on.sheet import SIGN, Sheet, pooled
from relascope.viz.rows import archive
from relascope.viz.rows.artefact import zipped
from relascope.viz.rows.timings import csv_text

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "</script><script>alert(1)</script>&\"'<!-- \x01\x0b\ud800"


def _nasty() -> Graph:
    kind = (TensorType((2, 3), "float32"),)
    x = Node("x" + NASTY, Kind.INPUT, name=NASTY, outputs=kind)
    y = Node("y", Kind.CALL, NASTY, attrs={"a": NASTY}, inputs=(x.id,), outputs=kind, scope=NASTY)
    z = Node("z", Kind.CALL, "exp", inputs=("y",), outputs=kind, scope=NASTY)
    return Graph(NASTY, "relay", (x, y, z), (x.id,), ("z",))


def test_an_ending_says_the_format_and_the_longest_counts():
    for stem, ending in (("m", ".html"), ("m", ".explorer.json"), ("m", ".json"), ("A.", ".HTML")):
        assert formats.ending_of(stem + ending, formats.FORMATS) == ending.lower()
    with refused(match="ending of the file's name", hint=".explorer.json"):
        formats.ending_of("model.docx", formats.FORMATS)


@pytest.mark.parametrize(
    "graph", [transformer(2), joint(), _nasty()], ids=("plain", "joint", "odd")
)
def test_svg_has_each_box_and_edge_with_text_as_text(graph):
    for opened in (None, ()):
        root = ET.fromstring(to_svg(graph, View(open_groups=opened), "dark"))
        folded = fold_constants(graph)
        tree = module_groups(folded)
        first = tree.open_at_first() if opened is None else ()
        sizes = {g.get("class"): len(g) for g in root}
        assert (sizes["nodes"], sizes["modules"]) == (drawn_boxes(tree, first), len(first))
        assert any("input" in (t.text or "") for t in root.iter(f"{SVG}text"))  # the legend
    assert not list(root.iter(f"{SVG}foreignObject"))


def test_svg_says_forward_captured_and_backward_without_its_colours():
    """By bars at the left, both sides and the right, whatever else the colour says."""
    graph = joint()
    added = next(n.id for n in graph if n.role is Role.BACKWARD and n.kind is Kind.CALL)
    opened = View(open_groups=tuple(module_groups(fold_constants(graph)).groups))
    light = palette.STYLES["light"]

    def extent(path: str) -> list[tuple[float, float]]:
        """Across and down, where a path begins and ends."""
        points = [p.split()[-2:] for p in re.findall(r"[A-Z]([\d. ]+)", path)]
        across, down = ([float(p[at]) for p in points] for at in (0, 1))
        return [(min(across), max(across)), (min(down), max(down))]

    def bars(text: str, title: str) -> list[tuple[str, str]]:
        """Side and colour of each bar of the first box that is called so."""
        groups = ET.fromstring(text).iter(f"{SVG}g")
        box = next(g for g in groups if (g.findtext(f"{SVG}title") or "").startswith(title))
        outline, *others = box.iter(f"{SVG}path")
        (left, right), height = extent(outline.get("d", ""))
        found = []
        for path in (p for p in others if p.get("stroke") is None):
            for one in path.get("d", "").removesuffix("Z").split("Z"):
                across, down = extent(one)
                if down == height:  # and no count of captures
                    assert (across[0] == left) != (across[1] == right)
                    where = "left" if across[0] == left else "right"
                    found.append((where, path.get("fill", "")))
        return found

    whole = to_svg(graph, opened)
    for title, role, sides in (
        ("transpose", "forward", ["left"]),
        ("nn.batch_matmul", "captured", ["left", "right"]),
        (graph.by_id[added].title, "backward", ["right"]),
    ):
        assert bars(whole, title) == [(side, light[role].stroke) for side in sides], title
    # An added node is green and dashed or marked, and still of the backward.
    changed = to_svg(graph, replace(opened, highlight={added: "added"}))
    assert bars(changed, graph.by_id[added].title) == [("right", light["backward"].stroke)]
    assert ">+</text>" in changed
    closed = to_svg(graph, View(open_groups=()))  # what is captured in a module is its bar, too
    both = [("left", light["forward"].stroke), ("right", light["captured"].stroke)]
    assert bars(closed, "forward") == both


def test_a_legend_is_inside_the_picture_and_types_come_on_demand():
    graph = transformer(1)
    plain, typed = to_svg(graph), to_svg(graph, View(show_shapes=True))
    last = max(float(t.get("y")) for t in ET.fromstring(plain).iter(f"{SVG}text"))
    assert last < formats.size_of(plain)[1]
    assert typed.count("<text") > plain.count("<text")


def test_png_and_pdf_are_what_they_are_called_and_too_large_is_refused():
    graph = transformer(1)
    png = formats.graph_file(".png", graph)
    assert png.startswith(b"\x89PNG")
    wide, _ = formats.size_of(to_svg(graph))
    assert int.from_bytes(png[16:20], "big") == pytest.approx(2 * wide, abs=2)
    assert formats.graph_file(".pdf", graph).startswith(b"%PDF")
    huge = '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="90000"></svg>'
    with pytest.raises(EngineError, match="too many to be readable"):
        formats.picture(".png", huge)


def test_model_explorer_gets_each_node_in_its_modules():
    graph = transformer(1)
    collection = json.loads(formats.graph_file(".explorer.json", graph))
    assert set(collection) == {"label", "graphs"}
    (made,) = collection["graphs"]
    folded = fold_constants(graph)
    assert [n["id"] for n in made["nodes"]] == [n.id for n in folded]
    tree = module_groups(folded)
    for node in made["nodes"]:
        sources = [e["sourceNodeId"] for e in node["incomingEdges"]]
        assert sources == list(folded.by_id[node["id"]].edges)
        path = tree.path(tree.group_of[node["id"]])
        assert len(node["namespace"].split("/")) == max(len(path), 1)


def test_long_texts_stand_once_and_come_back():
    long = "0.123456789 " * 40
    blocks = [{"a": [long, "b"], "n": 3}, {"c": {"d": long}, "e": f"{SIGN}7"}]
    pool, made = pooled(blocks)
    assert pool.count(long) == 1
    assert long not in json.dumps(made)

    def filled(value):
        if isinstance(value, str):
            return pool[int(value[1:])] if value.startswith(SIGN) else value
        if isinstance(value, dict):
            return {k: filled(v) for k, v in value.items()}
        return [filled(v) for v in value] if isinstance(value, list) else value

    blocks[1]["e"] = r"\u00017"  # which is no place in the pool
    assert [filled(m) for m in made] == blocks


def test_names_cannot_end_the_script_or_leave_the_page():
    file = Sheet(NASTY, {"model": NASTY}, [NASTY])
    file.tab("one", NASTY, [sheet.sections.table(NASTY, [{"a": NASTY}]), sheet.sentence(NASTY)])
    text = formats.graph_file(".html", _nasty(), sheet=lambda: file).decode()
    assert "alert" not in text.replace(sheet.escape(NASTY), "").replace("alert(1)&lt;", "")
    assert len(re.findall("</script>", text)) == len(re.findall("<script", text))
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert not re.search(r"\b(?:src|href)=", text.partition("<script>")[0])
    assert not re.search(r"eval\(|new Function", text)


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.mark.parametrize("ending", sorted({*formats.FORMATS} - {".png", ".pdf", ".json"}))
def test_control_characters_are_seen_in_every_format(ending):
    name = "a\x1b[31m\rb\t\x85\u202ec"
    x = Node("x\x1b", Kind.INPUT, name=name, outputs=(TensorType((2,), "float32"),))
    y = Node("y", Kind.CALL, name, attrs={"a": name}, inputs=(x.id,), outputs=x.outputs, scope=name)
    graph = Graph(name, "relay", (x, y), (x.id,), ("y",))
    text = formats.graph_file(ending, graph).decode()
    shown = json.dumps(_blocks(text), ensure_ascii=False) if ending == ".html" else text
    assert not CONTROL.search(re.sub(r"(?<=\")\\\\u0001\d+(?=\")", "", shown))
    assert "u001b[31m" in shown


def test_a_cell_of_a_table_is_no_formula():
    cells = ["=cmd|'/c calc'!A1", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "a=1", "-1.5", -1.5]
    written = ["'=cmd|'/c calc'!A1", "'+1", "'-1+2", "'@SUM(A1)", r"\t=1", r"\r=1", "a=1", "-1.5"]
    text = csv_text([{"a": cell} for cell in cells], ["a"])
    assert [row[0] for row in csv.reader(io.StringIO(text))][1:] == [*written, "-1.5"]


def _blocks(text: str) -> dict[str, object]:
    data = json.loads(re.search(r'application/x-relascope">([^<]*)<', text)[1])
    found = data["blocks"].items()
    return {name: json.loads(zlib.decompress(base64.b64decode(packed))) for name, packed in found}


def test_a_recordings_page_has_each_pass_and_what_it_did_once(tmp_path):
    text = show(recorded(tmp_path / "run.rsc", passes=40)).html()
    blocks = _blocks(text)
    pool = blocks.pop("pool")

    def told(value):
        return pool[int(value[1:])] if value.startswith(SIGN) else value

    passes, times = blocks["index"]["tabs"]
    (section,) = passes["sections"]
    assert len(section["rows"]) == 46 and section["chosen"] == 45
    details = blocks[str(section["block"])]
    titles = [told(row["title"]) for row in section["rows"]]
    assert titles[1:4] == ["FoldTranspose", "InferType", HOSTILE]
    ((name, words, graph, texts),) = details[1]["functions"]
    assert (told(name), told(words)) == ("main", "main: changed")
    assert blocks[str(graph)]["picture"] and blocks[str(texts)]["changed"] == 3
    assert details[2]["functions"][0][1] == "main: unchanged"
    assert details[3]["functions"][0][0::2] == ["kernel", None]
    assert "no axis 7 here" in told(details[45]["said"][0]["text"])
    # 40 passes that change the same to and fro have two blocks of texts among them.
    assert len({d["functions"][0][3] for d in details[5:45]}) == 2
    assert told(times["sections"][1]["rows"][0][0]) == "FoldTranspose"
    assert HOSTILE not in text


def test_what_is_missing_of_a_recording_is_said_on_its_page(tmp_path):
    path = recorded(tmp_path / "run.rsc")
    whole = path.read_text()
    path.write_text(whole + '{"stopped": "No space left on device"}\n{"begin": 6, "na')
    said = _blocks(show(path).html())["index"]["caveats"]
    assert "in the middle of a line" in said[0] and "No space left on device" in said[1]
    path.write_text("{}")
    for place, wrong in {str(path): "is not a recording", "/nowhere": "cannot be read"}.items():
        with refused(match=wrong):
            show(place)


def test_what_is_shown_in_a_notebook_stands_in_a_frame_of_its_own(tmp_path):
    shown = show(transformer(1))
    frame = shown._repr_html_()
    assert frame.startswith("<style>") and frame.count("<iframe ") == 1
    assert "allow-same-origin" not in frame
    assert len(re.findall(r'(?<!=)"', frame.partition('srcdoc="')[2].partition('"')[0])) == 0
    assert shown.save(tmp_path / "a.svg").read_text().startswith("<svg")
    for name, wrong in {"missing/a.svg": "Cannot write", "a": "ending of the file's name"}.items():
        with refused(match=wrong):
            shown.save(tmp_path / name)
    for strange in (3, SimpleNamespace(), None):
        with refused("usage"):
            show(strange)
    assert "3 nodes" in repr(show(replace(_nasty(), name="main")))


def _differing() -> tuple[Graph, Graph]:
    """A graph, and the same with another function in it and one more at its end."""
    one = transformer(1)
    sort = next(n.op for n in one if n.op.endswith("softmax"))
    nodes = [replace(n, op="nn.log_softmax") if n.op == sort else n for n in one]
    last = replace(one.by_id[one.outputs[0]], id="last", op="negative", inputs=one.outputs[:1])
    return one, replace(one, nodes=(*nodes, last), outputs=("last",))


def test_two_graphs_are_drawn_beside_each_other_in_the_colours_of_what_differs():
    one, other = _differing()
    shown = diff(one, other)
    assert show(shown) is shown
    counts = shown.document["end"]["counts"]
    assert (counts["changed"] > 0, counts["added"], counts["removed"]) == (True, 1, 0)
    blocks = _blocks(shown.html())
    (tab,) = blocks["index"]["tabs"]
    said, _, *graphs, nodes = tab["sections"][:5]
    assert said["text"] == shown.document["verdict"] and said["text"] in repr(shown)
    assert len(nodes["ids"]) == len(nodes["rows"]) == counts["changed"] + 1
    for side, own in enumerate(("removed", "added")):
        drawn = blocks[str(graphs[side]["block"])]["node"]
        styles = dict(zip(drawn["id"], drawn["style"], strict=True))
        marked = {i: s for i, s in styles.items() if s in ("added", "changed", "removed")}
        assert {ids[side] for ids in nodes["ids"]} - {None} == marked.keys()
        assert list(marked.values()).count(own) == side  # only B has one of its own
    assert diff(one, one).document["same"]
    # Also of two IRs.
    (tab,) = _blocks(diff(one, replace(other, ir="relax")).html())["index"]["tabs"]
    assert [s["kind"] for s in tab["sections"]].count("graph") == 2
    with refused("usage"):
        diff(one, 3)


def test_recordings_are_shown_where_they_part_and_what_has_no_graph_is_said(tmp_path):
    one = recorded(tmp_path / "a.rsc")
    other = recorded(tmp_path / "b.rsc", folded=False)
    blocks = _blocks(diff(one, other).html())
    titles = [t["title"] for t in blocks["index"]["tabs"]]
    assert titles == ["The first difference", "The end", "Steps"]
    assert "After FoldTranspose: The programs differ." in str(blocks)
    bare = recorded(tmp_path / "c.rsc", graphs=False)
    tabs = _blocks(diff(bare, transformer(1)).html())["index"]["tabs"]
    assert [t["title"] for t in tabs] == ["Steps"]
    assert "nodes are not compared" in str(tabs)
    with refused("usage", match="many graphs"):
        show(one, overlay=len)
    same = _blocks(diff(one, one).html())["index"]["tabs"]
    assert [t["title"] for t in same] == ["The end"]


def test_an_archive_of_equal_files_is_equal_and_small():
    text = "a line\n" * 1000
    one, other = (archive({"a/b.txt": text, "c": b"d"}) for _ in range(2))
    assert one == other and len(one) < 500
    with zipfile.ZipFile(io.BytesIO(one)) as opened:
        assert opened.read("a/b.txt").decode() == text and opened.read("c") == b"d"


def _nodes(dot: str) -> list[str]:
    return re.findall(r"^\s*n\d+ \[.*$", dot, re.M)


def _outside(dot: str) -> str:
    """What stands outside texts, where brackets balance."""
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", dot)
    assert '"' not in outside
    assert all(outside.count(a) == outside.count(b) for a, b in ("{}", "[]"))
    return outside


@pytest.mark.parametrize("graph", [transformer(2), joint(), random_graph(4)], ids=lambda g: g.name)
def test_dot_has_every_node_edge_and_module(graph):
    dot = to_dot(graph)
    folded = fold_constants(graph)
    assert len(_nodes(dot)) == len(folded)
    assert len(re.findall(r"^\s*n\d+ -> n\d+", dot, re.M)) == folded.edge_count
    assert len(re.findall(r"subgraph cluster_\d+", dot)) == len(module_groups(folded).groups)
    assert _outside(dot)


def test_dot_has_ellipses_for_inputs_the_palettes_colours_roles_and_crossings():
    for theme in ("light", "dark"):
        dot = to_dot(transformer(), theme=theme)
        mask = next(n for n in _nodes(dot) if "attention_mask" in n)
        softmax = next(n for n in _nodes(dot) if "softmax" in n)
        assert "shape=ellipse" in mask and palette.STYLES[theme]["input"].fill in mask
        assert "shape=ellipse" not in softmax
    dot = to_dot(joint())
    fills = [palette.STYLES["light"][role].fill for role in ("forward", "captured", "backward")]
    # Labels read in grey.
    for sign in ('label="▌nn.batch_matmul ▐', 'label="▌transpose', 'label="sum ▐', *fills):
        assert sign in dot
    graph = fold_constants(joint())
    assert any("penwidth=2.6" in line for line in _nodes(dot))
    numbers = {n.id: f"n{i}" for i, n in enumerate(graph.nodes)}
    blue = re.findall(rf'(n\d+) -> (n\d+) \[.*"{palette.SURFACES["light"]["crossing"]}"', dot)
    captured = {numbers[n.id] for n in graph.nodes if n.role.value in ("captured", "forward")}
    assert blue and {a for a, _ in blue} <= captured


def test_labels_have_constants_shapes_on_demand_and_what_is_fused_in_order():
    for text, more in (
        ("(·, 4.0)", {"fewer_than": 0}),
        ("float32[1, 4, 14, 14]", {"shapes": True}),
    ):
        usual, other = (text in to_dot(transformer(), **how) for how in ({}, more))
        assert (usual, other) == ("shapes" not in more, "shapes" in more)
    for said in ("dense + add + relu", "3 nodes fused", "peripheries=2"):
        assert said in to_dot(fused())


KIND = (TensorType((2, 4), "float32"),)


def test_names_are_text_whatever_they_hold():
    x = Node("x:1", Kind.INPUT, name='a"b\\n{c}<d>', outputs=KIND)
    relu = Node("n1", Kind.CALL, "nn.relu", "", {"attr": 'q"\\'}, ("x:1",), KIND)
    dot = to_dot(graph_of([x, relu], name='na"me'))
    assert "{c}" not in _outside(dot)
    assert len(_nodes(dot)) == 2 and "n0 -> n1" in dot
    about = {"outputs": KIND, "scope": "<img src=x onerror=alert(1)>"}
    nodes = [Node("<u>", Kind.INPUT, name="<i>x</i>", **about)]
    nodes.append(Node("n1", Kind.CALL, "nn.relu", inputs=("<u>",), **about))
    dot = to_dot(graph_of(nodes, "<u>", name="<b>"))
    assert 'label="<i>x</i>' in dot and 'label="<img src=x onerror=alert(1)>' in dot
    assert not re.search(r"=<|^digraph <", dot, re.M)


def test_json_text_reads_back_equal():
    for graph in (joint(2), chain(20_000)):
        assert Graph.from_json(json.loads(to_json_text(graph))) == graph


def test_no_kernels_code_is_lost_where_names_of_files_are_equal():
    named = (SimpleNamespace(phase="forward", name=n, code=(("llvm", n),)) for n in ("a b", "a_b"))
    packed = zipped(SimpleNamespace(kernels=[*named]))
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        assert [file.read(n) for n in file.namelist()] == [b"a b\na_b\n"]
