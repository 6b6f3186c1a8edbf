"""Colours by a function of one's own: the example of the docs, and what cannot be shown."""

import math
import re
from xml.etree import ElementTree

import pytest

from answers import refused
from command_line import document, run
from graphs import transformer
from place import ROOT
from relascope.commands import shared
from relascope.core.graph import Graph
from relascope.core.own_code import node_values, run_overlays

GIVEN = ("graph", "mlp", "--engine", "relax", "--overlay")
WORD = "def depth(graph): return "


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The function that the documentation shows."""
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = text.partition("#### Colours of your own")[2]
    path = tmp_path_factory.mktemp("own") / "depth.py"
    path.write_text(re.search("```python\n(.*?)```", section, re.DOTALL)[1])
    return path


def longest(graph: Graph) -> dict[str, int]:
    found = {}
    for node in graph:
        found[node.id] = 1 + max((found[i] for i in node.edges), default=-1)
    return found


@pytest.mark.engine
def test_the_docs_example_has_five_lines_and_colours_a_picture_with_a_legend(example, tmp_path):
    assert len(example.read_text().splitlines()) == 5
    plain, coloured = tmp_path / "plain.svg", tmp_path / "coloured.svg"
    found = document(*GIVEN, str(example), "-o", str(coloured), real=True)
    rows = found["overlays"]["depth"]
    depths = longest(Graph.from_json(found["graph"]))
    assert {r["id"]: r["value"] for r in rows} == depths
    assert [r["value"] for r in rows] == sorted(depths.values(), reverse=True)
    assert "overlays" not in document(*GIVEN[:-1], "-o", str(plain), real=True)
    pictures = (ElementTree.parse(p).iter() for p in (coloured, plain))
    texts = ((e for e in picture if e.tag.endswith("text")) for picture in pictures)
    told, before = (["".join(e.itertext()) for e in some] for some in texts)
    assert "depth" in told and told[-1].endswith(f" to {max(depths.values())}")
    assert "depth" not in before
    assert f"0 to {max(depths.values()) ** 0.25:.3g}" in told  # ratios begin at the least above 0
    table = run(*GIVEN, str(example), real=True).stdout.partition("depth:\n")[2].splitlines()
    assert table[0].split() == ["value", "node", "module", "id"]
    assert table[2].split()[0] == str(max(depths.values()))


REFUSED = {
    "def depth(program): return {}": "no public function whose argument is `graph`",
    "def _depth(graph): return {}": "no public function",
    "def depth(graph, more): return {}": "no public function",
    "def depth(graph:": "own.py is not Python: '(' was never closed",
    "return 1\n" + WORD + "{}": "own.py raised SyntaxError: 'return' outside function",
    "import nonsuch\n" + WORD + "{}": "own.py raised ModuleNotFoundError",
    "import sys\nsys.exit(3)\n" + WORD + "{}": "own.py raised SystemExit: 3",
    WORD + "[1]": "The values that depth returned are not shown: list is not a dict",
    WORD + "{'a': 1, 'b': 2}": "2 keys are not node ids, such as 'a'",
    WORD + "{n.id: n.outputs for n in graph}": "has tuple, not a float or a text",
    WORD + "{n.id: 10**400 for n in graph}": "has int, not a float or a text",
    WORD + "{n: 1 for n in graph}": "unhashable type",
    "def depth(graph):\n    raise ValueError('no')": "depth raised ValueError: no",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_overlay_is_refused_in_words(text):
    with refused("usage", says=REFUSED[text]) as caught:
        run_overlays(transformer(1), "mine/own.py", text)
    assert "own.py" in caught.value.where
    assert caught.value.hint or "raised" in REFUSED[text]


def test_the_line_that_raises_is_named_and_values_are_numbers_and_texts_and_nothing_for_none():
    with refused(where="own.py, line 2"):
        run_overlays(transformer(1), "own.py", "def depth(graph):\n    return {}['a']\n")
    graph = transformer(1)
    first, second, third, *_ = (n.id for n in graph)
    given = {first: True, second: math.inf, third: None}
    assert node_values(graph, lambda graph: given) == {first: True, second: math.inf}


@pytest.mark.engine
def test_the_command_says_it_and_writes_nothing(example, tmp_path):
    own, secret, table, page = (tmp_path / n for n in ("own.py", "secret", "n.dot", "page.html"))
    secret.write_text("1")
    own.write_text(WORD + f"{{n.id: open({str(secret)!r}).read() for n in graph}}")
    for given, words in (
        ((own, "-o", page), "depth raised PermissionError"),  # by the sandbox
        ((tmp_path / "none.py",), "none.py cannot be opened: No such file"),
        ((tmp_path,), "cannot be opened: Is a directory"),
        ((example, "-o", table), "A file that ends in .dot cannot show an overlay"),
    ):
        done = run(*GIVEN, *map(str, given), real=True)
        assert done.returncode in (1, 2) and words in done.stderr
    assert not table.exists() and not page.exists()


@pytest.mark.engine
def test_a_function_that_never_ends_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "_OWN_CODE", 1.0)
    own = tmp_path / "own.py"
    own.write_text("def depth(graph):\n    while True:\n        pass\n")
    done = run(*GIVEN, str(own), real=True)
    assert done.returncode == 2 and "--limit-seconds" in done.stderr
    assert "own.py took longer than 1 s, the limit, and was stopped" in done.stderr
