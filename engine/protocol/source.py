"""From what a person typed to a `ModelSource`, without torch: the app's process imports this."""

import contextlib
import hashlib
import mmap
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType

_DTYPES = (
    "float16, float32, float64, bfloat16, int8, uint8, int16, int32, int64, bool, complex64, "
    "complex128"
)
_INPUT = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)\s*=\s*)?(?P<shape>\d{1,18}(?:\s*x\s*\d{1,18})*|scalar)"
    r"\s*(?::\s*(?P<dtype>\w+))?\s*(?::\s*(?P<least>-?\d{1,19})\s*\.\.\s*(?P<most>-?\d{1,19}))?",
    re.ASCII,
)
_PIN = re.compile(r"([A-Za-z_]\w*(?:\.\d+)?)\s*=\s*(\d{1,18})", re.ASCII)
_SET = re.compile(r"set([1-9]\d{0,3})")
INPUTS = (
    *("sample", "normal", "large", "tiny", "cancelling", "edges"),
    *("overflow", "huge", "nonfinite"),
)
"""Kinds of values that a model's inputs may have: the sample's own, or others of its types."""
EXAMPLE = "1x14x768:float32, 1x1x1x14"
CODE = "python"
"""The library in the name of a model that the user's own code makes."""
EVERYTHING = "/"
"""Among what an engine may read: all that the user may."""
_LIBRARY = re.compile(r"(hf|torchvision|timm):")
_LINKED = re.compile(
    r"(hf|torchvision|timm):[A-Za-z0-9][\w-]*(\.[\w-]+)*(/\w[\w-]*(\.[\w-]+)*)?(\?[\w.=&,\[\]-]*)?"
)


def has_name(model: str) -> bool:
    """Whether a model, not a sample, is given by a name such as `hf:bert`, and not by a file."""
    return bool(_LIBRARY.match(model)) or model.startswith(f"{CODE}:")


def linkable(model: str) -> bool:
    """Whether it is a name that a link or a session may have: no path, and nobody's code."""
    return bool(_LINKED.fullmatch(model))


@dataclass(frozen=True, slots=True)
class InputType(TensorType):
    """The type of an input of integers, and the least and the greatest that are drawn for it."""

    least: int = 0
    most: int = 1

    def __str__(self) -> str:
        return f"{TensorType.__str__(self)} {self.least}..{self.most}"


def parse_inputs(text: str) -> tuple[tuple[str, TensorType], ...]:
    """Read a model's inputs. Raises EngineError, kind "input", on a bad item or a name given twice.

    The text has one `name=shape:dtype` an input, separated by commas, semicolons or line ends; name
    and dtype (float32) are optional. A shape is sizes joined by `x`, or `scalar`: `ids=1x14:int64,
    1x14x768`. Integers may have an inclusive range: `ids=1x14:int64:0..30521`. The result has
    (name, type) for each, with the name "" where none was given."""
    result: list[tuple[str, TensorType]] = []
    for item in _items(text):
        match = _INPUT.fullmatch(item)
        if match is None:
            hint = f"Write one shape per input, such as {EXAMPLE} or hidden=1x14x768:float32."
            raise EngineError("input", f"Cannot read the input type {item!r}.", item, hint)
        dtype = match["dtype"] or "float32"
        if dtype not in _DTYPES.split(", "):
            message = f"{dtype!r} is not a dtype of an input."
            raise EngineError("input", message, item, f"Use one of {_DTYPES}.")
        shape = match["shape"]
        sizes = () if shape == "scalar" else tuple(int(s) for s in shape.split("x"))
        name = match["name"] or ""
        if name and any(name == other for other, _ in result):
            hint = "Give each its own name."
            raise EngineError("input", f"Two inputs are called {name!r}.", item, hint)
        kind = TensorType(sizes, dtype)
        if match["least"]:
            kind = _ranged(kind, int(match["least"]), int(match["most"]), item)
        result.append((name, kind))
    return tuple(result)


def _items(text: str) -> Iterator[str]:
    return filter(None, (part.strip() for part in re.split(r"[,;\n]", text)))


