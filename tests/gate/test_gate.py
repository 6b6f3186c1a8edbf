"""`baseline` and `check` as a gate, and a check as a comment on GitHub: what names cannot do."""

import copy
import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from command_line import document, run
from page_session import FAILING_PASS, FAILING_SEED, SLOW_SEED, WRONG_SEED
from relascope.core.errors import EngineError
from relascope.viz.rows.gate import baseline as baselines
from relascope.viz.rows.gate import comment
from relascope.viz.rows.gate.baseline import BaselineDifference, Compared, compare, crashed

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


TIMES = {"best_ms": 10.0, "q1_ms": 11.0, "median_ms": 12.0, "q3_ms": 20.0, "runs": 7}


def layer(number):
    return {
        f"encoder.layer.{number}.dense": {"nn.dense": 1, "add": 1},
        f"encoder.layer.{number}.norm": {"multiply": 1},
    }


def kernels(number):
    at = f"encoder.layer.{number}"
    return [[f"nn.dense @{at}.dense", f"add @{at}.dense"], [f"multiply @{at}.norm"]]


FLOAT32 = {"limit": 1e-5, "dtype": "float32"}


def entries(layers=3):
    return {
        "baseline": 1,
        "model": "net",
        "engine": "relay",
        "pipeline": "cse|bind|fold|cse",
        "options": {},
        "made": {"tvm": "1", "target": "llvm", "machine": "A", "threads": 1},
        "operators": {k: v for i in range(layers) for k, v in layer(i).items()},
        "kernels": [k for i in range(layers) for k in kernels(i)],
        "bytes": {"parameters": 0, "constants": 4096},
        "flops": {"total": 2000, "by operator": {"nn.dense": 1500, "add": 500}},
        "memory": {"built": 1000},
        "error": {"verdict": "right", "worst": "output 0", "max_rel": 1e-7, **FLOAT32},
        "compile": {
            "passes": {f"{i + 1} {n}": dict(TIMES) for i, n in enumerate(("cse", "bind", "cse"))},
            "build": {**TIMES, "best_ms": 100.0, "anew": True},
            "yardstick": {**TIMES, "best_ms": 4.0},
        },
        "captures": {
            n: {"count": 1, "bytes": 2048, "of": {"act": {"erf": 1}}} for n in ("min_cut", "all")
        },
        "speed": {"forward": {"ratio": 1.0, "q1": 0.95, "q3": 1.05}},
    }


def said(now, then=None):
    return [(d.kind, d.verdict, d.text) for d in compare(then or entries(), now).differences]


def test_nothing_differs_from_itself_nor_where_noise_or_a_slower_machine_is():
    now = entries()
    now["compile"]["passes"]["1 cse"]["best_ms"] = 14.0
    now["compile"]["build"]["best_ms"] = 140.0
    now["speed"]["forward"] = {"ratio": 1.3, "q1": 1.0, "q3": 1.6}  # its spread holds the other
    now["memory"]["built"] = 1009
    now["error"]["max_rel"] = 9e-7
    assert said(now) == []
    now = entries()
    for times in (*now["compile"]["passes"].values(), now["compile"]["yardstick"]):
        times["best_ms"] *= 4
    now["compile"]["build"]["best_ms"] *= 4
    assert said(now) == []


def test_a_build_that_was_not_made_anew_is_no_measure():
    now, then = entries(), entries()
    now["compile"]["build"]["best_ms"] = 1000.0
    assert [verdict for _, verdict, _ in said(now)] == ["worse"]
    del then["compile"]["build"]["anew"]  # of an earlier version
    assert said(now, then) == []


def test_a_fusion_lost_names_operator_module_and_the_others_once_for_all_layers():
    now = entries()
    at = "encoder.layer.0.dense"
    now["kernels"][0:1] = [[f"nn.dense @{at}"], [f"add @{at}"]]
    lost = f"7 kernels instead of 6; `add` of {at} is no longer fused with `nn.dense`"
    assert said(now) == [("fusion", "worse", lost)]
    won = f"6 kernels instead of 7; `add` of {at} is now fused with `nn.dense`"
    assert said(entries(), now) == [("fusion", "better", won)]
    now = entries(12)
    now["kernels"] = [[label] for k in now["kernels"] for label in k]
    (found,) = said(now, entries(12))
    assert "`add` of encoder.layer.0.dense and 11 modules like it is no longer fused" in found[2]


def test_a_piece_of_a_kernel_keeps_the_order_of_its_operators():
    now, then = entries(), entries()
    rest = ["add", "multiply", "tanh", "exp", "add"]
    then["kernels"][0], now["kernels"][0:1] = ["nn.dense", *rest], [["nn.dense"], rest]
    assert "`add`, `multiply`, `tanh`, `exp` and 1 more" in said(now, then)[0][2]


def test_a_dropped_layer_is_named_whole_and_a_cast_by_its_module():
    (operators, fusion) = said(entries(2))
    words = "6 instead of 9; the module encoder.layer.2 is gone, with all of its 3 operators "
    assert operators == ("operators", "other", f"{words}(nn.dense, add, multiply)")
    assert fusion[2] == "4 kernels instead of 6"
    now = entries()
    for i in range(2):
        now["operators"][f"encoder.layer.{i}.norm"]["cast"] = 2
    words = "13 instead of 9; 2 `cast` more in encoder.layer.0.norm and one module like it"
    assert said(now) == [("operators", "other", words)]


