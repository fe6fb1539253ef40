"""Random networks before and after level O1: results stay."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import SSAValue

import odc_mlir
from helpers import rewrite_parts as parts
from helpers.float_nets import FloatNet

FEW, MANY = 12, 20_000
UNARY = ("RELU", "RELU6", "NEG", "ABS", "TANH", "LOGISTIC", "HARD_SWISH")
BINARY = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")


def _next(n: FloatNet, values: list[SSAValue]) -> SSAValue:
    """One more operator on an image ``[1, H, W, C]`` or on what stands for one channels first."""
    x = values[-1 - int(n.rng.integers(0, min(3, len(values))))]
    shape = n.array(x).shape
    pick = int(n.rng.integers(0, 11))
    if pick == 0:
        return parts.conv(n, x, outputs=int(n.rng.integers(1, 4)))
    if pick == 1:
        return parts.depthwise(n, x)
    if pick in (2, 3):
        operator = BINARY[int(n.rng.integers(0, len(BINARY)))]
        made: SSAValue = n.add(operator, x, n.weights(*((shape[-1],) if pick == 2 else (1, shape[1], 1, 1))))
        return made
    if pick == 4:
        order = [(0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3)][int(n.rng.integers(0, 3))]
        return parts.transpose(n, x, *order)
    if pick == 5:
        return parts.reshape(n, x, shape[0], shape[2], shape[1], shape[3])
    if pick == 6:
        same = [value for value in values if n.array(value).shape == shape]
        other = same[int(n.rng.integers(0, len(same)))]
        made = n.add(("ADD", "MUL")[int(n.rng.integers(0, 2))], x, other)
        return made
    if pick == 7:
        return parts.centred(n, x, *((1, 2), (3,), (1, 3))[int(n.rng.integers(0, 3))], epsilon=0.1)
    if pick == 8:
        made = n.add("PAD", x, n.const([[0, 0], [0, 1], [1, 0], [0, 0]], "int32"))
        return made
    if pick == 9:
        # Of what has been normalised the mean is nothing but rounding.
        return parts.mean(n, parts.relu(n, x), int(n.rng.integers(1, 4)), keep=True)
    made = n.add(UNARY[int(n.rng.integers(0, len(UNARY)))], x)
    return made


def _check(seed: int) -> None:
    n = FloatNet(seed)
    values = [parts.image(n)]
    for _ in range(int(n.rng.integers(3, 14))):
        values.append(_next(n, values))
    outputs = list(dict.fromkeys([values[-1], values[len(values) // 2]]))
    module = n.module(*outputs)
    for layout in ("keep", "nhwc")[: 1 + seed % 2]:
        found = odc_mlir.optimize(module, io_layout=layout, verify=True).difference
        assert found is not None
        assert np.isfinite(found.relative)
        assert found.relative <= 1e-4, (seed, layout, found)


@pytest.mark.parametrize("seed", range(FEW))
def test_a_few_networks(seed: int) -> None:
    _check(seed)


def test_an_interface_is_turned_once() -> None:
    n = FloatNet(1)
    turned = parts.transpose(n, parts.transpose(n, parts.image(n), 0, 2, 3, 1), 0, 2, 3, 1)
    found = odc_mlir.optimize(n.module(turned), io_layout="nhwc", verify=True).difference
    assert found is not None
    assert found.is_none


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_networks() -> None:
    for seed in range(FEW, MANY):
        _check(seed)
