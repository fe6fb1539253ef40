"""Load and store commands of tiles."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from odc_mlir.isa.immediates import Immediates, shared
from odc_mlir.transforms.npu.schedule.geometry import Tile, WindowGeometry, clip
from odc_mlir.transforms.npu.schedule.layers import LayerTensor
from odc_mlir.transforms.npu.schedule.program import Command, Place, command, placed


class Region2D(NamedTuple):
    """Input rows and columns, padding included, and the channels of one load."""

    row: int
    rows: int
    col: int
    cols: int
    channel: int
    channels: int


def load_region(
    source: LayerTensor, window: WindowGeometry, image: int, region: Region2D, target: Place, zero: int
) -> Command:
    """Return the load of part of an image, padded with ``zero`` outside of it; dense in the tile buffer."""
    rows = clip(region.row, region.rows, window.in_height)
    cols = clip(region.col, region.cols, window.in_width)
    pixel = region.channels * window.item_bytes
    if not rows.length or not cols.length:
        size = region.rows * region.cols * pixel
        return command("fill", target=target, bytes=size, value=zero, type=source.type)
    offset = image * window.image_bytes + rows.first * window.row_bytes + cols.first * window.pixel_bytes
    place = source.at(offset + region.channel * window.item_bytes)
    down, across = (rows.before, rows.length, rows.after), (cols.before, cols.length, cols.after)
    fields = _padded_load(down, across, pixel, window.pixel_bytes, window.row_bytes, zero)
    return placed(fields, {"source": place, "target": target})


@lru_cache(maxsize=4096)
def _padded_load(
    down: tuple[int, int, int], across: tuple[int, int, int], pixel: int, pixel_stride: int, row_stride: int, zero: int
) -> Immediates:
    """Return the fields of a load of ``pixel`` bytes from each of some pixels.

    ``down``, ``across``: rows and columns of padding before, of pixels, and of padding behind.
    """
    above, rows, below = down
    left, cols, right = across
    fields = {
        "size0": pixel,
        "size1": cols,
        "size2": rows,
        "memory_stride1": pixel_stride if cols > 1 else 0,
        "memory_stride2": row_stride if rows > 1 else 0,
        "tile_stride1": pixel,
        "tile_stride2": (left + cols + right) * pixel,
        "pad_before1": left,
        "pad_after1": right,
        "pad_before2": above,
        "pad_after2": below,
        "pad_value": zero,
    }
    return shared("load", fields)


def store_tile(
    result: LayerTensor, window: WindowGeometry, tile: Tile, channel: int, channels: int, source: Place
) -> Command:
    """Return the store of result channels ``[channel, channel + channels)`` of a tile, dense in the tile buffer."""
    fields, place = _result_runs("store", result, window, tile, channel, channels)
    return placed(fields, {"target": place, "source": source})


def load_tile(
    tensor: LayerTensor, window: WindowGeometry, tile: Tile, channel: int, channels: int, target: Place
) -> Command:
    """Return the load from ``tensor``, which has the shape of the result, of the elements of :func:`store_tile`."""
    fields, place = _result_runs("load", tensor, window, tile, channel, channels)
    return placed(fields, {"source": place, "target": target})


def _result_runs(
    mnemonic: str, tensor: LayerTensor, window: WindowGeometry, tile: Tile, channel: int, channels: int
) -> tuple[Immediates, Place]:
    """Return the fields of a transfer of channels of a tile, and their place in a tensor of the result's shape."""
    item = window.item_bytes
    pixel = (tile.image * window.out_height + tile.y) * window.out_width + tile.x
    fields = _dense_transfer(
        mnemonic, tile.rows, tile.cols, channels * item, window.out_channels * item, window.out_width
    )
    return fields, tensor.at((pixel * window.out_channels + channel) * item)


@lru_cache(maxsize=4096)
def _dense_transfer(mnemonic: str, rows: int, cols: int, size: int, pixel: int, width: int) -> Immediates:
    """Return the fields of a transfer of ``size`` of the ``pixel`` bytes of each of some pixels.

    They are dense in the tile buffer, and part of an image with rows of ``width`` pixels.
    """
    runs = {
        "size0": size,
        "size1": cols,
        "size2": rows,
        "memory_stride1": pixel if cols > 1 else 0,
        "memory_stride2": width * pixel if rows > 1 else 0,
        "tile_stride1": size,
        "tile_stride2": cols * size,
    }
    return shared(mnemonic, runs)


def flat_load(source: Place, target: Place, size: int) -> Command:
    """Return the load of contiguous bytes."""
    return command("load", source=source, target=target, **flat_runs(size))


def flat_store(target: Place, source: Place, size: int) -> Command:
    """Return the store of contiguous bytes."""
    return command("store", target=target, source=source, **flat_runs(size))


def flat_runs(size: int) -> dict[str, int]:
    """Return sizes and strides of a transfer of contiguous bytes."""
    return {"size0": size, "size1": 1, "size2": 1, "tile_stride1": size, "tile_stride2": size}
