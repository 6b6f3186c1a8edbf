"""Every pass that can be switched: what it is, in one line, and where it comes from.

Plain data: the page and the command line list passes without importing a TVM. `function` names the
code as `module:attribute`, which an engine imports in its own process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from passes.pipeline import Pipeline, Step


@dataclass(frozen=True)
class PassInfo:
    """One entry of the catalogue.

    Args:
        name: as pipelines write it ("fold").
        ir: "relay" or "relax".
        title: as its makers call it ("FoldConstant").
        summary: one line on what it does.
        origin: "TVM", or where the method of ours comes from.
        function: `module:attribute` of a callable from program (and parameters) to program; a
            module whose name ends in ".py" is a file (`passes.user`).
        required: the pipeline it stands in cannot go without it, so it has no switch.
        needs: names of the passes that must have run before it in the same pipeline.
        excludes: names of the passes that must not have run before it.
        looking: only for looking at; what is built, and what follows that is not only for looking,
            starts from before it.
    """

    name: str
    ir: str
    title: str
    summary: str
    origin: str
    function: str
    required: bool = False
    looking: bool = False
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    def load(self) -> Any:
        """Import the callable. Only an engine's process may do this."""
        module, _, attribute = self.function.rpartition(":")
        found = _run_file(module) if module.endswith(".py") else import_module(module)
        return getattr(found, attribute)


def _run_file(path: str) -> ModuleType:
    """Import a file by its path, once a process."""
    if path not in sys.modules:
        spec = spec_from_file_location(path, path)
        assert spec is not None, "a name that ends in .py has a loader"
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[path] = module
    return sys.modules[path]


