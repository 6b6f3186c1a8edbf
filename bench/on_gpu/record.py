"""The record of `bench/gpu.py`: a JSON file that is written after every row, and tables of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

Row = dict[str, Any]

_DRY = "Dry run: no GPU was used, and nothing here is a GPU's figure."


class Record:
    """What parts said, by their keys; those that run again take the place of what they said before.

    Args:
        path: of the JSON file; the tables are written beside it, as `.md`.
        gpu: its name, "" in a dry run.

    Raises:
        ValueError: the file is there and of something else: of another GPU, or a dry run where this
            is none, or the other way round. In a dry run also where results of GPUs are kept.
    """

    def __init__(self, path: Path, gpu: str, dry: bool) -> None:
        self.path = path
        if dry and path.resolve().parent.name == "results":
            raise ValueError(f"{path}: results of GPUs are kept there, and this is a dry run.")
        self.document: Row = {"dry_run": dry, "gpu": gpu or None, "parts": {}}
        if path.exists():
            old = json.loads(path.read_text(encoding="utf-8"))
            if (old.get("dry_run"), old.get("gpu")) != (dry, gpu or None):
                what = "a dry run's" if old.get("dry_run") else f"of {old.get('gpu')}"
                raise ValueError(f"{path} is {what}: name another file with -o.")
            self.document = old

    def begin(self, key: str, title: str, limit: float) -> None:
        part = {
            "title": title,
            "state": "running",
            "limit_s": round(limit),
            "on": str(date.today()),
        }
        self.document["parts"].pop(key, None)
        self.document["parts"][key] = {**part, "said": [], "rows": []}
        self._write()

    def add(self, key: str, row: Row) -> None:
        """A row of figures, or a sentence (`said`)."""
        part = self.document["parts"][key]
        if "said" in row:
            part["said"].append(row["said"])
            part.setdefault("known", {}).update({k: v for k, v in row.items() if k != "said"})
        else:
            part["rows"].append(row)
        self._write()

    def end(self, key: str, state: str, seconds: float) -> None:
        self.document["parts"][key] |= {"state": state, "seconds": round(seconds, 1)}
        self._write()

    def missed(self, keys: Iterable[str]) -> list[str]:
        """What of some parts misses its bar, a sentence each; a dry run has no bars of time."""
        found = []
        for key in keys:
            for row in self.document["parts"].get(key, {}).get("rows", ()):
                for figure, most in _bars(row):
                    names = [str(v) for v in row.values() if isinstance(v, str)]
                    found.append(f"{key}: {', '.join(names)}: {figure:.3g}, at most {most:g}")
        return found

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.document, indent=1) + "\n"
        for path, content in (
            (self.path, text),
            (self.path.with_suffix(".md"), markdown(self.document)),
        ):
            beside = path.with_name(f".{path.name}.new")
            beside.write_text(content, encoding="utf-8")
            os.replace(beside, path)


def _bars(row: Row) -> Iterable[tuple[float, float]]:
    for name, most in row.items():
        if name.endswith("_most") and most is not None:
            figure = row.get(name.removesuffix("_most"))
            if figure is not None and not figure <= most:  # NaN is no good either
                yield figure, most


def slug(gpu: str) -> str:
    """A file's name of a GPU's."""
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")


def markdown(document: Row) -> str:
    """The record as tables."""
    dry = document["dry_run"]
    lines = [f"# {_DRY if dry else document['gpu']}", ""]
    command = "bench/gpu.py --dry-run" if dry else "bench/gpu.py"
    lines += [f"Written by `{command}` from the `.json` beside it.", ""]
    for key, part in document["parts"].items():
        took = f", {part['seconds']} s of {part['limit_s']} s" if "seconds" in part else ""
        lines += [f"## {part['title']} ({key})", "", f"{part['state']}{took}, {part['on']}", ""]
        lines += [f"- {sentence}" for sentence in part["said"]] + ([""] if part["said"] else [])
        for columns in dict.fromkeys(tuple(r) for r in part["rows"]):
            lines += _table(columns, [r for r in part["rows"] if tuple(r) == columns])
    return "\n".join(lines)


def _table(columns: tuple[str, ...], rows: list[Row]) -> list[str]:
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return [*head, *("| " + " | ".join(_cell(r[c]) for c in columns) + " |" for r in rows), ""]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
