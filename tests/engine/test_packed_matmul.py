"""Tiles of products with packed weights, and the order that weights are put into."""

import numpy as np
import pytest

from relascope.engine.cpu_kernels import packed_matmul
from relascope.engine.cpu_kernels.packed_matmul import AVX2, AVX512, Registers

FEW = Registers(14)


@pytest.mark.parametrize(
    ("rows", "columns", "registers", "expected"),
    [
        (1024, 768, AVX2, (4, 24, 8)),  # nothing to fill up
        (14, 768, AVX2, (5, 16, 8)),  # 15 rows rather than 16
        (8, 64, AVX2, (4, 16, 8)),  # no panels of 24
        (2, 24, AVX2, (2, 24, 8)),
        (1024, 768, AVX512, (4, 48, 16)),
        (14, 768, AVX512, (7, 32, 16)),  # 14 rows rather than 16
        (14, 16, AVX512, (14, 16, 16)),
        (14, 24, AVX512, (4, 24, 8)),  # no panels of whole registers
        (1, 768, AVX2, None),  # a library does it better
        (14, 10, AVX2, None),
        (14, 1000 + 4, AVX2, None),
    ],
)
def test_tiles_fit_rows_columns_and_registers(rows, columns, registers, expected):
    assert packed_matmul.tile(rows, columns, registers) == expected


def test_an_llvm_that_spills_gets_smaller_tiles_and_few_rows():
    assert packed_matmul.tile(1024, 768, FEW) is None
    tile = packed_matmul.tile(16, 768, FEW)
    assert (tile.rows + 1) * tile.columns // packed_matmul.LANES < 14


@pytest.mark.parametrize(
    ("outer", "within"),
    [((15,), True), ((1, 14), True), ((3, 14), False), ((3, 15), True), ((2, 1, 7, 1), False)],
)
def test_a_tile_goes_over_no_edge(outer, within):
    assert packed_matmul.MatmulTile(5, 16).within(outer) == within


def test_panels_hold_the_weight_column_by_column_of_panels():
    weight = np.arange(3 * 32, dtype="float32").reshape(3, 32)
    panels = packed_matmul.panels(weight, packed_matmul.MatmulTile(5, 16))
    assert panels.shape == (2, 3, 16)
    assert panels.flags.c_contiguous
    for column in range(32):
        assert np.array_equal(panels[column // 16, :, column % 16], weight[:, column])
