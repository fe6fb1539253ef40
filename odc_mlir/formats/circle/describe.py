"""Conversion of a model to JSON values, for tools that display models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from odc_mlir.formats.circle.model import Model, Quantization, SubGraph

Document = dict[str, Any]


def describe_model(model: Model) -> Document:
    """Return the contents of ``model`` without constants, with stable keys. Other bytes are hexadecimal text."""
    return {
        "format": model.schema,
        "version": model.version,
        "description": model.description,
        "unknown": list(model.unknown),
        "signatures": plain(model.signatures),
        "metadata": [
            {"name": name, "buffer": buffer, "bytes": len(model.buffers[buffer])} for name, buffer in model.metadata
        ],
        "metadata_buffer": list(model.metadata_buffer),
        "buffers": [{"index": index, "bytes": len(buffer)} for index, buffer in enumerate(model.buffers)],
        "subgraphs": [_subgraph(model, index, subgraph) for index, subgraph in enumerate(model.subgraphs)],
    }


def plain(value: Any) -> Any:
    """Return ``value`` as JSON types: records as objects, infinite floats and NaN as strings."""
    if is_dataclass(value):
        found = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        if isinstance(value, Quantization) and value.details is not None:
            found["details"] = {"type": value.details[0], **plain(value.details[1])}
        return found
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
        tensors.append({"index": number, "role": role, **plain(tensor), "bytes": len(model.buffers[tensor.buffer])})
    operators = [{"index": number, **plain(operator)} for number, operator in enumerate(subgraph.operators)]
    return {
        "index": index,
        **plain(replace(subgraph, tensors=[], operators=[])),
        "tensors": tensors,
        "operators": operators,
    }
