"""A model and its inputs."""

from __future__ import annotations

import numpy as np

from odc_mlir import ops
from odc_mlir.formats.circle.model import EMPTY, Model, Operator, SubGraph, Tensor
from odc_mlir.formats.circle.schema import default_options

ROWS, SIZE = 64, 256


def layers() -> Model:
    """Return three fully connected layers, each with LOGISTIC behind it."""
    random, graph, buffers = np.random.default_rng(4), SubGraph("main"), [EMPTY]
    graph.tensors.append(Tensor("x", "float32", (ROWS, SIZE)))
    last = 0
    for number in range(3):
        weights = random.normal(0, 0.1, (SIZE, SIZE)).astype(np.float32)
        graph.tensors.append(Tensor(f"w{number}", "float32", weights.shape, buffer=len(buffers)))
        buffers.append(memoryview(weights.tobytes()))
        for name, inputs in (("FULLY_CONNECTED", (last, len(graph.tensors) - 1, -1)), ("LOGISTIC", ())):
            table = ops.get(name).options
            graph.tensors.append(Tensor(f"{name.lower()}{number}", "float32", (ROWS, SIZE)))
            result = len(graph.tensors) - 1
            options = {"options_type": table, "options": default_options(table)} if table else {}
            graph.operators.append(Operator(name, inputs=inputs or (last,), outputs=(result,), **options))
            last = result
    graph.inputs, graph.outputs = (0,), (last,)
    return Model(subgraphs=[graph], buffers=buffers)


def sample(seed: int = 1) -> np.ndarray:
    """Return an input of the model."""
    return np.random.default_rng(seed).normal(size=(ROWS, SIZE)).astype(np.float32)
