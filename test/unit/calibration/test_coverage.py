"""What the coverage report finds, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir.calibration.recorded import FEWEST_RUNS, InputFacts, RecordFinding, Records, coverage, document
from odc_mlir.calibration.statistics import LOWEST, TensorStatistics

INPUT, INNER = (0, "input"), (0, "inner")


def _records(inputs: list[np.ndarray], inner: list[np.ndarray] | None = None) -> Records:
    records = Records(runs=len(inputs))
    for key, values in ((INPUT, inputs), (INNER, inner or [])):
        stats = TensorStatistics()
        for value in values:
            stats.add(value.astype(np.float32))
        if values:
            records.tensors[key] = stats
    facts = InputFacts()
    for value in inputs:
        facts.add(value)
    records.inputs["input"] = facts
    return records


def _normal(runs: int = FEWEST_RUNS) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=100) for _ in range(runs)]


def _found(records: Records) -> dict[str, RecordFinding]:
    return {finding.kind: finding for finding in coverage(records, [INPUT], [INPUT, *records.tensors])}


def test_good_data_gives_no_findings() -> None:
    assert coverage(_records(_normal(), _normal()), [INPUT], [INPUT, INNER]) == []


def test_the_number_of_runs() -> None:
    assert _found(_records(_normal(FEWEST_RUNS - 1)))["few-runs"].severity == "warning"
    assert coverage(Records())[0].kind == "no-runs"
    assert coverage(Records())[0].severity == "error"


@pytest.mark.parametrize(
    ("inputs", "kind", "severity"),
    [
        ([np.zeros(100)] * 10, "constant-input", "error"),
        ([np.full(100, 7.5)] * 10, "constant-input", "error"),
        ([np.linspace(-1, 1, 100)] * 10, "identical-inputs", "warning"),
        ([np.random.default_rng(k).integers(0, 256, 100).astype(float) for k in range(10)], "raw-pixels", "warning"),
        ([1e4 * value for value in _normal()], "large-inputs", "warning"),
        ([1e18 * value for value in _normal()], "large-inputs", "warning"),  # as nanoseconds since 1970
        ([np.append(value, (-1e30, 1e36)) for value in _normal()], "large-inputs", "warning"),  # mask and mark
        ([1e20 * value for value in _normal()], "outsized-inputs", "error"),
        ([1e36 * np.maximum(value, 0) for value in _normal()], "outsized-inputs", "error"),
        ([np.append(value, [1e30, 2e30, -3e30]) for value in _normal()], "outsized-inputs", "error"),
        ([1e-31 * value for value in _normal()], "vanishing-inputs", "error"),
        ([np.append(value, np.nan) for value in _normal()], "not-a-number", "warning"),
        ([np.append(value, -np.inf) for value in _normal()], "infinite", "warning"),
        ([np.full(3, np.nan)] * 10, "no-values", "warning"),
    ],
)
def test_odd_inputs(inputs: list[np.ndarray], kind: str, severity: str) -> None:
    finding = _found(_records(inputs))[kind]
    assert (finding.severity, finding.tensor) == (severity, "input")


@pytest.mark.parametrize(
    "inputs",
    [
        [np.random.default_rng(k).integers(0, 2, 100).astype(float) for k in range(10)],  # black and white
        [np.random.default_rng(k).integers(-128, 128, 100).astype(float) for k in range(10)],  # not pixels
        [np.random.default_rng(k).integers(0, 256, 100) + 0.5 for k in range(10)],
        [1e3 * np.tanh(value) for value in _normal()],
    ],
)
def test_inputs_that_are_fine(inputs: list[np.ndarray]) -> None:
    assert _found(_records(inputs)) == {}


@pytest.mark.parametrize(("value", "is_constant"), [(np.finfo(np.float32).min, False), (0.0, True)])
def test_a_mask_is_no_constant(value: float, is_constant: bool) -> None:
    """Statistics leave the lowest float out, which is a value of masks nevertheless."""
    mask = np.array([0.0, 0.0, value], np.float32)
    found = coverage(_records([mask] * 12), [INPUT])
    assert ("constant-input" in {finding.kind for finding in found}) is is_constant


def test_tensors_that_no_run_computed() -> None:
    (finding,) = coverage(_records(_normal()), [INPUT], [INPUT, (3, "branch")])
    assert (finding.kind, finding.subgraph, finding.tensor) == ("never-observed", 3, "branch")


def test_errors_come_first_and_all_is_plain_data() -> None:
    findings = coverage(_records([np.zeros(9)] * 2), [INPUT])
    assert [finding.severity for finding in findings] == ["error", "warning"]
    assert document(findings)[0] == {
        "severity": "error",
        "kind": "constant-input",
        "subgraph": 0,
        "tensor": "input",
        "text": "all values of all samples are 0; this is no real data",
    }
    assert str(findings[0]) == "'input': all values of all samples are 0; this is no real data"


def test_facts_are_joined() -> None:
    def facts(*values: float) -> InputFacts:
        result = InputFacts()
        for value in values:
            result.add(np.array([value]))
        return result

    for first, second, identical, whole in (
        (facts(1, 1), facts(1), True, True),
        (facts(1), facts(2), False, True),
        (facts(1, 2), facts(1), False, True),
        (facts(), facts(1.5), True, False),
        (facts(1.5), facts(), True, False),
    ):
        first.merge(second)
        assert (first.identical, first.whole) == (identical, whole)


def test_elements_that_are_left_out_are_counted() -> None:
    odd = _normal()
    odd[0][:3] = np.nan, np.inf, LOWEST
    odd[1][:2] = np.inf, -np.inf
    found = _found(_records(_normal(), odd))
    assert found["not-a-number"].text.startswith("1 element is NaN; ")
    assert found["infinite"].text.startswith("3 elements are infinite; ")
