"""Recording: which tensors are seen, and that each inference counts once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder, add_model, choosing_model
from odc_mlir.calibration import gathering
from odc_mlir.calibration.recorded import Records, coverage
from odc_mlir.errors import InputError
from odc_mlir.formats.circle.model import Model
from odc_mlir.runtime import recording
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.recording import Recorder


def _counting() -> Model:
    """``y = x`` doubled until it is at least 100: subgraph 1 is the condition, 2 the body."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1,)), builder.tensor("y", (1,))
    builder.operator("WHILE", [x], [y], options={"cond_subgraph_index": 1, "body_subgraph_index": 2})
    builder.finish([x], [y])
    builder.begin("condition")
    a, more = builder.tensor("a", (1,)), builder.tensor("more", (1,), "bool")
    most = builder.tensor("most", (1,), data=np.array([100], np.float32))
    builder.operator("LESS", [a, most], [more])
    builder.finish([a], [more])
    builder.begin("body")
    a, b = builder.tensor("a", (1,)), builder.tensor("b", (1,))
    builder.operator("ADD", [a, a], [b])
    builder.finish([a], [b])
    return builder.model


def _floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def _extremes(records: Records, subgraph: int, name: str) -> list[tuple[float, float]]:
    stats = records.tensors[subgraph, name]
    return [(float(a), float(b)) for a, b in zip(stats.minima, stats.maxima, strict=True)]


def _kinds(records: Records) -> set[tuple[str, str]]:
    return {(finding.kind, finding.tensor) for finding in records.findings}


def record(model: Model, samples: Iterable[Sequence[Any]]) -> Records:
    return recording.record(HostExecutor(build_graph(model)), samples)


def test_no_samples_and_samples_that_do_not_fit_are_errors() -> None:
    with pytest.raises(InputError, match="there are no samples to record"):
        record(add_model(), [])
    with pytest.raises(InputError, match="input 0"):
        record(add_model(), [[np.zeros((1, size), np.float32)] * 2 for size in (4, 5)])


def test_every_float_tensor_is_recorded() -> None:
    samples = [[_floats(*row).reshape(1, 4), np.ones((1, 4), np.float32)] for row in np.arange(8).reshape(2, 4)]
    records = record(add_model(), samples)
    assert records.runs == 2
    assert {name for _, name in records.tensors} == {"a", "b", "sum", "out"}
    assert _extremes(records, 0, "sum") == [(1, 4), (5, 8)]
    assert _extremes(records, 0, "out") == [(1, 7), (9, 15)]
    assert records.statistics()["a"].mean == 3.5
    assert {("few-runs", ""), ("constant-input", "b")} <= _kinds(records)


def test_a_loop_counts_once_for_each_inference() -> None:
    records = record(_counting(), [[_floats(3)], [_floats(500)], [_floats(40)]])
    assert records.runs == 3
    assert _extremes(records, 0, "y") == [(192, 192), (500, 500), (160, 160)]
    assert _extremes(records, 1, "a") == [(3, 192), (500, 500), (40, 160)]
    assert _extremes(records, 2, "a") == [(3, 96), (40, 80)]
    assert _extremes(records, 2, "b") == [(6, 192), (80, 160)]
    assert records.tensors[1, "a"].count == 7 + 1 + 3
    assert records.tensors[2, "b"].runs == 2


def test_a_loop_over_many_iterations_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_BUFFER_ELEMENTS", 2)
    records = record(_counting(), [[_floats(k)] for k in (1, 2, 3, 120, 7)])
    assert _extremes(records, 1, "a") == [(1, 128), (2, 128), (3, 192), (120, 120), (7, 112)]


def test_a_branch_not_taken_is_reported() -> None:
    def taken(*choices: bool) -> Records:
        return record(choosing_model(), [[np.array(c), _floats(3, 4)] for c in choices])

    records = taken(True, False)
    assert _extremes(records, 1, "b") == [(6, 8)]
    assert _extremes(records, 2, "b") == [(9, 16)]
    assert "never-observed" not in {kind for kind, _ in _kinds(records)}
    never = [f for f in taken(True).findings if f.kind == "never-observed"]
    assert [(f.subgraph, f.tensor) for f in never] == [(2, "a"), (2, "b")]


