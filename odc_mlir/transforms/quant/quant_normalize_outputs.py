"""``quant-normalize-outputs``: normalise the columns of an output before quantisation, and restore the units.

Before, with ``ranges`` of 0.1 to 0.3 and -1500 to 2500 for the columns::

    %w = circle.const [0.02, 400.0] : tensor<2x1xf32>
    %b = circle.const [0.2, 500.0] : tensor<2xf32>
    %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x1xf32>, tensor<2x1xf32>, tensor<2xf32>) -> tensor<1x2xf32>

After: the layer computes columns from -1 to 1, which can share a scale::

    %w = circle.const [0.2, 0.2] : tensor<2x1xf32>
    %b = circle.const [0.0, 0.0] : tensor<2xf32>
    %0 = circle.fully_connected(%x, %w, %b) : …
    %s = circle.const [0.1, 2000.0] : tensor<2xf32>
    %1 = circle.mul(%0, %s) attributes {quant.precision = "float"} : …
    %m = circle.const [0.2, 500.0] : tensor<2xf32>
    %2 = circle.add(%1, %m) attributes {quant.precision = "float"} : …

An output may have several quantities in different units. With one scale for all columns, small columns would become
zero. Earlier passes folded the operators that apply units into the last layer. This pass separates them again. The
inserted MUL and ADD stay float. The last of them gets the output's name, and the layer gets the same name with the
suffix ``/normalised``. Columns after RELU get only a factor.

Applies only to outputs of layers with constant weights, no other activation and no other reader. Columns must differ in
size by more than a factor of sixteen, or a column's range must be that much smaller than the range extended to zero.
Columns may be along any axis of the output. TRANSPOSE, RESHAPE, CONCATENATION and the like after the layers stay float.
A column of a layer must be in a single column of the output.

With ``layers``, a layer is also normalised if slices and similar operators move only some of its columns to an output.
It is normalised by the ranges of its own columns. The slices stay float. Other readers get the columns in the original
units. Does nothing without either file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, info_of
from odc_mlir.errors import OptionError
from odc_mlir.ops.spec import Trait
from odc_mlir.quantizer.policy.ranges import sizes_differ
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import (
    VIEWS,
    WeightedLayer,
    activation,
    constant,
    is_used_once,
    operator,
    part,
    producer,
    real,
)
from odc_mlir.transforms.common.tensor_names import named
from odc_mlir.transforms.quant.common.ir import quantized_function, stay_float
from odc_mlir.transforms.quant.common.layers import load_reals

_MOVING = frozenset(
    {"CONCATENATION", "GATHER", "PACK", "SLICE", "SPLIT", "SPLIT_V", "STRIDED_SLICE", "TRANSPOSE", "UNPACK"}
)

# Suffix of the layer's name. The operator that restores the units has the output's name.
NORMALISED = "/normalised"


_SCALES = "it restores the units of normalised outputs (--normalize outputs)"
_MOVES = "it moves normalised outputs after the restoration of their units (--normalize outputs)"

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class QuantNormalizeOutputsPass(ModulePass):
    """Scale and move the columns of outputs after the last layer."""

    name = "quant-normalize-outputs"

    ranges: str = ""
    """.npz file with arrays of the least and the largest values by output name: [2, columns] if columns are along
    the last axis, [2, columns, 1] for the last but one, and so on. Wider ranges leave room for unseen values."""

    layers: str = ""
    """.npz file with arrays [2, columns] of the least and the largest values by the name of a layer's result."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        normalize_outputs(op, *(load_reals(file, "column ranges", _pairs) for file in (self.ranges, self.layers)))


def normalize_outputs(module: ModuleOp, ranges: Mapping[str, Floats], of_layers: Mapping[str, Floats]) -> None:
    """Scale and move columns of outputs and of layers by ranges. See :class:`QuantNormalizeOutputsPass`."""
    function = quantized_function(module)
    if function is None:
        return
    for made in list(function.body.block.ops):
        if isinstance(made, CircleOp) and len(made.results) == 1:
            known = of_layers.get(value_name(made.results[0]))
            if known is not None and known.ndim == 2 and sizes_differ(*known):
                _normalise_moved(made.results[0], *known)
    for value in list(function.body.block.last_op.operands if function.body.block.last_op else ()):
        known = ranges.get(value_name(value))
        if known is None or not sizes_differ(*known.reshape(2, -1)):
            continue
        if (columns := _columns_of(value, known.shape[1:])) is not None:
            _normalise(value, columns, *known.reshape(2, -1))


def _pairs(array: Floats) -> Floats:
    if array.ndim < 2 or len(array) != 2:
        raise ValueError("they are not pairs")
    return array


