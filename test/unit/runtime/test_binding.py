"""Arrays that do not fit are refused with the input, what is expected and what was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.errors import InputError
from odc_mlir.ops.spec import QuantParams, TensorInfo
from odc_mlir.runtime.execution.binding import bind_inputs, fits, to_codes, to_reals

X = TensorInfo("x", "float32", (None, 2))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            np.zeros((1, 2)),
            r"be float32\[\?, 2\], not float64\[1, 2\] \(tensor 'x'\); .*astype\('float32'\)",
        ),
        (np.zeros((1, 2), ">f8"), r"input 0 must be float32"),
        (np.zeros((1, 3), np.float32), r"not float32\[1, 3\]"),
        (np.zeros(2, np.float32), r"not float32\[2\]"),
        ("text", r"not str"),
        (None, r"not object\[\]"),
        ([[1.0], [1.0, 2.0]], r"input 0 cannot be converted to an array"),
    ],
)
def test_misfits(value: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        bind_inputs([X], [value])


def test_the_remedy_keeps_values() -> None:
    codes = TensorInfo("x", "int8", (1, 2), QuantParams((0.5,), (-3,)))
    with pytest.raises(InputError, match=r"it takes codes: round\(real / 0\.5\) \+ -3"):
        bind_inputs([codes], [np.ones((1, 2), np.float32)])
    with pytest.raises(InputError, match=r"astype\('int8'\)"):
        bind_inputs([codes], [np.ones((1, 2), np.int64)])
    channels = TensorInfo("x", "int8", (1, 2), QuantParams((0.5, 0.25), (0, 0), 1))
    with pytest.raises(InputError, match=r"real = scale \* \(code - zero_point\)"):
        bind_inputs([channels], [np.ones((1, 2), np.float32)])


@pytest.mark.parametrize(("shape", "is_named"), [((5, 2), True), ((5, 3), False), ((5,), False), ((), False)])
def test_several_samples_at_once_are_told_how(shape: tuple[int, ...], is_named: bool) -> None:
    with pytest.raises(InputError) as caught:
        bind_inputs([TensorInfo("x", "float32", (1, 2))], [np.zeros(shape, np.float32)])
    assert ("--samples" in str(caught.value)) is is_named


@pytest.mark.parametrize(
    ("shape", "remedy"),
    [
        ((12, 4, 5, 3), r"channels come last: use transpose\(0, 3, 1, 2\).*--io-layout nhwc"),
        ((1, 5, 3, 4), r"channels come first: use transpose\(0, 2, 3, 1\)$"),
        ((1, 3, 5, 4), r"\(tensor 'x'\)$"),
        ((3, 4, 5), r"add the batch dimension: array\[None\]$"),
    ],
)
def test_images_in_another_layout_are_told_how(shape: tuple[int, ...], remedy: str) -> None:
    with pytest.raises(InputError, match=remedy) as caught:
        bind_inputs([TensorInfo("x", "float32", (1, 3, 4, 5))], [np.zeros(shape, np.float32)])
    assert "must be float32[1, 3, 4, 5]" in str(caught.value)


@pytest.mark.parametrize("order", ["<", ">"])
def test_any_byte_order_will_do(order: str) -> None:
    (bound,) = bind_inputs([X], [np.array([[1.5, -2]], f"{order}f4")])
    assert bound.dtype.isnative
    assert bound.tolist() == [[1.5, -2]]


def test_arrays_by_name() -> None:
    infos = [X, TensorInfo("z", "float32", (1, 2), alias="second")]
    one, two = (np.full((1, 2), number, np.float32) for number in (1, 2))
    for name in ("z", "second"):
        assert [array[0, 0] for array in bind_inputs(infos, {name: two, "x": one})] == [1, 2]
    for wrong in ({"x": one}, {"x": one, "y": two}, {"x": one, "z": two, "y": two}):
        with pytest.raises(InputError, match=r"the model has 2 inputs \('x', 'z'\), got 'x'"):
            bind_inputs(infos, wrong)


def test_count() -> None:
    with pytest.raises(InputError, match=r"the model has 1 input \('x'\), got 2 arrays"):
        bind_inputs([X], [np.zeros((1, 2), np.float32)] * 2)
    with pytest.raises(InputError, match=r"1 input \('x'\), got ndarray; pass a list of arrays"):
        bind_inputs([X], np.zeros((1, 2), np.float32))  # type: ignore[arg-type]


def test_bound_arrays_are_contiguous_and_read_only() -> None:
    given_array = np.zeros((2, 4), np.float32).T
    (bound,) = bind_inputs([X], [given_array])
    assert bound.flags.c_contiguous
    assert not bound.flags.writeable
    assert given_array.flags.writeable


def test_scalars_stay_scalars() -> None:
    assert bind_inputs([TensorInfo("s", "int32", ())], [np.int32(3)])[0].shape == ()


def test_unknown_rank_takes_everything() -> None:
    anything = TensorInfo("x", "float32", None)
    assert bind_inputs([anything], [np.zeros((1, 2, 3), np.float32)])[0].shape == (1, 2, 3)


def test_strings() -> None:
    info = TensorInfo("words", "string", (None,))
    assert bind_inputs([info], [np.array(["a", "bc"])])[0].dtype == object


def test_four_bit_values_are_checked() -> None:
    info = TensorInfo("x", "int4", (2,))
    bind_inputs([info], [np.array([-8, 7], np.int8)])
    with pytest.raises(InputError, match=r"values outside int4's -8\.\.7"):
        bind_inputs([info], [np.array([-8, 8], np.int8)])


@pytest.mark.parametrize(
    ("declared", "shape", "resize", "expected"),
    [
        ((1, 2), (1, 2), False, True),
        ((1, 2), (1, 3), False, False),
        ((1, 2), (1, 3), True, True),
        ((1, 2), (1, 2, 3), True, False),
        ((None, 2), (0, 2), False, True),
        (None, (5,), False, True),
    ],
)
def test_fits(declared: Any, shape: tuple[int, ...], resize: bool, expected: bool) -> None:
    assert fits(declared, shape, resize=resize) is expected


QUANTISED = TensorInfo("q", "int8", (3,), QuantParams((0.5,), (-3,)))


def test_codes_round_half_away_and_saturate() -> None:
    reals = np.array([0.25, -0.25, 1e9], np.float32)
    np.testing.assert_array_equal(to_codes(QUANTISED, reals), np.array([-2, -4, 127], np.int8))


@given(st.lists(st.integers(-128, 127), min_size=1))
def test_codes_survive_the_way_to_reals_and_back(codes: list[int]) -> None:
    array = np.array(codes, np.int8)
    back = to_codes(QUANTISED, to_reals(QUANTISED, array))
    np.testing.assert_array_equal(back, array)
    assert back.dtype == np.int8


def test_other_tensors_are_left_alone() -> None:
    reals = np.zeros((1, 2), np.float32)
    assert to_codes(X, reals) is reals
    assert to_reals(X, reals) is reals
    codes = np.zeros(3, np.int8)
    assert to_codes(QUANTISED, codes) is codes


def test_scales_of_channels_stand_along_their_axis() -> None:
    info = TensorInfo("q", "int8", (1, 2, 3), QuantParams((0.5, 2.0), (0, 1), axis=1))
    reals = np.array([[[1, 2, 3], [4, 8, 12]]], np.float32)
    codes = to_codes(info, reals)
    np.testing.assert_array_equal(codes, np.array([[[2, 4, 6], [3, 5, 7]]], np.int8))
    np.testing.assert_array_equal(to_reals(info, codes), reals)


@pytest.mark.parametrize("given", [["a", "bé"], [b"a", "bé".encode()], np.array(["a", "bé"], object)])
def test_strings_become_bytes(given: Any) -> None:
    (array,) = bind_inputs([TensorInfo("s", "string", (2,))], [np.asarray(given)])
    assert array.tolist() == [b"a", "bé".encode()]


def test_strings_only() -> None:
    with pytest.raises(InputError, match=r"input 0 holds 3; it must hold strings or bytes .*tensor 's'"):
        bind_inputs([TensorInfo("s", "string", (2,))], [np.array(["a", 3], object)])
