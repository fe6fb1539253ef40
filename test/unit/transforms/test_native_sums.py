"""Sums of native kernels have 32 bits: what could exceed them stays on the host."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.nodes import node, tensor
from odc_mlir.errors import OdcError
from odc_mlir.numerics.fixed import Requantizer
from odc_mlir.transforms.native.lowering.arithmetic import check_sums

LIMIT = 2**31
NODE = node("RELU", [tensor("float32", (1,))], tensor("float32", (1,)))


@pytest.mark.parametrize(("bias", "fits"), [(LIMIT - 256, True), (LIMIT - 255, False), (-(LIMIT - 255), False)])
def test_sums_stay_below_the_limit(bias: int, fits: bool) -> None:
    """The largest code is 255, times a weight of 1."""
    tiny = Requantizer(1, -20, 0, -128, 127, "int8")
    given = (NODE, np.array([[1]], np.int8), np.array([bias], np.int64), tiny)
    if fits:
        check_sums(*given)
    else:
        with pytest.raises(OdcError, match="sums are too large for the native kernel, which has 32 bits"):
            check_sums(*given)


@pytest.mark.parametrize(("multiplier", "fits"), [(1 << 30, True), ((1 << 31) - 1, False)])
def test_rounding_stays_below_the_limit(multiplier: int, fits: bool) -> None:
    """Half of the last place is added before the shift by 30 bits."""
    finish = Requantizer(multiplier, -30, 0, -128, 127, "int8")
    given = (NODE, np.array([[1]], np.int8), np.array([LIMIT - 256], np.int64), finish)
    if fits:
        check_sums(*given)
    else:
        with pytest.raises(OdcError, match="sums are too large"):
            check_sums(*given)
