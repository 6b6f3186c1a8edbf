"""A fault of a pass as a report that runs by itself, shaped like a bug report one can file.

It is a folder: `README.md` is the text of the report, `report.py` shows the fault, `values.npz` has
the inputs and results, and what `report.py` imports lies beside it. Knows no TVM; see
`engine.faults.replay` for what runs.
"""

from __future__ import annotations

import io
import platform
import pprint
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from relascope.core.identity import carry_identity
from relascope.engine.faults import bundle
from relascope.engine.faults.narrow import (
    Extracted,
    Passes,
    PieceBackend,
    Start,
    Written,
    applied,
    extracted,
)
from relascope.engine.faults.recorded import became
from relascope.engine.protocol.fault import Account, Report, Where
from relascope.engine.registry import REGISTRY
from relascope.passes.catalogue.entry import PassInfo
from relascope.passes.search.reduce import Piece, operators

_FOLDERS = re.compile(r"(?:/[\w.@+~-]+)+/(?=[\w.-])")


@dataclass(frozen=True)
class Facts:
    """What a report is made of.

    Args:
        ir, version: of the engine.
        before, after: text of the piece before and after the suspected passes; "" where they crash.
        results: by their names in `values.npz`: "expected 0", ….
        left: the program after suspected passes that were recorded; None where they are run.
    """

    ir: str
    version: str
    start: Start
    where: Where
    piece: Piece
    account: Account
    extracted: Extracted
    written: Written
    before: str
    after: str
    results: Mapping[str, np.ndarray]
    left: Written | None = None

    @property
    def suspected(self) -> Passes:
        """The suspected passes that are run."""
        return self.start.steps if self.left is None else ()

    @property
    def passes(self) -> Passes:
        """The suspected passes that are run, and those after them."""
        return *self.suspected, *self.start.tail


def report(
    backend: PieceBackend, start: Start, where: Where, piece: Piece, account: Account
) -> Report:
    """Make the report of a piece that shows a fault.

    Where the fault is a crash, the suspected passes are not run again: they may end the process.

    Raises:
        EngineError: kind "pass"; the piece cannot be cut out.
    """
    found = extracted(backend, start, piece)
    left = None if start.after is None else became(backend, start, piece, found)
    graph, _ = backend.to_graph(found.program)
    after_text, after_graph = "", None
    results: dict[str, np.ndarray] = {}
    if left is not None:
        found = replace(found, values={**left.values, **found.values})
    if where.kind != "crash":
        changed = applied(found.program, start.steps) if left is None else left.program
        for name, program in (("expected", found.program), ("seen", changed)):
            program = applied(program, start.tail)
            run = backend.replay.runner(program.mod, found.values, where.target)
            run()
            results |= {f"{name} {i}": value for i, value in enumerate(run.results())}
        after_text = backend.text(changed)
        after_graph = carry_identity(graph, backend.to_graph(changed)[0]).graph
    about = backend.ir, backend.replay.version(), start, where, piece, account, found
    written, text = backend.written(found.program), backend.text(found.program)
    rest = None if left is None else backend.written(left.program)
    facts = Facts(*about, written, text, after_text, results, rest)
    return Report(title(facts), facts.before, facts.after, files(facts), graph, after_graph)


def title(facts: Facts) -> str:
    """One line: the IR, the pass, what it does, to what."""
    names = " and ".join(_called(entry) for _, entry in facts.start.steps)
    found = list(dict.fromkeys(operators(facts.start.graph, facts.piece)))
    what = ", ".join(found[:4]) + (" and others" if len(found) > 4 else "")
    several = len(facts.start.steps) > 1
    crash, make = ("crash", "make") if several else ("crashes", "makes")
    ratio = facts.account.shown.ratio
    does = {
        "wrong": f"{'change' if several else 'changes'} {_changed(facts)} {what}",
        "slow": f"{make} {what} {ratio or 0.0:.1f} times slower",
        "crash": f"{make} {what} crash when it is built or run",
    }
    if not facts.where.building:
        does["crash"] = f"{crash} on {what}"
    return f"[{REGISTRY[facts.ir].title}] {names} {does[facts.where.kind]}"


def _changed(facts: Facts) -> str:
    if any(step.name == "gradient" for step, _ in facts.start.tail):
        return "the gradient of"
    return "what later passes make of" if facts.start.tail else "the result of"


