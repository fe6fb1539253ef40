"""LiteRT's reference kernels as an oracle for single operators; tests that use it skip where it is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.nodes import bind
from odc_mlir.formats.circle.model import Model, Operator, Quantization, SubGraph, Tensor
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Node, TensorInfo

Array = NDArray[Any]

_IDENTIFIER = slice(4, 8)


def reference(made: Node, *inputs: Array, version: int = 1) -> Array:
    """The one result of :func:`reference_all`."""
    (found,) = reference_all(made, *inputs, version=version)
    return found


def reference_all(made: Node, *inputs: Array, version: int = 1, resolver: str = "BUILTIN_REF") -> list[Array]:
    """Results of one operator by LiteRT's reference kernels (its shared tables read alike in both schemas)."""
    (found,) = reference_runs(made, [inputs], version=version, resolver=resolver)
    return found


def reference_runs(
    made: Node, runs: Sequence[Sequence[Array]], *, version: int = 1, resolver: str = "BUILTIN_REF"
) -> list[list[Array]]:
    """Results of runs one after another, between which variables keep their contents."""
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    operands = bind(made, runs[0])
    data = bytearray(write_model(single_operator(made, operands, version)))
    data[_IDENTIFIER] = b"TFL3"
    interpreter = litert.Interpreter(
        model_content=bytes(data), experimental_op_resolver_type=litert.OpResolverType[resolver]
    )
    interpreter.allocate_tensors()
    results = []
    for inputs in runs:
        for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        results.append([np.asarray(interpreter.get_tensor(item["index"])) for item in interpreter.get_output_details()])
    return results


def single_operator(made: Node, operands: Sequence[Array | None], version: int = 1) -> Model:
    """A model of one operator; ``operands`` have values for its inputs, None for constants and variables."""
    buffers = [memoryview(b"")]
    tensors: list[Tensor] = []

    def add(info: TensorInfo, shape: tuple[int, ...] | None) -> int:
        if info.data is not None:
            buffers.append(info.data)
        tensors.append(
            Tensor(
                name=f"t{len(tensors)}",
                dtype=info.dtype,
                shape=shape,
                buffer=len(buffers) - 1 if info.data is not None else 0,
                quantization=_quantization(info),
                is_variable=info.is_variable,
            )
        )
        return len(tensors) - 1

    inputs, graph_inputs = [], []
    for info, value in zip(made.operands, operands, strict=True):
        if info is None:
            inputs.append(-1)
            continue
        inputs.append(add(info, info.static_shape if value is None else value.shape))
        if value is not None:
            graph_inputs.append(inputs[-1])
    outputs = []
    for info, inferred in zip(made.results, made.spec.infer_function(made), strict=True):
        shape = inferred.shape if inferred.shape is not None and None not in inferred.shape else ()
        outputs.append(add(info, tuple(d for d in shape if d is not None)))
    operator = Operator(
        made.spec.name, version, "", tuple(inputs), tuple(outputs), made.spec.options, dict(made.options)
    )
    operator.intermediates = tuple(add(info, (1,)) for info in made.intermediates if info is not None)
    graph = SubGraph("main", tensors, tuple(graph_inputs), tuple(outputs), [operator])
    return Model(version=3, subgraphs=[graph], buffers=buffers)


def _quantization(info: TensorInfo) -> Quantization | None:
    if info.quant is None:
        return None
    scale = np.asarray(info.quant.scales, np.float32)
    return Quantization(scale, np.asarray(info.quant.zero_points, np.int64), info.quant.axis)
