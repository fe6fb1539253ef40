"""Refined codes, stepwise and batched execution, and caches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

import odc_mlir
from helpers import float_models
from helpers.float_models import squeeze_excite
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer import candidates, refinement
from odc_mlir.quantizer.candidates import CandidateBuilder
from odc_mlir.quantizer.execution import BatchRunner, Stepper, most_at_once
from odc_mlir.quantizer.models import Candidate, FloatModel, Recipe, prepare
from odc_mlir.quantizer.policy.options import make_options
from odc_mlir.quantizer.policy.products import Product, with_all_states
from odc_mlir.quantizer.policy.ranges import Statistics
from odc_mlir.quantizer.refinement import Learner, RefinementCache, layer_pairs, learn, refine
from odc_mlir.quantizer.target import TargetRules
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.recording import record
from odc_mlir.transforms.partition.npu_choose_segments import NpuChooseSegmentsPass

INPUTS, HIDDEN, OUTPUTS = 24, 16, 8


def models(*, bias: bool = True) -> tuple[Graph, ModuleOp]:
    """Two dense layers in float32, and the same with coarse int8 codes rounded to the nearest."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal((HIDDEN, INPUTS)), random.standard_normal((OUTPUTS, HIDDEN))]
    biases = [random.standard_normal(HIDDEN), random.standard_normal(OUTPUTS)]
    reals = ModelBuilder()
    x = reals.tensor("x", (1, INPUTS))
    codes = ModelBuilder()
    q = codes.tensor("x", (1, INPUTS), "int8", quant=(1 / 16, 0))
    scales = [1 / 16, 1 / 4, 1 / 2]
    for layer, (matrix, vector) in enumerate(zip(weights, biases, strict=True)):
        size = len(matrix)
        step = 1 / 4  # coarse: what rounding loses is what shows
        operands = [x, reals.tensor(f"w{layer}", matrix.shape, data=matrix.astype(np.float32))]
        coded = [q, codes.tensor(f"w{layer}", matrix.shape, "int8", quant=(step, 0), data=_codes(matrix, step, "int8"))]
        if bias:
            operands.append(reals.tensor(f"b{layer}", (size,), data=vector.astype(np.float32)))
            fine = step * scales[layer]
            data = _codes(vector, fine, "int32")
            coded.append(codes.tensor(f"b{layer}", (size,), "int32", quant=(fine, 0), data=data))
        x = reals.tensor(f"y{layer}", (1, size))
        q = codes.tensor(f"y{layer}", (1, size), "int8", quant=(scales[layer + 1], 0))
        reals.operator("FULLY_CONNECTED", operands, [x])
        codes.operator("FULLY_CONNECTED", coded, [q])
    return build_graph(reals.finish([0], [x])), import_model(codes.finish([0], [q]))


def _codes(array: NDArray[Any], step: float, dtype: str) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(array / step), limits.min + 1, limits.max).astype(dtype)


def samples(count: int, seed: int) -> list[list[NDArray[Any]]]:
    """Inputs that depend on each other and are not zero on average."""
    mixing = np.random.default_rng(9).standard_normal((4, INPUTS))
    random = np.random.default_rng(seed)
    return [[(0.7 + random.standard_normal((1, 4)) @ mixing / 2).astype(np.float32)] for _ in range(count)]


def error(reference: Graph, module: ModuleOp, seed: int = 77) -> float:
    """Mean square of the difference of the outputs on samples that nothing was fitted to."""
    quantised = build_graph(export_model(module))
    float_run, code_run = HostExecutor(reference), HostExecutor(quantised)
    total = 0.0
    for sample in samples(100, seed):
        expected = float_run.run(sample)[0]
        given = code_run.run([to_codes(quantised.input_infos()[0], sample[0])])[0]
        total += float(np.mean((expected - to_reals(quantised.output_infos()[0], given)) ** 2))
    return total / 100


