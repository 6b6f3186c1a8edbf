"""What the viewer's pictures are worth, and how fast they are there.

    python bench/browser/viewer.py [--samples bert_layer mlp] [--no-speed] [--no-pictures]

For each sample, in both IRs: the forward, the joint graph, and the forward and backward functions
in its places, all their modules open; each step of the inference pipeline with the layout kept,
first to last. It prints edges that run through a node which they do not touch, boxes that overlap,
and crossings; beside them, for `bert_layer`, those of Graphviz's `dot` for the same graph with its
modules as clusters, where that is installed. Then, in Chromium: how high the smallest title of a
module is at Fit, in a window of 1280 by 900; from a block that is there to the first picture, and
opening a group, for made graphs of 6,000 and 100,000 nodes, with modules and without; and what
the tab's process and JavaScript's heap then hold. In brackets stand the milliseconds that the tab's
main thread had of a core, for figures of a busy machine are too high.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.append(str(Path(__file__).resolve().parents[1]))

import common

from browser import browsing
from graphs import Builder, transformer
from relascope.core.graph import Graph, Kind
from relascope.engine.client import EngineClient
from relascope.engine.jobs import cut as cutting
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts import cut as cuts
from relascope.viz.drawing import javascript
from relascope.viz.drawing.drawing import View, drawing_of
from relascope.viz.drawing.export import to_dot
from relascope.viz.drawing.layout import flaws, layout
from relascope.viz.drawing.modules import fold_constants, module_groups
from relascope.viz.drawing.union import Union

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Row = dict[str, Any]
VIEWER = javascript.VIEWER.parent
WIDE, HIGH = 1280, 900


def main() -> int:
    """Print the figures; 1 where an edge runs through a node or boxes overlap."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--samples", nargs="*", default=["bert_layer", "gpt2_block", "mlp"])
    parser.add_argument("--no-speed", action="store_true", help="the pictures alone")
    parser.add_argument("--no-pictures", action="store_true", help="the speed alone")
    args = parser.parse_args()
    rows: list[Row] = []
    if not args.no_pictures:
        for ir in ("relay", "relax"):
            with EngineClient(ir) as client:
                for sample in args.samples:
                    rows += _pictures(client, ir, sample)
        common.table(rows)
    if not args.no_speed:
        common.table(list(_speed()))
    return int(any(row["through"] or row["overlaps"] for row in rows))


def _pictures(client: EngineClient, ir: str, sample: str) -> Iterator[Row]:
    source, pipeline = ModelSource(sample), default_pipeline(ir, False)
    client.call("load", source)
    client.call("step", source, pipeline)
    steps = [client.call("graph_after", source, pipeline, i) for i in range(-1, len(pipeline))]
    training = ModelSource(sample, training=True)
    joint_pipeline = default_pipeline(ir, True)
    client.call("load", training)
    joint = cutting.joint_of(client.call, training, joint_pipeline)
    cut = cuts.cut(joint)
    coloured = joint.graph.with_roles(cuts.roles(joint, cut.ids))
    split = client.call("split", training, joint_pipeline, cut.ids)
    yield _judged(ir, sample, "forward", steps[0], dot=sample == "bert_layer")
    yield _judged(ir, sample, "joint", coloured, dot=sample == "bert_layer")
    for name, part in (("forward function", split.forward), ("backward function", split.backward)):
        union = Union()
        for graph in (coloured, part):
            union.add(fold_constants(graph))
        yield _judged(ir, sample, name, part, union)
    union = Union()
    kept = []
    for graph in steps:
        union.add(fold_constants(graph))
        kept.append(_judged(ir, sample, "steps, kept", graph, union))
    sums = {k: sum(row[k] for row in kept) for k in ("through", "overlaps", "crossings")}
    yield {**kept[-1], **sums, "graph": f"{len(kept)} steps, kept"}


def _judged(
    ir: str, sample: str, name: str, graph: Graph, union: Union | None = None, dot: bool = False
) -> Row:
    folded = fold_constants(graph)
    groups = (union.graph()[1] if union else module_groups(folded)).groups
    drawn = layout(folded, groups, union=union)
    through, overlaps, crossings = flaws(drawn)
    return {
        "ir": ir,
        "sample": sample,
        "graph": name,
        "nodes": len(folded),
        "through": len(through),
        "overlaps": len(overlaps),
        "crossings": crossings,
        "dot": _dots(graph) if dot else "",
        "size": f"{drawn.width:.0f} x {drawn.height:.0f}",
    }


def _dots(graph: Graph) -> int | str:
    """How many crossings Graphviz leaves; its curves are cubics, cut into straight pieces."""
    if not (dot := shutil.which("dot")):
        return "not installed"
    done = subprocess.run([dot, "-Tplain"], input=to_dot(graph), capture_output=True, text=True)
    lines, ends = [], []
    for line in done.stdout.splitlines():
        word, *rest = line.split()
        if word == "edge":
            count = int(rest[2])
            numbers = list(map(float, rest[3 : 3 + 2 * count]))
            points = list(zip(numbers[::2], numbers[1::2], strict=True))
            lines.append([v for point in _pieces(points) for v in point])
            ends.append(rest[:2])
    asked = {"lines": lines, "s": [s for s, _ in ends], "t": [t for _, t in ends]}
    return int(javascript.call("layout/outside", "crossingsOutside", asked))


