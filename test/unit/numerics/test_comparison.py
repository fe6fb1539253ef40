"""Thresholds against the comparison of scaled codes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from odc_mlir.numerics import comparison

SCALE = st.floats(1e-7, comparison.LARGEST_ORDERED, exclude_max=True)
ZERO = st.integers(-(1 << 15) + 1, (1 << 15) - 1)


@settings(max_examples=20, deadline=None)
@given(st.tuples(SCALE, ZERO), st.tuples(SCALE, ZERO), st.integers(0, 2**32 - 1))
def test_thresholds(one: tuple[float, int], other: tuple[float, int], seed: int) -> None:
    """Codes below the threshold of another code are those that are less once both are scaled."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-(1 << 15), 1 << 15, (2, 4000)).astype(np.int16)
    a[:2], b[:2] = (-(1 << 15), (1 << 15) - 1), ((1 << 15) - 1, -(1 << 15))
    params = [(zero, *comparison.compare_params(scale)) for scale, zero in (one, other)]
    left, right = (comparison.common_scale(codes, *param) for codes, param in zip((a, b), params, strict=True))
    for inclusive, expected in ((False, left < right), (True, left <= right)):
        table = comparison.threshold_table(params[0], params[1], inclusive=inclusive)
        np.testing.assert_array_equal(a < table[b.view(np.uint16)], expected)
