"""Refining a quantised model: results come closer to the float model's, and only codes change."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from helpers.models import ModelBuilder
from odc_mlir.errors import UnsupportedError
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer import refinement
from odc_mlir.quantizer.execution import Stepper
from odc_mlir.quantizer.refinement import Learner, RefinementCache, learn, refine
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph

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
    learn(reference, [Learner.of(reference, quantised, *pair) for pair in zip(parts, known, strict=True)], every)
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
