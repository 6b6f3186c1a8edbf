"""TVM's own pipelines, one pass at a time, in either TVM.

A pipeline is a pass, or a function, that runs others. An instrument lets the wanted ones run, with
the pipeline's settings."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any


class _Through:
    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self.wanted = wanted
        self.depth = 0  # inside a pass that was let through

    def should_run(self, mod: Any, info: Any) -> bool:
        return bool(self.depth) or _is_group(info) or self.wanted(str(info.name))

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if self.depth or not _is_group(info):
            self.depth += 1

    def run_after_pass(self, mod: Any, info: Any) -> None:
        if self.depth:
            self.depth -= 1


def through(wanted: Callable[[str], bool]) -> Any:
    """A context in which only passes `wanted` by name run, and those that they call."""
    import tvm

    here = tvm.transform.PassContext.current()
    instrument = tvm.instrument.pass_instrument(_Through)(wanted)
    return tvm.transform.PassContext(
        opt_level=int(here.opt_level),
        disabled_pass=list(here.disabled_pass),
        config=dict(here.config.items()),
        instruments=[*(here.instruments or ()), instrument],
    )


def names_in(run: Callable[[], Any]) -> list[str]:
    """The names of the passes of a pipeline that `run` calls, in order; none takes effect."""
    met: list[str] = []

    def wanted(name: str) -> bool:
        met.append(name)
        return False

    with through(wanted):
        run()
    return met


def maker_of(name: str, places: Iterable[Any]) -> Callable[[], Any] | None:
    """TVM's maker of a pass that needs no arguments, in TVM's modules `places`; or None."""
    for place in places:
        make: Any = getattr(place, name, None)
        if str(getattr(make, "__module__", "")).startswith(place.__name__):
            needed = inspect.signature(make).parameters.values()
            if all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in needed):
                return make
    return None


def _is_group(info: Any) -> bool:
    """Whether a pass only runs others: a sequence, or a function that is a pipeline."""
    return not str(info.name).rpartition(".")[2][:1].isupper()