@pytest.mark.parametrize(
    ("rounding", "correction", "least_gain"), [(True, False, 2.0), (False, True, 1.2), (True, True, 2.0)]
)
def test_results_come_closer(rounding: bool, correction: bool, least_gain: float) -> None:
    reference, module = models()
    before = error(reference, module)
    quantised = build_graph(export_model(module))
    refine(reference, quantised, samples(200, 1), rounding=rounding, correction=correction).apply(module)
    module.verify()
    assert error(reference, module) * least_gain < before


def test_what_is_not_asked_for_stays() -> None:
    reference, module = models()
    quantised = build_graph(export_model(module))
    assert not refine(reference, quantised, samples(20, 1), rounding=False).codes
    nothing = refine(reference, quantised, samples(20, 1), rounding=False, correction=False)
    assert not nothing.codes
    assert not nothing.deltas
    assert not refine(reference, quantised, []).deltas


def test_what_is_learnt_together_is_what_each_learns_alone() -> None:
    reference, module = models()
    quantised, every = build_graph(export_model(module)), samples(30, 1)
    parts, known = [range(20), [0, 5, 29], range(10, 30)], [RefinementCache() for _ in range(3)]
    layers = layer_pairs(reference, quantised)
    learn(reference, [Learner(layers, *pair, rounding=True) for pair in zip(parts, known, strict=True)], every)
    for part, shown in zip(parts, known, strict=True):
        alone = RefinementCache()
        refine(reference, quantised, [every[number] for number in part], known=alone)
        assert shown.codes.keys() == alone.codes.keys()
        for name, codes in alone.codes.items():
            np.testing.assert_array_equal(shown.codes[name], codes)
        for name, means in alone.means.items():
            np.testing.assert_array_equal(shown.means[name], means)


