"""A fault of a pass as a folder that runs on its own, in the form of a bug report. Knows no TVM.

`README.md` is the text, with a script to paste (`engine.faults.pasted`), or why there is none;
`report.py` shows the fault (`engine.faults.show`), `values.npz` has inputs and results.
"""

import io
import platform
import pprint
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from relascope.core.identity import carry_identity
from relascope.core.version import __version__
from relascope.engine.building.cpu import machine
from relascope.engine.faults import bundle, markdown, pasted, replay
from relascope.engine.faults.files import piece_files
from relascope.engine.faults.narrow import (
    Extracted,
    Passes,
    ProgramText,
    Start,
    changed,
    extracted,
    same_result,
    transform,
)
from relascope.engine.faults.recorded import piece_after
from relascope.engine.faults.show import EPILOG, Fault, ProgramCall
from relascope.engine.limits import MIB
from relascope.engine.protocol.fault import (
    OF_PASS,
    OF_TEST,
    Account,
    ModuleFiles,
    Passage,
    Report,
    Suspicion,
)
from relascope.engine.registry import REGISTRY
from relascope.passes.catalogue.entry import PassInfo
from relascope.passes.pipeline import Step
from relascope.passes.search.reduce import Piece, operators
from relascope.passes.tvm_calls import Intercepted, TvmCall, intercepting

Calls = Sequence[TvmCall]

_FOLDERS = re.compile(r"(?<![\w./~-])(?:/[\w.@+~-]+)+/(?=[\w.-])")
_OPTIONS = re.compile(r"(?<=\bllvm)(?: -[\w-]+(?:=[^\s:,]+)?)+")
"""Options of the bisected target, some of which only relascope knows."""


@dataclass(frozen=True)
class Facts:
    """The contents of a report. `before` and `after` are texts of the piece around the suspected
    passes, "" where they crash; `results` are by their names in `values.npz`: "expected 0", ….
    `left` is the program after suspected passes that were recorded, None where they run; `calls`
    are the passes if they are TVM's and can be called directly. `unpasted` says why there is no
    script to paste; `modules` are the arguments of the user's own test, as in `piece_files`."""

    start: Start
    piece: Piece
    account: Account
    extracted: Extracted
    written: ProgramText
    before: str
    after: str
    results: Mapping[str, np.ndarray]
    left: ProgramText | None = None
    calls: Calls = ()
    pasted: str = ""
    unpasted: str = ""
    modules: Mapping[str, ModuleFiles] = field(default_factory=dict)

    @property
    def ir(self) -> str:
        return self.start.backend.ir

    @property
    def where(self) -> Suspicion:
        return self.start.where


def report(start: Start, piece: Piece, account: Account) -> Report:
    """Make the report on a piece that shows a fault. A crash, and a pass that takes too much, do
    not run again. Raises EngineError of kind "pass" where the piece cannot be cut out."""
    backend, where = start.backend, start.where
    found, calls = _called(start, extracted(start, piece))
    left = None if start.after is None else piece_after(start, piece, found)
    graph, _ = backend.to_graph(found.program)
    after_text, after_graph = "", None
    results: dict[str, np.ndarray] = {}
    if left is not None:
        found = replace(found, values={**left.values, **found.values})
    modules: Mapping[str, ModuleFiles] = {}
    if where.kind == OF_TEST:
        modules = piece_files(start, piece)
        if start.steps:
            after = transform(changed(start, found.program), start.tail)
            after_text = backend.text(after)
            after_graph = carry_identity(graph, backend.to_graph(after)[0]).graph
    elif where.kind not in ("crash", *OF_PASS):
        made = _changed(start, found, calls) if left is None else left.program
        for name, program in (("expected", found.program), ("seen", made)):
            run = _run(start, program, found)
            results |= {f"{name} {i}": value for i, value in enumerate(run.results())}
        after_text = backend.text(made)
        after_graph = carry_identity(graph, backend.to_graph(made)[0]).graph
    written, text = backend.written(found.program), backend.text(found.program)
    rest = None if left is None else backend.written(left.program)
    more = calls, *_pasted(start, found, written, calls), modules
    facts = Facts(start, piece, account, found, written, text, after_text, results, rest, *more)
    told, name = passages(facts), title(facts)
    found_files = files(facts) | markdown.written(name, told)
    return Report(name, facts.before, facts.after, found_files, graph, after_graph, told)


