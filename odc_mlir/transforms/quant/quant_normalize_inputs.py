"""``quant-normalize-inputs``: normalise the channels of a model's inputs before they share a scale.

Before, with ``moments`` of 0.3 ± 0.4 and 1200 ± 500 for the columns::

    %w = circle.const [4.0, 0.01] : tensor<1x2xf32>
    %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1xf32>) -> tensor<1x1xf32>

After: each column is 0 ± 1; the layer compensates for it::

    %m = circle.const [0.3, 1200.0] : tensor<2xf32>
    %1 = circle.sub(%x, %m) attributes {quant.precision = "float"} : …
    %s = circle.const [2.5, 0.002] : tensor<2xf32>
    %2 = circle.mul(%1, %s) attributes {quant.precision = "float"} : …
    %w = circle.const [1.6, 5.0] : tensor<1x2xf32>
    %b = circle.const … : …
    %0 = circle.fully_connected(%2, %w, %b) : …

With one scale for the columns of raw tables, or for channels of raw sensors, small ones have no resolution at all; and
if a normalisation was folded into the first layer, its weights differ as much in the opposite direction. Both operators
stay float, so that quantised computation begins after them. Standard deviations are used instead of range limits, which
all columns then share: a value beyond its own column's limit is rarely clipped. For a convolution with padding,
channels are only scaled, by their root mean squares, because padding must stay zero.

Applies only to inputs that are read by layers with constant weights alone, and whose channels differ in magnitude by at
least a factor of four; several inputs that a CONCATENATION joins along the channels count as one, which stays float up
to there. Does nothing without ``moments``.

With ``sizes=weights`` no samples are needed: where a normalisation was folded into the first layer, the weights of each
channel tell its size, which is about the inverse of their root mean square. Channels are then only scaled, if they
differ by a factor of sixteen, more than weights of channels of one size do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.errors import OptionError, parsing
from odc_mlir.formats.npz import read_npz
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import (
    WeightedLayer,
    activation,
    constant_name,
    is_real,
    part,
    real,
    shape_of,
    stack_inputs,
)
from odc_mlir.transforms.quant.common.ir import main_function, operators, stay_float

LEAST_RATIO = 4.0  # of sizes: two bits
_LEAST_IMPLIED_RATIO = 16.0
LARGEST = float(np.finfo(np.float32).max)

_REASON = "it normalises inputs, which are real (--normalize inputs)"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class QuantNormalizeInputsPass(ModulePass):
    """Centre and scale the channels of inputs; see the module's text."""

    name = "quant-normalize-inputs"

    moments: str = ""
    """An .npz file with arrays [2, channels] of means and standard deviations, by input name."""

    sizes: Literal["moments", "weights"] = "moments"
    """What tells the sizes of channels."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_function(op)
        if function is None or not (self.moments or self.sizes == "weights"):
            return
        moments = _load(self.moments) if self.moments else {}
        for value, names in _sources(function):
            readers, known = _readers(value), [moments[name] for name in names if name in moments]
            if readers and self.sizes == "weights":
                known = _implied(readers, (shape_of(value) or ())[-1] or 0)
            elif not readers or len(known) < len(names):
                continue
            if known and (found := _normalisation(value, readers, np.concatenate(known, axis=1))) is not None:
                _insert(value, readers, *found)


def _sources(function: FuncOp) -> list[tuple[SSAValue, list[str]]]:
    """What may be normalised: inputs, and what joins several of them; with the names of these inputs."""
    found: list[tuple[SSAValue, list[str]]] = [(value, [value_name(value)]) for value in function.args]
    for op in operators(function):
        if op.SPEC.name == "CONCATENATION" and activation(op) == "none" and all(map(_is_only_joined, op.operands)):
            rank = len(shape_of(op.results[0]) or ())
            if rank and op.option("axis") in (rank - 1, -1):
                found.append((op.results[0], [value_name(value) for value in op.operands]))
    return found


def _is_only_joined(value: SSAValue) -> bool:
    return isinstance(value, BlockArgument) and value.has_one_use()


def _load(path: str) -> Mapping[str, Floats]:
    arrays = read_npz(path, what="channel moments", kind=OptionError, hint="use an .npz file")
    with parsing("cannot read channel moments", OptionError, location=path):
        return {name: np.asarray(array, np.float64).reshape(2, -1) for name, array in arrays.items()}


@dataclass(frozen=True)
class _InputLayer:
    """A layer that reads an input; ``places``: the channel that each weight multiplies, to broadcast."""

    layer: WeightedLayer
    weights: Floats
    bias: Floats
    places: NDArray[np.int64]

    @property
    def pads(self) -> bool:
        """Whether zeros stand beside the input."""
        op = self.layer.op
        return op.SPEC.name != "FULLY_CONNECTED" and (
            op.SPEC.name == "TRANSPOSE_CONV" or op.option("padding") != "valid"
        )


def _readers(value: SSAValue) -> list[_InputLayer]:
    """All that read ``value``; none where something else does."""
    shape, found = shape_of(value), []
    if not is_real(value) or not shape or shape[-1] is None or shape[-1] < 2:
        return []
    for use in value.uses:
        layer = WeightedLayer.of(use.operation)
        weights = None if layer is None or use.index != layer.input else layer.real_weights()
        if layer is None or weights is None or not np.isfinite(weights).all():
            return []
        bias = layer.real_bias(weights.shape[layer.axis])
        places = stack_inputs(layer, weights, shape[-1])
        if bias is None or places is None:
            return []
        found.append(
            _InputLayer(layer, weights.astype(np.float64), bias.astype(np.float64), np.asarray(places, np.int64))
        )
    return found


def _implied(readers: list[_InputLayer], channels: int) -> list[Floats]:
    """Moments of channels that the weights of ``readers`` tell; none where they do not differ enough."""
    power, counts = np.zeros((2, channels))
    for reader in readers:
        places = np.broadcast_to(reader.places, reader.weights.shape)
        np.add.at(power, places, np.square(reader.weights))
        np.add.at(counts, places, 1)
    mean = np.sqrt(power / np.maximum(1, counts))
    lives = mean > mean.max(initial=0.0) / LARGEST
    if not lives.any() or mean.max() < _LEAST_IMPLIED_RATIO * float(mean[lives].min()):
        return []
    return [np.stack([np.zeros(channels), np.where(lives, 1.0 / np.where(lives, mean, 1.0), 0.0)])]


def _normalisation(value: SSAValue, readers: list[_InputLayer], moments: Floats) -> tuple[Floats, Floats] | None:
    """What to take from each channel, and what to divide it by; None where that changes little."""
    channels = (shape_of(value) or (None,))[-1]
    if moments.shape[1] != channels:
        raise OptionError(
            f"the input {value_name(value)!r} has {channels} channels, the recorded moments are for {moments.shape[1]}",
            hint="record them with this model",
        )
    centres, sizes = moments
    if not np.isfinite(moments).all() or (sizes < 0).any():
        return None
    if any(reader.pads for reader in readers):
        return _if_worthwhile(np.zeros_like(centres), np.hypot(centres, sizes), 0.0)
    whole = max((centres + sizes).max(), 0.0) - min((centres - sizes).min(), 0.0)
    return _if_worthwhile(centres, sizes, whole / 2)


def _if_worthwhile(centres: Floats, sizes: Floats, whole: float) -> tuple[Floats, Floats] | None:
    """Both, with 1 for the size of channels that never change; None where one scale does for all."""
    largest = max(whole, float(sizes.max(initial=0.0)))
    lives = sizes > largest / LARGEST
    if not lives.any() or largest < LEAST_RATIO * float(sizes[lives].min()):
        return None
    return np.asarray(centres, np.float32).astype(np.float64), np.where(lives, sizes, 1.0)


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
    if isinstance(value, BlockArgument):
        Rewriter.insert_op(made, InsertPoint.at_start(value.owner))
    elif isinstance(value.owner, CircleOp):
        stay_float(value.owner, _REASON)
        Rewriter.insert_op(made, InsertPoint.after(value.owner))
    for reader, weights, bias in changed:
        _replace(reader.layer, scaled, weights, bias if centres.any() else None)


def _absorbed(reader: _InputLayer, centres: Floats, factors: Floats) -> tuple[Floats, Floats]:
    """The reader's weights and bias for the normalised input."""
    others = tuple(axis for axis in range(reader.weights.ndim) if axis != reader.layer.axis)
    moved = (reader.weights * centres[reader.places]).sum(axis=others)
    return reader.weights / factors[reader.places], reader.bias + moved


def _replace(layer: WeightedLayer, source: SSAValue, weights: Floats, bias: Floats | None) -> None:
    op: CircleOp = layer.op
    made = [real(weights, constant_name(op.operands[layer.weights], layer.name, "weights"))]
    if bias is not None:
        made.append(real(bias, constant_name(layer.bias_value, layer.name, "bias")))
    Rewriter.insert_op(made, InsertPoint.before(op))
    operands = layer.operands_with(made[0].result, made[1].result if bias is not None else None)
    operands[layer.input] = source
    op.operands = operands
