"""Recurrent operators with random weights, in all their forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.nodes import const, node, quant, tensor, variable
from odc_mlir import ops
from odc_mlir.ops.recurrent import GATES, PEEPHOLE_GATES
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo

Array = NDArray[Any]

X_QUANT, H_QUANT, HIDDEN_QUANT = quant(0.02, -5), quant(0.0078, 3), quant(0.007, -4)
STATE_SCALE = 2.0**-11


@dataclass(frozen=True)
class Form:
    """What an LSTM has; ``weights`` is float32, int8 or uint8 (on real inputs), or codes (everything is quantised)."""

    weights: str = "float32"
    coupled: bool = False
    peephole: bool = False
    projection: bool = False
    projection_bias: bool = True
    norm: bool = False
    diagonal: bool = False
    steps: int = 4
    batch: int = 2
    features: int = 3
    cells: int = 5
    outputs: int = 2  # with projection

    @property
    def codes(self) -> bool:
        return self.weights == "codes"

    @property
    def out(self) -> int:
        return self.outputs if self.projection else self.cells


class Builder:
    """Operands of one form, drawn from a generator."""

    def __init__(self, form: Form, seed: int) -> None:
        self.form, self.rng = form, np.random.default_rng(seed)

    def matrix(self, *shape: int, scale: float = 0.01) -> TensorInfo:
        """Weights; a vector is a diagonal."""
        if self.form.weights == "float32" or len(shape) == 1:
            return const(self.rng.normal(size=shape) * 0.6, "float32")
        kind = "uint8" if self.form.weights == "uint8" else "int8"
        codes = self.rng.integers(-127, 128, shape).astype(np.int8)
        return const(codes.view(kind), kind, quant(scale * self.rng.uniform(0.5, 1.5)))

    def vector(self, size: int, *, codes: str, scale: float, low: float = -1.0) -> TensorInfo:
        """Biases (``scale`` 0), weights of cells, coefficients: float32, or codes of type ``codes``."""
        if not self.form.codes:
            return const(self.rng.uniform(low, 1, size), "float32")
        limit = 2000 if codes == "int32" else 20000
        return const(self.rng.integers(int(low * limit), limit, size), codes, quant(scale) if scale else None)

    def peephole(self, size: int) -> TensorInfo:
        if self.form.weights in ("int8", "uint8"):
            codes = self.rng.integers(-127, 128, size).astype(np.int8)
            return const(codes.view(self.form.weights), self.form.weights, quant(0.01))
        return self.vector(size, codes="int16", scale=1 / 32768)

    def cell(self) -> dict[str, TensorInfo]:
        """Operands of one cell by their names."""
        form = self.form
        gates = GATES[1:] if form.coupled else GATES
        recurrent = (form.cells,) if form.diagonal else (form.cells, form.out)
        made: dict[str, TensorInfo] = {}
        for gate in gates:
            made[f"input_to_{gate}_weights"] = self.matrix(form.cells, form.features)
            made[f"recurrent_to_{gate}_weights"] = self.matrix(*recurrent)
            made[f"{gate}_gate_bias"] = self.vector(form.cells, codes="int32", scale=0)
            if form.norm:
                name = f"{gate}_layer_norm_coefficients"
                made[name] = self.vector(form.cells, codes="int16", scale=1 / 16384, low=0.1)
            if form.peephole and gate in PEEPHOLE_GATES:
                made[f"cell_to_{gate}_weights"] = self.peephole(form.cells)
        if form.projection:
            made["projection_weights"] = self.matrix(form.out, form.cells)
            if form.projection_bias:
                made["projection_bias"] = self.vector(form.out, codes="int32", scale=0)
        return made

    def states(self) -> dict[str, TensorInfo]:
        form = self.form
        kinds = ("int8", "int16") if form.codes else ("float32", "float32")
        quants = (H_QUANT, quant(STATE_SCALE)) if form.codes else (None, None)
        shapes = (form.batch, form.out), (form.batch, form.cells)
        names = ("output_state", "cell_state")
        return {
            name: variable(kind, shape, params)
            for name, kind, shape, params in zip(names, kinds, shapes, quants, strict=True)
        }

    def x(self, *shape: int) -> Array:
        """Random inputs."""
        if self.form.codes:
            return self.rng.integers(-128, 128, shape).astype(np.int8)
        return self.rng.normal(size=shape).astype(np.float32)

    def input(self, *shape: int) -> TensorInfo:
        return tensor("int8", shape, X_QUANT) if self.form.codes else tensor("float32", shape)

    def output(self) -> TensorInfo:
        return tensor("int8", None, H_QUANT) if self.form.codes else tensor("float32", None)

    def intermediates(self) -> tuple[TensorInfo, ...]:
        """Tensors that hold scales only: of the gates before normalisation, and of hidden values."""
        if not self.form.codes:
            return ()
        scales: list[QuantParams] = [quant(self.rng.uniform(2e-4, 6e-4)) for _ in GATES]
        hidden = HIDDEN_QUANT if self.form.projection else H_QUANT
        return (*(tensor("int16", (1,), q) for q in scales), tensor("int8", (1,), hidden))


def sequence_lstm(form: Form, seed: int, **options: Any) -> tuple[Node, list[list[Array]]]:
    """A UNIDIRECTIONAL_SEQUENCE_LSTM and the inputs of three runs."""
    builder = Builder(form, seed)
    time_major = options.get("time_major", False)
    shape = (form.steps, form.batch) if time_major else (form.batch, form.steps)
    runs = [[builder.x(*shape, form.features)] for _ in range(3)]
    operands = {"input": builder.input(*shape, form.features), **builder.cell(), **builder.states()}
    return _node("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, builder, options), runs


def full_lstm(form: Form, seed: int, **options: Any) -> tuple[Node, list[list[Array]]]:
    """An LSTM of the full kernel and the inputs of three runs."""
    builder = Builder(form, seed)
    runs = [[builder.x(form.batch, form.features)] for _ in range(3)]
    operands = {"input": builder.input(form.batch, form.features), **builder.cell(), **builder.states()}
    return _node("LSTM", operands, builder, options), runs


def named_operands(name: str, operands: dict[str, TensorInfo]) -> list[TensorInfo | None]:
    """Operands in the table's order; raises for one that the table lacks."""
    names = [operand.name for operand in ops.get(name).operands]
    assert set(operands) <= set(names)
    return [operands.get(operand) for operand in names]


