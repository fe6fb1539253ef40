"""Random networks of operators that share, move, join and compute values: always consistent, and near the reals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet, assign, quantised_results, run_pass
from odc_mlir.ops.spec import QuantKind
from odc_mlir.transforms.quant.common.ir import (
    REASON,
    all_ops,
    is_float32,
    operand_types,
    quantized_function,
    result_types,
)

Step = Callable[[FloatNet, SSAValue, SSAValue], SSAValue]
I32 = "int32"


def _conv(net: FloatNet, x: SSAValue, _: SSAValue) -> SSAValue:
    made: SSAValue = net.add(
        "CONV_2D",
        x,
        net.weights(4, 1, 1, 4, spread=0.5),
        net.weights(4, spread=0.1),
        stride_h=1,
        stride_w=1,
        fused_activation_function=str(net.rng.choice(["none", "relu", "relu6"])),
    )
    return made


def _unary(name: str, **options: float) -> Step:
    return lambda net, x, _: net.add(name, x, **options)


def _binary(name: str) -> Step:
    return lambda net, x, y: net.add(name, x, y)


def _joined_and_cut(net: FloatNet, x: SSAValue, y: SSAValue) -> SSAValue:
    both = net.add("CONCATENATION", x, y, axis=3)
    made: SSAValue = net.add("SLICE", both, net.const([0, 0, 0, 2], I32), net.const([1, 4, 4, 4], I32))
    return made


def _turned(net: FloatNet, x: SSAValue, _: SSAValue) -> SSAValue:
    flat = net.add("RESHAPE", x, net.const([1, 16, 4], I32))
    turned = net.add("TRANSPOSE", flat, net.const([0, 2, 1], I32))
    made: SSAValue = net.add("RESHAPE", turned, net.const([1, 4, 4, 4], I32))
    return made


def _padded(net: FloatNet, x: SSAValue, _: SSAValue) -> SSAValue:
    wide = net.add("PADV2", x, net.const([[0, 0], [1, 0], [0, 1], [0, 0]], I32), net.const([0.25]))
    made: SSAValue = net.add(
        "MAX_POOL_2D", wide, filter_height=2, filter_width=2, stride_h=1, stride_w=1, padding="valid"
    )
    return made


def _halves(net: FloatNet, x: SSAValue, _: SSAValue) -> SSAValue:
    first, second = net.add("SPLIT", net.const(3, I32), x, count=2, num_splits=2)
    made: SSAValue = net.add("CONCATENATION", second, net.add("TANH", first), axis=3)
    return made


STEPS: dict[str, Step] = {
    "conv": _conv,
    "relu": _unary("RELU"),
    "logistic": _unary("LOGISTIC"),
    "tanh": _unary("TANH"),
    "leaky": _unary("LEAKY_RELU", alpha=0.1),
    "square root of what may be negative": lambda net, x, _: net.add("SQRT", net.add("ABS", x)),
    "no kernel on codes": _unary("SQUARE"),
    "add": _binary("ADD"),
    "mul": _binary("MUL"),
    "maximum": _binary("MAXIMUM"),
    "joined and cut": _joined_and_cut,
    "turned": _turned,
    "padded": _padded,
    "halves": _halves,
}


def _network(seed: int, steps: list[str]) -> tuple[FloatNet, list[SSAValue]]:
    net = FloatNet(seed)
    values = [net.real(1, 4, 4, 4), net.real(1, 4, 4, 4, low=-0.2)]
    for step in steps:
        # mostly the latest value, sometimes an older one, so that values have several users
        x, y = (values[-1 - int(net.rng.geometric(0.6) - 1) % len(values)] for _ in range(2))
        values.append(STEPS[step](net, x, y))
    return net, [values[-1], *values[2:3]]


@pytest.mark.parametrize("scheme", ["uint8", "int8", "int16x8"])
@given(st.integers(0, 1000), st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=8))
def test_random_networks(scheme: str, seed: int, steps: list[str]) -> None:
    net, outputs = _network(seed, steps)
    names = [net.name(output) for output in outputs]
    module = assign(net.module(*outputs), scheme)
    function = quantized_function(module)
    assert function is not None
    for op in all_ops(function):
        needs, gives = operand_types(op), result_types(op)
        assert needs is not None
        assert gives is not None
        if op.SPEC.quant.kind is QuantKind.SAME and REASON not in op.attributes:
            moved = [need for operand, need in zip(op.operands, needs, strict=True) if is_float32(operand)]
            assert len({*moved, *gives}) == 1  # codes are moved as they are
    found = quantised_results(module, net.inputs)
    run_pass(module, "quant-verify-params")
    for name, array in zip(names, found, strict=True):
        spread = float(np.abs(net.values[name]).max())
        assert np.sqrt(np.mean((array - net.values[name]) ** 2)) <= 0.1 * spread + 1e-3
