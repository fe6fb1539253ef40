"""Inputs and outputs of a session: descriptions, and arrays in the user's layout and element type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odc_mlir.errors import InputError, OptionError, SessionError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Array, Shape, TensorInfo
from odc_mlir.runtime.execution.binding import conversion, to_codes, to_reals
from odc_mlir.runtime.execution.executor import Executor

MAX_RANK = 6
LAYOUTS = ("NONE", "NHWC", "NCHW")
_LAYOUT_ALIASES = {"CHANNELS_LAST": "NHWC", "CHANNELS_FIRST": "NCHW"}
_TO_CHANNELS_LAST, _TO_CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass
class tensorinfo:
    """Description of an input or output. A dimension of -1 in ``dims`` is unknown.

    ``dtype``: a name such as ``float32``. ``rank`` defaults to the length of ``dims``. Dimensions beyond ``rank`` are
        ignored. Only per-tensor quantisation sets ``scale`` and ``zero_point``.
    """

    dtype: str = "float32"
    dims: Sequence[int] = ()
    rank: int | None = None
    name: str = ""
    scale: float | None = None
    zero_point: int | None = None

    def __post_init__(self) -> None:
        self.dims = list(self.dims)
        if self.rank is None:
            self.rank = len(self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """The first ``rank`` dimensions."""
        return tuple(self.dims[: self.rank])

    def valid_shape(self) -> tuple[int, ...]:
        """Return the shape of an input. Raises SessionError if a dimension is unknown or invalid."""
        rank = len(self.dims) if self.rank is None else self.rank
        if not 0 <= rank <= MAX_RANK:
            raise SessionError(f"the rank is {rank}, allowed are 0 to {MAX_RANK}", tensor=self.name or None)
        dims = tuple(self.dims)[:rank]
        if len(dims) < rank:
            raise SessionError(f"the rank is {rank}, but dims has {len(dims)} entries", tensor=self.name or None)
        for dim in dims:
            if not isinstance(dim, (int, np.integer)) or isinstance(dim, bool) or dim <= 0:
                raise SessionError(f"a dimension is {dim!r}, allowed are integers from 1", tensor=self.name or None)
        return tuple(map(int, dims))


class SessionPort:
    """An input or output with the user's ``layout`` of arrays of rank 4. ``as_float``: float32 values instead of codes.

    ``info``: the tensor of the loaded model, which stays the same when a compiled model replaces it.
    """

    def __init__(self, info: TensorInfo) -> None:
        self.info = info
        self.layout = "NONE"
        self.as_float = False
        shape = info.shape
        self.static_shape = None if shape is None or None in shape else tuple(dim or 0 for dim in shape)

    def set_layout(self, layout: Any) -> None:
        """Set the layout by name or number. Raises SessionError for an unknown layout."""
        name = _LAYOUT_ALIASES.get(layout, layout) if isinstance(layout, str) else None
        if isinstance(layout, int) and 0 <= layout < len(LAYOUTS):
            name = LAYOUTS[layout]
        if name not in LAYOUTS:
            raise SessionError(f"unknown layout {layout!r}", hint=f"use one of {', '.join(LAYOUTS)}")
        self.layout = str(name)

    def request_float(self, dtype: Any) -> None:
        """Use float32 values for this quantised tensor. Raises SessionError for another type or tensor."""
        if str(dtype).lower().removeprefix("dtype.") != "float32":
            raise SessionError(f"the type cannot be {dtype!r}; only float32 is allowed", tensor=self.info.name)
        if self.info.dtype != "float32" and (self.info.quant is None or not self.info.info.is_integer):
            raise SessionError(f"a tensor of {self.info.dtype} has no float32 values", tensor=self.info.name)
        self.as_float = True

    @property
    def dtype(self) -> str:
        """The element type of the user's arrays."""
        return "float32" if self.as_float else self.info.dtype

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type of the user's arrays."""
        return DTYPES[self.dtype].numpy

    def describe(self, shape: Shape | None) -> tensorinfo:
        """Return the description for users. ``shape`` is in the model's layout."""
        dims = () if shape is None else tuple(-1 if dim is None else dim for dim in self.outer_shape(shape))
        found = tensorinfo(self.dtype, dims, name=self.info.name)
        if (quant := self.info.quant) is not None and quant.per_tensor and not self.as_float:
            found.scale, found.zero_point = quant.scale, quant.zero_point
        return found

    def outer_shape(self, shape: Shape) -> Shape:
        """Convert a ``shape`` of the model to the user's layout."""
        return tuple(shape[axis] for axis in _TO_CHANNELS_FIRST) if self._is_turned(len(shape)) else shape

    def inner_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Convert a ``shape`` of the user to the model's layout."""
        return tuple(shape[axis] for axis in _TO_CHANNELS_LAST) if self._is_turned(len(shape)) else shape

    @property
    def is_plain(self) -> bool:
        """Whether arrays need no transposition."""
        return self.layout != "NCHW"

    def _is_turned(self, rank: int) -> bool:
        return self.layout == "NCHW" and rank == 4

    def take(self, value: Array, shape: tuple[int, ...] | None) -> Array:
        """Convert an array of the user to the model's layout and ``shape`` (None: any).

        Only the number of elements must match, since buffers have no shape. Raises InputError.
        """
        if shape is not None and value.shape != (outer := self.outer_shape(shape)):
            if value.size != math.prod(shape):
                raise InputError(
                    f"the input has {value.size} elements, {list(outer)} needs {math.prod(shape)}",
                    tensor=self.info.name,
                )
            value = value.reshape([dim or 0 for dim in outer])
        if self._is_turned(value.ndim):
            value = np.ascontiguousarray(value.transpose(_TO_CHANNELS_LAST))
        return value

    def give(self, value: Array) -> Array:
        """Convert an array of the model to the user's layout."""
        return np.ascontiguousarray(value.transpose(_TO_CHANNELS_FIRST)) if self._is_turned(value.ndim) else value

    def check(self, value: Any, what: str) -> Array:
        """Return ``value`` as an array of the user's type. Raises InputError for another type."""
        if isinstance(value, np.ndarray) and value.dtype == self.numpy:
            return value
        if self.dtype == "string":
            return np.asarray(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            try:
                return np.frombuffer(value, self.numpy)
            except ValueError as error:
                raise InputError(
                    f"the {what} is not a buffer of {self.dtype}: {error}", tensor=self.info.name
                ) from None
        seen = value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
        hint = f"convert it with astype({self.numpy.name!r})"
        if isinstance(value, np.ndarray) and self.dtype == self.info.dtype:
            hint = conversion(self.info, value)
        raise InputError(f"the {what} must be an array of {self.dtype}, not {seen}", tensor=self.info.name, hint=hint)


def port_at(ports: Sequence[SessionPort], index: Any, what: str) -> SessionPort:
    """Return ``ports[index]``. Raises SessionError for an index out of range."""
    if not isinstance(index, (int, np.integer)) or isinstance(index, bool) or not 0 <= index < len(ports):
        raise SessionError(f"there is no {what} {index!r}, the model has {len(ports)}")
    return ports[int(index)]


def index_of(ports: Sequence[SessionPort], name: str, what: str) -> int:
    """Return the index of the first port with this name. Raises SessionError for an unknown name."""
    for index, port in enumerate(ports):
        if port.info.name == name:
            return index
    known = ", ".join(repr(port.info.name) for port in ports)
    raise SessionError(f"there is no {what} called {name!r}", hint=f"the model has {known}")


def check_choice(what: str, value: Any, allowed: Sequence[str]) -> str:
    """Return the element of ``allowed`` with the name or number ``value``. Raises OptionError."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(allowed):
        return allowed[value]
    if value not in allowed:
        raise OptionError(f"unknown {what} {value!r}", hint=f"use one of {', '.join(allowed)}")
    return str(value)


class Fitted:
    """An executor with the ports of a session. It converts real values of the user to codes and back.

    Raises SessionError if element types of the executor do not fit the ports.
    """

    def __init__(self, executor: Executor, inputs: Sequence[SessionPort], outputs: Sequence[SessionPort]) -> None:
        self.executor = executor
        self._coded_inputs = _coded(inputs, executor.graph.input_infos())
        self._coded_outputs = _coded(outputs, executor.graph.output_infos())
        self.is_plain = not self._coded_inputs and not self._coded_outputs  # whether nothing is converted

    def encoded(self, arrays: list[Array]) -> list[Array]:
        """Convert arrays of the user to the executor's element types."""
        if self._coded_inputs:
            arrays = list(arrays)
            for place, info in self._coded_inputs:
                arrays[place] = to_codes(info, arrays[place])
        return arrays

    def decoded(self, arrays: list[Array]) -> list[Array]:
        """Convert outputs of the executor to the user's element types."""
        for place, info in self._coded_outputs:
            arrays[place] = to_reals(info, arrays[place])
        return arrays


def _coded(ports: Sequence[SessionPort], infos: Sequence[TensorInfo]) -> tuple[tuple[int, TensorInfo], ...]:
    """Return position and tensor of the ports where the user has real numbers but the executor has codes."""
    found = []
    for place, (port, info) in enumerate(zip(ports, infos, strict=True)):
        reals = port.dtype == "float32" and (info.dtype == "float32" or info.quant is not None)
        if info.dtype != port.info.dtype and not reals:
            raise SessionError(
                f"the model has {info.dtype} where the session promises {port.dtype}", tensor=port.info.name
            )
        if info.dtype != port.dtype:
            found.append((place, info))
    return tuple(found)
