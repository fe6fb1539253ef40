"""``quant-normalize-inputs``: normalise the channels of inputs, so that they can share a scale.

Before, with ``moments`` of 0.3 ± 0.4 and 1200 ± 500 for the columns::

    %w = circle.const [4.0, 0.01] : tensor<1x2xf32>
    %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1xf32>) -> tensor<1x1xf32>

After: each column is 0 ± 1, and the layer compensates for the change::

    %m = circle.const [0.3, 1200.0] : tensor<2xf32>
    %1 = circle.sub(%x, %m) attributes {quant.precision = "float"} : …
    %s = circle.const [2.5, 0.002] : tensor<2xf32>
    %2 = circle.mul(%1, %s) attributes {quant.precision = "float"} : …
    %w = circle.const [1.6, 5.0] : tensor<1x2xf32>
    %b = circle.const … : …
    %0 = circle.fully_connected(%2, %w, %b) : …

Columns of raw tables or channels of raw sensors often differ in size. With a shared scale, small columns have no
resolution. The inserted SUB and MUL stay float, and quantised computation begins after them. The pass uses standard
deviations instead of range limits. A value beyond the limit of its column is then rarely clipped. Before a convolution
with padding, the pass only divides channels by root mean squares, because padding must stay zero.

Applies only if only layers with constant weights read an input. The input channels must differ in magnitude by at least
a factor of four. If a CONCATENATION joins an input with other values along the channels, the input's channels become as
large as the largest channel of these values. Does nothing without ``moments``.

Some operators only prepare inputs (slices, other shapes, joins of several inputs …). The results count as inputs if
layers with constant weights read the results. Preparing operators stay float if the results are normalised, or if the
operators change or cut channels of different sizes.

``sizes=weights`` needs no samples. The size of a channel is then the inverse of the root mean square of its weights.
This is about right if a normalisation was folded into the first layer. Channels are then only scaled, and only if they
differ by a factor of sixteen. The weights of equal channels differ less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue, Use
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.errors import OptionError
from odc_mlir.ops.spec import Trait
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import (
    WeightedLayer,
    activation,
    behind,
    between,
    is_real,
    part,
    real,
    real_scalar,
    shape_of,
    stack_inputs,
)
from odc_mlir.transforms.quant.common.ir import all_ops, constant_of, quantized_function, stay_float
from odc_mlir.transforms.quant.common.layers import load_reals

LEAST_RATIO = 4.0  # least ratio of sizes: two bits
_LEAST_IMPLIED_RATIO = 16.0
LARGEST = float(np.finfo(np.float32).max)

_REASON = "it normalises float inputs (--normalize inputs)"
_PREPARING = "it prepares float inputs (--normalize inputs)"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class QuantNormalizeInputsPass(ModulePass):
    """Centre and scale the channels of inputs."""

    name = "quant-normalize-inputs"

    moments: str = ""
    """.npz file with arrays [2, channels] of means and standard deviations, by the names of inputs and values."""

    sizes: Literal["moments", "weights"] = "moments"
    """Source of the channels' sizes."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.moments or self.sizes == "weights":
            moments = load_reals(self.moments, "channel moments", lambda array: array.reshape(2, -1))
            normalize_inputs(op, moments, by_weights=self.sizes == "weights")


def normalize_inputs(module: ModuleOp, moments: Mapping[str, Floats], *, by_weights: bool = False) -> None:
    """Centre and scale input channels by ``moments``, [2, channels] by name, or only scale channels ``by_weights``."""
    function = quantized_function(module)
    if function is None:
        return
    preparing_ops = preparing(function)
    kept = _keep_real(preparing_ops, moments)
    for value in (*function.args, *(result for op in preparing_ops for result in op.results)):
        readers = _readers(value, kept, preparing_ops)
        if by_weights:
            is_plain = not isinstance(value.owner, CircleOp) or joins_channels(value.owner)
            known = _implied(readers, (shape_of(value) or ())[-1] or 0) if readers and is_plain else None
        else:
            known = _moments_of(value, moments)
        others = _others(readers, moments, kept)
        found = _normalisation(value, readers, known, others) if readers and known is not None else None
        if found is not None:
            _insert(value, readers, *found)


