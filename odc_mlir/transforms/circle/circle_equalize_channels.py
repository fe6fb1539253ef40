"""``circle-equalize-channels``: balance channel ranges between neighbouring layers (cross-layer equalisation).

Before: the first layer's channels differ widely. With one scale for all weights, small channels would become zero::

    %w1 = circle.const [0.01, 8.0] : tensor<2x1x1x1xf32>
    %0 = circle.conv_2d(%x, %w1, %b1) {…, activation = relu} : … -> tensor<1x4x4x2xf32>
    %w2 = circle.const [4.0, 0.5] : tensor<1x1x1x2xf32>
    %1 = circle.conv_2d(%0, %w2, %b2) {…} : … -> tensor<1x4x4x1xf32>

After: channel c of the first layer is divided by ``s[c] = sqrt(range1[c] / range2[c])``. Its weights in the second
layer are multiplied by ``s[c]``. Both ranges become ``sqrt(range1[c] * range2[c])``::

    %w1 = circle.const [0.2, 2.0] : …
    %w2 = circle.const [0.2, 2.0] : …

The function stays the same, because operators in between commute with positive factors per channel. Examples are RELU,
PRELU, pools, PAD with zeros, sums within a channel, MUL and data movement. Factors of attention values thus reach the
following projection. Pairs of layers are visited until the factors converge. Unchanged: channels that are almost zero
in either layer, channels that other operators read, and shared weights. No bias grows beyond the largest bias of its
layer, because that would widen the range of activations. Recorded ranges of changed values are dropped. The model's
metadata keep the factors (``odc.channel_factors``) for comparisons.

The first layer may also be a normalisation: RMS_NORM, INSTANCE_NORM, or a MUL with a constant per channel. An ADD of
such a constant may follow, as in exports from PyTorch::

    %1 = circle.mul(%normal, %gamma) : (tensor<1x37x48xf32>, tensor<48xf32>) -> tensor<1x37x48xf32>
    %q = circle.fully_connected(%1, %wq, %bq) …
    %k = circle.fully_connected(%1, %wk, %bk) …

After: gamma is ``gamma / s``, and the weights of all users of ``%1`` are multiplied by ``s``.

With ``ranges``, ``range1`` is the range of the activation instead of the weights. This is the right choice if weights
have per-channel scales. If several tensors are between the layers, the channel's largest share of a tensor's range
counts. In general ``s = range1[c] ** alpha / range2[c] ** (1 - alpha)``.

With ``patterns``, a file of ONE's fm-equalize, only the pairs in the file are equalised. The factors of a pair with
``act_scale`` are applied once::

    [{"front": "conv1", "back": "conv2", "type": "ScaleOnly", "act_scale": [2.0, …]}, …]

RELU6 does not commute with factors. Layers with RELU6 do not change, unless ``relu6=recorded`` is set and a recorded
range ends below 6. RELU then replaces RELU6.

Sources: Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019, section 4.1. Xiao
et al., "SmoothQuant: accurate and efficient post-training quantization for large language models", 2023, section 4.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.errors import OptionError, parsing
from odc_mlir.formats.channel_factors import NAME, decode, encode
from odc_mlir.transforms.circle.rewrites.equalizing import Balance, Floats, Front, LayerFront, Pair, Tracer, fronts_of
from odc_mlir.transforms.common.placement import operators
from odc_mlir.transforms.quant.common.layers import load_reals

METADATA = "circle.metadata"
_NAME = StringAttr(NAME)
RELU6_CHOICES = ("keep", "recorded")
_MOST_VISITS = 100  # iterations over all pairs


@dataclass(frozen=True)
class CircleEqualizeChannelsPass(ModulePass):
    """Move scales of channels between layers."""

    name = "circle-equalize-channels"

    ranges: str = ""
    """.npz file with the largest magnitude of each channel by tensor name. Without a file, weights' ranges are used."""

    patterns: str = ""
    """JSON file of layer pairs in the format of ONE's fm-equalize. Without a file, all pairs are equalised."""

    save: str = ""
    """JSON file to write, with the moved factors in the format of ``patterns``."""

    alpha: float = 0.5
    """Share of the channels' ranges that moves to the following weights: 1 equalises the channels, 0 the weights."""

    relu6: str = "keep"
    """``keep`` skips layers with RELU6. ``recorded`` replaces RELU6 by RELU if a recorded range ends below 6."""

    powers_of_two: bool = False
    """Round factors to powers of two, which makes results bit-exact."""

    tolerance: float = 1e-3
    """Stop when no factor differs from 1 by more than this."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        records = load_reals(self.ranges, "channel ranges", lambda array: np.abs(array).reshape(-1))
        pairs = self.equalize(op, records)
        if self.save:
            try:
                Path(self.save).write_text(json.dumps(patterns_of(pairs)), "utf-8")
            except OSError as error:
                raise OptionError(f"cannot write the patterns: {error.strerror}", location=self.save) from None

    def equalize(self, module: ModuleOp, records: Mapping[str, Floats]) -> list[Pair]:
        """Equalise channels and return the pairs of layers.

        ``records``: largest magnitudes of channels by tensor name.
        """
        self._check()
        balance = Balance(self.alpha, self.powers_of_two, self.tolerance)
        fronts, pairs = self._found(module)
        for front in fronts:
            front.take_record(records)
        for pair in pairs:
            pair.add_records(records)
        if self.patterns:
            pairs = chosen_pairs(pairs, read_patterns(self.patterns), balance)
        free = [pair for pair in pairs if not pair.is_moved]
        for _ in range(_MOST_VISITS):
            moved = [pair.equalize(balance) for pair in free]  # every iteration covers all pairs
            if not any(moved):
                break
        for pair in pairs:
            pair.settle()
        note_factors(module, {name: row for pair in pairs for name, row in pair.moved_factors().items()})
        for front in fronts:
            front.write()
        return pairs

    def _found(self, module: ModuleOp) -> tuple[list[Front], list[Pair]]:
        """Return all fronts (operators whose channels can be scaled), and the pairs that begin with fronts."""
        ops = list(operators(module))
        layers = {op: state for op in ops if (state := LayerFront.of(op)) is not None}
        fronts = fronts_of(ops, layers)
        order = {op: place for place, op in enumerate(module.walk())}
        tracer = Tracer(order, layers, self.relu6)
        found = (Pair.of(front, tracer) for front in fronts)
        return fronts, [pair for pair in found if pair is not None]

    def _check(self) -> None:
        if self.relu6 not in RELU6_CHOICES:
            raise OptionError(f"relu6 is {self.relu6!r}, it must be one of {', '.join(RELU6_CHOICES)}")
        if not 0 <= self.alpha <= 1:
            raise OptionError(f"alpha is {self.alpha:g}, expected a number from 0 to 1")


@dataclass(frozen=True, slots=True)
class EqualizedPair:
    """Names of the results of two layers, and the divisors of the channels between the layers, if known."""

    front: str
    back: str
    factors: Floats | None = None


def read_patterns(path: str) -> list[EqualizedPair]:
    """Read pairs from a JSON file. Raises OptionError with the file's name."""
    with parsing("cannot read the patterns", OptionError, location=path):
        content = json.loads(Path(path).read_bytes())
    if not isinstance(content, list):
        raise OptionError("patterns must be a JSON list", location=path, hint=_FORM)
    return [_pattern(entry, path) for entry in content]


