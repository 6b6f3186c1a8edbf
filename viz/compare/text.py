"""Differences between two texts of an IR: as a unified diff, and in two columns.

Both IRs number their values, so one new line would change all that follow. Lines are therefore
first compared without their numbers; where they agree, the text before gets the numbers of the text
after, so that only different values show. Other numbers are marked by an apostrophe.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import Any

_NAME = re.compile(r"%\d+(?:\.\d+)?|\b(?:lv|gv)\d*\b|(?<=Const\"\]\[)\d+|(?<=Constant\]\[)\d+")
"""Numbered names in an IR's text, which change with the text before them."""
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_ASIDE = re.compile(
    r" ?/\*.*?(?:\*/|$)"
    r"| \{virtual_device=VirtualDevice\([^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*)*(?:\}|$)",
    re.MULTILINE,
)
"""Relay's additions to the program in its text: types, places in the source, devices."""
MOST_LINES = 20_000  # lines of each text that are compared
_WIDEST = 2_000  # characters of a line that are shown
_LONGEST = 4 << 20  # characters of a text that are read
_STEPS_PER_LINE = 300  # of work; also for each word of a changed line
_MOST_PAIRS = 4_000  # pairs of changed lines that are compared by words
_ALIKE = 0.4  # the least share of common words in two lines to pair them


@dataclass
class DiffEffort:
    """The work left for comparing, in steps of about 10 ns. A text with many equal lines could take
    time cubic in their number; when the work is used up, the rest counts as changed."""

    left: int = 200_000_000


class _LineMatcher(difflib.SequenceMatcher[str]):
    """A matcher that stops when the work is used up."""

    def __init__(
        self, was: Sequence[str], now: Sequence[str], work: DiffEffort, junk: bool
    ) -> None:
        super().__init__(None, was, now, autojunk=junk)
        self._was, self._work = was, work

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        looked = self._was[alo:ahi]
        places = self.b2j  # type: ignore[attr-defined]
        self._work.left -= 10 * sum(len(places.get(one, ())) + 1 for one in looked)
        if self._work.left < 0:
            return difflib.Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def text_diff(before: str, after: str, names: tuple[str, str] = ("before", "after")) -> str:
    """The differences between two texts of an IR, as a unified diff, or ""."""
    work = DiffEffort()
    was, now = _same_numbers(before.splitlines(), after.splitlines(), work)
    lines = [f"--- {names[0]}", f"+++ {names[1]}"]
    for group in _LineMatcher(was, now, work, True).get_grouped_opcodes(2):
        (_, i, _, j, _), (_, _, i_end, _, j_end) = group[0], group[-1]
        lines.append(f"@@ -{_range(i, i_end)} +{_range(j, j_end)} @@")
        for kind, i, i_end, j, j_end in group:
            if kind == "equal":
                lines += (f" {line}" for line in was[i:i_end])
            else:
                lines += (f"-{line}" for line in was[i:i_end])
                lines += (f"+{line}" for line in now[j:j_end])
    return "\n".join(lines) if len(lines) > 2 else ""


def _range(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + bool(length)},{length}"


ASIDE = "It changed only types and places."
"""The note for two texts that are equal after `brief`."""


def brief(text: str) -> str:
    """A text of Relay's, as much as `stretches_of` shows, without types, places and devices."""
    return _ASIDE.sub("", text[:_LONGEST])


Part = tuple[str, bool]
"""A part of a line, and whether it is marked as changed."""
Line = tuple[int, list[Part]]
"""A line's number, from 1, and its parts."""


@dataclass(frozen=True)
class Stretch:
    """Lines that differ, with pairs of a `Line` or None as `rows`; or that are the same on both
    sides: then `rows` are the numbers of the first on both sides, and the lines."""

    same: bool
    rows: Sequence[Any]

    @property
    def changed(self) -> int:
        return 0 if self.same else sum(side is not None for row in self.rows for side in row)


def stretches_of(before: str, after: str, work: DiffEffort | None = None) -> list[Stretch]:
    """Two texts side by side, at most `MOST_LINES` lines of each; `work` may be shared by many."""
    work = work or DiffEffort()
    work.left -= len(before) + len(after)
    was, now = (
        [line[:_WIDEST] for line in text[:_LONGEST].splitlines()[:MOST_LINES]]
        for text in (before, after)
    )
    work.left -= _STEPS_PER_LINE * (len(was) + len(now))
    was, now = _same_numbers(was, now, work)
    found: list[Stretch] = []
    for kind, i, i_end, j, j_end in _opcodes(was, now, work):
        if kind == "equal":
            found.append(Stretch(True, (i + 1, j + 1, now[j:j_end])))
            continue
        rows: list[tuple[Line | None, Line | None]] = []
        for a, b in _paired(was[i:i_end], now[j:j_end], work):
            one, other = "" if a is None else was[i + a], "" if b is None else now[j + b]
            left, right = _words(one, other, work)
            there = None if a is None else (i + a + 1, left)
            rows.append((there, None if b is None else (j + b + 1, right)))
        found.append(Stretch(False, rows))
    return found


def diff_data(stretches: Sequence[Stretch], same: str) -> dict[str, Any]:
    """Stretches as data for the browser's `text_diff.js`; `same` is the text if nothing differs."""
    return {
        "sameText": same,
        "same": [s.same for s in stretches],
        "rows": [s.rows for s in stretches],
        "changed": sum(s.changed for s in stretches),
    }


