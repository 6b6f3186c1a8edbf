"""The value that Relax passes take and return."""

from relascope.passes.program import Program


class RelaxProgram(Program):
    """A typed Relax module: "main" is one dataflow block, and returns a tensor or a flat tuple.
    `provenance` is by the names of variables, which passes keep; see
    `engine.relax.frontend.importer`."""
