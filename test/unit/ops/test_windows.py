"""Shapes and refusals of convolutions, pools and fully connected layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.nodes import const, infer, node, quant, tensor
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.ops.infer.common import axis_window, transposed_pad
from odc_mlir.ops.spec import Shape

STEP = {"stride_h": 1, "stride_w": 1}
FILTER = const(np.zeros((4, 3, 3, 2)), "float32")


def conv(x: Shape | None, weights: Any = FILTER, **options: Any) -> Shape | None:
    return infer("CONV_2D", [tensor("float32", x), weights, None], **{**STEP, **options})


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 5), st.integers(1, 3), st.sampled_from(["same", "valid"]))
def test_window_covers_the_input(size: int, kernel: int, stride: int, dilation: int, padding: str) -> None:
    """Exactly the windows that fit into the padded input; the padding after is at most one more than before."""
    extent = (kernel - 1) * dilation + 1
    made = node("CONV_2D", [tensor("float32", None), FILTER], tensor("float32", None), **STEP)
    if padding == "valid" and extent > size:
        with pytest.raises(ModelError, match=f"the window's height is {extent}, the input's {size}"):
            axis_window(made, "height", size, kernel, stride, dilation, padding)
        return
    axis = axis_window(made, "height", size, kernel, stride, dilation, padding)
    padded = size + axis.before + axis.after
    assert 0 <= axis.after - axis.before <= 1
    if padding == "same":
        assert axis.output == len(range(0, size, stride))
        assert axis.before < extent
    else:
        assert axis.before == axis.after == 0
    assert axis.output is not None
    last = (axis.output - 1) * stride + extent
    assert last <= padded < last + stride


@pytest.mark.parametrize(
    ("x", "options", "expected"),
    [
        ((1, 8, 9, 2), {}, (1, 8, 9, 4)),
        ((1, 8, 9, 2), {"padding": "valid"}, (1, 6, 7, 4)),
        ((5, 8, 9, 2), {"stride_h": 2, "stride_w": 3}, (5, 4, 3, 4)),
        ((1, 8, 9, 2), {"padding": "valid", "dilation_h_factor": 3}, (1, 2, 7, 4)),
        ((None, 8, None, 2), {}, (None, 8, None, 4)),
        (None, {}, (None, None, None, 4)),
        ((1, 8, 9, 6), {}, None),
        ((0, 8, 9, 2), {}, (0, 8, 9, 4)),
    ],
)
def test_conv_2d(x: Shape | None, options: dict[str, Any], expected: Shape | None) -> None:
    if expected is None:
        with pytest.raises(ModelError, match="4 result channels cannot be divided into 3 groups"):
            conv(x, **options)
    else:
        assert conv(x, **options) == expected


def test_conv_2d_with_computed_filter() -> None:
    assert conv((1, 8, 9, 2), tensor("float32", (7, 3, 3, 2)), padding="valid") == (1, 6, 7, 7)
    assert conv((1, 8, 9, 2), tensor("float32", None)) == (1, 8, 9, None)
    assert conv((1, 8, 9, 2), tensor("float32", None), padding="valid") == (1, None, None, None)
    assert conv((1, 8, 8, 4), const(np.zeros((4, 1, 1, 2)), "float32")) == (1, 8, 8, 4)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        ((1, 8, 9, 2), {"stride_h": 0}, "stride_h is 0; it must be from 1"),
        ((1, 8, 9, 2), {"stride_w": -1}, "stride_w is -1"),
        ((1, 8, 9, 2), {"dilation_w_factor": 0}, "dilation_w_factor is 0"),
        ((1, 8, 9, 2), {"padding": "full"}, "padding is 'full'; allowed are same, valid"),
        ((1, 2, 9, 2), {"padding": "valid"}, "the window's height is 3, the input's 2"),
        ((1, 8, 9, 3), {}, "the input has 3 channels, the filter .* reads 2"),
        ((1, 8, 9, 0), {}, "the input has 0 channels"),
        ((1, 8, 9), {}, "its rank must be 4"),
        ((1, -8, 9, 2), {}, "sizes must not be negative"),
        ((1 << 20, 1 << 10, 1 << 10, 2), {}, "at most 2147483648 are supported"),
    ],
)
def test_conv_2d_refuses(x: Shape, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        conv(x, **options)


@pytest.mark.parametrize("shape", [(0, 1, 1, 2), (4, 0, 3, 2), (4, 3, 3, 0), (4, 3, 3)])
def test_conv_2d_refuses_filters(shape: tuple[int, ...]) -> None:
    weights = const(np.zeros(shape), "float32")
    if shape == (0, 1, 1, 2):
        assert conv((1, 8, 8, 2), weights) == (1, 8, 8, 0)
        return
    with pytest.raises(ModelError):
        conv((1, 8, 8, 2), weights)


@pytest.mark.parametrize(
    ("x", "weights", "bias", "message"),
    [
        ("float32", "float32", "int32", "a bias of int32 does not go with an input of float32"),
        ("int8", "int16", None, "weights of int16 do not go with an input of int8; supported are int8, uint8"),
        ("int8", "int8", "float32", "a bias of float32 does not go"),
        ("uint8", "float32", None, "weights of float32 do not go with an input of uint8"),
        ("float64", "float64", None, "an input of float64 is not supported"),
    ],
)
@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_types_that_do_not_go_together(name: str, x: str, weights: str, bias: str | None, message: str) -> None:
    """They can be read and written, not run."""
    shape = {"CONV_2D": (4, 1, 1, 4), "DEPTHWISE_CONV_2D": (1, 1, 1, 4)}.get(name, (4, 4))
    params = None if x.startswith("float") else quant(1.0)
    operands = [tensor(x, (1, 4, 4, 4), params), const(np.zeros(shape), weights, params)]
    operands += [const(np.zeros(4), bias)] if bias else []
    made = node(name, operands, tensor(x, None, params), **(STEP if len(shape) == 4 else {}))
    made.spec.verify_function(made)  # type: ignore[misc]
    with pytest.raises(UnsupportedError, match=message):
        made.spec.kernel_function(made)


def test_bias_of_another_size() -> None:
    operands = [tensor("float32", (1, 4, 4, 2)), FILTER, const(np.zeros(3), "float32")]
    made = node("CONV_2D", operands, tensor("float32", None), **STEP)
    with pytest.raises(ModelError, match=r"the bias has the shape \[3\]; it must have 4 elements"):
        made.spec.verify_function(made)  # type: ignore[misc]


def test_result_type_differs() -> None:
    made = node(
        "CONV_2D", [tensor("int8", (1, 8, 8, 2)), const(np.zeros((1, 1, 1, 2)), "int8")], tensor("uint8", None), **STEP
    )
    with pytest.raises(ModelError, match="the operand is int8, the result uint8"):
        made.spec.verify_function(made)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("x", "weights", "expected"),
    [
        ((1, 8, 8, 2), (1, 3, 3, 6), (1, 8, 8, 6)),
        ((None, 8, 8, None), (1, 3, 3, 6), (None, 8, 8, 6)),
        ((1, 8, 8, 4), (1, 3, 3, 6), "the filter has 6 channels, the input 4"),
        ((1, 8, 8, 0), (1, 3, 3, 6), "the filter has 6 channels, the input 0"),
        ((1, 8, 8, 3), (2, 3, 3, 6), "its first dimension must be 1"),
        ((1, 8, 8, 3), (1, 0, 3, 6), "the filter's height is 0"),
    ],
)
def test_depthwise(x: Shape, weights: tuple[int, ...], expected: Shape | str) -> None:
    operands = [tensor("float32", x), const(np.zeros(weights), "float32")]
    if isinstance(expected, str):
        with pytest.raises(ModelError, match=expected):
            infer("DEPTHWISE_CONV_2D", operands, **STEP)
    else:
        assert infer("DEPTHWISE_CONV_2D", operands, **STEP) == expected


@pytest.mark.parametrize(
    ("wanted", "x", "expected"),
    [
        ([1, 8, 8, 4], (1, 4, 4, 2), (1, 8, 8, 4)),
        ([1, 8, 8, 4], (3, 4, 4, 2), (3, 8, 8, 4)),
        ([1, 8, 8, 4], None, (None, 8, 8, 4)),
        ([1, 8, 8, 5], (1, 4, 4, 2), "4 and 5 must be equal"),
        ([1, 0, 8, 4], (1, 4, 4, 2), "sizes must be positive"),
        ([8, 8], (1, 4, 4, 2), "has 2 entries; it must have 4"),
        ([1, 1 << 30, 1 << 30, 4], (1, 4, 4, 2), "are supported"),
        ([1, 8, 8, 4], (1, 4, 4, 3), "channels of input and filter: 3 and 2"),
    ],
)
def test_transpose_conv(wanted: list[int], x: Shape | None, expected: Shape | str) -> None:
    operands = [const(wanted), FILTER, tensor("float32", x)]
    if isinstance(expected, str):
        with pytest.raises(ModelError, match=expected):
            infer("TRANSPOSE_CONV", operands, "float32", **STEP)
    else:
        made = node("TRANSPOSE_CONV", operands, tensor("float32", None), **STEP)
        assert made.spec.infer_function(made)[0] == ("float32", expected)


def test_transposed_padding() -> None:
    assert transposed_pad(4, 3, 2, "same", 8) == 0
    assert transposed_pad(4, 4, 2, "same", 8) == 1
    assert transposed_pad(4, 4, 2, "valid", 8) == 0


@pytest.mark.parametrize(
    ("x", "keep", "expected"),
    [
        ((2, 6), False, (2, 4)),
        ((2, 3, 4), False, (4, 4)),
        ((2, 3, 6), True, (2, 3, 4)),
        ((None, 6), False, (None, 4)),
        ((None, 6), True, (None, 4)),
        (None, False, (None, 4)),
        (None, True, None),
        ((2, 5), False, "10 input elements cannot be divided into rows of 6"),
        ((6, 5), True, "last dimension of the input and columns of the weights: 5 and 6"),
    ],
)
def test_fully_connected(x: Shape | None, keep: bool, expected: Shape | str | None) -> None:
    operands = [tensor("float32", x), const(np.zeros((4, 6)), "float32")]
    if isinstance(expected, str):
        with pytest.raises(ModelError, match=expected):
            infer("FULLY_CONNECTED", operands, keep_num_dims=keep)
    else:
        assert infer("FULLY_CONNECTED", operands, keep_num_dims=keep) == expected


def test_fully_connected_without_columns() -> None:
    with pytest.raises(ModelError, match="the weights have no columns"):
        infer("FULLY_CONNECTED", [tensor("float32", (0,)), const(np.zeros((4, 0)), "float32")])


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize(
    ("x", "options", "expected"),
    [
        ((1, 8, 8, 3), {"filter_height": 2, "filter_width": 3}, (1, 8, 8, 3)),
        ((1, 8, 8, 3), {"filter_height": 2, "filter_width": 3, "padding": "valid"}, (1, 7, 6, 3)),
        ((None, 8, 8, None), {"filter_height": 2, "filter_width": 2, "stride_h": 2}, (None, 4, 8, None)),
        (None, {"filter_height": 2, "filter_width": 2}, (None,) * 4),
        ((1, 8, 8, 3), {"filter_height": 0, "filter_width": 2}, "filter_height is 0"),
        ((1, 8, 8, 3), {"filter_height": 9, "filter_width": 2, "padding": "valid"}, "height is 9, the input's 8"),
        ((1, 8, 3), {"filter_height": 2, "filter_width": 2}, "its rank must be 4"),
        ((1, 8, 8, 3), {"filter_height": 2, "filter_width": 2, "stride_w": 0}, "stride_w is 0"),
    ],
)
def test_pool(name: str, x: Shape | None, options: dict[str, Any], expected: Shape | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(ModelError, match=expected):
            infer(name, [tensor("int8", x)], **{**STEP, **options})
    else:
        assert infer(name, [tensor("int8", x)], **{**STEP, **options}) == expected


def test_missing_options() -> None:
    made = node("MAX_POOL_2D", [tensor("int8", (1, 4, 4, 1), quant(1.0))], tensor("int8", None))
    made.options = {}
    with pytest.raises(ModelError, match="the option stride_h is missing; the operator has no Pool2DOptions"):
        made.spec.infer_function(made)
