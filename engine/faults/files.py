"""Programs as files for the user's own test: the module, and a value for each argument."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from relascope.core.errors import EngineError
from relascope.engine.faults.narrow import PieceBackend, Start, changed, extracted, transform
from relascope.engine.faults.replay import Values, filled
from relascope.engine.limits import MIB
from relascope.engine.protocol.fault import ModuleFiles
from relascope.engine.wire import MOST_BYTES
from relascope.passes.search.reduce import Piece

_TEXTS = {"relay": "relay", "relax": "py"}
_MOST = MOST_BYTES // 2 - MIB  # an answer has two of them


def module_files(backend: PieceBackend, name: str, program: Any, values: Values) -> ModuleFiles:
    """A program as files. `name` is the files' name without an extension; `values` are those of
    arguments of "main" by name; the others get random ones, always the same. Raises EngineError of
    kind "input" where the values are too large to send."""
    written, (graph, _) = backend.written(program), backend.to_graph(program)
    types = {graph.by_id[i].name: graph.by_id[i].outputs[0] for i in graph.inputs}
    sizes = {n: tuple(d if isinstance(d, int) else 1 for d in t.shape) for n, t in types.items()}
    given = filled(values, {n: (sizes[n], t.dtype) for n, t in types.items()})
    named: Mapping[str, Any] = dict(zip(written.arguments, given.values(), strict=True))
    named = {**named, **written.constants}
    if (size := sum(v.nbytes for v in named.values()) + len(written.json)) > _MOST:
        message = f"The values of this module take {size // MIB} MiB; a test gets at most "
        hint = "Use a submodule (--module), or a smaller model."
        raise EngineError("input", f"{message}{_MOST // MIB} MiB.", "--test", hint)
    buffer = io.BytesIO()
    np.savez(buffer, **named)
    ending = _TEXTS[backend.ir] if written.text else "json"
    text = (written.text or written.json).encode()
    return ModuleFiles(f"{name}.{ending}", text, buffer.getvalue())


def piece_files(start: Start, piece: Piece) -> dict[str, ModuleFiles]:
    """A piece of the program, as "before", and after the suspected passes, as "module"; both also
    after the passes of the tail. Raises EngineError, replay.Malformed, Refusal where the piece
    cannot be cut out, or a pass fails on it."""
    found = extracted(start, piece)
    programs = {
        "before": transform(found.program, start.tail),
        "module": transform(changed(start, found.program), start.tail),
    }
    return {n: module_files(start.backend, n, p, found.values) for n, p in programs.items()}