_FORM = "each is {front, back, type: ScaleOnly, act_scale}; act_scale may be left out"


def _pattern(entry: object, path: str) -> EqualizedPair:
    fields = entry if isinstance(entry, dict) else {}
    front, back, kind = (fields.get(key) for key in ("front", "back", "type"))
    if not isinstance(front, str) or not isinstance(back, str):
        raise OptionError("a pattern must name two layers, front and back", location=path, hint=_FORM)
    if kind != "ScaleOnly":
        raise OptionError(f"the type of pattern {front!r} is {kind!r}, not 'ScaleOnly'", location=path)
    scale = fields.get("act_scale")
    if scale is None:
        return EqualizedPair(front, back)
    numbers = isinstance(scale, list) and all(isinstance(item, int | float) for item in scale)
    factors = np.array(scale if numbers else [], np.float64)
    if not factors.size or not np.isfinite(factors).all() or (factors < 0).any():
        raise OptionError(f"act_scale of pattern {front!r} is not a list of numbers of at least 0", location=path)
    return EqualizedPair(front, back, np.where(factors > 0, factors, 1.0))  # a channel of zeros has no scale


def patterns_of(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return equalised pairs and factors in the format of a file of patterns."""
    return [
        {"front": pair.front.name, "back": pair.backs[0][0].name, "type": "ScaleOnly"}
        | {"act_scale": pair.front.factors.tolist()}
        for pair in pairs
        if pair.is_moved
    ]


def chosen_pairs(pairs: Sequence[Pair], patterns: Sequence[EqualizedPair], balance: Balance) -> list[Pair]:
    """Return the pairs that ``patterns`` name, and apply the factors that ``patterns`` give.

    If several layers read a front, a pattern may name any of these layers. Raises OptionError for unusable patterns.
    """
    known = {(pair.front.name, back.name): pair for pair in pairs for back, _ in pair.backs}
    found = []
    for pattern in patterns:
        pair = known.get((pattern.front, pattern.back))
        if pair is None:
            raise OptionError(
                f"{pattern.front!r} and {pattern.back!r} are not a pair of layers that can be equalised",
                hint=f"there are {', '.join(f'{a!r} and {b!r}' for a, b in list(known)[:3]) or 'none'}",
            )
        if pattern.factors is not None and not pair.is_moved:
            channels = len(pair.front.bias)
            if len(pattern.factors) != channels:
                seen = f"act_scale of {pattern.front!r} has {len(pattern.factors)} numbers"
                raise OptionError(f"{seen}, the layer {channels} channels")
            if pair.bound[pattern.factors != 1].any():
                raise OptionError(f"act_scale of {pattern.front!r} scales channels that other operators read too")
            if not pair.move(balance.rounded(pattern.factors)):
                raise OptionError(f"act_scale of {pattern.front!r} makes weights that exceed float32")
        found.append(pair)
    return list(dict.fromkeys(found))


def drop_factors(module: ModuleOp) -> None:
    """Remove the factors from the model's metadata."""
    entries = module.attributes.get(METADATA)
    if isinstance(entries, ArrayAttr):
        kept = [e for e in entries.data if not isinstance(e, DictionaryAttr) or e.data.get("name") != _NAME]
        if kept:
            module.attributes[METADATA] = ArrayAttr(kept)
        else:
            del module.attributes[METADATA]


def note_factors(module: ModuleOp, factors: Mapping[str, Floats]) -> None:
    """Multiply the factors in the model's metadata by ``factors``, by tensor name."""
    if not factors:
        return
    entries = module.attributes.get(METADATA)
    kept, known = [], {}
    for entry in entries.data if isinstance(entries, ArrayAttr) else ():
        data = entry.data.get("data") if isinstance(entry, DictionaryAttr) else None
        if isinstance(data, BlobAttr) and entry.data.get("name") == _NAME:
            known = decode(data.bytes)
        else:
            kept.append(entry)
    for name, row in factors.items():
        old = known.get(name)
        known[name] = np.asarray(row if old is None or old.shape != row.shape else row * old, np.float32)
    made = DictionaryAttr({"name": _NAME, "data": BlobAttr.of(encode(known))})
    module.attributes[METADATA] = ArrayAttr([*kept, made])
