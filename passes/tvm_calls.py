"""Calls of TVM's own passes as data, which a fault's report makes without relascope's code."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class TvmCall:
    """One pass of TVM's, from module to module. `module` and `function` locate TVM's maker of the
    pass, `arguments` are the maker's by name, `config` is the pass context's, and `target` the
    target's text, or ""."""

    module: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""

    def __call__(self, mod: Any) -> Any:
        import tvm

        made = getattr(import_module(self.module), self.function)(**self.arguments)
        with ExitStack() as stack:
            if self.config:
                stack.enter_context(tvm.transform.PassContext(config=dict(self.config)))
            if self.target:
                stack.enter_context(tvm.target.Target(self.target))
            return made(mod)


class Intercepted(Exception):
    """Raised in place of calling `call` on `mod`."""

    def __init__(self, call: TvmCall, mod: Any) -> None:
        super().__init__(call.function)
        self.call, self.mod = call, mod


_INTERCEPTING: ContextVar[bool] = ContextVar("intercepting", default=False)


@contextmanager
def intercepting() -> Iterator[None]:
    """Inside the block, `run` raises `Intercepted` and calls nothing."""
    token = _INTERCEPTING.set(True)
    try:
        yield
    finally:
        _INTERCEPTING.reset(token)


def run(
    mod: Any,
    make: Callable[..., Any],
    *arguments: Any,
    config: Mapping[str, Any] | None = None,
    target: str = "",
) -> Any:
    """A module after a pass of TVM's. `make` is TVM's function that makes the pass from
    `arguments`, plain data; see `TvmCall` for `config` and `target`."""
    named = inspect.signature(make).bind(*arguments).arguments if arguments else {}
    inner, name = make.__module__, make.__name__
    outer = inner.rpartition(".")[0]
    public = getattr(sys.modules[outer], name, None) is make
    call = TvmCall(outer if public else inner, name, named, config or {}, target)
    if _INTERCEPTING.get():
        raise Intercepted(call, mod)
    return call(mod)
