"""Shapes of window operations and tiles.

A :class:`WindowGeometry` describes a convolution, depthwise convolution or pooling by sizes and memory strides.
Activations are dense NHWC of ``item_bytes`` per element. An input view may skip pixels (``pixel_bytes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from odc_mlir.isa.instructions import field_range


@dataclass(frozen=True, slots=True)
class WindowGeometry:
    """Sizes and memory strides of a window operation.

    ``pixel_bytes``, ``row_bytes``, ``image_bytes``: distances in memory between neighbouring input pixels, rows and
    images. ``depthwise``: result channel ``c * multiplier + m`` reads only channel ``c``. Pooling is depthwise with
    multiplier 1. ``weights_per_image``: whether each image of the batch has separate weights.
    """

    batch: int
    in_height: int
    in_width: int
    in_channels: int
    out_height: int
    out_width: int
    out_channels: int
    kernel_height: int = 1
    kernel_width: int = 1
    stride_y: int = 1
    stride_x: int = 1
    dilation_y: int = 1
    dilation_x: int = 1
    pad_top: int = 0
    pad_left: int = 0
    depthwise: bool = False
    pixel_bytes: int = 0
    row_bytes: int = 0
    image_bytes: int = 0
    weights_per_image: bool = False
    item_bytes: int = 1
    weight_item_bytes: int = 1

    @property
    def multiplier(self) -> int:
        """Result channels per input channel of a depthwise window."""
        return self.out_channels // self.in_channels if self.depthwise else 1

    @property
    def taps(self) -> int:
        return self.kernel_height * self.kernel_width

    @property
    def depth(self) -> int:
        """Multiplications per result."""
        return self.taps * (1 if self.depthwise else self.in_channels)

    @property
    def span_y(self) -> int:
        """Input rows from the first to the last row that one result row reads."""
        return (self.kernel_height - 1) * self.dilation_y + 1

    @property
    def span_x(self) -> int:
        """Input pixels from the first to the last pixel that one result pixel reads."""
        return (self.kernel_width - 1) * self.dilation_x + 1

    @property
    def overlap_y(self) -> int:
        """Number of input rows that adjacent result rows share."""
        return max(0, self.span_y - self.stride_y)

    @property
    def weight_bytes(self) -> int:
        return self.depth * self.out_channels * self.weight_item_bytes

    @property
    def kernel_fields(self) -> dict[str, int]:
        """Fields of instructions for the kernel and the strides."""
        sizes = {"kernel_height": self.kernel_height, "kernel_width": self.kernel_width}
        return {**sizes, "stride_y": self.stride_y, "stride_x": self.stride_x}

    @property
    def dense(self) -> bool:
        """Whether the input is stored without gaps."""
        return (
            self.pixel_bytes == self.in_channels * self.item_bytes
            and self.row_bytes == self.in_width * self.pixel_bytes
            and self.image_bytes == self.in_height * self.row_bytes
        )

    def in_rows(self, rows: int) -> int:
        """Return the input rows, padding included, that ``rows`` adjacent result rows read."""
        return (rows - 1) * self.stride_y + self.span_y

    def in_cols(self, cols: int) -> int:
        return (cols - 1) * self.stride_x + self.span_x


def make_window(
    in_shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    *,
    kernel: tuple[int, int] = (1, 1),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    pads: tuple[int, int] = (0, 0),
    depthwise: bool = False,
    weights_per_image: bool = False,
    item_bytes: int = 1,
    weight_item_bytes: int = 1,
    source_resident: bool = False,
    result_resident: bool = False,
) -> WindowGeometry:
    """Return the window of an operation on ``[N, H, W, C]`` shapes, simplified if the tensors are in memory.

    ``pads``: top and left padding. ``item_bytes``, ``weight_item_bytes``: size of an element and of a weight.
    """
    batch, in_height, in_width, in_channels = in_shape
    _, out_height, out_width, out_channels = out_shape
    pixel_bytes = in_channels * item_bytes
    window = WindowGeometry(
        batch,
        in_height,
        in_width,
        in_channels,
        out_height,
        out_width,
        out_channels,
        *kernel,
        *stride,
        *dilation,
        *pads,
        depthwise=depthwise,
        pixel_bytes=pixel_bytes,
        row_bytes=in_width * pixel_bytes,
        image_bytes=in_height * in_width * pixel_bytes,
        weights_per_image=weights_per_image and batch > 1,
        item_bytes=item_bytes,
        weight_item_bytes=weight_item_bytes,
    )
    return window if source_resident else _simplified(window, flat=not (result_resident or window.weights_per_image))


def _simplified(window: WindowGeometry, *, flat: bool) -> WindowGeometry:
    """Simplify a 1x1 window: omit skipped pixels and, if none are skipped and ``flat``, make all pixels one row."""
    if window.taps != 1 or window.pad_top or window.pad_left:
        return window
    if window.in_rows(window.out_height) > window.in_height or window.in_cols(window.out_width) > window.in_width:
        return window  # padding at the bottom or right edge
    window = replace(
        window,
        in_height=window.out_height,
        in_width=window.out_width,
        stride_y=1,
        stride_x=1,
        dilation_y=1,
        dilation_x=1,
        pixel_bytes=window.pixel_bytes * window.stride_x,
        row_bytes=window.row_bytes * window.stride_y,
    )
    if not window.dense or not flat:
        return window
    pixels = window.batch * window.out_height * window.out_width
    row = pixels * window.pixel_bytes
    return replace(
        window, batch=1, in_height=1, in_width=pixels, out_height=1, out_width=pixels, row_bytes=row, image_bytes=row
    )


class Clip(NamedTuple):
    """Length of the part of a range inside the image, its first position, and the padding around it."""

    before: int
    first: int
    length: int
    after: int


def clip(first: int, count: int, size: int) -> Clip:
    """Clip ``[first, first + count)`` to ``[0, size)``. ``first`` may be negative. Length 0 means padding only."""
    low, high = max(first, 0), min(first + count, size)
    if high <= low:
        return Clip(count, 0, 0, 0)
    return Clip(low - first, low, high - low, first + count - high)


class Tile(NamedTuple):
    """Result pixels ``[y, y + rows) x [x, x + cols)`` of one image.

    ``fresh``: whether the tile is the first of a strip. The tiles of a strip share input rows through a ring.
    """

    image: int
    y: int
    x: int
    rows: int
    cols: int
    fresh: bool


def tiles(window: WindowGeometry, rows: int, cols: int, *, strips: bool) -> Iterator[Tile]:
    """Yield all tiles row by row, or with ``strips`` column by column. In strips, vertical neighbours are adjacent."""
    for image in range(window.batch):
        ys, xs = range(0, window.out_height, rows), range(0, window.out_width, cols)
        order = ((y, x) for x in xs for y in ys) if strips else ((y, x) for y in ys for x in xs)
        for y, x in order:
            height, width = min(rows, window.out_height - y), min(cols, window.out_width - x)
            yield Tile(image, y, x, height, width, y == 0)


def ring_rows(window: WindowGeometry, rows: int) -> int:
    """Return the input rows of a ring: all rows of a tile of ``rows`` result rows, and new rows of the next tile."""
    step = rows * window.stride_y
    return step * (2 + -(-window.overlap_y // step))


def parts(total: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the (start, length) parts of ``total`` in steps of ``size``. The last part may be shorter."""
    for start in range(0, total, size):
        yield start, min(size, total - start)


def even_splits(total: int, most: int, limit: int = 12) -> list[int]:
    """Return part sizes that divide ``total`` about evenly, largest first.

    At most ``limit`` sizes are returned, none above ``most``.
    """
    sizes: list[int] = []
    count = max(1, -(-total // most))
    while total > 0 and len(sizes) < limit:
        size = -(-total // count)
        if not sizes or size < sizes[-1]:
            sizes.append(size)
        if size == 1:
            break
        count += max(1, count // 8)
    return sizes


MAX_RUNS = field_range("load", "size1")[1]
MAX_PAD = field_range("load", "pad_before1")[1]
