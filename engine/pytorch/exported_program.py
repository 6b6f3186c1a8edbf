"""Programs written by `torch.export.save` (`.pt2`), as modules that can be traced like others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.core.place import variables
from relascope.engine.files.archive import Archive, plainly
from relascope.engine.files.exported import check_program

_TENSORS_ONLY = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}
"""Keeps torch from unpickling objects, which may run code, where it falls back to that."""


def read_exported(
    path: Path,
) -> tuple[torch.nn.Module, tuple[tuple[str, str], ...], tuple[TensorType, ...]]:
    """Read an exported program.

    The tree of modules is built up again from what the program says of them, so that module paths
    and parameter names are those of the model that was exported. Train or eval mode is as it was
    then. The file is checked before (`engine.files.exported`), and what it pickles is read as plain
    tensors only.

    Returns:
        The module; (name, "Tensor") of each input; and the type of each, empty where a size is not
        fixed.

    Raises:
        EngineError: kind "file"; it cannot be read, or not without unpickling objects; kind
            "input"; inputs that are no tensors.
    """
    check_program(Archive(path))
    # 800 modules, which no other file needs.
    from torch.export.pt2_archive._package import load_pt2

    try:
        with variables(_TENSORS_ONLY):
            # torch.export.load would try once more, with another reader, what this one refuses.
            program = load_pt2(str(path)).exported_programs["model"]
        module = torch.export.unflatten(program)
    except Exception as wrong:  # torch raises whatever it stumbles on
        message = f"This file is not an exported program: {plainly(wrong)}."
        raise EngineError("file", message, path.name, "Write it with torch.export.save.") from wrong
    named = program.example_inputs[1] if program.example_inputs else {}
    if program.call_spec.in_spec is not None and named:
        message = f"The program takes inputs by name only: {', '.join(named)}."
        hint = "Export the module with all its inputs by position."
        raise EngineError("input", message, path.name, hint)
    nodes = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    names = map(str, program.graph_signature.user_inputs)
    values: dict[str, Any] = {n: nodes.get(n) for n in names}
    strange = [n for n, v in values.items() if not isinstance(v, torch.Tensor)]
    if strange:
        message = f"The input {strange[0]} of the program is no tensor."
        raise EngineError("input", message, strange[0], "Export a module whose inputs are tensors.")
    types = tuple(_type(v) for v in values.values())
    fixed = all(isinstance(d, int) for t in types for d in t.shape)
    return module, tuple((n, "Tensor") for n in values), types if fixed else ()


def _type(value: torch.Tensor) -> TensorType:
    shape = tuple(d if isinstance(d, int) else str(d) for d in value.shape)
    return TensorType(shape, str(value.dtype).removeprefix("torch."))
