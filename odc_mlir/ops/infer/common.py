"""Helpers of shape functions and verifiers: operands, options, windows, names, broadcasting, axes, limits, types.

Shape functions accept partly known shapes. An unknown rank or dimension is None. They raise ``node.error`` for operands
that are invalid for all values of the unknown sizes, and never return a negative size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from odc_mlir.errors import AllocationError, UnsupportedError
from odc_mlir.ops.constants import MAX_RANK
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Array, Node, ResultType, Shape, TensorInfo

MAX_BYTES = 1 << 31  # larger tensors are rejected: they are mistakes or attacks, not models for a device
MAX_CONSTANT_LIST = 1 << 16  # longest constant operand that a shape function reads


def shape_text(shape: Shape | None) -> str:
    """Return the text of a shape: ``[1, ?, 3]``, or ``unknown``."""
    return "unknown" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def shape_of(node: Node, index: int, ranks: int | Sequence[int] | None = None, least: int = 0) -> Shape | None:
    """Return the shape of operand ``index``, or None for an unknown rank. Raises ModelError for invalid ranks."""
    info = node.operand(index)
    if info.shape is None:
        return None
    what = f"operand {index} ({node.spec.operand_name(index)})"
    if any(d is not None and d < 0 for d in info.shape):
        raise node.error(f"{what} has the shape {shape_text(info.shape)}; sizes must not be negative", tensor=info.name)
    allowed = (ranks,) if isinstance(ranks, int) else tuple(ranks or ())
    if len(info.shape) < least or (allowed and len(info.shape) not in allowed):
        wanted = " or ".join(map(str, allowed)) or f"at least {least}"
        raise node.error(f"{what} has the shape {shape_text(info.shape)}; its rank must be {wanted}", tensor=info.name)
    if len(info.shape) > MAX_RANK:
        raise node.error(f"{what} has rank {len(info.shape)}; at most {MAX_RANK} is supported", tensor=info.name)
    return info.shape


def check_elements(node: Node, shape: Iterable[int | None], dtype: str) -> None:
    """Raise ModelError if a tensor exceeds MAX_BYTES, AllocationError if it exceeds the limit of the run.

    Kernels call this function before they allocate arrays if the size depends on values, such as the ends of a range.
    """
    sizes = [d for d in shape if d is not None]
    total = math.prod(sizes) * DTYPES[dtype].numpy.itemsize
    if total > MAX_BYTES:
        raise node.error(
            f"a tensor of shape {sizes} and {dtype} takes {total} bytes; at most {MAX_BYTES} are supported"
        )
    limit = node.context.max_bytes
    if limit is not None and total > limit:
        raise AllocationError(
            f"the activations need {total} bytes at this operator, more than the limit of {limit}",
            op=node.spec.name,
            tensor=node.name,
            hint="raise max_bytes if this is intended",
        )


def result(node: Node, dtype: str, shape: Shape | None) -> list[ResultType]:
    """Return the type of the only result. Raises ModelError if it is too large."""
    if shape is not None:
        check_elements(node, shape, dtype)
        if len(shape) > MAX_RANK:
            raise node.error(f"the result has rank {len(shape)}; at most {MAX_RANK} is supported")
    return [ResultType(dtype, shape)]


def option(node: Node, name: str) -> Any:
    """Return a field of the options table. Raises ModelError if the operator has no options."""
    try:
        return node.options[name]
    except KeyError:
        raise node.error(f"the option {name} is missing; the operator has no {node.spec.options}") from None


def static_ints(node: Node, index: int) -> tuple[int, ...] | None:
    """Return the flattened value of a constant integer operand, or None if it is computed."""
    info = node.operand(index)
    if not info.info.is_integer:
        raise node.error(f"operand {index} ({node.spec.operand_name(index)}) is {info.dtype}; it must hold integers")
    if not info.is_const:
        return None
    values = info.array()
    if values.size > MAX_CONSTANT_LIST:
        raise node.error(f"operand {index} ({node.spec.operand_name(index)}) has {values.size} entries")
    return tuple(int(v) for v in values.ravel())


def check_single(node: Node, index: int) -> None:
    """Raise ModelError if operand ``index`` cannot have exactly one element."""
    shape = shape_of(node, index)
    if shape is not None and any(d not in (None, 1) for d in shape):
        what = f"operand {index} ({node.spec.operand_name(index)})"
        raise node.error(f"{what} has the shape {shape_text(shape)}; it must have one element")


def static_int(node: Node, index: int) -> int | None:
    """Return the value of a constant one-element integer operand, or None if it is computed."""
    check_single(node, index)
    values = static_ints(node, index)
    return None if values is None else values[0]


def vector_length(node: Node, index: int) -> int | None:
    """Return the length of a vector operand, or None if unknown. Raises ModelError for rank 2 and more."""
    shape = shape_of(node, index, (0, 1))
    if shape is None:
        return None
    return shape[0] if shape else 1


def unknown_shape(rank: int | None) -> Shape | None:
    """Return a shape of ``rank`` unknown sizes."""
    return None if rank is None else (None,) * min(rank, MAX_RANK + 1)  # longer shapes are rejected


def wanted_shape(node: Node, index: int, dtype: str) -> list[ResultType]:
    """Infer a result with the shape in operand ``index``. If the operand is computed, sizes are unknown."""
    length, sizes = vector_length(node, index), static_ints(node, index)
    if sizes is None:
        return result(node, dtype, unknown_shape(length))
    if any(size < 0 for size in sizes):
        raise node.error(f"the shape {list(sizes)} must not have negative sizes")
    return result(node, dtype, sizes)


def shaped(node: Node) -> list[ResultType]:
    """Infer the shape in operand 0 and the declared element type."""
    return wanted_shape(node, 0, node.results[0].dtype)


def normal_axis(node: Node, axis: int, rank: int) -> int:
    """Return ``axis`` counted from the front. Raises ModelError outside of ``[-rank, rank)``."""
    if not -rank <= axis < rank:
        raise node.error(f"axis {axis} is out of range for rank {rank}; allowed are {-rank} to {rank - 1}")
    return axis % rank


def compatible(declared: Shape | None, inferred: Shape | None) -> bool:
    """Return whether a tensor can have both shapes: ranks are equal, and known dimensions are equal."""
    if declared is None or inferred is None:
        return True
    if len(declared) != len(inferred):
        return False
    return all(a is None or b is None or a == b for a, b in zip(declared, inferred, strict=True))


def same_dim(node: Node, a: int | None, b: int | None, what: str) -> int | None:
    """Return the common size of two dimensions. Raises ModelError if they differ."""
    if a is not None and b is not None and a != b:
        raise node.error(f"{what}: {a} and {b} must be equal")
    return b if a is None else a


def same_shape(node: Node, a: Shape | None, b: Shape | None, what: str) -> Shape | None:
    """Return the common shape of two tensors, or None if both are unknown. Raises ModelError if they differ."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        raise node.error(f"{what} have the shapes {shape_text(a)} and {shape_text(b)}; they must be equal")
    return tuple(same_dim(node, x, y, f"sizes of {what}") for x, y in zip(a, b, strict=True))


