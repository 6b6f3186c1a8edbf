"""A pass on its small program, as a document and as text."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def example_block(example: Document) -> str:
    """A pass's small program before and after it, as the documentation shows it too."""
    told = [example["step"]] if "(" in example["step"] else []
    head = "\n".join([*told, arguments_text(example)])
    return f"{head}\n\n{example['before']}\n→\n{example['after']}"


def arguments_text(example: Document) -> str:
    """The arguments of a small program: `x: float32[2, 3], w: float32[4, 3]`."""
    return ", ".join(f"{name}: {type_text(kind)}" for name, kind in example["arguments"])


def type_text(kind: Document) -> str:
    """A tensor's type: `float32[2, 3]`."""
    return f"{kind['dtype']}[{', '.join(map(str, kind['shape']))}]"
