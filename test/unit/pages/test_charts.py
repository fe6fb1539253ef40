"""Charts of the pages."""

from __future__ import annotations

import re

from odc_mlir.pages import charts


def test_a_line_joins_the_best_points_by_their_first_coordinate() -> None:
    points = [("b", 4.0, 1.0, True), ("worse", 3.0, 9.0, False), ("a", 1.0, 8.0, True)]
    drawn = str(charts.scatter(points, ("area", "cycles"), title="machines"))
    found = re.search(r'polyline points="([^"]*)"', drawn)
    assert found is not None
    columns = [float(pair.split(",")[0]) for pair in found[1].split()]
    assert len(columns) == 2
    assert columns[0] < columns[1]


def test_ticks_are_round_numbers_of_any_size() -> None:
    points = [("a", 0.0375, 64.0, True), ("b", 0.01, 3.0, False)]
    drawn = str(charts.scatter(points, ("ms", "bytes"), title="machines"))
    assert re.findall(r'text-anchor="middle">([^<]*)<', drawn) == ["0.01", "0.02", "0.03"]
    assert re.findall(r'x="146" [^>]*>([^<]*)<', drawn) == ["20", "40", "60"]
