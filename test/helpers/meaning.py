"""What a model file means, independent of tensor and buffer numbering: equal for equal models."""

from __future__ import annotations

from typing import Any

import numpy as np

from odc_mlir.formats.circle.model import LEFT_OUT, Model, Quantization, Tensor
from odc_mlir.formats.circle.schema import default_options


class _Numbering:
    """Tensors of one subgraph numbered in the order in which the graph first names them."""

    def __init__(self, model: Model, subgraph: int) -> None:
        self.model = model
        self.graph = model.subgraphs[subgraph]
        self.constants = model.constants(subgraph)
        self.numbers: dict[int, int] = {}
        self.tensors: list[Any] = []

    def number(self, index: int) -> int:
        if index == LEFT_OUT:
            return LEFT_OUT
        if index not in self.numbers:
            self.numbers[index] = len(self.numbers)
            self.tensors.append(self._tensor(self.graph.tensors[index], self.constants.get(index)))
        return self.numbers[index]

    def _tensor(self, tensor: Tensor, data: memoryview | None) -> dict[str, Any]:
        shape = tensor.effective_shape if data is None else (tensor.shape or ())
        # Where subgraphs call one another, no dimensions and no shape say the same: nothing.
        if data is None and tensor.says_nothing and len(self.model.subgraphs) > 1:
            shape = None
        return {
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": shape,
            "data": None if data is None else bytes(data),
            "quantization": _quantization(tensor.quantization, len(tensor.shape or ())),
            "is_variable": tensor.is_variable,
            "sparsity": tensor.sparsity,
        }


def _quantization(record: Quantization | None, rank: int) -> Any:
    if record is None:
        return None
    low, high = record.min.tolist(), record.max.tolist()
    details = record.details if record.details and record.details[0] != "BlockwiseQuantization" else None
    meaning = (record.params(rank or None), low, high, details)
    return None if meaning == (None, [], [], None) else meaning


def meaning_of(model: Model) -> dict[str, Any]:
    """Everything that a user of the file can rely on; ``version`` of a TFLite file is none of it."""
    numberings = [_Numbering(model, index) for index in range(len(model.subgraphs))]
    graphs = []
    for numbering in numberings:
        graph = numbering.graph
        inputs = [numbering.number(index) for index in graph.inputs]
        operators = [
            {
                "name": operator.name,
                "version": operator.version,
                "custom_code": operator.custom_code,
                "custom_options": bytes(operator.custom_options),
                "options": operator.options or default_options(operator.options_type),
                "options_type": operator.options_type,
                "mutating_variable_inputs": operator.mutating_variable_inputs,
                "inputs": [numbering.number(index) for index in operator.inputs],
                "outputs": [numbering.number(index) for index in operator.outputs],
                "intermediates": [numbering.number(index) for index in operator.intermediates],
            }
            for operator in graph.operators
        ]
        outputs = [numbering.number(index) for index in graph.outputs]
        structure = {"inputs": inputs, "operators": operators, "outputs": outputs}
        graphs.append({"name": graph.name, "tensors": numbering.tensors, **structure})
    return {
        "version": model.version if model.schema == "circle" else 0,
        "description": model.description,
        "graphs": graphs,
        "metadata": [(name, bytes(model.buffers[buffer])) for name, buffer in model.metadata],
        "signatures": [
            {
                "key": entry.key,
                "subgraph": entry.subgraph,
                "inputs": [(name, numberings[entry.subgraph].number(index)) for name, index in entry.inputs.items()],
                "outputs": [(name, numberings[entry.subgraph].number(index)) for name, index in entry.outputs.items()],
            }
            for entry in model.signatures
        ],
    }


def shared_buffers(model: Model) -> set[frozenset[tuple[int, str]]]:
    """Groups of constant tensors, as (subgraph, name), that stand on one buffer of more than a few bytes."""
    groups: dict[int, set[tuple[int, str]]] = {}
    for index, graph in enumerate(model.subgraphs):
        for tensor in model.constants(index):
            record = graph.tensors[tensor]
            if len(model.buffers[record.buffer]) > np.dtype("<f8").itemsize:
                groups.setdefault(record.buffer, set()).add((index, record.name))
    return {frozenset(group) for group in groups.values() if len(group) > 1}
