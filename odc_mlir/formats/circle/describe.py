"""A model's records as a document of plain JSON values, for tools that show them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from odc_mlir.formats.circle.model import Model, Operator, Quantization, Signature, Sparsity, SubGraph, Tensor

Document = dict[str, Any]


def describe_model(model: Model) -> Document:
    """Everything in ``model`` but the bytes of constants; keys are stable, bytes appear as hexadecimal text."""
    return {
        "format": model.schema,
        "version": model.version,
        "description": model.description,
        "unknown": list(model.unknown),
        "signatures": [_signature(signature) for signature in model.signatures],
        "metadata": [
            {"name": name, "buffer": buffer, "bytes": len(model.buffers[buffer])} for name, buffer in model.metadata
        ],
        "metadata_buffer": list(model.metadata_buffer),
        "buffers": [{"index": index, "bytes": len(buffer)} for index, buffer in enumerate(model.buffers)],
        "subgraphs": [_subgraph(model, index, subgraph) for index, subgraph in enumerate(model.subgraphs)],
    }


def plain(value: Any) -> Any:
    """``value`` in JSON's own types; floats that JSON lacks become the strings ``nan``, ``inf`` and ``-inf``."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (bytes, memoryview)):
        return value.hex()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _signature(signature: Signature) -> Document:
    return {
        "key": signature.key,
        "subgraph": signature.subgraph,
        "inputs": dict(signature.inputs),
        "outputs": dict(signature.outputs),
    }


def _subgraph(model: Model, index: int, subgraph: SubGraph) -> Document:
    constants, inputs = model.constants(index), set(subgraph.inputs)
    computed = subgraph.computed()
    tensors = []
    for number, tensor in enumerate(subgraph.tensors):
        role = "unused"
        if number in inputs:
            role = "input"
        elif number in constants:
            role = "constant"
        elif tensor.is_variable:
            role = "variable"
        elif number in computed:
            role = "computed"
        tensors.append({"index": number, "role": role, **_tensor(tensor, len(model.buffers[tensor.buffer]))})
    return {
        "index": index,
        "name": subgraph.name,
        "inputs": list(subgraph.inputs),
        "outputs": list(subgraph.outputs),
        "debug_metadata_index": subgraph.debug_metadata_index,
        "tensors": tensors,
        "operators": [{"index": number, **_operator(op)} for number, op in enumerate(subgraph.operators)],
    }


def _tensor(tensor: Tensor, buffer_bytes: int) -> Document:
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": plain(tensor.shape),
        "shape_signature": plain(tensor.shape_signature),
        "buffer": tensor.buffer,
        "bytes": buffer_bytes,
        "is_variable": tensor.is_variable,
        "has_rank": tensor.has_rank,
        "compression": tensor.compression,
        "quantization": None if tensor.quantization is None else _quantization(tensor.quantization),
        "sparsity": None if tensor.sparsity is None else _sparsity(tensor.sparsity),
        "variant_tensors": [
            {"dtype": variant.dtype, "shape": plain(variant.shape), "has_rank": variant.has_rank}
            for variant in tensor.variant_tensors
        ],
    }


def _quantization(quantization: Quantization) -> Document:
    details = quantization.details
    return {
        "scale": plain(quantization.scale),
        "zero_point": plain(quantization.zero_point),
        "axis": quantization.axis,
        "min": plain(quantization.min),
        "max": plain(quantization.max),
        "details": None if details is None else {"type": details[0], **plain(details[1])},
    }


def _sparsity(sparsity: Sparsity) -> Document:
    return {
        "traversal_order": list(sparsity.traversal_order),
        "block_map": list(sparsity.block_map),
        "dims": [
            {
                "format": dim.format,
                "dense_size": dim.dense_size,
                "segments": plain(dim.segments),
                "indices": plain(dim.indices),
            }
            for dim in sparsity.dims
        ],
    }


def _operator(operator: Operator) -> Document:
    return {
        "name": operator.name,
        "version": operator.version,
        "custom_code": operator.custom_code,
        "inputs": list(operator.inputs),
        "outputs": list(operator.outputs),
        "intermediates": list(operator.intermediates),
        "mutating_variable_inputs": list(operator.mutating_variable_inputs),
        "options_type": operator.options_type,
        "options": plain(operator.options),
        "custom_options": plain(operator.custom_options),
        "custom_options_format": operator.custom_options_format,
        "debug_metadata_index": operator.debug_metadata_index,
    }
