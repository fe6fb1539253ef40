"""Error measures against their definitions, and where the definitions have none."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.ops.spec import Array
from odc_mlir.runtime.reporting import metrics
from odc_mlir.runtime.reporting.metrics import ErrorMeter, Errors, Tolerance

EXACT = Tolerance(0.0, 0.0)


def _errors(*records: tuple[object, object], tolerance: Tolerance = EXACT, dtype: object = np.float32) -> Errors:
    meter = ErrorMeter(tolerance, top=True)
    for a, b in records:
        meter.add(np.asarray(a, dtype), np.asarray(b, dtype))  # type: ignore[call-overload]
    return meter.errors()


def test_known_values() -> None:
    found = _errors(([0, 2, -4, 8], [1, 2, -2, 8]), ([1, 1, 1, 1], [1, 1, 1, 2]))
    assert (found.elements, found.differing, found.max_abs) == (8, 3, 2)
    assert found.mae == pytest.approx(4 / 8)
    assert found.mse == pytest.approx(6 / 8)
    assert found.mape_percent == pytest.approx(100 * (2 / 4 + 1) / 7), "the zero takes no part"
    assert found.mpeir == pytest.approx((2 + 1) / 2 / 12), "of all records, as the second has no interval"
    assert found.sqnr_db == pytest.approx(10 * math.log10(88 / 6))
    assert found.cosine == pytest.approx((4 + 8 + 64 + 5) / math.sqrt(88 * (1 + 4 + 4 + 64 + 7)))
    assert found.top1_match == pytest.approx((1 + 0) / 2)
    assert found.top5_match is None, "no record has more than five elements"


def test_records_without_a_finite_value_are_not_counted() -> None:
    nothing, found = ([math.nan, math.inf], [1, 2]), ([0, 4], [1, 2])
    assert _errors(found, nothing).mpeir == _errors(found).mpeir
    assert _errors(nothing, found).tae == _errors(found).tae
    assert _errors(nothing).mpeir is None


def test_equal_values() -> None:
    found = _errors(([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]))
    assert (found.differing, found.mae, found.mpeir, found.sqnr_db) == (0, 0, 0, None)
    assert (found.cosine, found.top1_match, found.top5_match) == (pytest.approx(1), 1, 1)


def test_the_largest_of_all_there_are_say_nothing() -> None:
    assert _errors(([1], [9])).top1_match is None
    assert _errors(([1, 2, 3, 4, 5], [5, 4, 3, 2, 1])).top5_match is None


@given(st.data())
def test_the_largest_of_rows_are_those_of_each(data: st.DataObject) -> None:
    rows, width, k = (data.draw(st.integers(low, high)) for low, high in ((1, 4), (6, 9), (1, 5)))
    values = st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, math.nan]), min_size=rows * width, max_size=rows * width)
    a, b = (np.array(data.draw(values), np.float32) for _ in range(2))

    def largest(row: Array) -> set[int]:
        return set(sorted(range(width), key=lambda i: (-math.inf if math.isnan(row[i]) else -row[i], i))[:k])

    pairs = zip(a.reshape(rows, width), b.reshape(rows, width), strict=True)
    expected = [len(largest(x) & largest(y)) / k for x, y in pairs]
    assert metrics.top_matches(a[None], b[None], k, width) == [pytest.approx(np.mean(expected))]


def test_nothing_to_measure() -> None:
    assert _errors(([], [])) == Errors(0, 0)
    zeros = _errors(([0, 0], [1, 0]))
    assert (zeros.mape_percent, zeros.sqnr_db, zeros.cosine) == (None, None, None)


def test_ties_of_the_largest_go_to_the_lower_index() -> None:
    assert _errors(([3, 3, 1], [3, 2, 1])).top1_match == 1
    assert _errors(([3, 3, 1], [2, 3, 1])).top1_match == 0
    assert _errors(([9, 8, 7, 6, 5, 5], [9, 8, 7, 6, 4, 5])).top5_match == pytest.approx(4 / 5)


def test_what_is_not_finite_differs_unless_it_is_the_same() -> None:
    inf, nan = math.inf, math.nan
    found = _errors(([nan, inf, inf, nan, 1], [nan, inf, -inf, 1, 1]), tolerance=Tolerance(10, 10))
    assert (found.differing, found.max_abs, found.mae) == (2, 0, 0)


@pytest.mark.parametrize(("distance", "differing"), [(0.75, 0), (0.7500001, 1)])
def test_tolerance_at_and_past_the_limit(distance: float, differing: int) -> None:
    tolerance = Tolerance(atol=0.25, rtol=0.5)
    assert _errors(([1.0], [1 + distance]), tolerance=tolerance, dtype=np.float64).differing == differing


def test_integers_know_no_relative_tolerance() -> None:
    assert _errors(([1000], [1001]), tolerance=Tolerance(0.5, 0.5), dtype=np.int16).differing == 1
    assert _errors(([1000], [1001]), tolerance=Tolerance(1, 0), dtype=np.int16).differing == 0


def test_large_integers_are_compared_exactly() -> None:
    assert _errors(([2**62], [2**62 + 1]), dtype=np.int64).max_abs == 0, "as floats they are equal"
    assert _errors(([2**62], [2**62]), dtype=np.int64).differing == 0


def test_truth_values_strings_and_complex_numbers() -> None:
    assert _errors(([True, False], [True, True]), dtype=bool).differing == 1
    assert _errors((["a", "b"], ["a", "c"]), dtype=object) == Errors(2, 1)
    assert _errors(([3 + 4j], [0j]), dtype=np.complex64).max_abs == 5


@given(st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.floats(-1e3, 1e3, width=32)), min_size=1, max_size=40))
def test_pieces_make_no_difference(values: list[tuple[float, float]]) -> None:
    a, b = (np.array(side, np.float32) for side in zip(*values, strict=True))

    def measured(piece: int) -> Errors:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metrics, "_PIECE_ELEMENTS", piece)
            return _errors((a, b))

    whole, parts = measured(1 << 20), measured(3)
    assert whole.differing == parts.differing == int(np.count_nonzero(a != b))
    assert whole.max_abs == parts.max_abs == float(np.abs(a.astype(float) - b.astype(float)).max())
    for name in ("mae", "mse", "mape_percent", "mpeir", "sqnr_db", "cosine"):
        one, other = getattr(whole, name), getattr(parts, name)
        assert one is other is None or one == pytest.approx(other)


def test_records_may_have_any_rank() -> None:
    meter = ErrorMeter(EXACT)
    for array in (np.zeros((), np.int8), np.zeros((2, 3), np.int8)):
        other: Array = array + np.int8(1)
        meter.add(array, other)
    assert meter.errors().mae == 1
    assert meter.errors().top1_match is None


@given(st.data())
def test_records_in_one_array_count_like_records_one_by_one(data: st.DataObject) -> None:
    shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9)))
    values = st.lists(st.sampled_from([0.0, 1.5, -2.0, 0.3, math.inf, math.nan]), min_size=36, max_size=36)
    a, b = (np.array(data.draw(values)[: shape[0] * shape[1]], np.float32).reshape(shape) for _ in range(2))
    equality = data.draw(st.booleans())
    together, one_by_one = (ErrorMeter(Tolerance(), top=True, equality=equality) for _ in range(2))
    together.add(a, b, len(a))
    for pair in zip(a, b, strict=True):
        one_by_one.add(*pair)
    found, expected = (dataclasses.asdict(meter.errors()) for meter in (together, one_by_one))
    assert found == pytest.approx(expected)
