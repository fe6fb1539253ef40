"""Records to a Circle file: ``write_model`` and ``save_model``; ``write_tflite`` for other programs' interpreters.

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
from odc_mlir.formats.circle.litert_forms import as_litert_reads
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
from odc_mlir.formats.circle.schema import Schema, circle_schema, tflite_schema
from odc_mlir.formats.kinds import MODEL
from odc_mlir.formats.outputs import check_output

# Offsets in a flatbuffer are 31 bits wide; the rest is left for everything that is not a buffer.
INLINE_LIMIT_BYTES = (1 << 31) - (256 << 20)

_BUFFER_ALIGN = 16

# Longest list of what is unknown in a message.
_NAMED_UNKNOWN = 4

# Codes from here on go to the wide field only and leave this value in the narrow one.
_EXTENDED_CODE = 127

_VERSIONS = {"circle": 0, "tflite": 3}

# Stands for a buffer's place in the file while that is not known; any value but 0 takes the same room.
_SOMEWHERE = 1 << 60


def write_model(model: Model, *, inline_limit_bytes: int = INLINE_LIMIT_BYTES) -> bytes:
    """``model`` as a Circle file.

    Raises ModelError for inconsistent records and UnsupportedError for what Circle cannot express. Where all buffers
    together exceed ``inline_limit_bytes`` they follow the flatbuffer, a form that not every Circle reader knows.
    """
    return b"".join(_chunks(model, inline_limit_bytes, circle_schema()))


def write_tflite(model: Model) -> bytes:
    """``model`` as a TFLite file in forms that LiteRT reads; raises ModelError and UnsupportedError, also for what only
    Circle has.
    """
    return b"".join(_chunks(as_litert_reads(model), INLINE_LIMIT_BYTES, tflite_schema()))


def save_model(model: Model, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write ``model`` to ``path`` as a Circle file, whole or not at all; raises like write_model, or OdcError.

    A file that is none of our models is replaced with ``overwrite`` only.
    """
    check_output(path, MODEL, overwrite=overwrite)
    write_file(path, *_chunks(model, INLINE_LIMIT_BYTES, circle_schema()))


def _chunks(model: Model, inline_limit_bytes: int, schema: Schema) -> list[bytes | memoryview]:
    if model.unknown:
        named = "; ".join(model.unknown[:_NAMED_UNKNOWN]) + ("; ..." if len(model.unknown) > _NAMED_UNKNOWN else "")
        raise UnsupportedError(f"this model cannot be written because our schema lacks part of it: {named}")
    try:
        check_model(model)
        record = _model(model, schema)
    except MalformedError as error:
        raise error.public() from None
    total_bytes = sum(len(buffer) for buffer in model.buffers)
    if total_bytes > inline_limit_bytes:
        return _with_outside_buffers(model, record, schema)
    record["buffers"] = [{"data": buffer} if len(buffer) else {} for buffer in model.buffers]
    return [_encode(record, total_bytes, schema)]


def _encode(record: Record, buffer_bytes: int, schema: Schema) -> bytes:
    # A sixteenth for names and scales: what is a little too small is doubled.
    return Encoder(schema, buffer_bytes + (buffer_bytes >> 4) + (64 << 10)).finish(record)


def _with_outside_buffers(model: Model, record: Record, schema: Schema) -> list[bytes | memoryview]:
    """The flatbuffer, then every buffer on a multiple of 16 bytes; their offsets count from the file's start."""
    record["buffers"] = [{"offset": _SOMEWHERE, "size": len(buffer)} if len(buffer) else {} for buffer in model.buffers]
    end = len(_encode(record, 0, schema))
    tail: list[bytes | memoryview] = []
    for entry, buffer in zip(record["buffers"], model.buffers, strict=True):
        if len(buffer):
            padding = -end % _BUFFER_ALIGN
            entry["offset"] = end + padding
            tail += [bytes(padding), buffer]
            end += padding + len(buffer)
    return [_encode(record, 0, schema), *tail]


