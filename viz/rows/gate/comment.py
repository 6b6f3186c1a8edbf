"""The result of `check --baseline` for a terminal, a page, and a comment on GitHub.

GitHub finds more in a text than Markdown: people to notify, issues, commits, addresses. Anything
but a plain word or number is therefore code, where GitHub looks for nothing, with HTML entities.
"""

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import quote

from relascope.core.visible import visible
from relascope.viz.rows import Row, sections

_MOST, _CELL, _LINE = 12, 80, 300
"""The most differences in a comment, and characters of a cell and of a sentence: GitHub allows
65,536 characters, and an entity takes six."""


def verdict(document: Row) -> str:
    """A sentence on whether something differs, and fails."""
    if not document["differences"]:
        return "Nothing differs from the baseline."
    if document["updated"]:
        return "The baseline has been updated."
    count = len(document["failing"])
    words = {0: "No difference fails.", 1: "One difference fails."}
    return words.get(count, f"{count} differences fail.")


def sentences(document: Row) -> list[str]:
    """A sentence for each difference, marked if it does not fail."""
    failing, lines = set(document["failing"]), []
    for one in document["differences"]:
        better = " (better)" if one["verdict"] == "better" else ""
        aside = "" if better or one["sentence"] in failing else " (not in --fail-on)"
        lines.append(f"{one['sentence']}{better}{aside}")
    return lines


def overview(document: Row) -> list[sections.Section]:
    """The sections of a page: the verdict, figures, sentences, and what was not compared."""
    head = sections.sentence(verdict(document), document["fails"])
    texts = *sentences(document), *document["notes"]
    return [head, _figures(document), *map(sections.sentence, texts)]


def _figures(document: Row) -> sections.Section:
    rows = [
        d | {"verdict": d["verdict"].replace("other", "differs")} for d in document["differences"]
    ]
    return sections.table("", rows, "kind; metric; baseline: then; now; limit; verdict")


def comment(document: Row, argv: Sequence[str]) -> str:
    """The text of a comment on GitHub, in Markdown; `argv` is the command. Its hidden first line
    identifies the baseline, to find the comment again."""
    failing = set(document["failing"])
    first = sorted(document["differences"], key=lambda d: d["sentence"] not in failing)
    shown = {**document, "differences": first[:_MOST]}
    path = quote(document["baseline"], errors="replace").replace("--", "-%2D")
    model, file = (_code(_cut(document[name], _CELL)) for name in ("model", "baseline"))
    where = _text(_cut(f"{document['engine']}, {document['target'].partition(' ')[0]}", _CELL))
    head = f"**{verdict(document)}** {model} ({where}) against {file}"
    titles, _, cells = sections.cells(_figures(shown)["rows"])
    cells = [[_text(_cut(cell, _CELL)) for cell in row] for row in cells]
    table = [titles, ["---"] * len(titles), *cells] if cells else []
    lines = sentences(shown)
    if len(first) > _MOST:
        lines.append(f"{len(first) - _MOST} more; the page has all.")
    parts = [
        f"<!-- relascope check {path} -->\n{head}",
        "\n".join(f"| {' | '.join(row)} |" for row in table),
        "\n".join(f"- {_text(_cut(line, _LINE))}" for line in lines),
        "\n".join(f"- Note: {_text(_cut(note, _LINE))}" for note in document["notes"]),
    ]
    if lines and not document["updated"] and document["now"] is not None:
        parts.append(f"To take this as the new baseline, run this, and commit {file}:")
        # The same command with --update, without its output files.
        kept = [b for a, b in pairwise(["", *argv]) if not {"-o", "--markdown"} & {a, b}]
        parts.append(f"```sh\n{_cut(shlex.join(['relascope', *kept, '--update']), 2000)}\n```")
    return "\n\n".join(filter(None, parts)) + "\n"


def _cut(text: str, most: int) -> str:
    shown = visible(text, keep="")
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


_TOKEN = re.compile(r"`([^`]+)`|[\s(]+|[.,;:)]+(?=[\s(`]|$)|(?:(?![.,;:)]+(?:[\s(`]|$))[^\s(`])+|`")
_RAW = re.compile(
    r"[\s(]+|[.,;:)]+|[^\W\d_]+(?:[-'][^\W\d_]+)*|[+×-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?|[%–…]"
)
_SIGN = re.compile(r"(?=[ -~])[^\w ./(),+=-]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.")


def _text(text: str) -> str:
    """A sentence whose words and numbers stay; anything else, or in backticks, becomes code."""
    return _TOKEN.sub(lambda m: m[0] if _RAW.fullmatch(m[0]) else _code(m[1] or m[0]), text)


def _code(text: str) -> str:
    return f"<code>{_SIGN.sub(lambda sign: f'&#{ord(sign[0])};', text)}</code>"
