"""A file that is handed on, opened from disk in Chromium without a network."""

from pathlib import Path

import pytest

from browser import LONG, watched
from crafted.recorded import recorded
from engines import shared, shared_fake
from graphs import graph_of, transformer
from joints import messy
from notebooks.outputs import drawn_outputs, theme_of
from page import INFERENCE
from relascope.commands.main import main
from relascope.core.identity import carry_identity
from relascope.engine.protocol.fault import Passage, Report
from relascope.passes.cuts.cut import cut
from relascope.viz.handed_on.fault import with_page
from relascope.viz.handed_on.formats import graph_file
from relascope.viz.handed_on.notebook import diff, show
from relascope.viz.handed_on.parts import cut_tab
from relascope.viz.handed_on.sheet import Sheet

pytestmark = pytest.mark.browser


class Opened:
    def __init__(self, page, address: str) -> None:
        self.page = page
        page.goto(address)
        page.locator("relascope-graph[data-ready]").wait_for(timeout=LONG)
        self.wait("d.node.id.length > 0")

    def ask(self, code: str, argument=None):
        """JavaScript of the viewer that is seen, `v`; the file's policy forbids eval."""
        return self.page.evaluate(
            "(a) => { const within = document.querySelector('relascope-graph').shadowRoot;"
            " const v = [...within.querySelectorAll('.picture')]"
            ".filter(e => e.offsetParent).map(e => e.viewer)[0];"
            f" const d = v?.drawing; return d ? ({code}) : null; }}",
            argument,
        )

    def wait(self, code: str, argument=None) -> None:
        for _ in range(LONG // 50):
            if self.ask(code, argument):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{code} did not come true")


@pytest.fixture
def opened(chromium):
    usual = {"offline": True, "viewport": {"width": 1280, "height": 900}}
    with watched(chromium) as new_page:

        def open_file(path: Path, place: str = "", **how) -> Opened:
            return Opened(new_page(**usual | how), f"{path.as_uri()}{place}")

        yield open_file


def _graph_file(folder: Path) -> Path:
    path = folder / "graph.html"
    path.write_bytes(graph_file(".html", transformer(2)))
    return path


def test_a_graph_is_alive_without_a_server(opened, tmp_path):
    file = opened(_graph_file(tmp_path))
    before = file.ask("d.box.id.length")
    group = file.ask("Object.keys(d.groups).find(g => d.groups[g].open)")
    file.ask("v.toggle(v.index.get('group:' + a))", group)
    file.wait("d.groups[a].open === false", group)
    assert file.ask("d.box.id.length") < before
    file.ask("v.main.focus()")
    file.page.keyboard.press("/")
    file.page.keyboard.type("softmax")
    file.page.keyboard.press("Enter")
    file.wait("v.selected !== null")
    assert "softmax" in file.ask("v.title(v.selected)")
    assert "node=" in file.page.url


def test_a_link_goes_to_a_node_on_a_dark_phone_and_what_is_seen_is_saved(opened, tmp_path):
    node = next(n.id for n in transformer(2) if n.op == "nn.softmax")
    phone = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}
    file = opened(_graph_file(tmp_path), f"#node={node}", **phone)
    file.wait("v.selected === a", node)
    assert file.ask("v.theme.name") == "dark"
    file.ask("addEventListener('beforeprint', () => (v.printed = v.theme.name))")
    file.page.pdf()  # on white paper
    assert file.ask("v.printed") == "light"
    file.wait("v.theme.name === 'dark'")
    file.page.get_by_role("button", name="Theme").click()
    file.wait("v.theme.name === 'light'")
    assert file.page.evaluate("document.documentElement.scrollWidth") <= 390
    for item, begins in (("Picture", b"\x89PNG"), ("Operators", b"operator,calls\n")):
        file.page.get_by_role("button", name="Save").click()
        with file.page.expect_download() as download:
            file.page.get_by_role("menuitem", name=item).click()
        assert Path(download.value.path()).read_bytes().startswith(begins)