def _model(model: Model, schema: Schema) -> Record:
    """The root record, all but the buffers."""
    codes: dict[tuple[str, int, str], int] = {}
    subgraphs = []
    for index, subgraph in enumerate(model.subgraphs):
        try:
            subgraphs.append(_subgraph(subgraph, codes, schema))
        except MalformedError as error:
            raise error.within(f"subgraphs[{index}]") from None
    return {
        # The version numbers of one format mean nothing in the other.
        "version": model.version if model.schema == schema.name else _VERSIONS[schema.name],
        "operator_codes": [_operator_code(*code, schema) for code in codes],
        "subgraphs": subgraphs,
        "description": model.description,
        "metadata_buffer": model.metadata_buffer or None,
        "metadata": [{"name": name, "buffer": buffer} for name, buffer in model.metadata] or None,
        "signature_defs": [_signature(signature) for signature in model.signatures] or None,
    }


def _operator_code(name: str, version: int, custom_code: str, schema: Schema) -> Record:
    code = schema.operators.codes[name]
    return {
        "deprecated_builtin_code": min(code, _EXTENDED_CODE),
        "custom_code": custom_code or None,
        "version": version,
        "builtin_code": code,
    }


def _subgraph(subgraph: SubGraph, codes: dict[tuple[str, int, str], int], schema: Schema) -> Record:
    """``codes`` grows by the operators that are new, in order of their first use."""
    operators = []
    for index, operator in enumerate(subgraph.operators):
        if operator.name not in schema.operators.codes:
            raise MalformedError(
                f"{schema.label} has no such operator",
                path=f"operators[{index}]",
                op=operator.label,
                error=UnsupportedError,
            )
        key = (operator.name, operator.version, operator.custom_code)
        operators.append({"opcode_index": codes.setdefault(key, len(codes)), **_operator(operator, schema)})
    return {
        "tensors": [_tensor(tensor, schema) for tensor in subgraph.tensors],
        "inputs": subgraph.inputs,
        "outputs": subgraph.outputs,
        "operators": operators,
        "name": subgraph.name,
        "debug_metadata_index": subgraph.debug_metadata_index,
    }


def _operator(operator: Operator, schema: Schema) -> Record:
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
        second = operator.options_type in schema.unions["BuiltinOptions2"].tags
        record["builtin_options_2" if second else "builtin_options"] = _member(operator.options_type, operator.options)
    return record


def _member(table: str, options: Mapping[str, Any]) -> tuple[str, Record]:
    """A union member; empty vectors and strings are left out, as the reader takes that for the same."""
    return table, {
        name: None if isinstance(value, (tuple, str, bytes)) and not len(value) else value
        for name, value in options.items()
    }


def _tensor(tensor: Tensor, schema: Schema) -> Record:
    variants = [
        {"shape": variant.shape, "type": variant.dtype, "has_rank": variant.has_rank}
        for variant in tensor.variant_tensors
    ]
    return {
        "shape": tensor.shape,
        "type": tensor.dtype,
        "buffer": tensor.buffer,
        "name": tensor.name,
        "quantization": None
        if tensor.quantization is None
        else _quantization(tensor.quantization, tensor.name, schema),
        "is_variable": tensor.is_variable,
        "sparsity": None if tensor.sparsity is None else _sparsity(tensor.sparsity),
        "shape_signature": tensor.shape_signature,
        "has_rank": tensor.has_rank,
        "variant_tensors": variants or None,
        # A field that only Circle has.
        **({} if tensor.compression == "none" else {"compression_type": tensor.compression}),
    }


def _quantization(quantization: Quantization, name: str, schema: Schema) -> Record:
    details = quantization.details
    if details is not None and details[0] not in schema.unions["QuantizationDetails"].tags:
        raise MalformedError(f"{schema.label} has no {details[0]}", path="tensors", tensor=name, error=UnsupportedError)
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