def broadcast(node: Node, a: Shape, b: Shape) -> Shape:
    """Broadcast two shapes as numpy does. An unknown size stays unknown with 1 or another unknown size."""
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    sizes: list[int | None] = []
    for x, y in zip(left, right, strict=True):
        if x == 1 or y == 1:
            sizes.append(y if x == 1 else x)
        elif x is None or y is None or x == y:
            sizes.append(y if x is None else x)
        else:
            raise node.error(f"shapes {shape_text(a)} and {shape_text(b)} cannot be broadcast: {x} and {y} differ")
    return tuple(sizes)


def unary(node: Node) -> list[ResultType]:
    """Infer the type of the first operand."""
    return result(node, node.operand(0).dtype, shape_of(node, 0))


def binary(node: Node) -> list[ResultType]:
    """Infer the broadcast shape and the first operand's element type."""
    a, b = shape_of(node, 0), shape_of(node, 1)
    return result(node, node.operand(0).dtype, None if a is None or b is None else broadcast(node, a, b))


def comparison(node: Node) -> list[ResultType]:
    """Infer booleans of the broadcast shape."""
    a, b = shape_of(node, 0), shape_of(node, 1)
    return result(node, "bool", None if a is None or b is None else broadcast(node, a, b))


def declared(node: Node) -> list[ResultType]:
    """Infer the first operand's shape and the declared element type (QUANTIZE, CAST)."""
    return result(node, node.results[0].dtype, shape_of(node, 0))


def open_results(node: Node) -> list[ResultType]:
    """Infer results of the declared element types and unknown shapes."""
    return [ResultType(declared.dtype, None) for declared in node.results]


def reduce(node: Node) -> list[ResultType]:
    """Infer operand 0 reduced over the axes in operand 1. If ``keep_dims``, they remain with size 1."""
    shape, keep = shape_of(node, 0), bool(option(node, "keep_dims"))
    vector_length(node, 1)
    axes = static_ints(node, 1)
    if shape is None:
        return result(node, node.operand(0).dtype, None)
    if axes is None:
        return result(node, node.operand(0).dtype, unknown_shape(len(shape) if keep else None))
    reduced = {normal_axis(node, axis, len(shape)) for axis in axes} if shape else set()
    sizes = [1 if i in reduced else d for i, d in enumerate(shape) if keep or i not in reduced]
    return result(node, node.operand(0).dtype, tuple(sizes))


def verify_shapes(node: Node) -> None:
    """Accept all element types. The shape function checks the rest."""


