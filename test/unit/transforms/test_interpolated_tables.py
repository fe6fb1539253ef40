"""Tables of 513 entries are found in what host kernels give, down to the last entry."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir import ops
from odc_mlir.numerics.int16 import wide_table
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo
from odc_mlir.transforms.npu.lowering.code_functions import interpolated_table


def function(name: str, in_scale: float, out_scale: float) -> Node:
    x, y = (
        TensorInfo(label, "int16", (2, 3), QuantParams((scale,), (0,)))
        for label, scale in (("x", in_scale), ("y", out_scale))
    )
    return Node(ops.get(name), (x,), (y,), {}, "y")


@pytest.mark.parametrize(
    ("name", "real", "in_scale", "out_scale"),
    [("COS", np.cos, 2.0**-14, 2.0**-15), ("SIN", np.sin, 2.0**-14, 2.0**-15), ("EXP", np.exp, 2.0**-15, 2.0**-13)],
)
def test_the_entries_are_those_of_the_host(name: str, real: np.ufunc, in_scale: float, out_scale: float) -> None:
    found = interpolated_table(function(name, in_scale, out_scale), 0)
    limits = (-(2.0**15) * in_scale, (2.0**15 - 1) * in_scale, -(2.0**15) * out_scale, (2.0**15 - 1) * out_scale)
    expected = wide_table(real, *limits, np.float32)
    assert found is not None
    np.testing.assert_array_equal(found[:-1], expected[:-1])
    # several last entries give the same results; which one it is cannot be told
    assert abs(int(found[-1]) - int(expected[-1])) <= 1


@pytest.mark.parametrize("name", ["LEAKY_RELU", "SQRT"])
def test_other_functions_have_none(name: str) -> None:
    """A kink within a step, a function that is not defined everywhere."""
    node = function(name, 0.5, 0.3)
    node.options["alpha"] = 0.25
    assert interpolated_table(node, 0) is None
