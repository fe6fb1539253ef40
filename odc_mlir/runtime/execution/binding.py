"""Checks of input arrays before a run, and conversion between codes and real values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from odc_mlir.errors import InputCountError, InputError
from odc_mlir.formats.quantities import counted
from odc_mlir.numerics.fixed import round_half_away
from odc_mlir.ops.check import type_text
from odc_mlir.ops.spec import Array, QuantParams, ResultType, Shape, TensorInfo

Inputs = Sequence[Any] | Mapping[str, Any]
"""Arrays of a model's inputs, in order or by name."""


class InputBinder:
    """Binding of a run's arrays to the graph inputs ``infos`` with the tensor indices ``indices``.

    Arrays must have the model's element types and static dimensions. Unknown dimensions accept any size, and ``resize``
    also allows other static dimensions. ``shapes``: shapes of the last run. The object changes only if the shapes do.
    """

    def __init__(self, infos: Sequence[TensorInfo], *, indices: Sequence[int] = (), resize: bool = False) -> None:
        self._infos = tuple(infos)
        self._resize = resize
        self.shapes: tuple[tuple[int, ...], ...] | None = None
        self._expected = [
            (index, _plain_dtype(info), info.shape)
            for index, info in zip(indices or range(len(self._infos)), self._infos, strict=True)
        ]

    def __call__(self, inputs: Inputs) -> dict[int, Array]:
        """Return ``inputs`` as read-only C-contiguous arrays by tensor index. Raises InputError."""
        if type(inputs) is not list or len(inputs) != len(self._infos):
            inputs = by_position(self._infos, inputs)
        arrays: dict[int, Array] = {}
        changed = self.shapes is None
        for position, (index, dtype, shape) in enumerate(self._expected):
            value = inputs[position]
            if type(value) is np.ndarray and value.dtype == dtype and value.flags.c_contiguous:
                if value.shape != shape:
                    changed = True
                    if not fits(self._infos[position].shape, value.shape, resize=self._resize):
                        raise _misfit(position, self._infos[position], value)
                array = value.view()
                array.setflags(False)  # type: ignore[call-arg]  # a keyword argument takes twice the time
            else:
                array = _bind(position, self._infos[position], value, self._resize)
                changed = changed or array.shape != shape
            arrays[index] = array
        if changed:
            self.shapes = tuple(array.shape for array in arrays.values())
            self._expected = [(index, dtype, arrays[index].shape) for index, dtype, _ in self._expected]
        return arrays


def _plain_dtype(info: TensorInfo) -> np.dtype[Any] | None:
    """Return the tensor's numpy dtype, or None if the values of elements must be checked."""
    narrow = info.info.is_integer and info.info.bits < 8
    return None if narrow or info.info.kind == "string" else info.info.numpy


def bind_inputs(infos: Sequence[TensorInfo], inputs: Sequence[Any], *, resize: bool = False) -> list[Array]:
    """Return ``inputs`` as read-only C-contiguous arrays, one per graph input (see :class:`InputBinder`)."""
    return list(InputBinder(infos, resize=resize)(inputs).values())


def _bind(position: int, info: TensorInfo, value: Any, resize: bool) -> Array:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"input {position} cannot be converted to an array: {error}", tensor=info.name) from error
    if not array.dtype.isnative:  # HDF5 and NPY files keep the byte order of the machine that wrote them
        array = array.astype(array.dtype.newbyteorder("="))
    if info.info.kind == "string" and array.dtype.kind in "SUO":
        array = _strings(position, info, array)
    elif array.dtype != info.info.numpy:
        raise _misfit(position, info, array, hint=conversion(info, array))
    if not fits(info.shape, array.shape, resize=resize):
        raise _misfit(position, info, array)
    if info.info.is_integer and info.info.bits < 8 and array.size:
        low, high = info.info.range
        if array.min() < low or array.max() > high:
            raise InputError(f"input {position} holds values outside {info.dtype}'s {low}..{high}", tensor=info.name)
    view = np.ascontiguousarray(array).reshape(array.shape).view()
    view.flags.writeable = False
    return view


def _strings(position: int, info: TensorInfo, array: Array) -> Array:
    """Encode text as UTF-8 bytes, the form of constants. Raises InputError for objects other than strings."""
    encoded = np.empty(array.shape, object)
    for index, value in enumerate(array.ravel().tolist()):
        if not isinstance(value, (str, bytes)):
            raise InputError(f"input {position} holds {value!r:.40}; it must hold strings or bytes", tensor=info.name)
        encoded.reshape(-1)[index] = value.encode() if isinstance(value, str) else value
    return encoded


def conversion(info: TensorInfo, array: Array) -> str:
    """Return a hint on how to convert ``array`` to the tensor's type."""
    if array.dtype.kind in "iu" and (info.quant is not None or info.info.kind == "float"):
        return f"scale pixels or decode codes as the model expects; astype({info.info.numpy.name!r}) keeps the integers"
    if info.quant is None or array.dtype.kind != "f":
        return f"convert it with astype({info.info.numpy.name!r})"
    if not info.quant.per_tensor:
        return "it takes codes, real = scale * (code - zero_point)"
    return f"it takes codes: round(real / {info.quant.scale:g}) + {info.quant.zero_points[0]}, in the type's range"


