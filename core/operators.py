"""The one table of operators' properties, by their names in either IR."""

from functools import cache


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


RESHAPES = _words("reshape squeeze expand_dims")
"""Views with an explicit shape."""

VIEWS = RESHAPES | _words(
    "flatten nn.batch_flatten contrib_reverse_reshape reshape_like memory.view"
)
"""Operators whose result is the same storage as their first input."""

TRANSPOSES = _words("transpose permute_dims")
CASTS = _words("cast astype")
LAYOUTS = _words("layout_transform")
BROADCASTS = _words("broadcast_to")
PADS = _words("nn.pad")
ZEROS = _words("zeros zeros_like")
ONES = _words("ones ones_like")

KEEPS_NUMBERS = _words("broadcast_to_like reshape_like cast_like copy").union(
    RESHAPES, TRANSPOSES, CASTS, BROADCASTS
)
"""Operators whose result has the numbers of their first input, in another shape or type."""

PARTIAL = _words(
    "take gather gather_nd gather_elements index_tensor strided_slice dynamic_strided_slice"
)
"""Operators that read no more of their first operand than they write."""

MOVES = (TRANSPOSES | CASTS | LAYOUTS | BROADCASTS | PADS | ZEROS | ONES | PARTIAL) | _words(
    "broadcast_to_like expand_like repeat tile concatenate concat stack split strided_set "
    "index_put scatter scatter_elements scatter_nd slice_scatter flip reverse reverse_sequence "
    "copy cast_like full full_like arange eye one_hot tril triu slice_like meshgrid "
    "nn.depth_to_space nn.space_to_depth nn.pixel_shuffle identity grad.no_grad"
)
"""Operators that move elements and compute nothing."""

REDUCTIONS = _words(
    "sum mean max min prod any all argmax argmin variance std median logsumexp collapse_sum_to "
    "collapse_sum_like cumsum cumprod grad.take_backward"
)
"""Operators that read many elements for each they write: one FLOP an element read."""

FOLDS = _words("sum mean max min prod")
"""Reductions whose operand a compiler computes element by element in the same kernel."""

WHOLE = _words(
    "index_put scatter scatter_elements scatter_nd slice_scatter sort argsort topk unique nonzero "
    "reverse_sequence"
)
"""Operators that make their result as a whole, so that no reader can be fused with them."""

ROWWISE = {
    **dict.fromkeys(("nn.softmax", "nn.fast_softmax", "nn.log_softmax"), 12),
    **dict.fromkeys(("nn.layer_norm", "nn.group_norm", "nn.instance_norm"), 8),
    "nn.batch_norm": 4,
    "nn.rms_norm": 5,
}
"""Reductions with a result as large as what they read, and their FLOPs an element."""

TRANSCENDENTAL = _words(
    "exp log log2 log10 log1p erf tanh sigmoid power sin cos tan sinh cosh asin acos atan asinh "
    "acosh atanh fast_exp fast_erf fast_tanh nn.gelu nn.gelu_tanh nn.silu nn.softplus nn.selu "
    "log_add_exp"
)
CALLED = _words("log log2 log10 log1p tan sinh cosh asin acos atan asinh acosh atanh")
"""Operators for which TVM calls the C library on a CPU, element by element."""
SUMS = _words("add nn.bias_add subtract")
FACTORS = _words("multiply divide")
POINTWISE = (
    SUMS
    | FACTORS
    | _words(
        "floor_divide mod floor_mod trunc_divide trunc_mod negative abs sqrt rsqrt square "
        "reciprocal maximum minimum clip where nn.relu nn.relu6 nn.leaky_relu nn.prelu equal "
        "not_equal less less_equal greater greater_equal logical_and logical_or logical_not "
        "logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor left_shift right_shift floor "
        "ceil round trunc sign isnan isinf isfinite resize2d image.resize2d"
    )
)
"""Operators of one FLOP or so for each element of the result."""

EACH = (POINTWISE | TRANSCENDENTAL | CASTS) - {"resize2d", "image.resize2d", "nn.prelu"}
"""Operators that compute each element from those in its place."""

WEIGHTED = _words("matmul nn.dense nn.batch_matmul nn.matmul nn.conv1d nn.conv2d nn.conv3d")
"""Products of a left operand with a weight, the second operand."""

PRODUCTS = _words(
    "matmul linear einsum tensordot nn.dense nn.contrib_dense_pack nn.batch_matmul nn.matmul "
    "nn.sparse_dense nn.attention nn.attention_bias nn.attention_var_len"
)
"""Products of matrices; for convolutions see `is_convolution`."""

_RANDOM = ("random.", "threefry", "nn.dropout", "multinomial")


def is_convolution(op: str) -> bool:
    return "conv1d" in op or "conv2d" in op or "conv3d" in op


@cache
def cost_class(op: str) -> str:
    """ "product", "random", "reduction", "whole", or "other": elementwise."""
    if op in PRODUCTS or is_convolution(op):
        return "product"
    if op.startswith(_RANDOM):
        return "random"
    if op in REDUCTIONS or op in ROWWISE or "pool" in op:
        return "reduction"
    return "whole" if op in WHOLE else "other"


def is_known(op: str) -> bool:
    """Whether an operator is in some table, so that its FLOPs are not a guess."""
    tables = (VIEWS, MOVES, REDUCTIONS, ROWWISE, TRANSCENDENTAL, PRODUCTS, POINTWISE)
    return any(op in table for table in tables) or is_convolution(op) or "pool" in op


# A call's colour, unless a role or a comparison decides: the sort of its work. The first entry with
# a word that is contained in the operator's last name wins.
_CATEGORIES = {
    "convolution": "conv",
    "matmul": "dense matmul linear einsum",
    "normalisation": "softmax _norm lrn dropout",
    "reduction": "pool sum mean variance max_ argm prod",
    "activation": "relu gelu silu tanh sigmoid erf exp log sqrt clip",
    "shape": "reshape transpose permute squeeze expand_dims broadcast split slice concat stack "
    "flatten layout tile repeat pad collapse take gather scatter index_ cast astype copy like "
    "zeros ones full flip reverse resize tril triu arange",
    "elementwise": "add subtract multiply divide power maximum minimum where negative equal less "
    "greater logical abs floor ceil sign sin cos",
}


@cache
def category(op: str) -> str:
    """The sort of work an operator does ("nn.batch_matmul" -> "matmul"), "call" if unknown."""
    last = op.rsplit(".", 1)[-1].lower()
    if last in ("max", "min", "all", "any"):  # and not maximum, alloc_tensor
        return "reduction"
    words = _CATEGORIES.items()
    return next((name for name, text in words if any(w in last for w in text.split())), "call")