def files(facts: Facts) -> dict[str, bytes]:
    """The files of a report by their paths."""
    stored = {f"argument {n}": v for n, v in facts.extracted.values.items()}
    stored |= {f"constant {n}": v for n, v in facts.written.constants.items()}
    left = {} if facts.left is None else facts.left.constants
    stored |= {f"constant after {n}": v for n, v in left.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **stored, **facts.results)  # type: ignore[arg-type]
    own = bundle.siblings(Path(_module(e)[0]) for _, e in facts.passes if _is_file(e))
    modules = [_module(e)[0] for _, e in facts.passes if not _is_file(e)]
    modules += [f"relascope.engine.{part}faults.replay" for part in ("", f"{facts.ir}.")]
    found = bundle.sources(modules, own)
    found |= {path.name: path.read_bytes() for path in own}
    found["values.npz"] = buffer.getvalue()
    for name, one in (("program", facts.written), ("after", facts.left)):
        if one is not None and one.json:
            found[f"{name}.json"] = one.json.encode()
    found["report.py"] = _script(facts).encode()
    found["README.md"] = _readme(facts).encode()
    return dict(sorted(found.items()))


def _is_file(entry: PassInfo) -> bool:
    return _module(entry)[0].endswith(".py")


def _module(entry: PassInfo) -> tuple[str, str]:
    module, _, name = entry.function.rpartition(":")
    return module, name


def _called(entry: PassInfo) -> str:
    return entry.title if entry.title == entry.name else f"{entry.title} ({entry.name})"


def _listed(steps: Passes) -> list[tuple[str, str, dict[str, Any]]]:
    found = []
    for step, entry in steps:
        module, name = _module(entry)
        place = Path(module).stem if _is_file(entry) else module
        found.append((place, name, dict(entry.arguments(step))))
    return found


def _script(facts: Facts) -> str:
    where, program = facts.where, facts.extracted.program
    fields = {
        "title": title(facts),
        "kind": where.kind,
        "ir": facts.ir,
        "inputs": tuple(program.inputs),
        "parameters": tuple(program.params),
        "outputs": program.outputs,
        "steps": tuple(_listed(facts.suspected)),
        "tail": tuple(_listed(facts.start.tail)),
        "target": where.target,
        "limit": where.limit,
        "floor": facts.start.floor,
        "building": where.building,
    }
    if facts.left is not None:
        fields["after"] = facts.left.text
        fields["recorded"] = True
    listed = "".join(
        f"    {name}={pprint.pformat(value, width=80, sort_dicts=False)},\n"
        for name, value in fields.items()
    )
    return (
        f'"""{_plain(fields["title"])}.\n\nRun: python report.py\n"""\n\n'
        "import sys\n\nfrom relascope.engine.faults.replay import Fault, main\n\n"
        f"PROGRAM = {_quoted(facts.written.text)}\n\n"
        f"FAULT = Fault(\n    program=PROGRAM,\n{listed})\n\n"
        'if __name__ == "__main__":\n    sys.exit(main(FAULT))\n'
    )


def _quoted(text: str) -> str:
    """A text as Python: readable where nothing in it has a meaning there."""
    if "\\" in text or '"""' in text or text.endswith('"'):
        return repr(text)
    return f'"""{text}"""'


def _plain(text: Any) -> str:
    return str(text).replace("\\", "/").replace('"""', "'''")


def _readme(facts: Facts) -> str:
    parts = [
        f"# {title(facts)}",
        "## What happens",
        _happens(facts),
        "## What should happen",
        _expected(facts),
        "## How to run it",
        _how(facts),
        "## Versions",
        "\n".join(f"- {line}" for line in _versions(facts)),
        "## The pass" if len(facts.start.steps) == 1 else "## The passes",
        _passes(facts),
        "## The program before it",
        _fenced(facts.before),
        _arguments(facts),
    ]
    if facts.after:
        parts += ["## The program after it", _fenced(facts.after)]
    parts += ["## How it was found", facts.account.found]
    return "\n\n".join(p for p in parts if p) + "\n"


