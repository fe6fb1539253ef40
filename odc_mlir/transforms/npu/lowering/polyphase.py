"""Patterns that lower transposed convolutions by polyphase decomposition.

Each component of result rows and columns is a convolution with the taps that contribute to it. A move interleaves the
components.
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
from odc_mlir.transforms.npu.lowering.decompositions import transposed_components
from odc_mlir.transforms.npu.lowering.products import of_channels, requantisation, weight_codes
from odc_mlir.transforms.npu.lowering.site import LowerToNpu, Site, blob_of
from odc_mlir.transforms.partition.rules.operator_checks import channel_groups, runs_of


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
        return wide_weights.needs_channel_groups(node) and not wide_weights.takes_parts(node)

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


def _interleave(site: Site, source: SSAValue, groups: Sequence[_Channels]) -> None:
    components = transposed_components(site.node)
    assert not isinstance(components, str), "the placement rules require components"
    batch, height, width, channels = site.result.static_shape
    values: list[SSAValue] = []
    copies = []
    for chosen, weights, zero in groups:
        integers = of_channels(requantisation(site, zero, operands=(2, 3)), chosen)
        for row, column in ((row, column) for row in components[0] for column in components[1]):
            made = npu.ConvOp(
                source,
                site.result_of_shape(batch, row.results, column.results, len(chosen)),
                kernel=(len(row.taps), len(column.taps)),
                pads=(row.before, column.before, row.after, column.after),
                weights=blob_of(np.ascontiguousarray(weights[:, row.taps][:, :, column.taps])),
                **integers,
            )
            line, pixel = column.results * len(chosen), row.first * width + column.first
            reads = (row.results * line, line, len(chosen), 1)
            pixels = (height * width, len(components[0]) * width, len(components[1]))
            writes = (*(count * channels for count in pixels), 1)
            for at, first, count in runs_of(chosen):
                sizes = (batch, row.results, column.results, count)
                copies.append(StridedCopy(len(values), at, pixel * channels + first, sizes, reads, writes))
            values.append(site.emit(made))
    site.finish(npu.MoveOp(values, site.result_type, copies=copies))
