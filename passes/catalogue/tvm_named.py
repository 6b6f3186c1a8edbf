"""TVM's own passes by their names, such as `StaticPlanBlockMemory`: the steps of its pipelines,
which the engine's TVM lists (`passes.tvm_pipelines`)."""

from relascope.passes.catalogue.entry import PassInfo
from relascope.passes.catalogue.parameters import Parameter

MARK = "tvm:"  # prefix of the name of a TVM pipeline in a text: `tvm:default`

_PACKAGE = __name__.rpartition(".catalogue")[0]
_TARGET = Parameter("target", "text", "llvm", "kind of the target of the pipeline")
_LEVEL = Parameter("level", "whole number", 3, "optimisation level at which it runs", least=0)


def entry(ir: str, name: str) -> PassInfo:
    """The catalogue's entry for such a pass, whether TVM has it or not."""
    return PassInfo(
        name=name,
        ir=ir,
        title=name,
        summary="TVM's own pass, with its settings in TVM's pipelines.",
        origin="TVM",
        function=f"{_PACKAGE}.{ir}.tvm_pipelines:{name}",
        parameters=(_TARGET, _LEVEL) if ir == "relay" else (_TARGET,),
    )
