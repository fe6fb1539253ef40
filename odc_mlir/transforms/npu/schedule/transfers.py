"""Load and store commands of tiles."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from odc_mlir.isa.immediates import Immediates, shared
from odc_mlir.transforms.npu.schedule.geometry import Tile, WindowGeometry, clip
from odc_mlir.transforms.npu.schedule.layers import LayerTensor
from odc_mlir.transforms.npu.schedule.program import Command, Place, command, placed


class ImagePart(NamedTuple):
    """Some channels of some rows and columns of an image, padding included."""

    image: int
    row: int
    rows: int
    col: int
    cols: int
    channel: int
    channels: int


def load_region(source: LayerTensor, window: WindowGeometry, region: ImagePart, target: Place, zero: int) -> Command:
    """Return the load of part of an image, padded with ``zero`` outside of it; dense in the tile buffer."""
    rows = clip(region.row, region.rows, window.in_height)
    cols = clip(region.col, region.cols, window.in_width)
    pixel = region.channels * window.item_bytes
    if not rows.length or not cols.length:
        size = region.rows * region.cols * pixel
        return command("fill", target=target, bytes=size, value=zero, type=source.type)
    offset = region.image * window.image_bytes + rows.first * window.row_bytes + cols.first * window.pixel_bytes
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


def transfer_tile(
    mnemonic: str, tensor: LayerTensor, window: WindowGeometry, tile: Tile, channel: int, channels: int, place: Place
) -> Command:
    """Return the load or store of channels ``[channel, channel + channels)`` of a tile, dense at ``place``.

    ``tensor`` has the shape of the window's result.
    """
    first = (tile.image * window.out_height + tile.y) * window.out_width + tile.x
    pixel, size = window.out_channels * window.item_bytes, channels * window.item_bytes
    memory = tensor.at(first * pixel + channel * window.item_bytes)
    return transfer(mnemonic, memory, place, (size, tile.cols, tile.rows), (pixel, window.out_width * pixel))


def transfer(
    mnemonic: str, memory: Place, tile: Place, sizes: tuple[int, int, int], strides: tuple[int, int] = (0, 0)
) -> Command:
    """Return the load or store of bytes, runs and groups, by ``sizes``, that are dense in the tile buffer.

    ``strides``: bytes from run to run and from group to group in ``memory``.
    """
    places = {"source": memory, "target": tile} if mnemonic == "load" else {"target": memory, "source": tile}
    return placed(_dense_runs(mnemonic, sizes, strides), places)


@lru_cache(maxsize=4096)
def _dense_runs(mnemonic: str, sizes: tuple[int, int, int], strides: tuple[int, int]) -> Immediates:
    size, runs, groups = sizes
    fields = {
        "size0": size,
        "size1": runs,
        "size2": groups,
        "memory_stride1": strides[0] if runs > 1 else 0,
        "memory_stride2": strides[1] if groups > 1 else 0,
        "tile_stride1": size,
        "tile_stride2": size * runs,
    }
    return shared(mnemonic, fields)


def flat(mnemonic: str, memory: Place, tile: Place, size: int) -> Command:
    """Return the load or store of contiguous bytes."""
    return transfer(mnemonic, memory, tile, (size, 1, 1))
