"""Load and store commands of tiles."""

from __future__ import annotations

from typing import NamedTuple

from odc_mlir.transforms.npu.schedule.geometry import Tile, Window, clip
from odc_mlir.transforms.npu.schedule.layers import Tensor
from odc_mlir.transforms.npu.schedule.program import Command, Place, command


class Region2D(NamedTuple):
    """Input rows and columns, padding included, and the channels of one load."""

    row: int
    rows: int
    col: int
    cols: int
    channel: int
    channels: int


def load_region(source: Tensor, window: Window, image: int, region: Region2D, target: Place, zero: int) -> Command:
    """Load part of an image, padded with ``zero`` outside it; dense in the tile buffer."""
    rows = clip(region.row, region.rows, window.in_height)
    cols = clip(region.col, region.cols, window.in_width)
    pixel = region.channels * window.item_bytes
    if not rows.length or not cols.length:
        size = region.rows * region.cols * pixel
        return command("fill", target=target, bytes=size, value=zero, type=source.type)
    offset = image * window.image_bytes + rows.first * window.row_bytes + cols.first * window.pixel_bytes
    return command(
        "load",
        source=source.at(offset + region.channel * window.item_bytes),
        target=target,
        size0=pixel,
        size1=cols.length,
        size2=rows.length,
        memory_stride1=window.pixel_bytes if cols.length > 1 else 0,
        memory_stride2=window.row_bytes if rows.length > 1 else 0,
        tile_stride1=pixel,
        tile_stride2=region.cols * pixel,
        pad_before1=cols.before,
        pad_after1=cols.after,
        pad_before2=rows.before,
        pad_after2=rows.after,
        pad_value=zero,
    )


def store_tile(result: Tensor, window: Window, tile: Tile, channel: int, channels: int, source: Place) -> Command:
    """Store result channels ``[channel, channel + channels)`` of a tile that is dense in the tile buffer."""
    place, runs = _result_runs(result, window, tile, channel, channels)
    return command("store", target=place, source=source, **runs)


def load_tile(tensor: Tensor, window: Window, tile: Tile, channel: int, channels: int, target: Place) -> Command:
    """Load from ``tensor``, which is formed like the result, what :func:`store_tile` would store."""
    place, runs = _result_runs(tensor, window, tile, channel, channels)
    return command("load", source=place, target=target, **runs)


def _result_runs(
    tensor: Tensor, window: Window, tile: Tile, channel: int, channels: int
) -> tuple[Place, dict[str, int]]:
    """Where channels of a tile begin in a tensor formed like the result, and sizes and strides of their transfer."""
    item = window.item_bytes
    image_pixel, pixel_bytes = window.out_channels * item, channels * item
    pixel = (tile.image * window.out_height + tile.y) * window.out_width + tile.x
    runs = {
        "size0": pixel_bytes,
        "size1": tile.cols,
        "size2": tile.rows,
        "memory_stride1": image_pixel if tile.cols > 1 else 0,
        "memory_stride2": window.out_width * image_pixel if tile.rows > 1 else 0,
        "tile_stride1": pixel_bytes,
        "tile_stride2": tile.cols * pixel_bytes,
    }
    return tensor.at(pixel * image_pixel + channel * item), runs


def flat_load(source: Place, target: Place, size: int) -> Command:
    """Load contiguous bytes."""
    return command("load", source=source, target=target, **flat_runs(size))


def flat_store(target: Place, source: Place, size: int) -> Command:
    """Store contiguous bytes."""
    return command("store", target=target, source=source, **flat_runs(size))


def flat_runs(size: int) -> dict[str, int]:
    """Sizes and strides of a transfer of contiguous bytes."""
    return {"size0": size, "size1": 1, "size2": 1, "tile_stride1": size, "tile_stride2": size}
