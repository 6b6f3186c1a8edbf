"""The GitHub action: the scripts of its steps, run as a runner does, against a recording `gh`."""

import json
import os
import re
import sys
from dataclasses import dataclass, field

import pytest
import yaml

from answers import ran
from command_line import FAKE, document
from place import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
REPOSITORY, BOT = "owner/net", {"login": "github-actions[bot]"}
REGRESSION = "operators: 3 instead of 4; the module layers.9 is gone, with its one operator"

GH = """#!{python}
import json, os, sys
argv, box = sys.argv[1:], os.environ["BOX"]
body = [open(a[6:]).read() for a in argv if a.startswith("body=@")]
with open(box + "/calls", "a") as calls:
    print(json.dumps([argv, *body]), file=calls)
if os.path.exists(box + "/refusal"):
    sys.exit(open(box + "/refusal").read())
if "-X" not in argv:
    pages = json.load(open(box + "/comments"))
    pages = pages if "--paginate" in argv else pages[:1]
    print(json.dumps(pages) if "--slurp" in argv else "".join(map(json.dumps, pages)))
"""
PYTHON = """#!/bin/sh
if [ "$2" = pip ]; then printf '%s\\n' "$@" > "$BOX/pip"; else exec {python} "$@"; fi
"""
RELASCOPE = """#!/bin/sh
echo "$*" >> "$BOX/relascope"
[ "$1" = install-relay ] || exec {python} "$BOX/fake.py" "$@"
"""


@dataclass
class Job:
    """A job of a workflow that uses the action: its folder, and what GitHub says of the event."""

    folder: object
    github: dict = field(default_factory=dict)
    outputs: dict = field(default_factory=dict)
    failed: bool = False

    def __post_init__(self):
        for name in ("bin", "box", "temp", "work"):
            (self.folder / name).mkdir()
        for name, text in {"gh": GH, "python": PYTHON, "relascope": RELASCOPE}.items():
            (self.folder / "bin" / name).write_text(text.format(python=sys.executable))
            (self.folder / "bin" / name).chmod(0o755)
        (self.folder / "box" / "fake.py").write_text(FAKE)
        self.comments()
        pull = {"number": 7, "head": {"repo": {"full_name": REPOSITORY}}}
        self.github = {"token": "t", "event": {"pull_request": pull}, **self.github}

    def comments(self, *comments):
        """What GitHub has on the pull request, in pages of two."""
        pages = [list(comments[i : i + 2]) for i in range(0, len(comments), 2)]
        (self.folder / "box" / "comments").write_text(json.dumps(pages or [[]]))

    def read(self, name):
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    @property
    def written(self):
        """What `gh` was told to write: its words, and the text."""
        calls = [json.loads(line) for line in self.read("box/calls").splitlines()]
        return [c for c in calls if "-X" in c[0]]

    def value(self, expression, inputs):
        """What an expression of contexts alone stands for."""
        steps = {name: {"outputs": found} for name, found in self.outputs.items()}
        value = {"inputs": inputs, "steps": steps, "github": self.github}
        for part in expression.split("."):
            value = value.get(part, "") if isinstance(value, dict) else ""
        return str(value)

    def filled(self, text, inputs):
        return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda m: self.value(m[1], inputs), str(text))

    def runs(self, step, inputs):
        parts = str(step.get("if", "success()")).strip("${} ").split(" && ")
        always = "!cancelled()" in parts
        for part in parts:
            if found := re.fullmatch(r"([\w.-]+) (==|!=) '(\w*)'", part):
                name, sign, other = found.groups()
                if (self.value(name, inputs) == other) != (sign == "=="):
                    return False
            else:
                assert part in ("!cancelled()", "success()"), part
        return always or not self.failed

    def play(self, first=0, **inputs):
        """Run the steps from one on, and give the exit status of the last script, and the log."""
        known = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        inputs, log, status = known | {k.replace("_", "-"): v for k, v in inputs.items()}, "", 0
        for step in STEPS[first:]:
            if not self.runs(step, inputs):
                continue
            found = self.outputs.setdefault(step.get("id", step.get("name", "")), {})
            if "run" not in step:
                given = {k: self.filled(v, inputs) for k, v in step["with"].items()}
                if step["uses"].startswith("actions/upload-artifact@"):
                    assert given["archive"] == "False"
                    assert (self.folder / "temp" / given["path"]).read_text().startswith("<!doct")
                    found["artifact-url"] = "https://github.com/owner/net/actions/page"
                continue
            done = self.shell(step, inputs)
            log += done.stdout + done.stderr
            if done.returncode:
                self.failed, status = True, done.returncode
            for line in self.read("output").splitlines():
                name, _, value = line.partition("=")
                found[name] = value
        return status, log

    def shell(self, step, inputs):
        assert step["shell"] == "bash"
        (self.folder / "output").write_text("")
        files = {f"GITHUB_{n}": str(self.folder / n.lower()) for n in ("OUTPUT", "ENV")}
        own = {
            **files,
            "BOX": str(self.folder / "box"),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.folder / "temp"),
            **{k: self.filled(v, inputs) for k, v in step.get("env", {}).items()},
        }
        script = self.folder / "script.sh"
        script.write_text(step["run"])
        shell = "bash", "--noprofile", "--norc", "-eo", "pipefail"
        return ran(*shell, script, cwd=self.folder / "work", env={**os.environ, **own})


COMMENTING = next(i for i, s in enumerate(STEPS) if s.get("name", "").startswith("Comment"))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    file = tmp_path_factory.mktemp("base") / "base.json"
    document("baseline", "mlp", "--passes", "cse|fold", "-o", str(file))
    return json.loads(file.read_text())