def test_runs_of_several_shapes_count_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of one, two and three samples; runs of one shape are taken together where there is room."""
    reference, module = models()
    rows = [sample[0] for sample in samples(48, 1)]
    starts = np.cumsum([0, *([1, 1, 2, 2, 3, 3] * 4)])
    batches = [[np.concatenate(rows[low:high])] for low, high in pairwise(starts)]
    found = []
    for room in (refinement._MOST_TOGETHER, 0):
        monkeypatch.setattr(refinement, "_MOST_TOGETHER", room)
        found.append(RefinementCache())
        refine(reference, build_graph(export_model(module)), batches, known=found[-1])
    together, one_by_one = found
    for name, codes in one_by_one.codes.items():
        np.testing.assert_array_equal(together.codes[name], codes)
    for name, means in one_by_one.means.items():
        np.testing.assert_array_equal(together.means[name], means)
    assert len(one_by_one.codes) == len(one_by_one.means) == 2


def test_a_second_time_changes_no_bias() -> None:
    reference, module = models()
    for expected in (True, False):
        found = refine(reference, build_graph(export_model(module)), samples(50, 1), rounding=False, correction=True)
        assert any(np.abs(deltas).max() > 1 for deltas in found.deltas.values()) == expected
        found.apply(module)


def test_layers_without_bias_are_rounded_by_plain_moments() -> None:
    reference, module = models(bias=False)
    before = error(reference, module)
    found = refine(reference, build_graph(export_model(module)), samples(200, 1))
    assert not found.deltas
    found.apply(module)
    assert error(reference, module) < before


def test_stepping_is_running() -> None:
    """Operator by operator, many samples at once: the same values."""
    reference, _ = models()
    given = samples(3, 5)
    stepper = Stepper(reference, given)
    last = reference.nodes[-1]
    stepper.go_to(last)
    seen: dict[int, NDArray[Any]] = {}
    executor = HostExecutor(reference)
    for sample, value in zip(given, stepper.reals(last.inputs[0]), strict=True):
        executor.run(sample, watch=lambda index, found: seen.update({index: found.copy()}))
        np.testing.assert_array_equal(value, seen[last.inputs[0]])


def test_stepping_goes_on_with_replaced_constants() -> None:
    reference, _ = models()
    stepper = Stepper(reference, samples(2, 5))
    first, second = reference.nodes
    weights = reference.tensors[first.inputs[1]]
    stepper.replace(first.inputs[1], np.zeros_like(weights.array()))
    stepper.go_to(second)
    bias = reference.tensors[first.inputs[2]].array()
    for value in stepper.reals(second.inputs[0]):
        np.testing.assert_array_equal(value, bias[None])


def test_stepping_goes_on_with_replaced_results_of_constants() -> None:
    """What stands for a DEQUANTIZE of weights is not computed again with the scales of before."""
    builder = ModelBuilder()
    x, real, y, z = (builder.tensor(name, (1, 4)) for name in ("x", "real", "y", "z"))
    codes = builder.tensor("codes", (1, 4), "int8", quant=(0.5, 0), data=np.ones((1, 4), np.int8))
    builder.operator("DEQUANTIZE", [codes], [real])
    builder.operator("ADD", [x, real], [y])
    builder.operator("RELU", [y], [z])
    graph = build_graph(builder.finish([x], [z]))
    stepper = Stepper(graph, [[np.zeros((1, 4), np.float32)]])
    stepper.replace(real, np.full((1, 4), 3.0, np.float32))
    stepper.go_to(graph.nodes[-1])
    (value,) = stepper.reals(y)
    np.testing.assert_array_equal(value, np.full((1, 4), 3.0, np.float32))


def test_state_cannot_be_stepped() -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4))
    handle = builder.tensor("handle", (), "resource")
    builder.operator("VAR_HANDLE", [], [handle], options={"container": "", "shared_name": "total"})
    builder.operator("ASSIGN_VARIABLE", [handle, x], [])
    graph = build_graph(builder.finish([x], [x]))
    with pytest.raises(UnsupportedError, match="state"):
        Stepper(graph, samples(1, 0))
    assert not refine(graph, graph, samples(1, 0)).codes


def test_shapes_that_depend_on_values_cannot_be_stepped() -> None:
    builder = ModelBuilder()
    x, shape = builder.tensor("x", (1, 4)), builder.tensor("shape", (2,), "int32")
    view, y = builder.tensor("view", None), builder.tensor("y", None)
    builder.operator("RESHAPE", [x, shape], [view])
    builder.operator("RELU", [view], [y])
    given = [[np.zeros((1, 4), np.float32), np.array([2, 2], np.int32)]]
    with pytest.raises(UnsupportedError, match="depend on values"):
        Stepper(build_graph(builder.finish([x, shape], [y])), given)


def test_weights_alone_are_refined_through_dequantize() -> None:
    """Four bits, real activations and biases: both weights and the means of results gain, and biases stay real."""
    reference, _ = models()
    records = ModelBuilder()
    x = records.tensor("x", (1, INPUTS))
    random = np.random.default_rng(0)
    matrices = [random.standard_normal((HIDDEN, INPUTS)), random.standard_normal((OUTPUTS, HIDDEN))]
    vectors = [random.standard_normal(HIDDEN), random.standard_normal(OUTPUTS)]
    for layer, (matrix, vector) in enumerate(zip(matrices, vectors, strict=True)):
        codes = np.clip(np.rint(matrix / 0.5), -7, 7).astype(np.int8)
        coded = records.tensor(f"w{layer}", matrix.shape, "int8", quant=(0.5, 0), data=codes)
        weights = records.tensor(f"w{layer}_real", matrix.shape)
        bias = records.tensor(f"b{layer}", vector.shape, data=vector.astype(np.float32))
        y = records.tensor(f"y{layer}", (1, len(matrix)))
        records.operator("DEQUANTIZE", [coded], [weights])
        records.operator("FULLY_CONNECTED", [x, weights, bias], [y])
        x = y
    module = import_model(records.finish([0], [x]))
    before = error(reference, module)
    for correction in (False, True):
        refined = module.clone()
        found = refine(reference, build_graph(export_model(module)), samples(200, 1), correction=correction)
        assert all(deltas.dtype == np.float32 for deltas in found.deltas.values())
        found.apply(refined)
        refined.verify()
        assert error(reference, refined) * 5 < before


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


def error_recurrent_refinement(data: bytes, made: bytes, samples: list[list[NDArray[Any]]]) -> float:
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
    before, after = (error_recurrent_refinement(data, file, unseen) for file in made)
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
    assert (
        error_recurrent_refinement(data, helped.to_circle(), unseen)
        < error_recurrent_refinement(data, plain.to_circle(), unseen) / 2
    )


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


TARGET = "npu-256"


class _Spy:
    """What the models of one search were made of: all of them, and those that were not there already."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.rounded: list[tuple[Any, ...]] = []


