"""Resizing against loops over pixels."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from helpers.nodes import const, node, run, tensor
from odc_mlir.numerics import resize

MODES = [(False, False), (True, False), (False, True)]
SIZE = st.integers(1, 9)


def fixed_axis(size: int, output: int, i: int, align: bool, half: bool) -> tuple[int, int, int]:
    """Two source positions and the weight of the second in 1/1024."""
    if align and output > 1:
        scale = (1024 * (size - 1) + (output - 1) // 2) // (output - 1)
    else:
        scale = (1024 * size + output // 2) // output
    position = i * scale + (scale // 2 - 512 if half else 0)
    low = max(math.trunc(position / 1024), 0)
    return low, min(math.trunc((position + 1023) / 1024), size - 1), position - 1024 * low


@given(SIZE, SIZE, SIZE, SIZE, st.sampled_from(MODES), st.integers(0, 99))
def test_bilinear_int8(h: int, w: int, oh: int, ow: int, mode: tuple[bool, bool], seed: int) -> None:
    x = np.random.default_rng(seed).integers(-128, 128, (1, h, w, 1)).astype(np.int8)
    found = resize.resize_bilinear(x, (oh, ow), *mode)[0, :, :, 0]
    for i, j in np.ndindex(oh, ow):
        y0, y1, fy = fixed_axis(h, oh, i, *mode)
        x0, x1, fx = fixed_axis(w, ow, j, *mode)
        total = sum(
            int(x[0, row, column, 0]) * wy * wx
            for row, wy in ((y0, 1024 - fy), (y1, fy))
            for column, wx in ((x0, 1024 - fx), (x1, fx))
        )
        assert found[i, j] == math.trunc((total + (2**19 if total > 0 else -(2**19))) / 2**20)


def exact_axis(size: int, output: int, align: bool, half: bool) -> list[Fraction]:
    """Positions, no more than half a pixel outside of the image."""
    ratio = Fraction(size - 1, output - 1) if align and output > 1 else Fraction(size, output)
    offset = (ratio - 1) / 2 if half else Fraction(0)
    return [min(max(i * ratio + offset, Fraction(0)), Fraction(size - 1)) for i in range(output)]


@given(SIZE, SIZE, st.sampled_from([1, 2, 3, 4, 6, 8]), st.sampled_from(MODES), st.integers(0, 99))
def test_bilinear_int16(h: int, w: int, factor: int, mode: tuple[bool, bool], seed: int) -> None:
    """All of the 16 bits are right: to the last one where units of 1/1024 hold all positions."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((1, h, w, 1)) < 0.3, rng.choice([-32768, 32767]), rng.integers(-32768, 32768, (1, h, w, 1)))
    oh, ow = factor * h, factor * w
    found = resize.resize_bilinear(x.astype(np.int16), (oh, ow), *mode)[0, :, :, 0]
    ys, xs = exact_axis(h, oh, *mode), exact_axis(w, ow, *mode)
    whole = all(1024 % p.denominator == 0 for p in ys + xs)
    for i, j in np.ndindex(oh, ow):
        (y, fy), (c, fx) = divmod(ys[i], 1), divmod(xs[j], 1)
        total = sum(
            Fraction(int(x[0, min(y + dy, h - 1), min(c + dx, w - 1), 0])) * wy * wx
            for dy, wy in ((0, 1 - fy), (1, fy))
            for dx, wx in ((0, 1 - fx), (1, fx))
        )
        if whole:
            assert found[i, j] == math.trunc(total + Fraction(1 if total > 0 else -1, 2))
        else:
            assert abs(found[i, j] - total) < 0.6


def test_halves_of_int16_are_rounded_away_from_zero() -> None:
    x = np.array([-32768, -32767, 0, 1, 2, 32767], np.int16).reshape(1, 1, 6, 1)
    found = resize.resize_bilinear(x, (1, 11), True, False).ravel().tolist()
    assert found == [-32768, -32768, -32767, -16384, 0, 1, 1, 2, 2, 16385, 32767]