def by_position(infos: Sequence[TensorInfo], inputs: Any) -> Sequence[Any]:
    """Return ``inputs`` in the order of ``infos``. A mapping has names, of tensors or in a signature.

    Raises InputCountError for other objects, and for missing or additional arrays.
    """
    names, given = [info.name for info in infos], type(inputs).__name__
    if isinstance(inputs, Mapping):
        names = [info.alias if info.alias in inputs else info.name for info in infos]
        if {*names} == {*inputs}:
            return [inputs[name] for name in names]
        given = ", ".join(map(repr, inputs))
    elif isinstance(inputs, Sequence) and not isinstance(inputs, (str, bytes)):
        if len(inputs) == len(infos):
            return inputs
        given = counted(len(inputs), "array")
    text = f"the model has {counted(len(infos), 'input')} ({', '.join(map(repr, names))}), got {given}"
    raise InputCountError(text, hint="pass a list of arrays, or a dictionary by name")


def layout_hint(shape: Shape | None, given: tuple[int, ...]) -> str | None:
    """Return how to convert an array of the shape ``given`` if dimensions of ``shape`` are missing or permuted."""
    if shape and len(shape) == len(given) == 4:
        if given[1:] == (*shape[2:], shape[1]):
            return "its channels come last: use transpose(0, 3, 1, 2), or odc-optimize --io-layout nhwc on the model"
        if given[1:] == (shape[3], *shape[1:3]):
            return "its channels come first: use transpose(0, 2, 3, 1)"
    return "add the batch dimension: array[None]" if shape and len(shape) == len(given) + 1 else None


def _misfit(position: int, info: TensorInfo, array: Array, hint: str | None = None) -> InputError:
    shape, given = info.shape, array.shape
    if hint is None and shape and given and shape[0] == 1 < given[0] and shape[1:] == given[1:]:
        hint = "give one sample at a time; commands take several with --samples"
    hint = hint or layout_hint(shape, given)
    expected = type_text(ResultType(info.dtype, info.shape))
    seen = type_text(ResultType(array.dtype.name, array.shape))
    return InputError(f"input {position} must be {expected}, not {seen}", tensor=info.name, hint=hint)


def check_holds(info: TensorInfo, values: Array, what: str, hint: str | None = None) -> None:
    """Raise InputError if a value is outside the range of the tensor's integer type. ``what`` describes the values."""
    low, high = info.info.range
    outside = values[(values < low) | (values > high)]
    if outside.size:
        raise InputError(
            f"{what} holds {outside.flat[0]}, outside {info.dtype}'s {low}..{high}", tensor=info.name, hint=hint
        )


def fits(declared: Shape | None, shape: tuple[int, ...], *, resize: bool = False) -> bool:
    """Return whether a tensor declared with shape ``declared`` accepts an array of ``shape``."""
    if declared is None:
        return True
    if len(declared) != len(shape):
        return False
    return resize or all(known is None or known == dim for known, dim in zip(declared, shape, strict=True))


def to_codes(info: TensorInfo, value: Array) -> Array:
    """Quantise real values to codes of a tensor, with saturation. Values of unquantised tensors stay unchanged.

    ``q = clamp(round_half_away(x / scale) + zero_point)``. Scales and zero points follow the tensor's quantised axis.
    NaN becomes the lowest code, as in QUANTIZE.
    """
    if not info.info.is_integer or info.quant is None or value.dtype.kind != "f":
        return value
    scale, zero_point = _affine(info.quant, value.ndim)
    low, high = info.info.range
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        rounded = round_half_away(value.astype(np.float64) / scale) + zero_point
    codes: Array = np.clip(np.nan_to_num(rounded, nan=low), low, high).astype(info.info.numpy)
    return codes


def to_reals(info: TensorInfo, codes: Array) -> Array:
    """Dequantise codes to float32: ``x = scale * (q - zero_point)``. Values of unquantised tensors stay unchanged."""
    if not info.info.is_integer or info.quant is None:
        return codes
    scale, zero_point = _affine(info.quant, codes.ndim)
    with np.errstate(over="ignore", invalid="ignore"):  # values beyond float32 become infinite
        reals: Array = (scale * (codes.astype(np.float64) - zero_point)).astype(np.float32)
    return reals


def _affine(quant: QuantParams, rank: int) -> tuple[Array, Array]:
    """Return scales (float64) and zero points (int64) that broadcast against a tensor of this rank."""
    shape = [-1 if axis == quant.axis else 1 for axis in range(rank)] if not quant.per_tensor else []
    scales, zero_points = np.asarray(quant.scales, np.float64), np.asarray(quant.zero_points, np.int64)
    return scales.reshape(shape), zero_points.reshape(shape)