def measured_values(function: FuncOp) -> list[str]:
    """Return the names of values for which the pass needs moments in addition to inputs, in order."""
    ops = preparing(function)
    prepared = [*function.args, *(result for op in ops for result in op.results)]
    joins = {use.operation for value in prepared for use in value.uses if use.operation not in ops}
    joined = (
        value
        for op in all_ops(function)
        if op in joins and joins_channels(op)
        for value in op.operands
        if constant_of(value) is None
    )
    return [value_name(value) for value in dict.fromkeys((*prepared, *joined)) if not isinstance(value, BlockArgument)]


def _keep_real(ops: Sequence[CircleOp], moments: Mapping[str, Floats]) -> set[CircleOp]:
    """Keep operators of ``ops`` float that change or cut input channels of different sizes. Return these operators.

    Operators between inputs and these operators, and operators after them, also stay float.
    """
    kept = set[CircleOp]()
    for op in ops:
        known = [found for operand in op.operands if (found := _moments_of(operand, moments)) is not None]
        differ = _is_of_use(op) and any(_worthwhile(*found) is not None for found in known)
        if differ or any(operand.owner in kept for operand in op.operands):
            kept.add(op)
    for op in reversed(ops):
        if any(use.operation in kept for result in op.results for use in result.uses):
            kept.add(op)
    for op in kept:
        stay_float(op, _PREPARING)
    return kept


def _is_of_use(op: CircleOp) -> bool:
    """Return whether quantising after ``op`` may be more precise than before it. Moves of all channels do not count."""
    name = op.SPEC.name
    if name in ("CAST", "CONCATENATION", "TRANSPOSE") or Trait.VIEW in op.SPEC.traits:
        return False
    return name not in ("MUL", "DIV") or not any(real_scalar(operand) is not None for operand in op.operands)


def _moments_of(value: SSAValue, moments: Mapping[str, Floats]) -> Floats | None:
    found = moments.get(value_name(value))
    if found is not None or not isinstance(value.owner, CircleOp) or not joins_channels(value.owner):
        return found
    parts = [_moments_of(operand, moments) for operand in value.owner.operands]
    known = [part for part in parts if part is not None]
    return np.concatenate(known, axis=1) if len(known) == len(parts) else None


@dataclass(frozen=True)
class _InputLayer:
    """Layer that reads an input.

    ``places``: input channel of each weight, broadcast against the weights. The input may be operand ``place`` of a
    concatenation ``join`` with other values, where it starts at channel ``first``.
    """

    layer: WeightedLayer
    weights: Floats
    bias: Floats
    places: NDArray[np.int64]
    join: CircleOp | None = None
    place: int = 0
    first: int = 0

    @property
    def pads(self) -> bool:
        """Whether the layer may pad its input with zeros."""
        op = self.layer.op
        return op.SPEC.name != "FULLY_CONNECTED" and (
            op.SPEC.name == "TRANSPOSE_CONV" or op.option("padding") != "valid"
        )

    def of_all(self, array: Floats, other: float) -> Floats:
        """Extend ``array`` from the input's channels to all channels that the layer reads. ``other`` fills the rest."""
        if self.join is None:
            return array
        found = np.full(int((shape_of(self.join.results[0]) or (0,))[-1] or 0), other)
        found[self.first : self.first + len(array)] = array
        return found


def _readers(value: SSAValue, kept: Set[CircleOp], preparing_ops: Sequence[CircleOp]) -> list[_InputLayer]:
    """Return the layers that read ``value``, except operators in ``kept``, or none if another operator reads it.

    Inputs that are concatenated only with other inputs are normalised after the concatenation.
    """
    if not is_real(value) or not (shape_of(value) or (None,))[-1]:
        return []
    found = []
    for use in value.uses:
        if use.operation in kept:
            continue
        readers = [] if use.operation in preparing_ops else _reading(use)
        if not readers:
            return []
        found += readers
    return found


