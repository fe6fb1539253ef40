"""What users see of inputs and outputs: their descriptions, and buffers in the layout and element type asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odc_mlir.errors import InputError, OptionError, SessionError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Array, Shape, TensorInfo
from odc_mlir.runtime.execution.binding import conversion

MAX_RANK = 6
LAYOUTS = ("NONE", "NHWC", "NCHW")
_LAYOUT_ALIASES = {"CHANNELS_LAST": "NHWC", "CHANNELS_FIRST": "NCHW"}
_TO_CHANNELS_LAST, _TO_CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass
class tensorinfo:
    """An input or output: ``dtype`` is a name such as ``float32``, a dimension of -1 in ``dims`` is not known.

    ``rank`` is taken from ``dims`` unless it is given; of longer ``dims`` only that many count. ``scale`` and
    ``zero_point`` are there for tensors with one of each.
    """

    dtype: str = "float32"
    rank: int | None = None
    dims: Sequence[int] = ()
    name: str = ""
    scale: float | None = None
    zero_point: int | None = None

    def __post_init__(self) -> None:
        if self.rank is None:
            self.rank = len(self.dims)

    def shape(self) -> tuple[int, ...]:
        """The dimensions as a new shape of an input; raises SessionError unless all are known and allowed."""
        rank = len(self.dims) if self.rank is None else self.rank
        if not 0 <= rank <= MAX_RANK:
            raise SessionError(f"the rank is {rank}, allowed are 0 to {MAX_RANK}", tensor=self.name or None)
        dims = tuple(self.dims)[:rank]
        if len(dims) < rank:
            raise SessionError(f"the rank is {rank}, but dims has {len(dims)} entries", tensor=self.name or None)
        if bad := next((dim for dim in dims if not _is_size(dim)), None):
            raise SessionError(f"a dimension is {bad!r}, allowed are integers from 1", tensor=self.name or None)
        if 0 in dims:
            raise SessionError("a dimension is 0, allowed are integers from 1", tensor=self.name or None)
        return tuple(map(int, dims))


def _is_size(dim: Any) -> bool:
    return isinstance(dim, (int, np.integer)) and not isinstance(dim, bool) and int(dim) > 0


def layout_of(layout: Any) -> str:
    """``layout`` by the name that we use; raises SessionError for anything else."""
    name = _LAYOUT_ALIASES.get(layout, layout) if isinstance(layout, str) else None
    if isinstance(layout, int) and 0 <= layout < len(LAYOUTS):
        name = LAYOUTS[layout]
    if name not in LAYOUTS:
        raise SessionError(f"unknown layout {layout!r}", hint=f"use one of {', '.join(LAYOUTS)}")
    return str(name)


class SessionPort:
    """One input or output as the user wants it: ``layout`` of arrays of rank 4, and float32 values for codes.

    ``info`` is the tensor as the user knows it, which does not change when another model takes over behind the session.
    """

    def __init__(self, info: TensorInfo) -> None:
        self.info = info
        self.layout = "NONE"
        self.as_float = False
        shape = info.shape
        self.static_shape = None if shape is None or None in shape else tuple(dim or 0 for dim in shape)

    def request_float(self, dtype: Any) -> None:
        """Take and give float32 for this quantised tensor; raises SessionError for another type or tensor."""
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
        """The same as numpy's."""
        return DTYPES[self.dtype].numpy

    def describe(self, shape: Shape | None) -> tensorinfo:
        """What users are told; ``shape`` is the model's, in the model's layout."""
        quant = self.info.quant if self.info.quant is not None and self.info.quant.per_tensor else None
        dims = () if shape is None else tuple(-1 if dim is None else dim for dim in self.outer_shape(shape))
        known = quant is not None and not self.as_float
        return tensorinfo(
            self.dtype,
            len(dims) if shape is not None else None,
            dims,
            self.info.name,
            quant.scale if known and quant is not None else None,
            quant.zero_point if known and quant is not None else None,
        )

    def outer_shape(self, shape: Shape) -> Shape:
        """The model's ``shape`` in the user's layout."""
        return tuple(shape[axis] for axis in _TO_CHANNELS_FIRST) if self._is_turned(len(shape)) else shape

    def inner_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The user's ``shape`` in the model's layout."""
        return tuple(shape[axis] for axis in _TO_CHANNELS_LAST) if self._is_turned(len(shape)) else shape

    @property
    def is_plain(self) -> bool:
        """Whether arrays are passed on as they are."""
        return self.layout != "NCHW"

    def _is_turned(self, rank: int) -> bool:
        return self.layout == "NCHW" and rank == 4

    def take(self, value: Array, shape: tuple[int, ...] | None) -> Array:
        """The user's array in the model's layout; ``shape``: what it must be there, None if it may be any.

        An array of as many elements is taken in another shape too, since buffers have none. Raises InputError.
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
        """The model's array in the user's layout."""
        return np.ascontiguousarray(value.transpose(_TO_CHANNELS_FIRST)) if self._is_turned(value.ndim) else value

    def check(self, value: Any, what: str) -> Array:
        """``value`` as an array of the type that users pass here; raises InputError."""
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
        raise InputError(
            f"the {what} must be an array of {self.dtype}, not {seen}",
            tensor=self.info.name,
            hint=self._conversion(value),
        )

    def _conversion(self, value: Any) -> str:
        """How ``value`` becomes what users pass here."""
        if isinstance(value, np.ndarray) and self.dtype == self.info.dtype:
            return conversion(self.info, value)
        return f"convert it with astype({self.numpy.name!r})"


def port_at(ports: Sequence[SessionPort], index: Any, what: str) -> SessionPort:
    """``ports[index]``; raises SessionError when there is none."""
    if not isinstance(index, (int, np.integer)) or isinstance(index, bool) or not 0 <= index < len(ports):
        raise SessionError(f"there is no {what} {index!r}, the model has {len(ports)}")
    return ports[int(index)]


def index_of(ports: Sequence[SessionPort], name: str, what: str) -> int:
    """The first port called ``name``; raises SessionError when there is none."""
    for index, port in enumerate(ports):
        if port.info.name == name:
            return index
    known = ", ".join(repr(port.info.name) for port in ports)
    raise SessionError(f"there is no {what} called {name!r}", hint=f"the model has {known}")


def check_choice(what: str, value: Any, allowed: Sequence[str]) -> str:
    """``value`` if it is one of ``allowed``, also as its number; raises OptionError."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(allowed):
        return allowed[value]
    if value not in allowed:
        raise OptionError(f"unknown {what} {value!r}", hint=f"use one of {', '.join(allowed)}")
    return str(value)
