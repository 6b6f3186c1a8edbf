"""The engines, and what differs between them. Imports none of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineEntry:
    """One engine; its classes are in the module `engine.<ir>.session`, by its title.

    `needs` says what a report of a fault needs, in a sentence with a place for each package. `live`
    are the passes for inference of a live module; none binds parameters, because they change from
    step to step. `masks` is the pass that makes dropout masks arguments, "" where the import
    does."""

    title: str
    packages: tuple[str, ...]
    needs: str
    live: str
    masks: str = ""

    @property
    def session(self) -> str:
        return f"relascope.engine.{self.title.lower()}.session:{self.title}Session"


REGISTRY = {
    "relay": EngineEntry(
        "Relay",
        ("bitblas",),
        "A TVM that has Relay: one that `import tvm` finds (0.18 or older), else the one in the "
        "package `bitblas` (`pip install --no-deps {}` and `pip install numpy scipy "
        "attrs psutil decorator cloudpickle typing_extensions pyelftools`).",
        "externalize_dropout|cse|linear_to_dense|simplify_inference",
        "externalize_dropout",
    ),
    "relax": EngineEntry(
        "Relax",
        ("apache-tvm", "apache-tvm-ffi"),
        "A TVM that has Relax (`pip install {} {}`), and numpy.",
        "cse|remove_redundant_reshape|canonicalize|dce",
    ),
}
"""The engines by their IR."""

ENGINES = tuple(REGISTRY)
