"""``circle`` to ``npu``: polyphase decomposition of transposed convolutions, and grouped convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.dialects.npu_move import StridedCopy
from odc_mlir.transforms.npu.lowering.channel_groups import group_codes, needs_channel_groups, of_channels
from odc_mlir.transforms.npu.lowering.polyphase_decomposition import (
    Component,
    transposed_components,
)
from odc_mlir.transforms.npu.lowering.products import (
    convolution_integers,
    lower_conv_2d,
    requantisation,
    single_product,
    weight_codes,
    window_of,
)
from odc_mlir.transforms.npu.lowering.site import Lowerings, Site, blob_of, tensor_of
from odc_mlir.transforms.npu.lowering.weight_parts import parts_of, repeated_channels, repeated_weights, takes_parts
from odc_mlir.transforms.partition.rules.weight_checks import channel_groups, runs_of


def lower_transpose_conv(site: Site) -> None:
    """TRANSPOSE_CONV: for each component of rows and columns a convolution with the taps that meet there.

    Weights with zero points too far apart are divided by result channels as well.
    """
    components = transposed_components(site.node)
    assert not isinstance(components, str), "the placement rules ask for components"
    filters = site.info(1)
    batch, _, _, channels = site.result.static_shape
    source, groups = site.operand(2), [list(range(channels))]
    given = parts_of(site) if takes_parts(site) else None
    if given is not None:
        source = repeated_channels(site, source, given.count)
    elif needs_channel_groups(site):
        groups = channel_groups(filters, 0)
    parts = []
    for group in groups:
        weights, zero = group_codes(site, group) if given is None else (repeated_weights(given), given.zero)
        single = single_product(site.info(2), filters)
        integers = requantisation(site, zero, single_product=single, operands=(2, 3))
        for row in components[0]:
            for column in components[1]:
                made = npu.ConvOp(
                    source,
                    site.result_of_shape(batch, row.results, column.results, len(group)),
                    depthwise=False,
                    kernel=(len(row.taps), len(column.taps)),
                    stride=(1, 1),
                    dilation=(1, 1),
                    pads=(row.before, column.before, row.after, column.after),
                    weights=blob_of(np.ascontiguousarray(weights[:, row.taps][:, :, column.taps])),
                    **of_channels(integers, group),
                )
                parts.append(PolyphasePart(row, column, group, site.emit(made)))
    interleave(site, parts, (len(components[0]), len(components[1])))


class PolyphasePart(NamedTuple):
    """A component of rows, one of columns, and some channels of a result."""

    row: Component
    column: Component
    channels: list[int]
    value: SSAValue


def interleave(site: Site, parts: Sequence[PolyphasePart], steps: tuple[int, int]) -> None:
    """Replace the operator by the result that ``parts`` make; ``steps``: components of rows and columns."""
    batch, height, width, channels = site.result.static_shape
    copies = []
    for number, (row, column, chosen, _) in enumerate(parts):
        line = column.results * len(chosen)
        start = (row.first * width + column.first) * channels
        for at, first, count in runs_of(chosen):
            copies.append(
                StridedCopy(
                    number,
                    at,
                    start + first,
                    (batch, row.results, column.results, count),
                    (row.results * line, line, len(chosen), 1),
                    (height * width * channels, steps[0] * width * channels, steps[1] * channels, 1),
                )
            )
    site.finish(npu.MoveOp([part.value for part in parts], site.result_type, copies=copies))


def lower_any_conv_2d(site: Site) -> None:
    """CONV_2D of one group, of one for each input channel, or of some in between."""
    total, taken = site.info(0).static_shape[3], site.info(1).static_shape[3]
    (lower_conv_2d if taken in (total, 1) else lower_grouped_conv_2d)(site)


def lower_grouped_conv_2d(site: Site) -> None:
    """CONV_2D of several groups: a convolution for each, on its channels."""
    filters, (batch, rows, columns, total) = site.info(1), site.info(0).static_shape
    channels, height, width, taken = filters.static_shape
    groups = total // taken
    each = channels // groups
    stride, dilation, pads = window_of(site, (height, width))
    codes, _ = weight_codes(site)
    weights = filters.array() if codes is None else codes
    integers, (_, out_rows, out_columns, _) = convolution_integers(site), site.result.static_shape
    values = []
    for group in range(groups):
        kind = with_shape(tensor_of(site.operand(0)), (batch, rows, columns, taken))
        copy = StridedCopy(0, group * taken, 0, (batch * rows * columns, taken), (total, 1), (taken, 1))
        source = site.emit(npu.MoveOp([site.operand(0)], kind, copies=[copy]))
        chosen = slice(group * each, (group + 1) * each)
        made = npu.ConvOp(
            source,
            site.result_of_shape(batch, out_rows, out_columns, each),
            depthwise=False,
            kernel=(height, width),
            stride=stride,
            dilation=dilation,
            pads=pads,
            weights=blob_of(np.ascontiguousarray(weights[chosen])),
            **of_channels(integers, range(channels)[chosen]),
        )
        values.append(site.emit(made))
    pixels = batch * out_rows * out_columns
    copies = [StridedCopy(g, 0, g * each, (pixels, each), (each, 1), (channels, 1)) for g in range(groups)]
    site.finish(npu.MoveOp(values, site.result_type, copies=copies))


LOWERINGS: Lowerings = {
    "CONV_2D": lower_any_conv_2d,
    "TRANSPOSE_CONV": lower_transpose_conv,
}
