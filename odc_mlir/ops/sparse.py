"""Sparse constants: layout of stored elements, and conversion to a dense tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import ModelError


@dataclass(slots=True, eq=False)
class DimMetadata:
    """One level of a sparse tensor. Index vectors keep the stored width (int32, uint16 or uint8)."""

    format: str
    dense_size: int = 0
    segments: NDArray[Any] | None = None
    indices: NDArray[Any] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DimMetadata):
            return NotImplemented
        same = self.format == other.format and self.dense_size == other.dense_size
        return same and same_array(self.segments, other.segments) and same_array(self.indices, other.indices)


@dataclass(slots=True)
class Sparsity:
    """Layout of a constant's stored elements.

    ``traversal_order`` lists the dimensions of the tensor, then the block dimensions. ``dims`` has a level for each
    entry. Block dimension ``b`` divides the dimension ``block_map[b]``.
    """

    traversal_order: tuple[int, ...]
    block_map: tuple[int, ...]
    dims: tuple[DimMetadata, ...]


def same_array(a: NDArray[Any] | None, b: NDArray[Any] | None) -> bool:
    """Return whether dtype, shape and bytes are equal."""
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def densify(values: NDArray[Any], sparsity: Sparsity, shape: Sequence[int]) -> NDArray[Any]:
    """Return the dense tensor of ``shape`` with ``values`` at the positions of ``sparsity``, and zeros elsewhere.

    Values and indices beyond the last position are padding. Raises ModelError if the layout contradicts itself or the
    shape, or if there are too few values.
    """
    rank, blocks = len(shape), len(sparsity.block_map)
    order = sparsity.traversal_order
    if sorted(order) != list(range(rank + blocks)) or len(sparsity.dims) != len(order):
        raise ModelError(
            f"the traversal order {list(order)} with {len(sparsity.dims)} levels does not fit {rank} dimensions and "
            f"{blocks} block dimensions"
        )
    if any(not 0 <= dim < rank for dim in sparsity.block_map) or len(set(sparsity.block_map)) != blocks:
        raise ModelError(f"the block map {list(sparsity.block_map)} does not fit {rank} dimensions")
    places = _coordinates(sparsity, most=math.prod(shape))
    described = len(places[0]) if places else 1
    if described > values.size:
        raise ModelError(f"the levels describe {described} elements, {values.size} are stored")
    return _scatter(values.reshape(-1)[:described], places, sparsity, shape)


def _coordinates(sparsity: Sparsity, most: int) -> list[NDArray[np.int64]]:
    places: list[NDArray[np.int64]] = []
    count = 1
    for number, level in enumerate(sparsity.dims):
        if level.format == "dense":
            size = level.dense_size
            _check_count(count * max(size, 0), most, number)
            parents = np.repeat(np.arange(count), max(size, 0))
            found = np.tile(np.arange(size, dtype=np.int64), count)
        else:
            parents, found = _compressed(level, count, number)
            _check_count(len(found), most, number)
        places = [place[parents] for place in places]
        places.append(found)
        count = len(found)
    return places


def _check_count(count: int, most: int, number: int) -> None:
    if count > most:
        raise ModelError(f"level {number} has {count} elements, more than the {most} of the whole tensor")


def _compressed(level: DimMetadata, count: int, number: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    if level.segments is None or level.indices is None:
        raise ModelError(f"level {number} has no segments or indices")
    segments, indices = level.segments.astype(np.int64), level.indices.astype(np.int64)
    lengths = np.diff(segments)
    if len(segments) != count + 1 or segments[0] != 0 or segments[-1] > len(indices) or (lengths < 0).any():
        raise ModelError(f"the segments of level {number} do not divide its {len(indices)} indices into {count} rows")
    return np.repeat(np.arange(count), lengths), indices[: segments[-1]]


def _scatter(
    values: NDArray[Any], places: Sequence[NDArray[np.int64]], sparsity: Sparsity, shape: Sequence[int]
) -> NDArray[Any]:
    rank = len(shape)
    by_dim = dict(zip(sparsity.traversal_order, places, strict=True))
    block_sizes = dict.fromkeys(range(rank), 1)
    inner: dict[int, NDArray[np.int64]] = {}
    for block, dim in enumerate(sparsity.block_map):
        level = sparsity.dims[sparsity.traversal_order.index(rank + block)]
        if level.format != "dense" or level.dense_size < 1:
            raise ModelError("a block dimension must be dense")
        block_sizes[dim], inner[dim] = level.dense_size, by_dim[rank + block]
    dense = np.zeros(shape, values.dtype)
    index = []
    for dim in range(rank):
        place = by_dim[dim] * block_sizes[dim] + inner.get(dim, np.int64(0))
        if place.size and not 0 <= place.min() <= place.max() < shape[dim]:
            raise ModelError(f"an index along dimension {dim} is outside its extent of {shape[dim]}")
        index.append(place)
    dense[tuple(index)] = values if index else values.reshape(())
    return dense
