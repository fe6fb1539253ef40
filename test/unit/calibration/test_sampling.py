"""Places of samples, chosen from all over."""

from __future__ import annotations

import pytest

from odc_mlir.calibration.copies import stratified


@pytest.mark.parametrize(("count", "total"), [(0, 0), (0, 5), (1, 1), (1, 5), (4, 5), (5, 5), (16, 17), (16, 100)])
def test_one_of_each_stratum(count: int, total: int) -> None:
    found = stratified(count, total)
    assert found == stratified(count, total)
    assert len(found) == count
    for number, place in enumerate(found):
        assert total * number // count <= place < total * (number + 1) // count


@pytest.mark.parametrize("period", range(2, 13))
def test_kinds_that_take_turns(period: int) -> None:
    """A quarter of a hundred holds most of them."""
    kinds = {place % period for place in stratified(25, 100)}
    assert len(kinds) >= 0.75 * period
