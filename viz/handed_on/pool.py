"""Long texts once: what several blocks of a file say is stored in one place.

The steps of a pipeline say much the same of much the same nodes, and the values of a constant,
which no compression shortens, stand in every step from where it is bound.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from relascope.core.visible import visible

SIGN = "\x01"
"""In a block, before the number of a text of the pool."""

LONG = 24  # characters from which on a text is worth a place of its own


def pooled(blocks: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """The texts that are long and stand twice, and the blocks with their numbers in their place.

    Control characters in texts are made visible.

    Args:
        blocks: JSON values.
    """
    counts = Counter(text for block in blocks for text in _texts(block))
    places: dict[str, str] = {}
    long: list[str] = []
    for text, count in counts.items():
        if count > 1 and len(text) >= LONG:
            places[text] = f"{SIGN}{len(long)}"
            long.append(visible(text))
    return long, [_replaced(block, places) for block in blocks]


def _texts(value: Any) -> Iterator[str]:
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, list | tuple):
            todo += one


def _replaced(value: Any, places: dict[str, str]) -> Any:
    if isinstance(value, str):
        return places.get(value) or visible(value)
    if isinstance(value, dict):
        keys = (visible(k) if isinstance(k, str) else k for k in value)
        return {k: _replaced(v, places) for k, v in zip(keys, value.values(), strict=True)}
    if isinstance(value, list | tuple):
        return [_replaced(v, places) for v in value]
    return value
