"""Checks arrays against the tensors that they are meant for, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odc_mlir.errors import InputError
from odc_mlir.numerics.fixed import round_half_away
from odc_mlir.ops.check import type_text
from odc_mlir.ops.spec import Array, QuantParams, ResultType, Shape, TensorInfo


def bind_inputs(infos: Sequence[TensorInfo], inputs: Sequence[Any], *, resize: bool = False) -> list[Array]:
    """``inputs`` as read-only C-contiguous arrays, one per graph input.

    Element types must be the model's own and static dimensions must agree; unknown dimensions take any size, and with
    ``resize`` static ones too. Raises InputError that names the input, what is expected and what was given.
    """
    if not isinstance(inputs, Sequence) or isinstance(inputs, (str, bytes, np.ndarray)):
        raise InputError(
            f"inputs must be a list of arrays, not {type(inputs).__name__}", hint="pass [array] for a single input"
        )
    if len(inputs) != len(infos):
        names = ", ".join(repr(info.name) for info in infos)
        raise InputError(f"the model has {len(infos)} inputs ({names}), {len(inputs)} arrays were given")
    pairs = enumerate(zip(infos, inputs, strict=True))
    return [_bind(position, info, value, resize) for position, (info, value) in pairs]


def _bind(position: int, info: TensorInfo, value: Any, resize: bool) -> Array:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"input {position} cannot be made an array: {error}", tensor=info.name) from error
    expected = type_text(ResultType(info.dtype, info.shape))
    seen = type_text(ResultType(array.dtype.name, array.shape))
    if info.info.kind == "string" and array.dtype.kind in "SUO":
        array = array.astype(object)
    elif array.dtype != info.info.numpy:
        raise InputError(
            f"input {position} must be {expected}, not {seen}",
            tensor=info.name,
            hint=f"convert it with astype({info.info.numpy.name!r})",
        )
    if not fits(info.shape, array.shape, resize=resize):
        raise InputError(f"input {position} must be {expected}, not {seen}", tensor=info.name)
    if info.info.is_integer and info.info.bits < 8 and array.size:
        low, high = info.info.range
        if array.min() < low or array.max() > high:
            raise InputError(f"input {position} holds values outside {info.dtype}'s {low}..{high}", tensor=info.name)
    view = np.ascontiguousarray(array).reshape(array.shape).view()
    view.flags.writeable = False
    return view


def fits(declared: Shape | None, shape: tuple[int, ...], *, resize: bool = False) -> bool:
    """True when an array of ``shape`` may be bound to a tensor declared with the shape ``declared``."""
    if declared is None:
        return True
    if len(declared) != len(shape):
        return False
    return resize or all(known is None or known == dim for known, dim in zip(declared, shape, strict=True))


def to_codes(info: TensorInfo, value: Array) -> Array:
    """Real values as codes of a quantised tensor, saturating; any other tensor's values unchanged.

    ``q = clamp(round_half_away(x / scale) + zero_point)``, scales and zero points along the tensor's quantised axis.
    """
    if not info.info.is_integer or info.quant is None or value.dtype.kind != "f":
        return value
    scale, zero_point = _affine(info.quant, value.ndim)
    low, high = info.info.range
    rounded = round_half_away(value.astype(np.float64) / scale) + zero_point
    codes: Array = np.clip(rounded, low, high).astype(info.info.numpy)
    return codes


def to_reals(info: TensorInfo, codes: Array) -> Array:
    """Codes of a quantised tensor as float32, ``x = scale * (q - zero_point)``; any other tensor's values unchanged."""
    if not info.info.is_integer or info.quant is None:
        return codes
    scale, zero_point = _affine(info.quant, codes.ndim)
    reals: Array = (scale * (codes.astype(np.float64) - zero_point)).astype(np.float32)
    return reals


def _affine(quant: QuantParams, rank: int) -> tuple[Array, Array]:
    """Scales (float64) and zero points (int64) that broadcast against a tensor of this rank."""
    shape = [-1 if axis == quant.axis else 1 for axis in range(rank)] if not quant.per_tensor else []
    scales, zero_points = np.asarray(quant.scales, np.float64), np.asarray(quant.zero_points, np.int64)
    return scales.reshape(shape), zero_points.reshape(shape)