_RELAY = (
    PassInfo(
        "cse", "relay", "EliminateCommonSubexpr",
        "Computes equal expressions once: one reshape of the input for q, k and v, not three.",
        "TVM", "passes.relay.tvm_own:eliminate_common_subexpr",
    ),
    PassInfo(
        "bind", "relay", "bind parameters",
        "Puts the weights into the program as constants, so that what depends on them alone can be "
        "computed now.",
        "TVM, relay.build_module.bind_params_by_name", "passes.relay.bind:bind",
    ),
    PassInfo(
        "fold", "relay", "FoldConstant",
        "Computes every expression whose inputs are constants and stores the result.",
        "TVM; what only moves data is done by numpy, which is quicker",
        "passes.relay.fold_constant:fold_constant",
    ),
    PassInfo(
        "batch_matmul_nt", "relay", "batch_matmul to NT form",
        "Writes batch_matmul(a, b) as batch_matmul(a, transpose(b), transpose_b=True), the form "
        "that CombineParallelBatchMatmul takes.",
        "ours", "passes.relay.batch_matmul_nt:batch_matmul_nt",
    ),
    PassInfo(
        "combine_batch_matmul", "relay", "CombineParallelBatchMatmul",
        "Joins matmuls that read one input into one: q, k and v become a single product.",
        "TVM, by the tutorial's author", "passes.relay.tvm_own:combine_parallel_batch_matmul",
    ),
    PassInfo(
        "linear_to_dense", "relay", "linear layers to nn.dense",
        "Writes a matmul whose right side is one matrix for the whole batch as nn.dense, which the "
        "CPU schedules serve well.",
        "ours", "passes.relay.linear_to_dense:linear_to_dense",
    ),
    PassInfo(
        "drop_identities", "relay", "views that change nothing",
        "Removes reshapes, squeezes, broadcasts and transposes whose result is their operand, and "
        "makes one reshape of two.",
        "ours", "passes.relay.drop_identities:drop_identities",
    ),
    PassInfo(
        "simplify_inference", "relay", "SimplifyInference",
        "Removes dropout and spells out the normalisations, as only inference may.",
        "TVM", "passes.relay.tvm_own:simplify_inference",
    ),
    PassInfo(
        "fuse", "relay", "FuseOps",
        "Groups operators into the kernels that will run. For looking: building fuses by itself.",
        "TVM", "passes.relay.tvm_own:fuse_ops", looking=True,
    ),
    PassInfo(
        "externalize_dropout", "relay", "dropout to mask inputs",
        "Makes each dropout a product with a mask that PyTorch draws, in PyTorch's own order.",
        "the tutorial's ExternalizeDropout", "passes.relay.externalize_dropout:externalize_dropout",
        required=True,
    ),
    PassInfo(
        "decompose_layer_norm", "relay", "layer norm spelled out",
        "Writes layer norm as (x - mean) / sqrt(variance + eps) * weight + bias, which has a "
        "gradient.",
        "the tutorial's DecomposeLayerNorm, with the exact place of eps",
        "passes.relay.decompose_layer_norm:decompose_layer_norm", required=True,
    ),
    PassInfo(
        "decompose_batch_norm", "relay", "batch norm spelled out",
        "Writes batch norm in eval mode as (x - mean) / sqrt(variance + eps) * weight + bias, "
        "which has a gradient.",
        "ours", "passes.relay.decompose_batch_norm:decompose_batch_norm", required=True,
    ),
    PassInfo(
        "root_grad_out", "relay", "grad_out rooted",
        "Multiplies each output with its grad_out and sums, so that the gradient of this scalar is "
        "the backward that PyTorch asks for.",
        "the tutorial", "passes.relay.root_grad_out:root_grad_out", required=True,
        excludes=("bind",),
    ),
    PassInfo(
        "gradient", "relay", "gradient",
        "Takes the reverse-mode gradient for every input and parameter.",
        "TVM, relay.transform.gradient(mode='first_order')", "passes.relay.gradient:gradient",
        required=True,
        needs=("root_grad_out",),
    ),
    PassInfo(
        "graph_normal_form", "relay", "ToGraphNormalForm",
        "Turns the gradient's let bindings back into a graph, and keeps the outputs and the wanted "
        "gradients.",
        "TVM, and the tutorial", "passes.relay.graph_normal_form:graph_normal_form", required=True,
        needs=("gradient",),
    ),
    PassInfo(
        "static_like", "relay", "*_like to static shapes",
        "Replaces collapse_sum_like, broadcast_to_like, reshape_like, zeros_like and ones_like by "
        "forms whose shape is written down, so that nothing is kept for its shape alone.",
        "the tutorial's LikeZapp", "passes.relay.static_like:static_like",
    ),
    PassInfo(
        "drop_zeros", "relay", "x + 0",
        "Removes the zeros that each gradient sum starts from.",
        "the tutorial's ZeroZapp", "passes.relay.drop_zeros:drop_zeros",
    ),
    PassInfo(
        "drop_ones", "relay", "x * 1",
        "Removes products with the ones that the chain rule starts from.",
        "the tutorial's OneZapp", "passes.relay.drop_ones:drop_ones",
    ),
    PassInfo(
        "transpose_dedup", "relay", "transpose of transpose",
        "Makes one transpose of two, and none where they undo each other.",
        "the tutorial's TransposeDedup", "passes.relay.transpose_dedup:transpose_dedup",
    ),
    PassInfo(
        "dce", "relay", "DeadCodeElimination",
        "Removes what no output needs.",
        "TVM", "passes.relay.tvm_own:dead_code_elimination",
    ),
)  # fmt: skip