def _ranged(kind: TensorType, least: int, most: int, item: str) -> InputType:
    bits = re.search(r"\d+$", kind.dtype) if "int" in kind.dtype else None
    if bits is None:
        raise EngineError("input", f"{kind.dtype} takes no range: only integers do.", item)
    half = 2 ** (int(bits[0]) - 1)
    low, high = (0, 255) if kind.dtype == "uint8" else (-half, half - 1)
    high -= kind.dtype == "int64"  # drawing needs one past the greatest
    if not low <= least <= most <= high:
        message = f"{least}..{most} is not a range of {kind.dtype}."
        raise EngineError("input", message, item, f"The widest is {low}..{high}.")
    return InputType(kind.shape, kind.dtype, least, most)


def input_text(name: str, kind: TensorType) -> str:
    """An input's type as `parse_inputs` reads it, with the names of unknown dimensions."""
    shape = "x".join(map(str, kind.shape)) or "scalar"
    drawn = f":{kind.least}..{kind.most}" if isinstance(kind, InputType) else ""
    return f"{name}{'=' if name else ''}{shape}:{kind.dtype}{drawn}"


def parse_pins(text: str) -> tuple[tuple[str, int], ...]:
    """Read the sizes of dimensions that a program leaves open. The text is `s77=4` for a symbol or
    `x.0=4` for an input's dimension, separated by commas, semicolons or line ends. Raises
    EngineError of kind "input" where an item cannot be read, or a name occurs twice."""
    found: dict[str, int] = {}
    for item in _items(text):
        match = _PIN.fullmatch(item)
        if match is None or match[1] in found:
            message = f"Cannot read the size {item[:80]!r}."
            if match is not None:
                message = f"Two sizes are given for {match[1]}."
            hint = "Write x.0=4 for dimension 0 of the input x, or a symbol's name: s77=4."
            raise EngineError("input", message, item[:80], hint)
        found[match[1]] = int(match[2])
    return tuple(found.items())


def kinds_of_inputs(source: "ModelSource") -> tuple[str, ...]:
    """Kinds of inputs of a run: `INPUTS`, then saved sets but the first, the sample."""
    return INPUTS + tuple(f"set{i}" for i in range(2, len(source.tensors) + 1))


def own_inputs(source: "ModelSource") -> tuple[str, ...]:
    """Those that it is run on if none are named: the sample, and every saved set."""
    return INPUTS[:1] + kinds_of_inputs(source)[len(INPUTS) :]


def set_of(values: str) -> int:
    """Which saved set a kind of inputs is, from 1; 0 where it is none."""
    match = _SET.fullmatch(values)
    return int(match[1]) if match else 0


def with_tensors(source: "ModelSource", paths: Iterable[str | Path]) -> "ModelSource":
    """A source on saved tensors. Each of the files is a set (`engine.files.tensors`). Raises
    EngineError of kind "file" where there is no such file."""
    files = [Path(p) for p in paths]
    if missing := [f for f in files if not f.is_file()]:
        message = f"There is no file {str(missing[0])!r}."
        hint = "Name a file from numpy.save, numpy.savez, safetensors or torch.save."
        raise EngineError("file", message, str(missing[0]), hint)
    return replace(source, tensors=tuple((str(f.resolve()), file_digest(f)) for f in files))


def source_from_file(
    path: str | Path,
    inputs_text: str = "",
    *,
    seed: int = 0,
    training: bool = False,
    dtype: str = "float32",
    pins: str = "",
) -> "ModelSource":
    """A file of `torch.jit.save` or `torch.export.save` as a source. `inputs_text` has types of its
    inputs, as `parse_inputs` reads them, or is "" to use those that the file records. Raises
    EngineError of kind "file" without such a file, "input" for a text that cannot be read."""
    file = Path(path)
    if not file.is_file():
        hint = "Give a sample's name, or a file from torch.jit.save or torch.export.save."
        raise EngineError("file", f"There is no file {str(path)!r}.", str(path), hint)
    about = seed, training, dtype, parse_inputs(inputs_text), file_digest(file)
    return ModelSource(str(file.resolve()), None, None, *about, pins=parse_pins(pins))


