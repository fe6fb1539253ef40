"""Helpers of kernels: operand access, scales, fused activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import numpy as np

from odc_mlir.errors import InputError, ModelError, UnsupportedError
from odc_mlir.numerics.fixed import activation_bounds, activation_range
from odc_mlir.numerics.pieces import limit, reduce
from odc_mlir.ops.bias import in_units_of_sums
from odc_mlir.ops.infer.common import check_elements
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo

Fetch = Callable[[Sequence[Array | None]], Array]
Clamp = Callable[[Array], Array]
PlannedKernel = Callable[[Array], Array]  # a kernel for operands of one shape

EIGHT_BIT = ("int8", "uint8")
CODES = (*EIGHT_BIT, "int16")
FLOATS = ("float32", "float16")
LARGEST_ZERO_POINT = 1 << 24
FIXED_SHAPE_HINT = "feed inputs of the size that the model was made for"
_VALUE_HINT = "feed inputs in the order of the model's, with values that this operator allows"
_INDEX_HINT = "feed inputs in the order of the model's, whose indices are within this table"


def fetch(node: Node, index: int) -> Fetch:
    """Return the function that yields operand ``index`` at run time, decoding constants once."""
    info = node.operand(index)
    if info.is_const:
        constant = info.array()
        return lambda _: constant

    def passed(operands: Sequence[Array | None]) -> Array:
        array = operands[index]
        if array is None:
            raise input_error(node, f"operand {index} ({node.spec.operand_name(index)}) has no value")
        return array

    return passed


def computed(node: Node, compute: Callable[..., Any], *, several: bool = False) -> Execute:
    """Return the kernel that calls ``compute`` with all operands. If ``several``, there are several results."""
    sources = [_nothing if info is None else fetch(node, index) for index, info in enumerate(node.operands)]
    if several:
        return lambda operands: list(compute(*[source(operands) for source in sources]))
    return lambda operands: [compute(*[source(operands) for source in sources])]


def _nothing(operands: Sequence[Array | None]) -> None:
    """Return None, the value of an omitted operand."""


def planned(
    node: Node, index: int, others: Sequence[int], make: Callable[..., Callable[[Array], Any]], *, several: bool = False
) -> Execute:
    """Return the kernel ``make(shape, *values)(x)``: ``x`` is operand ``index``, ``values`` the operands ``others``.

    If ``others`` are constant, ``make`` runs again only if the shape changes. If it rejects computed values, the run
    raises InputError. ``several``: the function from ``make`` returns several results.
    """
    x_of, sources = fetch(node, index), [fetch(node, other) for other in others]
    fixed = all(node.operand(other).is_const for other in others)
    shape: tuple[int, ...] | None = None
    plan: Callable[[Array], Any]
    given = node.operand(index).shape
    if fixed and given is not None and None not in given:  # ``make`` raises its errors before the run
        shape = node.operand(index).static_shape
        plan = make(shape, *[node.operand(other).array() for other in others])

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        nonlocal shape, plan
        x = x_of(operands)
        if x.shape != shape:
            with given_values(node, others):
                plan = make(x.shape, *[source(operands) for source in sources])
            shape = x.shape if fixed else None
        return plan(x) if several else [plan(x)]

    return execute


def computing(compute: Callable[..., Any]) -> Callable[[Node], Execute]:
    """Make ``compute(node, *operands)`` a kernel (see :func:`computed`)."""
    return wraps(compute)(lambda node: computed(node, partial(compute, node)))


def planning(index: int, *others: int) -> Callable[[Callable[..., PlannedKernel]], Callable[[Node], Execute]]:
    """Return the decorator that makes ``make(node, shape, *values)`` a kernel (see :func:`planned`)."""
    return lambda make: wraps(make)(lambda node: planned(node, index, others, partial(make, node)))


@contextmanager
def given_values(node: Node, operands: Iterable[int]) -> Iterator[None]:
    """Convert a ModelError about the values of ``operands`` to InputError if not all ``operands`` are constants."""
    try:
        yield
    except ModelError as error:
        if all(node.operand(index).is_const for index in operands):
            raise
        raise input_error(node, error.message, _VALUE_HINT) from error


def input_error(node: Node, message: str, hint: str = FIXED_SHAPE_HINT) -> InputError:
    """Return an InputError that names the operator."""
    return InputError(message, op=node.spec.name, tensor=node.name, hint=hint)


def unsupported(node: Node, message: str) -> UnsupportedError:
    """Return an UnsupportedError that names the operator."""
    return UnsupportedError(message, op=node.spec.name, tensor=node.name)


def scale_of(node: Node, info: TensorInfo) -> tuple[float, int]:
    """Return (scale, zero point) of a per-tensor quantised tensor. Raises ModelError for invalid parameters.

    The zero point may lie outside the type's code range: in some valid files no code represents real zero.
    """
    quant = info.quant
    if quant is None:
        raise node.error(f"{info.dtype} tensor {info.name!r} has no scale", hint="quantise the model again")
    if not quant.per_tensor or len(quant.zero_points) != 1:
        raise node.error(f"tensor {info.name!r} has {len(quant.scales)} scales; one is allowed here")
    check_scales(node, info, quant.scales)
    if abs(quant.zero_point) > LARGEST_ZERO_POINT:
        raise node.error(f"zero point {quant.zero_point} of {info.name!r} is larger than {LARGEST_ZERO_POINT}")
    return quant.scale, quant.zero_point


def signed_codes(node: Node, info: TensorInfo, values: Array) -> Array:
    """Return 8-bit codes of per-tensor quantised weights minus the zero point.

    uint8 codes with zero point 0 are two's complement, from converters older than int8 in the schema.
    """
    zero = scale_of(node, info)[1]
    return values.astype(np.int32) - zero if zero else values.view(np.int8)


def check_scales(node: Node, info: TensorInfo, scales: Sequence[float]) -> None:
    """Raise ModelError if a scale is not positive and finite."""
    for scale in scales:
        if not 0 < scale < math.inf:
            raise node.error(f"scale {scale} of tensor {info.name!r} must be positive and finite")


def require_units_of_sums(node: Node, bias: TensorInfo, scale: float, weight_scale: float) -> None:
    """Raise UnsupportedError if the bias has a zero point, or another scale than the sums."""
    if bias.quant is None:
        return
    if not in_units_of_sums(bias, scale, (weight_scale,)):
        check_scales(node, bias, bias.quant.scales)
        raise unsupported(
            node,
            f"{bias.name!r} has the scale {bias.quant.scale:g} and the zero point {bias.quant.zero_point}; "
            f"it must have {scale * weight_scale:g} and 0",
        )


def fused_activation(node: Node) -> str:
    """Return the name of the fused activation, or ``none`` if there is none."""
    return str(node.options.get("fused_activation_function", "none"))


def activation_codes(node: Node, info: TensorInfo) -> tuple[int, int]:
    """Return the code range of the fused activation for the quantised result ``info``."""
    scale, zero_point = scale_of(node, info)
    return activation_range(fused_activation(node), info.info.numpy, scale, zero_point)


def _sign_bit(x: Array) -> Array:
    x[...] = np.signbit(x)
    return x


_REAL_ACTIVATIONS: dict[str, Clamp] = {"tanh": lambda x: np.asarray(np.tanh(x, out=x)), "sign_bit": _sign_bit}


def is_quantised(info: TensorInfo) -> bool:
    """Return True if the tensor holds codes, not plain integers."""
    return info.info.is_integer and info.quant is not None


def real_clamp(node: Node, *, finite: bool = True) -> Clamp | None:
    """Return the fused activation of real numbers or plain integers, applied in place, or None.

    If ``finite``, real numbers are also limited to the largest finite numbers, as in TensorFlow Lite.
    """
    activation, info = fused_activation(node), node.results[0].info
    if info.kind == "float" and activation in _REAL_ACTIVATIONS:
        return _REAL_ACTIVATIONS[activation]
    least, most = activation_bounds(activation)
    if finite and info.kind == "float":
        limits = np.finfo(info.numpy)
        least = float(limits.min) if least is None else least
        most = float(limits.max) if most is None else most
    if least is None and most is None:
        return None

    low, high = limits_of(info.numpy, least, most)
    return lambda x: limit(x, low, high, out=x)


def limits_of(dtype: np.dtype, least: float | None, most: float | None) -> tuple[Any, Any]:
    """Return the two bounds as arrays of ``dtype`` and rank 0. A missing bound is the type's limit."""
    if dtype.kind == "f":
        ends: tuple[Any, Any] = (-np.inf, np.inf)
    else:
        ends = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low, high = ends[0] if least is None else least, ends[1] if most is None else most
    return np.array(low, dtype), np.array(high, dtype)