def moved_to_outputs(value: SSAValue) -> tuple[list[CircleOp], set[str]]:
    """Return the operators that only move elements of ``value`` to outputs, and the names of these outputs."""
    ops: list[CircleOp] = []
    outputs: set[str] = set()
    known: dict[SSAValue, bool] = {}

    def reaches(moved: SSAValue) -> bool:
        if moved not in known:
            known[moved] = False
            for op in [use.operation for use in moved.uses]:
                if isinstance(op, ReturnOp):
                    outputs.add(value_name(moved))
                    known[moved] = True
                elif isinstance(op, CircleOp) and op.unverified is None:
                    moves = op.SPEC.name in _MOVING or Trait.VIEW in op.SPEC.traits
                    if moves and any(list(map(reaches, op.results))):
                        ops.append(op)
                        known[moved] = True
        return known[moved]

    reaches(value)
    return ops, outputs


def _normalise_moved(value: SSAValue, low: Floats, high: Floats) -> None:
    moving, _ = moved_to_outputs(value)
    columns = info_of(value).shape or (None,)
    if not moving or columns[-1] != len(low):
        return
    if _normalise_layer(value, np.broadcast_to(np.arange(len(low)), _known_shape(value)), low, high):
        for op in moving:
            stay_float(op, _MOVES)


def _columns_of(value: SSAValue, ranges: tuple[int, ...]) -> Indices | None:
    """Return the column of each element of an output, for ranges of shape ``ranges``, or None if unknown.

    Other unknown dimensions count as 1.
    """
    shape = info_of(value).shape or ()
    places = np.arange(math.prod(ranges)).reshape(ranges)
    along = next((axis for axis in range(-len(ranges), 0) if ranges[axis] > 1), -1)
    columns = shape[along] if -along <= len(shape) else 1
    if columns is None:
        return None
    if columns != places.size:
        raise OptionError(
            f"the output {value_name(value)!r} has {columns} columns, the recorded ranges are for {places.size}",
            hint="record them with this model",
        )
    return np.broadcast_to(places, _known_shape(value))


def _known_shape(value: SSAValue) -> tuple[int, ...]:
    return tuple(1 if size is None else size for size in info_of(value).shape or ())


def _normalise(value: SSAValue, columns: Indices, low: Floats, high: Floats) -> bool:
    """Normalise the layers that compute ``value``, and return whether any changed.

    Operators after them stay float. ``columns``: index in ``low`` and ``high`` for each element of ``value``.
    """
    if not is_used_once(value):
        return False
    found = [_normalise(source, of_source, low, high) for source, of_source in _sources(value, columns)]
    if any(found):
        stay_float(value.owner, _MOVES)  # type: ignore[arg-type]
        return True
    return _normalise_layer(value, columns, low, high)


def _sources(value: SSAValue, columns: Indices) -> Iterator[tuple[SSAValue, Indices]]:
    if (op := producer(value, *VIEWS)) is not None:
        shape = _known_shape(op.operands[0])
        if math.prod(shape) == columns.size:
            yield op.operands[0], columns.reshape(shape)
    elif (op := producer(value, "TRANSPOSE")) is not None:
        order = constant(op.operands[1])
        if order is not None:
            yield op.operands[0], columns.transpose(np.argsort(order.ravel()))
    elif (op := producer(value, "PACK")) is not None:
        axis = int(op.option("axis"))
        for place, operand in enumerate(op.operands):
            yield operand, np.take(columns, [place], axis).squeeze(axis)
    elif (op := producer(value, "CONCATENATION")) is not None and activation(op) == "none":
        axis = int(op.option("axis"))
        ends = np.cumsum([_known_shape(operand)[axis] for operand in op.operands])
        if ends[-1] == columns.shape[axis]:
            yield from zip(op.operands, np.split(columns, ends[:-1], axis), strict=True)


def _normalise_layer(value: SSAValue, columns_of: Indices, low: Floats, high: Floats) -> bool:
    found = WeightedLayer.with_reals(value.owner)  # type: ignore[arg-type]
    if found is None or activation(found[0].op) not in ("none", "relu"):
        return False
    layer, weights, bias = found
    columns = len(bias)
    rows = columns_of.reshape(-1, columns) if columns_of.shape[-1:] == (columns,) else columns_of[:0]
    if not len(rows) or (rows != rows[0]).any():
        return False
    low, high = low[rows[0]], high[rows[0]]
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
    layer.set_constants(*new)
    by, moved = real(sizes, f"{name}/sizes"), real(centres, f"{name}/centres")
    if centres.any():
        scaled = part("MUL", [value, by.result], value, "scaled")
        steps = [scaled, operator("ADD", [scaled.results[0], moved.result], value)]
        made = [by, steps[0], moved, steps[1]]
    else:
        steps = [operator("MUL", [value, by.result], value)]
        made = [by, *steps]
    for step in steps:
        stay_float(step, _SCALES)
    for use in [use for use in value.uses if use.operation is not steps[0]]:
        use.operation.operands[use.index] = steps[-1].results[0]
    Rewriter.insert_op(made, InsertPoint.after(op))
    named(op, f"{name}{NORMALISED}")
