"""Tiles of products with packed weights, and the order that weights are put into."""

import numpy as np
import pytest

from relascope.engine.cpu_kernels import packed_matmul
from relascope.engine.cpu_kernels.packed_matmul import AVX512, Registers

FEW = Registers(14)


@pytest.mark.parametrize(
    ("rows", "columns", "expected"),
    [
        (1024, 768, (4, 24)),  # nothing to fill up
        (14, 768, (5, 16)),  # 15 rows rather than 16
        (8, 64, (4, 16)),  # no panels of 24
        (2, 24, (2, 24)),
    ],
)
def test_tiles_fit_rows_and_columns(rows, columns, expected):
    tile = packed_matmul.tile(rows, columns)
    assert (tile.rows, tile.columns) == expected


@pytest.mark.parametrize(
    ("rows", "columns", "expected"),
    [
        (1024, 768, (4, 48, 16)),
        (14, 768, (7, 32, 16)),  # 14 rows rather than 16
        (14, 16, (14, 16, 16)),
        (14, 24, (4, 24, 8)),  # no panels of whole registers
    ],
)
def test_wide_registers_hold_tiles_of_their_own(rows, columns, expected):
    assert packed_matmul.tile(rows, columns, AVX512) == expected


@pytest.mark.parametrize(("rows", "columns"), [(1, 768), (14, 10), (14, 1000 + 4)])
def test_what_a_library_does_better_is_left_to_it(rows, columns):
    assert packed_matmul.tile(rows, columns) is None


def test_an_llvm_that_spills_gets_smaller_tiles_and_few_rows():
    assert packed_matmul.tile(1024, 768, FEW) is None
    tile = packed_matmul.tile(16, 768, FEW)
    assert (tile.rows + 1) * tile.columns // packed_matmul.LANES < 14


@pytest.mark.parametrize(
    ("rows", "columns", "inner", "expected"),
    [
        (14, 768, 768, (3, 3)),
        (14, 64, 24, (5, 2)),  # no tiles of three
        (14, 12, 20, None),  # an inner extent that is no whole vectors
        (14, 10, 24, None),
        (1, 768, 768, None),
        (1024, 768, 768, None),  # packing pays for a library
    ],
)
def test_a_weight_that_is_an_argument_is_read_row_by_row_for_few_rows(
    rows, columns, inner, expected
):
    tile = packed_matmul.row_tile(rows, columns, inner)
    assert (tile and (tile.rows, tile.columns)) == expected


def test_rows_of_a_weight_fill_wide_registers():
    assert packed_matmul.row_tile(14, 768, 768, AVX512) == (7, 2, 16)
    assert packed_matmul.row_tile(16, 768, 768, AVX512) == (4, 3, 16)
    assert packed_matmul.row_tile(14, 768, 24, AVX512) == (3, 3, 8)
    assert packed_matmul.row_tile(14, 768, 20, AVX512) is None


def test_outer_products_are_for_few_rows():
    assert packed_matmul.outer_tile(768, 3072, 14, AVX512) == (4, 48, 16)
    assert packed_matmul.outer_tile(768, 24, 14, AVX512) == (4, 24, 8)
    assert packed_matmul.outer_tile(768, 3072, 14) == packed_matmul.MatmulTile(4, 24)
    assert packed_matmul.outer_tile(768, 64, 14) == packed_matmul.MatmulTile(4, 16)
    assert packed_matmul.outer_tile(768, 3072, 14, FEW) == packed_matmul.MatmulTile(4, 16)
    for rows, columns, inner in ((768, 3072, 1024), (6, 48, 14), (8, 10, 14)):
        assert packed_matmul.outer_tile(rows, columns, inner) is None


def test_strips_of_a_weight_are_whole():
    assert packed_matmul.strip(14, 768) == 128
    assert packed_matmul.strip(14, 96) == 96
    assert packed_matmul.strip(14, 100) is None
    assert packed_matmul.strip(1024, 768) is None


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
