"""Layers as matrix products, with inputs, weights, scales and biases in one shape, ``[groups, rows or outputs, K]``.

A convolution is the matrix product of patches and filters. A recurrent operator has matrix products of the input, and
of the state, which is the result of the previous step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from odc_mlir.ops.infer.common import WindowOptions, axis_window, required, window_options
from odc_mlir.ops.infer.recurrent import gru_matrices
from odc_mlir.ops.spec import Node, QuantParams

LAYERS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
SEQUENCES = frozenset({"UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "GRU"})
# Prefixes of operands that multiply input and state of a recurrent operator. For GRU, the operand's shape decides.
_OF_INPUT, _OF_STATE = ("input_to_", "input_weights"), ("recurrent_",)


class _AxisTaps(NamedTuple):
    """Window along an axis. ``counts [taps, size]`` holds how often a tap meets an element."""

    before: int
    after: int
    results: int
    counts: NDArray[np.float64]

    @property
    def pads(self) -> int:
        return self.before + self.after


@dataclass(frozen=True)
class Product:
    """A layer as ``groups`` matrix products with ``inputs`` inputs and ``outputs`` outputs."""

    node: Node
    groups: int
    outputs: int
    inputs: int
    window: WindowOptions | None  # None if a row is the last axis
    place: int = 1  # operand with the weights
    of_state: bool = False  # whether the weights multiply the operator's state
    _axes: dict[tuple[int, int], _AxisTaps] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, node: Node) -> Product | None:
        """Return ``node`` as matrix products, or None for other operators, computed weights and special layouts."""
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

    @classmethod
    def all_of(cls, node: Node) -> list[Product]:
        """Return all products of ``node`` with constant weights: one for a layer, several for a recurrent operator."""
        if node.spec.name not in SEQUENCES:
            return [found] if (found := cls.of(node)) is not None else []
        result = []
        for place, info in enumerate(node.operands):
            of_state = _multiplies_state(node, node.spec.operand_name(place))
            if of_state is None or info is None or not info.is_const or len(info.static_shape) != 2:
                continue
            if info.sparsity is None and info.blockwise is None:
                result.append(cls(node, 1, *info.static_shape, None, place, of_state))
        return result

    @property
    def name(self) -> str:
        return self.node.results[0].name

    @property
    def address(self) -> str:
        """Result name, with the operand's name for operators with several matrices."""
        if self.node.spec.name not in SEQUENCES:
            return self.name
        return f"{self.name}:{self.node.spec.operand_name(self.place)}"

    def states(self, result: NDArray[Any]) -> NDArray[Any]:
        """Return the states before the steps from the ``result`` of a run by :func:`with_all_states`."""
        by_time = self.node.spec.name == "GRU" or bool(self.node.options.get("time_major"))
        steps = result if by_time else result.swapaxes(0, 1)
        first = np.zeros_like(steps[:1])
        if self.node.spec.name == "GRU" and (state := required(self.node, "state")).is_const:
            first = first + state.array()
        return np.concatenate([first, steps[:-1]])

    @property
    def _is_depthwise(self) -> bool:
        return self.node.spec.name == "DEPTHWISE_CONV_2D"

    def matrix(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the weights of the layer as ``[G, O, K]``."""
        if self._is_depthwise:
            return weights.reshape(self.inputs, self.groups, self.outputs).transpose(1, 2, 0)
        return weights.reshape(self.groups, self.outputs, self.inputs)

    def weights(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Return ``matrix`` in the layout of the layer's weights. This is the inverse of :meth:`matrix`."""
        if self._is_depthwise:
            matrix = matrix.transpose(2, 0, 1)
        return np.ascontiguousarray(matrix).reshape(self.node.operand(self.place).static_shape)

    def scales(self, params: QuantParams) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return scales and zero points of weights, per result channel or per tensor, as ``[G, O]``."""
        shape = self.groups, self.outputs
        found = (np.asarray(part, np.float64) for part in (params.scales, params.zero_points))
        scales, zero_points = (np.broadcast_to(part, math.prod(shape)).reshape(shape) for part in found)
        return scales, zero_points

    def rows(self, x: NDArray[Any], first: int = 0, every: int = 1) -> NDArray[Any]:
        """Return the inputs ``x`` that multiply the weights as ``[G, N, K]``, run by run, with zeros as padding.

        ``first`` and ``every`` select rows: row ``first``, and after it one in ``every`` rows.
        """
        if self.window is None:
            return x.reshape(1, -1, self.inputs)[:, first::every]
        patches = self._patches(x, self.window)  # [n, oh, ow, kh, kw, c]
        if every == 1:
            chosen = patches.reshape(-1, *patches.shape[3:])[first:]  # [N, kh, kw, c], faster than one by one
        else:
            places = np.arange(first, math.prod(patches.shape[:3]), every)
            chosen = patches[np.unravel_index(places, patches.shape[:3])]
        if self._is_depthwise:
            return chosen.transpose(3, 0, 1, 2).reshape(self.groups, -1, self.inputs)
        grouped = chosen.reshape(*chosen.shape[:3], self.groups, chosen.shape[3] // self.groups)
        return grouped.transpose(3, 0, 1, 2, 4).reshape(self.groups, -1, self.inputs)

    def row_count(self, x: NDArray[Any]) -> int:
        if self.window is None:
            return x.size // max(1, self.inputs)
        return math.prod((len(x), *(self._axis(axis, x.shape[1 + axis]).results for axis in (0, 1))))

    def means(self, x: NDArray[Any], runs: int = 1) -> NDArray[np.float64]:
        """Return the mean of each input over all rows of each run, ``[runs, G, K]``. ``x`` concatenates the runs."""
        if self.window is None:
            rows = x.reshape(runs, -1, self.inputs)
            return np.asarray(rows.mean(axis=1, dtype=np.float64)[:, np.newaxis])
        (kh, kw), (height, width) = self._taps, x.shape[1:3]
        vertical, horizontal = self._axis(0, height), self._axis(1, width)
        # Sums over columns and then rows of a window avoid patches, which take many times the memory.
        by_column = np.matmul(horizontal.counts.astype(x.dtype), x)  # [n, h, kw, c]
        apart = by_column.reshape(runs, len(x) // runs, height, -1)
        sums = (vertical.counts @ apart.sum(axis=1, dtype=np.float64)).reshape(runs, kh, kw, -1)
        sums /= apart.shape[1] * vertical.results * horizontal.results
        if self._is_depthwise:
            return np.asarray(sums.transpose(0, 3, 1, 2).reshape(runs, self.groups, self.inputs))
        grouped = sums.reshape(runs, kh, kw, self.groups, -1)
        return np.asarray(grouped.transpose(0, 3, 1, 2, 4).reshape(runs, self.groups, self.inputs))

    def _axis(self, axis: int, size: int) -> _AxisTaps:
        assert self.window is not None
        found = self._axes.get((axis, size))
        if found is None:
            taps, stride, dilation = self._taps[axis], self.window.stride[axis], self.window.dilation[axis]
            name = ("height", "width")[axis]
            pads = axis_window(self.node, name, size, taps, stride, dilation, self.window.padding)
            extent = (taps - 1) * dilation + 1
            starts = np.arange(-pads.before, size + pads.after - extent + 1, stride)
            met = starts[:, np.newaxis] + dilation * np.arange(taps)  # [results, taps]
            found = _AxisTaps(pads.before, pads.after, len(starts), _counts(met, size))
            self._axes[axis, size] = found
        return found

    @property
    def _taps(self) -> tuple[int, ...]:
        return self.node.operand(1).static_shape[1:3]

    def _patches(self, x: NDArray[Any], window: WindowOptions) -> NDArray[Any]:
        rows, columns = (self._axis(axis, x.shape[1 + axis]) for axis in (0, 1))
        padded = x
        if rows.pads or columns.pads:
            count, height, width, channels = x.shape
            padded = np.zeros((count, height + rows.pads, width + columns.pads, channels), x.dtype)
            padded[:, rows.before : rows.before + height, columns.before : columns.before + width] = x
        extents = [(taps - 1) * dilation + 1 for taps, dilation in zip(self._taps, window.dilation, strict=True)]
        views = sliding_window_view(padded, extents, axis=(1, 2))
        strided = views[:, :: window.stride[0], :: window.stride[1], :, :: window.dilation[0], :: window.dilation[1]]
        return np.asarray(strided.transpose(0, 1, 2, 4, 5, 3))


def with_all_states(node: Node) -> Node:
    """Return the recurrent operator ``node`` changed to return the states after all steps, not only the last one."""
    if node.options.get("return_sequences", True):
        return node
    result = replace(node.results[0], shape=(*node.operand(0).static_shape[:2], node.results[0].static_shape[-1]))
    return replace(node, options={**node.options, "return_sequences": True}, results=(result,))


def _multiplies_state(node: Node, operand: str) -> bool | None:
    """Return whether an operand multiplies the state (True) or the input (False), or None for other operands."""
    if node.spec.name == "GRU":
        by_state, by_input = gru_matrices(node)
        return {by_state: True, by_input: False}.get(operand)
    if not operand.endswith("_weights"):
        return None
    return True if operand.startswith(_OF_STATE) else False if operand.startswith(_OF_INPUT) else None


def _counts(taps: NDArray[np.intp], size: int) -> NDArray[np.float64]:
    """Return counts ``[K, size]``: how often each tap of ``taps [results, K]`` is at each element."""
    found = np.zeros((taps.shape[1], size))
    for counts, places in zip(found, taps.T, strict=True):
        np.add.at(counts, places[(places >= 0) & (places < size)], 1)
    return found