def test_a_report_of_a_fault_has_its_text_and_the_module_before_and_after(opened, tmp_path):
    first, second = transformer(1), transformer(2)
    row = {"at": "[0]", "expected": "1.0", "seen": "<b>2.0"}
    actual = Passage("Actual behavior", "It calls `<b>abs`.", rows=(row,))
    parts = actual, Passage(code="a <b>\n  b")
    report = Report("Fold is wrong", "a\nb", "a\nc", {"README.md": b""}, first, second, parts)
    files = with_page(report).files
    assert [*files] == ["README.md", "report.html"]
    path = tmp_path / "report.html"
    path.write_bytes(files["report.html"])
    file = opened(path, "#tab=passes")
    added = len(carry_identity(first, second).added)
    assert file.page.get_by_text(f"+{added}", exact=True).count() == 1
    file.page.get_by_text("changed line").wait_for(timeout=LONG)
    count = file.ask("d.node.id.length")
    file.page.get_by_text("Before the pass").first.click()
    file.wait("d.node.id.length < a", count)
    file.page.get_by_role("tab", name="Report").click()
    told = file.page.locator(".panel:not([hidden])").inner_text()
    assert all(t in told for t in ("Actual behavior", "It calls <b>abs.", "a <b>\n  b", "<b>2.0"))


VS_CODE = (  # as its frame for outputs has it
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src https: http: data:; font-src https:; connect-src https:; child-src https: data:"
)
FRONTENDS = {
    "Jupyter, light": ("", 'data-jp-theme-light="true"', "", "light"),
    "Jupyter, dark": ("", 'data-jp-theme-light="false"', "", "dark"),
    "VS Code, light": ("", 'data-vscode-theme-kind="vscode-light"', VS_CODE, "light"),
    "VS Code, dark": ("", 'data-vscode-theme-kind="vscode-dark"', VS_CODE, "dark"),
    "VS Code, contrast": ("", 'data-vscode-theme-kind="vscode-high-contrast"', VS_CODE, "dark"),
    "Colab, dark": ('theme="dark"', "", "", "dark"),
    "none": ("", "", "", "light"),
}
"""Attributes of the document and of its body, policy, and the theme that is drawn."""
FEW = ("Jupyter, dark", "VS Code, contrast", "Colab, dark")


@pytest.mark.parametrize(
    "frontend",  # the system's own theme is light
    [pytest.param(f, marks=() if f in FEW else pytest.mark.exhaustive) for f in FRONTENDS],
)
def test_a_notebooks_frame_draws_the_graph_in_the_theme_of_its_frontend(
    frontend, chromium, tmp_path
):
    root, body, policy, theme = FRONTENDS[frontend]
    shown = show(transformer(1), overlay=lambda graph: {n.id: len(n.edges) for n in graph})
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    path = tmp_path / "notebook.html"
    content = f"<head>{head}</head><body {body}>{shown._repr_html_()}</body>"
    path.write_text(f"<!doctype html><html {root}>{content}</html>")
    with drawn_outputs(chromium, path) as (frame,):
        assert "nodes" in frame.locator(".count").inner_text()
        assert "<lambda>" in frame.locator(".legend").inner_text()
        assert theme_of(frame) == theme


def test_two_runs_stand_beside_each_other_and_a_row_goes_to_both(opened, tmp_path):
    one = graph_of("x; a exp x; b log a; c tanh b")
    other = graph_of("x; a exp x; b log a k=1; c tanh b; e negative c")
    file = opened(diff(one, other).save(tmp_path / "both.html"))
    pictures = file.page.locator(".picture")
    left, right = (pictures.nth(i).bounding_box() for i in (0, 1))
    assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"]
    file.wait("d.node.id.length > 3")
    file.page.locator(".look.changed .link").first.click()
    assert pictures.evaluate_all("all => all.map(e => e.viewer.selected)") == ["b", "b"]
    file.page.set_viewport_size({"width": 800, "height": 900})
    left, right = (pictures.nth(i).bounding_box() for i in (0, 1))
    assert left["x"] == right["x"] and left["y"] + left["height"] <= right["y"]


def _cut_file(path: Path, **chosen) -> Path:
    file = Sheet("cut", {})
    cut_tab(file, cut(messy(3, 12), **chosen))
    path.write_text(file.html())
    return path


def test_a_link_to_a_cut_survives_another_order(opened, tmp_path):
    told = "[v.show.cut.bytes, v.show.cut.title]"
    one = _cut_file(tmp_path / "one.html")
    file = opened(one, "#cut=min_cut")
    file.wait("v.show.active")
    chosen = file.ask(told)
    assert file.ask("v.show.at === v.block.show.chosen") and file.page.url.endswith("#cut=min_cut")
    file.page.keyboard.press("End")
    link, last, at = file.page.url.partition("#")[2], file.ask(told), file.ask("v.show.at")
    assert link == f"cut=frontier-{last[0]}" and last != chosen
    # Without the one that is beside the frontier, the others have other places.
    other = opened(_cut_file(tmp_path / "two.html", strategy="inputs_only"), f"#{link}")
    other.wait("v.show.active")
    assert other.ask(told) == last and other.ask("v.show.at") == at - 1
    old = opened(one, f"#cut={at - 1}")
    old.wait("v.show.active")
    assert old.ask("v.show.at") == at - 1


