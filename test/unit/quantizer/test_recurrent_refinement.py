"""Rounding by samples of what a recurrent cell multiplies: as one operator, and written out step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.quantizer.policy.products import Product, with_all_states
from odc_mlir.runtime.execution.graph import Graph, build_graph

STEPS, FEATURES, UNITS, SAMPLES = 4, 8, 12, 32
KINDS = ("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "GRU", "last GRU")


class Net(ModelBuilder):
    """A builder with random weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(4)

    def matrix(self, name: str, *shape: int) -> int:
        values = self.random.standard_normal(shape) / np.sqrt(shape[-1])
        return self.tensor(name, shape, data=values.astype(np.float32))


def recurrent(kind: str) -> bytes:
    """One recurrent operator; the time axis is the first."""
    n = Net()
    x = n.tensor("x", (STEPS, 1, FEATURES))
    last, name = kind.startswith("last "), kind.removeprefix("last ")
    options: dict[str, Any] = {"fused_activation_function": "tanh"}
    if name == "GRU":
        state = n.tensor("state", (1, UNITS), data=np.full((1, UNITS), 0.25, np.float32))
        by_input, input_bias = n.matrix("wx", 3 * UNITS, FEATURES), n.matrix("bx", 3 * UNITS)
        operands = [x, by_input, input_bias, n.matrix("wh", 3 * UNITS, UNITS), n.matrix("bh", 3 * UNITS), state]
        options["return_sequences"] = not last
    elif name == "UNIDIRECTIONAL_SEQUENCE_RNN":
        state = n.tensor("state", (1, UNITS), variable=True)
        operands = [x, n.matrix("wx", UNITS, FEATURES), n.matrix("wh", UNITS, UNITS), n.matrix("b", UNITS), state]
        options["time_major"] = True
    else:
        states = [n.tensor(name, (1, UNITS), variable=True) for name in ("state", "cell")]
        by_input = [n.matrix(f"wx{gate}", UNITS, FEATURES) for gate in range(4)]
        by_state = [n.matrix(f"wh{gate}", UNITS, UNITS) for gate in range(4)]
        biases = [n.matrix(f"b{gate}", UNITS) for gate in range(4)]
        operands = [x, *by_input, *by_state, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1]
        options["time_major"] = True
    y = n.tensor("y", (1, UNITS) if last else (STEPS, 1, UNITS))
    n.operator(name, operands, [y], options=options)
    return model_bytes(n.finish([x], [y]))


def unrolled() -> bytes:
    """A cell step by step, whose layers share both weights and bias."""
    n = Net()
    x = n.tensor("x", (STEPS, FEATURES))
    by_input, by_state, bias = n.matrix("wx", UNITS, FEATURES), n.matrix("wh", UNITS, UNITS), n.matrix("b", UNITS)
    rows = n.tensor("rows", (STEPS, UNITS))
    n.operator("FULLY_CONNECTED", [x, by_input, -1], [rows])
    size = n.tensor("size", (2,), "int32", data=np.array([1, UNITS], np.int32))
    state = n.tensor("state", (1, UNITS), data=np.full((1, UNITS), 0.25, np.float32))
    for step in range(STEPS):
        begin = n.tensor(f"begin{step}", (2,), "int32", data=np.array([step, 0], np.int32))
        row, seen, total, new = (n.tensor(f"{what}{step}", (1, UNITS)) for what in ("row", "seen", "total", "state"))
        n.operator("SLICE", [rows, begin, size], [row])
        n.operator("FULLY_CONNECTED", [state, by_state, bias], [seen])
        n.operator("ADD", [row, seen], [total])
        n.operator("TANH", [total], [new])
        state = new
    return model_bytes(n.finish([x], [state]))


def inputs(shape: tuple[int, ...], seed: int) -> list[list[NDArray[Any]]]:
    """Sequences whose features depend on each other."""
    random, mixing = np.random.default_rng(seed), np.random.default_rng(9).standard_normal((3, FEATURES))
    return [[(0.4 + random.standard_normal((*shape[:-1], 3)) @ mixing).astype(np.float32)] for _ in range(SAMPLES)]