def _happens(facts: Facts) -> str:
    shown, where = facts.account.shown, facts.where
    if where.kind == "wrong":
        text = (
            f"On the same inputs the program gives other results {_when(facts)}: "
            f"they differ by {shown.max_abs or 0.0:.3e}, which is {shown.max_rel or 0.0:.3e} of "
            f"the result's scale (limit {where.limit:.0e})."
        )
        rounding = "All is in float64, where rounding is far below that: it is wrong, not rounded."
        return f"{text} {rounding}" if _in_double(facts) else text
    if where.kind == "slow":
        return (
            f"After the pass the program takes {shown.ratio or 0.0:.2f} times as long as before it "
            f"(limit {where.limit:g})."
        )
    # Where things lie on this machine is nobody's business.
    said = "" if shown.error is None else _FOLDERS.sub("", shown.error.message)
    text = _fenced(said) if said else ""
    what = "After the pass, building or running the program" if where.building else "The pass"
    return f"{what} raises, or ends the process:\n\n{text}"


def _when(facts: Facts) -> str:
    if not facts.start.tail:
        return "after the pass than before it"
    names = ", ".join(step.name for step, _ in facts.start.tail)
    return f"if the pass is run before {names} than if it is not"


def _in_double(facts: Facts) -> bool:
    dtypes = {v.dtype for v in facts.extracted.values.values()}
    return np.dtype("float64") in dtypes and np.dtype("float32") not in dtypes


def _expected(facts: Facts) -> str:
    return {
        "wrong": "The same results, but for rounding.",
        "slow": "A program that is not slower.",
        "crash": "No crash: the program before the pass is well typed"
        + (", and can be built and run." if facts.where.building else "."),
    }[facts.where.kind]


def _how(facts: Facts) -> str:
    engine = REGISTRY[facts.ir]
    need = engine.needs.format(*(_package(name, name) for name in engine.packages))
    mended = "when it is mended" if facts.left is None else "where it is not seen"
    return (
        f"```\npython report.py\n```\n\nNeeds: {need}\n\nIts exit status is 1 (or that of the "
        f"crash) while the fault is there, 0 {mended}, and 2 where it cannot be run. "
        "`values.npz` has the arguments, the constants, the expected results and those seen. The "
        "folder `relascope` holds what `report.py` imports of relascope."
    )


def _package(name: str, otherwise: str) -> str:
    try:
        return f"{name}=={version(name)}"
    except PackageNotFoundError:
        return otherwise


def _versions(facts: Facts) -> list[str]:
    packages = REGISTRY[facts.ir].packages
    wheel = ", ".join(filter(None, (_package(name, "") for name in packages)))
    return [
        facts.version + (f" ({wheel})" if wheel else ""),
        f"Python {platform.python_version()}, numpy {np.__version__}",
        f"{platform.system()} on {platform.machine()}, target `{facts.where.target}`",
    ]


def _passes(facts: Facts) -> str:
    if facts.left is not None:
        names = ", ".join(entry.title for _, entry in facts.start.steps)
        return (
            f"- {names}, recorded in a compile. It is not run here: the program after it is what "
            "became of the program before it, by nodes that are the same in both."
        )
    lines = [
        f"- `{step}`: {entry.title}, from {entry.origin}. {entry.summary}"
        + (f" Its code is in `{Path(_module(entry)[0]).name}`." if _is_file(entry) else "")
        for step, entry in facts.start.steps
    ]
    if facts.start.tail:
        names = ", ".join(f"`{s}`" for s, _ in facts.start.tail)
        lines.append(f"- The fault shows after {names}, which are run with it and without it.")
    return "\n".join(lines)


def _arguments(facts: Facts) -> str:
    rows = ["| argument | type | stands for |", "|---|---|---|"]
    for ident, name in facts.extracted.names.items():
        node = facts.start.graph.by_id[ident]
        told = f"{node.title}" + (f" in {node.scope}" if node.scope else "")
        if name in facts.extracted.made_up:
            told += ", with random values"
        rows.append(f"| `{name}` | {node.outputs[0]} | {told} |")
    constants = [
        f"| `{name}` | {value.dtype}{list(value.shape)} | a constant of the program |"
        for name, value in facts.written.constants.items()
    ]
    return "\n".join([*rows, *constants]) if len(rows) + len(constants) > 2 else ""


def _fenced(text: str) -> str:
    return f"```\n{text.rstrip()}\n```"
