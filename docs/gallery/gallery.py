"""Builds the gallery: `make gallery`, a folder of pages for a browser, with a picture of each.

Every page is what a command or script writes with `-o`, and needs neither a server nor a network;
below each picture stands which. Taking the pictures opens every page, as a reader would.
The recordings in `tutorials` are of scripts of Apache TVM's documentation: `relascope record -o
NAME.rsc --no-page -- python NAME.py`.
"""

import argparse
import base64
import html
import io
import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "bench" / "oracles")]

from browser import LONG, browsing  # noqa: E402
from relascope.commands.main import main as command_line  # noqa: E402
from relascope.engine.client import EngineClient  # noqa: E402
from relascope.samples import SAMPLES  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_SEEN = (960, 600)
_PICTURE = (480, 300)
_AT_ONCE = 2
_MORE, _LESS = "default", "default|-combine_batch_matmul"
_CUT = ("micrograd", "mlp", "bert_layer", "gpt2_block", "llama_block", "vit")
_LECTURE = "docs/lectures"
_LECTURES = {
    "Execution": "matmul_by_hand|LegalizeOps",
    "Tuning": "tiles_by_hand(seed=3)|CanonicalizeBindings",
    "Fusion": "fuse_by_hand|LegalizeOps|FuseTIR",
}
_TOUR = "docs/gallery/tour.py"
_STEPPED = ("mlp", "bert_layer", "vit")


@dataclass(frozen=True)
class Entry:
    """One page: what it shows, and the words of the command or script that makes it."""

    group: str
    title: str
    about: str
    words: tuple[str, ...]

    @property
    def file(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self.group} {self.title}".lower()).strip("-") + ".html"


def entries() -> list[Entry]:
    names = {"relay": "Relay", "relax": "Relax"}
    about = "Ten screens of one BERT layer, from a trace to a timing, with what to see on each."
    found = [Entry("The tour", "From a trace to a timing", about, (_TOUR,))]
    for ir, name in names.items():
        for sample in SAMPLES.values():
            words = ("graph", sample.name, "--engine", ir)
            found.append(Entry(f"Models in {name}", sample.title, sample.summary, words))
    for ir, name in names.items():
        about = f"What each pass of {name}'s default pipeline does, and how far its numbers move."
        for model in _STEPPED:
            words = ("step", model, "--engine", ir, "--check")
            found.append(Entry(f"Passes of {name}", SAMPLES[model].title, about, words))
    about = "The joint graph, what its forward saves, and why each tensor is saved or recomputed."
    for model in _CUT:
        words = ("captures", model, "--engine", "relax")
        found.append(Entry("Cuts for the backward", SAMPLES[model].title, about, words))
    models = "bert_layer", "bert_layer"
    both = ("diff", *models, "--engine", "relay", "--passes", _MORE, "--passes-b", _LESS)
    about = "One layer with and without the pass that joins the products of query, key and value."
    found.append(Entry("Two runs", "With and without a pass", about, both))
    for title, steps in _LECTURES.items():
        words = ("step", f"{_LECTURE}/mlp.py", "--pass-file", f"{_LECTURE}/{title.lower()}.py")
        about = f"By hand beside TVM's own: {_LECTURE}/{title.lower()}.md."
        found.append(Entry("Lectures", title, about, (*words, "--passes", steps, "--check")))
    words = ("captures", f"{_LECTURE}/mlp.py", "--pass-file", f"{_LECTURE}/gradient.py")
    about = f"What a gradient by hand reads of the forward: {_LECTURE}/gradient.md."
    found.append(Entry("Lectures", "Gradient", about, (*words, "--passes", "gradient_by_hand")))
    for path in sorted(Path(__file__).with_name("tutorials").glob("*.rsc")):
        about = f"A recording of {path.stem}.py of TVM's documentation, unchanged, with TVM 0.27."
        words = ("open", str(path.relative_to(ROOT)))
        found.append(Entry("TVM's own tutorials", path.stem.replace("_", " "), about, words))
    return [*found, *_faults()]


def _faults() -> Iterable[Entry]:
    from corpus import cases

    for case in cases():
        head = case.head
        opens = head["verdict"] in ("wrong", "type") or "culprit" in head  # else TVM cannot read it
        if case.path.parent.name == "broken" and opens:
            blamed = f"; {head['culprit']} breaks it" if head.get("culprit") else ""
            about = f"{head['thread']}. Expected: {head['expected']}{blamed}."
            given = str(case.path.relative_to(ROOT)), "--engine", case.engine
            words = ("step", *given, "--passes", head["pipeline"], "--check")
            yield Entry(
                "Faults of TVM that others found", case.name.replace("_", " "), about, words
            )


