"""What the name of a variable says: which operator of PyTorch it came from."""

from typing import Any

from relascope.passes.relax.ir.program import RelaxProgram


def imported_order(program: RelaxProgram, variable: Any) -> int | None:
    """When PyTorch executed the operator that a variable came from, counted from 0.

    The importer calls it `operator_ordinal` or `operator_ordinal_copy`; see
    `engine.relax.frontend.importer`. None for gradients, and where the importer left no number.
    """
    name = str(getattr(variable, "name", ""))
    _, source = program.provenance.get(name, ("", ""))
    operator = source.rpartition("::")[2].strip("_")
    if not operator or source.startswith("gradient of ") or not name.startswith(f"{operator}_"):
        return None
    ordinal = name[len(operator) + 1 :].partition("_")[0]
    if not ordinal.isdigit():
        return None
    return int(ordinal)
