"""Kernels that move elements, against numpy's own functions, for several element types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.nodes import const, node, quant, run, tensor
from odc_mlir.errors import InputError, ModelError, OdcError, UnsupportedError

X = np.arange(24).reshape(2, 3, 4)
DTYPES = ["float32", "int8", "int64", "bool"]


def mover(name: str, dtype: str, *operands: Any, shape: Any = X.shape, **options: Any) -> Any:
    return node(name, [tensor(dtype, shape), *operands], tensor(dtype, None), **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_views(dtype: str) -> None:
    x = X.astype(dtype)
    assert (run(mover("RESHAPE", dtype, const([4, -1])), x) == x.reshape(4, 6)).all()
    assert (run(mover("RESHAPE", dtype, new_shape=(6, 4)), x) == x.reshape(6, 4)).all()
    assert (run(mover("EXPAND_DIMS", dtype, const([-2])), x) == x[:, :, None]).all()
    assert (run(mover("SQUEEZE", dtype, shape=(2, 1, 3, 4), squeeze_dims=(1,)), x[:, None]) == x).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_slices(dtype: str) -> None:
    x = X.astype(dtype)
    assert (run(mover("SLICE", dtype, const([1, 0, 2]), const([-1, 2, 1])), x) == x[1:, :2, 2:3]).all()
    step = [const([1, 0, -1]), const([2, 3, -4]), const([1, 2, -1])]
    assert (run(mover("STRIDED_SLICE", dtype, *step), x) == x[1:2, ::2, :0:-1]).all()
    masked = run(mover("STRIDED_SLICE", dtype, *step, end_mask=4, shrink_axis_mask=1), x)
    assert (masked == x[1, ::2, ::-1]).all()
    added = run(mover("STRIDED_SLICE", dtype, *step, new_axis_mask=1, ellipsis_mask=2, end_mask=4), x)
    assert (added == x[None, :, :, ::-1]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_joins(dtype: str) -> None:
    x, other = X.astype(dtype), (X + 1).astype(dtype)
    infos = [tensor(dtype, x.shape), tensor(dtype, x.shape)]
    packed = node("PACK", infos, tensor(dtype, None), axis=-1, values_count=2)
    assert (run(packed, x, other) == np.stack([x, other], -1)).all()
    joined = node("CONCATENATION", infos, tensor(dtype, None), axis=-2)
    assert (run(joined, x, other) == np.concatenate([x, other], 1)).all()
    assert (run(mover("TRANSPOSE", dtype, const([2, 0, 1])), x) == x.transpose(2, 0, 1)).all()
    assert (run(mover("PAD", dtype, const([[0, 1], [2, 0], [1, 1]])), x) == np.pad(x, [(0, 1), (2, 0), (1, 1)])).all()


def test_pad_fills_with_the_zero_point() -> None:
    params = quant(0.1, -7)
    made = node("PAD", [tensor("int8", (1,), params), const([[1, 2]])], tensor("int8", None, params))
    assert run(made, np.array([5], np.int8)).tolist() == [-7, 5, -7, -7]


def test_shape() -> None:
    for dtype in ("int32", "int64"):
        made = node("SHAPE", [tensor("float32", (None, 3))], tensor(dtype, None), out_type=dtype)
        assert run(made, np.zeros((5, 3), np.float32)).tolist() == [5, 3]


def test_operands_computed_at_run_time() -> None:
    """Shapes, bounds and orders that are not constants."""
    ints = tensor("int32", (3,))
    assert run(mover("RESHAPE", "int8", ints), X.astype(np.int8), np.array([4, 3, 2], np.int32)).shape == (4, 3, 2)
    assert run(mover("TRANSPOSE", "int8", ints), X.astype(np.int8), np.array([2, 1, 0], np.int32)).shape == (4, 3, 2)
    begin, size = np.array([0, 1, 1], np.int32), np.array([1, -1, 2], np.int32)
    assert run(mover("SLICE", "int8", ints, ints), X.astype(np.int8), begin, size).shape == (1, 2, 2)
    strided = mover("STRIDED_SLICE", "int8", ints, ints, const([1, 1, 1]), shrink_axis_mask=1)
    assert run(strided, X.astype(np.int8), begin, np.array([1, 3, 3], np.int32)).shape == (2, 2)
    grown = mover("EXPAND_DIMS", "int8", tensor("int32", (1,)))
    assert run(grown, X.astype(np.int8), np.array([1], np.int32)).shape == (2, 1, 3, 4)
    padded = mover("PAD", "int8", tensor("int32", (3, 2)))
    assert run(padded, X.astype(np.int8), np.ones((3, 2), np.int32)).shape == (4, 5, 6)


@pytest.mark.parametrize(
    ("name", "operands", "values", "message"),
    [
        ("RESHAPE", [tensor("int32", (1,))], [[7]], "the new shape .7. has 7"),
        ("TRANSPOSE", [tensor("int32", (3,))], [[0, 0, 1]], "must name each"),
        ("EXPAND_DIMS", [tensor("int32", None)], [[0, 1]], "must be one number"),
        ("PAD", [tensor("int32", (3, 2))], [[[0, 0], [0, 0], [0, -1]]], "3 pairs that are not negative"),
        ("PAD", [tensor("int32", (3, 2))], [[[0, 0]]], "3 pairs that are not negative"),
        ("PAD", [tensor("int32", (3, 2))], [[[0, 2**30], [0, 2**30], [0, 0]]], "are supported"),
        ("SLICE", [tensor("int32", (3,)), const([1, 1, 1])], [[2, 0, 0]], "reach outside"),
        ("SLICE", [tensor("int32", (3,)), const([1, 1, 1])], [[-1, 0, 0]], "must not be negative"),
        (
            "STRIDED_SLICE",
            [tensor("int32", (3,)), const([1, 1, 1]), const([1, 1, 1])],
            [[0]],
            "have 1, 3 and 3 entries",
        ),
    ],
)
def test_run_time_operands_that_do_not_fit(name: str, operands: Any, values: Any, message: str) -> None:
    made = mover(name, "int8", *operands)
    arrays = iter(np.array(v, np.int32) for v in values)
    bound = [X.astype(np.int8), *[None if o.is_const else next(arrays) for o in operands]]
    with pytest.raises(OdcError, match=message):
        made.spec.kernel_function(made)(bound)


@pytest.mark.parametrize("name", ["PACK", "CONCATENATION"])
def test_joining_what_does_not_fit(name: str) -> None:
    made = node(name, [tensor("int8", None), tensor("int8", None)], tensor("int8", None), values_count=2)
    with pytest.raises(InputError, match=r"shapes \[\[2, 3\], \[2, 4\]\]"):
        made.spec.kernel_function(made)([np.zeros((2, 3), np.int8), np.zeros((3, 3), np.int8)[:2, [0, 0, 0, 0]]])


def test_concatenation_rescales_uint8() -> None:
    first, second, out = quant(0.1, 10), quant(0.3, 100), quant(0.2, 50)
    made = node("CONCATENATION", [tensor("uint8", (2,), first), tensor("uint8", (2,), second)],
                tensor("uint8", None, out), axis=0)  # fmt: skip
    a, b = np.array([10, 255], np.uint8), np.array([100, 0], np.uint8)
    assert run(made, a, b).tolist() == [50, 173, 50, 0]  # (255 - 10) * 0.5 + 50 is 172.5


def test_concatenation_of_scalars() -> None:
    made = node("CONCATENATION", [tensor("int8", ())] * 3, tensor("int8", None), axis=0)
    assert run(made, *(np.array(v, np.int8) for v in (3, 1, 2))).tolist() == [3, 1, 2]


def test_concatenation_keeps_codes_of_one_scale() -> None:
    params = quant(0.1, 3)
    made = node("CONCATENATION", [tensor("int8", (2,), params)] * 2, tensor("int8", None, params), axis=0)
    assert run(made, np.array([1, 2], np.int8), np.array([3, 4], np.int8)).tolist() == [1, 2, 3, 4]


def test_concatenation_refuses() -> None:
    made = node("CONCATENATION", [tensor("int8", (2,), quant(0.1, 3))], tensor("int8", None, quant(0.1, 4)), axis=0)
    with pytest.raises(ModelError, match="different scales or zero points; int8 needs equal ones"):
        made.spec.kernel_function(made)
    fused = node(
        "CONCATENATION", [tensor("int8", (2,))], tensor("int8", None), axis=0, fused_activation_function="relu"
    )
    with pytest.raises(UnsupportedError, match="'relu' is not supported here"):
        fused.spec.kernel_function(fused)


def test_concatenation_with_activation() -> None:
    made = node("CONCATENATION", [tensor("float32", (2,))] * 2, tensor("float32", None), axis=0,
                fused_activation_function="relu")  # fmt: skip
    x = np.array([-1, 2], np.float32)
    assert run(made, x, x).tolist() == [0, 2, 0, 2]
    assert x.tolist() == [-1, 2]


@pytest.mark.parametrize("name", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_resize(name: str) -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1)
    made = node(name, [tensor("float32", x.shape), const([2, 4])], tensor("float32", None))
    expected = [0, 0.5, 1, 1, 2, 2.5, 3, 3] if name == "RESIZE_BILINEAR" else [0, 0, 1, 1, 2, 2, 3, 3]
    assert run(made, x).ravel().tolist() == expected


@pytest.mark.parametrize(
    ("size", "shape", "message"),
    [
        ([0, 4], (1, 2, 2, 1), "must be two positive numbers"),
        ([4], (1, 2, 2, 1), "must be two positive numbers"),
        ([4, 4], (1, 0, 2, 1), "has no pixels"),
        ([4, 4], (2, 2, 1), "its rank must be 4"),
        ([2**30, 4], (1, 2, 2, 1), "are supported"),
    ],
)
def test_resize_refuses(size: list[int], shape: tuple[int, ...], message: str) -> None:
    made = node("RESIZE_BILINEAR", [tensor("float32", None), tensor("int32", (None,))], tensor("float32", None))
    with pytest.raises(OdcError, match=message):
        made.spec.kernel_function(made)([np.zeros(shape, np.float32), np.array(size, np.int32)])
