"""Refined codes, stepwise and batched execution, and caches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import odc_mlir
from helpers.float_models import rescaled_mobilenet, squeeze_excite
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, Samples
from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer import refinement
from odc_mlir.quantizer.candidates import CandidateBuilder
from odc_mlir.quantizer.execution import Stepper, most_at_once, run_in_batches
from odc_mlir.quantizer.models import Recipe, prepare
from odc_mlir.quantizer.policy.options import make_options
from odc_mlir.quantizer.policy.products import Product, with_all_states
from odc_mlir.quantizer.refinement import Learner, RefinementCache, layer_pairs, learn, refine
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.recording import record

Array = np.ndarray
INPUTS, HIDDEN, OUTPUTS = 24, 16, 8


def models(form: str = "codes", *, bias: bool = True) -> tuple[Graph, ModuleOp]:
    """Two dense layers in float32, and the same with coarse codes rounded to the nearest.

    These are int8 ones, or 4-bit ``weights`` alone behind DEQUANTIZE.
    """
    random = np.random.default_rng(0)
    sizes = ((HIDDEN, INPUTS), (OUTPUTS, HIDDEN))
    weights, biases = ([random.standard_normal(s) for s in shapes] for shapes in (sizes, (HIDDEN, OUTPUTS)))
    reals, coded, scales = ModelBuilder(), ModelBuilder(), [1 / 16, 1 / 4, 1 / 2]

    def codes(name: str, values: Array, step: float, dtype: str, most: int) -> int:
        data = np.clip(np.rint(values / step), -most, most).astype(dtype)
        return coded.tensor(name, values.shape, dtype, quant=(step, 0), data=data)

    x = reals.tensor("x", (1, INPUTS))
    q = coded.tensor(
        "x", (1, INPUTS), *(["int8"] if form == "codes" else []), quant=(1 / 16, 0) if form == "codes" else None
    )
    for layer, (matrix, vector) in enumerate(zip(weights, biases, strict=True)):
        name, shape = f"y{layer}", (1, len(matrix))
        x = reals.made(
            name, shape, "FULLY_CONNECTED", x, reals.constant("w", matrix), *([reals.constant("b", vector)] * bias)
        )
        if form == "weights":
            real = coded.made("real", matrix.shape, "DEQUANTIZE", codes("w", matrix, 0.5, "int8", 7))
            q = coded.made(name, shape, "FULLY_CONNECTED", q, real, coded.constant("b", vector))
            continue
        operands = [q, codes("w", matrix, 1 / 4, "int8", 127)]  # coarse: what rounding loses is what shows
        if bias:
            operands.append(codes("b", vector, scales[layer] / 4, "int32", 2**31 - 1))
        q = coded.tensor(name, shape, "int8", quant=(scales[layer + 1], 0))
        coded.operator("FULLY_CONNECTED", operands, [q])
    return build_graph(reals.finish([0], [x])), import_model(coded.finish([0], [q]))


def samples(count: int, seed: int) -> Samples:
    """Inputs that depend on each other and are not zero on average."""
    mixing = np.random.default_rng(9).standard_normal((4, INPUTS))
    random = np.random.default_rng(seed)
    return [[(0.7 + random.standard_normal((1, 4)) @ mixing / 2).astype(np.float32)] for _ in range(count)]


def graph_of(module: ModuleOp) -> Graph:
    return build_graph(export_model(module))


def error(reference: Graph, module: ModuleOp) -> float:
    """Mean square of the difference of the outputs on samples that nothing was fitted to."""
    quantised = graph_of(module)
    float_run, code_run, errors = HostExecutor(reference), HostExecutor(quantised), []
    for sample in samples(100, 77):
        given = code_run.run([to_codes(quantised.input_infos()[0], sample[0])])[0]
        errors.append(np.mean((float_run.run(sample)[0] - to_reals(quantised.output_infos()[0], given)) ** 2))
    return float(np.mean(errors))


@pytest.mark.parametrize(
    ("form", "bias", "rounding", "correction", "least_gain"),
    [
        ("codes", True, True, False, 2.0),
        ("codes", True, False, True, 1.2),
        ("codes", True, True, True, 2.0),
        ("codes", False, True, False, 1.0),  # by plain moments
        ("weights", True, True, False, 5.0),  # means of results gain too, and biases stay real
        ("weights", True, True, True, 5.0),
    ],
)
def test_results_come_closer(form: str, bias: bool, rounding: bool, correction: bool, least_gain: float) -> None:
    reference, module = models(form, bias=bias)
    before = error(reference, module)
    found = refine(reference, graph_of(module), samples(200, 1), rounding=rounding, correction=correction)
    assert bias or not found.deltas
    assert form == "codes" or all(deltas.dtype == np.float32 for deltas in found.deltas.values())
    found.apply(module)
    module.verify()
    assert error(reference, module) * least_gain < before


def test_what_is_not_asked_for_stays_and_a_second_time_changes_no_bias() -> None:
    reference, module = models()
    quantised = graph_of(module)
    assert not refine(reference, quantised, samples(20, 1), rounding=False).codes
    nothing = refine(reference, quantised, samples(20, 1), rounding=False, correction=False)
    assert not nothing.codes
    assert not nothing.deltas
    assert not refine(reference, quantised, []).deltas
    for expected in (True, False):
        found = refine(reference, graph_of(module), samples(50, 1), rounding=False, correction=True)
        assert any(np.abs(deltas).max() > 1 for deltas in found.deltas.values()) == expected
        found.apply(module)


def assert_alike(a: RefinementCache, b: RefinementCache) -> None:
    for found, expected in ((a.codes, b.codes), (a.means, b.means)):
        assert len(found) == 2
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)


def test_what_is_learnt_together_is_what_each_learns_alone() -> None:
    """Also of batches of one, two and three samples; runs of one shape are taken together where there is room."""
    reference, module = models()
    quantised, every = graph_of(module), samples(30, 1)
    parts, known = [range(20), [0, 5, 29], range(10, 30)], [RefinementCache() for _ in range(3)]
    layers = layer_pairs(reference, quantised)
    learn(reference, [Learner(layers, *pair, rounding=True) for pair in zip(parts, known, strict=True)], every)
    for part, shown in zip(parts, known, strict=True):
        refine(reference, quantised, [every[number] for number in part], known=(alone := RefinementCache()))
        assert_alike(shown, alone)
    rows, starts = [sample[0] for sample in samples(48, 1)], np.cumsum([0, *([1, 1, 2, 2, 3, 3] * 4)])
    batches = [[np.concatenate(rows[low:high])] for low, high in pairwise(starts)]
    refine(reference, quantised, batches, known=(together := RefinementCache()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refinement, "_MOST_TOGETHER", 0)
        refine(reference, quantised, batches, known=(one_by_one := RefinementCache()))
    assert_alike(together, one_by_one)


def test_stepping_is_running_and_goes_on_with_replaced_constants() -> None:
    reference, _ = models()
    given, (first, last) = samples(3, 5), reference.nodes
    stepper = Stepper(reference, given)
    stepper.go_to(last)
    seen: dict[int, Array] = {}
    for sample, value in zip(given, stepper.reals(last.inputs[0]), strict=True):
        HostExecutor(reference).run(sample, watch=lambda index, found: seen.update({index: found.copy()}))
        np.testing.assert_array_equal(value, seen[last.inputs[0]])
    stepper = Stepper(reference, given)
    stepper.replace(first.inputs[1], np.zeros_like(reference.tensors[first.inputs[1]].array()))
    stepper.go_to(last)
    bias = reference.tensors[first.inputs[2]].array()
    for value in stepper.reals(last.inputs[0]):
        np.testing.assert_array_equal(value, bias[None])


def test_stepping_goes_on_with_replaced_results_of_constants() -> None:
    """What stands for a DEQUANTIZE of weights is not computed again with the scales of before."""
    builder, shape = ModelBuilder(), (1, 4)
    x = builder.tensor("x", shape)
    codes = builder.tensor("codes", shape, "int8", quant=(0.5, 0), data=np.ones(shape, np.int8))
    real = builder.made("real", shape, "DEQUANTIZE", codes)
    y = builder.made("y", shape, "ADD", x, real)
    graph = build_graph(builder.finish([x], [builder.made("z", shape, "RELU", y)]))
    stepper = Stepper(graph, [[np.zeros(shape, np.float32)]])
    stepper.replace(real, np.full(shape, 3.0, np.float32))
    stepper.go_to(graph.nodes[-1])
    np.testing.assert_array_equal(list(stepper.reals(y)), [np.full(shape, 3.0, np.float32)])


def test_state_and_shapes_that_depend_on_values_cannot_be_stepped() -> None:
    builder = ModelBuilder()
    x, handle = builder.tensor("x", (1, 4)), builder.tensor("handle", (), "resource")
    builder.operator("VAR_HANDLE", [], [handle], options={"container": "", "shared_name": "total"})
    builder.operator("ASSIGN_VARIABLE", [handle, x], [])
    graph = build_graph(builder.finish([x], [x]))
    with pytest.raises(UnsupportedError, match="state"):
        Stepper(graph, samples(1, 0))
    assert not refine(graph, graph, samples(1, 0)).codes
    builder = ModelBuilder()
    x, shape = builder.tensor("x", (1, 4)), builder.tensor("shape", (2,), "int32")
    y = builder.made("y", None, "RELU", builder.made("view", None, "RESHAPE", x, shape))
    given = [[np.zeros((1, 4), np.float32), np.array([2, 2], np.int32)]]
    with pytest.raises(UnsupportedError, match="depend on values"):
        Stepper(build_graph(builder.finish([x, shape], [y])), given)


STEPS, FEATURES, UNITS = 4, 8, 12
SEQUENCE = (STEPS, 1, FEATURES)
LSTM, RNN = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"


def cells(kind: str) -> bytes:
    """One recurrent operator over [steps, 1, features], or a cell step by step whose layers share weights and bias."""
    n, random = ModelBuilder(), np.random.default_rng(4)

    def matrix(name: str, *shape: int) -> int:
        return n.constant(name, random.standard_normal(shape) / np.sqrt(shape[-1]))

    initial, last, name = np.full((1, UNITS), 0.25), kind.startswith("last "), kind.removeprefix("last ")
    x = n.tensor("x", (STEPS, FEATURES) if kind == "unrolled" else SEQUENCE)
    options: dict[str, Any] = {"fused_activation_function": "tanh"}
    if kind == "unrolled":
        by_input, by_state, bias = matrix("wx", UNITS, FEATURES), matrix("wh", UNITS, UNITS), matrix("b", UNITS)
        rows = n.made("rows", (STEPS, UNITS), "FULLY_CONNECTED", x, by_input, -1)
        size, state, row = n.constant("size", [1, UNITS], "int32"), n.constant("state", initial), (1, UNITS)
        for step in range(STEPS):
            begin = n.constant(f"begin{step}", [step, 0], "int32")
            given = n.made(f"row{step}", row, "SLICE", rows, begin, size)
            seen = n.made(f"seen{step}", row, "FULLY_CONNECTED", state, by_state, bias)
            state = n.made(f"state{step}", row, "TANH", n.made(f"total{step}", row, "ADD", given, seen))
        return n.file([x], [state])
    if name == "GRU":
        state = n.constant("state", initial)
        by_input, input_bias = matrix("wx", 3 * UNITS, FEATURES), matrix("bx", 3 * UNITS)
        operands = [x, by_input, input_bias, matrix("wh", 3 * UNITS, UNITS), matrix("bh", 3 * UNITS), state]
        options["return_sequences"] = not last
    elif name == RNN:
        state = n.tensor("state", (1, UNITS), variable=True)
        operands = [x, matrix("wx", UNITS, FEATURES), matrix("wh", UNITS, UNITS), matrix("b", UNITS), state]
        options["time_major"] = True
    else:
        states = [n.tensor(name, (1, UNITS), variable=True) for name in ("state", "cell")]
        by_input, by_state = ([matrix("w", UNITS, size) for _ in range(4)] for size in (FEATURES, UNITS))
        biases = [matrix(f"b{gate}", UNITS) for gate in range(4)]
        operands = [x, *by_input, *by_state, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1]
        options["time_major"] = True
    return n.file([x], [n.made("y", (1, UNITS) if last else (STEPS, 1, UNITS), name, *operands, **options)])


def sequences(seed: int, shape: tuple[int, ...] = SEQUENCE, count: int = 32) -> Samples:
    random, mixing = np.random.default_rng(seed), np.random.default_rng(9).standard_normal((3, FEATURES))
    return [[(0.4 + random.standard_normal((*shape[:-1], 3)) @ mixing).astype(np.float32)] for _ in range(count)]


def sequence_error(data: bytes, made: bytes, unseen: Samples) -> float:
    """Mean square of the difference between a model's results and those of the one made of it."""
    pairs = ((odc_mlir.run(data, sample)[0], odc_mlir.run(made, sample)[0]) for sample in unseen)
    return float(np.mean([np.square(a - b).mean() for a, b in pairs]))


