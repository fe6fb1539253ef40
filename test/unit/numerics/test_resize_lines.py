"""Positions with a constant step give what resizing is defined to give, or there are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.numerics.resize import (
    Lines,
    bilinear_lines,
    nearest,
    nearest_line,
    nearest_positions,
    nearest_resizer,
    resize_bilinear,
    resize_bilinear_by_lines,
    resize_nearest_by_lines,
)

SIZE, FLAG = st.integers(1, 24), st.booleans()


@given(SIZE, SIZE, SIZE, SIZE, FLAG, FLAG, st.sampled_from(["int8", "uint8", "int16"]))
def test_images(height: int, width: int, rows: int, columns: int, align: bool, half: bool, dtype: str) -> None:
    rng, range_ = np.random.default_rng(height * width), np.iinfo(dtype)
    x = rng.integers(range_.min, range_.max + 1, (3, height, width, 3)).astype(dtype)
    x[0] = rng.choice([range_.min, range_.max], x[0].shape)
    lines = bilinear_lines((height, width), (rows, columns), dtype, align, half)
    assert lines is not None or dtype != "int8"
    if lines is not None:
        expected = resize_bilinear(x, (rows, columns), align, half)
        np.testing.assert_array_equal(resize_bilinear_by_lines(x, (rows, columns), lines), expected)
    down, across = nearest_line(height, rows, align, half), nearest_line(width, columns, align, half)
    assert down is not None
    assert across is not None
    expected = nearest_resizer(x.shape, (rows, columns), align, half)(x)
    np.testing.assert_array_equal(resize_nearest_by_lines(x, (rows, columns), Lines(down, across)), expected)


@given(st.integers(1, 700), st.integers(1, 1400), FLAG, FLAG)
def test_nearest_positions(size: int, output: int, align: bool, half: bool) -> None:
    line = nearest_line(size, output, align, half)
    if line is not None:
        np.testing.assert_array_equal(nearest(line, output, size), nearest_positions(size, output, align, half))


@pytest.mark.parametrize(
    ("size", "output", "align", "half", "exact"),
    [
        (4, 8, False, True, {"uint8", "int16"}),
        (8, 32, False, False, {"uint8", "int16"}),
        (65, 513, True, False, {"uint8", "int16"}),
        (5, 17, True, True, {"uint8", "int16"}),
        (4, 9, False, True, set()),
        (4, 512, False, True, {"int16"}),  # products of more bits than float32 has
        (4, 4096, False, True, set()),
        (1, 60, False, True, {"int16"}),  # one pixel is itself at any position
    ],
)
def test_where_lines_are_exact(size: int, output: int, align: bool, half: bool, exact: set[str]) -> None:
    types = ("uint8", "int16")
    assert {dtype for dtype in types if bilinear_lines((size,) * 2, (output,) * 2, dtype, align, half)} == exact


def test_positions_that_rounding_moves_have_no_line() -> None:
    assert nearest_line(84, 576, False, False) is None