def _called(start: Start, found: Extracted) -> tuple[Extracted, Calls]:
    """A piece as TVM's passes take it, and the calls of those passes.

    The work of our passes before the first call (copies, types, sums that TVM cannot take) is done
    to the piece. No calls where a pass is not TVM's alone, or the calls alone are not known to show
    the fault.
    """
    where = start.where
    several = len(start.steps) > 1 and where.kind != "wrong"  # the next needs the last to run again
    if start.after is not None or several or where.kind in (*OF_PASS, OF_TEST):
        return found, ()
    given, program, calls = found, found.program, list[TvmCall]()
    for step, entry in start.steps:
        if (met := _intercepted(program, step, entry)) is None:
            return found, ()
        if not calls:
            given = replace(found, program=replace(program, mod=met.mod))
        calls.append(met.call)
        if len(start.steps) > 1:
            program = replace(program, mod=start.backend.replay.typed(met.call(met.mod)))
    if where.kind == "wrong" and not _differs(start, given, calls):
        return found, ()
    return given, tuple(calls)


def _intercepted(program: Any, step: Step, entry: PassInfo) -> Intercepted | None:
    if not _module(entry)[0].endswith((".builtin", ".tvm_pipelines")):
        return None
    try:
        with intercepting():
            entry.applied(program, step)
    except Intercepted as met:
        return met
    except Exception:  # code before TVM's pass crashes: its source goes into the report
        return None
    return None


def _differs(start: Start, found: Extracted, calls: Calls) -> bool:
    before = _run(start, found.program, found).results()
    after = _run(start, _changed(start, found, calls), found).results()
    gaps = replay.differences(before, after, start.floor)
    return any(not g.max_rel <= start.where.limit for g in gaps)


def _changed(start: Start, found: Extracted, calls: Calls) -> Any:
    if not calls:
        return transform(found.program, start.steps)
    mod = found.program.mod
    for call in calls:
        mod = start.backend.replay.typed(call(mod))
    return replace(found.program, mod=mod)


def _pasted(start: Start, found: Extracted, written: ProgramText, calls: Calls) -> tuple[str, str]:
    """The fault as a short script, where the passes alone show it; else why there is none."""
    by, where, read_by = calls or _own(start, found), start.where, start.backend.replay
    if start.after is not None:
        return "", "the pass was recorded in a compile, and does not run"
    if start.tail:
        return "", "the fault shows only after further passes, which are in the folder"
    if where.kind not in ("wrong", "crash"):
        return "", "the measurement must run as before, on the values in the folder"
    if by is None:
        return "", "the passes have several files, or need more than a plain call"
    read = by.program.params if isinstance(by, pasted.OwnPasses) else ()
    values = found.values if where.building else {n: found.values[n] for n in read}
    given = pasted.numbers({**written.constants, **values})
    if given is None or (given.drawn and where.kind != "wrong"):
        return "", "it may need its own numbers, too many for a text or of a type that numpy lacks"
    if given.drawn:
        constants = {n: given.values[n] for n in written.constants}
        mod = read_by.read(written.text, written.json, constants)
        params = {n: read_by.array(given.values[n]) for n in found.program.params}
        drawn = replace(found.program, mod=mod, params=params)
        drawn = replace(found, program=drawn, values=given.values)
        if not _differs(start, drawn, calls):
            return "", "it needs its own numbers, too many for a text"
    script = pasted.script(start, by, written, given)
    return script, "" if script else "program or pass is too long, or needs more of relascope"


def _own(start: Start, found: Extracted) -> pasted.OwnPasses | None:
    """The suspected passes as a script calls them; None where a script cannot."""
    files = {Path(e.own_file) for _, e in start.steps if e.own_file}
    counted = any(e.count(s) is not None for s, e in start.steps)
    if counted or not same_result(start.steps) or len(bundle.siblings(files)) > 1:
        return None
    source = "".join(f.read_text(encoding="utf-8") for f in files)
    return pasted.OwnPasses(_calls(start.steps), source, found.program)


