"""Sums of interpolated tables: as exact as codes are, for all spans of operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odc_mlir.numerics import special
from odc_mlir.numerics.int16 import real_codes16, real_table16
from odc_mlir.numerics.int16_sums import table_sum

CODES = np.arange(-(1 << 15), 1 << 15, dtype=np.int16)
POSITIVE = CODES[CODES > 0]
Function = Callable[[Any], Any]


def root(v: Any) -> Any:
    return np.float32(1) / np.sqrt(np.maximum(v, 0))


def square_root(v: Any) -> Any:
    return np.sqrt(np.maximum(v, 0))


def off(function: Function, in_scale: float, out_scale: float) -> int:
    """By how many codes the sum of tables is off at most."""
    tables = table_sum(function, in_scale, out_scale)
    assert tables is not None
    exact = real_codes16(function, (in_scale, 0), (out_scale, 0))(CODES)
    return int(np.abs(tables(CODES).astype(int) - exact).max())


@given(st.floats(-30, 30), st.floats(0, 30))
@settings(max_examples=30)
def test_one_over_the_root_is_off_by_two_codes_at_most(largest: float, octaves: float) -> None:
    """Of operands up to ``2^largest``; those ``octaves`` smaller have the largest result."""
    in_scale, out_scale = 2.0**largest / 32767, 2.0 ** ((octaves - largest) / 2) / 32767
    assert off(root, in_scale, out_scale) <= 2
    tables = table_sum(root, in_scale, out_scale)
    assert tables is not None
    assert (np.diff(tables(POSITIVE).astype(int)) <= 0).all()
    assert tables(np.array([-(1 << 15), -1, 0], np.int16)).tolist() == [32767] * 3


@given(st.floats(-30, 30), st.floats(-1, 1))
@settings(max_examples=30)
def test_the_root_is_off_by_two_codes_at_most(largest: float, octaves: float) -> None:
    """Results are cut off, or fill a part of the codes."""
    in_scale, out_scale = 2.0**largest / 32767, 2.0 ** (largest / 2 + octaves) / 32767
    assert off(square_root, in_scale, out_scale) <= 2
    tables = table_sum(square_root, in_scale, out_scale)
    assert tables is not None
    assert tables(np.array([-(1 << 15), -1, 0], np.int16)).tolist() == [0] * 3


@pytest.mark.parametrize("reach", [4.0, 40.0, 4000.0])
@pytest.mark.parametrize("room", [0.55, 0.75, 0.9, 1.0, 1.5])
@pytest.mark.parametrize("function", [special.gelu_exact, special.elu], ids=["GELU", "ELU"])
def test_results_that_are_cut_off_have_a_corner(function: Function, room: float, reach: float) -> None:
    """Operands up to ``reach``, results to ``room`` times that: one table cuts the corner where that is below 1."""
    assert off(function, reach / 32767, room * reach / 32767) <= 3


def test_one_table_is_not_near_a_corner() -> None:
    in_scale, out_scale = 0.00020428135758265853, 0.00015512957179453224
    assert real_table16(special.gelu_exact, in_scale, out_scale) is None
    tables = table_sum(special.gelu_exact, in_scale, out_scale)
    assert tables is not None
    assert len(tables.tables) == 1
    assert tables.base


@given(
    st.sampled_from([root, square_root, np.log, np.exp, np.tanh, special.elu, special.gelu_exact]),
    st.floats(-20, 12),
    st.floats(-40, 20),
)
@settings(max_examples=60)
def test_no_slope_has_more_than_16_bits(function: Function, in_octaves: float, out_octaves: float) -> None:
    """What an NPU cuts off would be another number than the host's."""
    tables = table_sum(function, 2.0**in_octaves / 32767, 2.0**out_octaves / 32767)
    for table in () if tables is None else tables.tables:
        assert np.abs(np.diff(table.astype(int))).max() <= 32767


def test_what_no_tables_are_near_has_none() -> None:
    """Waves of twenty codes."""
    assert table_sum(np.sin, 0.3, 1 / 32767) is None


@pytest.mark.parametrize(("octaves", "most"), [(0, 1), (4.1, 3), (30, 5)])
def test_there_are_no_more_tables_than_results_need(octaves: float, most: int) -> None:
    tables = table_sum(root, 1 / 32767, 2.0 ** (octaves / 2) / 32767)
    assert tables is not None
    assert len(tables.tables) <= most