def error(data: bytes, made: bytes, samples: list[list[NDArray[Any]]]) -> float:
    """Mean square of the difference between a model's results and those of the one made of it."""
    pairs = ((odc_mlir.run(data, sample)[0], odc_mlir.run(made, sample)[0]) for sample in samples)
    return float(np.mean([np.square(a - b).mean() for a, b in pairs]))


def gain(data: bytes, shape: tuple[int, ...], scheme: str) -> tuple[float, list[Graph]]:
    """By what rounding divides the error on samples that it has not seen, and the graphs without and with it."""
    known, unseen = inputs(shape, 1), inputs(shape, 2)
    made = [
        odc_mlir.quantize(data, scheme=scheme, calibration=known, help=False, rounding=rounding).to_circle()
        for rounding in ("off", "on")
    ]
    before, after = (error(data, file, unseen) for file in made)
    return before / after, [build_graph(read_model(file)) for file in made]


def constants(graph: Graph) -> list[tuple[str, tuple[int, ...] | None]]:
    return sorted((info.dtype, info.shape) for info in graph.tensors if info.is_const)


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_of_recurrent_operators_are_rounded_by_what_they_meet(kind: str) -> None:
    least, (before, after) = gain(recurrent(kind), (STEPS, 1, FEATURES), "int4_wo")
    assert least > 2
    assert constants(before) == constants(after)


@pytest.mark.parametrize("scheme", ["int4_wo", "int8x4"])
def test_weights_that_steps_share_stay_one_constant_and_gain(scheme: str) -> None:
    least, (before, after) = gain(unrolled(), (STEPS, FEATURES), scheme)
    assert least > (2 if scheme == "int4_wo" else 1.2)
    assert constants(before) == constants(after)


@pytest.mark.parametrize(("kind", "count"), [("UNIDIRECTIONAL_SEQUENCE_LSTM", 12), ("UNIDIRECTIONAL_SEQUENCE_RNN", 8)])
def test_all_samples_tell_whether_to_refine_weights_alone(kind: str, count: int) -> None:
    """Half of so few samples leave it in doubt, refined by the other half."""
    data, shape = recurrent(kind), (STEPS, 1, FEATURES)
    known, unseen = inputs(shape, 1)[:count], inputs(shape, 2)
    helped, plain = (odc_mlir.quantize(data, scheme="int8_wo", calibration=known, help=help) for help in (True, False))
    kept = {step["step"]: step["kept"] for step in helped.verdict["steps"]}
    assert not kept["rounding"]
    assert kept["rounding, correction"]
    assert helped.verdict["samples"]["checked_on"] == count // 2
    assert error(data, helped.to_circle(), unseen) < error(data, plain.to_circle(), unseen) / 2


def test_a_cell_that_multiplies_its_state_and_input_is_its_products() -> None:
    node = build_graph(read_model(recurrent("UNIDIRECTIONAL_SEQUENCE_RNN"))).nodes[0].node
    by_input, by_state = Product.all_of(node)
    assert [product.address for product in (by_input, by_state)] == ["y:input_weights", "y:recurrent_weights"]
    ((x,),) = inputs((STEPS, 1, FEATURES), 3)[:1]
    (y,) = odc_mlir.run(recurrent("UNIDIRECTIONAL_SEQUENCE_RNN"), [x])
    sums = node.operand(3).array() + by_input.rows(x)[0] @ node.operand(1).array().T
    sums += by_state.rows(by_state.states(y))[0] @ node.operand(2).array().T
    np.testing.assert_allclose(np.tanh(sums), y[:, 0], rtol=1e-5, atol=1e-6)


def test_states_of_an_operator_that_gives_the_last_one_begin_with_its_own() -> None:
    node = build_graph(read_model(recurrent("last GRU"))).nodes[0].node
    by_state = next(product for product in Product.all_of(node) if product.of_state)
    ((x,),) = inputs((STEPS, 1, FEATURES), 3)[:1]
    whole = with_all_states(node)
    (states,) = whole.spec.kernel_function(whole)([x, *(node.operand(place).array() for place in range(1, 6))])
    assert states.shape == (STEPS, 1, UNITS)
    np.testing.assert_array_equal(states[-1], odc_mlir.run(recurrent("last GRU"), [x])[0])
    seen = by_state.states(states)
    np.testing.assert_array_equal(seen[0], np.full((1, UNITS), 0.25))
    np.testing.assert_array_equal(seen[1:], states[:-1])
