"""The rare parts of a tensor record as attributes, in both directions: quantisation and intermediates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Attribute

from odc_mlir.dialects.circle import BlobAttr, QuantRecord, tensor_type
from odc_mlir.dialects.circle_types import AnyTensor, TensorFacts
from odc_mlir.dialects.quant import UniformQuantizedType
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.formats.circle.model import Quantization, Tensor
from odc_mlir.formats.circle.schema import circle_schema
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Shape

LOG = logging.getLogger(__name__)

TensorToAttribute = Callable[[int], Attribute]
AttributeToTensor = Callable[[Attribute], int]

# Fields of a quantisation details table that are tensor indices (-1: no such tensor).
_TENSOR_FIELDS: Mapping[str, frozenset[str]] = {"BlockwiseQuantization": frozenset({"scales", "zero_points"})}


def type_of_tensor(tensor: Tensor, shape: Shape | None, tensor_attribute: TensorToAttribute) -> AnyTensor:
    """The type of ``tensor`` with ``shape``; raises ModelError for quantisation that does not fit the tensor.

    ``tensor_attribute`` makes an attribute of another tensor of the same subgraph, which block scales refer to.
    """
    quantization = tensor.quantization
    if quantization is None:
        return tensor_type(tensor.dtype, shape)
    quant = tensor.quant_params()
    try:
        record = _record(tensor.name, quantization, tensor_attribute)
    except UnsupportedError as error:
        error.tensor = error.tensor or tensor.name
        raise
    is_plain = quant is None or UniformQuantizedType.expresses(tensor.dtype, quant)
    if shape is None and (record is not None or not is_plain):
        if not is_plain:
            raise ModelError("the quantisation of a tensor of unknown rank cannot be expressed", tensor=tensor.name)
        LOG.warning("tensor %r has unknown rank, its recorded range is dropped", tensor.name)
        record = None
    return tensor_type(tensor.dtype, shape, quant, record)


def _record(name: str, quantization: Quantization, tensor_attribute: TensorToAttribute) -> QuantRecord | None:
    """Return the parts of a quantisation beside scale and zero point: recorded ranges and details; None without any."""
    low, high = _floats(quantization.min), _floats(quantization.max)
    if len(low) != len(high):
        LOG.warning("tensor %r has %d minima and %d maxima, its recorded range is dropped", name, len(low), len(high))
        low = high = ()
    details = None
    if quantization.details is not None:
        table, fields = quantization.details
        if table not in circle_schema().unions["QuantizationDetails"].tags:
            raise UnsupportedError(f"Circle has no quantisation of kind {table}")
        attributes = {key: _detail(table, key, value, tensor_attribute) for key, value in fields.items()}
        details = (table, attributes)
    return QuantRecord(min=low, max=high, details=details) if low or details is not None else None


def _floats(values: NDArray[np.float32]) -> tuple[float, ...]:
    return tuple(values.tolist())


def _detail(table: str, key: str, value: Any, tensor_attribute: TensorToAttribute) -> Attribute:
    if key in _TENSOR_FIELDS.get(table, ()) and value >= 0:
        return tensor_attribute(value)
    return IntegerAttr(value, i32) if isinstance(value, int) else BlobAttr.of(value)


def quantization_of(facts: TensorFacts, tensor_index: AttributeToTensor) -> Quantization | None:
    """The file record of a tensor type's quantisation, None where it has none."""
    record = facts.record or QuantRecord()
    if facts.quant is None and facts.record is None:
        return None
    quantization = Quantization(
        min=np.array(record.min, np.float32),
        max=np.array(record.max, np.float32),
        details=None if record.details is None else _details_record(*record.details, tensor_index),
    )
    if facts.quant is not None:
        quantization.scale = np.array(facts.quant.scales, np.float32)
        quantization.zero_point = np.array(facts.quant.zero_points, np.int64)
        quantization.axis = facts.quant.axis
    return quantization


def _details_record(
    table: str, fields: Mapping[str, Attribute], tensor_index: AttributeToTensor
) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {}
    for key, attribute in fields.items():
        if isinstance(attribute, IntegerAttr):
            values[key] = attribute.value.data
        elif isinstance(attribute, BlobAttr):
            values[key] = bytes(attribute.bytes)
        else:
            values[key] = tensor_index(attribute)
    return table, values


def constant_shape(tensor: Tensor, data: memoryview) -> Shape | None:
    """The shape of a constant, which is static whatever its signature says.

    A missing one is a scalar's when the bytes are those of one element.
    """
    shape = tensor.shape
    bits = DTYPES[tensor.dtype].bits
    return () if shape is None and bits and data.nbytes == (bits + 7) // 8 else shape
