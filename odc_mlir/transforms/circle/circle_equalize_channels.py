"""``circle-equalize-channels``: spread the channels' ranges evenly over neighbouring layers (cross-layer equalisation).

Before: the first layer's channels differ widely, and one scale for all of its weights loses the small ones::

    %w1 = circle.const [0.01, 8.0] : tensor<2x1x1x1xf32>
    %0 = circle.conv_2d(%x, %w1, %b1) {…, activation = relu} : … -> tensor<1x4x4x2xf32>
    %w2 = circle.const [4.0, 0.5] : tensor<1x1x1x2xf32>
    %1 = circle.conv_2d(%0, %w2, %b2) {…} : … -> tensor<1x4x4x1xf32>

After: channel c of the first layer is divided by ``s[c] = sqrt(range1[c] / range2[c])``, its weights in the second
layer are multiplied by it, so both are ``sqrt(range1[c] * range2[c])``::

    %w1 = circle.const [0.2, 2.0] : …
    %w2 = circle.const [0.2, 2.0] : …

The function stays the same: what lies between commutes with positive factors per channel (RELU and its leaky kin,
PRELU, pools, PAD with zeros, MEAN over pixels, RESHAPE in front of a fully connected layer). Chains of layers are done
pair by pair until nothing moves. A channel that is next to nothing in one of the two layers keeps its scale: there is
nothing to spread. No bias grows beyond the layer's largest, which would widen the range of its activations. Ranges
recorded for what changed are dropped; the factors are kept in the model's metadata (``odc.channel_factors``), so that
tensors can still be compared with the original's.

With ``ranges``, the first range is the channel's activation instead of its weights: the choice where weights have
scales per channel and only activations share one.

With ``patterns``, a file of ONE's fm-equalize, the pairs are those that it names, and a pair with ``act_scale`` is
divided by that, once: ``[{"front": "conv1", "back": "conv2", "type": "ScaleOnly", "act_scale": [2.0, …]}, …]``.

RELU6 does not commute. Its layers are left alone, unless ``relu6=recorded`` and a recorded range shows that nothing is
clipped: it then becomes RELU.

Source: Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019, section 4.1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, tensor_facts, tensor_type
from odc_mlir.dialects.circle_attributes import BlobAttr, QuantRecord
from odc_mlir.errors import OptionError, parsing
from odc_mlir.formats.channel_factors import NAME, decode, encode
from odc_mlir.formats.npz import read_npz
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.placement import operators
from odc_mlir.transforms.common.rewriting import (
    Layer,
    activation,
    constant,
    constant_name,
    is_real,
    is_used_once,
    real,
    shape_of,
    stack_inputs,
)

NEARLY_NOTHING = 1e-6  # a channel's range below this part of the layer's largest says nothing
LARGEST = float(np.finfo(np.float32).max)
RELU6_CHOICES = ("keep", "recorded")
_CLIP = 6.0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CircleEqualizeChannelsPass(ModulePass):
    """Move scales of channels from layer to layer; see the module's text."""

    name = "circle-equalize-channels"

    ranges: str = ""
    """An .npz file with the largest magnitude of each channel by tensor name; empty: take the weights' ranges."""

    patterns: str = ""
    """A JSON file of pairs of layers as ONE's fm-equalize writes them; empty: all pairs."""

    relu6: str = "keep"
    """``keep`` leaves layers with RELU6 alone; ``recorded`` makes it RELU where a recorded range ends below 6."""

    crossing: int = 2
    """How many operators may lie between two layers."""

    powers_of_two: bool = False
    """Round factors to powers of two: results then keep every bit."""

    iterations: int = 100
    """How often all pairs are visited at most."""

    tolerance: float = 1e-3
    """Stop when no factor differs from 1 by more than this."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self._check()
        records = load_ranges(self.ranges) if self.ranges else {}
        layers = {item: state for item in operators(op) if (state := State.of(item, records)) is not None}
        found = (find_pair(state, layers, self.crossing, self.relu6) for state in layers.values())
        pairs = [pair for pair in found if pair is not None]
        if self.patterns:
            pairs = chosen_pairs(pairs, read_patterns(self.patterns), self.powers_of_two)
        free = [pair for pair in pairs if not pair.is_moved]
        for _ in range(self.iterations):
            moved = [pair.equalize(self.tolerance, self.powers_of_two) for pair in free]  # all of them, every time
            if not any(moved):
                break
        for pair in pairs:
            pair.settle()
        note_factors(op, {name: row for pair in pairs for name, row in pair.moved_factors().items()})
        for state in layers.values():
            state.write()

    def _check(self) -> None:
        if self.relu6 not in RELU6_CHOICES:
            raise OptionError(f"relu6 is {self.relu6!r}, it must be one of {', '.join(RELU6_CHOICES)}")
        if self.crossing < 0 or self.iterations < 1 or not self.tolerance >= 0:
            raise OptionError(
                f"crossing is {self.crossing}, iterations {self.iterations}, tolerance {self.tolerance:g}; "
                "they must be at least 0, 1 and 0"
            )


def load_ranges(path: str) -> Mapping[str, Floats]:
    """The arrays of an .npz file by name; raises OptionError for a file that holds none."""
    arrays = read_npz(path, what="channel ranges", kind=OptionError, hint="use an .npz file")
    with parsing("cannot read channel ranges", OptionError, location=path):
        return {name: np.abs(np.asarray(array, np.float64)).reshape(-1) for name, array in arrays.items()}


@dataclass
class State:
    """A layer with what it will hold."""

    layer: Layer
    weights: Floats
    bias: Floats
    record: Floats | None  # largest magnitude of each result channel
    factors: Floats  # by which result channels were divided
    is_changed: bool = field(default=False)

    @classmethod
    def of(cls, op: CircleOp, records: Mapping[str, Floats]) -> State | None:
        """``op`` if it is a layer of constant real weights."""
        layer = Layer.of(op)
        weights = None if layer is None else layer.real_weights()
        if layer is None or weights is None or not np.isfinite(weights).all():
            return None
        channels = weights.shape[layer.axis]
        bias = layer.real_bias(channels)
        record = records.get(layer.name)
        if bias is None:
            return None
        if record is not None and len(record) != channels:
            raise OptionError(
                f"{op.SPEC.name} {layer.name!r} has {channels} channels, its ranges are for {len(record)}",
                hint="record ranges with this model",
            )
        return cls(layer, weights.astype(np.float64), bias.astype(np.float64), record, np.ones(channels))

    def output_ranges(self) -> Floats:
        """What the factors are to even out: by channel, of the results if recorded, else of the weights."""
        if self.record is not None:
            return self.record
        others = tuple(axis for axis in range(self.weights.ndim) if axis != self.layer.axis)
        return np.asarray(np.abs(self.weights).max(axis=others, initial=0.0))

    def can_scale(self, factors: Floats) -> bool:
        """Whether float32 holds what :meth:`scale_outputs` would make."""
        scaled = (self.weights / self.layer.per_output(factors, self.weights.ndim), self.bias / factors)
        return all(np.abs(values).max(initial=0.0) <= LARGEST for values in scaled)

    def scale_outputs(self, factors: Floats) -> None:
        self.weights /= self.layer.per_output(factors, self.weights.ndim)
        self.bias /= factors
        self.factors = self.factors * factors
        self.record = None if self.record is None else self.record / factors
        self.is_changed = True

    def write(self) -> None:
        """Give the operation its new constants."""
        if not self.is_changed:
            return
        op, layer = self.layer.op, self.layer
        old = [op.operands[layer.weights], *([layer.bias_value] if layer.bias_value is not None else [])]
        made = [real(self.weights, constant_name(old[0], layer.name, "weights"))]
        if layer.bias_value is not None:
            made.append(real(self.bias, constant_name(layer.bias_value, layer.name, "bias")))
        Rewriter.insert_op(made, InsertPoint.before(op))
        op.operands = layer.operands_with(made[0].result, made[1].result if len(made) > 1 else None)
        for value in dict.fromkeys(old):
            if isinstance(value, OpResult) and value.first_use is None:
                Rewriter.erase_op(value.op)


@dataclass
class Pair:
    """Two layers and the operators between them; ``places``: the channel that each weight of the second multiplies."""

    front: State
    back: State
    between: list[CircleOp]
    places: NDArray[np.int64]
    is_moved: bool = False

    def equalize(self, tolerance: float, powers_of_two: bool) -> bool:
        """Move factors once, unless all are as good as 1; returns whether it did."""
        factors = channel_factors(self.front.output_ranges(), self.input_ranges())
        if self.front.record is None:
            factors = np.maximum(factors, least_factors(self.front.bias))
        factors = rounded(factors, powers_of_two)
        if np.max(np.abs(factors - 1), initial=0.0) <= tolerance:
            return False
        return self.move(factors)

    def move(self, factors: Floats) -> bool:
        """Divide the channels between the two by ``factors``; False where float32 does not hold the outcome."""
        grown = self.back.weights * factors[self.places]
        if not self.front.can_scale(factors) or np.abs(grown).max(initial=0.0) > LARGEST:
            return False
        self.front.scale_outputs(factors)
        self.back.weights = grown
        self.back.is_changed = self.is_moved = True
        return True

    def input_ranges(self) -> Floats:
        """Largest weight of the second layer by channel between the two."""
        # channels are along the last axis of every layer's weights, in the order of `places`
        columns = np.abs(self.back.weights).reshape(-1, self.back.weights.shape[-1]).max(axis=0, initial=0.0)
        ranges = np.zeros(len(self.front.bias))
        np.maximum.at(ranges, self.places, columns)
        return ranges

    def settle(self) -> None:
        """Make types and activations between the layers fit their new values."""
        if not self.is_moved:
            return
        for op in (self.front.layer.op, *self.between):
            _forget_range(op)
            if activation(op) == "relu6":
                op.properties["fused_activation_function"] = op.OPTIONS["fused_activation_function"].encode("relu")

    def moved_factors(self) -> dict[str, Floats]:
        """By what each element of the last axis was divided, by name of the tensors between the two layers."""
        if not self.is_moved:
            return {}
        found = {}
        for op in (self.front.layer.op, *self.between):
            extent, channels = _last_extent(op.results[0]), len(self.front.factors)
            if extent is not None and extent % channels == 0:
                found[value_name(op.results[0])] = np.tile(self.front.factors, extent // channels)
        return found


@dataclass(frozen=True, slots=True)
class Pattern:
    """Two layers by their results, and what to divide each channel between them by, where that is known."""

    front: str
    back: str
    factors: Floats | None = None


def read_patterns(path: str) -> list[Pattern]:
    """The pairs in a JSON file; raises OptionError, naming the file."""
    with parsing("cannot read the patterns", OptionError, location=path):
        content = json.loads(Path(path).read_bytes())
    if not isinstance(content, list):
        raise OptionError("patterns must be a JSON list", location=path, hint=_FORM)
    return [_pattern(entry, path) for entry in content]


_FORM = "each is {front, back, type: ScaleOnly, act_scale}, the last one as you like"


def _pattern(entry: object, path: str) -> Pattern:
    fields = entry if isinstance(entry, dict) else {}
    front, back, kind = (fields.get(key) for key in ("front", "back", "type"))
    if not isinstance(front, str) or not isinstance(back, str):
        raise OptionError("a pattern must name two layers, front and back", location=path, hint=_FORM)
    if kind != "ScaleOnly":
        raise OptionError(f"the type of pattern {front!r} is {kind!r}, not 'ScaleOnly'", location=path)
    scale = fields.get("act_scale")
    if scale is None:
        return Pattern(front, back)
    numbers = isinstance(scale, list) and all(isinstance(item, int | float) for item in scale)
    factors = np.array(scale if numbers else [], np.float64)
    if not factors.size or not np.isfinite(factors).all() or (factors < 0).any():
        raise OptionError(f"act_scale of pattern {front!r} is not a list of numbers of at least 0", location=path)
    return Pattern(front, back, np.where(factors > 0, factors, 1.0))  # a channel of nothing has no scale


def chosen_pairs(pairs: Sequence[Pair], patterns: Sequence[Pattern], powers_of_two: bool) -> list[Pair]:
    """The pairs that ``patterns`` name, those with known factors moved; raises OptionError for others."""
    known = {(pair.front.layer.name, pair.back.layer.name): pair for pair in pairs}
    found = []
    for pattern in patterns:
        pair = known.get((pattern.front, pattern.back))
        if pair is None:
            raise OptionError(
                f"{pattern.front!r} and {pattern.back!r} are not a pair of layers that can be equalised",
                hint=f"there are {', '.join(f'{a!r} and {b!r}' for a, b in list(known)[:3]) or 'none'}",
            )
        if pattern.factors is not None:
            channels = len(pair.front.bias)
            if len(pattern.factors) != channels:
                seen = f"act_scale of {pattern.front!r} has {len(pattern.factors)} numbers"
                raise OptionError(f"{seen}, the layer {channels} channels")
            if not pair.move(rounded(pattern.factors, powers_of_two)):
                raise OptionError(f"act_scale of {pattern.front!r} makes weights that exceed float32")
        found.append(pair)
    return found


def rounded(factors: Floats, powers_of_two: bool) -> Floats:
    """The factors, or the powers of two next to them."""
    return np.asarray(np.exp2(np.rint(np.log2(factors))) if powers_of_two else factors)


def note_factors(module: ModuleOp, factors: Mapping[str, Floats]) -> None:
    """Add factors of tensors to the model's metadata, on top of those that are there."""
    if not factors:
        return
    entries = module.attributes.get("circle.metadata")
    kept, known = [], {}
    for entry in entries.data if isinstance(entries, ArrayAttr) else ():
        data = entry.data.get("data") if isinstance(entry, DictionaryAttr) else None
        if isinstance(data, BlobAttr) and entry.data.get("name") == StringAttr(NAME):
            known = decode(data.bytes)
        else:
            kept.append(entry)
    for name, row in factors.items():
        old = known.get(name)
        known[name] = np.asarray(row if old is None or len(old) != len(row) else row * old, np.float32)
    made = DictionaryAttr({"name": StringAttr(NAME), "data": BlobAttr.of(encode(known))})
    module.attributes["circle.metadata"] = ArrayAttr([*kept, made])