def _run(start: Start, program: Any, found: Extracted) -> replay.Runner:
    mod, target = transform(program, start.tail).mod, start.where.target
    run = replay.ran(start.backend.replay, mod, found.values, target)
    assert run is not None, "what is compared was built"
    return run


def title(facts: Facts) -> str:
    """One line: the IR, the pass, what it does, and to which operators."""
    names = " and ".join(_named(entry) for _, entry in facts.start.steps)
    found = list(dict.fromkeys(operators(facts.start.graph, facts.piece)))
    what = ", ".join(found[:4]) + (" and others" if len(found) > 4 else "")
    s = "" if len(facts.start.steps) > 1 else "s"
    does = {
        OF_TEST: f"make{s} a test fail on {what}",
        "wrong": f"change{s} {_result(facts)} {what}",
        "slow": f"make{s} {what} {facts.account.shown.ratio or 0.0:.1f} times slower",
        "long": f"take{s} {_taken(facts)} on {what}",
        "memory": f"keep{s} {_taken(facts)} on {what}",
    }.get(facts.where.kind, f"{_crashes(facts)} on {what}")
    if facts.where.kind == "crash" and facts.where.building:
        does += ", or the build after it does"
    if not names:
        names, does = "A test", f"fails on {what}"
    return f"[{REGISTRY[facts.ir].title}] {names} {does}"


_CRASHES = {
    "raises": "raises an error",
    "malformed": "returns a malformed program",
    "ends": "ends the process",
    "seconds": "takes longer than {account.seconds:g} s",
    "memory": "takes more than {account.memory:g} MiB of memory",
}


def _taken(facts: Facts) -> str:
    shown = facts.account.shown
    if facts.where.kind == "long":
        return f"{shown.seconds or 0.0:.3g} s"
    return f"{(shown.kept_bytes or 0) / MIB:.1f} MiB"


def _crash(facts: Facts) -> str:
    return facts.account.shown.crash or "raises"


def _crashes(facts: Facts) -> str:
    error = facts.account.shown.error
    if _crash(facts) == "malformed" and error and "well-formed" not in error.message:
        return "changes types"
    return _CRASHES[_crash(facts)].format(account=facts.account)


def _result(facts: Facts) -> str:
    if any(step.name == "gradient" for step, _ in facts.start.tail):
        return "the gradient of"
    return "the result after later passes of" if facts.start.tail else "the result of"


def files(facts: Facts) -> dict[str, bytes]:
    steps = () if facts.left is not None or facts.calls else facts.start.steps
    passes = [entry for _, entry in (*steps, *facts.start.tail)]
    own = bundle.siblings(Path(e.own_file) for e in passes if e.own_file)
    found = {path.name: path.read_bytes() for path in own}
    if facts.modules:
        return found | {n: c for one in facts.modules.values() for n, c in one.files.items()}
    modules = [_module(e)[0] for e in passes if not e.own_file]
    modules += ["relascope.engine.faults.show", f"relascope.engine.{facts.ir}.faults.replay"]
    modules += [f"relascope.passes.{facts.ir}.ir.program"] * bool(passes)
    found |= bundle.sources(modules, own)
    found |= {"values.npz": _stored(facts), "report.py": _script(facts).encode()}
    for name, one in (("program", facts.written), ("after", facts.left)):
        if one is not None and one.json:
            found[f"{name}.json"] = one.json.encode()
    return dict(sorted(found.items()))


def _stored(facts: Facts) -> bytes:
    stored = {f"argument {n}": v for n, v in facts.extracted.values.items()}
    stored |= {f"constant program {n}": v for n, v in facts.written.constants.items()}
    left = {} if facts.left is None else facts.left.constants
    stored |= {f"constant after {n}": v for n, v in left.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **stored, **facts.results)  # type: ignore[arg-type]
    return buffer.getvalue()


def _module(entry: PassInfo) -> tuple[str, str]:
    module, _, name = entry.function.rpartition(":")
    return module, name


def _named(entry: PassInfo) -> str:
    return entry.title if entry.title == entry.name else f"{entry.title} ({entry.name})"


def _calls(passes: Passes) -> list[ProgramCall]:
    found = []
    for step, entry in passes:
        module, name = _module(entry)
        place = Path(module).stem if entry.own_file else module
        found.append(ProgramCall(place, name, dict(entry.arguments(step))))
    return found