@pytest.fixture(scope="module")
def search() -> _Spy:
    found, build, rounded = _Spy(), CandidateBuilder.build, CandidateBuilder._rounded

    def note_asked(
        self: CandidateBuilder,
        model: FloatModel,
        recipe: Recipe,
        statistics: Statistics,
        known: RefinementCache | None = None,
    ) -> Candidate:
        found.asked.append((self, model, recipe, statistics))
        return build(self, model, recipe, statistics, known)

    def note_rounded(self: CandidateBuilder, model: FloatModel, recipe: Recipe, statistics: Statistics) -> Candidate:
        found.rounded.append((self, model, recipe, statistics))
        return rounded(self, model, recipe, statistics)

    module, samples = squeeze_excite()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CandidateBuilder, "build", note_asked)
        patch.setattr(CandidateBuilder, "_rounded", note_rounded)
        odc_mlir.quantize(module, calibration=samples, target=TARGET, metric="sqnr", limit=50.0, correction="on")
    return found


def test_models_that_differ_in_refined_codes_alone_are_rounded_once(search: _Spy) -> None:
    made = Counter((id(builder), id(model), recipe, id(by)) for builder, model, recipe, by in search.rounded)
    assert max(made.values()) == 1
    assert len(search.asked) > len(made) > 10
    assert not any(recipe.rounding or recipe.correction for _, _, recipe, _ in search.rounded)


def test_models_that_only_tell_what_layers_cost_are_not_refined(search: _Spy) -> None:
    layers = max(len(recipe.precisions) for _, _, recipe, _ in search.asked)
    all_wide = [recipe for _, _, recipe, _ in search.asked if len(recipe.precisions) == layers]
    assert [recipe.correction for recipe in all_wide[:2]] == [False, False]


def test_of_candidates_without_refined_codes_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    module, samples = squeeze_excite()
    model = prepare(module)
    model.records = record(HostExecutor(model.graph), samples)
    builder = CandidateBuilder(make_options(scheme="int8"), samples)
    recipes = [Recipe(headroom=part) for part in (0.0, 0.1, 0.2)]

    def built(number: int) -> Candidate:
        return builder.build(model, recipes[number], model.fitted)

    first = built(0)
    size = builder._unrefined[next(iter(builder._unrefined))][-1]
    assert size > 0
    monkeypatch.setattr(candidates, "_MOST_KEPT", 2 * size)
    second = built(1)
    assert built(0) is first
    built(2)
    assert built(0) is first
    again = built(1)
    assert again is not second
    assert write_model(export_model(again.module)) == write_model(export_model(second.module))
    monkeypatch.setattr(candidates, "_MOST_KEPT", 0)
    assert built(2) is built(2)


def test_what_the_target_says_of_a_model_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module, samples = squeeze_excite()
    model = odc_mlir.quantize(module, calibration=samples, help=False).model
    plain, planned = (TargetRules(TARGET).judge(model, plan=plan) for plan in (False, True))
    assert planned.time_ns
    assert plain.time_ns is None
    rules, applied = TargetRules(TARGET), []
    apply = NpuChooseSegmentsPass.apply

    def spy(self: ModulePass, context: Context, op: ModuleOp) -> None:
        applied.append(op)
        apply(self, context, op)  # type: ignore[arg-type]

    monkeypatch.setattr(NpuChooseSegmentsPass, "apply", spy)
    assert [rules.judge(model, plan=plan) for plan in (True, False, True, False)] == [planned, plain] * 2
    assert len(applied) == 1


Samples = list[list[Array]]


def _quantised(module: object, samples: Samples, scheme: str) -> tuple[Graph, Samples]:
    """The quantised model and the codes of samples."""
    made = odc_mlir.quantize(module, scheme=scheme, calibration=samples, help=False, mixed="off")
    graph = build_graph(read_model(made.to_circle()))
    return graph, [list(map(to_codes, graph.input_infos(), sample)) for sample in samples]