@given(SIZE, SIZE, SIZE, SIZE, st.sampled_from(MODES), st.integers(0, 99))
def test_bilinear_float(h: int, w: int, oh: int, ow: int, mode: tuple[bool, bool], seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(2, h, w, 3)).astype(np.float32)

    def axis(size: int, output: int, i: int) -> tuple[int, int, float]:
        align, half = mode
        ratio = (size - 1) / (output - 1) if align and output > 1 else size / output
        position = (i + 0.5) * ratio - 0.5 if half else i * ratio
        # the positions are float32: a sum that should be whole may lie next to it, which moves low but not the value
        low = max(math.floor(position), 0)
        return min(low, size - 1), min(math.ceil(position), size - 1), position - low

    found = resize.resize_bilinear(x, (oh, ow), *mode)
    for i, j in np.ndindex(oh, ow):
        (y0, y1, fy), (x0, x1, fx) = axis(h, oh, i), axis(w, ow, j)
        top = x[:, y0, x0] * (1 - fx) + x[:, y0, x1] * fx
        bottom = x[:, y1, x0] * (1 - fx) + x[:, y1, x1] * fx
        np.testing.assert_allclose(found[:, i, j], top * (1 - fy) + bottom * fy, rtol=1e-4, atol=1e-4)


def test_bilinear_uint8_truncates_after_adding_half() -> None:
    x = np.array([0, 255], np.uint8).reshape(1, 1, 2, 1)
    assert resize.resize_bilinear(x, (1, 4), False, True).ravel().tolist() == [0, 64, 191, 255]


def test_blocks_of_rows_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(2).integers(-128, 128, (2, 5, 4, 3)).astype(np.int8)
    whole = resize.resize_bilinear(x, (11, 7), False, True)
    monkeypatch.setattr(resize, "_BLOCK_ELEMENTS", 1)
    assert (resize.resize_bilinear(x, (11, 7), False, True) == whole).all()


@given(SIZE, SIZE, st.sampled_from(MODES))
def test_nearest(size: int, output: int, mode: tuple[bool, bool]) -> None:
    align, half = mode
    found = resize.nearest_positions(size, output, *mode)
    for i in range(output):
        ratio = float(np.float32(size - 1) / np.float32(output - 1)) if align and output > 1 else size / output
        position = (i + (0.5 if half else 0.0)) * ratio
        if abs(position % 1 - 0.5) > 1e-4 and abs(position - round(position)) > 1e-4:
            whole = scalar.half_away(position) if align else math.floor(position)
            assert found[i] == min(max(whole, 0), size - 1)


def test_nearest_moves_pixels() -> None:
    x = np.arange(8, dtype=np.int8).reshape(1, 2, 2, 2)
    found = resize.nearest_resizer(x.shape, (4, 4), False, False)(x)
    assert (found == x.repeat(2, axis=1).repeat(2, axis=2)).all()


@pytest.mark.parametrize("name", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"half_pixel_centers": True}], ids=str)
def test_the_same_size_changes_nothing(name: str, options: dict[str, bool]) -> None:
    x = np.array([np.inf, 1, np.nan, -0.0, 1e-45, -np.inf], np.float32).reshape(1, 3, 2, 1)
    made = node(name, [tensor("float32", x.shape), const([3, 2])], tensor("float32", None), **options)
    found = run(made, x)
    assert np.shares_memory(found, x)
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize("how", [(False, False), (True, False), (False, True)])
def test_sums_of_8_bit_codes_take_32_bits(how: tuple[bool, bool]) -> None:
    """The largest codes, and weights of more than one beyond the edge, leave room."""
    x = np.where(np.indices((1, 5, 4, 3)).sum(axis=0) % 2, -128, 127).astype(np.int8)
    wide = resize.resize_bilinear(x.astype(np.int16), (11, 9), *how, by_reference=True)
    assert np.array_equal(resize.resize_bilinear(x, (11, 9), *how), wide)
    rows, columns = (resize._fixed_line(*sizes, *how) for sizes in ((5, 11), (4, 9)))
    assert resize._fixed_sums(x, rows, columns).dtype == np.int32
