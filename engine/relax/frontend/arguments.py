"""Which arguments of a node a converter reads."""

from collections.abc import Iterator
from typing import Any

from torch.fx import Node

# Options that change no value, and those that the result's type shows.
_ALWAYS = (
    "memory_format device layout pin_memory dtype implicit non_blocking copy size generator self "
    "cudnn_enable cudnn_enabled"
)


class _Arguments(tuple[Any, ...]):
    """A node's arguments; records the places of those that are read."""

    read: set[int | str]

    def __getitem__(self, place: Any) -> Any:
        places = range(len(self))[place]
        self.read.update([places] if isinstance(places, int) else places)
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[Any]:
        self.read.update(range(len(self)))
        return super().__iter__()


class _Options(dict[str, Any]):
    read: set[int | str]

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


class Reading:
    """A node of an FX graph, for one converter; records which arguments it reads."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._read: set[int | str] = set()
        self.args, self.kwargs = self.noted(node.args), _Options(node.kwargs)
        self.kwargs.read = self._read

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)

    def noted(self, values: Any) -> _Arguments:
        made = _Arguments(values)
        made.read = self._read
        return made

    def normalized_arguments(self, _: Any) -> tuple[_Arguments, _Options]:
        return self.args, self.kwargs

    def left_out(self) -> list[str]:
        """Names of arguments with non-default values that were not read."""
        schema = getattr(self.node.target, "_schema", None)
        if schema is None:
            return []
        names = [a.name for a in schema.arguments if not a.kwarg_only]
        given: dict[str, Any] = dict(zip(names, enumerate(self.node.args), strict=False))
        given |= {name: (name, value) for name, value in self.node.kwargs.items()}
        defaults = {a.name: a.default_value for a in schema.arguments}
        return [
            name
            for name, (place, value) in given.items()
            if place not in self._read
            and name not in _ALWAYS.split()
            and value is not None
            and value != defaults[name]
        ]
