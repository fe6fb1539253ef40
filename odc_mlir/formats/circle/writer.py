"""Records to a Circle file: ``write_model`` and ``save_model``.

Whatever the model was read from, a Circle file comes out. Reading it gives an equal model, and writing that again gives
the same bytes. Buffers at one address are stored once. A model too large for a flatbuffer keeps its buffers behind it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.atomic import write_file
from odc_mlir.formats.circle.checks import check_model
from odc_mlir.formats.circle.decoder import MalformedError, Record
from odc_mlir.formats.circle.encoder import Encoder
from odc_mlir.formats.circle.model import (
    INDEX_WIDTHS,
    DimMetadata,
    Model,
    Operator,
    Quantization,
    Signature,
    Sparsity,
    SubGraph,
    Tensor,
)
from odc_mlir.formats.circle.schema import circle_schema

# Offsets in a flatbuffer are 31 bits wide; the rest is left for everything that is not a buffer.
INLINE_LIMIT_BYTES = (1 << 31) - (256 << 20)

_BUFFER_ALIGN = 16

# Longest list of what is unknown in a message.
_NAMED_UNKNOWN = 4

# Codes from here on go to the wide field only and leave this value in the narrow one.
_EXTENDED_CODE = 127

# Stands for a buffer's place in the file while that is not known; any value but 0 takes the same room.
_SOMEWHERE = 1 << 60


def write_model(model: Model, *, inline_limit_bytes: int = INLINE_LIMIT_BYTES) -> bytes:
    """``model`` as a Circle file.

    Raises ModelError for inconsistent records and UnsupportedError for what Circle cannot express. Where all buffers
    together exceed ``inline_limit_bytes`` they follow the flatbuffer, a form that not every Circle reader knows.
    """
    return b"".join(_chunks(model, inline_limit_bytes))


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write ``model`` to ``path`` as a Circle file, whole or not at all; raises like write_model, or OdcError."""
    write_file(path, *_chunks(model, INLINE_LIMIT_BYTES))


def _chunks(model: Model, inline_limit_bytes: int) -> list[bytes | memoryview]:
    if model.unknown:
        named = "; ".join(model.unknown[:_NAMED_UNKNOWN]) + ("; ..." if len(model.unknown) > _NAMED_UNKNOWN else "")
        raise UnsupportedError(f"this model cannot be written, because our schema lacks part of it: {named}")
    try:
        check_model(model)
        record = _model(model)
    except MalformedError as error:
        raise error.public() from None
    total_bytes = sum(len(buffer) for buffer in model.buffers)
    if total_bytes > inline_limit_bytes:
        return _with_outside_buffers(model, record)
    record["buffers"] = [{"data": buffer} if len(buffer) else {} for buffer in model.buffers]
    return [_encode(record, total_bytes)]


def _encode(record: Record, buffer_bytes: int) -> bytes:
    return Encoder(circle_schema(), buffer_bytes + (64 << 10)).finish(record)


def _with_outside_buffers(model: Model, record: Record) -> list[bytes | memoryview]:
    """The flatbuffer, then every buffer on a multiple of 16 bytes; their offsets count from the file's start."""
    record["buffers"] = [{"offset": _SOMEWHERE, "size": len(buffer)} if len(buffer) else {} for buffer in model.buffers]
    end = len(_encode(record, 0))
    tail: list[bytes | memoryview] = []
    for entry, buffer in zip(record["buffers"], model.buffers, strict=True):
        if len(buffer):
            padding = -end % _BUFFER_ALIGN
            entry["offset"] = end + padding
            tail += [bytes(padding), buffer]
            end += padding + len(buffer)
    return [_encode(record, 0), *tail]


def _model(model: Model) -> Record:
    """The root record, all but the buffers."""
    codes: dict[tuple[str, int, str], int] = {}
    subgraphs = []
    for index, subgraph in enumerate(model.subgraphs):
        try:
            subgraphs.append(_subgraph(subgraph, codes))
        except MalformedError as error:
            raise error.within(f"subgraphs[{index}]") from None
    return {
        # TFLite's version numbers mean nothing in Circle.
        "version": model.version if model.schema == "circle" else 0,
        "operator_codes": [_operator_code(*code) for code in codes],
        "subgraphs": subgraphs,
        "description": model.description,
        "metadata_buffer": model.metadata_buffer or None,
        "metadata": [{"name": name, "buffer": buffer} for name, buffer in model.metadata] or None,
        "signature_defs": [_signature(signature) for signature in model.signatures] or None,
    }


def _operator_code(name: str, version: int, custom_code: str) -> Record:
    code = circle_schema().operators.codes[name]
    return {
        "deprecated_builtin_code": min(code, _EXTENDED_CODE),
        "custom_code": custom_code or None,
        "version": version,
        "builtin_code": code,
    }


