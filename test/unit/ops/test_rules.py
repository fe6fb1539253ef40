"""Rules shared by many operators: broadcasting, axes, reductions, limits, element types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from helpers.nodes import const, infer, node, tensor
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import Shape


@given(mutually_broadcastable_shapes(num_shapes=2), st.data())
def test_broadcast_like_numpy(shapes: Any, data: st.DataObject) -> None:
    a, b = shapes.input_shapes
    assert infer("ADD", [tensor("float32", a), tensor("float32", b)]) == shapes.result_shape
    hidden = tuple(None if data.draw(st.booleans()) else d for d in a)
    found = infer("ADD", [tensor("float32", hidden), tensor("float32", b)])
    assert found is not None
    assert all(i is None or i == f for i, f in zip(found, shapes.result_shape, strict=True))


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "DIV"])
def test_shapes_that_differ(name: str) -> None:
    with pytest.raises(ModelError, match=r"shapes \[2, 3\] and \[4, 3\] cannot be broadcast: 2 and 4 differ"):
        infer(name, [tensor("float32", (2, 3)), tensor("float32", (4, 3))])


def test_unknown_rank() -> None:
    assert infer("ADD", [tensor("float32", None), tensor("float32", (2,))]) is None
    assert infer("RELU", [tensor("float32", None)]) is None


def test_broadcast_to_too_much() -> None:
    with pytest.raises(ModelError, match="at most 2147483648 are supported"):
        infer("ADD", [tensor("float32", (1 << 20, 1)), tensor("float32", (1, 1 << 20))])


def test_limit_on_elements() -> None:
    made = node("RELU", [tensor("float32", (1,))], tensor("float32", None))
    common.check_elements(made, (1 << 29,), "float32")
    common.check_elements(made, (None, 1 << 29), "float32")
    with pytest.raises(ModelError):
        common.check_elements(made, ((1 << 29) + 1,), "float32")


def test_rank_limit() -> None:
    assert infer("RELU", [tensor("float32", (1,) * 32)]) == (1,) * 32
    with pytest.raises(ModelError, match="rank 33; at most 32"):
        infer("RELU", [tensor("float32", (1,) * 33)])


@pytest.mark.parametrize(
    ("x", "axes", "keep", "expected"),
    [
        ((2, 3, 4), [1], False, (2, 4)),
        ((2, 3, 4), [-1, 0], True, (1, 3, 1)),
        ((2, 3, 4), [1, 1, -2], False, (2, 4)),
        ((2, None, 4), [0], False, (None, 4)),
        ((2, 3), [], False, (2, 3)),
        ((), [0], False, ()),
        (None, [0], True, None),
        ((2, 3), [2], False, "axis 2 is out of range for rank 2; allowed are -2 to 1"),
        ((2, 3), [-3], False, "axis -3 is out of range"),
    ],
)
def test_reduce(x: Shape | None, axes: list[int], keep: bool, expected: Shape | str | None) -> None:
    operands = [tensor("float32", x), const(axes)]
    if isinstance(expected, str):
        with pytest.raises(ModelError, match=expected):
            infer("MEAN", operands, keep_dims=keep)
    else:
        assert infer("MEAN", operands, keep_dims=keep) == expected


def test_reduce_over_computed_axes() -> None:
    operands = [tensor("float32", (2, 3)), tensor("int32", (1,))]
    assert infer("MEAN", operands, keep_dims=True) == (None, None)
    assert infer("MEAN", operands, keep_dims=False) is None


@pytest.mark.parametrize(("dtype", "shape"), [("float32", (1,)), ("int32", (1, 1))])
def test_axes_must_be_a_vector_of_integers(dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=r"must hold integers|its rank must be 0 or 1"):
        infer("MEAN", [tensor("float32", (2,)), const(np.zeros(shape), dtype)])


def test_long_lists_are_refused() -> None:
    with pytest.raises(ModelError, match="has 65537 entries"):
        infer("MEAN", [tensor("float32", (2,)), const(np.zeros(65537))])


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "DIV", "PACK", "CONCATENATION"])
def test_operands_of_two_types(name: str) -> None:
    made = node(name, [tensor("int8", (2,)), tensor("uint8", (2,))], tensor("int8", None), values_count=2)
    with pytest.raises(ModelError, match=r"operand 1 .* is uint8, the result int8; they must be equal"):
        made.spec.verify_function(made)  # type: ignore[misc]


@pytest.mark.parametrize(
    "name", ["RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "LOGISTIC", "TANH", "MAX_POOL_2D", "MEAN"]
)
def test_result_of_another_type(name: str) -> None:
    operands = [tensor("int8", (1, 2, 2, 1))] + ([const([0])] if name == "MEAN" else [])
    made = node(name, operands, tensor("float32", None))
    with pytest.raises(ModelError, match="the operand is int8, the result float32"):
        made.spec.verify_function(made)  # type: ignore[misc]


def test_softmax_types() -> None:
    for first, last, good in (
        ("int8", "int16", True),
        ("int8", "int8", True),
        ("uint8", "int16", True),
        ("uint8", "int8", False),
    ):
        made = node("SOFTMAX", [tensor(first, (2, 3))], tensor(last, None), beta=1.0)
        if good:
            made.spec.verify_function(made)  # type: ignore[misc]
            assert made.spec.infer_function(made)[0] == (last, (2, 3))
        else:
            with pytest.raises(
                ModelError,
                match="the operand is uint8, the result int8; they must be equal, or int8 and int16 or uint8",
            ):
                made.spec.verify_function(made)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("SOFTMAX", (2,), {"beta": float("nan")}, "beta is nan; it must be finite"),
        ("SOFTMAX", (), {"beta": 1.0}, "its rank must be at least 1"),
        ("LEAKY_RELU", (2,), {"alpha": float("inf")}, "alpha is inf; it must be finite"),
    ],
)
def test_activation_options(name: str, shape: tuple[int, ...], options: dict[str, float], message: str) -> None:
    made = node(name, [tensor("float32", shape)], tensor("float32", None), **options)
    with pytest.raises(ModelError, match=message):
        made.spec.verify_function(made)  # type: ignore[misc]


@pytest.mark.parametrize("name", ["QUANTIZE", "DEQUANTIZE"])
def test_codes_need_a_scale(name: str) -> None:
    made = node(name, [tensor("int8", (2,))], tensor("int8" if name == "QUANTIZE" else "float32", None))
    with pytest.raises(ModelError, match="the operand of int8 has no scale"):
        made.spec.verify_function(made)  # type: ignore[misc]


def test_quantize_result_needs_a_scale() -> None:
    made = node("QUANTIZE", [tensor("float32", (2,))], tensor("int8", None))
    with pytest.raises(ModelError, match="the result of int8 has no scale"):
        made.spec.verify_function(made)  # type: ignore[misc]


def test_require_dtype() -> None:
    made = node("RELU", [tensor("float32", (1,))], tensor("float32", None))
    common.require_dtype(made, made.results[0], "int8", "float32")
    with pytest.raises(UnsupportedError, match="float32 is not supported here; supported are int8, int16"):
        common.require_dtype(made, made.results[0], "int8", "int16")
