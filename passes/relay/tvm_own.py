"""TVM's own Relay passes, as functions from program to program."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relay

from passes.relay.program import RelayProgram
from passes.relay.rewrite import with_mod


def _module_pass(make: Callable[[], object]) -> Callable[[RelayProgram], RelayProgram]:
    def run(program: RelayProgram) -> RelayProgram:
        return with_mod(program, make()(program.mod))  # type: ignore[operator]

    return run


eliminate_common_subexpr = _module_pass(relay.transform.EliminateCommonSubexpr)
combine_parallel_batch_matmul = _module_pass(relay.transform.CombineParallelBatchMatmul)
simplify_inference = _module_pass(relay.transform.SimplifyInference)
dead_code_elimination = _module_pass(relay.transform.DeadCodeElimination)
# At level 2 as `relay.build` runs it, so that what is shown is what will run.
fuse_ops = _module_pass(lambda: relay.transform.FuseOps(fuse_opt_level=2))
