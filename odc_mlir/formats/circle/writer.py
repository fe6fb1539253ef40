"""Writers of Circle and TFLite files from records: ``write_model`` and ``write_tflite``.

Equal records give equal bytes. A field with None is omitted. An empty vector or string is written. Buffers at the same
address are stored once. If a model is too large for a flatbuffer, the buffers follow the flatbuffer.

For TFLite files, operators get equivalent forms that LiteRT supports. Operator versions below the first release are
raised. If CONV_2D has no bias, it gets a bias of zeros. Other convolutions drop a missing last operand. Additions of
int16 codes state whether shifts suffice. Conversions from wider codes to uint8 go through int8.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
from flatbuffers import number_types
from numpy.typing import NDArray

from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.formats.circle.model import (
    INDEX_WIDTHS,
    LEFT_OUT,
    Model,
    Operator,
    Quantization,
    Signature,
    SubGraph,
    Tensor,
)
from odc_mlir.formats.circle.reader import MalformedError, Record, check_model, public_errors, within
from odc_mlir.formats.circle.schema import Schema, SchemaField, Table, circle_schema, tflite_schema
from odc_mlir.ops.sparse import DimMetadata, Sparsity

_FLAGS = {
    "bool": number_types.BoolFlags,
    "byte": number_types.Int8Flags,
    "ubyte": number_types.Uint8Flags,
    "short": number_types.Int16Flags,
    "ushort": number_types.Uint16Flags,
    "int": number_types.Int32Flags,
    "uint": number_types.Uint32Flags,
    "long": number_types.Int64Flags,
    "ulong": number_types.Uint64Flags,
    "float": number_types.Float32Flags,
    "double": number_types.Float64Flags,
}

_OFFSET_BYTES = 4


class _TableField(NamedTuple):
    """One field of a table. ``flags`` is None for an offset."""

    nbytes: int
    slot: int
    value: Any
    flags: Any = None
    default: Any = 0


class Encoder:
    """Encoder of one file. ``size_hint_bytes`` avoids repeated growth of the builder's buffer."""

    def __init__(self, schema: Schema, size_hint_bytes: int = 1024) -> None:
        self._schema = schema
        self._builder = flatbuffers.Builder(size_hint_bytes)
        self._strings: dict[str, int] = {}
        self._byte_vectors: dict[tuple[object, int], int] = {}
        self._number_vectors: dict[tuple[bytes, int, int], int] = {}
        # Keeps bytes alive, so that addresses used as keys stay unique.
        self._held: list[memoryview] = []

    def finish(self, record: Mapping[str, Any]) -> bytes:
        """Return the file with ``record`` as its root. Raises ModelError for a value that does not fit its field."""
        try:
            root = self._table(self._schema.tables[self._schema.root], record)
            self._builder.Finish(root, self._schema.identifier)
        except MalformedError as error:
            raise error.public() from None
        except flatbuffers.builder.BuilderSizeError:
            raise ModelError("the model does not fit in one flatbuffer of 2 GiB") from None
        return bytes(memoryview(self._builder.Bytes)[self._builder.Head() :])  # ``Output`` would copy once more

    def _table(self, table: Table, record: Mapping[str, Any]) -> int:
        stray = record.keys() - table.by_name.keys()
        if stray:
            raise MalformedError(f"{sorted(stray)[0]!r} is not a field of {table.name}")
        slots: list[_TableField] = []
        for field in table.live:
            value = record.get(field.name)
            if value is not None:
                try:
                    slots += self._slots(field, value)
                except MalformedError as error:
                    raise error.within(f".{field.name}") from None
                except (struct.error, TypeError, ValueError, OverflowError) as error:
                    raise MalformedError(f"{value!r:.60} cannot be stored: {error}", path=f".{field.name}") from None
        self._builder.StartObject(table.slot_count)
        for entry in sorted(slots, key=lambda entry: -entry.nbytes):  # wide fields first minimise padding
            if entry.flags is None:
                self._builder.PrependUOffsetTRelativeSlot(entry.slot, entry.value, 0)
            else:
                self._builder.PrependSlot(entry.flags, entry.slot, entry.value, entry.default)
        return int(self._builder.EndObject())

    def _slots(self, field: SchemaField, value: Any) -> list[_TableField]:
        if field.kind in ("scalar", "enum") and field.scalar is not None:
            default = self._code(field, field.default)
            return [
                _TableField(field.scalar.size, field.slot, self._code(field, value), _FLAGS[field.scalar.name], default)
            ]
        if field.kind != "union":
            return [_TableField(_OFFSET_BYTES, field.slot, self._object(field, value))]
        name, record = value
        tag = self._schema.unions[field.type].tags.get(name)
        if tag is None:
            raise MalformedError(f"{name!r} is not a member of {field.type}")
        table = self._table(self._schema.tables[name], record)
        return [_TableField(1, field.slot - 1, tag, _FLAGS["ubyte"], 0), _TableField(_OFFSET_BYTES, field.slot, table)]

    def _code(self, field: SchemaField, value: Any) -> Any:
        if field.kind == "enum" or field.element == "enum":
            try:
                return self._schema.enums[field.type].code_of(value)
            except OdcError as error:
                raise MalformedError(error.message) from None
        if field.scalar is not None:
            field.scalar.struct.pack(value)
        return value

    def _object(self, field: SchemaField, value: Any) -> int:
        if field.kind == "string":
            return self._string(value)
        if field.kind == "table":
            return self._table(self._schema.tables[field.type], value)
        if field.element in ("string", "table"):
            return self._offsets([self._entry(field, index, item) for index, item in enumerate(value)])
        if field.type == "ubyte":
            return self._bytes(value if isinstance(value, bytes) else memoryview(value).cast("B"), max(field.align, 1))
        return self._numbers(field, value)

    def _entry(self, field: SchemaField, index: int, item: Any) -> int:
        with within(f"[{index}]"):
            return (
                self._string(item) if field.element == "string" else self._table(self._schema.tables[field.type], item)
            )

    def _string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = self._builder.CreateString(text)
        return self._strings[text]

    def _offsets(self, targets: Sequence[int]) -> int:
        self._builder.StartVector(_OFFSET_BYTES, len(targets), _OFFSET_BYTES)
        for target in reversed(targets):
            self._builder.PrependUOffsetTRelative(target)
        return int(self._builder.EndVector())

    def _bytes(self, data: bytes | memoryview, align: int) -> int:
        """Write a vector of ubyte. Views of the same bytes are written once.

        Equal ``bytes`` objects are also written once, because sharing must not depend on the origin of the records.
        """
        key: tuple[object, int]
        if isinstance(data, bytes):
            key = (data, align)
        else:
            self._held.append(data)
            key = ((np.frombuffer(data, np.uint8).ctypes.data, len(data)) if len(data) else b"", align)
        if key not in self._byte_vectors:
            self._byte_vectors[key] = self._paste(data, 1, len(data), align)
        return self._byte_vectors[key]

    def _numbers(self, field: SchemaField, values: Sequence[Any] | NDArray[Any]) -> int:
        if field.scalar is None:
            raise MalformedError(f"vectors of {field.type} are not supported")
        if not isinstance(values, np.ndarray):
            values = np.array([self._code(field, value) for value in values], field.scalar.dtype)
        elif values.dtype != np.dtype(field.scalar.dtype) or values.ndim != 1:
            raise MalformedError(
                f"an array {values.dtype}{list(values.shape)} where a {field.scalar.dtype} vector goes"
            )
        # Equal vectors are written once: shapes, index lists and zero points per channel repeat often.
        key = values.tobytes(), field.scalar.size, max(field.align, field.scalar.size)
        if key not in self._number_vectors:
            self._number_vectors[key] = self._paste(key[0], key[1], len(values), key[2])
        return self._number_vectors[key]

    def _paste(self, data: bytes | memoryview, element_bytes: int, count: int, align: int) -> int:
        """Write a vector of encoded bytes. The builder's own functions write single elements or cannot align."""
        builder = self._builder
        builder.StartVector(element_bytes, count, align)
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        return int(builder.EndVector())