def test_every_other_kind_has_its_sentence():
    now = entries()
    now["pipeline"] = "cse|bind|cse|dce"
    now["flops"] = {"total": 4000, "by operator": {"nn.dense": 3500, "add": 500}}
    now["memory"] = {"built": 1500}
    now["error"] = {**now["error"], "verdict": "wrong", "max_rel": 0.03}
    now["compile"]["passes"] = {"1 cse": dict(TIMES), "2 bind": {**TIMES, "best_ms": 40.0}}
    now["captures"]["min_cut"] = {"count": 2, "bytes": 4096, "of": {"act": {"erf": 1, "tanh": 1}}}
    now["speed"]["forward"] = {"ratio": 1.4, "q1": 1.35, "q3": 1.46}
    told = {d.kind: d.sentence for d in compare(entries(), now).differences}
    assert told == {
        "wrong": "wrong: output 0 is off by 3.0e-02 of its scale (limit 1e-05), and over the "
        "limit in float64, too; it was 1.0e-07 of output 0",
        "pipeline": "pipeline: `fold` is no longer in it; `dce` is new, from step 4 on",
        "captures": "captures: min_cut: 2 captures, 4.0 KiB instead of 1, 2.0 KiB; now saved: "
        "`tanh` of act",
        "flops": "flops: 4 k instead of 2 k (2.0 times): `nn.dense` 3.5 k instead of 1.5 k",
        "memory": "memory: what is built takes 1.5 KiB instead of 1000 B (+50 %)",
        "compile": "compile: the pass `bind` takes 40 ms instead of 10 ms (best of 7 and 7 runs; "
        "medians 12 ms and 12 ms)",
        "speed": "speed: forward takes 1.40 (1.35 to 1.46) of eager's time instead of 1.00 "
        "(0.95 to 1.05)",
    }
    better = {d.kind: d.verdict for d in compare(now, entries()).differences}
    assert better["flops"] == better["memory"] == better["compile"] == better["speed"] == "better"
    assert [d.kind for d in compare(now, entries()).failing()] == ["pipeline"]


def test_a_pipeline_tells_what_is_switched_and_what_is_another():
    def told(then, now):
        was, new = ({**entries(), "pipeline": text} for text in (then, now))
        return said(new, was)[0][2]

    assert told("cse|fold", "cse|-fold") == "`fold` is switched off"
    assert told("-cse|-fold", "cse|fold") == "`cse`, `fold` are switched on"
    assert told("cse|fold", "cse|dce") == "from step 2 on, it has `dce` instead of `fold`"


def test_an_error_that_grew_or_is_rounding_is_told_and_no_small_one():
    now = entries()
    for size in (2e-6, float("nan")):
        now["error"]["max_rel"] = size
        assert [(k, v) for k, v, _ in said(now)] == [("error", "worse")]
    now["error"] |= {"verdict": "rounding", "max_rel": 2e-5}
    assert "rounding, because float64" in said(now)[0][2]
    now["error"] |= {"verdict": "wrong", "max_rel": 1e-3}
    found = compare(now, copy.deepcopy(now))
    assert not found.differences and "as they were" in found.notes[0]


def test_what_another_machine_target_or_tvm_made_is_said_and_held_as_far_as_it_can_be():
    now = entries()
    now["compile"]["passes"]["1 cse"]["best_ms"] = 99.0
    now["memory"]["built"] = 9999
    now["made"] = {**now["made"], "machine": "B", "tvm": "2"}
    found = compare(entries(), now)
    assert [d.kind for d in found.differences] == ["memory"]
    assert found.skipped == ("compile", "speed")
    assert "TVM 1, but this check with TVM 2: a difference may be TVM's" in found.notes[0]
    assert "another machine (A, 1 threads; this is B, 1 threads): times" in found.notes[1]
    now["made"] = {**now["made"], "target": "cuda"}
    found = compare(entries(), now)
    assert not found.differences and set(found.skipped) == {"error", "memory", "compile", "speed"}
    assert "errors, memory and times are not compared" in found.notes[1]


def test_a_crash_is_a_difference_in_its_own_words_and_every_kind_is_known():
    error = EngineError("pass", "Step 3, fold, failed: no such axis.\nmore", "FoldConstant")
    text = "it can no longer be compiled and run: Step 3, fold, failed: no such axis"
    assert crashed(error).sentence == f"crash: {text} (FoldConstant)"
    assert {"crash", "wrong", *(d.__name__[1:] for d in baselines._HELD)} == set(baselines.KINDS)


def test_a_baseline_is_read_as_it_was_written_and_other_files_are_refused():
    text = baselines.write(entries())
    assert baselines.read(text, "base.json") == entries()
    assert '\n  "kernels": [\n    ["nn.dense @encoder.layer.0.dense", "add @en' in text
    for wrong, words in (
        ("{", "This is not a baseline"),
        ("[]", "This is not a baseline"),
        (json.dumps({**entries(), "baseline": 9}), "format 9"),
        (json.dumps({**entries(), "operators": 3}), "lacks operators"),
    ):
        with pytest.raises(EngineError, match=words):
            baselines.read(wrong, "base.json")
