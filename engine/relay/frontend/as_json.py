"""A Relay module's text as TVM's JSON, for a process that holds a TVM without Relay.

    python -m relascope.engine.relay.frontend.as_json

takes the arguments of `as_json` and answers {"json"}, or {"error"} with an EngineError's parts.
TVM's parser may end the process.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from relascope.core.errors import EngineError
from relascope.engine.files.program_file import Pieces
from relascope.engine.server.program_model import answering


def as_json(text: str, params: list[str], name: str) -> str:
    """The typed module as JSON; call `boot` before. `params` are names of the parameters that came
    with it; `name` is the file's. Raises EngineError of kind "file" if it is not a module."""
    import tvm

    from relascope.engine.relay.frontend.modules import read_pieces, reading

    with reading(name):
        mod = read_pieces(Pieces("relay", text, {n: np.empty(0) for n in params}), name)
        return str(tvm.ir.save_json(tvm.relay.transform.InferType()(mod)))


def _begin() -> Callable[..., tuple[dict[str, Any], tuple[()]]]:
    from relascope.engine.relay.tvm.boot import boot

    missing: EngineError | None = None
    try:
        boot()
        importlib.import_module("relascope.engine.relay.frontend.modules")
    except EngineError as error:  # there is no TVM with Relay here
        missing = error

    def answer(_: Any, **asked: Any) -> tuple[dict[str, Any], tuple[()]]:
        try:
            if missing:
                raise missing
            return {"json": as_json(**asked)}, ()
        except EngineError as error:
            return {"error": error.to_json()}, ()

    return answer


if __name__ == "__main__":
    answering(_begin)
