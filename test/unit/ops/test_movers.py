"""Shapes and refusals of operators that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.nodes import const, infer, node, run, tensor
from odc_mlir.errors import ModelError
from odc_mlir.ops.shape import Masks, strided_slice
from odc_mlir.ops.spec import Shape


def check(expected: Shape | str | None, name: str, operands: list[Any], **options: Any) -> None:
    """The inferred shape, or the message of the refusal where ``expected`` is text."""
    if isinstance(expected, str):
        with pytest.raises(ModelError, match=expected):
            infer(name, operands, **options)
    else:
        assert infer(name, operands, **options) == expected


@pytest.mark.parametrize(
    ("x", "wanted", "expected"),
    [
        ((2, 3, 4), [6, 4], (6, 4)),
        ((2, 3, 4), [-1, 8], (3, 8)),
        ((2, 3, 4), [], r"24 elements, the new shape \[\] has 1"),
        ((1, 1), [], ()),
        ((None, 4), [-1, 4], (None, 4)),
        ((None, 4), [3, 4], (3, 4)),
        (None, [2, -1], (2, None)),
        ((0, 4), [-1, 0], (0, 0)),
        ((2, 3), [4, -1], "6 elements of .* cannot fill"),
        ((2, 3), [0, -1], "6 elements of .* cannot fill"),
        ((2, 3), [-1, -1], "at most one -1"),
        ((2, 3), [-2, 3], "no other negative size"),
        ((2, 3), [7], r"has 6 elements, the new shape \[7\] has 7"),
    ],
)
def test_reshape(x: Shape | None, wanted: list[int], expected: Shape | str) -> None:
    check(expected, "RESHAPE", [tensor("int8", x), const(wanted)])
    check(expected, "RESHAPE", [tensor("int8", x), None], new_shape=tuple(wanted))


def test_reshape_by_a_computed_shape() -> None:
    check((None, None), "RESHAPE", [tensor("int8", (2, 3)), tensor("int32", (2,))], new_shape=(6,))
    check(None, "RESHAPE", [tensor("int8", (2, 3)), tensor("int32", (None,))])
    check(None, "RESHAPE", [tensor("int8", (2, 3)), tensor("int32", None)])


def test_reshape_option_zero_means_scalar() -> None:
    check((), "RESHAPE", [tensor("int8", (1, 1))], new_shape=(0,))
    for declared, shape in (((3, 2), (3, 2)), ((3, None), (3, 2)), (None, ())):
        made = node("RESHAPE", [tensor("int8", (2, 3) if shape else (1,))], tensor("int8", declared))
        assert made.spec.infer_function(made)[0].shape == shape
        x = np.arange(6 if shape else 1).astype(np.int8).reshape(2 if shape else 1, -1)
        assert run(made, x).shape == shape


@pytest.mark.parametrize(
    ("x", "axes", "expected"),
    [
        ((1, 2, 1, 3), (), (2, 3)),
        ((1, 2, 1, 3), (0,), (2, 1, 3)),
        ((1, 2, 1, 3), (-2, 0), (2, 3)),
        ((None, 2, 1), (0,), (2, 1)),
        ((None, 2, 1), (), None),
        (None, (), None),
        ((1, 2), (1,), "axis 1 of .* cannot be dropped"),
        ((1, 2), (2,), "axis 2 is out of range"),
    ],
)
def test_squeeze(x: Shape | None, axes: tuple[int, ...], expected: Shape | str | None) -> None:
    check(expected, "SQUEEZE", [tensor("int8", x)], squeeze_dims=axes)


@pytest.mark.parametrize(
    ("x", "axis", "expected"),
    [
        ((2, 3), [0], (1, 2, 3)),
        ((2, 3), [-1], (2, 3, 1)),
        ((2, None), [2], (2, None, 1)),
        ((), [0], (1,)),
        (None, [0], None),
        ((2, 3), [3], "axis 3 is out of range for rank 3"),
        ((2, 3), [0, 1], "the axis must be one number"),
    ],
)
def test_expand_dims(x: Shape | None, axis: list[int], expected: Shape | str | None) -> None:
    check(expected, "EXPAND_DIMS", [tensor("int8", x), const(axis)])


def test_expand_dims_at_a_computed_place() -> None:
    check((None,) * 3, "EXPAND_DIMS", [tensor("int8", (2, 3)), tensor("int32", ())])


def test_shape() -> None:
    for dtype in ("int32", "int64"):
        assert infer("SHAPE", [tensor("int8", (2, None))], dtype, out_type=dtype) == (2,)
    assert infer("SHAPE", [tensor("int8", None)], "int32", out_type="int32") == (None,)


@pytest.mark.parametrize(
    ("x", "begin", "size", "expected"),
    [
        ((4, 5), [1, 0], [2, -1], (2, 5)),
        ((4, 5), [4, 5], [0, -1], (0, 0)),
        ((None, 5), [1, 1], [-1, 2], (None, 2)),
        ((4, 5), [1, 0], [4, 5], "reach outside"),
        ((4, 5), [5, 0], [-1, 5], "reach outside"),
        ((4, 5), [-1, 0], [1, -1], (1, None)),  # such files exist; the kernel refuses
        ((4, 5), [0, 0], [-2, 1], "not below -1"),
        ((4, 5), [0], [1], "begin has 1 entries, size 1; .* needs 2"),
    ],
)
def test_slice(x: Shape, begin: list[int], size: list[int], expected: Shape | str) -> None:
    check(expected, "SLICE", [tensor("int8", x), const(begin), const(size)])


def test_slice_by_computed_bounds() -> None:
    begin = tensor("int32", (2,))
    check((3, None), "SLICE", [tensor("int8", (4, 5)), begin, const([3, -1])])
    check((None, None), "SLICE", [tensor("int8", (4, 5)), begin, tensor("int32", (2,))])
    check((None, None), "SLICE", [tensor("int8", None), begin, tensor("int32", (2,))])
    check("entries must not be below -1", "SLICE", [tensor("int8", (4, 5)), begin, const([-3, 1])])


STRIDED_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


@pytest.mark.parametrize(
    ("x", "begin", "end", "strides", "masks", "expected"),
    [
        ((6, 5), [1, 0], [5, 5], [2, 1], {}, (2, 5)),
        ((6, 5), [1], [-1], [1], {}, (4, 5)),
        ((6,), [-1], [-7], [-2], {}, (3,)),
        ((6,), [5], [-1], [-1], {}, (0,)),  # -1 counts from the end; only end_mask reaches the first element
        ((6,), [5], [-1], [-1], {"end_mask": 1}, (6,)),
        ((6,), [-100], [100], [1], {}, (6,)),
        ((6,), [4], [2], [1], {}, (0,)),
        ((6, 5), [2, 0], [0, 5], [1, 1], {"shrink_axis_mask": 1}, (5,)),
        ((6, 5), [0, 0], [0, 5], [1, 1], {"begin_mask": 1, "end_mask": 1}, (6, 5)),
        ((6, 5, 4), [0, 0], [1, 1], [1, 1], {"ellipsis_mask": 1}, (6, 5, 1)),
        ((6, 5), [0, 0], [1, 1], [1, 1], {"new_axis_mask": 1}, (1, 1, 5)),
        ((6, 5), [0, 0], [1, 1], [1, 1], {"new_axis_mask": 3, "ellipsis_mask": 1}, (6, 5, 1)),
        ((6,), [1], [3], [1], {"offset": True}, (3,)),
        ((None, 5), [0, 1], [2, 3], [1, 1], {}, (None, 2)),
        ((None, 5), [0, 1], [2, 3], [1, 1], {"shrink_axis_mask": 1}, (2,)),
        ((6,), [6], [7], [1], {"shrink_axis_mask": 1}, "takes position 6 of an axis of size 6"),
        ((6,), [-7], [7], [1], {"shrink_axis_mask": 1}, "takes position -7"),
        ((6,), [0], [1], [0], {}, "must not be 0"),
        ((6,), [0, 0], [1, 1], [1, 1], {}, "2 slices for an operand of rank 1"),
        ((6,), [0, 0], [1], [1], {}, "have 2, 1 and 1 entries"),
        ((6, 5), [0, 0], [1, 1], [1, 1], {"ellipsis_mask": 3}, "names 2 entries"),
    ],
)
def test_strided_slice(
    x: Shape, begin: list[int], end: list[int], strides: list[int], masks: dict[str, Any], expected: Shape | str
) -> None:
    check(expected, "STRIDED_SLICE", [tensor("int8", x), const(begin), const(end), const(strides)], **masks)


def test_strided_slice_by_computed_bounds() -> None:
    bounds = [tensor("int32", (2,)), tensor("int32", (2,)), const([1, 1])]
    check((None, None, None), "STRIDED_SLICE", [tensor("int8", (2, 3, 4)), *bounds])
    check((None, None), "STRIDED_SLICE", [tensor("int8", (2, 3, 4)), *bounds], shrink_axis_mask=1)
    check((1, None, None, None), "STRIDED_SLICE", [tensor("int8", (2, 3, 4)), *bounds], new_axis_mask=1)
    check(None, "STRIDED_SLICE", [tensor("int8", None), *bounds])
    check(None, "STRIDED_SLICE", [tensor("int8", (2, 3)), *[tensor("int32", None)] * 3])


BOUND = st.integers(-12, 12)


@given(st.integers(0, 8), BOUND, BOUND, st.sampled_from([-3, -2, -1, 1, 2, 3]), st.integers(0, 3))
def test_strided_slice_takes_what_a_loop_takes(size: int, begin: int, end: int, stride: int, bits: int) -> None:
    """Walk from the start to the end by hand."""
    masks = Masks(bits & 1, bits >> 1, 0, 0, 0, False)
    made = node_of_slice()
    taken = strided_slice(made, (size,), [begin], [end], [stride], masks)
    lowest, highest = (0, size) if stride > 0 else (-1, size - 1)
    start = (0 if stride > 0 else size - 1) if bits & 1 else min(max(begin + size * (begin < 0), lowest), highest)
    stop = (size if stride > 0 else -1) if bits & 2 else min(max(end + size * (end < 0), lowest), highest)
    walked = list(range(start, stop, stride))
    assert np.arange(size)[taken.indices].tolist() == walked
    assert taken.shape == (len(walked),)


def node_of_slice() -> Any:
    from helpers.nodes import node

    return node("STRIDED_SLICE", [tensor("int8", (1,))] * 4, tensor("int8", None))


@pytest.mark.parametrize(
    ("shapes", "axis", "expected"),
    [
        ([(2, 3), (2, 3)], 0, (2, 2, 3)),
        ([(2, 3), (2, 3)], -1, (2, 3, 2)),
        ([(None, 3), (2, None)], 1, (2, 2, 3)),
        ([(), ()], 0, (2,)),
        ([None, (2,)], 0, (2, 2)),
        ([None, None], 0, None),
        ([(2, 3), (3, 3)], 0, "2 and 3 must be equal"),
        ([(2, 3), (2,)], 0, "they must be equal"),
        ([(2, 3), (2, 3)], 3, "axis 3 is out of range for rank 3"),
    ],
)
def test_pack(shapes: list[Shape | None], axis: int, expected: Shape | str | None) -> None:
    check(expected, "PACK", [tensor("int8", s) for s in shapes], axis=axis, values_count=len(shapes))


def test_pack_counts_its_operands() -> None:
    check("values_count is 3, but there are 1 operands", "PACK", [tensor("int8", (2,))], axis=0, values_count=3)


@pytest.mark.parametrize(
    ("shapes", "axis", "expected"),
    [
        ([(2, 3), (4, 3)], 0, (6, 3)),
        ([(2, 3), (2, 1), (2, 0)], -1, (2, 4)),
        ([(None, 3), (4, None)], 0, (None, 3)),
        ([(2, 3), None], 0, (None, 3)),
        ([None, None], 0, None),
        ([(2, 3), (4, 2)], 0, "size of axis 1: 3 and 2 must be equal"),
        ([(2, 3), (4,)], 0, "must have one rank"),
        ([(2, 3), (4, 3)], 2, "axis 2 is out of range"),
        ([(), ()], 0, (2,)),
    ],
)
def test_concatenation(shapes: list[Shape | None], axis: int, expected: Shape | str | None) -> None:
    check(expected, "CONCATENATION", [tensor("int8", s) for s in shapes], axis=axis)


@pytest.mark.parametrize(
    ("x", "pads", "expected"),
    [
        ((2, 3), [[1, 0], [2, 2]], (3, 7)),
        ((None, 3), [[1, 0], [2, 2]], (None, 7)),
        (None, [[1, 0], [2, 2]], (None, None)),
        ((2, 3), [[-1, 0], [2, 2]], "must not be negative"),
        ((2, 3), [[1, 0]], r"it must be \[2, 2\]"),
        ((2, 3), [[1], [2]], r"it must be \[2, 2\]"),
        ((2, 3), [1, 2], "its rank must be 2"),
        ((2, 3), [[2**31 - 1, 0], [2**31 - 1, 0]], "are supported"),
    ],
)
def test_pad(x: Shape | None, pads: Any, expected: Shape | str) -> None:
    check(expected, "PAD", [tensor("int8", x), const(pads)])


def test_pad_by_computed_amounts() -> None:
    check((None, None), "PAD", [tensor("int8", (2, 3)), tensor("int32", (2, 2))])


@pytest.mark.parametrize(
    ("x", "order", "expected"),
    [
        ((2, 3, 4), [2, 0, 1], (4, 2, 3)),
        ((2, None, 4), [0, -1, 1], (2, 4, None)),
        (None, [1, 0], (None, None)),
        ((2, 3), [0, 0], "must name each of the 2 axes once"),
        ((2, 3), [0], "must name each"),
        ((2, 3), [0, 2], "axis 2 is out of range"),
    ],
)
def test_transpose(x: Shape | None, order: list[int], expected: Shape | str) -> None:
    check(expected, "TRANSPOSE", [tensor("int8", x), const(order)])


def test_transpose_by_a_computed_order() -> None:
    check((None, None), "TRANSPOSE", [tensor("int8", (2, 3)), tensor("int32", (2,))])


@pytest.mark.parametrize("name", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
@pytest.mark.parametrize(
    ("x", "size", "options", "expected"),
    [
        ((1, 4, 4, 3), [8, 2], {}, (1, 8, 2, 3)),
        ((None, None, 4, 3), [8, 2], {}, (None, 8, 2, 3)),
        (None, [8, 2], {}, (None, 8, 2, None)),
        ((1, 4, 4, 3), [0, 2], {}, "it must be positive"),
        ((1, 4, 4, 3), [8], {}, "has 1 entries; it must have 2"),
        ((1, 0, 4, 3), [8, 8], {}, "has no pixels"),
        ((1, 4, 4), [8, 8], {}, "its rank must be 4"),
        ((1, 4, 4, 3), [1 << 30, 8], {}, "are supported"),
        ((1, 4, 4, 3), [8, 8], {"align_corners": True, "half_pixel_centers": True}, "cannot both be set"),
    ],
)
def test_resize(name: str, x: Shape | None, size: list[int], options: dict[str, bool], expected: Shape | str) -> None:
    check(expected, name, [tensor("int8", x), const(size)], **options)


def test_resize_to_a_computed_size() -> None:
    check((1, None, None, 3), "RESIZE_BILINEAR", [tensor("int8", (1, 4, 4, 3)), tensor("int32", (2,))])
