"""`baseline` and `check` as a gate, and a check as a comment on GitHub: what names cannot do."""

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from command_line import document, run
from page_session import FAILING_PASS, FAILING_SEED, SLOW_SEED, WRONG_SEED
from relascope.viz.rows.gate import comment
from relascope.viz.rows.gate.baseline import BaselineDifference, Compared

HOSTILE = [
    *("@octocat", "#12", "GH-12", "owner/repo#12", "a@b.org", "www.example.org", "https://a.org"),
    *("<img src=x onerror=alert(1)>", "</td></table>", "--> <b>", "<!-- x -->", "&lt;", ":tada:"),
    *("a|b", "a\\|b", "`", "``` x", "`a", "`a``b`", "__init__", "_x_", "**b**", "~~s~~", "$x$"),
    *("[a](https://a.org)", "![a](b)", "- a", "1. a", "> a", "# a", "===", "a\n\n# b", "\x1b[31m"),
]


TAGS = {"p", "strong", "code", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "pre"}
ACTIVE = set("@#<>&|[]*_~$\\/`")  # what GitHub and Markdown look for outside of code


class Shown(HTMLParser):
    """What a reader of the comment sees: its cells, its code and the tags."""

    def __init__(self, markdown):
        super().__init__()
        self.tags, self.open, self.code, self.cells, self.comments = [], [], [], [], []
        html = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
        self.feed(html.render(markdown))

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS and not [a for a in attrs if a != ("class", "language-sh")]
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "code" in self.open:
            self.code.append(data)
        else:
            assert not ACTIVE & set(data)
        if "td" in self.open:
            self.cells[-1] += data

    def handle_comment(self, data):
        self.comments.append(data)


def commented(*differences, notes=(), argv=("check", "net", "--baseline", "b.json"), **more):
    compared = Compared(differences, tuple(notes))
    about = {"model": "net", "engine": "relay", "target": "llvm", "baseline": "b.json"}
    failing = [d.sentence for d in compared.failing()]
    result = {"failing": failing, "updated": False, "fails": bool(failing), "now": {}}
    return comment.comment({**about, **compared.to_json(), **result, **more}, argv)


def words(text):
    """What backticks mark is code, so they are not shown."""
    return text.replace("`", "").split()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_shown_as_it_is_and_does_nothing(name):
    one = BaselineDifference("compile", "worse", f"the pass `{name}` is slow", name, name, name)
    more = {"model": name, "baseline": name, "target": name}
    text = commented(one, notes=[name], argv=("check", name, "--baseline", name), **more)
    assert text.startswith("<!-- relascope check ") and "-->" in text.splitlines()[0]
    shown = Shown(text)
    seen = name.replace("\n", "\\n").replace("\x1b", "\\u001b")
    cells = ["compile", seen, seen, seen, "no change", "worse"]
    assert [words(c) for c in shown.cells] == [words(c) for c in cells]
    assert shown.code[0] == seen and len(shown.comments) == 1
    assert shown.tags.count("tr") == 2 and shown.tags.count("li") == 2


@given(st.text(st.sampled_from("ab1 .,:;()`@#<>&|[]_*~$\\/-+='é×\n\x1b") | st.characters()))
def test_any_text_reaches_its_reader(text):
    one = BaselineDifference("crash", "worse", text, f"m{text}", "t", "n")
    cells = Shown(commented(one)).cells
    assert words(cells[1]) == words(comment._cut(f"m{text}", comment._CELL)) and len(cells) == 6