def verify_same_dtype(node: Node) -> None:
    """Check that all operands, or only joined operands if any, have the result's element type."""
    expected, joined = node.results[0].dtype, node.spec.quant.joined
    for index, info in enumerate(node.operands):
        if info is not None and info.dtype != expected and (not joined or index in joined):
            raise node.error(
                f"operand {index} ({node.spec.operand_name(index)}) is {info.dtype}, the result {expected}; "
                "they must be equal",
                tensor=info.name,
            )


def verify_first_dtype(node: Node) -> None:
    """Check that the moved operand, by default the first, has the result's element type."""
    first, expected = node.operand(node.spec.quant.source or 0), node.results[0].dtype
    if first.dtype != expected:
        raise node.error(f"the operand is {first.dtype}, the result {expected}; they must be equal")


def require_dtype(node: Node, info: TensorInfo, *allowed: str) -> None:
    """Raise UnsupportedError if ``allowed`` lacks the element type."""
    if info.dtype not in allowed:
        raise UnsupportedError(
            f"the element type {info.dtype} is not supported here; supported are {', '.join(allowed)}",
            op=node.spec.name,
            tensor=info.name,
        )


LARGEST = 1 << 20  # limit of strides, dilations and kernel sizes
AXES = ("depth", "height", "width")


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Stride and dilation (each (y, x)) and padding of a window operator. All are positive."""

    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: str  # same | valid


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One axis of a window: result size (None for an unknown input), and padding before and after."""

    output: int | None
    before: int
    after: int


def positive(node: Node, name: str, value: int | None = None) -> int:
    """Return ``value``, by default the option ``name``. Raises ModelError unless it is in 1 … LARGEST."""
    value = int(option(node, name)) if value is None else value
    if not 1 <= value <= LARGEST:
        raise node.error(f"{name} is {value}; it must be from 1 to {LARGEST}")
    return value


def window_options(node: Node, *, dilated: bool = True) -> WindowOptions:
    """Return stride, dilation and padding of a convolution or pool. Raises ModelError for invalid values."""
    names = [("stride_h", "stride_w"), ("dilation_h_factor", "dilation_w_factor")]
    pairs = [(positive(node, y), positive(node, x)) for y, x in names[: 2 if dilated else 1]]
    return WindowOptions(pairs[0], pairs[1] if dilated else (1, 1), choice(node, "padding", "same", "valid"))


def choice(node: Node, name: str, *allowed: str) -> str:
    """Return the option ``name``. Raises ModelError unless it is one of ``allowed``."""
    value: str = option(node, name)
    if value not in allowed:
        raise node.error(f"{name} is {value!r}; allowed are {', '.join(allowed)}")
    return value


def place_window(
    node: Node,
    stride: Sequence[int],
    padding: str,
    kernel: Sequence[int],
    sizes: Sequence[int | None],
    dilation: Sequence[int] = (1, 1),
) -> tuple[WindowAxis, ...]:
    """Return :func:`axis_window` along height and width, or along depth, height and width."""
    axes = zip(AXES[-len(kernel) :], sizes, kernel, stride, dilation, strict=True)
    return tuple(axis_window(node, *axis, padding) for axis in axes)


def axis_window(
    node: Node, name: str, size: int | None, kernel: int, stride: int, dilation: int, padding: str
) -> WindowAxis:
    """Return result size and padding along one axis. An odd padding has the extra element at the end, as in TFLite.

    Raises ModelError if a window without padding does not fit into the input.
    """
    extent = (kernel - 1) * dilation + 1
    if size is None:
        return WindowAxis(None, 0, 0)
    if padding == "same":
        output = -(-size // stride)
        total = max((output - 1) * stride + extent - size, 0) if output else 0
        return WindowAxis(output, total // 2, total - total // 2)
    if extent > size > 0:
        raise node.error(f"the window's {name} is {extent}, the input's {size}; without padding it must fit")
    return WindowAxis(max(-(-(size - extent + 1) // stride), 0), 0, 0)


def transposed_pad(size: int, kernel: int, stride: int, padding: str, output: int) -> int:
    """Return the padding before one axis of a transposed convolution: half of the window's overhang.

    ``size`` is the input size along the axis, ``output`` the result size.
    """
    if padding == "valid":
        return 0
    return max((size - 1) * stride + kernel - output, 0) // 2


def position(node: Node, name: str) -> int:
    """Return the index of the operand called ``name``, or the number of operands if there is none."""
    names = [operand.name for operand in node.spec.operands]
    return names.index(name) if name in names else len(node.operands)


def named(node: Node, name: str) -> TensorInfo | None:
    """Return the operand called ``name``, or None if it is omitted or unknown."""
    return node.optional(position(node, name))


def required(node: Node, name: str) -> TensorInfo:
    """Return the operand called ``name``. Raises ModelError if it is omitted."""
    info = named(node, name)
    if info is None:
        raise node.error(f"{name} is omitted; it is required here")
    return info


def constants(node: Node) -> dict[str, Array]:
    """Return the values of all constant operands by name."""
    return {
        node.spec.operand_name(index): info.array()
        for index, info in enumerate(node.operands)
        if info is not None and info.is_const
    }
