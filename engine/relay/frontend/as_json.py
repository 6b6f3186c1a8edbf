"""A Relay module's text as TVM's JSON, for a process that holds a TVM without Relay.

    python -m relascope.engine.relay.frontend.as_json

prints a line when started, reads {"text", "params", "name"} as JSON, and prints {"json"}, or
{"error"} with an EngineError's parts. TVM's parser may end the process.
"""

import importlib
import json
import os
import sys

import numpy as np

from relascope.core.errors import EngineError
from relascope.engine.files.program_file import Pieces


def as_json(text: str, params: list[str], name: str) -> str:
    """The typed module, once `boot` has been called.

    Args:
        params: names of the parameters that came with it.
        name: of the file.

    Raises:
        EngineError: kind "file"; it reads no such module.
    """
    import tvm

    from relascope.engine.relay.frontend.modules import read, reading

    with reading(name):
        mod = read(Pieces("relay", text, {n: np.empty(0) for n in params}), name)
        return str(tvm.ir.save_json(tvm.relay.transform.InferType()(mod)))


def main() -> None:
    from relascope.engine.relay.tvm.boot import boot

    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    missing: EngineError | None = None
    try:
        boot()
        importlib.import_module("relascope.engine.relay.frontend.modules")
    except EngineError as error:  # there is no TVM with Relay here
        missing = error
    print(file=answer, flush=True)
    asked = json.load(sys.stdin)  # first: who reads a line may read on, and would lose the answer
    try:
        if missing:
            raise missing
        result: dict[str, object] = {"json": as_json(**asked)}
    except EngineError as error:
        result = {"error": error.to_json()}
    json.dump(result, answer)
    answer.close()


if __name__ == "__main__":
    main()
