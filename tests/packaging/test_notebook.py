"""A real kernel shows live modules, recordings and differences, in every way that the docs name."""

import json
from pathlib import Path

import pytest

from notebooks.kernel import kernel
from notebooks.outputs import drawn_outputs, theme_of
from place import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.browser]

BOOK = ROOT / "docs" / "notebooks" / "find-a-fault.ipynb"
RECORDED = """
with relascope.recording() as run:
    relax.transform.FoldConstant()(Module)
run
"""
RELAY = """
from relascope.engine.relay.tvm.boot import boot
boot()
import relascope
import tvm
from tvm import relay
x, w = (relay.var(n, shape=(8, 8)) for n in "xw")
mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
"""


def page_of(book, folder, jupyter_light):
    """A saved notebook as Jupyter shows it again."""
    outputs = (o["data"] for c in book["cells"] for o in c.get("outputs", ()) if "data" in o)
    html = "".join("".join(data["text/html"]) for data in outputs if "text/html" in data)
    path = folder / f"{jupyter_light}.html"
    path.write_text(f'<!doctype html><body data-jp-theme-light="{jupyter_light}">{html}</body>')
    return path


@pytest.mark.exhaustive
def test_the_notebook_of_the_docs_finds_its_fault_and_is_drawn_again_where_it_was_saved(
    chromium, tmp_path
):
    book = json.loads(BOOK.read_text(encoding="utf-8"))
    codes = [c for c in book["cells"] if c["cell_type"] == "code"]
    assert all(c["outputs"] == [] and c["execution_count"] is None for c in codes)
    with kernel(tmp_path) as running:
        done = [running.ran("".join(c["source"])) for c in codes]
        more = running.ran(RECORDED)
    for cell, shown in zip(codes, done, strict=True):
        cell["outputs"] = [{"output_type": "display_data", "data": b} for b in shown.bundles]
    _, module, recorded, bisected, difference = done
    assert "DecomposeOps, makes it wrong" in bisected.printed
    assert module.bundles[0]["text/plain"].startswith("<relascope graph 'main' (relax)")
    assert "<relascope recording" in recorded.bundles[-1]["text/plain"]
    assert "<relascope difference" in difference.bundles[0]["text/plain"]
    assert "<iframe" in more.html
    saved = tmp_path / "saved.ipynb"
    saved.write_text(json.dumps(book))
    for light in (True, False):
        path = page_of(json.loads(saved.read_text()), tmp_path, str(light).lower())
        with drawn_outputs(chromium, path) as frames:
            graph, run, changed = frames
            assert {theme_of(frame) for frame in frames} == {"light" if light else "dark"}
            assert graph.locator(".count").inner_text().startswith("9 nodes")
            titles = run.locator(".row .title").all_text_contents()
            assert titles == ["DecomposeOps", "FoldConstant", "EliminateCommonSubexpr"]
            before, after = changed.locator(".legend").all_inner_texts()
            assert "removed" in before and "added" in after


def test_relay_is_shown_in_each_way_and_failing_cells_are_shown_with_their_recording(tmp_path):
    with kernel(tmp_path) as running:
        assert "(relay), 4 nodes" in str(running.ran(RELAY + "relascope.show(mod)").bundles)
        running.ran("build = lambda: relay.build(mod, 'llvm')")
        assert running.ran("with relascope.recording() as run:\n    build()\nrun").html
        shown = running.ran("relascope.show(run)")
        assert "recording 'run.rsc'" in shown.bundles[0]["text/plain"] and shown.html
        running.ran("%load_ext relascope")
        assert running.ran("%%relascope record other -o kept.rsc --level text\nbuild();").html
        assert (tmp_path / "kept.rsc").stat().st_size > 10_000
        same = running.ran("relascope.show(relascope.diff(mod, mod))").bundles[0]
        assert "They are the same." in same["text/plain"]
        assert "kept.rsc" in running.ran("relascope.diff(run, other)").html
        failed = running.run("%%relascope record bad\nrelay.transform.InferType()(3)")
        assert failed.error and "The recorded cell failed" in failed.printed and failed.html
        assert running.ran("bad").html
        wrong = running.run("%%relascope recrd\n1")
        assert "invalid choice: 'recrd'" in wrong.error and not wrong.bundles
        nowhere = running.run("%%relascope record -o none/x.rsc\nprint('run')")
        assert "Nothing is recorded" in nowhere.printed and "run\n" not in nowhere.printed
        code = "with relascope.recording() as alone:\n    build()\nprint(alone)"
        path = Path(running.ran(code).printed.strip())
        assert path.stat().st_size > 10_000
        running.ran("del alone")
        assert not path.exists()
