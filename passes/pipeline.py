"""An ordered list of switched passes, and its text.

The text is pass names joined by `|`, a `-` before a switched-off one, parameters in parentheses:
`cse|bind|-fold|layout(dst=NCHWc)`."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

MOST_STEPS = 200
_STEP = re.compile(r"(?P<off>-?)(?P<name>[A-Za-z][\w.]*)(\((?P<params>[^()]*)\))?")


def is_tvms(name: str) -> bool:
    """Whether a step has TVM's own name for one of its passes, such as `FoldConstant`."""
    return name.rpartition(".")[2][:1].isupper()


@dataclass(frozen=True)
class Step:
    """One pass in a pipeline: its name in the catalogue, its switch, its parameters as text."""

    name: str
    enabled: bool = True
    params: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        params = ", ".join(f"{k}={v}" for k, v in self.params)
        return f"{'' if self.enabled else '-'}{self.name}{f'({params})' if params else ''}"


@dataclass(frozen=True)
class Pipeline:
    """Steps in order; the same pass may occur more than once."""

    steps: tuple[Step, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __str__(self) -> str:
        return "|".join(map(str, self.steps))

    def switched(self, index: int | Iterable[int], enabled: bool) -> "Pipeline":
        """The pipeline with one step, or several, on or off."""
        at = {index} if isinstance(index, int) else {*index}
        steps = enumerate(self.steps)
        return Pipeline(tuple(replace(s, enabled=enabled) if i in at else s for i, s in steps))

    def moved(self, index: int, to: int) -> "Pipeline":
        """The pipeline with the step at `index` moved so that it has the index `to` afterwards."""
        steps = list(self.steps)
        steps.insert(to, steps.pop(index))
        return Pipeline(tuple(steps))

    def inserted(self, index: int, step: Step) -> "Pipeline":
        return Pipeline((*self.steps[:index], step, *self.steps[index:]))

    def without(self, index: int) -> "Pipeline":
        return Pipeline((*self.steps[:index], *self.steps[index + 1 :]))

    def with_parameter(self, index: int, name: str, value: str | None) -> "Pipeline":
        """The pipeline with one parameter of a step set, or removed if the value is None."""
        steps = list(self.steps)
        params = dict(steps[index].params)
        params.pop(name, None)
        if value is not None:
            params[name] = value
        steps[index] = replace(steps[index], params=tuple(params.items()))
        return Pipeline(tuple(steps))

    def upto(self, index: int) -> "Pipeline":
        """The steps up to and including `index`."""
        return Pipeline(self.steps[: index + 1])

    @staticmethod
    def parse(text: str, names: Iterable[str] | None = None) -> "Pipeline":
        """Read a pipeline's text. White space around the bars is ignored; "" has no steps. `names`
        are the names allowed beside TVM's own passes, which begin with a capital letter; None
        allows any. Raises ValueError if a step is malformed or its pass unknown, and names it, or
        if there are more than `MOST_STEPS`."""
        if text.count("|") >= MOST_STEPS:
            raise ValueError(f"a pipeline has at most {MOST_STEPS} steps")
        if not text.strip():
            return Pipeline()
        parts = [part.strip() for part in text.split("|")]
        if not all(parts):
            raise ValueError(f"the pipeline {text!r} has an empty step")
        allowed, steps = None if names is None else set(names), tuple(map(_read_step, parts))
        for name in (s.name for s in steps):
            if allowed is not None and name not in allowed and not is_tvms(name):
                raise ValueError(f"no pass is called {name!r}; known: {', '.join(sorted(allowed))}")
        return Pipeline(steps)


def _read_step(text: str) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        message = f"cannot read the step {text!r}; write a name, '-name', or 'name(key=value)'"
        raise ValueError(message)
    name, params = match["name"], []
    for item in filter(None, (s.strip() for s in (match["params"] or "").split(","))):
        key, equals, value = (s.strip() for s in item.partition("="))
        if not (key and equals and value):
            raise ValueError(f"cannot read the parameter {item!r} of {name!r}")
        params.append((key, value))
    return Step(name, not match["off"], tuple(params))


@dataclass(frozen=True)
class TvmPipelines:
    """The pipelines of the installed TVM. `pipelines` has the text of each by name, `in_front` the
    names of passes that are in none and may come before any, `left_out` the names of those without
    which a module can be built, too."""

    pipelines: dict[str, str]
    in_front: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