@pytest.mark.parametrize(
    ("kind", "scheme", "least"),
    [
        (LSTM, "int4_wo", 2.0),
        (RNN, "int4_wo", 2.0),
        ("GRU", "int4_wo", 2.0),
        ("last GRU", "int4_wo", 2.0),
        ("unrolled", "int4_wo", 2.0),
        ("unrolled", "int8x4", 1.2),
    ],
)
def test_matrices_of_recurrent_operators_are_rounded_by_what_they_meet(kind: str, scheme: str, least: float) -> None:
    """On samples that were not seen; weights that steps share stay one constant."""
    data, shape = cells(kind), (STEPS, FEATURES) if kind == "unrolled" else SEQUENCE
    errors, constants = [], []
    for rounding in ("off", "on"):
        options = {"scheme": scheme, "help": False, "rounding": rounding}
        file = odc_mlir.quantize(data, calibration=sequences(1, shape), **options).to_circle()
        errors.append(sequence_error(data, file, sequences(2, shape)))
        tensors = build_graph(read_model(file)).tensors
        constants.append(sorted((info.dtype, info.shape) for info in tensors if info.is_const))
    assert errors[0] / errors[1] > least
    assert constants[0] == constants[1]


@pytest.mark.parametrize(("kind", "count"), [(LSTM, 12), (RNN, 8)])
def test_all_samples_tell_whether_to_refine_weights_alone(kind: str, count: int) -> None:
    data, known, unseen = cells(kind), sequences(1)[:count], sequences(2)
    helped, plain = (odc_mlir.quantize(data, scheme="int8_wo", calibration=known, help=help) for help in (True, False))
    kept = {step["step"]: step["kept"] for step in helped.verdict["steps"]}
    assert kept["rounding"]
    assert helped.verdict["samples"]["checked_on"] == count // 2
    assert sequence_error(data, helped.to_circle(), unseen) < sequence_error(data, plain.to_circle(), unseen) / 2