_USAGE = """\
python report.py                          # shows the fault
python report.py --fix FILE.py:FUNCTION   # runs FUNCTION in place of the pass
"""


def _script(facts: Facts) -> str:
    where, program, name = facts.where, facts.extracted.program, title(facts)
    plain_name = name.replace("\\", "/").replace('"""', "'''")
    crash = _crash(facts) if where.kind == "crash" else ""
    fault = Fault(
        title=name,
        kind=where.kind,
        ir=facts.ir,
        program="",
        inputs=tuple(program.inputs),
        parameters=tuple(program.params),
        outputs=program.outputs,
        steps=tuple(facts.calls or (_calls(facts.start.steps) if facts.left is None else ())),
        tail=tuple(_calls(facts.start.tail)),
        target=where.target,
        limit=where.limit,
        floor=facts.start.floor,
        building=where.building,
        same_result=same_result(facts.start.steps),
        recorded=facts.left is not None,
        after=facts.left.text if facts.left is not None else "",
        crash=crash,
        error=_message(facts).partition("\n")[0] if crash else "",
        seconds=facts.account.seconds if crash == "seconds" else 0.0,
        memory=facts.account.memory if crash == "memory" else 0.0,
        runs=where.runs,
        plain=where.plain,
    )
    listed = "".join(
        f"    {one.name}={pprint.pformat(value, width=80, sort_dicts=False)},\n"
        for one in fields(Fault)
        if (value := getattr(fault, one.name)) != one.default and one.name != "program"
    )
    return (
        f'"""{plain_name}.\n\n{_USAGE}\n{EPILOG}\n"""\n\n'
        "import sys\nfrom pathlib import Path\n\n"
        "sys.path.insert(0, str(Path(__file__).resolve().parent))\n\n"
        "from relascope.engine.faults.show import Fault, ProgramCall, main\n"
        "from relascope.passes.tvm_calls import TvmCall\n\n"
        f"PROGRAM = {_quoted(facts.written.text)}\n\n"
        f"FAULT = Fault(\n    program=PROGRAM,\n{listed})\n\n"
        'if __name__ == "__main__":\n    sys.exit(main(FAULT))\n'
    )


def _quoted(text: str) -> str:
    """A text as Python: readable where nothing in it has a meaning there."""
    if "\\" in text or '"""' in text or text.endswith('"'):
        return repr(text)
    return f'"""{text}"""'


def passages(facts: Facts) -> tuple[Passage, ...]:
    """The text: in the order and words of TVM's bug form, then the module and the rest."""
    found, command = (_FOLDERS.sub("", t) for t in (facts.account.summary, facts.account.command))
    kind = "python" if facts.ir == "relax" else ""  # TVMScript
    before = "" if facts.pasted and facts.written.text else facts.before  # it is in the script
    modules = {"before": before, "after": facts.after}
    fault = f"crash {_crash(facts)}" if facts.where.kind == "crash" else facts.where.kind
    return (
        Passage("Expected behavior", _EXPECTED[fault]),
        _happens(facts),
        Passage("The first bad pass", _passes(facts)),
        Passage("Environment", "\n".join(f"- {line}" for line in _versions(facts))),
        _how(facts),
        *(
            Passage(f"The module {name} the pass", "", code, kind, file=f"{name}.txt")
            for name, code in modules.items()
            if code
        ),
        Passage("How it was found", found, command, "sh", file="command.txt"),
        *_folder(facts),
    )