_RELAX = (
    PassInfo(
        "cse", "relax", "EliminateCommonSubexpr",
        "Computes equal expressions once.",
        "TVM", "passes.relax.tvm_own:eliminate_common_subexpr",
    ),
    PassInfo(
        "bind", "relax", "BindParams",
        "Puts the weights into the program as constants, so that what depends on them alone can be "
        "computed now.",
        "TVM", "passes.relax.bind:bind",
    ),
    PassInfo(
        "fold", "relax", "FoldConstant",
        "Computes every expression whose inputs are constants and stores the result.",
        "TVM", "passes.relax.tvm_own:fold_constant",
    ),
    PassInfo(
        "combine_matmul", "relax", "CombineParallelMatmul",
        "Joins matmuls that read one input into one: q, k and v become a single product. Finds "
        "them before the weights are constants.",
        "TVM", "passes.relax.tvm_own:combine_parallel_matmul",
    ),
    PassInfo(
        "decompose_inference", "relax", "DecomposeOpsForInference",
        "Spells out batch norm by its running statistics, as only inference may.",
        "TVM", "passes.relax.tvm_own:decompose_for_inference",
    ),
    PassInfo(
        "decompose_training", "relax", "DecomposeOpsForTraining",
        "Spells out layer norm, and batch norm by the batch's statistics, in operators that have a "
        "gradient.",
        "TVM", "passes.relax.tvm_own:decompose_for_training",
    ),
    PassInfo(
        "decompose_gelu", "relax", "gelu spelled out",
        "Writes gelu in erf (or tanh), which has a gradient.",
        "ours", "passes.relax.decompose_gelu:decompose_gelu", required=True,
    ),
    PassInfo(
        "decompose_layer_norm", "relax", "layer norm spelled out",
        "Writes layer norm as (x - mean) / sqrt(variance + eps) * weight + bias, which has a "
        "gradient.",
        "the tutorial's DecomposeLayerNorm, with the exact place of eps",
        "passes.relax.decompose_layer_norm:decompose_layer_norm", required=True,
    ),
    PassInfo(
        "decompose_batch_norm", "relax", "batch norm spelled out",
        "Writes batch norm in eval mode as (x - mean) / sqrt(variance + eps) * weight + bias, "
        "which has a gradient.",
        "ours", "passes.relax.decompose_batch_norm:decompose_batch_norm", required=True,
    ),
    PassInfo(
        "root_grad_out", "relax", "grad_out rooted",
        "Multiplies each output with its grad_out and sums, so that the gradient of this scalar is "
        "the backward that PyTorch asks for.",
        "the tutorial", "passes.relax.root_grad_out:root_grad_out", required=True,
        excludes=("bind",),
    ),
    PassInfo(
        "gradient", "relax", "Gradient",
        "Takes the reverse-mode gradient for every input and parameter.",
        "TVM, with gradients of ours for operators that lack one",
        "passes.relax.gradient:gradient", required=True, needs=("root_grad_out",),
    ),
    PassInfo(
        "drop_zeros", "relax", "x + 0",
        "Removes sums with zeros, which gradients start from.",
        "the tutorial's ZeroZapp", "passes.relax.drop_zeros:drop_zeros",
    ),
    PassInfo(
        "drop_ones", "relax", "x * 1",
        "Removes products with the ones that the chain rule starts from.",
        "the tutorial's OneZapp", "passes.relax.drop_ones:drop_ones",
    ),
    PassInfo(
        "transpose_dedup", "relax", "transpose of transpose",
        "Makes one permute_dims of two, and none where they undo each other.",
        "the tutorial's TransposeDedup", "passes.relax.transpose_dedup:transpose_dedup",
    ),
    PassInfo(
        "transpose_of_matmul", "relax", "transpose of a product",
        "Writes a transposed product as the product of the transposed operands, the other way "
        "round: gradients of weights need no copy then.",
        "ours", "passes.relax.transpose_of_matmul:transpose_of_matmul",
    ),
    PassInfo(
        "fuse_transpose_matmul", "relax", "FuseTransposeMatmul",
        "Makes one function of a matmul and the transpose of its right side.",
        "TVM", "passes.relax.tvm_own:fuse_transpose_matmul",
    ),
    PassInfo(
        "remove_redundant_reshape", "relax", "RemoveRedundantReshape",
        "Makes one reshape of two, and none where the shape stays.",
        "TVM", "passes.relax.tvm_own:remove_redundant_reshape",
    ),
    PassInfo(
        "canonicalize", "relax", "CanonicalizeBindings",
        "Removes variables that only rename another.",
        "TVM", "passes.relax.tvm_own:canonicalize_bindings",
    ),
    PassInfo(
        "dce", "relax", "DeadCodeElimination",
        "Removes what no output needs.",
        "TVM", "passes.relax.tvm_own:dead_code_elimination",
    ),
    PassInfo(
        "convert_layout", "relax", "ConvertLayout",
        "Turns 2D convolutions to another order of axes, NHWC where none is named.",
        "TVM", "passes.relax.tvm_own:convert_layout",
    ),
    PassInfo(
        "mixed_precision", "relax", "ToMixedPrecision",
        "Lets matmuls and convolutions take float16; results differ by its rounding.",
        "TVM", "passes.relax.tvm_own:to_mixed_precision",
    ),
    PassInfo(
        "legalize", "relax", "LegalizeOps",
        "Gives every operator a kernel: a loop nest in TVM's tensor IR. For looking: building does "
        "this by itself.",
        "TVM", "passes.relax.tvm_own:legalize_ops", looking=True,
    ),
    PassInfo(
        "annotate_pattern", "relax", "AnnotateTIROpPattern",
        "Marks each kernel as elementwise, reduction, and so on, which decides what may fuse.",
        "TVM", "passes.relax.tvm_own:annotate_op_pattern", looking=True,
    ),
    PassInfo(
        "fuse_ops", "relax", "FuseOps",
        "Groups kernels into the functions that will run as one.",
        "TVM", "passes.relax.tvm_own:fuse_ops", looking=True,
    ),
    PassInfo(
        "fuse_tir", "relax", "FuseTIR",
        "Makes one kernel of each group.",
        "TVM", "passes.relax.tvm_own:fuse_tir", looking=True,
    ),
)  # fmt: skip