def test_cells_are_their_products_with_inputs_and_states() -> None:
    node = build_graph(read_model(cells(RNN))).nodes[0].node
    by_input, by_state = Product.all_of(node)
    assert [product.address for product in (by_input, by_state)] == ["y:input_weights", "y:recurrent_weights"]
    ((x,),) = sequences(3, count=1)
    (y,) = odc_mlir.run(cells(RNN), [x])
    sums = node.operand(3).array() + by_input.rows(x)[0] @ node.operand(1).array().T
    sums += by_state.rows(by_state.states(y))[0] @ node.operand(2).array().T
    np.testing.assert_allclose(np.tanh(sums), y[:, 0], rtol=1e-5, atol=1e-6)
    # States of an operator that gives the last one begin with its own.
    node = build_graph(read_model(cells("last GRU"))).nodes[0].node
    whole = with_all_states(node)
    (states,) = whole.spec.kernel_function(whole)([x, *(node.operand(place).array() for place in range(1, 6))])
    assert states.shape == (STEPS, 1, UNITS)
    np.testing.assert_array_equal(states[-1], odc_mlir.run(cells("last GRU"), [x])[0])
    seen = next(product for product in Product.all_of(node) if product.of_state).states(states)
    np.testing.assert_array_equal(seen[0], np.full((1, UNITS), 0.25))
    np.testing.assert_array_equal(seen[1:], states[:-1])