def _same_numbers(was: list[str], now: list[str], work: DiffEffort) -> tuple[list[str], list[str]]:
    """The lines before, with the numbers of their values after; and the lines after."""
    old, new = ([_NAME.sub("#", line) for line in lines] for lines in (was, now))
    numbers: dict[str, str] = {}
    pairs: list[tuple[int, int]] = []
    # Equal lines first; but changed lines define values, too.
    for kind, i, i_end, j, j_end in sorted(_opcodes(old, new, work)):
        if kind == "equal":
            pairs += zip(range(i, i_end), range(j, j_end), strict=True)
        elif kind == "replace" and (i_end - i) * (j_end - j) <= _MOST_PAIRS:
            found = _paired(old[i:i_end], new[j:j_end], work)
            pairs += [(i + a, j + b) for a, b in found if a is not None and b is not None]
    for a, b in pairs:
        settled = _settled(was[a]), _settled(now[b])
        if len(settled[0]) == len(settled[1]):
            for one, other in zip(*settled, strict=True):
                numbers.setdefault(one, other)

    def renamed(name: re.Match[str]) -> str:
        value, dot, field = name[0].partition(".")  # of a tuple, in Relay
        return f"{numbers[value]}{dot}{field}" if value in numbers else f"{name[0]}'"

    return [_NAME.sub(renamed, line) for line in was], now


def _settled(line: str) -> list[str]:
    """The numbers of the value that a line defines, and of constants, which no line defines."""
    start = len(line) - len(line.lstrip())
    return [m[0] for m in _NAME.finditer(line) if m.start() == start or m[0].isdigit()]


def equal_ends(was: Sequence[str], now: Sequence[str]) -> tuple[int, int]:
    """How many lines two texts share at their start, and of the others at their end."""
    short = min(len(was), len(now))
    head = next((k for k in range(short) if was[k] != now[k]), short)
    rest = short - head
    return head, next((k for k in range(rest) if was[-1 - k] != now[-1 - k]), rest)


def _opcodes(
    was: Sequence[str], now: Sequence[str], work: DiffEffort
) -> list[tuple[str, int, int, int, int]]:
    """As `difflib.SequenceMatcher.get_opcodes`, with equal ends split off first."""
    head, tail = equal_ends(was, now)
    middle = was[head : len(was) - tail], now[head : len(now) - tail]
    inner = _LineMatcher(*middle, work, True).get_opcodes()
    found = [("equal", 0, head, 0, head)] if head else []
    found += [(kind, i + head, e + head, j + head, f + head) for kind, i, e, j, f in inner]
    if tail:
        found.append(("equal", len(was) - tail, len(was), len(now) - tail, len(now)))
    return found


def _paired(
    was: Sequence[str], now: Sequence[str], work: DiffEffort
) -> Iterator[tuple[int | None, int | None]]:
    """Pairs of changed lines to put side by side: in order, with the most likeness in total."""
    pairs = len(was) * len(now)
    if 0 < pairs <= _MOST_PAIRS:
        work.left -= 5 * (len(now) * sum(map(len, was)) + len(was) * sum(map(len, now)))
    if not 0 < pairs <= _MOST_PAIRS or work.left < 0:
        yield from zip_longest(range(len(was)), range(len(now)))
        return
    words = [[set(_WORD.findall(line)) for line in lines] for lines in (was, now)]
    like = [[_likeness(a, b) for b in words[1]] for a in words[0]]
    # From the end, the best sum of likenesses over the rest of both.
    best = [[0.0] * (len(now) + 1) for _ in range(len(was) + 1)]
    for i, j in product(reversed(range(len(was))), reversed(range(len(now)))):
        best[i][j] = max(like[i][j] + best[i + 1][j + 1], best[i + 1][j], best[i][j + 1])
    i = j = 0
    while i < len(was) and j < len(now):
        if like[i][j] and best[i][j] == like[i][j] + best[i + 1][j + 1]:
            yield i, j
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            yield i, None
            i += 1
        else:
            yield None, j
            j += 1
    yield from zip_longest(range(i, len(was)), ())
    yield from zip_longest((), range(j, len(now)))


def _likeness(one: set[str], other: set[str]) -> float:
    """The share of common words; 0 if too small to pair the lines."""
    like = 2 * len(one & other) / (len(one) + len(other) or 1)
    return like if like >= _ALIKE else 0.0


def _words(one: str, other: str, work: DiffEffort) -> tuple[list[Part], list[Part]]:
    """The parts of two lines, with differences marked; everything, if one is empty."""
    if not one or not other or work.left < 0:
        return [(one, True)], [(other, True)]
    was, now = _WORD.findall(one), _WORD.findall(other)
    work.left -= _STEPS_PER_LINE * (len(was) + len(now))
    left: list[Part] = []
    right: list[Part] = []
    for kind, i, i_end, j, j_end in _LineMatcher(was, now, work, False).get_opcodes():
        if i < i_end:
            left.append(("".join(was[i:i_end]), kind != "equal"))
        if j < j_end:
            right.append(("".join(now[j:j_end]), kind != "equal"))
    return left, right