def test_a_comment_has_verdict_figures_sentences_notes_and_the_command():
    differences = (
        BaselineDifference("flops", "better", "1 k instead of 2 k", "", "2 k", "1 k", "1 %"),
        BaselineDifference("fusion", "worse", "`add` of a.dense is lost", "kernels", "6", "7"),
        BaselineDifference("operators", "other", "2 `cast` more", "calls", "3", "5"),
    )
    failing = ["fusion: `add` of a.dense is lost"]
    text = commented(*differences, notes=["It is another machine."], failing=failing)
    assert text == (
        "<!-- relascope check b.json -->\n"
        "**One difference fails.** <code>net</code> (relay, llvm) against <code>b.json</code>\n\n"
        "| kind | metric | baseline | now | limit | verdict |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| fusion | kernels | 6 | 7 | no change | worse |\n"
        "| flops | – | 2 k | 1 k | 1 % | better |\n"
        "| operators | calls | 3 | 5 | no change | differs |\n\n"
        "- fusion: <code>add</code> of <code>a.dense</code> is lost\n"
        "- flops: 1 k instead of 2 k (better)\n"
        "- operators: 2 <code>cast</code> more (not in <code>--fail-on</code>)\n\n"
        "- Note: It is another machine.\n\n"
        "To take this as the new baseline, run this, and commit <code>b.json</code>:\n\n"
        "```sh\nrelascope check net --baseline b.json --update\n```\n"
    )
    same = commented(failing=[])
    assert "**Nothing differs from the baseline.**" in same and "--update" not in same
    crash = commented(BaselineDifference("crash", "worse", "it fails"), now=None)
    assert "crash: it fails" in crash and "--update" not in crash
    one, other = (commented(baseline=name).splitlines()[0] for name in ("a b--c.json", "a b.json"))
    assert one == "<!-- relascope check a%20b-%2Dc.json -->" != other


def test_a_long_comment_is_one_that_github_takes_and_begins_with_what_fails():
    wide = "|" * 9999
    better = [BaselineDifference("speed", "better", f"{i}{wide}", wide) for i in range(40)]
    worse = BaselineDifference("compile", "worse", f"bad{wide}", wide, wide, wide, wide)
    notes = [wide] * 5
    argv = ("check", wide)
    text = commented(*better, *[worse] * 20, notes=notes, argv=argv, model=wide, target=wide)
    assert len(text) < 65_536
    assert Shown(text).cells[0] == "compile" and "48 more" in text


def test_check_writes_it_beside_a_page_and_refuses_it_without_a_baseline(base, tmp_path):
    page, text = tmp_path / "page.html", tmp_path / "comment.md"
    held = ["check", "mlp", "--baseline", str(base)]
    data = document(*held, "-o", str(page), "--markdown", str(text))
    assert text.read_text() == comment.comment(data, held)
    assert "**Nothing differs from the baseline.**" in text.read_text()
    assert "relascope-graph" in page.read_text()
    base.write_text(base.read_text().replace('"nn.relu": 1', '"nn.relu": 2'))
    assert run(*held, "--markdown", str(text), "-o", str(tmp_path / "d.csv")).returncode == 3
    assert f"relascope check mlp --baseline {base} --update\n" in text.read_text()
    assert "operators,calls,4,3,no change,other" in (tmp_path / "d.csv").read_text()
    changed(base, options={"seed": FAILING_SEED}, passes=f"cse|{FAILING_PASS}")
    assert run(*held, "--markdown", str(text), "-o", str(page)).returncode == 3
    assert "| crash | – | runs | fails | no change | worse |" in text.read_text()
    assert "relascope-graph" in page.read_text()
    alone = document("check", "mlp", "--markdown", str(text), status=2)["error"]
    assert alone["where"] == "--markdown"
    bad = document(*held, "-o", str(tmp_path / "d.odt"), status=2)["error"]
    assert bad["kind"] == "usage"


@pytest.fixture
def base(tmp_path):
    file = tmp_path / "base.json"
    document("baseline", "mlp", "--passes", "cse|fold", "-o", str(file))
    return file


def changed(base, **fields):
    base.write_text(json.dumps({**json.loads(base.read_text()), **fields}))


