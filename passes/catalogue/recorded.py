"""The step for a pass of a recorded compile, whose module is a file beside the program's. It is not
in the list of passes, and people do not type it."""

import re
from dataclasses import replace

from relascope.passes.catalogue.entry import PassInfo
from relascope.passes.catalogue.parameters import Parameter
from relascope.passes.pipeline import Step

NAME = "recorded"
_MODULE, _PASS, _TITLE = "module", "pass", "name"
_LISTED = PassInfo(
    name=NAME,
    ir="",
    title="a recorded pass",
    summary="The module that a recorded pass left.",
    origin="a recording",
    function="",
    parameters=(
        Parameter(_MODULE, "whole number", 0, "which module of the recording"),
        Parameter(_PASS, "whole number", 0, "the pass that left it"),
        Parameter(_TITLE, "text", "", "the name of that pass"),
    ),
)


def recorded(module: int, number: int, title: str) -> Step:
    """The step of a pass, by its number and its name, that left a module."""
    said = re.sub(r"[^\w. -]+", "_", title)[:80].strip() or "_"
    return Step(NAME, params=((_MODULE, str(module)), (_PASS, str(number)), (_TITLE, said)))


def entry(ir: str, step: Step) -> PassInfo:
    """The catalogue's entry for such a step."""
    return replace(_LISTED, ir=ir, title=dict(step.params).get(_TITLE, _LISTED.title))


def number_of(step: Step) -> int:
    """The number of a step's recorded pass; -1 for another step."""
    return int(dict(step.params)[_PASS]) if step.name == NAME else -1


def file_of(step: Step) -> str:
    """The name of the file with its module."""
    return file_name(int(dict(step.params)[_MODULE]))


def file_name(module: int) -> str:
    return f"module_{module}.json"
