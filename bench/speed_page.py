"""Put the rows of `speed.py` into docs/speed.md: a table for each processor and mode."""

import datetime
import statistics
from collections.abc import Iterable, Sequence

from common import ENGINES, ROOT, Row

PAGE = ROOT / "docs/speed.md"
_SIZE = ("sample", "batch", "tokens", "training", "threads")


def write(rows: Sequence[Row]) -> None:
    """Replace the sections of the processors that have rows, or add them."""
    head, *sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    for processor in dict.fromkeys(r["processor"] for r in rows if "what" in r):
        own = [r for r in rows if r.get("processor") == processor]
        sections = [s for s in sections if not s.startswith(f"{processor}\n")]
        sections.append("\n".join(_section(processor, own)))
    PAGE.write_text("\n## ".join([head, *sections]).rstrip() + "\n", encoding="utf-8")


def _section(processor: str, rows: Sequence[Row]) -> Iterable[str]:
    about = ", ".join(f"{n} {rows[0][n]}" for n in ("torch", "apache-tvm", "bitblas"))
    target = rows[0]["target"].split(" -libs")[0]
    yield f"{processor}\n\n{rows[0]['cores']} cores, `{target}`; {datetime.date.today()}; {about}."
    # A rival is timed beside one engine: of the other, its time over eager's counts.
    by = {(*(r[n] for n in _SIZE), r["phase"], r["what"]): r for r in rows}

    def of(row: Row, figure: str, phase: str, what: str = "") -> float:
        found = by.get((*(row[n] for n in _SIZE), phase, what or row["what"]), {})
        return found.get(figure) or float("nan")

    for training in sorted({r["training"] for r in rows}, reverse=True):
        phase, rivals = ("forward_backward", 1) if training else ("forward", 2)
        found: dict[tuple[str, int], list[dict[str, float]]] = {}
        table: list[Row] = []
        ours = (r for r in rows if r["training"] == training and r["what"].startswith(r["engine"]))
        for r in sorted(ours, key=lambda r: (ENGINES.index(r["engine"]), -r["threads"])):
            if r["phase"] != phase:
                continue
            size = " × ".join(str(r[n]) for n in ("batch", "tokens") if r[n]) or "its own"
            figures = {"over eager": r["of_eager"]}
            figures |= {"forward": of(r, "of_eager", "forward")} if training else {}
            for name in ("torch.compile", "onnxruntime")[:rivals]:
                figures[f"over {name}"] = r["of_eager"] / of(r, "of_eager", phase, name)
            figures["peak over eager's"] = r["of_eagers"]
            figures |= {"forward's": of(r, "of_eagers", "forward")} if training else {}
            found.setdefault((r["engine"], r["threads"]), []).append(figures)
            error = max(r["error"], of(r, "error", "forward"))
            names = {"engine": r["engine"], "sample": f"`{r['sample']}`", "size": size}
            names |= {"threads": r["threads"], "ms": f"{r['median_ms']:.2f}"}
            last = {"error": f"{error:.1e}", "built in s": f"{r['build_s']:.1f}"}
            table.append(names | _texts(figures) | last)
        for (engine, threads), every in found.items():
            known = {k: [f[k] for f in every if f[k] == f[k]] for k in every[0]}
            means = {k: statistics.geometric_mean(v) for k, v in known.items() if v}
            name = {"engine": engine, "sample": f"geometric mean of {len(every)}"}
            name |= {"threads": str(threads)}
            table.append(dict.fromkeys(table[0], "") | name | _texts(means))
        yield f"\n### {'Training' if training else 'Inference'}\n"
        rule = ["---", "---", "---", *["---:"] * (len(table[0]) - 3)]
        lines = [[*table[0]], rule, *(row.values() for row in table)]
        yield from (f"| {' | '.join(map(str, line))} |" for line in lines)


def _texts(figures: dict[str, float]) -> dict[str, str]:
    return {k: f"{v:.2f}" if v == v else "" for k, v in figures.items()}
