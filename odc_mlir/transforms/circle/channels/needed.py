"""Channels of a function that no reader needs: readers compute the same from any contents, or nothing.

Channels that have to go together (a channel of both operands of a sum and of its result) are one class. A class is
needed when a result of the function, or a barrier, reads one of it, or a layer some needed result of which depends on
it. All others can go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from odc_mlir.dialects.circle import CircleOp, tensor_facts
from odc_mlir.transforms.circle.channels.kinds import ChannelKind, Depthwise, Mask, Places, ProductKind, kind_of
from odc_mlir.transforms.circle.channels.spans import ChannelRange, channels_of, constant_span, full_span


@dataclass(frozen=True)
class CodeRanges:
    """The codes of every channel in a function; ``kinds``: its operators that are no barriers, in program order."""

    kinds: Mapping[Operation, ChannelKind]
    spans: dict[SSAValue, ChannelRange] = field(default_factory=dict)

    @classmethod
    def of_function(cls, function: FuncOp) -> CodeRanges:
        """Return the full range of codes for an unknown value."""
        found = ((op, kind_of(op)) for op in function.body.block.ops if isinstance(op, CircleOp))
        ranges = cls({op: kind for op, kind in found if kind is not None})
        for kind in ranges.kinds.values():
            span = kind.span(ranges)
            if span is not None:
                ranges.spans[kind.result] = span
        return ranges

    def __call__(self, value: SSAValue) -> ChannelRange:
        """The codes of ``value``, a tensor that has channels."""
        found = self.spans.get(value)
        if found is None:
            channels = channels_of(value)
            assert channels is not None
            found = constant_span(value) or full_span(tensor_facts(value.type).dtype, channels)
            self.spans[value] = found
        return found

    @property
    def layers(self) -> list[ProductKind]:
        """Layers that sum over channels, in program order."""
        return [
            kind for kind in self.kinds.values() if isinstance(kind, ProductKind) and not isinstance(kind, Depthwise)
        ]


def unneeded_channels(ranges: CodeRanges, share: int) -> dict[Operation, Mask]:
    """Return a mask of kept channels, ``[C]``, for the operators of ``ranges`` that lose some.

    A layer loses some where that is at least one in ``share``.
    """
    if not any(layer.may_shrink(ranges(layer.input)) for layer in ranges.layers):
        return {}
    classes = _Classes(ranges)
    kept = classes.kept(share)
    found = {op: kept[classes.of(kind.result)] for op, kind in ranges.kinds.items()}
    return {op: mask for op, mask in found.items() if not mask.all()}


class _Classes:
    """Consecutive numbers of all values' channels, and the class of each."""

    def __init__(self, ranges: CodeRanges) -> None:
        self.ranges = ranges
        self.first: dict[SSAValue, int] = {}
        total = 0
        for kind in ranges.kinds.values():
            for value in (*(tie.value for tie in kind.ties()), *_inputs(kind), kind.result):
                if value not in self.first:
                    self.first[value] = total
                    total += channels_of(value) or 0
        self.labels = self._joined(np.arange(total))

    def places(self, value: SSAValue) -> Places:
        """Return the positions of the channels of ``value`` in the row."""
        return self.first[value] + np.arange(channels_of(value) or 0)

    def of(self, value: SSAValue) -> Places:
        """The classes of the channels of ``value``."""
        return self.labels[self.places(value)]

    def _joined(self, labels: Places) -> Places:
        """The smallest number of each class, for every channel."""
        ties = [
            (self.first[tie.value] + tie.of_value, self.first[kind.result] + tie.of_result)
            for kind in self.ranges.kinds.values()
            for tie in kind.ties()
        ]
        if not ties:
            return labels
        ends = [np.concatenate(side) for side in zip(*ties, strict=True)]
        while True:
            a, b = (labels[side] for side in ends)
            if np.array_equal(a, b):
                return labels
            least = np.minimum(a, b)
            for side in (*ends, a, b):
                np.minimum.at(labels, side, least)
            labels = labels[labels]

    def kept(self, share: int) -> Mask:
        """Return a mask of needed classes; every value keeps at least one channel, and all if too few would go."""
        needed = np.zeros(len(self.labels), np.bool_)
        known = self.ranges.kinds
        for value in self.first:
            if value.owner not in known or any(use.operation not in known for use in value.uses):
                needed[self.of(value)] = True
        while True:
            self._spread(needed)
            whole = [value for value in self._results() if _is_little(needed[self.of(value)], share)]
            empty = [value for value in self.first if not needed[self.of(value)].any()]
            for value in whole:
                needed[self.of(value)] = True
            if empty and not whole:
                needed[self.of(empty[0])[:1]] = True
            if not (whole or empty):
                return needed

    def _results(self) -> Iterator[SSAValue]:
        return (kind.result for kind in self.ranges.kinds.values() if isinstance(kind, ProductKind))

    def _spread(self, needed: Mask) -> None:
        """Propagate needed channels from results of layers to their operands, to a fixed point."""
        pairs = [(layer, self.of(layer.input), self.of(layer.result)) for layer in reversed(self.ranges.layers)]
        seen = -1
        while (count := int(needed.sum())) != seen:
            seen = count
            for layer, inputs, results in pairs:
                needed[inputs[layer.needs(needed[results], self.ranges(layer.input))]] = True


def _is_little(kept: Mask, share: int) -> bool:
    """Return whether some channels go, but fewer than one in ``share``."""
    return 0 < share * int((~kept).sum()) < len(kept)


def _inputs(kind: ChannelKind) -> tuple[SSAValue, ...]:
    return (kind.input,) if isinstance(kind, ProductKind) else ()