def _subgraph(subgraph: SubGraph, codes: dict[tuple[str, int, str], int]) -> Record:
    """``codes`` grows by the operators that are new, in order of their first use."""
    operators = []
    for index, operator in enumerate(subgraph.operators):
        if operator.name not in circle_schema().operators.codes:
            raise MalformedError(
                "Circle has no such operator", path=f"operators[{index}]", op=operator.label, error=UnsupportedError
            )
        key = (operator.name, operator.version, operator.custom_code)
        operators.append({"opcode_index": codes.setdefault(key, len(codes)), **_operator(operator)})
    return {
        "tensors": [_tensor(tensor) for tensor in subgraph.tensors],
        "inputs": subgraph.inputs,
        "outputs": subgraph.outputs,
        "operators": operators,
        "name": subgraph.name,
        "debug_metadata_index": subgraph.debug_metadata_index,
    }


def _operator(operator: Operator) -> Record:
    record: Record = {
        "inputs": operator.inputs,
        "outputs": operator.outputs,
        "custom_options": operator.custom_options if len(operator.custom_options) else None,
        "custom_options_format": operator.custom_options_format,
        "mutating_variable_inputs": operator.mutating_variable_inputs or None,
        "intermediates": operator.intermediates or None,
        "debug_metadata_index": operator.debug_metadata_index,
    }
    if operator.options_type is not None:
        second = operator.options_type in circle_schema().unions["BuiltinOptions2"].tags
        record["builtin_options_2" if second else "builtin_options"] = _member(operator.options_type, operator.options)
    return record


def _member(table: str, options: Mapping[str, Any]) -> tuple[str, Record]:
    """A union member; empty vectors and strings are left out, as the reader takes that for the same."""
    return table, {
        name: None if isinstance(value, (tuple, str, bytes)) and not len(value) else value
        for name, value in options.items()
    }


def _tensor(tensor: Tensor) -> Record:
    variants = [
        {"shape": variant.shape, "type": variant.dtype, "has_rank": variant.has_rank}
        for variant in tensor.variant_tensors
    ]
    return {
        "shape": tensor.shape,
        "type": tensor.dtype,
        "buffer": tensor.buffer,
        "name": tensor.name,
        "quantization": None if tensor.quantization is None else _quantization(tensor.quantization, tensor.name),
        "is_variable": tensor.is_variable,
        "sparsity": None if tensor.sparsity is None else _sparsity(tensor.sparsity),
        "shape_signature": tensor.shape_signature,
        "has_rank": tensor.has_rank,
        "variant_tensors": variants or None,
        "compression_type": tensor.compression,
    }


def _quantization(quantization: Quantization, name: str) -> Record:
    details = quantization.details
    if details is not None and details[0] not in circle_schema().unions["QuantizationDetails"].tags:
        raise MalformedError(f"Circle has no {details[0]}", path="tensors", tensor=name, error=UnsupportedError)
    return {
        "min": _floats(quantization.min),
        "max": _floats(quantization.max),
        "scale": _floats(quantization.scale),
        "zero_point": quantization.zero_point.astype("<i8") if quantization.zero_point.size else None,
        "details": None if details is None else _member(*details),
        "quantized_dimension": quantization.axis,
    }


def _floats(values: NDArray[Any]) -> NDArray[Any] | None:
    return values.astype("<f4") if values.size else None


def _sparsity(sparsity: Sparsity) -> Record:
    return {
        "traversal_order": sparsity.traversal_order or None,
        "block_map": sparsity.block_map or None,
        "dim_metadata": [_dim_metadata(dim) for dim in sparsity.dims] or None,
    }


def _dim_metadata(dim: DimMetadata) -> Record:
    return {
        "format": dim.format,
        "dense_size": dim.dense_size,
        "array_segments": _index_vector(dim.segments),
        "array_indices": _index_vector(dim.indices),
    }


def _index_vector(indices: NDArray[Any] | None) -> tuple[str, Record] | None:
    if indices is None:
        return None
    for table, width in INDEX_WIDTHS.items():
        if indices.dtype == np.dtype(width):
            return table, {"values": indices.tobytes() if width == "|u1" else indices}
    raise MalformedError(f"sparse indices are {indices.dtype}; allowed: {', '.join(INDEX_WIDTHS.values())}")


def _signature(signature: Signature) -> Record:
    return {
        "inputs": [{"name": name, "tensor_index": index} for name, index in signature.inputs.items()],
        "outputs": [{"name": name, "tensor_index": index} for name, index in signature.outputs.items()],
        "signature_key": signature.key,
        "subgraph_index": signature.subgraph,
    }