def _node(name: str, operands: dict[str, TensorInfo], builder: Builder, options: dict[str, Any]) -> Node:
    chosen = {"fused_activation_function": "tanh", **options}
    made = node(name, named_operands(name, operands), builder.output(), **chosen)
    made.intermediates = builder.intermediates()
    return made


def bidirectional_lstm(form: Form, seed: int, *, aux: str = "", **options: Any) -> tuple[Node, list[list[Array]]]:
    """A BIDIRECTIONAL_SEQUENCE_LSTM; ``aux``: "beside" has weights of its own, "instead" is the backward input."""
    builder = Builder(form, seed)
    shape = (form.steps, form.batch) if options.get("time_major", True) else (form.batch, form.steps)
    operands = {"input": builder.input(*shape, form.features)}
    for way in ("fw_", "bw_"):
        operands |= {way + name: info for name, info in (builder.cell() | builder.states()).items()}
    inputs = 1 + bool(aux)
    if aux:
        operands["aux_input"] = builder.input(*shape, form.features)
    if aux == "beside":
        gates = GATES[1:] if form.coupled else GATES
        for name in (f"{way}aux_input_to_{gate}_weights" for way in ("fw_", "bw_") for gate in gates):
            operands[name] = builder.matrix(form.cells, form.features)
    runs = [[builder.x(*shape, form.features) for _ in range(inputs)] for _ in range(3)]
    return _both_ways("BIDIRECTIONAL_SEQUENCE_LSTM", operands, builder, options), runs


