"""From what a person typed to a `ModelSource`, without torch: the app's process imports this."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType

_DTYPES = "float16, float32, float64, bfloat16, int8, uint8, int16, int32, int64, bool"
_INPUT = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)\s*=\s*)?(?P<shape>\d+(?:\s*x\s*\d+)*|scalar)"
    r"\s*(?::\s*(?P<dtype>\w+))?"
)
INPUTS = ("sample", "normal", "large", "tiny", "cancelling", "edges")
"""Kinds of values that a model's inputs may have: the sample's own, or others of its types."""
EXAMPLE = "1x14x768:float32, 1x1x1x14"


def parse_inputs(text: str) -> tuple[tuple[str, TensorType], ...]:
    """Read the types of a model's inputs.

    Args:
        text: one `name=shape:dtype` an input, separated by commas, semicolons or line ends. The
            name may be left out, and so may the dtype (float32). A shape is sizes joined by `x`,
            or `scalar`: `ids=1x14:int64, 1x14x768`.

    Returns:
        (name, type) an input, the name "" where none was given; empty for an empty text.

    Raises:
        EngineError: kind "input"; an item cannot be read, or a name stands twice.
    """
    result: list[tuple[str, TensorType]] = []
    for item in filter(None, (part.strip() for part in re.split(r"[,;\n]", text))):
        match = _INPUT.fullmatch(item)
        if match is None:
            hint = f"Write one shape an input, such as {EXAMPLE} or hidden=1x14x768:float32."
            raise EngineError("input", f"Cannot read the input type {item!r}.", item, hint)
        dtype = match["dtype"] or "float32"
        if dtype not in _DTYPES.split(", "):
            message = f"{dtype!r} is no dtype of an input."
            raise EngineError("input", message, item, f"Use one of {_DTYPES}.")
        shape = match["shape"]
        sizes = () if shape == "scalar" else tuple(int(s) for s in shape.split("x"))
        name = match["name"] or ""
        if name and any(name == other for other, _ in result):
            raise EngineError("input", f"Two inputs are called {name!r}.", item, "Name each once.")
        result.append((name, TensorType(sizes, dtype)))
    return tuple(result)


def source_from_file(
    path: str | Path,
    inputs_text: str = "",
    *,
    seed: int = 0,
    training: bool = False,
    dtype: str = "float32",
) -> ModelSource:
    """Describe a TorchScript file as a source.

    Args:
        path: of a file written by `torch.jit.save`.
        inputs_text: types of its inputs, as `parse_inputs` reads them; "" to use those that the
            file records.
        seed, training, dtype: as in `ModelSource`.

    Raises:
        EngineError: kind "file" where there is no such file; kind "input" for a text that cannot
            be read.
    """
    file = Path(path)
    if not file.is_file():
        hint = "Give a sample's name, or the path of a trace written by torch.jit.save."
        raise EngineError("file", f"There is no file {str(path)!r}.", str(path), hint)
    about = seed, training, dtype, parse_inputs(inputs_text), file_digest(file)
    return ModelSource(str(file.resolve()), None, None, *about)


def file_digest(path: Path) -> str:
    """A hash of a file's bytes, 32 hexadecimal digits (blake2b)."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class ModelSource:
    """Which model, with which inputs: everything needed to load it again from nothing.

    Args:
        model: a sample's name, or the path of a TorchScript trace.
        batch, tokens: sizes of a sample's inputs; None means the sample's own default.
        seed: seeds the random weights, the inputs, the dropout masks and grad_out.
        training: train mode, with dropout, and with gradients.
        dtype: "float32" or "float64", of the parameters and the floating inputs.
        inputs: for a file, the (name, type) of each input; a name may be empty.
        digest: for a file, a hash of its bytes, so that another file at the same path is another
            source. `engine.protocol.source.source_from_file` fills it in.
        gradient: whose gradient, in training: "tvm" takes it by passes over the imported forward;
            "pytorch" imports forward and backward together, as PyTorch's autograd records them.
        values: in `INPUTS`, of the inputs of a run. What is imported and built is the same for all.
    """

    model: str
    batch: int | None = None
    tokens: int | None = None
    seed: int = 0
    training: bool = False
    dtype: str = "float32"
    inputs: tuple[tuple[str, TensorType], ...] = ()
    digest: str = ""
    gradient: str = "tvm"
    values: str = INPUTS[0]
