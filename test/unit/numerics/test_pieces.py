"""Working in pieces gives what the whole gives, for sizes around the piece."""

from __future__ import annotations

import math

import numpy as np
import pytest

from odc_mlir.numerics import pieces, pooling
from odc_mlir.numerics.pieces import CHUNK_ELEMENTS

SIZES = [0, 1, CHUNK_ELEMENTS - 1, CHUNK_ELEMENTS, CHUNK_ELEMENTS + 1, 2 * CHUNK_ELEMENTS + 3]


@pytest.mark.parametrize("size", SIZES)
def test_in_pieces(size: int) -> None:
    x = np.arange(size).reshape(1, size)
    seen: list[int] = []

    def square(part: pieces.Array) -> pieces.Array:
        seen.append(part.size)
        return part * part

    assert (pieces.in_pieces(square, x, "int64") == x * x).all()
    assert max(seen) <= CHUNK_ELEMENTS
    assert sum(seen) == size


@pytest.mark.parametrize("size", SIZES)
def test_in_pairs(size: int) -> None:
    a, b = np.arange(size), np.arange(size)[::-1]
    assert (pieces.in_pairs(np.multiply, a, b, "int64") == a * b).all()
    assert pieces.in_pairs(np.multiply, a.reshape(-1, 1), np.array([1, 2]), "int64").shape == (size, 2)


SHAPES = [
    [(5, 7, 3), (7, 1), (5, 7, 3)],
    [(), (3,), (3,)],
    [(1, 2, 1), (4, 1, 6), (4, 2, 6)],
    [(2, 0), (1, 1), (2, 0)],
    [(), (), ()],
    [(8, 9), (8, 9), (8, 9)],
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("limit", [1, 5, 40, 1 << 15])
def test_pieces_of_broadcast_arrays(shapes: list[tuple[int, ...]], limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every element of the result is written once, from the elements that broadcasting puts there."""
    monkeypatch.setattr(pieces, "CHUNK_ELEMENTS", limit)
    a, b = (np.arange(math.prod(s)).reshape(s) + 1 for s in shapes[:2])
    result = np.zeros(shapes[2], np.int64)
    for left, right, target in pieces.pieces(a, b, result):
        target += left * right
        assert target.size <= limit
    assert (result == a * b).all()
    view = np.zeros((*shapes[2], 2), np.int64)[..., 0]
    for left, target in pieces.pieces(a, view):
        target[...] = left
    assert (view == a).all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (7,), (2, CHUNK_ELEMENTS + 1), (3, CHUNK_ELEMENTS // 2 + 1, 2)])
def test_in_rows(shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape)).reshape(shape)
    found = pieces.in_rows(lambda rows: rows[:, ::-1], x, "int64")
    assert (found == x[..., ::-1]).all()


def test_clamp() -> None:
    x = np.array([-5, 0, 5])
    assert pieces.clamp(x, None, None) is x
    assert pieces.clamp(x, -1, None).tolist() == [-1, 0, 5]
    assert pieces.clamp(x, None, 1).tolist() == [-5, 0, 1]


@pytest.mark.parametrize("band", [1, 30, 200])
def test_bands_of_pooling_do_not_matter(band: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).integers(-128, 128, (2, 13, 6, 3)).astype(np.int8)
    arguments = (pooling.PoolWindows((4, 3), (3, 2), (2, 1), (5, 4)), -100, 100)
    whole = pooling.max_pool(x, *arguments), pooling.average_pool(x, *arguments)
    monkeypatch.setattr(pooling, "PART_ELEMENTS", band)
    monkeypatch.setattr(pooling, "_bands", pooling._bands.__wrapped__)
    assert (pooling.max_pool(x, *arguments) == whole[0]).all()
    assert (pooling.average_pool(x, *arguments) == whole[1]).all()
