"""Float convolutions over volumes ``[N, D, H, W, C]``, as sums of convolutions of planes over depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.convolution import (
    ConvFilter,
    Window,
    conv2d,
    conv_filter,
    transpose_conv2d,
    transpose_filter,
)

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class VolumeWindow:
    """Stride, dilation and padding of a window over a volume, by depth, height and width."""

    stride: Triple
    dilation: Triple
    before: Triple
    after: Triple

    def plane(self, kernel: tuple[int, int]) -> Window:
        """Return the window over one plane."""
        (_, top, left), (_, bottom, right) = self.before, self.after
        return Window(kernel, self.stride[1:], self.dilation[1:], (top, left, bottom, right))


def volume_filter(w: NDArray[Any]) -> tuple[ConvFilter, ...]:
    """Return one prepared filter per depth of ``w [kd, kh, kw, I, O]``."""
    return tuple(conv_filter(plane.transpose(3, 0, 1, 2), None) for plane in w)


def transpose_volume_filter(w: NDArray[Any], dilation: Triple) -> tuple[ConvFilter, ...]:
    """Return one prepared filter per depth of ``w [kd, kh, kw, O, I]``, with zeros for dilation."""
    kd, kh, kw, out_channels, in_channels = w.shape
    wide = np.zeros((kd, (kh - 1) * dilation[1] + 1, (kw - 1) * dilation[2] + 1, out_channels, in_channels), w.dtype)
    wide[:, :: dilation[1], :: dilation[2]] = w
    return tuple(transpose_filter(plane.transpose(2, 0, 1, 3), None) for plane in wide)


def _meeting(size: int, offset: int, stride: int, count: int) -> tuple[slice, slice]:
    """Return the ``i`` below ``count`` with ``i * stride + offset`` in ``[0, size)``, and the positions."""
    start = max(0, -(offset // stride))
    stop = min(count, (size - 1 - offset) // stride + 1)
    if stop <= start:
        return slice(0, 0), slice(0, 0)
    first = start * stride + offset
    return slice(start, stop), slice(first, first + (stop - 1 - start) * stride + 1, stride)


def _planes(x: NDArray[Any], depths: slice) -> NDArray[Any]:
    """Return the planes of these depths as images ``[N * depths, H, W, C]``."""
    return x[:, depths].reshape(-1, *x.shape[2:])


def conv3d(
    x: NDArray[Any], filters: tuple[ConvFilter, ...], window: VolumeWindow, output: Triple
) -> NDArray[np.float32]:
    """Return sums ``[N, *output, O]`` of a convolution of ``x [N, D, H, W, C]`` by :func:`volume_filter`."""
    out = np.zeros((x.shape[0], *output, filters[0].out_channels), np.float32)
    for k, plane in enumerate(filters):
        targets, sources = _meeting(x.shape[1], k * window.dilation[0] - window.before[0], window.stride[0], output[0])
        part = conv2d(_planes(x, sources), plane, window.plane(plane.kernel))
        out[:, targets] += part.reshape(x.shape[0], -1, *part.shape[1:])
    return out


def transpose_conv3d(
    x: NDArray[Any], filters: tuple[ConvFilter, ...], window: VolumeWindow, output: Triple
) -> NDArray[np.float32]:
    """Return sums ``[N, *output, O]`` of a transposed convolution of ``x [N, D, H, W, I]``.

    The input element at d adds its taps at ``d * stride - before + k * dilation``; taps outside are dropped.
    ``filters`` come from :func:`transpose_volume_filter`.
    """
    out = np.zeros((x.shape[0], *output, filters[0].out_channels), np.float32)
    for k, plane in enumerate(filters):
        offset = k * window.dilation[0] - window.before[0]
        sources, targets = _meeting(output[0], offset, window.stride[0], x.shape[1])
        part = transpose_conv2d(_planes(x, sources), plane, window.stride[1:], window.before[1:], output[1:])
        out[:, targets] += part.reshape(x.shape[0], -1, *part.shape[1:])
    return out
