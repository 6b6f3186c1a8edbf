"""A report's text as Markdown for an issue tracker, within its limit of characters."""

import re
from collections.abc import Mapping, Sequence

from relascope.engine.protocol.fault import Passage

LIMIT = 65_536
"""The most characters that GitHub takes in an issue or a comment."""
_SPARE = 1000
_FOLDED = 30  # lines; longer code is folded
_WORDS, _ROWS, _CELL = 2500, 40, 160  # characters, rows, characters

_ACTIVE = re.compile(r"`[^`]*`|[^\s`]*[@#<>*|~][^\s`]*")


def written(title: str, passages: Sequence[Passage]) -> dict[str, bytes]:
    """`README.md`, and the files with all of the code that is too long for it."""
    code = {at: p for at, p in enumerate(passages) if p.code.strip()}
    left = LIMIT - _SPARE - len(_text(title, passages, {}))
    left -= sum(len(fenced(p.code)) + 100 for p in code.values() if not p.file)
    shown: dict[int, str] = {}
    cuttable = sorted((len(p.code), at) for at, p in code.items() if p.file)
    for rank, (_, at) in enumerate(cuttable):
        share = max(0, left // (len(cuttable) - rank) - 200)  # 200: fence, folding and a sentence
        text = code[at].code.rstrip()  # whole lines of it, as many as fit
        shown[at] = text if len(text) <= share else text[:share].rpartition("\n")[0] or text[:share]
        left -= len(shown[at]) + 200
    whole = {code[at].file: code[at].code.encode() for at in shown if _is_cut(code[at], shown[at])}
    shown |= {at: p.code for at, p in code.items() if not p.file}
    return {"README.md": _text(title, passages, shown).encode(), **whole}


def _text(title: str, passages: Sequence[Passage], shown: Mapping[int, str]) -> str:
    parts = [f"# {title}"]
    for at, one in enumerate(passages):
        words = prose(one.words)
        words = words if len(words) <= _WORDS else f"{words[:_WORDS].rpartition(' ')[0]} …"
        parts += [f"### {one.title}" if one.title else "", words]
        if at in shown:
            parts.append(_code(one, shown[at]))
        parts.append(_table(one.rows))
    return "\n\n".join(filter(None, parts)) + "\n"


def _code(one: Passage, shown: str) -> str:
    lines = one.code.count("\n") + 1
    block = fenced(shown, one.language)
    if _is_cut(one, shown):
        block += f"\n\nThis is the beginning; `{one.file}` in the report's folder has all of it."
    if lines <= _FOLDED or not one.file:
        return block
    return f"<details><summary>{lines:,} lines</summary>\n\n{block}\n\n</details>"


def _is_cut(one: Passage, shown: str) -> bool:
    return len(shown) < len(one.code.rstrip())


def fenced(text: str, language: str = "") -> str:
    """A text as a block of Markdown, with a fence longer than any in it."""
    fence = "`" * (1 + max(2, *(len(run) for run in re.findall("`+", f"` {text}"))))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def prose(text: str) -> str:
    """Sentences in which nothing mentions a person or a thread, or reads as HTML."""
    return _ACTIVE.sub(lambda m: m[0] if m[0].startswith("`") else f"`{m[0]}`", text)


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    if not rows:
        return ""
    cut = [[_cell(value) for value in row.values()] for row in rows[:_ROWS]]
    lines = [f"| {' | '.join(cells)} |" for cells in ([*rows[0]], ["---"] * len(rows[0]), *cut)]
    more = f"\n\n{len(rows) - _ROWS:,} more." if len(rows) > _ROWS else ""
    return "\n".join(lines) + more


def _cell(text: str) -> str:
    text = prose(" ".join(text.split()).replace("|", "\\|"))
    return text if len(text) <= _CELL else f"{text[:_CELL].replace('`', '')}…"
