"""Models in the forms that LiteRT reads, for ``.tflite`` files; what they compute is the same.

* It has no kernel of an operator's first version where that was never in a release.
* CONV_2D needs a bias; one that is left out becomes zeros, in the units of its sums.
* Of other convolutions it tells by the number of operands whether the last one, the bias, is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, Quantization, SubGraph, Tensor

_LEAST_VERSIONS: Mapping[str, int] = {"BROADCAST_TO": 2}
_NEEDS_BIAS = "CONV_2D"
_BIAS_BY_COUNT = frozenset({"DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "CONV_3D", "CONV_3D_TRANSPOSE"})
# Element types of sums by those of inputs.
_SUMS: Mapping[str, str] = {"float32": "float32", "int8": "int32", "uint8": "int32", "int16": "int64"}


def as_litert_reads(model: Model) -> Model:
    """``model`` with operators in forms that LiteRT has; shares with it all that stays as it is."""
    buffers = list(model.buffers)
    return replace(model, subgraphs=[_subgraph(subgraph, buffers) for subgraph in model.subgraphs], buffers=buffers)


def _subgraph(subgraph: SubGraph, buffers: list[memoryview]) -> SubGraph:
    """``buffers`` grows by those of new tensors."""
    tensors = list(subgraph.tensors)
    operators = [_operator(operator, tensors, buffers) for operator in subgraph.operators]
    return replace(subgraph, tensors=tensors, operators=operators)


def _operator(operator: Operator, tensors: list[Tensor], buffers: list[memoryview]) -> Operator:
    name, inputs = operator.name, operator.inputs
    if name in _LEAST_VERSIONS:
        return replace(operator, version=max(operator.version, _LEAST_VERSIONS[name]))
    if name in _BIAS_BY_COUNT and inputs[-1:] == (LEFT_OUT,):
        return replace(operator, inputs=inputs[:-1])
    places = range(len(tensors))  # what is damaged is refused when it is written
    if name == _NEEDS_BIAS and inputs[2:] in ((), (LEFT_OUT,)) and all(place in places for place in inputs[:2]):
        made = _zeros(operator, *(tensors[place] for place in inputs[:2]))
        if made is not None:
            bias, contents = made
            tensors.append(replace(bias, buffer=len(buffers)))
            buffers.append(memoryview(contents))
            return replace(operator, inputs=(*inputs[:2], len(tensors) - 1))
    return operator


def _zeros(operator: Operator, x: Tensor, weights: Tensor) -> tuple[Tensor, bytes] | None:
    """A bias of zeros and its contents; None for types and shapes without one."""
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
