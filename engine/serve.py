"""TVM's RPC tracker and server, with the TVM of an engine; `--help` lists TVM's own options.

    python -m relascope.engine.serve relax tracker --host 0.0.0.0 --port 9190
    python -m relascope.engine.serve relay server --tracker 127.0.0.1:9190 --key pi

One tracker serves both engines; a server, the engine whose TVM it runs.
"""

import importlib.util
import os
import runpy
import sys

from relascope.engine.registry import ENGINES

_MODULES = {"tracker": "tvm.exec.rpc_tracker", "server": "tvm.exec.rpc_server"}
_NEEDS = {"tracker": "tornado", "server": "cloudpickle"}


def main() -> None:
    engine, what, *rest = sys.argv[1:] if len(sys.argv) > 2 else ("", "")
    if engine not in ENGINES or what not in _MODULES:
        sys.exit(__doc__)
    if importlib.util.find_spec(_NEEDS[what]) is None:
        sys.exit(f"TVM's {what} needs the package {_NEEDS[what]}: pip install {_NEEDS[what]}")
    if engine == "relay":
        from relascope.engine.relay.tvm.boot import boot, child_environment

        boot()
        os.environ.update(child_environment())  # it starts a process of its own
    sys.argv = [_MODULES[what], *rest]
    runpy.run_module(_MODULES[what], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
