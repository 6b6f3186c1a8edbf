"""Figures as people read them, and rows as aligned text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def size(count: int | float | None) -> str:
    """Bytes in a suitable unit: `429.5 KiB`, as in the graph viewer."""
    if count is None:
        return "unknown"
    for unit, step in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(count) >= step:
            return f"{count / step:.1f} {unit}"
    return f"{count:.0f} B"


def sandbox_words(restrictions: Sequence[str]) -> str:
    """Whether an engine runs sandboxed, and what that restricts."""
    return f"runs sandboxed: {', '.join(restrictions)}" if restrictions else "runs unsandboxed"


def flops(count: float | None) -> str:
    """Floating point operations with a suitable prefix: `1.5 G`."""
    return rate_text(count, "").rstrip()


def rate_text(rate: float | None, unit: str) -> str:
    """A rate with a suitable prefix: `73.4 GFLOP/s`, or "unknown"."""
    if rate is None:
        return "unknown"
    prefixes = ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)
    letter, factor = next((one for one in prefixes if rate >= one[1]), ("", 1.0))
    return f"{rate / factor:.3g} {letter}{unit}"


def number(count: int) -> str:
    """A whole number with thin spaces between thousands: `1 137 136`."""
    return f"{count:,}".replace(",", "\u202f")


def milliseconds(seconds: float) -> str:
    """A duration for a narrow column: `7 µs`, `0.4 ms`, `12 ms`, `1.3 s`."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if 0 < seconds < 5e-5:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.01 else f"{seconds * 1e3:.0f} ms"


def shape_text(shape: Iterable[int | str]) -> str:
    """A shape as people write it: `1×14×768`, or `scalar`."""
    return "×".join(map(str, shape)) or "scalar"


def counted(count: int, what: str) -> str:
    """A count of something: `1 node`, `12 nodes`."""
    return f"{number(count)} {what}{'s' * (count != 1)}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Operators, and how often each is called if more than once: `nn.dense, reshape ×3`."""
    return ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in counts.items()) or "nothing"


def work_text(part: float, whole: float) -> str:
    """A share of work as people read it: `none`, `less than 0.1 %`, `4.2 %`."""
    share = 100 * part / whole if whole else 0.0
    if share < 0.1:
        return "less than 0.1 %" if part else "none"
    return f"{share:.1f} %"


def net_text(share: float) -> str:
    """The change of a step's time: `+4.2 %`, `-12.0 %`."""
    return f"{100 * share:+.1f} %"


def aligned(columns: Sequence[str], right: Sequence[bool], cells: Sequence[Sequence[str]]) -> str:
    """The first lines of cells under their titles, each column aligned right or left."""
    cells = [[cell.partition("\n")[0] for cell in row] for row in cells]
    widths = [max(len(c), *(len(r[i]) for r in cells), 0) for i, c in enumerate(columns)]

    def line(parts: Sequence[str]) -> str:
        return "  ".join(
            p.rjust(w) if r else p.ljust(w) for p, w, r in zip(parts, widths, right, strict=True)
        ).rstrip()

    return "\n".join([line(columns), line(["-" * w for w in widths]), *map(line, cells)])


def duration(seconds: float) -> str:
    """A duration as people write it: `12 s`, `3 min 05 s`, `1 h 02 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:02.0f} min"


def example_block(example: Mapping[str, Any]) -> str:
    """A pass's example before and after it, as in the documentation."""
    step = [example["step"]] if "(" in example["step"] else []
    head = "\n".join([*step, arguments_text(example)])
    return f"{head}\n\n{example['before']}\n→\n{example['after']}"


def arguments_text(example: Mapping[str, Any]) -> str:
    """The arguments of an example: `x: float32[2, 3], w: float32[4, 3]`."""
    types = ((n, k["dtype"], ", ".join(map(str, k["shape"]))) for n, k in example["arguments"])
    return ", ".join(f"{name}: {dtype}[{shape}]" for name, dtype, shape in types)