CATALOGUE: dict[tuple[str, str], PassInfo] = {(p.ir, p.name): p for p in (*_RELAY, *_RELAX)}

_INFERENCE = {
    "relay": "cse|bind|fold|batch_matmul_nt|combine_batch_matmul|fold|linear_to_dense"
    "|drop_identities|fold|simplify_inference|fuse",
    "relax": "cse|combine_matmul|bind|fold|decompose_inference|remove_redundant_reshape"
    "|canonicalize|dce|legalize|annotate_pattern|fuse_ops|fuse_tir",
}
_TRAINING = {
    "relay": "externalize_dropout|decompose_layer_norm|decompose_batch_norm|linear_to_dense"
    "|drop_identities|root_grad_out|gradient|graph_normal_form|static_like|drop_zeros|drop_ones"
    "|transpose_dedup|dce|cse",
    "relax": "decompose_gelu|decompose_layer_norm|decompose_batch_norm|root_grad_out|gradient"
    "|drop_zeros|drop_ones|transpose_dedup|transpose_of_matmul|remove_redundant_reshape"
    "|canonicalize|dce|cse",
}

_JOINT = {
    "relax": "cse|drop_zeros|drop_ones|transpose_dedup|transpose_of_matmul|remove_redundant_reshape"
    "|canonicalize|dce|cse",
}
_GRADIENTS = {"tvm": _TRAINING, "pytorch": _JOINT}

GRADIENTS = {"tvm": "TVM's", "pytorch": "PyTorch's"}
"""Whose gradient, and how people call it."""


def names(ir: str) -> list[str]:
    """Names of all passes of one IR."""
    return [p.name for p in CATALOGUE.values() if p.ir == ir]


def info(ir: str, step: Step | str) -> PassInfo:
    """The catalogue's entry for a step.

    Raises:
        KeyError: no pass of this IR has that name.
    """
    return CATALOGUE[ir, step if isinstance(step, str) else step.name]


def gradients(ir: str) -> tuple[str, ...]:
    """Whose gradients an IR can be trained with, the first one first: "tvm", "pytorch"."""
    return tuple(n for n, way in _GRADIENTS.items() if ir in way)


def check_gradient(ir: str, gradient: str) -> None:
    """Refuse a gradient that an IR does not have.

    Raises:
        ValueError: says why not.
    """
    if gradient not in _GRADIENTS:
        raise ValueError(f"there is no gradient {gradient!r}; known: {', '.join(_GRADIENTS)}")
    if gradient not in gradients(ir):
        raise ValueError(
            f"PyTorch's joint graph cannot become {ir.capitalize()}, whose frontend reads traces "
            "only, and a trace has no backward"
        )


def default_pipeline(ir: str, training: bool, gradient: str = "tvm") -> Pipeline:
    """What the page starts with: the inference run, or the way to the gradient.

    Args:
        gradient: in training, whose: "tvm" takes it by passes; with "pytorch" the program comes
            with it, and passes only tidy up.

    Raises:
        ValueError: the way to the gradient is asked of an IR that has none.
    """
    if training:
        check_gradient(ir, gradient)
    text = _GRADIENTS[gradient][ir] if training else _INFERENCE[ir]
    return Pipeline.parse(text, names(ir))


def last_built(ir: str, pipeline: Pipeline) -> int:
    """Index of the step whose program is built: the last that is not only for looking; or -1."""
    steps = enumerate(pipeline)
    return max((i for i, s in steps if s.enabled and not info(ir, s).looking), default=-1)
