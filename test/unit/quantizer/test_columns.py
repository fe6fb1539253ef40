"""Which places of an output are columns, and what is said of those that are lost."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.models import ModelBuilder
from odc_mlir.quantizer.measurement import Measurement, Powers
from odc_mlir.quantizer.outputs import ChannelAxes, Columns, Lost, columns_of
from odc_mlir.quantizer.reference import Reference
from odc_mlir.runtime.execution.graph import Graph, build_graph

RNG = np.random.default_rng(7)


def axis_of(values: np.ndarray, known: bool | None = None) -> int:
    """The axis of the columns of samples [samples, *output]."""
    return columns_of(list(values.astype(np.float32)), lambda _: known)[0].axis


def varied(*sizes: np.ndarray, samples: int = 16) -> np.ndarray:
    """Samples whose elements vary by the product of ``sizes``, to broadcast."""
    whole = np.prod(np.broadcast_arrays(*sizes), axis=0)
    return np.asarray(whole * RNG.normal(size=(samples, *whole.shape)))


@pytest.mark.parametrize("shape", [(1, 3, 6, 6), (1, 3, 8), (1, 3, 1)])
@pytest.mark.parametrize("units", [(0.001, 1.0, 1000.0), (100.0, 100.0, 0.01)])
def test_columns_are_along_the_axis_that_tells_the_sizes(shape: tuple[int, ...], units: tuple[float, ...]) -> None:
    sizes = np.array(units).reshape(-1, *[1] * (len(shape) - 2))
    values = varied(np.ones(shape), sizes)
    assert axis_of(values) == 1
    assert axis_of(values, known=False) == -1
    assert axis_of(np.moveaxis(values, 2, -1)) == -1


def test_columns_of_one_size_are_those_of_the_last_axis() -> None:
    assert axis_of(varied(np.ones((1, 3, 6, 6)))) == -1


def test_units_along_the_last_axis_are_told_by_it() -> None:
    assert axis_of(varied(np.ones((1, 6, 6, 3)), np.array([0.001, 1.0, 1000.0]))) == -1


def test_rows_of_an_image_are_no_columns() -> None:
    """What lies at the edge is small, and differs as much along it."""
    edge = np.array([0.01, 0.3, 1.0, 1.0, 1.0, 1.0, 0.3, 0.01])
    assert axis_of(varied(np.ones((1, 8, 8, 1)), edge[:, None, None], edge[:, None])) == -1


@pytest.mark.parametrize(("known", "axis"), [(None, -1), (True, 1)])
def test_many_places_are_columns_only_where_channels_are(known: bool | None, axis: int) -> None:
    assert axis_of(varied(np.ones((1, 40, 1)), np.geomspace(1e-5, 1e5, 40)[:, None]), known) == axis


def graph(layer: str, *moves: tuple[str, tuple[int, ...], tuple[int, ...]]) -> Graph:
    """A layer of three channels, and operators with their shape and what they move by."""
    builder = ModelBuilder()
    shape, weights = {"CONV_2D": ((1, 4, 4, 2), (3, 1, 1, 2)), "FULLY_CONNECTED": ((1, 2), (24, 2))}[layer]
    x, w = builder.tensor("x", shape), builder.tensor("w", weights, data=np.ones(weights, np.float32))
    value = builder.tensor("layer", (*shape[:-1], weights[0]))
    options = {"padding": "valid", "stride_h": 1, "stride_w": 1} if layer == "CONV_2D" else {}
    builder.operator(layer, [x, w, -1], [value], options=options)
    for at, (kind, result, by) in enumerate(moves):
        made = builder.tensor(f"{kind}{at}", result)
        more = [builder.tensor(f"by{at}", (len(by),), "int32", data=np.array(by, np.int32))] if by else []
        builder.operator(kind, [value, *more], [made])
        value = made
    return build_graph(builder.finish([x], [value]))


FIRST = ("TRANSPOSE", (1, 3, 4, 4), (0, 3, 1, 2))


@pytest.mark.parametrize(
    ("layer", "moves", "axes"),
    [
        ("CONV_2D", [], {3}),
        ("CONV_2D", [FIRST], {1}),
        ("CONV_2D", [FIRST, ("RELU", (1, 3, 4, 4), ())], {1}),
        ("CONV_2D", [("RESHAPE", (1, 48, 1), (1, 48, 1))], {2}),
        ("CONV_2D", [("RESHAPE", (1, 16, 3), (1, 16, 3))], {2}),
        ("FULLY_CONNECTED", [("RESHAPE", (1, 3, 8), (1, 3, 8))], {1, 2}),
    ],
)
def test_axes_of_channels_are_followed_through_what_moves_them(layer: str, moves: list, axes: set[int]) -> None:
    made = graph(layer, *moves)
    shape = made.output_infos()[0].static_shape
    found = {axis for axis in range(1, len(shape)) if ChannelAxes(made).are_along(made.outputs[0], shape, axis)}
    assert found == axes


def test_channels_behind_what_computes_are_not_known() -> None:
    made = graph("CONV_2D", ("SUM", (1, 4, 3), (2,)))
    assert ChannelAxes(made).are_along(made.outputs[0], (1, 4, 3), 1) is None


def test_a_column_gets_the_room_that_the_farthest_of_them_has_needed_but_codes_to_go_with_it() -> None:
    even, far = np.array([-1.0, 1.0] * 8), np.r_[np.zeros(14), -3.0, 3.0]
    low, high = Columns.of([row.reshape(1, 2) for row in np.stack([10.0 + even, far], axis=1)]).wider_ranges
    np.testing.assert_allclose(
        [low, high], [[10.0 - 2.0, -3.0], [10.0 + 2.0, 3.0]]
    )  # sqrt(8) deviations, twice at most
    low, high = Columns.of([row.reshape(1, 2) for row in np.stack([even, np.full(16, 5.0)], axis=1)]).wider_ranges
    np.testing.assert_allclose([low, high], [[-1.0, 5.0], [1.0, 5.0]])  # what never varies tells nothing


def test_what_is_lost_is_named_by_axis_and_place() -> None:
    assert Lost([0, 2], 1, 3).text("y").startswith("places 0, 2 along axis 1 of output 'y' (2 of 3) vary in")
    assert Lost([1], -1, 3).text("y").startswith("column 1 of output 'y' (1 of 3) varies in")


def test_who_has_an_output_of_its_own_is_not_told_to_get_one() -> None:
    assert "outputs of their own" in Lost([0], -1, 2).text("y")
    assert "of their own" not in Lost([0], -1, 1).text("y")


def test_shares_are_not_to_be_scaled() -> None:
    for places, columns, what in (([0], 1, "it is"), ([1], 3, "it is"), ([0, 2], 3, "they are")):
        text = Lost(places, -1, columns, are_shares=True).text("y")
        assert text.endswith(f"quantised one: give samples for which {what} larger, or the last layer more bits")


@pytest.mark.parametrize(("tail", "are_shares"), [("SOFTMAX", True), ("LOGISTIC", True), ("NEG", False)])
def test_what_gives_columns_tells_whether_they_are_shares(tail: str, are_shares: bool) -> None:
    builder = ModelBuilder()
    x, y, z = (builder.tensor(name, (1, 3)) for name in "xyz")
    builder.operator("NEG", [x], [y])
    builder.operator(tail, [y], [z], options={"beta": 1.0} if tail == "SOFTMAX" else {})
    samples = [[RNG.normal(size=(1, 3)).astype(np.float32)] for _ in range(8)]
    reference = Reference(build_graph(builder.finish([x], [z])), samples)
    silent = ModelBuilder()
    x, z = silent.tensor("x", (1, 3)), silent.tensor("z", (1, 3))
    zeros = silent.tensor("zeros", (1, 3), data=np.zeros((1, 3), np.float32))
    silent.operator("MUL", [x, zeros], [z])
    (lost,) = reference.measure(build_graph(silent.finish([x], [z]))).lost[0]
    assert (lost.places, lost.are_shares) == ([0, 1, 2], are_shares)


def measured(noise_db: tuple[float, float], lost: list[Lost]) -> Measurement:
    """What is measured of an output of two columns with these SQNR, the same for all samples."""
    noise = np.repeat(10.0 ** (-np.array(noise_db)[:, None] / 10.0), 8, axis=1)
    powers = Powers(np.ones((2, 8)), noise)
    kinds = [[item for item in lost if item.in_part == in_part] for in_part in (False, True)]
    return Measurement([], powers, powers, ["y"], lost=kinds[:1], blurred=kinds[1:])


@pytest.mark.parametrize(("cost_db", "kept"), [(1.0, True), (4.0, False)])
@pytest.mark.parametrize("in_part", [False, True])
def test_columns_that_come_back_may_cost_others_half_a_bit(cost_db: float, kept: bool, in_part: bool) -> None:
    before, after = (0.0, 40.0), (35.0, 40.0 - cost_db)
    lost = measured(before, [Lost([0], 1, 2, in_part=in_part)])
    assert measured(after, []).better_than(lost, 0.1) == kept
    assert not measured(after, []).better_than(measured(before, []), 0.1)
    assert not measured(after, [Lost([1], 1, 2)]).better_than(lost, 0.1)


@pytest.mark.parametrize(("shape", "axis"), [((1, 10), -1), ((1, 7, 3), -1), ((1, 3, 50), 1), ((1, 20, 1), -1)])
def test_samples_taken_together_are_these_one_by_one(shape: tuple[int, ...], axis: int) -> None:
    random = np.random.default_rng(0)
    expected = [random.standard_normal(shape).astype(np.float32) for _ in range(9)]
    found = [a + np.float32(0.1) for a in expected]
    found[4].flat[0] = np.inf
    together, one_by_one = (Columns.of(expected, axis).like() for _ in range(2))
    together.add_all(found, expected)
    for a, b in zip(found, expected, strict=True):
        one_by_one.add(a, b)
    for name in ("low", "high", "values", "total", "squares", "noise"):
        np.testing.assert_array_equal(getattr(together, name), getattr(one_by_one, name))
