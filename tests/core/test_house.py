"""The house: rooms of a size to look over, and code that the formatter lays out."""

import os
import re
from collections import Counter
from pathlib import Path

from place import ROOT


def files():
    """The checkout's files by their paths, without what tools leave there."""
    for folder, folders, names in os.walk(ROOT):
        made = {"__pycache__", "out", "build", "dist"}
        folders[:] = [
            f for f in folders if f[0] != "." and f not in made and not f.endswith(".egg-info")
        ]
        yield from (Path(folder, n).relative_to(ROOT) for n in names if not n.endswith(".pyc"))


def test_no_folder_holds_more_than_fifteen_files():
    counts = Counter(str(p.parent) for p in files())
    counts.pop(".")  # what tools and people look for at the top
    assert {folder: n for folder, n in counts.items() if n > 15} == {}


def test_few_places_are_laid_out_by_hand():
    skip = re.compile(r"# fmt: (?:skip|off)\b")
    texts = [(ROOT / p).read_text(encoding="utf-8") for p in files() if p.suffix == ".py"]
    assert sum(len(skip.findall(t)) for t in texts) <= 60