def test_operators_with_several_results_and_without_float_ones() -> None:
    builder = ModelBuilder()
    x, axis = builder.tensor("x", (4,)), builder.tensor("axis", (), "int32", data=np.array(0, np.int32))
    p, q = builder.tensor("p", (2,)), builder.tensor("q", (2,))
    best = builder.tensor("best", (), "int64")
    builder.operator("SPLIT", [axis, x], [p, q], options={"num_splits": 2})
    builder.operator("ARG_MAX", [q, axis], [best], options={"output_type": "int64"})
    records = record(builder.finish([x], [p, best]), [[_floats(1, 2, 3, 4)]])
    assert {name: stats.maximum for (_, name), stats in records.tensors.items()} == {"x": 4, "p": 2, "q": 4}


def _accumulating() -> Model:
    """``out`` of an SVDF-like state: a simple recurrent network of one unit, ``state`` is its variable."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 1))
    weights, again = (builder.tensor(n, (1, 1), data=np.ones((1, 1), np.float32)) for n in ("w", "r"))
    bias = builder.tensor("bias", (1,), data=np.zeros(1, np.float32))
    state, out = builder.tensor("state", (1, 1), variable=True), builder.tensor("out", (1, 1))
    builder.operator("RNN", [x, weights, again, bias, state], [out], options={"fused_activation_function": "none"})
    return builder.finish([x], [out])


@pytest.mark.parametrize(("keep_state", "expected"), [(False, [1, 1, 1]), (True, [1, 2, 3])])
def test_variables_are_recorded(keep_state: bool, expected: list[float]) -> None:
    executor = HostExecutor(build_graph(_accumulating()))
    samples = [[np.ones((1, 1), np.float32)]] * 3
    records = recording.record(executor, samples)
    if keep_state:
        recorder = Recorder(executor.graph)
        executor.reset()
        for sample in samples:
            recorder.run(executor, sample)
        records = recorder.take()
        records.findings = coverage(records, recorder.inputs, recorder.expected)
    assert records.tensors[0, "state"].maxima.tolist() == expected
    assert records.tensors[0, "out"].maxima.tolist() == expected
    assert ("identical-inputs", "x") not in _kinds(records)  # it is constant, which says more
    assert ("constant-input", "x") in _kinds(records)


def test_batching_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    samples = [[random.normal(size=(1, 4)).astype(np.float32) for _ in range(2)] for _ in range(30)]
    whole = record(add_model(), samples)
    monkeypatch.setattr(recording, "_BUFFER_ELEMENTS", 4)
    single = record(add_model(), samples)
    monkeypatch.setattr(recording, "_BUFFER_ELEMENTS", 50)
    parts = record(add_model(), samples)
    for other in (single, parts):
        assert other.runs == whole.runs == 30
        for key, stats in whole.tensors.items():
            assert np.array_equal(stats.run_extremes, other.tensors[key].run_extremes)
            assert stats.histogram == other.tensors[key].histogram
            assert stats.mean == pytest.approx(other.tensors[key].mean, abs=1e-6)
            assert stats.variance == pytest.approx(other.tensors[key].variance, rel=1e-5)


def test_of_many_runs_all_extremes_and_some_detail() -> None:
    samples = [[np.full((1, 4), k, np.float32), np.zeros((1, 4), np.float32)] for k in range(100)]
    stats = record(add_model(), samples).statistics()["sum"]
    assert stats.maxima.tolist() == list(range(100))
    detailed = gathering.DETAILED + sum(k % gathering.DETAILED_EACH == 0 for k in range(gathering.DETAILED, 100))
    assert stats.count == stats.histogram.total == 4 * detailed


def test_shapes_may_change_from_run_to_run() -> None:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 2), signature=(-1, 2)) for name in "xy")
    builder.operator("ADD", [x, x], [y])
    records = record(builder.finish([x], [y]), [[np.full((n, 2), n, np.float32)] for n in (1, 1, 3, 1)])
    assert records.tensors[0, "y"].maxima.tolist() == [2, 2, 6, 2]
    assert (records.runs, records.tensors[0, "y"].count) == (4, 12)


def test_inputs_may_change_while_recording_goes_on() -> None:
    buffer = np.zeros((1, 4), np.float32)

    def reused() -> Any:
        for k in range(3):
            buffer[:] = k
            yield [buffer, buffer]

    assert record(add_model(), reused()).statistics()["a"].maxima.tolist() == [0, 1, 2]


def test_a_recorder_beside_an_executor() -> None:
    executor = HostExecutor(build_graph(_counting()))
    recorder = Recorder(executor.graph)
    assert recorder.run(executor, [_floats(60)])[0].tolist() == [120]
    first = recorder.take()
    recorder.run(executor, [_floats(70)])
    second = recorder.take()
    assert (first.runs, second.runs) == (1, 1)
    assert (first.tensors[2, "b"].maximum, second.tensors[2, "b"].maximum) == (120, 140)
    assert recorder.take().tensors == {}
    assert executor.run([_floats(3)])[0].tolist() == [192]  # unwatched again
    assert recorder.take().tensors == {}


def test_tensors_of_one_name_have_their_own_ranges() -> None:
    builder = ModelBuilder()
    x, same, y = builder.tensor("x", (2,)), builder.tensor("same", (2,)), builder.tensor("same", (2,))
    builder.operator("ADD", [x, x], [same])
    builder.operator("MUL", [same, same], [y])
    records = record(builder.finish([x], [y]), [[_floats(-3, 5)]])
    found = {name: (stats.minimum, stats.maximum) for (_, name), stats in records.tensors.items()}
    assert found == {"x": (-3, 5), "same": (-6, 10), "same#2": (36, 100)}


def test_a_run_that_fails_counts_if_it_computed_something() -> None:
    builder = ModelBuilder()
    x, index = builder.tensor("x", (4,)), builder.tensor("index", (1,), "int32")
    double, y = builder.tensor("double", (4,)), builder.tensor("y", (1,))
    builder.operator("ADD", [x, x], [double])
    builder.operator("GATHER", [double, index], [y])
    executor = HostExecutor(build_graph(builder.finish([x, index], [y])))
    recorder = Recorder(executor.graph)
    recorder.run(executor, [_floats(1, 2, 3, 4), np.array([0], np.int32)])
    with pytest.raises(InputError, match="GATHER"):
        recorder.run(executor, [_floats(5, 6, 7, 8), np.array([9], np.int32)])
    with pytest.raises(InputError, match="input 0"):
        recorder.run(executor, [_floats(5, 6, 7), np.array([9], np.int32)])
    records = recorder.take()
    assert records.runs == 2
    assert _extremes(records, 0, "double") == [(2, 8), (10, 16)]
    assert _extremes(records, 0, "y") == [(2, 2)]


def test_runs_keep_their_order_however_they_are_watched() -> None:
    executor = HostExecutor(build_graph(add_model()))
    recorder = Recorder(executor.graph)
    for k in range(6):
        observe = (lambda _: None) if k % 3 == 1 else None
        recorder.run(executor, [np.full((1, 4), k, np.float32), np.zeros((1, 4), np.float32)], observe)
    records = recorder.take()
    assert records.runs == 6
    assert records.tensors[0, "sum"].maxima.tolist() == list(range(6))


def test_tensors_without_elements_count_as_runs_without_values() -> None:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 2), signature=(-1, 2)) for name in "xy")
    builder.operator("ADD", [x, x], [y])
    model = builder.finish([x], [y])
    records = record(model, [[np.full((n, 2), n, np.float32)] for n in (1, 0, 2)])
    stats = records.tensors[0, "y"]
    assert (records.runs, stats.runs_seen, stats.maxima.tolist()) == (3, 3, [2, 4])
    assert stats.run_extremes[:, 1].tolist() == [np.inf, -np.inf]