def bundled(paths: Sequence[str | Path], folder: str | Path) -> Path:
    """One archive of a program's file and the file of its parameters, to be opened together.
    Raises EngineError of kind "file" where one is missing, or cannot be read."""
    made = Path(folder) / f"{Path(paths[0]).name}.tar"
    with tarfile.open(made, "w") as archive:
        for index, path in enumerate(map(Path, paths)):
            try:
                member = tarfile.TarInfo(f"{index}-{path.name}")
                with path.open("rb") as file:
                    member.size = os.fstat(file.fileno()).st_size
                    archive.addfile(member, file)
            except OSError as wrong:
                message = f"{path.name} cannot be read: {wrong.strerror}."
                raise EngineError("file", message, str(path)) from wrong
    return made


def file_digest(path: Path) -> str:
    """A hash of a file's bytes, 32 hexadecimal digits (blake2b)."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class ModelSource:
    """Which model, with which inputs: everything needed to load it again from scratch.

    Args:
        model: a sample's name; a file's path; or by name, `hf:NAME` (a type, class or cached name
            of transformers, or a folder's path; then settings such as `?num_hidden_layers=2`),
            `torchvision:NAME`, `timm:NAME` or `python:PATH:FUNCTION`.
        batch, tokens: sizes of inputs; None is the model's default.
        seed: seeds the random weights, the inputs, the dropout masks and grad_out.
        training: train mode, with dropout, and with gradients.
        dtype: "float32" or "float64", of the parameters and the floating inputs.
        inputs: for a file, (name or "", type) of inputs that it does not record.
        digest: for a file, a hash of its bytes, from `source_from_file`.
        gradient: in training: "tvm" takes it by passes over the forward; "pytorch" imports forward
            and backward as autograd records them.
        values: in `kinds_of_inputs`; changes the inputs of a run, not import or build.
        module: path of the submodule to open alone, on its inputs in the whole model; or "".
        call: which of the submodule's calls, from 1.
        weights: for a model by name: "" for those on this machine, or "random".
        pins: open sizes of an exported program, by symbol or dimension (`x.0`), if not the
            example's.
        tensors: (path, digest) of files of saved inputs, each a set; the first is the sample.
        run: open sizes by name, and inputs that decide a branch, for a run, like `values`.
        sides: the side to import of each `if` that a computed value decides, by the value's name.
        kernels: run kernels of a module's file, which are code. Never stored."""

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
    module: str = ""
    call: int = 1
    weights: str = ""
    pins: tuple[tuple[str, int], ...] = ()
    tensors: tuple[tuple[str, str], ...] = ()
    run: tuple[tuple[str, int | bool], ...] = ()
    sides: tuple[tuple[str, bool], ...] = ()
    kernels: bool = False

    @property
    def files(self) -> frozenset[str]:
        """What loading it reads: files, folders, or `EVERYTHING` for the user's own code."""
        library, _, name = self.model.partition(":")
        if library == CODE:
            return frozenset({EVERYTHING})
        found = {path for path, _ in self.tensors}
        if self.digest:
            found |= {self.model, *weights_beside(self.model, self.digest)}
        elif library == "hf" and os.path.isabs(name):
            found.add(name.partition("?")[0])
        return frozenset(found)


@lru_cache(64)
def weights_beside(path: str, stamp: object) -> frozenset[str]:
    """The files in an ONNX model's folder that it names as places of its weights. Searches for what
    protobuf writes, the key "location" and a text. A chance match in other bytes names a file that
    the model could have named as well. `stamp` changes with the file."""
    folder = Path(path).resolve().parent
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        if file.read(1) != b"\x08":  # as an ONNX model begins, see `engine.files.formats`
            return frozenset()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            names = {
                data[m.end() : m.end() + m[1][0]].decode(errors="ignore")
                for m in re.finditer(rb"\x0a\x08location\x12([\x01-\x7f])", data)
            }
        beside = {(folder / n).resolve() for n in names if "\0" not in n}
        return frozenset(str(f) for f in beside if f.is_file() and f.is_relative_to(folder))
    return frozenset()