def _pieces(points: list[tuple[float, float]], steps: int = 8) -> list[tuple[float, float]]:
    found = points[:1]
    for at in range(0, len(points) - 3, 3):
        for k in range(1, steps + 1):
            u, v = k / steps, 1 - k / steps
            weights = (v**3, 3 * v * v * u, 3 * v * u * u, u**3)
            four = points[at : at + 4]
            x, y = (sum(w * p[i] for w, p in zip(weights, four, strict=True)) for i in (0, 1))
            found.append((x, y))
    return found


def _flat(nodes: int) -> Graph:
    """Without modules: every node reads one or two of those shortly before."""
    draw = random.Random(0)
    b = Builder("flat")
    b.add(Kind.INPUT, name="x")
    for i in range(1, nodes):
        near = {max(0, i - 1 - int(draw.expovariate(0.2))) for _ in range(2)}
        b.call(draw.choice(["add", "nn.dense", "reshape", "nn.relu"]), *(f"n{n}" for n in near))
    return b.graph(b.nodes[-1].id)


def _speed() -> Iterator[Row]:
    graphs = {
        "bert_layer, made": transformer(1),
        "6,000 with modules": transformer(100),
        "6,000 flat": _flat(6_000),
        "100,000 with modules": transformer(1640),
        "100,000 flat": _flat(100_000),
    }
    with browsing() as browser:
        for name, graph in graphs.items():
            page = browser.new_page(viewport={"width": WIDE, "height": HIGH})
            page.set_content(_page())
            page.wait_for_function("() => !!window.show")
            drawing = drawing_of(graph, 10)
            view = View(height=HIGH, family=name)
            block = drawing.encode({}, view, {"view": "v", "recalled": False, "told": ""})
            page.evaluate("text => window.hold(text)", base64.b64encode(block).decode())
            tab = _Tab(browser)
            first, work = tab.spent(page, "() => window.show()")
            row = {"graph": name, "nodes": len(graph), "block MB": round(len(block) / 1e6, 1)}
            row |= {"first picture ms": f"{first:.0f} ({work:.0f})"}
            row |= page.evaluate(_TITLES)
            opened = [tab.spent(page, _OPENED) for _ in range(3)]
            shown = [f"{ms:.0f} ({work:.0f})" for ms, work in opened if ms is not None]
            row |= {"open ms": ", ".join(shown)} | tab.memory(page)
            yield row
            page.close()


class _Tab:
    """The processes in which tabs run."""

    def __init__(self, browser: Browser) -> None:
        found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
        self.processes = [
            at
            for p in found["processInfo"]
            if (at := Path(f"/proc/{p['id']}")).exists()
            and "--type=renderer" in (at / "cmdline").read_text()
        ]

    def spent(self, page: Page, act: str) -> tuple[float | None, float]:
        """What was measured, and beside it what the tab's main thread had of a core, in ms."""
        before = self._work()
        measured: float | None = page.evaluate(act)
        after = self._work()
        return measured, max(b - a for a, b in zip(before, after, strict=True))

    def _work(self) -> list[float]:
        threads = (p / "task" / p.name / "schedstat" for p in self.processes)
        return [float(t.read_text().split()[0]) / 1e6 for t in threads]

    def memory(self, page: Page) -> Row:
        """What JavaScript's heap holds without garbage, and the tab's process with it, in MB."""
        texts = [(p / "status").read_text() for p in self.processes]
        most = max(int(text.split("RssAnon:")[1].split()[0]) for text in texts)
        heap = page.context.new_cdp_session(page)
        heap.send("HeapProfiler.enable")
        heap.send("HeapProfiler.collectGarbage")
        held = heap.send("Runtime.getHeapUsage")["usedSize"]
        return {"tab MB": round(most / 1e3), "heap MB": round(held / 1e6)}


_FRAME = "const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));"
_TITLES = f"""async () => {{
  {_FRAME} v.fit(); await frame();
  const sizes = v.painter.names.map((name) => name.size);
  const groups = v.drawing.box.kind.filter((kind) => kind).length;
  return {{ boxes: v.solid.length, titles: `${{sizes.length}} of ${{groups}}`,
    "least title px": sizes.length ? Math.round(10 * Math.min(...sizes)) / 10 : "" }};
}}"""
_OPENED = f"""async () => {{
  {_FRAME}
  const group = v.solid.find((i) => v.drawing.box.kind[i]); // the outermost first, then in it
  if (group === undefined) return null;
  const began = performance.now();
  v.toggle(group); await frame();
  return performance.now() - began;
}}"""


def _page() -> str:
    html, css = ((VIEWER / f"viewer.{part}").read_text("utf-8") for part in ("html", "css"))
    script = javascript.script("viewer").replace(
        "export default function", "const begin = function"
    )
    return f"""<!doctype html><style>:root {{
--st-background-color: #fff; --st-text-color: #1a202a }}</style>
<body style="margin:0"><div id="host"></div><script type="module">
{script}
const root = document.getElementById("host").attachShadow({{ mode: "open" }});
root.innerHTML = `<style>${{{json.dumps(css)}}}</style>` + {json.dumps(html)};
let bytes;
window.hold = (text) => {{ bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)); }};
window.show = async () => {{
  const began = performance.now();
  const nothing = () => {{}};
  begin({{ parentElement: root, data: bytes, setStateValue: nothing, setTriggerValue: nothing }});
  window.v = root.relascopeViewer;
  while (!v.root.dataset.ready) await new Promise((done) => setTimeout(done, 1));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - began;
}};
</script></body>"""


if __name__ == "__main__":
    raise SystemExit(main())
