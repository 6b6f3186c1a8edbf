"""The step for a pass of a recorded compile, whose module is a file beside the program's. It is not
in the list of passes, and people do not type it."""

import re
from dataclasses import replace

from relascope.passes.catalogue.entry import PassInfo
from relascope.passes.catalogue.parameters import Parameter
from relascope.passes.pipeline import Pipeline, Step

NAME = "recorded"
UNKNOWN = -1  # in place of a module's number
_MODULE, _PASS, _TITLE, _START = "module", "pass", "name", "start"
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
        Parameter(_START, "whole number", 0, "which module it received"),
    ),
)


def recorded(module: int, number: int, title: str, start: int = UNKNOWN) -> Step:
    """The step of a pass, by its number and its name, that left a module and received `start`."""
    said = re.sub(r"[^\w. -]+", "_", title)[:80].strip() or "_"
    params = ((_MODULE, str(module)), (_PASS, str(number)), (_TITLE, said))
    return Step(NAME, params=params if start == UNKNOWN else (*params, (_START, str(start))))


def modules_of(step: Step) -> tuple[int, int]:
    """The modules that a pass left and received."""
    about = dict(step.params)
    return int(about[_MODULE]), int(about.get(_START, UNKNOWN))


def before(step: Step) -> Step:
    """A step that left the module that this one received."""
    return recorded(modules_of(step)[1], number_of(step), dict(step.params)[_TITLE])


def entry(ir: str, step: Step) -> PassInfo:
    """The catalogue's entry for such a step."""
    return replace(_LISTED, ir=ir, title=dict(step.params).get(_TITLE, _LISTED.title))


def after(pipeline: Pipeline, index: int) -> tuple[Pipeline, int]:
    """What to ask for the program after a step with: the steps up to it, and its index; a recorded
    one depends on none before it."""
    if index >= 0 and pipeline.steps[index].name == NAME:
        return Pipeline((pipeline.steps[index],)), 0
    return pipeline.upto(index), index


def in_pipeline(pipeline: Pipeline) -> bool:
    """Whether a pipeline has passes of a recorded compile."""
    return any(step.name == NAME for step in pipeline)


def number_of(step: Step) -> int:
    """The number of a step's recorded pass; -1 for another step."""
    return int(dict(step.params)[_PASS]) if step.name == NAME else -1


def file_of(step: Step) -> str:
    """The name of the file with its module."""
    return file_name(modules_of(step)[0])


def file_name(module: int) -> str:
    return f"module_{module}.json"