def channel_factors(front: Floats, back: Floats) -> Floats:
    """``sqrt(front / back)`` for each channel, 1 where either is next to nothing."""
    lowest = [NEARLY_NOTHING * ranges.max(initial=0.0) for ranges in (front, back)]
    lives = (front > lowest[0]) & (back > lowest[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(lives, np.sqrt(front / back), 1.0)


def least_factors(bias: Floats) -> Floats:
    """The factors, at most 1, that make every bias as large as the largest."""
    sizes = np.abs(bias)
    largest = sizes.max(initial=0.0)
    return sizes / largest if largest else np.zeros_like(sizes)


def find_pair(front: State, layers: Mapping[CircleOp, State], crossing: int, relu6: str) -> Pair | None:
    """The pair that begins with ``front``; None where its result goes elsewhere."""
    channels = len(front.bias)
    if not _commutes(front.layer.op, relu6) or _last_extent(front.layer.result) != channels:
        return None
    value: SSAValue = front.layer.result
    between: list[CircleOp] = []
    while is_used_once(value):
        (use,) = value.uses
        op = use.operation
        if isinstance(op, CircleOp) and (back := layers.get(op)) is not None:
            places = _places(back, channels, value) if use.index == back.layer.input else None
            return None if places is None else Pair(front, back, between, places)
        if not isinstance(op, CircleOp) or len(between) == crossing or use.index != 0 or not _crosses(op, relu6):
            return None
        between.append(op)
        value = op.results[0]
        if _last_extent(value) != channels and op.SPEC.name != "RESHAPE":
            return None
    return None


def _places(back: State, channels: int, value: SSAValue) -> NDArray[np.int64] | None:
    if back.layer.op.SPEC.name == "FULLY_CONNECTED":
        columns = back.weights.shape[1]
        return None if columns % channels else np.arange(columns) % channels
    if _last_extent(value) != channels:
        return None
    places = stack_inputs(back.layer, back.weights, channels)
    return None if places is None else np.asarray(places, np.int64)


def _last_extent(value: SSAValue) -> int | None:
    shape = shape_of(value)
    return shape[-1] if shape else None


def _commutes(op: CircleOp, relu6: str) -> bool:
    """Whether the fused activation of ``op`` commutes with positive factors."""
    fused = activation(op)
    return fused in ("none", "relu") or (fused == "relu6" and relu6 == "recorded" and _is_below_clip(op))


def _is_below_clip(op: CircleOp) -> bool:
    record = tensor_facts(op.results[0].type).record
    return record is not None and bool(record.max) and max(record.max) < _CLIP


def _crosses(op: CircleOp, relu6: str) -> bool:
    """Whether factors per channel can move through ``op`` from its first operand to its result."""
    rule = _CROSSING.get(op.SPEC.name)
    if rule is None or op.unverified is not None or len(op.results) != 1 or not _commutes(op, relu6):
        return False
    return is_real(op.operands[0]) and is_real(op.results[0]) and rule(op)


def _always(op: CircleOp) -> bool:
    return True


def _is_spatial_mean(op: CircleOp) -> bool:
    """Whether the channels are none of the axes."""
    axes, shape = constant(op.operands[1]), shape_of(op.operands[0])
    return axes is not None and shape is not None and len(shape) - 1 not in {int(a) % len(shape) for a in axes.flat}


def _feeds_product(op: CircleOp) -> bool:
    """Whether a fully connected layer alone reads the result, as rows of whole pixels."""
    users = [use.operation for use in op.results[0].uses]
    return all(isinstance(user, CircleOp) and user.SPEC.name == "FULLY_CONNECTED" for user in users)


_CROSSING: Mapping[str, Callable[[CircleOp], bool]] = {
    **dict.fromkeys(("RELU", "LEAKY_RELU", "PRELU", "MAX_POOL_2D", "AVERAGE_POOL_2D", "PAD"), _always),
    "MEAN": _is_spatial_mean,
    "RESHAPE": _feeds_product,
}


def _forget_range(op: CircleOp) -> None:
    """Drop what was recorded for the result of ``op``."""
    facts = tensor_facts(op.results[0].type)
    if facts.record is None:
        return
    old = facts.record
    left = QuantRecord(old.scale, old.zero_point, old.axis, (), (), old.details)
    record = left if any(chain(left.scale, left.details or ())) else None
    Rewriter.replace_value_with_new_type(op.results[0], tensor_type(facts.dtype, facts.shape, facts.quant, record))
