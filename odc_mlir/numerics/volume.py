"""Float convolutions over volumes ``[N, D, H, W, C]``, as sums of 2D convolutions over depth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics import convolution
from odc_mlir.numerics.pieces import parts

Triple = tuple[int, int, int]

_PLANES_ELEMENTS = 1 << 19  # number of elements convolved together


@dataclass(frozen=True, slots=True)
class VolumeWindow:
    """Stride, dilation and padding of a window over a volume, by depth, height and width."""

    stride: Triple
    dilation: Triple
    before: Triple
    after: Triple

    def plane(self, kernel: tuple[int, int]) -> convolution.Window:
        (_, top, left), (_, bottom, right) = self.before, self.after
        return convolution.Window(kernel, self.stride[1:], self.dilation[1:], (top, left, bottom, right))


def volume_filter(w: NDArray[Any]) -> tuple[convolution.ConvFilter, ...]:
    """Return a prepared filter per depth index of ``w [kd, kh, kw, I, O]``."""
    return tuple(convolution.conv_filter(plane.transpose(3, 0, 1, 2), None) for plane in w)


def transpose_volume_filter(w: NDArray[Any], dilation: Triple) -> tuple[convolution.ConvFilter, ...]:
    """Return a prepared filter per depth index of ``w [kd, kh, kw, O, I]``, with zeros for dilation."""
    kd, kh, kw, out_channels, in_channels = w.shape
    wide = np.zeros((kd, (kh - 1) * dilation[1] + 1, (kw - 1) * dilation[2] + 1, out_channels, in_channels), w.dtype)
    wide[:, :: dilation[1], :: dilation[2]] = w
    return tuple(convolution.transpose_filter(plane.transpose(2, 0, 1, 3), None) for plane in wide)


def _add_planes(out: NDArray[np.float32], x: NDArray[Any], convolve: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    plane = max(math.prod(x.shape[2:]), math.prod(out.shape[2:]))
    for place in parts((*x.shape[:2], plane), (2,), _PLANES_ELEMENTS):
        images = x[place[:2]].reshape(-1, *x.shape[2:])
        target = out[place[:2]]
        target += convolve(images).reshape(target.shape)


def conv3d(
    x: NDArray[Any], filters: tuple[convolution.ConvFilter, ...], window: VolumeWindow, output: Triple
) -> NDArray[np.float32]:
    """Return sums ``[N, *output, O]`` of a convolution of ``x [N, D, H, W, C]`` with :func:`volume_filter`."""
    out = np.zeros((x.shape[0], *output, filters[0].out_channels), np.float32)
    for k, plane in enumerate(filters):
        offset = k * window.dilation[0] - window.before[0]
        targets, sources = convolution.landing(0, output[0], offset, window.stride[0], x.shape[1])
        flat = window.plane(plane.kernel)
        _add_planes(out[:, targets], x[:, sources], partial(convolution.conv2d, weights=plane, window=flat))
    return out


def transpose_conv3d(
    x: NDArray[Any], filters: tuple[convolution.ConvFilter, ...], window: VolumeWindow, output: Triple
) -> NDArray[np.float32]:
    """Return sums ``[N, *output, O]`` of a transposed convolution of ``x [N, D, H, W, I]``.

    The input element at d adds its taps k at ``d * stride - before + k * dilation``. Taps outside of the output are
    dropped. ``filters`` come from :func:`transpose_volume_filter`.
    """
    out = np.zeros((x.shape[0], *output, filters[0].out_channels), np.float32)
    for k, plane in enumerate(filters):
        offset = k * window.dilation[0] - window.before[0]
        sources, targets = convolution.landing(0, x.shape[1], offset, window.stride[0], output[0])
        stride, pads, size = window.stride[1:], window.before[1:], output[1:]
        convolve = partial(convolution.transpose_conv2d, weights=plane, stride=stride, pads=pads, output=size)
        _add_planes(out[:, targets], x[:, sources], convolve)
    return out