def _reading(use: Use) -> list[_InputLayer]:
    op = use.operation
    if not isinstance(op, CircleOp) or not joins_channels(op):
        layer = _layer(use)
        return [] if layer is None else [layer]
    sizes = [(shape_of(operand) or (None,))[-1] for operand in op.operands]
    if None in sizes or op.operands.count(op.operands[use.index]) > 1:
        return []
    layers = [_layer(of_join) for of_join in op.results[0].uses]
    first = sum(size or 0 for size in sizes[: use.index])
    known = [replace(layer, join=op, place=use.index, first=first) for layer in layers if layer is not None]
    return known if len(known) == len(layers) else []


def _layer(use: Use) -> _InputLayer | None:
    found = WeightedLayer.with_reals(use.operation)
    if found is None or use.index != found[0].input or not np.isfinite(found[1]).all():
        return None
    layer, weights, bias = found
    places = stack_inputs(layer, weights, (shape_of(layer.op.operands[layer.input]) or (0,))[-1] or 0)
    if places is None:
        return None
    return _InputLayer(layer, weights.astype(np.float64), bias.astype(np.float64), np.asarray(places, np.int64))


def _others(readers: Sequence[_InputLayer], moments: Mapping[str, Floats], kept: Set[CircleOp]) -> float | None:
    values = {value for reader in readers if reader.join is not None for value in reader.join.operands}
    others = (value for value in values if isinstance(value.owner, CircleOp) and value.owner not in kept)
    known = (_moments_of(value, moments) for value in others)
    largest = float(max((np.hypot(*found).max(initial=0.0) for found in known if found is not None), default=0.0))
    return largest if 0.0 < largest < LARGEST else None


def _implied(readers: Sequence[_InputLayer], channels: int) -> Floats | None:
    """Return moments of channels from the weights of ``readers``, or None if they do not differ enough."""
    if any(reader.join is not None for reader in readers):
        return None
    power, counts = np.zeros((2, channels))
    for reader in readers:
        places = np.broadcast_to(reader.places, reader.weights.shape)
        np.add.at(power, places, np.square(reader.weights))
        np.add.at(counts, places, 1)
    mean = np.sqrt(power / np.maximum(1, counts))
    lives = mean > mean.max(initial=0.0) / LARGEST
    if not lives.any() or mean.max() < _LEAST_IMPLIED_RATIO * float(mean[lives].min()):
        return None
    return np.stack([np.zeros(channels), np.where(lives, 1.0 / np.where(lives, mean, 1.0), 0.0)])


def _normalisation(
    value: SSAValue, readers: Sequence[_InputLayer], moments: Floats, others: float | None
) -> tuple[Floats, Floats] | None:
    """Return the centres to subtract from channels and the divisors, or None if they would change little.

    ``others``: size of the channels that are joined with the input.
    """
    channels = (shape_of(value) or (None,))[-1]
    if moments.shape[1] != channels:
        raise OptionError(
            f"the input {value_name(value)!r} has {channels} channels, the recorded moments are for {moments.shape[1]}",
            hint="record them with this model",
        )
    centres, sizes = moments
    if any(reader.pads for reader in readers):
        return _worthwhile(np.zeros_like(centres), np.hypot(centres, sizes), others)
    return _worthwhile(centres, sizes, others)


def _worthwhile(centres: Floats, sizes: Floats, others: float | None = None) -> tuple[Floats, Floats] | None:
    """Return centres and divisors, with size 1 for channels that never change, or None if one scale suits all.

    If ``others`` is given, channels become as large as ``others``.
    """
    if not np.isfinite([centres, sizes]).all() or (sizes < 0).any():
        return None
    whole = max((centres + sizes).max(), 0.0) - min((centres - sizes).min(), 0.0) if centres.any() else 0.0
    largest = max(whole / 2, float(sizes.max(initial=0.0)), others or 0.0)
    lives = sizes > largest / LARGEST
    if not lives.any() or largest < LEAST_RATIO * min(float(sizes[lives].min()), others or math.inf):
        return None
    return np.asarray(centres, np.float32).astype(np.float64), np.where(lives, sizes, 1.0) / (others or 1.0)