@pytest.mark.parametrize("others", [1, 6])  # the last five without refined codes are kept
def test_candidates_are_the_same_whichever_were_built_before(others: int) -> None:
    module, given = squeeze_excite()
    model = prepare(module)
    model.records = record(HostExecutor(model.graph), given)

    def built(builder: CandidateBuilder, headroom: float, **recipe: bool) -> bytes:
        made = builder.build(model, Recipe(headroom=headroom, **recipe), model.fitted)
        return bytes(write_model(export_model(made.module)))

    one, anew = (CandidateBuilder(make_options(scheme="int8"), given) for _ in range(2))
    files = [built(one, headroom) for headroom in (0.0, *(0.1 * number for number in range(1, others + 1)), 0.0)]
    assert files[0] == files[-1] != files[1]
    assert built(one, 0.1, rounding=True) == built(anew, 0.1, rounding=True) != files[1] == built(one, 0.1)


def _quantised(module: object, given: Samples, scheme: str) -> tuple[Graph, Samples]:
    made = odc_mlir.quantize(module, scheme=scheme, calibration=given, help=False, mixed="off")
    graph = build_graph(read_model(made.to_circle()))
    return graph, [list(map(to_codes, graph.input_infos(), sample)) for sample in given]


def _check(graph: Graph, given: Samples) -> None:
    """Expect that results in batches are those of runs one by one: numbers, types and shapes."""
    executor = HostExecutor(graph)
    for sample, results in zip(given, run_in_batches(graph, given), strict=True):
        executor.reset()
        for a, b in zip(executor.run(sample), results, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16x8", "int8_wo"])
def test_networks_of_codes_run_at_once(scheme: str) -> None:
    """Real sums, added up in another order beside others, may differ in the last bit."""
    module, given = rescaled_mobilenet()
    graph, codes = _quantised(module, [list(sample) for sample in given][:7], scheme)
    assert (most_at_once(graph) >= 7) == (scheme != "int8_wo")
    _check(graph, codes)


def _net(build: Callable[[FloatNet, SSAValue], Any]) -> tuple[Graph, Samples]:
    net = FloatNet(2)
    found = build(net, net.real(1, 4, 3))
    module = net.module(*(found if isinstance(found, tuple) else (found,)))
    return _quantised(module, [[net.rng.uniform(-1, 1, (1, 4, 3)).astype(np.float32)] for _ in range(9)], "int8")


def _shape(net: FloatNet, *shape: int) -> SSAValue:
    return net.const(shape, "int32")


AT_ONCE: list[Callable[[FloatNet, SSAValue], Any]] = [
    lambda net, x: net.add("MEAN", x, _shape(net, 1), keep_dims=False),
    lambda net, x: net.add("RESHAPE", x, _shape(net, 1, 12), new_shape=(1, 12)),
    lambda net, x: net.add("CONCATENATION", x, net.add("RELU", x), axis=1),
    lambda net, x: net.add("MUL", x, net.const([0.5, -1.0, 2.0])),
    lambda net, x: net.add("SOFTMAX", x, beta=1.0),
    lambda net, x: (net.add("RELU", x), net.weights(1, 3)),  # a constant among the outputs
    lambda net, x: (net.add("RELU", x), net.weights(2, 3)),
    lambda net, x: (net.add("RELU", x), net.weights()),
]
MIXING: list[Callable[[FloatNet, SSAValue], Any]] = [
    lambda net, x: net.add("MEAN", x, _shape(net, 0, 2), keep_dims=True),
    lambda net, x: net.add("RESHAPE", x, _shape(net, 4, 3), new_shape=(4, 3)),
    lambda net, x: net.add("CONCATENATION", x, net.add("RELU", x), axis=0),
    lambda net, x: net.add("TRANSPOSE", x, _shape(net, 1, 0, 2)),
    lambda net, x: net.add("ADD", x, net.add("MEAN", x, _shape(net, 1), keep_dims=False)),
]


@pytest.mark.parametrize(("build", "most"), [*((build, 9) for build in AT_ONCE), *((build, 1) for build in MIXING)])
def test_what_keeps_items_apart_runs_at_once(build: Callable[[FloatNet, SSAValue], Any], most: int) -> None:
    graph, given = _net(build)
    assert min(most_at_once(graph), 9) == most
    _check(graph, given)


def test_samples_of_several_items_run_one_by_one() -> None:
    graph, given = _net(lambda net, x: net.add("RELU", x))
    graph.tensors[graph.inputs[0]].shape = (None, 4, 3)
    pairs = [[np.concatenate([a, b])] for [a], [b] in pairwise(given)]
    _check(graph, pairs)
    _check(graph, [*given, *pairs])
