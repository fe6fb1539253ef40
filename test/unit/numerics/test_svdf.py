"""SVDF on codes against scalar code."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import scalar
from odc_mlir.numerics.matmul import integer_matrix
from odc_mlir.numerics.svdf import feature_codes, result_codes, svdf_params

SCALES = (0.02, 0.01, 4e-4, 2.0**-15, 0.05)
RNG = np.random.default_rng(0)


def test_feature_codes() -> None:
    params = svdf_params(SCALES, -7, 3)
    x, weights = RNG.integers(-128, 128, (3, 200)), RNG.integers(-128, 128, (4, 200)).astype(np.int8)
    found = feature_codes(x.astype(np.int8), integer_matrix(weights.T, 256), params)
    exact = [float(np.float32(s)) for s in SCALES]
    factor = scalar.quantize_multiplier(exact[0] * exact[1] / exact[2])
    for row, codes in zip(found.tolist(), x.tolist(), strict=True):
        for value, column in zip(row, weights.tolist(), strict=True):
            total = sum((v + 7) * w for v, w in zip(codes, column, strict=True))
            assert value == scalar.clamp(scalar.multiply(total, *factor), -32768, 32767)
    assert np.abs(found.astype(int)).max() > 10_000  # the test reaches into the memory's range


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_result_codes(rank: int, biased: bool) -> None:
    params = svdf_params(SCALES, 0, 3)
    memory = RNG.integers(-32768, 32768, (2, 6, 5)).astype(np.int16)
    time = RNG.integers(-9000, 9000, (6, 5)).astype(np.int16)
    bias = RNG.integers(-(2**20), 2**20, 6 // rank).astype(np.int32) if biased else None
    found = result_codes(memory, time, bias, rank, params)
    exact = [float(np.float32(s)) for s in SCALES]
    factor = scalar.quantize_multiplier(exact[2] * exact[3] / exact[4])
    assert found.dtype == np.int8
    for batch, unit in np.ndindex(found.shape):
        total = 0 if bias is None else int(bias[unit])
        for row in range(unit * rank, unit * rank + rank):
            total += sum(int(a) * int(b) for a, b in zip(memory[batch, row], time[row], strict=True))
        assert found[batch, unit] == scalar.clamp(scalar.multiply(scalar.wrap(total), *factor) + 3, -128, 127)
