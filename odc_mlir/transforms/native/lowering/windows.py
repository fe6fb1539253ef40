"""Windows over images: their padding, and the tables of offsets that kernels read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.ops.infer.geometry import WindowOptions, axis_window
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.native.lowering.moves import box, move
from odc_mlir.transforms.native.lowering.segment_writer import SegmentFunction


@dataclass(frozen=True)
class Windows:
    """A window that slides over ``[N, H, W, C]`` after a padding of (top, bottom) rows and (left, right) columns."""

    shape: tuple[int, int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    output: tuple[int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]

    @staticmethod
    def of(node: Node, shape: tuple[int, ...], kernel: tuple[int, int], options: WindowOptions) -> Windows:
        """Return the windows of a convolution or pool over an input of ``shape``."""
        axes = [
            axis_window(node, name, shape[1 + i], kernel[i], options.stride[i], options.dilation[i], options.padding)
            for i, name in enumerate(("height", "width"))
        ]
        rows, columns = axes
        return Windows(
            (shape[0], shape[1], shape[2], shape[3]),
            kernel,
            options.stride,
            options.dilation,
            (rows.output or 0, columns.output or 0),
            (rows.before, rows.after),
            (columns.before, columns.after),
        )

    @staticmethod
    def of_rows(rows: int, length: int, channels: int = 1) -> Windows:
        """Return windows that each cover one row of ``[rows, length, channels]``."""
        return Windows((rows, 1, length, channels), (1, length), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))

    @property
    def is_padded(self) -> bool:
        return any((*self.rows, *self.columns))

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width with the padding."""
        return self.shape[1] + sum(self.rows), self.shape[2] + sum(self.columns)

    @property
    def pixels(self) -> int:
        """The number of windows."""
        return self.shape[0] * self.output[0] * self.output[1]

    def places(self) -> NDArray[np.int32]:
        """Return the offset of the first element of each window in the padded input."""
        height, width = self.padded
        images = np.arange(self.shape[0])[:, None, None] * height
        rows = np.arange(self.output[0])[:, None] * self.stride[0]
        columns = np.arange(self.output[1]) * self.stride[1]
        return (((images + rows) * width + columns) * self.shape[3]).astype(np.int32).reshape(-1)

    def taps(self) -> NDArray[np.int32]:
        """Return the offset of each tap from the first element of a window, row by row."""
        rows = np.arange(self.kernel[0])[:, None] * self.dilation[0] * self.padded[1]
        columns = np.arange(self.kernel[1]) * self.dilation[1]
        return ((rows + columns) * self.shape[3]).astype(np.int32).reshape(-1)

    def runs(self) -> tuple[NDArray[np.int32], int]:
        """Return the offsets of the runs of neighbouring elements of a window, and the length of a run."""
        taps, channels = self.taps(), self.shape[3]
        taps_of_run = 1
        if self.dilation[1] == 1 or self.kernel[1] == 1:
            taps_of_run = self.kernel[1]
            if self.kernel[1] == self.padded[1] and (self.dilation[0] == 1 or self.kernel[0] == 1):
                taps_of_run *= self.kernel[0]
        return taps[::taps_of_run], taps_of_run * channels


def repeated_channels(
    segment: SegmentFunction, source: SSAValue, shape: tuple[int, ...], times: int, item_bytes: int
) -> SSAValue:
    """Return a buffer of ``shape`` (with the repeated channels) that holds every channel of ``source`` ``times``."""
    if times == 1:
        return source
    channels = shape[3] // times
    pixels = shape[0] * shape[1] * shape[2]
    target = segment.allocate(pixels * shape[3] * item_bytes)
    place = box((pixels, channels, times), (channels, 1, 0))
    assert place is not None, "three dimensions are few"
    move(segment, place, source, target, item_bytes)
    return target


def padded_input(
    segment: SegmentFunction, source: SSAValue, windows: Windows, zero: int | SSAValue, item_bytes: int
) -> SSAValue:
    """Return a buffer with the padding of ``windows``, filled with a stored number or with one per image."""
    if not windows.is_padded:
        return source
    images, rows, columns, channels = windows.shape
    channels *= item_bytes
    height, width = windows.padded
    target = segment.allocate(images * height * width * channels)
    computed = isinstance(zero, SSAValue)
    filling: dict[str, SSAValue | int] = (
        {"fills": zero} if isinstance(zero, SSAValue) else {"fill": _word(zero, item_bytes)}
    )
    segment.call(
        "pad_images" if computed else "pad_image",
        {},
        input=source,
        output=target,
        images=images,
        rows=rows,
        row_bytes=columns * channels,
        first=(windows.rows[0] * width + windows.columns[0]) * channels,
        pitch=width * channels,
        image_bytes=height * width * channels,
        **filling,
    )
    return target


def _word(value: int, item_bytes: int) -> int:
    """Return the signed 32-bit number that holds copies of ``value``."""
    bits = value & ((1 << (8 * item_bytes)) - 1)
    return int(np.array(bits * {1: 0x01010101, 2: 0x00010001, 4: 1}[item_bytes], np.uint32).view(np.int32))
