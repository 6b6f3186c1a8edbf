"""What building has in common for every TVM; each runtime says what is its TVM's own."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import relascope.engine.building.threads  # noqa: F401, sets what TVM reads when what was built first runs
from relascope.core.errors import EngineError, lines_of
from relascope.core.graph import Graph
from relascope.core.memo import Memo
from relascope.engine.building import gpu_faults
from relascope.engine.protocol import records
from relascope.engine.protocol.results import UNBUILT
from relascope.engine.protocol.tuning import RECORDS


@dataclass(frozen=True)
class TuningRecords:
    """What tuning found, to be built with.

    Args:
        place: the target's folder of records.
        stamp: changes when the records do (`engine.protocol.records.stamp`).
        always: take every record, and not only those that beat what is done without.
    """

    place: Path
    stamp: str
    always: bool = False


@dataclass(frozen=True)
class Function:
    """One function of a program.

    Args:
        graph: of it; of a half of a split program, by the ids of the joint graph.
        exprs: the IR's expression of each node by its id.
    """

    program: Any
    name: str
    graph: Graph
    exprs: Mapping[str, Any]


@dataclass(frozen=True)
class BuildOptions:
    """How to build.

    Args:
        target: the target's text; with the library of `engine.<ir>.targets.BLAS`, matmuls are
            PyTorch's BLAS's.
        done: TVM's own passes that made the program: only what is left of TVM's pipeline is run;
            None builds by relascope's way.
        records: of tuning; None where the target does not ask for them, or to look for them.
    """

    target: str = "llvm"
    opt_level: int = 3
    disabled: tuple[str, ...] = ()
    done: tuple[str, ...] | None = None
    records: TuningRecords | None = None

    def with_records(self, ir: str, version: str) -> "BuildOptions":
        """The same with what tuning found on this machine, where the target asks for it."""
        if self.records is not None or RECORDS not in self.target.split():
            return self
        place = records.folder(ir, version, self.target, torch.get_num_threads())
        if not (place / records.CURVE).exists():
            return self
        return replace(self, records=TuningRecords(place, records.stamp(place)))


_ERROR = re.compile(r"[A-Z]\w*Error: ")
_LEFT = "cannot emit this Relax operator"


class Builder:
    """Builds, and knows what it built before by its structure."""

    def __init__(
        self,
        make: Callable[[Any, BuildOptions], Any],
        structural_hash: Callable[[Any], Any],
        structural_equal: Callable[[Any, Any], Any],
    ) -> None:
        self._make, self._hash, self._equal = make, structural_hash, structural_equal
        self._built: Memo[tuple[Any, Any]] = Memo(16)

    def build(self, program: Any, names: tuple[str, ...], options: BuildOptions) -> Any:
        """What `make` gives, or gave, for a program of this structure.

        Args:
            program: a function or a module.
            names: of its arguments, which TVM does not count as structure.

        Raises:
            EngineError: kind "target"; TVM could not build it; gives TVM's reason. Kind "pass"; an
                operator is left that no pass lowers.
        """
        key = (options, _Structure(program, names, int(self._hash(program)), self._equal))
        built, _ = self._built.get(key, lambda: (self._try(program, options), program))
        return built

    def _try(self, program: Any, options: BuildOptions) -> Any:
        try:
            return self._make(program, options)
        except EngineError:
            raise
        except Exception as error:
            target = options.target
            on_gpu = gpu_faults.gpu_fault(error, target)
            if on_gpu is not None:
                raise on_gpu from error
            message = f"{UNBUILT} for {target}: {_reason(lines_of(error))}"
            hint = "Choose another target, or a smaller part of the model."
            if _LEFT in str(error):
                message = f"No pass lowers what TVM is left with: {_reason(lines_of(error))}"
                raise EngineError("pass", message, target, "Run LegalizeOps again.") from error
            raise EngineError("target", message, target, hint) from error


def _reason(lines: list[str]) -> str:
    at = next((i for i, line in enumerate(lines) if "module verification failed" in line), None)
    if at is None or at + 1 >= len(lines):
        # A module or a graph may stand behind it.
        return next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1])
    return f"LLVM refuses the code that TVM wrote ({lines[at + 1].rstrip('!')})"


class _Structure:
    """A program as a key: equal where TVM finds the programs structurally equal."""

    def __init__(
        self, program: Any, names: tuple[str, ...], hashed: int, equal: Callable[[Any, Any], Any]
    ) -> None:
        self.program, self.names, self.hashed, self.equal = program, names, hashed, equal

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Structure)
            and self.names == other.names
            and bool(self.equal(self.program, other.program))
        )
