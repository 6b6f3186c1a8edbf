"""Kernels that may write their result over an argument: element by element, in its place."""

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx


def overwritable(function: Any) -> tuple[int, ...]:
    """Places of the arguments over which a kernel of one result, its last argument, may write that,
    if bytes and dtypes are equal: no element that it writes depends on another of theirs, however
    its loops are scheduled."""
    blocks: list[Any] = []
    tvm_ffi.structural_walk(function.body, [(s_tir.SBlock, blocks.append)], order="post")
    *given, out = function.params
    written = [w.source for b in blocks for w in b.writes if _is_among(w.source, function.params)]
    if (
        len(written) != 1
        or not out.same_as(written[0])
        or any(len(b.match_buffers) for b in blocks)
    ):
        return ()
    return tuple(place for place, p in enumerate(given) if _by_element(blocks, p, out))


def _by_element(blocks: Sequence[Any], given: Any, out: Any) -> bool:
    """Whether all that depends on an argument, the result among it, does so element by element."""
    depend = [given]
    for block in blocks:
        reads = [r for r in block.reads if _is_among(r.source, depend)]
        if not reads:
            continue
        if any(v.iter_type != v.DataPar for v in block.iter_vars):
            return False
        if not _is_one_place(block, (*reads, *block.writes)):
            return False
        depend += [w.source for w in block.writes]
    return _is_among(out, depend)


def _is_among(tensor: Any, others: Sequence[Any]) -> bool:
    return any(tensor.same_as(o) for o in others)


def _is_one_place(block: Any, regions: Sequence[Any]) -> bool:
    """Whether all regions are one element each, the same number of its tensor: as it is, or
    reshaped."""
    known = sym.Analyzer()
    for variable in block.iter_vars:
        known.bind(variable.var, variable.dom)
    places = []
    for region in regions:
        place: Any = tirx.const(0, "int64")
        for size, part in zip(region.source.ty.shape, region.region, strict=True):
            if not isinstance(part.extent, tirx.IntImm) or int(part.extent) != 1:
                return False
            place = place * size + part.min
        places.append(place)
    return all(known.can_prove(tirx.EQ(places[0], place)) for place in places[1:])
