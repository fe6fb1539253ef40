"""Where windows lie: padding, and the offsets that kernels look up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.infer.geometry import WindowOptions, axis_window
from odc_mlir.ops.spec import Node


@dataclass(frozen=True)
class Windows:
    """A window sliding over ``[N, H, W, C]``, which is padded by (top, bottom) and (left, right) first."""

    shape: tuple[int, int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    output: tuple[int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]

    @staticmethod
    def of(node: Node, shape: tuple[int, ...], kernel: tuple[int, int], options: WindowOptions) -> Windows:
        """The windows of a convolution or pool over an input of ``shape``."""
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

    @property
    def is_padded(self) -> bool:
        return any((*self.rows, *self.columns))

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width with the border."""
        return self.shape[1] + sum(self.rows), self.shape[2] + sum(self.columns)

    @property
    def pixels(self) -> int:
        """Windows in all."""
        return self.shape[0] * self.output[0] * self.output[1]

    def places(self) -> NDArray[np.int32]:
        """Offset of the first element of each window in the padded input."""
        height, width = self.padded
        images = np.arange(self.shape[0])[:, None, None] * height
        rows = np.arange(self.output[0])[:, None] * self.stride[0]
        columns = np.arange(self.output[1]) * self.stride[1]
        return (((images + rows) * width + columns) * self.shape[3]).astype(np.int32).reshape(-1)

    def taps(self) -> NDArray[np.int32]:
        """Offset of each tap from a window's first element, row by row."""
        rows = np.arange(self.kernel[0])[:, None] * self.dilation[0] * self.padded[1]
        columns = np.arange(self.kernel[1]) * self.dilation[1]
        return ((rows + columns) * self.shape[3]).astype(np.int32).reshape(-1)

    def runs(self) -> tuple[NDArray[np.int32], int]:
        """Offsets of the runs of neighbouring elements of a window, and how many elements each has."""
        taps, channels = self.taps(), self.shape[3]
        taps_of_run = 1
        if self.dilation[1] == 1 or self.kernel[1] == 1:
            taps_of_run = self.kernel[1]
            if self.kernel[1] == self.padded[1] and (self.dilation[0] == 1 or self.kernel[0] == 1):
                taps_of_run *= self.kernel[0]
        return taps[::taps_of_run], taps_of_run * channels
