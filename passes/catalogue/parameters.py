"""The declared parameters of a pass, and reading their values from text."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Value = str | int | float | bool | None

KINDS = ("text", "switch", "whole number", "number")
"""The kinds of values. A switch is `true` or `false`."""

_SWITCHES = {"true": True, "false": False, "on": True, "off": False, "1": True, "0": False}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a pass. `name` is the keyword argument, as pipelines write it
    (`fold(name=value)`); `default` is None if the pass decides; `choices` are the only allowed
    values, and empty allows any of the kind; `least` is the smallest allowed number, None for any;
    `unit` is a number's unit, such as "bytes", or ""."""

    name: str
    kind: str
    default: Value
    about: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    unit: str = ""

    def read(self, text: str) -> Value:
        """A value as the pass takes it. Raises ValueError if the text is not a valid value; the
        message says what is."""
        value = _READERS[self.kind](text)
        if value is None:
            raise ValueError(f"{self.name}={text} is not a {self.kind}; {self.wanted}")
        if self.choices and text not in self.choices:
            raise ValueError(f"{self.name}={text} is not allowed; {self.wanted}")
        if self.least is not None and isinstance(value, int | float) and value < self.least:
            raise ValueError(f"{self.name}={text} is too small; {self.wanted}")
        return value

    @property
    def default_text(self) -> str:
        """The default as a pipeline's text has it; "" if the pass decides."""
        if self.default is None:
            return ""
        return str(self.default).lower() if self.kind == "switch" else str(self.default)

    @property
    def wanted(self) -> str:
        """What may be given, in words: `give one of NCHW, NHWC`."""
        if self.choices:
            return f"give one of {', '.join(self.choices)}"
        if self.kind == "switch":
            return "give true or false"
        bound = "" if self.least is None else f" from {self.least:g}"
        unit = f" of {self.unit}" if self.unit else ""
        return f"give a {self.kind}{bound}{unit}"


def number(text: str) -> float | None:
    """A finite number from its text; None for other texts."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _text(text: str) -> str | None:
    """A text without the characters that a pipeline reserves; None otherwise."""
    return None if not text or re.search(r"[|,()=]", text) else text


_READERS = {
    "text": _text,
    "switch": lambda text: _SWITCHES.get(text.lower()),
    "whole number": lambda text: int(text) if re.fullmatch(r"[+-]?\d+", text) else None,
    "number": number,
}


def read_all(
    title: str, declared: Sequence[Parameter], given: Iterable[tuple[str, str]]
) -> dict[str, Value]:
    """The keyword arguments of a step's given parameters, (name, value) as in a pipeline's text;
    others keep the pass's defaults. Raises ValueError if a name is not declared or occurs twice, or
    a value is not valid, and says what the pass takes."""
    known = {p.name: p for p in declared}
    values: dict[str, Value] = {}
    for name, text in given:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ValueError(f"{title} has no parameter {name!r}; {takes}")
        if name in values:
            raise ValueError(f"{title} has {name} twice")
        try:
            values[name] = known[name].read(text)
        except ValueError as wrong:
            raise ValueError(f"{title}: {wrong}") from wrong
    return values
