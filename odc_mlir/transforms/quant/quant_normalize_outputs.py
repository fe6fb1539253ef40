"""``quant-normalize-outputs``: give the columns of an output their units after they were codes.

Before, with ``ranges`` of 0.1 to 0.3 and -1500 to 2500 for the columns::

    %w = circle.const [0.02, 400.0] : tensor<2x1xf32>
    %b = circle.const [0.2, 500.0] : tensor<2xf32>
    %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x1xf32>, tensor<2x1xf32>, tensor<2xf32>) -> tensor<1x2xf32>

After: the layer gives columns from -1 to 1, which share a scale well::

    %w = circle.const [0.2, 0.2] : tensor<2x1xf32>
    %b = circle.const [0.0, 0.0] : tensor<2xf32>
    %0 = circle.fully_connected(%x, %w, %b) : …
    %s = circle.const [0.1, 2000.0] : tensor<2xf32>
    %1 = circle.mul(%0, %s) attributes {quant.precision = "float"} : …
    %m = circle.const [0.2, 500.0] : tensor<2xf32>
    %2 = circle.add(%1, %m) attributes {quant.precision = "float"} : …

An output of several quantities, each in its unit, has one scale for all its columns, which leaves nothing of the small
ones. Units that a model gives its answers by operators of its own are folded into the last layer before, so that this
is where they come back. Both operators stay float; the last one takes the output's name. Columns that RELU has cut
off at zero get a factor only.

Applies only to outputs of layers with constant weights and no other activation that nothing else reads, and whose
columns differ in size by more than a factor of sixteen, also behind RESHAPE and a CONCATENATION of columns; does
nothing without ``ranges``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import info_of
from odc_mlir.errors import OptionError, parsing
from odc_mlir.formats.npz import read_npz
from odc_mlir.quantizer.policy.schemes import FLOAT
from odc_mlir.quantizer.policy.sizes import sizes_differ
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import (
    WeightedLayer,
    activation,
    constant_name,
    is_used_once,
    operator,
    part,
    producer,
    real,
)
from odc_mlir.transforms.common.tensor_names import named
from odc_mlir.transforms.quant.common.ir import PRECISION, main_function, write_word

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class QuantNormalizeOutputsPass(ModulePass):
    """Scale and move the columns of outputs after the last layer; see the module's text."""

    name = "quant-normalize-outputs"

    ranges: str = ""
    """An .npz file with arrays [2, columns] of the least and the largest values, by output name."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_function(op)
        if function is None or not self.ranges:
            return
        arrays = read_npz(self.ranges, what="column ranges", kind=OptionError, hint="use an .npz file")
        with parsing("cannot read column ranges", OptionError, location=self.ranges):
            ranges = {name: np.asarray(array, np.float64).reshape(2, -1) for name, array in arrays.items()}
        for value in list(function.body.block.last_op.operands if function.body.block.last_op else ()):
            known = ranges.get(value_name(value))
            if known is not None and is_used_once(value) and sizes_differ(*known):
                _normalise(value, *known)


def _normalise(value: SSAValue, low: Floats, high: Floats) -> bool:
    """Whether the layers behind ``value`` were normalised; what joins or reshapes their results stays float."""
    found = False
    for part_of, first, last in _parts(value, len(low)):
        found |= is_used_once(part_of) and _normalise(part_of, low[first:last], high[first:last])
    if (behind := producer(value, "RESHAPE")) is not None and is_used_once(behind.operands[0]):
        columns = (info_of(behind.operands[0]).shape or (0,))[-1] or 0
        if columns and columns % len(low) == 0:
            times = columns // len(low)
            found = _normalise(behind.operands[0], np.tile(low, times), np.tile(high, times))
    if found:
        write_word(value.owner, PRECISION, FLOAT)  # type: ignore[arg-type]
        return True
    return _normalise_layer(value, low, high)


def _parts(value: SSAValue, columns: int) -> Iterator[tuple[SSAValue, int, int]]:
    """What a CONCATENATION of columns joins, each with its first column and that behind its last."""
    op = producer(value, "CONCATENATION")
    rank = 0 if op is None else len(info_of(value).shape or ())
    if op is None or activation(op) != "none" or int(op.option("axis")) not in (-1, rank - 1):
        return
    shapes = [info_of(operand).shape for operand in op.operands]
    widths = [(shape or (0,))[-1] or 0 for shape in shapes]
    if sum(widths) == columns:
        ends = np.cumsum(widths).tolist()
        yield from zip(op.operands, [0, *ends[:-1]], ends, strict=True)


def _normalise_layer(value: SSAValue, low: Floats, high: Floats) -> bool:
    layer = WeightedLayer.of(value.owner)  # type: ignore[arg-type]
    weights = None if layer is None or activation(layer.op) not in ("none", "relu") else layer.real_weights()
    if layer is None or weights is None:
        return False
    columns = weights.shape[layer.axis]
    if len(low) != columns:
        raise OptionError(
            f"the output {value_name(value)!r} has {columns} columns, the recorded ranges are for {len(low)}",
            hint="record them with this model",
        )
    bias = layer.real_bias(columns)
    if bias is None:
        return False
    if activation(layer.op) == "relu":
        sizes, centres = high, np.zeros(columns)
    else:
        sizes, centres = (high - low) / 2, (low + high) / 2
    sizes, centres = (a.astype(np.float32).astype(np.float64) for a in (np.where(high > low, sizes, 1.0), centres))
    new = weights / layer.per_output(sizes, weights.ndim), (bias - centres) / sizes
    if not (sizes > 0).all() or not all(np.isfinite(array.astype(np.float32)).all() for array in new):
        return False
    _insert(value, layer, new, sizes, centres)
    return True


def _insert(value: SSAValue, layer: WeightedLayer, new: tuple[Floats, Floats], sizes: Floats, centres: Floats) -> None:
    op, name = layer.op, layer.name
    constants = [
        real(new[0], constant_name(op.operands[layer.weights], name, "weights")),
        real(new[1], constant_name(layer.bias_value, name, "bias")),
    ]
    Rewriter.insert_op(constants, InsertPoint.before(op))
    op.operands = layer.operands_with(*(constant.result for constant in constants))
    by, moved = real(sizes, f"{name}/sizes"), real(centres, f"{name}/centres")
    if centres.any():
        scaled = part("MUL", [value, by.result], value, "scaled")
        steps = [scaled, operator("ADD", [scaled.results[0], moved.result], value)]
        made = [by, steps[0], moved, steps[1]]
    else:
        steps = [operator("MUL", [value, by.result], value)]
        made = [by, *steps]
    for step in steps:
        write_word(step, PRECISION, FLOAT)
    for use in [use for use in value.uses if use.operation is not steps[0]]:
        use.operation.operands[use.index] = steps[-1].results[0]
    Rewriter.insert_op(made, InsertPoint.after(op))
    named(op, f"{name}/normalised")
