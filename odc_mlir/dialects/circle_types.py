"""Conversion between tensor records of a model and MLIR types."""

from __future__ import annotations

from typing import NamedTuple

from xdsl.dialects.builtin import DYNAMIC_INDEX, NoneAttr, TensorType, UnrankedTensorType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_attributes import DTYPE_OF_ELEMENT, ELEMENT_TYPES, QParamsAttr, QuantRecord
from odc_mlir.dialects.quant import UniformQuantizedType
from odc_mlir.ops.spec import QuantParams, Shape

AnyTensor = TensorType[Attribute] | UnrankedTensorType[Attribute]


class TensorFacts(NamedTuple):
    """Facts of a tensor type; ``record``: its ``#circle.qparams`` encoding, if any."""

    dtype: str
    shape: Shape | None
    quant: QuantParams | None
    record: QuantRecord | None


def tensor_type(
    dtype: str, shape: Shape | None, quant: QuantParams | None = None, record: QuantRecord | None = None
) -> AnyTensor:
    """The type of a tensor; raises ValueError for quantisation that a type of unknown rank cannot hold.

    ``quant`` becomes the element type where that can express it, else a record of the same content; ``record`` is an
    encoding to keep beside.
    """
    element: Attribute = ELEMENT_TYPES[dtype]
    if quant is not None:
        if UniformQuantizedType.expresses(dtype, quant):
            element = UniformQuantizedType.of(dtype, quant)
        else:
            rest = record or QuantRecord()
            record = QuantRecord(quant.scales, quant.zero_points, quant.axis, rest.min, rest.max, rest.details)
    if shape is None:
        if record is not None:
            raise ValueError("a tensor of unknown rank cannot have a #circle.qparams encoding")
        return UnrankedTensorType(element)
    dims = [DYNAMIC_INDEX if d is None else d for d in shape]
    return TensorType(element, dims, NoneAttr() if record is None else QParamsAttr(record))


def tensor_facts(type: Attribute) -> TensorFacts:
    """What tensor type ``type`` says; raises VerifyException for anything that no Circle tensor has."""
    if isinstance(type, TensorType):
        shape: Shape | None = tuple(None if d.data == DYNAMIC_INDEX else d.data for d in type.shape.data)
        encoding = type.encoding
    elif isinstance(type, UnrankedTensorType):
        shape, encoding = None, None
    else:
        raise VerifyException(f"expected a tensor type, found {type}")
    element = type.element_type
    if isinstance(element, UniformQuantizedType):
        dtype, quant = element.data.storage, element.data.params
    elif element in DTYPE_OF_ELEMENT:
        dtype, quant = DTYPE_OF_ELEMENT[element], None
    else:
        raise VerifyException(f"{element} is not an element type of a Circle tensor")
    record = encoding.data if isinstance(encoding, QParamsAttr) else None
    if record is not None and record.scale and quant is None:
        quant = QuantParams(record.scale, record.zero_point or (0,) * len(record.scale), record.axis)
    return TensorFacts(dtype, shape, quant, record)


def with_shape(type: Attribute, shape: Shape | None) -> AnyTensor:
    """The same element type and encoding with another shape; an encoding goes with the rank."""
    if not isinstance(type, TensorType | UnrankedTensorType):
        raise TypeError(f"{type} is not a tensor type")
    if shape is None:
        return UnrankedTensorType(type.element_type)
    dims = [DYNAMIC_INDEX if d is None else d for d in shape]
    encoding = type.encoding if isinstance(type, TensorType) else NoneAttr()
    return TensorType(type.element_type, dims, encoding)


def axis_mismatch(quant: QuantParams | None, shape: Shape | None) -> str | None:
    """Return the problem of per-axis quantisation on this shape, or None."""
    if quant is None or quant.per_tensor or shape is None:
        return None
    if quant.axis >= len(shape):
        return f"quantised dimension is {quant.axis}, the tensor has rank {len(shape)}"
    extent = shape[quant.axis]
    if extent is not None and extent != len(quant.scales):
        return f"{len(quant.scales)} scales for dimension {quant.axis} of extent {extent}"
    return None
