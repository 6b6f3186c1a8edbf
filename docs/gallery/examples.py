"""Writes what the docs show of passes and options: `make docs`. The tests hold it against both.

The block before a section's list is what the engine printed when it ran the pass on its small
program (`passes/relay/examples`, `passes/relax/examples`); the table of options is the parser's.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from relascope.commands import text as texts
from relascope.commands.main import parser
from relascope.engine.client import EngineClient
from relascope.engine.protocol.plain import plain
from relascope.passes.catalogue import names

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ROOT / "docs" / "command-line.md"
PAGES = {"relay": ROOT / "docs" / "passes.md", "relax": ROOT / "docs" / "passes-relax.md"}


def renewed(text: str, name: str, block: str) -> str:
    """A page with another block in the section of a pass. Raises ValueError if it has none."""
    inside = r"(?:(?!^##).)*?"  # nothing of the next section
    pattern = re.compile(rf"(^### {name}$" + inside + r"^```\n).*?(^```$)", re.M | re.S)
    text, found = pattern.subn(lambda m: f"{m[1]}{block}\n{m[2]}", text, count=1)
    if not found:
        raise ValueError(f"the page has no section {name!r} with a block to write into")
    return text


def options() -> str:
    """The table of all options: a row for each meaning, with the commands that take it."""
    (group,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    rows: dict[tuple[str, str], list[str]] = {}
    for name, command in group.choices.items():
        for row in _rows(command):
            rows.setdefault(row, []).append(name)
    model = [n for n, c in group.choices.items() if any(a.dest == "model" for a in c._actions)]
    lines = ["| option | where | meaning |", "|---|---|---|"]
    for (option, meaning), where in rows.items():
        lines.append(f"| {option} | {_where(where, list(group.choices), model)} | {meaning} |")
    return "\n".join(lines)


def _rows(command: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """An option of a command and its meaning, as Markdown."""
    for action in command._actions:
        if not action.option_strings or action.dest == "help" or action.help == argparse.SUPPRESS:
            continue
        takes = f" {action.metavar}" if action.metavar else ""
        meaning = (action.help or "").replace("|", "\\|") % vars(action)
        notes = [", ".join(f"`{c}`" for c in action.choices or ())]
        if isinstance(action.default, (str, float, int)) and action.default:
            notes.append(f"{action.default} unless given")
        meaning += f" ({'; '.join(filter(None, notes))})" if any(notes) else ""
        yield f"`{action.option_strings[-1]}{takes}`", meaning


def _where(taken: list[str], every: list[str], model: list[str]) -> str:
    """The commands that take an option, in the fewest words."""
    if taken == every:
        return "all"
    for known, words in ((model, "with a MODEL"), (every, "all")):
        but = [n for n in known if n not in taken]
        more = [n for n in taken if n not in known]
        if len(but) + len(more) < 5 and len(taken) > 4:
            listed = [*(f"`{n}`" for n in more), words]
            return ", ".join(listed) + (f" but {', '.join(f'`{n}`' for n in but)}" if but else "")
    return ", ".join(f"`{n}`" for n in taken)


def main() -> None:
    """Write the table of options, and the block of every pass that has an example."""
    text = OPTIONS.read_text(encoding="utf-8")
    table = re.compile(r"(?<=^## Options\n\n)\|.*?(?=\n\n)", re.MULTILINE | re.DOTALL)
    OPTIONS.write_text(table.sub(lambda _: options(), text, count=1), encoding="utf-8")
    for ir, page in PAGES.items():
        text = page.read_text(encoding="utf-8")
        client = EngineClient(ir)
        try:
            for name in names(ir):
                example = plain(client.call("example", name))
                if example is not None:
                    text = renewed(text, name, texts.example_block(example))
        finally:
            client.close()
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
