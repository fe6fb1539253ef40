"""Small models made on the spot, as records and as file bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir import ops
from odc_mlir.formats.circle.model import Model, Operator, Quantization, Signature, SubGraph, Tensor
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.plan import HostStep, Plan

Shape = tuple[int, ...]
Samples = list[list[NDArray[Any]]]  # inputs of runs


class ModelBuilder:
    """Collects tensors and operators; every method that makes a tensor returns its index."""

    def __init__(self) -> None:
        self.model = Model(subgraphs=[SubGraph("main")])
        self.subgraph = self.model.subgraphs[0]

    def tensor(
        self,
        name: str,
        shape: Shape | None,
        dtype: str = "float32",
        *,
        signature: Shape | None = None,
        quant: tuple[float, int] | None = None,
        variable: bool = False,
        data: NDArray[Any] | None = None,
    ) -> int:
        quantization = None
        if quant is not None:
            quantization = Quantization(np.array([quant[0]], np.float32), np.array([quant[1]], np.int64))
        buffer = 0
        if data is not None:
            buffer = len(self.model.buffers)
            self.model.buffers.append(memoryview(data.tobytes()))
        self.subgraph.tensors.append(Tensor(name, dtype, shape, signature, buffer, quantization, is_variable=variable))
        return len(self.subgraph.tensors) - 1

    def operator(self, name: str, inputs: Sequence[int], outputs: Sequence[int], **fields: Any) -> None:
        table = ops.get(name).options if "options_type" not in fields and name in ops.all_specs() else None
        if table is not None:
            fields |= {"options_type": table, "options": default_options(table) | fields.get("options", {})}
        self.subgraph.operators.append(Operator(name, inputs=tuple(inputs), outputs=tuple(outputs), **fields))

    def constant(self, name: str, values: Any, dtype: str = "float32") -> int:
        """Add a constant."""
        array = np.asarray(values, dtype)
        return self.tensor(name, array.shape, dtype, data=array)

    def made(
        self, name: str, shape: Shape | None, operator: str, *operands: int, dtype: str = "float32", **options: Any
    ) -> int:
        """Add an operator with one result, and return this."""
        result = self.tensor(name, shape, dtype)
        self.operator(operator, operands, [result], options=options)
        return result

    def dense(self, name: str, x: int, weights: Any, bias: Any = None, **options: Any) -> int:
        """Add a fully connected layer with ``weights`` of [outputs, inputs]."""
        *sizes, _ = self.subgraph.tensors[x].shape or ()
        constants = [self.constant(f"{name}/w", weights), -1 if bias is None else self.constant(f"{name}/b", bias)]
        return self.made(name, (*sizes, len(weights)), "FULLY_CONNECTED", x, *constants, **options)

    def begin(self, name: str) -> None:
        """Start the next subgraph: tensors and operators from now on are its own."""
        self.subgraph = SubGraph(name)
        self.model.subgraphs.append(self.subgraph)

    def finish(self, inputs: Sequence[int], outputs: Sequence[int]) -> Model:
        self.subgraph.inputs, self.subgraph.outputs = tuple(inputs), tuple(outputs)
        return self.model

    def file(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Finish the model and return its file."""
        return bytes(write_model(self.finish(inputs, outputs)))


def dense_model(
    *weights: NDArray[Any],
    biases: Sequence[NDArray[Any]] = (),
    names: Sequence[str] = (),
    activations: Sequence[str] = (),
) -> bytes:
    """The file of fully connected layers, one behind the other, with ``weights`` of [outputs, inputs].

    Results have ``names``, by default y0, y1 and so on, and fused ``activations``, by default none.
    """
    builder = ModelBuilder()
    x = at = builder.tensor("x", (1, weights[0].shape[1]))
    for place, values in enumerate(weights):
        name, bias = names[place] if names else f"y{place}", biases[place] if biases else None
        options = {"fused_activation_function": activations[place]} if activations else {}
        at = builder.dense(name, at, values, bias, **options)
    return builder.file([x], [at])


def add_model(shape: Shape = (1, 4), signature: Shape | None = None) -> Model:
    """``sum = a + b``, ``out = sum + a`` in float32; tensors 0 a, 1 b, 2 sum, 3 out."""
    builder = ModelBuilder()
    a, b, total, out = (builder.tensor(name, shape, signature=signature) for name in ("a", "b", "sum", "out"))
    builder.operator("ADD", [a, b], [total])
    builder.operator("ADD", [total, a], [out])
    model = builder.finish([a, b], [out])
    model.signatures.append(Signature("serve", 0, {"a": a, "b": b}, {"out": out}))
    return model


def choosing_model() -> Model:
    """``y = x + x`` if c, else ``x * x``: an IF with subgraphs 1 and 2."""
    builder = ModelBuilder()
    c, x, y = builder.tensor("c", (), "bool"), builder.tensor("x", (2,)), builder.tensor("y", (2,))
    builder.operator("IF", [c, x], [y], options={"then_subgraph_index": 1, "else_subgraph_index": 2})
    builder.finish([c, x], [y])
    for name, operator in (("double", "ADD"), ("square", "MUL")):
        builder.begin(name)
        a, b = builder.tensor("a", (2,)), builder.tensor("b", (2,))
        builder.operator(operator, [a, a], [b])
        builder.finish([a], [b])
    return builder.model


def model_bytes(model: Model) -> bytes:
    """The file that holds ``model``."""
    return bytes(write_model(model))


def host_plan(model: Model, **fields: Any) -> Plan:
    """A plan that runs every operator of ``model`` on the host."""
    subgraph = model.subgraphs[0]
    steps = (HostStep(tuple(range(len(subgraph.operators)))),)
    return Plan("model.circle", subgraph.inputs, subgraph.outputs, steps, **fields)