def _happens(facts: Facts) -> Passage:
    shown, where, actual = facts.account.shown, facts.where, "Actual behavior"
    if where.kind == "wrong":
        text = (
            f"On the same inputs, the program gives other results {_when(facts)}: "
            f"they differ by {shown.max_abs or 0.0:.3e}, which is {shown.max_rel or 0.0:.3e} of "
            f"the result's scale (limit {where.limit:.0e})."
        )
        dtypes = {str(v.dtype) for v in facts.extracted.values.values()}
        if "float64" in dtypes and "float32" not in dtypes:
            text += (
                " All values are in float64, where rounding is far smaller: it is wrong, not "
                "rounded."
            )
        return Passage(actual, text, rows=_differing(facts.results))
    if where.kind == OF_TEST and shown.test is not None:
        which = "the module after the pass bad, and the one before it good"
        if not facts.start.steps:
            which = "the module bad"
        output = _FOLDERS.sub("", shown.test.output.rstrip())
        text = f"`{facts.account.test}` calls {which}: {_FOLDERS.sub('', shown.test.words)}."
        text += " It prints:" if output else ""
        return Passage(actual, text, output, file="output.txt")
    limit = f"limit {where.limit / MIB:.1f} MiB"
    text = {
        "slow": f"After the pass the program takes {shown.ratio or 0.0:.2f} times as long as "
        f"before it (limit {where.limit:g}).",
        "long": f"The pass takes {_taken(facts)} on the program below (limit {where.limit:.3g} s).",
        "memory": f"{_taken(facts)} of memory stay after the pass ({limit}).",
    }.get(where.kind, "")
    if text:
        return Passage(actual, text)
    what = "The pass, or building or running its result," if where.building else "The pass"
    return Passage(actual, f"{what} {_crashes(facts)}:", _message(facts), file="message.txt")


_FEW = 8


def _differing(results: Mapping[str, np.ndarray]) -> tuple[dict[str, str], ...]:
    """Where results differ most, with expected and seen values."""
    found = list[tuple[float, dict[str, str]]]()
    for name, before in results.items():
        if not name.startswith("expected "):
            continue
        number, after = name.split()[1], results.get(f"seen {name.split()[1]}")
        if after is None or before.shape != after.shape:
            sides = [before.shape, "none" if after is None else after.shape]
            found.append((np.inf, _row(number, "shape", *map(str, sides))))
            continue
        gap = replay.gaps(before, after)
        for at in np.argsort(-gap, axis=None, kind="stable")[:_FEW]:
            place = str([int(i) for i in np.unravel_index(at, gap.shape)])
            row = _row(number, place, str(before.flat[at]), str(after.flat[at]))
            found += [(float(gap.flat[at]), row)] * bool(gap.flat[at])
    return tuple(row for _, row in sorted(found, key=lambda one: -one[0])[:_FEW])


def _row(result: str, at: str, expected: str, seen: str) -> dict[str, str]:
    return {"result": result, "at": at, "expected": expected, "seen": seen}


def _message(facts: Facts) -> str:
    """The error's message, without the names of this machine's folders."""
    error = facts.account.shown.error
    return "" if error is None else _FOLDERS.sub("", error.message)


def _when(facts: Facts) -> str:
    if not facts.start.tail:
        return "after the pass than before it"
    names = ", ".join(step.name for step, _ in facts.start.tail)
    return f"with the pass before {names} than without it"


_EXPECTED = {
    "wrong": "The same results with the pass as without it, except for rounding.",
    OF_TEST: "The test calls it good: exit status 0.",
    "slow": "A program that is not slower.",
    "long": "The pass takes less time.",
    "memory": "The pass keeps less memory.",
    "crash raises": "No crash, as without the pass.",
    "crash ends": "No crash, as without the pass.",
    "crash malformed": "A well-formed program with the same arguments and results.",
    "crash seconds": "It ends within the limit, as without the pass.",
    "crash memory": "It stays within the limit of memory, as without the pass.",
}


def _how(facts: Facts) -> Passage:
    title = "Steps to reproduce"
    if facts.modules:
        test = facts.account.test
        after, before = facts.modules["module"].name, facts.modules["before"].name
        told = (
            "Attach the folder of this report as an archive, because the test takes files. In it, "
            f"`{after}` is the module to judge, `{before}` the module before the pass. The `.npz` "
            "beside each has a value for every argument of its `main`, by name."
        )
        return Passage(title, told, f"chmod +x {test}\n./{test} {after} {before}", "sh")
    engine = REGISTRY[facts.ir]
    need = engine.needs.format(*(_package(name, name) for name in engine.packages))
    if not facts.pasted:
        words = f"Attach the folder of this report as an archive, because {facts.unpasted}. In it, "
        words += f"this shows the fault. Needs: {need}"
        return Passage(title, words, _USAGE, "sh")
    does = _crashes(facts) if _crash(facts) in ("seconds", "memory", "ends") else "fails"
    words = f"This script {does} while the fault shows, and exits with 0 once it is fixed."
    ours = "" if facts.calls else f" And relascope {__version__}, only for its passes."
    return Passage(title, f"{words} Needs: {need}{ours}", facts.pasted, "python")