def _check(graph: Graph, samples: Samples) -> None:
    """Results in batches are those of runs one by one: numbers, types and shapes."""
    executor = HostExecutor(graph)
    found = list(BatchRunner(graph).run(samples))
    assert len(found) == len(samples)
    for sample, results in zip(samples, found, strict=True):
        executor.reset()
        for a, b in zip(executor.run(sample), results, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16x8"])
def test_networks(scheme: str) -> None:
    module, samples = float_models.rescaled_mobilenet()
    graph, codes = _quantised(module, [list(sample) for sample in samples][:7], scheme)
    assert most_at_once(graph) >= 7
    _check(graph, codes)


def _net(build: Callable[[FloatNet, SSAValue], SSAValue]) -> tuple[Graph, Samples]:
    net = FloatNet()
    module = net.module(build(net, net.real(1, 4, 3)))
    samples = [[net.rng.uniform(-1, 1, (1, 4, 3)).astype(np.float32)] for _ in range(9)]
    return _quantised(module, samples, "int8")


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), ()])
def test_a_constant_among_the_outputs(shape: tuple[int, ...]) -> None:
    net = FloatNet(2)
    x = net.real(1, 4, 3)
    module = net.module(net.add("RELU", x), net.weights(*shape))
    samples = [[net.rng.uniform(-1, 1, (1, 4, 3)).astype(np.float32)] for _ in range(9)]
    graph, codes = _quantised(module, samples, "int8")
    assert most_at_once(graph) >= 9
    _check(graph, codes)


def _shape(net: FloatNet, *shape: int) -> SSAValue:
    return net.const(shape, "int32")


@pytest.mark.parametrize(
    "build",
    [
        lambda net, x: net.add("MEAN", x, _shape(net, 1), keep_dims=False),
        lambda net, x: net.add("RESHAPE", x, _shape(net, 1, 12), new_shape=(1, 12)),
        lambda net, x: net.add("CONCATENATION", x, net.add("RELU", x), axis=1),
        lambda net, x: net.add("MUL", x, net.const([0.5, -1.0, 2.0])),
        lambda net, x: net.add("SOFTMAX", x, beta=1.0),
    ],
)
def test_what_keeps_items_apart_runs_at_once(build: Callable[[FloatNet, SSAValue], SSAValue]) -> None:
    graph, samples = _net(build)
    assert most_at_once(graph) > 1
    _check(graph, samples)


@pytest.mark.parametrize(
    "build",
    [
        lambda net, x: net.add("MEAN", x, _shape(net, 0, 2), keep_dims=True),
        lambda net, x: net.add("RESHAPE", x, _shape(net, 4, 3), new_shape=(4, 3)),
        lambda net, x: net.add("CONCATENATION", x, net.add("RELU", x), axis=0),
        lambda net, x: net.add("TRANSPOSE", x, _shape(net, 1, 0, 2)),
        lambda net, x: net.add("ADD", x, net.add("MEAN", x, _shape(net, 1), keep_dims=False)),
    ],
)
def test_what_mixes_items_runs_one_by_one(build: Callable[[FloatNet, SSAValue], SSAValue]) -> None:
    graph, samples = _net(build)
    assert most_at_once(graph) == 1
    _check(graph, samples)


def test_samples_of_several_items_run_one_by_one() -> None:
    graph, samples = _net(lambda net, x: net.add("RELU", x))
    graph.tensors[graph.inputs[0]].shape = (None, 4, 3)
    pairs = [[np.concatenate([a, b])] for [a], [b] in pairwise(samples)]
    _check(graph, pairs)
    _check(graph, [*samples, *pairs])


def test_real_sums_run_one_by_one() -> None:
    """What is added up in another order beside others may differ in the last bit."""
    module, samples = float_models.rescaled_mobilenet()
    made = odc_mlir.quantize(module, scheme="int8_wo", calibration=[list(s) for s in samples][:8], help=False)
    assert most_at_once(build_graph(read_model(made.to_circle()))) == 1
