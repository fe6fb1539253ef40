"""Conversion of models to equivalent forms that LiteRT reads, for ``.tflite`` files.

* It has no kernel of an operator's first version where that was never in a release.
* CONV_2D needs a bias; one that is left out becomes zeros, in the units of its sums.
* Of other convolutions it tells by the number of operands whether the last one, the bias, is there.
* Sums of int16 codes whose scales are powers of two are made by shifts of one operand, and refused where that is not
  enough, unless an option says not to.
* Wider codes become uint8 by way of int8 ones, which differ from these by an offset only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, Quantization, SubGraph, Tensor

_LEAST_VERSIONS: Mapping[str, int] = {"BROADCAST_TO": 2}
_NEEDS_BIAS = "CONV_2D"
_BIAS_BY_COUNT = frozenset({"DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "CONV_3D", "CONV_3D_TRANSPOSE"})
_SUMS_BY_SHIFTS = frozenset({"ADD", "SUB"})
_LARGEST_SHIFT = 31
_WIDER_THAN_BYTES = frozenset({"int16", "int32"})
_SIGN_OFFSET = 128
# Element types of sums by those of inputs.
_SUMS: Mapping[str, str] = {"float32": "float32", "int8": "int32", "uint8": "int32", "int16": "int64"}


def as_litert_reads(model: Model) -> Model:
    """``model`` with operators in forms that LiteRT has; shares with it all that stays as it is."""
    buffers = list(model.buffers)
    return replace(model, subgraphs=[_subgraph(subgraph, buffers) for subgraph in model.subgraphs], buffers=buffers)


def _subgraph(subgraph: SubGraph, buffers: list[memoryview]) -> SubGraph:
    """Converter of one subgraph; appends the buffers of new tensors to ``buffers``."""
    tensors = list(subgraph.tensors)
    operators = [
        _operator(part, tensors, buffers) for operator in subgraph.operators for part in _in_steps(operator, tensors)
    ]
    return replace(subgraph, tensors=tensors, operators=operators)


def _in_steps(operator: Operator, tensors: list[Tensor]) -> list[Operator]:
    """Return ``operator`` or an equivalent sequence; append intermediate tensors to ``tensors``."""
    if operator.name != "QUANTIZE" or len(operator.inputs) != 1 or len(operator.outputs) != 1:
        return [operator]
    source, result = _some(tensors, (*operator.inputs, *operator.outputs))
    if source.dtype not in _WIDER_THAN_BYTES or result.dtype != "uint8" or result.quantization is None:
        return [operator]
    signed = replace(result.quantization, zero_point=result.quantization.zero_point - _SIGN_OFFSET)
    tensors.append(replace(result, name=f"{result.name}/signed", dtype="int8", quantization=signed))
    between = (len(tensors) - 1,)
    return [replace(operator, outputs=between), replace(operator, inputs=between)]


def _operator(operator: Operator, tensors: list[Tensor], buffers: list[memoryview]) -> Operator:
    name, inputs = operator.name, operator.inputs
    if name in _LEAST_VERSIONS:
        return replace(operator, version=max(operator.version, _LEAST_VERSIONS[name]))
    if name in _BIAS_BY_COUNT and inputs[-1:] == (LEFT_OUT,):
        return replace(operator, inputs=inputs[:-1])
    if name in _SUMS_BY_SHIFTS and _is_no_shift(_some(tensors, (*inputs, *operator.outputs))):
        return replace(operator, options={**operator.options, "pot_scale_int16": False})
    if name == _NEEDS_BIAS and inputs[2:] in ((), (LEFT_OUT,)):
        made = _zeros(operator, *_some(tensors, inputs[:2]))
        if made is not None:
            bias, contents = made
            tensors.append(replace(bias, buffer=len(buffers)))
            buffers.append(memoryview(contents))
            return replace(operator, inputs=(*inputs[:2], len(tensors) - 1))
    return operator


def _some(tensors: Sequence[Tensor], places: Sequence[int]) -> list[Tensor]:
    """Return the tensors at these indices, None for a missing one; the writer rejects those."""
    nothing = Tensor("", "", ())
    return [tensors[place] if 0 <= place < len(tensors) else nothing for place in places]


def _is_no_shift(tensors: Sequence[Tensor]) -> bool:
    """Whether all are int16 codes whose scales, if they are powers of two, need more than a shift of one operand.

    Where they are no powers of two, the option says nothing.
    """
    scales = [tensor.quantization.scale for tensor in tensors if tensor.quantization and tensor.dtype == "int16"]
    if len(tensors) != 3 or len(scales) != 3 or any(scale.size != 1 or not 0 < scale[0] < np.inf for scale in scales):
        return False
    left, right, result = (round(math.log2(scale[0])) for scale in scales)
    return max(left, right) != result or min(left, right) < result - _LARGEST_SHIFT


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