def relascope(words: Sequence[str], made: Path) -> None:
    """Run a command or script that writes a page, in one of two processes, which keep their
    engines: those take longer to start than most pages do. Raises RuntimeError where it wrote none;
    a status that says that a fault was found is none."""
    said = _processes().submit(_run, words, made).result()
    if not made.exists():
        raise RuntimeError(f"{' '.join(words)}: {said.strip()[-600:]}")


@cache
def _processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(_AT_ONCE, mp_context=multiprocessing.get_context("spawn"))


def _run(words: Sequence[str], made: Path) -> str:
    os.environ["RELASCOPE_ALONE"] = "0"
    os.chdir(ROOT)
    # Passes of files are those of every command that follows in the process.
    if words[0] == _TOUR or "--pass-file" in words:
        module = [] if words[0] == _TOUR else ["-m", "relascope"]
        command = [sys.executable, *module, *words, "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stderr or done.stdout
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        command_line([*words, "-o", str(made)], _engine)
    return said.getvalue()


class _Kept(EngineClient):
    def close(self) -> None:
        """Commands close theirs; this one ends with its process."""


_engine = cache(_Kept)


def pictures(browser: "Browser", paths: Iterable[Path]) -> Iterator[bytes]:
    """Pages as they are opened from disk, one after the other in one tab, each as a small PNG. One
    with an error, or a request that leaves it, raises RuntimeError."""
    wide, high = _SEEN
    context = browser.new_context(offline=True, viewport={"width": wide, "height": high})
    page, wrong = context.new_page(), list[str]()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("request", lambda r: wrong.append(r.url) if r.url.startswith("http") else None)
    for path in paths:
        page.goto(path.as_uri())
        page.locator("relascope-graph[data-ready]").wait_for(timeout=LONG)
        page.wait_for_timeout(300)  # the picture's first movement
        shot = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
        if wrong:
            raise RuntimeError(f"{path.name}: {'; '.join(wrong)}")
        made, small = io.BytesIO(), shot.resize(_PICTURE, Image.Resampling.LANCZOS)
        small.quantize(64).save(made, "PNG", optimize=True)
        yield made.getvalue()
    context.close()


def build(
    folder: Path,
    listed: Sequence[Entry],
    browser: "Browser",
    run: Callable[[Sequence[str], Path], None] = relascope,
) -> Path:
    """Make every page, open it, and write the page that lists them; returns that."""
    folder.mkdir(parents=True, exist_ok=True)

    def make(entry: Entry) -> Path:
        run(entry.words, folder / entry.file)
        print(entry.file, flush=True)
        return folder / entry.file

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        drawn = list(pictures(browser, pool.map(make, listed)))
    page = Path(__file__).with_name("gallery.html").read_text(encoding="utf-8")
    index = folder / "index.html"
    index.write_text(page.replace("@@ENTRIES@@", _cards(listed, drawn)), encoding="utf-8")
    return index


def _cards(listed: Sequence[Entry], pictures: Sequence[bytes]) -> str:
    lines, group = [], ""
    for entry, drawn in zip(listed, pictures, strict=True):
        if entry.group != group:
            lines += ["</ul>"] * bool(group)
            group = entry.group
            lines += [f"<h2>{html.escape(group)}</h2>", "<ul>"]
        program = "python" if entry.words[0] == _TOUR else "relascope"
        command = " ".join([program, *entry.words])
        image = base64.b64encode(drawn).decode()
        lines += [
            f'<li><a href="{entry.file}"><img alt="" src="data:image/png;base64,{image}">'
            f"<strong>{html.escape(entry.title)}</strong></a>"
            f"<p>{html.escape(entry.about)}</p><code>{html.escape(command)}</code></li>"
        ]
    return "\n".join([*lines, "</ul>"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", dest="output", type=Path, default=ROOT / "out" / "gallery")
    parser.add_argument("--only", default="", metavar="TEXT", help="pages with it in their name")
    args = parser.parse_args()
    with browsing() as browser:
        index = build(args.output, [e for e in entries() if args.only in e.file], browser)
    size = sum(p.stat().st_size for p in args.output.iterdir())
    print(f"{index}: {len(list(args.output.iterdir())) - 1} pages, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