def _insert(value: SSAValue, readers: list[_InputLayer], centres: Floats, sizes: Floats) -> None:
    factors = np.asarray(1.0 / sizes, np.float32).astype(np.float64)
    changed = [(reader, *_absorbed(reader, centres, factors)) for reader in readers]
    if any(np.abs(array).max(initial=0.0) > LARGEST for _, weights, bias in changed for array in (weights, bias)):
        return
    scaled, name, made = value, value_name(value), []
    steps = (("SUB", "centred", "centres", centres), ("MUL", "scaled", "factors", factors))
    for kind, role, what, array in steps if centres.any() else steps[1:]:
        constant = real(array, f"{name}/{what}")
        op = part(kind, [scaled, constant.result], value, role)
        stay_float(op, _REASON)
        made += [constant, op]
        scaled = op.results[0]
    Rewriter.insert_op(made, behind(value))
    for op in between(value, ()):
        stay_float(op, _PREPARING)
    for reader, weights, bias in changed:
        if reader.join is not None:
            reader.join.operands[reader.place] = scaled
        else:
            reader.layer.op.operands[reader.layer.input] = scaled
        reader.layer.set_constants(weights, bias if centres.any() else None)


def _absorbed(reader: _InputLayer, centres: Floats, factors: Floats) -> tuple[Floats, Floats]:
    others = tuple(axis for axis in range(reader.weights.ndim) if axis != reader.layer.axis)
    centres, factors = reader.of_all(centres, 0.0), reader.of_all(factors, 1.0)
    moved = (reader.weights * centres[reader.places]).sum(axis=others)
    return reader.weights / factors[reader.places], reader.bias + moved


_MOVES_INPUTS = frozenset({"GATHER", "SLICE", "SPLIT", "SPLIT_V", "STRIDED_SLICE", "TRANSPOSE", "UNPACK"})
_OTHERS = frozenset({"CUSTOM", "DEQUANTIZE", "QUANTIZE"})  # element-wise, but without float preparation


def preparing(function: FuncOp) -> list[CircleOp]:
    """Return the operators of ``function`` that only prepare inputs, in order.

    The operators are element-wise, moves or conversions, and have float results that depend only on inputs and
    constants. The results eventually reach other operators.
    """
    known, found = set[SSAValue](function.args), dict[CircleOp, bool]()
    for op in all_ops(function):
        if _prepares(op, known):
            found[op] = False
            known.update(op.results)
    for op in reversed(found):
        readers = [use.operation for result in op.results for use in result.uses]
        found[op] = any(found.get(reader, True) for reader in readers if isinstance(reader, CircleOp))
    return [op for op, leads_on in found.items() if leads_on]


def _prepares(op: CircleOp, known: Set[SSAValue]) -> bool:
    """Return whether ``op`` computes floats from ``known`` values and constants, by elements, moves or conversions."""
    varying = [operand for operand in op.operands if constant_of(operand) is None]
    if (
        op.unverified is not None
        or not varying
        or any(value not in known for value in varying)
        or not all(map(is_real, op.results))
    ):
        return False
    name, traits = op.SPEC.name, op.SPEC.traits
    if joins_channels(op):
        return True
    if name in _MOVES_INPUTS:  # a table is not an input, even if its indices are
        return op.operands[op.SPEC.quant.source or 0] in known
    return name == "CAST" or Trait.VIEW in traits or (Trait.ELEMENTWISE in traits and name not in _OTHERS)


def joins_channels(op: CircleOp) -> bool:
    """Return whether ``op`` only joins values along the last axis."""
    rank = len(shape_of(op.results[0]) or ()) if op.SPEC.name == "CONCATENATION" and op.unverified is None else 0
    return rank > 0 and op.option("axis") in (rank - 1, -1) and activation(op) == "none"