_LEAST_VERSIONS: Mapping[str, int] = {"BROADCAST_TO": 2}
_NEEDS_BIAS = "CONV_2D"
_BIAS_BY_COUNT = frozenset({"DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "CONV_3D", "CONV_3D_TRANSPOSE"})
_SUMS_BY_SHIFTS = frozenset({"ADD", "SUB"})
_LARGEST_SHIFT = 31
_WIDER_THAN_BYTES = frozenset({"int16", "int32"})
_SIGN_OFFSET = 128
# Element types of sums by element type of inputs.
_SUMS: Mapping[str, str] = {"float32": "float32", "int8": "int32", "uint8": "int32", "int16": "int64"}


def as_litert_reads(model: Model) -> Model:
    """Return ``model`` with operators in forms that LiteRT supports. Other parts are the same objects."""
    buffers = list(model.buffers)
    return replace(
        model, subgraphs=[_litert_subgraph(subgraph, buffers) for subgraph in model.subgraphs], buffers=buffers
    )


def _litert_subgraph(subgraph: SubGraph, buffers: list[memoryview]) -> SubGraph:
    tensors = list(subgraph.tensors)
    operators = [
        _litert_operator(part, tensors, buffers)
        for operator in subgraph.operators
        for part in _equivalent_steps(operator, tensors)
    ]
    return replace(subgraph, tensors=tensors, operators=operators)


def _equivalent_steps(operator: Operator, tensors: list[Tensor]) -> list[Operator]:
    if operator.name != "QUANTIZE" or len(operator.inputs) != 1 or len(operator.outputs) != 1:
        return [operator]
    source, result = _tensors_at(tensors, (*operator.inputs, *operator.outputs))
    if source.dtype not in _WIDER_THAN_BYTES or result.dtype != "uint8" or result.quantization is None:
        return [operator]
    signed = replace(result.quantization, zero_point=result.quantization.zero_point - _SIGN_OFFSET)
    tensors.append(replace(result, name=f"{result.name}/signed", dtype="int8", quantization=signed))
    between = (len(tensors) - 1,)
    return [replace(operator, outputs=between), replace(operator, inputs=between)]


def _litert_operator(operator: Operator, tensors: list[Tensor], buffers: list[memoryview]) -> Operator:
    name, inputs = operator.name, operator.inputs
    if name in _LEAST_VERSIONS:
        return replace(operator, version=max(operator.version, _LEAST_VERSIONS[name]))
    if name in _BIAS_BY_COUNT and inputs[-1:] == (LEFT_OUT,):
        return replace(operator, inputs=inputs[:-1])
    if name in _SUMS_BY_SHIFTS and _is_no_shift(_tensors_at(tensors, (*inputs, *operator.outputs))):
        return replace(operator, options={**operator.options, "pot_scale_int16": False})
    if name == _NEEDS_BIAS and inputs[2:] in ((), (LEFT_OUT,)):
        made = _zero_bias(operator, *_tensors_at(tensors, inputs[:2]))
        if made is not None:
            bias, contents = made
            tensors.append(replace(bias, buffer=len(buffers)))
            buffers.append(memoryview(contents))
            return replace(operator, inputs=(*inputs[:2], len(tensors) - 1))
    return operator


def _tensors_at(tensors: Sequence[Tensor], places: Sequence[int]) -> list[Tensor]:
    nothing = Tensor("", "", ())
    return [tensors[place] if 0 <= place < len(tensors) else nothing for place in places]


def _is_no_shift(tensors: Sequence[Tensor]) -> bool:
    """Return whether scales of int16 codes, all powers of two, need more than a shift of one operand.

    For other scales, the option has no meaning.
    """
    scales = [tensor.quantization.scale for tensor in tensors if tensor.quantization and tensor.dtype == "int16"]
    if len(tensors) != 3 or len(scales) != 3 or any(scale.size != 1 or not 0 < scale[0] < np.inf for scale in scales):
        return False
    left, right, result = (round(math.log2(scale[0])) for scale in scales)
    return max(left, right) != result or min(left, right) < result - _LARGEST_SHIFT


def _zero_bias(operator: Operator, x: Tensor, weights: Tensor) -> tuple[Tensor, bytes] | None:
    """Return a bias of zeros and its contents, or None if type or shape allow no bias."""
    dtype, scale, filters = _SUMS.get(x.dtype), x.quantization, weights.quantization
    if x.dtype == "int16" and operator.options.get("quantized_bias_type") == "int32":
        dtype = "int32"
    if dtype is None or not weights.shape or weights.shape[0] < 1:
        return None
    bias = Tensor(f"{weights.name}/no_bias", dtype, weights.shape[:1])
    if dtype != "float32":
        if scale is None or filters is None or not scale.scale.size:
            return None
        units = np.maximum(filters.scale * scale.scale[0], np.finfo(np.float32).tiny, dtype=np.float32)
        bias.quantization = Quantization(units, np.zeros(units.size, np.int64))
    return bias, np.zeros(weights.shape[0], dtype).tobytes()


# Offsets in a flatbuffer have 31 bits. 256 MiB are reserved for everything except buffers.
INLINE_LIMIT_BYTES = (1 << 31) - (256 << 20)

_BUFFER_ALIGN = 16

# Longest list of unknown parts in a message.
_NAMED_UNKNOWN = 4

# Larger codes are stored in the wide field, and the narrow field holds this value.
_EXTENDED_CODE = 127

_VERSIONS = {"circle": 0, "tflite": 3}

# Placeholder for a buffer's offset in the file. All nonzero values need the same space.
_SOMEWHERE = 1 << 60


def write_model(model: Model, *, inline_limit_bytes: int = INLINE_LIMIT_BYTES) -> bytes:
    """Return ``model`` as a Circle file. Raises ModelError, and UnsupportedError for parts of other schemas.

    If buffers exceed ``inline_limit_bytes`` in total, they follow the flatbuffer. Few Circle readers support this.
    """
    return b"".join(_chunks(model, inline_limit_bytes, circle_schema()))


def write_tflite(model: Model) -> bytes:
    """Return ``model`` as a TFLite file in forms that LiteRT supports.

    Raises ModelError, and UnsupportedError, for example for operators that only Circle has.
    """
    return b"".join(_chunks(as_litert_reads(model), INLINE_LIMIT_BYTES, tflite_schema()))


def _chunks(model: Model, inline_limit_bytes: int, schema: Schema) -> list[bytes | memoryview]:
    if model.unknown:
        named = "; ".join(model.unknown[:_NAMED_UNKNOWN]) + ("; ..." if len(model.unknown) > _NAMED_UNKNOWN else "")
        raise UnsupportedError(f"this model cannot be written because our schema lacks part of it: {named}")
    with public_errors():
        check_model(model)
        record = _model(model, schema)
    total_bytes = sum(len(buffer) for buffer in model.buffers)
    if total_bytes > inline_limit_bytes:
        return _with_outside_buffers(model, record, schema)
    record["buffers"] = [{"data": buffer} if len(buffer) else {} for buffer in model.buffers]
    return [_encode(record, total_bytes, schema)]


def _encode(record: Record, buffer_bytes: int, schema: Schema) -> bytes:
    # Add a sixteenth for names and scales, because the builder doubles a buffer that is too small.
    return Encoder(schema, buffer_bytes + (buffer_bytes >> 4) + (64 << 10)).finish(record)


def _with_outside_buffers(model: Model, record: Record, schema: Schema) -> list[bytes | memoryview]:
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
    codes: dict[tuple[str, int, str], int] = {}
    subgraphs = []
    for index, subgraph in enumerate(model.subgraphs):
        with within(f"subgraphs[{index}]"):
            subgraphs.append(_subgraph(subgraph, codes, schema))
    return {
        # Circle and TFLite number versions differently.
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
    operators = []
    for index, operator in enumerate(subgraph.operators):
        with within(f"operators[{index}]", op=operator.label):
            if operator.name not in schema.operators.codes:
                raise MalformedError(f"{schema.label} has no such operator", error=UnsupportedError)
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
    """Return a union member without empty vectors and strings. The reader does not distinguish these from None."""
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
        # Only Circle has this field.
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