@pytest.fixture
def job(tmp_path, base):
    """A job whose repository has a baseline that the model has left, and one that it has not."""
    made = Job(tmp_path)
    (tmp_path / "work" / "ci").mkdir()
    (tmp_path / "work" / "ci" / "same.json").write_text(json.dumps(base, indent=1))
    worse = {**base, "operators": {**base["operators"], "layers.9": {"nn.relu": 1}}}
    (tmp_path / "work" / "ci" / "worse.json").write_text(json.dumps(worse, indent=1))
    return made


@pytest.fixture
def checked(job):
    """The job after its check, which found a regression."""
    text = "<!-- relascope check ci/net.json -->\n**One difference fails.**\n"
    (job.folder / "temp" / "net.md").write_text(text)
    job.outputs["check"] = {"status": "3", "file": str(job.folder / "temp" / "net")}
    return job


def test_a_regression_fails_the_job_and_is_commented_with_a_page(job):
    options = "--rtol 1e-3\n --fail-on operators"
    status, log = job.play(model="mlp", baseline="ci/worse.json", options=options)
    assert status == 3 and REGRESSION in log
    ((words, text),) = job.written
    where = f"repos/{REPOSITORY}/issues/7/comments"
    file = job.folder / "temp" / "relascope-ci-worse.md"
    assert words == ["api", "--silent", "-X", "POST", where, "-F", f"body=@{file}"]
    assert text.startswith("<!-- relascope check ci/worse.json -->\n**One difference fails.** ")
    assert "| operators | calls | 4 | 3 | no change | differs |" in text
    again = "relascope check mlp --baseline ci/worse.json --rtol 1e-3 --fail-on operators --update"
    assert f"```sh\n{again}\n```" in text
    assert "[The page of this check](https://github.com/owner/net/actions/page)" in text
    assert job.read("summary") == text
    pip = job.read("box/pip").splitlines()
    assert pip[-1] == str(ROOT) and os.path.isfile(pip[pip.index("-c") + 1])
    assert job.read("box/relascope").startswith("install-relay\n")


def test_without_a_regression_it_is_green_and_writes_no_comment(job):
    status, _ = job.play(model="mlp", baseline="ci/same.json")
    assert status == 0 and job.written == []
    assert "**Nothing differs from the baseline.**" in job.read("summary")
    marker = job.read("summary").splitlines()[0]
    assert marker == "<!-- relascope check ci/same.json -->"
    job.comments({"id": 5, "user": BOT, "body": f"{marker}\r\n**One difference fails.**"})
    assert job.play(COMMENTING, model="mlp", baseline="ci/same.json")[0] == 0
    ((words, text),) = job.written
    assert words[3:5] == ["PATCH", f"repos/{REPOSITORY}/issues/comments/5"]
    assert "**Nothing differs from the baseline.**" in text


def test_a_comment_that_is_there_is_changed_and_only_if_it_is_this_checks_own(checked):
    own = "<!-- relascope check ci/net.json -->\nbefore"
    checked.comments(
        {"id": 1, "user": {"login": "somebody"}, "body": own},
        {"id": 2, "user": None, "body": own},
        {"id": 3, "user": BOT, "body": f"> {own}"},
        {"id": 4, "user": BOT, "body": "<!-- relascope check ci/net.json2 -->"},
    )
    assert checked.play(COMMENTING)[0] == 3
    assert [words[3] for words, _ in checked.written] == ["POST"]
    more = [{"id": i, "user": BOT, "body": "another"} for i in range(10, 15)]
    checked.comments(*more, {"id": 9, "user": BOT, "body": own})
    assert checked.play(COMMENTING)[0] == 3
    words, text = checked.written[-1]
    assert words[3:5] == ["PATCH", f"repos/{REPOSITORY}/issues/comments/9"]
    assert "**One difference fails.**" in text


def test_what_github_refuses_is_a_warning_and_the_jobs_end_stays_the_checks(checked):
    (checked.folder / "box" / "refusal").write_text("Resource not accessible (HTTP 403)")
    status, log = checked.play(COMMENTING)
    assert status == 3 and "HTTP 403" in log
    assert "::warning" in log and "pull-requests: write" in log


def test_no_comment_is_tried_from_a_fork_nor_where_none_is_wanted_or_nothing_is_pulled(checked):
    checked.github["event"]["pull_request"]["head"]["repo"]["full_name"] = "somebody/net"
    status, log = checked.play(COMMENTING)
    assert status == 3 and "::notice" in log and "from a fork" in log
    assert checked.play(COMMENTING, comment="false")[0] == 3
    checked.github["event"] = {}
    assert checked.play(COMMENTING)[0] == 3
    assert checked.read("box/calls") == ""


def test_inputs_are_words_and_never_run(job):
    for step in STEPS:
        assert "${{" not in step.get("run", ""), step["name"]
    run = "$(touch pwned) `touch pwned`; touch pwned"
    status, _ = job.play(model=run, baseline=f"ci/{run}.json", options=f"{run} *")
    assert status in (1, 2) and not list(job.folder.rglob("*pwned*"))
    assert f"(status {status})" in job.read("summary") and job.written == []


def test_the_docs_name_every_input_and_what_a_workflow_permits():
    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    section = page.partition("## In a pull request\n")[2].partition("\n## ")[0]
    block = re.search(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    workflow = yaml.safe_load(block[1])
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    (job,) = workflow["jobs"].values()
    given = job["steps"][-1]["with"]
    needed = {name for name, one in ACTION["inputs"].items() if one.get("required")}
    assert needed <= set(given) <= set(ACTION["inputs"])
    assert not {name for name in ACTION["inputs"] if f"`{name}`" not in section}
