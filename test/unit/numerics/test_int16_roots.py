"""One over the square root of 16-bit codes: as exact as codes are, for all spans of operands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.numerics.int16_roots import root_tables, rsqrt16

POSITIVE = np.arange(1, 1 << 15, dtype=np.int16)


def exact(in_scale: float, out_scale: float) -> np.ndarray:
    reals = POSITIVE * np.float64(np.float32(in_scale))
    return np.minimum(np.floor(1 / np.sqrt(reals) / np.float64(np.float32(out_scale)) + 0.5), 32767)


@given(st.floats(-30, 30), st.floats(0, 30))
def test_results_are_off_by_one_code_at_most(largest: float, octaves: float) -> None:
    """Of operands up to ``2^largest``; those ``octaves`` smaller have the largest result."""
    in_scale, out_scale = 2.0**largest / 32767, 2.0 ** ((octaves - largest) / 2) / 32767
    found = rsqrt16(POSITIVE, root_tables(in_scale, out_scale)).astype(int)
    assert np.abs(found - exact(in_scale, out_scale)).max() <= 1
    assert (np.diff(found) <= 0).all()


@pytest.mark.parametrize("out_scale", [1e-9, 0.001, 1e9])
def test_from_zero_down_results_are_the_largest(out_scale: float) -> None:
    codes = np.array([-(1 << 15), -1, 0], np.int16)
    assert rsqrt16(codes, root_tables(0.01, out_scale)).tolist() == [32767] * 3


@pytest.mark.parametrize(("octaves", "pieces"), [(0, 1), (1.9, 1), (2.1, 2), (6.1, 4)])
def test_there_are_as_many_tables_as_results_need(octaves: float, pieces: int) -> None:
    assert len(root_tables(1 / 32767, 2.0 ** (octaves / 2) / 32767).tables) == pieces
