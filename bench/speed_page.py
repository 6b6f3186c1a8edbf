"""Put what `speed.py` found into docs/speed.md: for each processor a table of each mode."""

import datetime
import statistics
from collections.abc import Callable, Iterable, Sequence

from common import ENGINES, ROOT, Row

PAGE = ROOT / "docs/speed.md"
_BACKWARD, _FORWARD = "forward_backward", "forward"
_SIZE = ("sample", "batch", "tokens", "training", "threads")


def write(rows: Sequence[Row]) -> None:
    """Replace the sections of the processors that rows are of, or add them."""
    head, *sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    for processor in dict.fromkeys(r["processor"] for r in rows if "what" in r):
        own = [r for r in rows if r.get("processor") == processor]
        sections = [s for s in sections if not s.startswith(processor)]
        sections.append("\n".join(_section(processor, own)))
    PAGE.write_text("\n## ".join([head, *sections]).rstrip() + "\n", encoding="utf-8")


def _section(processor: str, rows: Sequence[Row]) -> Iterable[str]:
    about = ", ".join(f"{n} {rows[0][n]}" for n in ("torch", "apache-tvm", "bitblas"))
    target = next(r["target"] for r in rows if "target" in r).split(" -libs")[0]
    yield f"{processor}\n\n{rows[0]['cores']} cores, `{target}`; {datetime.date.today()}; {about}."
    for training in sorted({r["training"] for r in rows}, reverse=True):
        yield from ("", f"### {'Training' if training else 'Inference'}", "")
        yield from _table([r for r in rows if r["training"] == training], training)


def _table(rows: Sequence[Row], training: bool) -> Iterable[str]:
    phase = _BACKWARD if training else _FORWARD
    rivals = ("torch.compile",) if training else ("torch.compile", "onnxruntime")
    columns: dict[str, Callable[[Row], float | None]] = {"over eager": lambda r: r["of_eager"]}
    if training:
        columns["forward"] = lambda r: _of(rows, r, _FORWARD, r["what"])["of_eager"]
    for name in rivals:
        columns[f"over {name}"] = lambda r, name=name: _over(rows, r, phase, name)
    columns["peak over eager's"] = lambda r: r["of_eagers"]
    if training:
        columns["forward's"] = lambda r: _of(rows, r, _FORWARD, r["what"])["of_eagers"]
    names = ["engine", "sample", "size", "threads", "ms", *columns, "error", "built in s"]
    yield f"| {' | '.join(names)} |"
    yield f"|---|---|---|{'---:|' * (len(names) - 3)}"
    ours = [r for r in rows if r.get("phase") == phase and r["what"].startswith(r["engine"])]
    means: dict[tuple[str, int], list[list[float | None]]] = {}
    for row in sorted(ours, key=lambda r: (ENGINES.index(r["engine"]), -r["threads"])):
        size = " × ".join(str(row[n]) for n in ("batch", "tokens") if row[n]) or "its own"
        found = [column(row) for column in columns.values()]
        means.setdefault((row["engine"], row["threads"]), []).append(found)
        errors = [r["error"] for r in rows if r.get("what") == row["what"] and _same(r, row)]
        words = [row["engine"], f"`{row['sample']}`", size, str(row["threads"])]
        words += [f"{row['median_ms']:.2f}", *map(_two, found)]
        yield f"| {' | '.join(words)} | {max(errors):.1e} | {row['build_s']:.1f} |"
    for (engine, threads), every in means.items():
        middle = [[v for v in column if v] for column in zip(*every, strict=True)]
        words = [_two(statistics.geometric_mean(c) if c else None) for c in middle]
        yield f"| {engine} | geometric mean | | {threads} | | {' | '.join(words)} | | |"


def _two(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _same(one: Row, other: Row) -> bool:
    return all(one[n] == other[n] for n in _SIZE)


def _of(rows: Iterable[Row], row: Row, phase: str, what: str) -> Row:
    """The row of a phase that was timed with a row, of what is named."""
    empty: Row = dict.fromkeys(("of_eager", "of_eagers"))
    like = (r for r in rows if _same(r, row) and r.get("phase") == phase and r["what"] == what)
    return next(like, empty)


def _over(rows: Iterable[Row], row: Row, phase: str, rival: str) -> float | None:
    """Time over a rival's, by way of eager's: the rival is timed once, beside one engine."""
    theirs = _of(rows, row, phase, rival)["of_eager"]
    return row["of_eager"] / theirs if theirs else None