def _folder(facts: Facts) -> tuple[Passage, ...]:
    if facts.modules:
        return ()
    takes = "an IRModule and returns one"
    if facts.left is None and not facts.calls:
        takes = f"a `{facts.ir.capitalize()}Program` and returns one, as the pass does"
    words = (
        f"`python report.py` there also shows the fault. {EPILOG} {_to_fix(facts)} With `--fix "
        f"FILE.py:FUNCTION`, your own function replaces the pass: it takes {takes}. `values.npz` "
        "has the arguments, the constants, and the expected and seen results. The folder "
        "`relascope` has the modules that `report.py` imports; it uses no installed relascope."
    )
    return (Passage("The report's folder", words, rows=_arguments(facts)),)


def _to_fix(facts: Facts) -> str:
    if facts.left is not None:
        return "The recorded pass does not run here, so only `--fix` can show that it is fixed."
    if facts.calls:
        return "To try a fixed TVM, run it with that TVM."
    return "To try a fixed pass, change its copy in this folder."


def _package(name: str, otherwise: str) -> str:
    try:
        return f"{name}=={version(name)}"
    except PackageNotFoundError:
        return otherwise


def _versions(facts: Facts) -> list[str]:
    packages = REGISTRY[facts.ir].packages
    wheel = ", ".join(filter(None, (_package(name, "") for name in packages)))
    torch = _package("torch", "").replace("==", " ").replace("torch", "PyTorch")
    others = f"Python {platform.python_version()}", torch, f"numpy {np.__version__}"
    return [
        facts.start.backend.replay.version() + (f" ({wheel})" if wheel else ""),
        ", ".join(filter(None, (*others, f"relascope {__version__}"))),
        f"Operating system: {_system()}",
        f"Processor: {machine()} ({platform.machine()}), target `{facts.where.target}`",
    ]


def _system() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:  # not Linux, or one without this file
        name = ""
    kernel = f"{platform.system()} {platform.release()}"
    return f"{name} ({kernel})" if name else kernel


def _passes(facts: Facts) -> str:
    said = _OPTIONS.sub("", _FOLDERS.sub("", facts.account.bisected))
    lines = [f"{said}\n"] * bool(said)
    if facts.left is not None:
        names = ", ".join(entry.title for _, entry in facts.start.steps)
        lines.append(
            f"- {names}, recorded in a compile. It does not run here: the program after it is the "
            "recorded counterpart of the program before it, by nodes that are the same in both."
        )
        return "\n".join(lines)
    for index, (step, entry) in enumerate(facts.start.steps):
        if facts.calls:
            call = facts.calls[index]
            given = ", ".join(f"{n}={v!r}" for n, v in call.arguments.items())
            lines.append(f"- `{step}` calls `{call.module}.{call.function}({given})`.")
            continue
        place = f" Its code is in `{Path(entry.own_file).name}`." if entry.own_file else ""
        lines.append(f"- `{step}`: {entry.title}, from {entry.origin}. {entry.summary}{place}")
    if facts.start.tail:
        names = ", ".join(f"`{s}`" for s, _ in facts.start.tail)
        lines.append(f"- The fault shows after {names}, which run with it and without it.")
    return "\n".join(lines)


def _arguments(facts: Facts) -> tuple[dict[str, str], ...]:
    rows = []
    for ident, name in facts.extracted.names.items():
        node = facts.start.graph.by_id[ident]
        told = f"{node.title}" + (f" in {node.scope}" if node.scope else "")
        if name in facts.extracted.random:
            told += ", with random values"
        rows.append({"argument": f"`{name}`", "type": str(node.outputs[0]), "stands for": told})
    for name, value in facts.written.constants.items():
        kind = f"{value.dtype}{list(value.shape)}"
        told = "a constant of the program"
        rows.append({"argument": f"`{name}`", "type": kind, "stands for": told})
    return tuple(rows)
