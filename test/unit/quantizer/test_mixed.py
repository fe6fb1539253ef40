from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.quantizer.mixed import LADDERS, Move, Precisions, ladder_of, plan_moves, precisions_after, search
from odc_mlir.quantizer.policy.verdict import LayerError

LADDER = ("int16x8", "float")


def _layer(name: str, noise: float, precision: str = "int8") -> LayerError:
    return LayerError(name, "CONV_2D", precision, noise=noise)


def _moves(*layers: str) -> list[Move]:
    return [Move(name, "float", 1.0, 1.0) for name in layers]


def test_every_full_scheme_ends_in_float() -> None:
    assert all(ladder[-1] == "float" for ladder in LADDERS.values())
    assert ladder_of("int8_wo") == ()


def test_gain_per_cost_decides_the_order() -> None:
    narrow = [_layer("cheap", 0.2), _layer("dear", 0.3), _layer("clean", 0.0)]
    wide = {"int16x8": [_layer(layer.name, 0.0, "int16x8") for layer in narrow]}
    moves = plan_moves(narrow, wide, {"cheap": 100.0, "dear": 1000.0, "clean": 1.0}, LADDER)
    assert [(move.layer, move.precision) for move in moves] == [("cheap", "int16x8"), ("dear", "int16x8")]


def test_a_step_that_hardly_helps_is_left_out() -> None:
    moves = plan_moves([_layer("a", 0.2)], {"int16x8": [_layer("a", 0.15, "int16x8")]}, {}, LADDER)
    assert [move.precision for move in moves] == ["float"]


def test_a_layer_that_cannot_be_wider_goes_to_float() -> None:
    moves = plan_moves([_layer("a", 0.2)], {"int16x8": [_layer("a", 0.0, "float")]}, {}, LADDER)
    assert [move.precision for move in moves] == ["float"]


def test_the_second_step_of_a_layer_comes_after_the_first() -> None:
    # What is left after the first step is small, but costs next to nothing to take away.
    moves = plan_moves([_layer("a", 1.0)], {"int16x8": [_layer("a", 0.4, "int16x8")]}, {"a": 1.0}, LADDER)
    assert [move.precision for move in moves] == ["int16x8", "float"]
    assert precisions_after(moves) == {"a": "float"}


@given(st.integers(1, 40), st.data())
def test_the_search_finds_the_smallest_number_that_is_enough(count: int, data: st.DataObject) -> None:
    names = [f"l{i}" for i in range(count)]
    needed = data.draw(st.integers(1, count))
    tried: list[Precisions] = []

    def good_enough(precisions: Precisions) -> bool:
        tried.append(precisions)
        return set(names[:needed]) <= precisions.keys()

    assert search(_moves(*names), good_enough) == dict.fromkeys(names[:needed], "float")
    assert len(tried) <= 2 * count.bit_length() + 12


def test_needless_moves_are_taken_back() -> None:
    found = search(_moves("a", "b", "c"), lambda precisions: "c" in precisions)
    assert found == {"c": "float"}


def test_where_nothing_is_enough_there_is_no_result() -> None:
    assert search(_moves("a", "b"), lambda precisions: False) is None
    assert search([], lambda precisions: True) is None


def test_when_time_is_over_nothing_that_was_not_measured_is_taken() -> None:
    assert search(_moves("a", "b", "c"), lambda precisions: bool(precisions), in_time=lambda: False) is None