def ints(array: Array) -> tuple[int, ...]:
    """Return the sizes, axes or positions in an operand as Python integers."""
    return tuple(int(v) for v in np.asarray(array).ravel())


def wanted_sizes(node: Node, shape: Array) -> tuple[int, ...]:
    """Return the sizes in a shape operand. Raises InputError for invalid sizes and results that are too large."""
    sizes = ints(shape)
    if shape.ndim > 1 or any(size < 0 for size in sizes):
        raise input_error(node, f"the shape {shape.tolist()} must be a list and must not have negative sizes")
    check_elements(node, sizes, node.results[0].dtype)
    return sizes


def quantised_zero(node: Node, info: TensorInfo) -> int:
    """Return the code of real zero, or the nearest code, for padding. Raise UnsupportedError for strings."""
    if info.info.kind not in ("float", "int", "uint", "bool", "complex"):
        raise unsupported(node, f"element type {info.dtype} is not supported; it has no zero value")
    if info.quant is None or not info.info.is_integer:
        return 0
    low, high = info.info.range
    return min(max(scale_of(node, info)[1], low), high)


def single(node: Node, array: Array, what: str) -> Array:
    """Return the only element of an operand with rank 0. Raises InputError for other sizes."""
    if array.size != 1:
        raise input_error(node, f"{what} has the shape {list(array.shape)}; it must have one element")
    return array.reshape(())


def check_index(node: Node, indices: Array, size: int, what: str) -> None:
    """Raise InputError if an index is not in ``[0, size)``."""
    if not indices.size:
        return
    if indices.dtype.kind == "i":  # as unsigned numbers, negative indices are too large
        indices = indices.reshape(-1)
        if int(reduce(np.fmax, indices.view(f"u{indices.itemsize}"), (0,), keep=False)) < size:
            return
    least, most = int(indices.min()), int(indices.max())
    if least < 0 or most >= size:
        wrong = least if least < 0 else most
        raise input_error(node, f"{what} {wrong} is out of range; allowed are 0 to {size - 1}", _INDEX_HINT)
