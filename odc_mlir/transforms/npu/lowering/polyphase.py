"""Patterns that lower transposed convolutions by polyphase decomposition.

Each component of result rows and columns is a convolution with the taps that contribute to it. Few channels of all
components are the channels of one convolution. A move interleaves the components.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.npu.lowering import wide_weights
from odc_mlir.transforms.npu.lowering.decompositions import Component, transposed_components
from odc_mlir.transforms.npu.lowering.products import of_channels, requantisation, weight_codes
from odc_mlir.transforms.npu.lowering.site import LowerToNpu, Site, blob_of
from odc_mlir.transforms.partition.rules.operator_checks import channel_groups, has_wide_weights, runs_of

CHANNELS = 8  # result channels that the array computes at the same time at least


class LowerTransposeConvInParts(LowerToNpu):
    """Lower TRANSPOSE_CONV with weight parts over repeated channels. See :mod:`.wide_weights`."""

    operators = ("TRANSPOSE_CONV",)

    def applies(self, node: Node) -> bool:
        return wide_weights.takes_parts(node)

    def rewrite(self, site: Site) -> None:
        parts = wide_weights.parts_of(site.node)
        source = wide_weights.repeated_channels(site, site.operand(2), parts.count)
        channels = list(range(site.result.static_shape[3]))
        _interleave(site, source, [_Channels(channels, wide_weights.repeated_weights(parts), parts.zero)])


class LowerTransposeConvInGroups(LowerToNpu):
    """Lower TRANSPOSE_CONV in channel groups. See :mod:`.wide_weights`."""

    operators = ("TRANSPOSE_CONV",)

    def applies(self, node: Node) -> bool:
        return has_wide_weights(node) and not wide_weights.takes_parts(node)

    def rewrite(self, site: Site) -> None:
        groups = [
            _Channels(group, *wide_weights.group_codes(site.info(1), group))
            for group in channel_groups(site.info(1), 0)
        ]
        _interleave(site, site.operand(2), groups)


class LowerTransposeConv(LowerToNpu):
    """Lower TRANSPOSE_CONV to a convolution per component of rows and columns."""

    operators = ("TRANSPOSE_CONV",)

    def rewrite(self, site: Site) -> None:
        _interleave(
            site, site.operand(2), [_Channels(list(range(site.result.static_shape[3])), *weight_codes(site.node))]
        )


class _Channels(NamedTuple):
    numbers: list[int]
    weights: NDArray[Any]
    zero: int


class _Axis(NamedTuple):
    """Window of several components along one axis: number of taps, and padding."""

    taps: int
    before: int
    after: int

    @classmethod
    def of(cls, parts: Sequence[Component]) -> _Axis:
        """Return the smallest window that contains the windows of ``parts``."""
        before = max(part.before for part in parts)
        taps = max(before - part.before + len(part.taps) for part in parts)
        # Component.after counts from the last tap of the component's own window.
        return cls(taps, before, max(part.after + taps - before + part.before - len(part.taps) for part in parts))

    def results(self, size: int) -> int:
        return size + self.before + self.after - self.taps + 1


class _Window(NamedTuple):
    parts: list[tuple[Component, Component]]
    rows: _Axis
    columns: _Axis
    is_even: bool = False  # whether all parts have one size, in the order of their pixels


def _windows(rows: Sequence[Component], columns: Sequence[Component], channels: int) -> list[_Window]:
    """Return one window for all components if it needs fewer passes of the array, else one for each component."""
    parts = [(row, column) for row in rows for column in columns]
    ordered = [sorted(axis, key=lambda component: component.first) for axis in (rows, columns)]
    is_even = all(len({part.results for part in axis}) == 1 and axis[-1].first == len(axis) - 1 for axis in ordered)
    sides = _Axis.of(rows), _Axis.of(columns)
    whole = _Window([(row, column) for row in ordered[0] for column in ordered[1]], *sides, is_even)
    passes = -(-channels // CHANNELS) * sum(len(row.taps) * len(column.taps) for row, column in parts)
    if -(-channels * len(parts) // CHANNELS) * whole.rows.taps * whole.columns.taps < passes:
        return [whole]
    return [_Window([(row, column)], _Axis.of([row]), _Axis.of([column])) for row, column in parts]


def _interleave(site: Site, source: SSAValue, groups: Sequence[_Channels]) -> None:
    components = transposed_components(site.node)
    assert not isinstance(components, str), "the placement rules require components"
    batch, height, width, channels = site.result.static_shape
    values: list[SSAValue] = []
    copies = []
    for chosen, weights, zero in groups:
        integers, share = requantisation(site, zero, operands=(2, 3)), len(chosen)
        for window in _windows(*components, share):
            rows, columns = window.rows, window.columns
            count = share * len(window.parts)
            taps = np.full((count, rows.taps, columns.taps, weights.shape[3]), zero, weights.dtype)
            sizes = (rows.results(site.info(2).static_shape[1]), columns.results(site.info(2).static_shape[2]))
            line, (down, right) = sizes[1] * count, (len(components[0]), len(components[1]))
            pixels, is_whole = (down * width, width, right), window.is_even and share == channels
            if is_whole:  # as DEPTH_TO_SPACE
                shape, reads = (batch * sizes[0], down, sizes[1], right * share), (line, right * share, count, 1)
                writes = (*(step * channels for step in pixels), 1)
                copies.append(StridedCopy(len(values), 0, 0, shape, reads, writes))
            for place, (row, column) in enumerate(window.parts):
                top, left = rows.before - row.before, columns.before - column.before
                part = taps[place * share :][:share, top:, left:]
                part[:, : len(row.taps), : len(column.taps)] = weights[:, row.taps][:, :, column.taps]
                pixel = row.first * width + column.first
                writes = (*(step * channels for step in (height * width, down * width, right)), 1)
                for at, first, length in () if is_whole else runs_of(chosen):
                    shape = (batch, row.results, column.results, length)
                    start, reads = place * share + at, (sizes[0] * line, line, count, 1)
                    copies.append(StridedCopy(len(values), start, pixel * channels + first, shape, reads, writes))
            made = npu.ConvOp(
                source,
                site.result_of_shape(batch, *sizes, count),
                kernel=(rows.taps, columns.taps),
                pads=(rows.before, columns.before, rows.after, columns.after),
                weights=blob_of(taps),
                **of_channels(integers, chosen * len(window.parts)),
            )
            values.append(site.emit(made))
    site.finish(npu.MoveOp(values, site.result_type, copies=copies))
