"""Quantised mean against the scalar formula."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from odc_mlir.numerics import reduction

SCALE = st.floats(2.0**-8, 1.0, width=32)
CODE = st.integers(0, 255)


@given(st.lists(CODE, min_size=1, max_size=70), SCALE, CODE, SCALE, CODE)
def test_mean(values: list[int], in_scale: float, in_zero: int, out_scale: float, out_zero: int) -> None:
    q, e = reduction.mean_params(in_scale, out_scale, len(values))
    found = reduction.mean_codes(np.array(values, np.uint8), (0,), q, e, in_zero, out_zero, 0, 255, "uint8")
    assert found.item() == scalar.clamp(scalar.mean(values, in_scale, in_zero, out_scale, out_zero), 0, 255)


def test_axes_and_shape() -> None:
    x = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    q, e = reduction.mean_params(1.0, 1.0, 8)
    kept = reduction.mean_codes(x, (0, 2), q, e, 0, 0, -128, 127, "int8")
    assert kept.shape == (1, 3, 1)
    assert kept.ravel().tolist() == [8, 12, 16]  # 7.5, 11.5, 15.5
    dropped = reduction.mean_codes(
        x, (0, 1, 2), *reduction.mean_params(1.0, 1.0, 24), 0, 0, -128, 127, "int8", keep_dims=False
    )
    assert dropped.shape == ()
    assert dropped == 12


def test_sum() -> None:
    q, e = reduction.sum_params(0.5, 2.0)
    found = reduction.mean_codes(np.full((5, 2), 7, np.int8), (0,), q, e, 3, -1, -128, 127, "int8")
    assert found.tolist() == [[4, 4]]  # 5 * (7 - 3) * 0.25 - 1