def _steps(opened, path: Path, model: str, ir: str, most: float, connect=shared) -> Opened:
    assert main(["step", model, "--engine", ir, "-o", str(path)], connect) == 0
    assert path.stat().st_size <= most * 1e6
    file = opened(path)
    rows = file.page.locator(".steps .row")
    count = rows.count()
    assert file.page.url.endswith(f"#step={count - 1}")
    for step in (0, count // 2, count - 1):
        rows.nth(step).click()
        file.page.locator(f".board[data-step='{step}']").wait_for(timeout=LONG)
    file.page.keyboard.press(",")
    file.page.locator(f".board[data-step='{count - 2}']").wait_for(timeout=LONG)
    return file


def test_the_steps_of_a_pipeline_are_walked_through(opened, tmp_path):
    file = _steps(opened, tmp_path / "steps.html", "mlp", "relay", 1, shared_fake)
    page = file.page
    fold = [s.name for s in INFERENCE].index("fold") + 1
    page.locator(".steps .row").nth(fold).click()
    page.locator(f".board[data-step='{fold}']").wait_for(timeout=LONG)
    page.locator("section.table").first.locator("td .link").first.click()
    file.wait("v.selected !== null")
    text = page.locator(".texts")
    text.get_by_text("changed line").wait_for()
    assert text.locator(".line.changed mark, .line.came mark, .line.gone mark").count() > 0
    page.locator(".steps .row").first.click()
    text.get_by_text("The text is the same.").wait_for()
    assert text.locator(".line.same").count() > 5, "the imported program's text stands there whole"
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 400})  # paper is narrower than a window
    for part in (text.locator(".body"), page.locator(".list")):
        assert part.evaluate("e => e.scrollHeight - e.clientHeight") <= 0, "cut off"


def test_a_recording_is_walked_through_by_keys(opened, tmp_path):
    path = tmp_path / "run.html"
    show(recorded(tmp_path / "run.rsc", passes=400)).save(path)
    file = opened(path, "#step=1")
    page = file.page
    assert page.locator(".step-title").inner_text().startswith("FoldTranspose")
    text = page.locator(".texts")
    text.get_by_text("3 changed lines").wait_for()
    assert file.ask("d.node.id.length") > 0
    assert len(page.locator(".row .title").all()) < 60, "only rows in sight are drawn"
    page.keyboard.press(".")  # to the next that changed something: loops, which have no graph
    page.locator(".board[data-step='3']").wait_for(timeout=LONG)
    assert page.locator(".picture").is_hidden()
    text.get_by_text("for i in range(8)").wait_for()
    page.keyboard.press(",")
    page.locator(".board[data-step='1']").wait_for(timeout=LONG)
    page.locator(".list").focus()
    page.keyboard.press("ArrowUp")
    page.locator(".board[data-step='0']").wait_for(timeout=LONG)
    page.get_by_label("Function").select_option("kernel")
    page.get_by_text("kernel: made by the pass").wait_for()
    assert "step=0" in page.url
    page.get_by_label("Search passes").fill("breaks")
    page.locator(".row .title", has_text="Breaks").click()
    page.locator(".step-said").get_by_text("ValueError: no axis 7 here").wait_for()
    page.get_by_role("tab", name="Times").click()
    assert "FoldTranspose" in page.locator("#panel-times tbody tr").first.inner_text()
    page.get_by_role("button", name="Theme").click()  # while the picture is hidden
    page.get_by_role("tab", name="Passes").click()
    file.wait("v.theme.name === 'dark'")


@pytest.mark.engine
@pytest.mark.exhaustive
@pytest.mark.parametrize("ir", ["relay", "relax"])
def test_the_steps_of_bert_are_at_most_20_megabytes(opened, tmp_path, ir):
    _steps(opened, tmp_path / "steps.html", "bert", ir, 20)
    _steps(opened, tmp_path / "layer.html", "bert_layer", ir, 2)