def test_check_fails_only_on_what_it_is_told_to():
    wrong = ["mlp", "--training", "--seed", str(WRONG_SEED), "--strategy", "keep_all"]
    assert not document("check", *wrong)["passed"]
    assert document("check", *wrong, "--fail-on", "wrong", status=3)["fails"]
    assert document("check", *wrong, "--fail-on", "error")["fails"] is False
    assert not document("check", "mlp", "--fail-on", "wrong,error")["fails"]
    error = document("check", "mlp", "--fail-on", "fusion", status=2)["error"]
    assert "Without a baseline, fusion cannot be checked" in error["message"]
    assert run("check", "mlp", "--fail-on", "speeed").returncode == 2
    for alone in (["--update"], ["--speed"], ["--threads", "2"]):
        assert document("check", "mlp", *alone, status=2)["error"]["where"] == alone[0]


def test_a_model_is_as_its_baseline_until_something_differs(base):
    held = ["check", "mlp", "--baseline", str(base)]
    data = document(*held)  # the pipeline is the baseline's
    assert (data["differences"], data["fails"], data["now"]["pipeline"]) == ([], False, "cse|fold")
    assert "Nothing differs from the baseline." in run(*held).stdout
    operators = json.loads(base.read_text())["operators"]
    changed(base, operators={**operators, "layers.9": {"nn.relu": 1}})
    data = document(*held, status=3)
    sentence = "operators: 3 instead of 4; the module layers.9 is gone, with its one operator "
    assert data["failing"] == [sentence + "(nn.relu)"]
    text = run(*held)
    assert text.returncode == 3 and "One difference fails" in text.stdout
    other = run(*held, "--fail-on", "wrong,fusion")
    assert other.returncode == 0 and "(not in --fail-on)" in other.stdout
    assert document(*held, "--update")["updated"]
    assert document(*held)["differences"] == []


def test_what_is_slower_is_timed_again_before_it_is_told(base):
    changed(base, options={"seed": SLOW_SEED})
    data = document("check", "mlp", "--baseline", str(base), status=3)
    assert [d["kind"] for d in data["differences"]] == ["compile", "compile"]
    assert "the pass `fold` takes 100 ms instead of 10 ms" in data["failing"][1]


def test_a_pass_that_fails_now_is_a_difference_and_never_a_baseline(base):
    changed(base, options={"seed": FAILING_SEED}, passes=f"cse|{FAILING_PASS}")
    held = ["check", "mlp", "--baseline", str(base)]
    (said,) = document(*held, status=3)["failing"]
    assert said.startswith("crash: it can no longer be compiled and run: Step 2, simplify_inf")
    before = base.read_text()
    assert document(*held, "--update", status=1)["error"]["kind"] == "pass"
    assert base.read_text() == before


def test_a_baseline_of_something_else_is_refused(base):
    held = ["--baseline", str(base)]
    for model, words in (
        (["bert_layer"], "another model: mlp. This check has bert_layer"),
        (["mlp", "--batch", "3"], "another batch: None. This check has 3"),
        (["mlp", "--engine", "relax"], "another engine: relay. This check has relax"),
        (["mlp", "--training"], "another training: False. This check has True"),
    ):
        assert words in document("check", *model, *held, status=2)["error"]["message"]
    base.write_text("{}")
    assert "not a baseline" in document("check", "mlp", *held, status=1)["error"]["message"]
    base.unlink()
    assert "Cannot read" in document("check", "mlp", *held, status=1)["error"]["message"]


def test_a_training_baseline_has_what_each_strategy_saves(tmp_path):
    file = tmp_path / "base.json"
    data = document("baseline", "mlp", "--training", "--speed", "-o", str(file))
    assert data["captures"]["keep_all"]["count"] == 2
    assert set(data["speed"]) == {"forward", "forward_backward"}
    assert document("check", "mlp", "--baseline", str(file), "--speed")["differences"] == []
    without = document("check", "mlp", "--baseline", str(file))
    assert "none were measured now; add --speed" in without["notes"][0]
