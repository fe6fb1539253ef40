"""Layers as matrix products: which inputs meet which weights, and what a result adds up.

A convolution is the product of its patches with its filters, a depthwise one has a product of its own for each
channel. :class:`Product` brings inputs, weights, scales and biases of one layer into the shapes ``[groups, rows, K]``
and ``[groups, outputs, K]`` that :mod:`odc_mlir.numerics.weight_rounding` works on, and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from odc_mlir.ops.infer.geometry import WindowOptions, axis_window, window_options
from odc_mlir.ops.spec import Node, QuantParams

LAYERS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})


@dataclass(frozen=True)
class Product:
    """One layer: ``groups`` products of ``outputs`` results from ``inputs`` inputs each."""

    node: Node
    groups: int
    outputs: int
    inputs: int
    window: WindowOptions | None  # None for a fully connected layer

    @classmethod
    def of(cls, node: Node) -> Product | None:
        """``node`` as products; None for other operators, for computed weights and weights in their own layout."""
        if (
            node.spec.name not in LAYERS
            or len(node.results) != 1
            or node.options.get("weights_format", "default") != "default"
        ):
            return None
        weights, x = node.operand(1), node.operand(0)
        if not weights.is_const or weights.sparsity is not None or weights.blockwise is not None or not x.shape:
            return None
        shape = weights.static_shape
        if node.spec.name == "FULLY_CONNECTED":
            return cls(node, 1, shape[0], shape[1], None)
        channels = x.shape[-1]
        if channels is None:
            return None
        window = window_options(node)
        taps = shape[1] * shape[2]
        if node.spec.name == "DEPTHWISE_CONV_2D":
            return cls(node, channels, shape[3] // channels, taps, window)
        groups = channels // shape[3]
        return cls(node, groups, shape[0] // groups, taps * shape[3], window)

    @property
    def name(self) -> str:
        """The result's name."""
        return self.node.results[0].name

    @property
    def _is_depthwise(self) -> bool:
        return self.node.spec.name == "DEPTHWISE_CONV_2D"

    def matrix(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Weights of the layer as ``[G, O, K]``."""
        if self._is_depthwise:
            return weights.reshape(self.inputs, self.groups, self.outputs).transpose(1, 2, 0)
        return weights.reshape(self.groups, self.outputs, self.inputs)

    def weights(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """The inverse of :meth:`matrix`."""
        if self._is_depthwise:
            matrix = matrix.transpose(2, 0, 1)
        return np.ascontiguousarray(matrix).reshape(self.node.operand(1).static_shape)

    def by_output(self, vector: NDArray[Any]) -> NDArray[Any]:
        """One number for each result channel (or one for all) as ``[G, O]``."""
        return np.broadcast_to(vector, (self.groups * self.outputs,)).reshape(self.groups, self.outputs)

    def scales(self, params: QuantParams) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Scales and zero points of weights with one for each result channel, or one for all, as ``[G, O]``."""
        found = (np.asarray(part, np.float64) for part in (params.scales, params.zero_points))
        scales, zero_points = map(self.by_output, found)
        return scales, zero_points

    def rows(self, x: NDArray[Any]) -> NDArray[Any]:
        """The real inputs ``x`` of one run as ``[G, N, K]``: everything that meets the weights, padding as zeros."""
        if self.window is None:
            return x.reshape(1, -1, self.inputs)
        patches = self._patches(x, self.window)  # [n, oh, ow, kh, kw, c]
        if self._is_depthwise:
            return patches.transpose(5, 0, 1, 2, 3, 4).reshape(self.groups, -1, self.inputs)
        n, height, width, *kernel, channels = patches.shape
        grouped = patches.reshape(n, height, width, *kernel, self.groups, channels // self.groups)
        return grouped.transpose(5, 0, 1, 2, 3, 4, 6).reshape(self.groups, -1, self.inputs)

    def _patches(self, x: NDArray[Any], window: WindowOptions) -> NDArray[Any]:
        kernel = self.node.operand(1).static_shape[1:3]
        pads = [(0, 0)]
        for axis, name in enumerate(("height", "width")):
            size, stride, dilation = x.shape[1 + axis], window.stride[axis], window.dilation[axis]
            found = axis_window(self.node, name, size, kernel[axis], stride, dilation, window.padding)
            pads.append((found.before, found.after))
        padded = np.pad(x, (*pads, (0, 0)))
        extents = [(taps - 1) * dilation + 1 for taps, dilation in zip(kernel, window.dilation, strict=True)]
        views = sliding_window_view(padded, extents, axis=(1, 2))
        strided = views[:, :: window.stride[0], :: window.stride[1], :, :: window.dilation[0], :: window.dilation[1]]
        return np.asarray(strided.transpose(0, 1, 2, 4, 5, 3))