def rnn(name: str, form: Form, seed: int, *, aux: str = "", **options: Any) -> tuple[Node, list[list[Array]]]:
    """RNN, UNIDIRECTIONAL_SEQUENCE_RNN or BIDIRECTIONAL_SEQUENCE_RNN of ``form.cells`` units."""
    builder = Builder(form, seed)
    shape: tuple[int, ...] = (form.steps, form.batch) if options.get("time_major") else (form.batch, form.steps)
    shape = (form.batch,) if name == "RNN" else shape
    ways = ("fw_", "bw_") if name.startswith("BI") else ("",)
    operands = {"input": builder.input(*shape, form.features)}
    for way in ways:
        operands[f"{way}input_weights"] = builder.matrix(form.cells, form.features)
        operands[f"{way}recurrent_weights"] = builder.matrix(form.cells, form.cells)
        operands[f"{way}bias"] = builder.vector(form.cells, codes="", scale=0)
        operands[f"{way}hidden_state"] = variable("float32", (form.batch, form.cells))
    if aux:
        operands["aux_input"] = builder.input(*shape, form.features)
    if aux == "beside":
        operands |= {f"{way}aux_input_weights": builder.matrix(form.cells, form.features) for way in ways}
    runs = [[builder.x(*shape, form.features) for _ in range(1 + bool(aux))] for _ in range(3)]
    if len(ways) == 2:
        return _both_ways(name, operands, builder, options), runs
    return _node(name, operands, builder, options), runs


def svdf(
    form: Form, seed: int, *, rank: int = 2, memory: int = 3, bias: bool = True, **options: Any
) -> tuple[Node, list[list[Array]]]:
    """An SVDF of ``form.cells`` units and the inputs of five runs."""
    builder = Builder(form, seed)
    filters, rng = rank * form.cells, builder.rng
    operands = {
        "input": builder.input(form.batch, form.features),
        "weights_feature": builder.matrix(filters, form.features),
        "weights_time": builder.matrix(filters, memory),
        "state": variable("float32", (form.batch, filters * memory)),
    }
    if form.codes:
        codes = rng.integers(-20000, 20000, (filters, memory))
        operands["weights_time"] = const(codes, "int16", quant(2.0**-15))
        operands["state"] = variable("int16", (form.batch, filters * memory), quant(3e-4))
    if bias:
        operands["bias"] = builder.vector(form.cells, codes="int32", scale=0)
    runs = [[builder.x(form.batch, form.features)] for _ in range(5)]
    return _node("SVDF", operands, builder, {"rank": rank, "fused_activation_function": "relu", **options}), runs


def basic_lstm(
    *, codes: bool, seed: int, batch: int = 2, features: int = 3, outputs: int = 4
) -> tuple[Node, list[list[Array]]]:
    """An LSTM of the basic kernel and the inputs of three runs: input, last output and cell state."""
    rng = np.random.default_rng(seed)
    sizes = outputs, outputs, features + outputs, 4 * outputs
    weights, bias = rng.normal(size=(sizes[3], sizes[2])), rng.normal(size=sizes[3])
    if codes:
        unit, state, weight_quant = quant(1 / 128, 128), quant(2.0**-11), quant(0.02, 121)
        kinds = ("uint8", unit), ("int16", state), ("uint8", unit), ("int16", quant(2.0**-12))
        operands = [
            tensor("uint8", (batch, features), unit),
            tensor("uint8", (batch, outputs), unit),
            const(rng.integers(0, 256, weights.shape), "uint8", weight_quant),
            const(rng.integers(-3000, 3000, bias.shape), "int32", quant(0.02 / 128)),
            tensor("int16", (batch, outputs), state),
        ]
        bytes = (rng.integers(0, 256, (3, batch, size)).astype(np.uint8) for size in (features, outputs))
        words = rng.integers(-(2**15), 2**15, (3, batch, outputs)).astype(np.int16)
        runs = [list(run) for run in zip(*bytes, words, strict=True)]
    else:
        kinds = (("float32", None),) * 4
        operands = [
            tensor("float32", (batch, features)),
            tensor("float32", (batch, outputs)),
            const(weights, "float32"),
            const(bias, "float32"),
            tensor("float32", (batch, outputs)),
        ]
        runs = [[rng.normal(size=(batch, size)).astype(np.float32) for size in sizes[:2] + sizes[:1]] for _ in range(3)]
        for run in runs:
            run[0] = rng.normal(size=(batch, features)).astype(np.float32)
    results = [tensor(kind, (batch, size), params) for (kind, params), size in zip(kinds, sizes, strict=True)]
    return node("LSTM", operands, results, kernel_type="basic", fused_activation_function="tanh"), runs


def _both_ways(name: str, operands: dict[str, TensorInfo], builder: Builder, options: dict[str, Any]) -> Node:
    results = [builder.output() for _ in range(1 if options.get("merge_outputs") else 2)]
    chosen = {"fused_activation_function": "tanh", **options}
    return node(name, named_operands(name, operands), results, **chosen)
