"""Microscaling types: rounding to their values, and operators that run only when a reading is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.models import ModelBuilder
from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.circle.model import Model, Quantization
from odc_mlir.numerics.casts import round_to_blocks
from odc_mlir.ops.context import Context
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph


def test_four_bit_values() -> None:
    x = [0, 0.25, 0.5, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.26, 7.9]
    expected = [0, 0, 0.5, 1, 1, 2, 2, 4, 4, 6, -0.5, 6]
    np.testing.assert_array_equal(round_to_blocks(np.array(x), "mxfp4", 0), expected)


def test_eight_bit_values() -> None:
    x = np.array([1.0, 1 / 128, 3 / 128, -1.999, 1.999])
    np.testing.assert_array_equal(round_to_blocks(x, "mxint8", 0), [1, 0, 2 / 64, -2, 127 / 64])


def test_blocks_have_scales_of_their_own() -> None:
    x = np.ones((40, 2))
    x[:32] *= 1024
    for axis, moved in ((0, x), (1, x.T.copy())):
        np.testing.assert_array_equal(round_to_blocks(moved, "mxfp4", axis), moved)
    x[0, 0] = 6144
    assert round_to_blocks(x, "mxfp4", 0)[1, 0] == 1024
    assert round_to_blocks(x * [[1], *[[1e-6]] * 39], "mxfp4", 0)[1, 0] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_block_with_a_number_that_is_not_finite(bad: float) -> None:
    x = np.ones(64)
    x[3] = bad
    found = round_to_blocks(x, "mxint8", 0)
    assert np.isnan(found[:32]).all()
    np.testing.assert_array_equal(found[32:], 1)


def _product() -> Model:
    builder = ModelBuilder()
    names = [("a", "float32"), ("qa", "mxint8"), ("b", "float32"), ("qb", "mxint8"), ("qy", "mxint8"), ("y", "float32")]
    a, qa, b, qb, qy, y = (builder.tensor(name, (2, 2), dtype) for name, dtype in names)
    for index, axis in ((qa, -1), (qb, -2), (qy, -1)):
        builder.subgraph.tensors[index].quantization = Quantization(details=("MXQuantization", {"axis": axis}))
    builder.operator("QUANTIZE", [a], [qa])
    builder.operator("QUANTIZE", [b], [qb])
    builder.operator("BATCH_MATMUL", [qa, qb], [qy])
    builder.operator("DEQUANTIZE", [qy], [y])
    return builder.finish([a, b], [y])


def test_operators_need_a_reading() -> None:
    a, b = np.array([[1, 0.5], [0.25, 1]], np.float32), np.array([[1, 0], [0.5, 1]], np.float32)
    with pytest.raises(UnsupportedError, match=r"mxfp4, mxint8.*is not published|is not published"):
        HostExecutor(build_graph(_product())).run([a, b])
    (y,) = HostExecutor(build_graph(_product()), context=Context(microscaling=True)).run([a, b])
    np.testing.assert_array_equal(y, a @ b)
