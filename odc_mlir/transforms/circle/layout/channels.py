"""Operators that only move whole channels, and from where each channel of their results comes.

They are slices, splits, concatenation and gathering along one axis, and channel shuffles: RESHAPE that takes the axis
apart, TRANSPOSE of its parts, RESHAPE that joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from xdsl.ir import Operation, SSAValue

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.transforms.circle.layout.orders import blocks
from odc_mlir.transforms.circle.layout.rules import is_simple
from odc_mlir.transforms.common.rewriting import (
    activation,
    constant,
    is_real,
    is_used_once,
    producer,
    static_shape_of,
)


class Channel(NamedTuple):
    """One channel of a tensor."""

    value: SSAValue
    number: int


Channels = list[Channel]


class Shuffle(NamedTuple):
    """``source`` with the channels along ``axis`` in another order; ``inner`` are the view and the TRANSPOSE."""

    source: SSAValue
    axis: int
    order: tuple[int, ...]
    inner: tuple[CircleOp, CircleOp]


def shuffle_of(op: CircleOp) -> Shuffle | None:
    """The channel shuffle whose last operator ``op`` is."""
    turned = producer(op.operands[0], "TRANSPOSE") if op.SPEC.name == "RESHAPE" else None
    view = None if turned is None else producer(turned.operands[0], "RESHAPE")
    if turned is None or view is None or not (is_used_once(turned.results[0]) and is_used_once(view.results[0])):
        return None
    shape, parts = static_shape_of(view.operands[0]), static_shape_of(view.results[0])
    order = constant(turned.operands[1])
    if shape is None or parts is None or order is None or 0 in shape or shape != static_shape_of(op.results[0]):
        return None
    kept = [part for part in range(len(parts)) if parts[part] != 1]
    moved = [int(part) for part in order if parts[int(part)] != 1]
    changed = {part for part, other in zip(kept, moved, strict=True) if part != other}
    for left, right in blocks(shape, parts):
        if len(left) == 1 and changed and changed <= set(right):
            inside = [part for part in right if part in kept]
            numbers = np.arange(shape[left[0]]).reshape([parts[part] for part in inside])
            turn = [inside.index(part) for part in moved if part in inside]
            found = tuple(int(number) for number in numbers.transpose(turn).reshape(-1))
            return Shuffle(view.operands[0], left[0], found, (view, turned))
    return None


def channels_of(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    """The channels that each result consists of, where ``op`` does nothing but move them along ``axis``."""
    if op.unverified is not None or op.SPEC.name not in _MOVES:
        return None
    return _MOVES[op.SPEC.name](op, axis)


def _all(value: SSAValue, axis: int) -> Channels:
    shape = static_shape_of(value)
    return [] if shape is None else [Channel(value, number) for number in range(shape[axis])]


def _shuffled(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    found = shuffle_of(op)
    if found is None or found.axis != axis:
        return None
    return ([Channel(found.source, number) for number in found.order],)


def _joined(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    shape = static_shape_of(op.results[0])
    if shape is None or activation(op) != "none" or int(op.option("axis") or 0) % len(shape) != axis:
        return None
    return ([channel for operand in op.operands for channel in _all(operand, axis)],)


def _parted(data: int, axis_operand: int) -> Callable[[CircleOp, int], tuple[Channels, ...] | None]:
    def rule(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
        shape, axes = static_shape_of(op.operands[data]), constant(op.operands[axis_operand])
        extents = [static_shape_of(result) for result in op.results]
        if shape is None or axes is None or int(axes.reshape(-1)[0]) % len(shape) != axis:
            return None
        ends = np.cumsum([0 if extent is None else extent[axis] for extent in extents])
        given = _all(op.operands[data], axis)
        if int(ends[-1]) != len(given):
            return None
        return tuple(given[begin:end] for begin, end in zip([0, *map(int, ends)], map(int, ends), strict=False))

    return rule


def _sliced(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    begin, result = constant(op.operands[1]), static_shape_of(op.results[0])
    if begin is None or result is None:
        return None
    first = int(begin[axis])
    return (_all(op.operands[0], axis)[first : first + result[axis]],)


def _strided(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    shape, result = static_shape_of(op.operands[0]), static_shape_of(op.results[0])
    begin, steps = constant(op.operands[1]), constant(op.operands[3])
    masks = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    if shape is None or result is None or begin is None or steps is None or any(op.option(mask) for mask in masks):
        return None
    if (
        len(steps) != len(shape)
        or steps[axis] < 1
        or any(step != 1 for place, step in enumerate(steps) if place != axis)
    ):
        return None
    first = 0 if int(op.option("begin_mask") or 0) >> axis & 1 else int(begin[axis])
    first = max(0, first + shape[axis]) if first < 0 else first
    return (_all(op.operands[0], axis)[first :: int(steps[axis])][: result[axis]],)


def _gathered(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    shape, numbers = static_shape_of(op.operands[0]), constant(op.operands[1])
    if shape is None or numbers is None or numbers.ndim != 1 or op.option("batch_dims"):
        return None
    given = _all(op.operands[0], axis)
    if int(op.option("axis") or 0) % len(shape) != axis or any(not 0 <= number < len(given) for number in numbers):
        return None
    return ([given[int(number)] for number in numbers],)


_MOVES: Mapping[str, Callable[[CircleOp, int], tuple[Channels, ...] | None]] = {
    "RESHAPE": _shuffled,
    "CONCATENATION": _joined,
    "SPLIT": _parted(1, 0),
    "SPLIT_V": _parted(0, 2),
    "SLICE": _sliced,
    "STRIDED_SLICE": _strided,
    "GATHER": _gathered,
}


@dataclass
class ShuffleRegion:
    """The operators around a channel shuffle that move channels only, and nothing else of the function.

    ``channels``: for each result of an operator the channels of the ``sources`` that it consists of, operators behind
    those that they read. ``inner``: the views and TRANSPOSEs of shuffles.
    """

    axis: int
    shape: tuple[int, ...]  # of all its tensors, but for the extent along the axis
    movers: dict[CircleOp, tuple[Channels, ...]] = field(default_factory=dict)
    inner: dict[Operation, None] = field(default_factory=dict)
    channels: dict[SSAValue, Channels] = field(default_factory=dict)
    sources: dict[SSAValue, None] = field(default_factory=dict)

    @classmethod
    def around(cls, op: CircleOp) -> ShuffleRegion | None:
        """The region of the channel shuffle whose last operator ``op`` is; None for other operators."""
        shuffle = shuffle_of(op)
        if shuffle is None:
            return None
        made = cls(shuffle.axis, static_shape_of(op.results[0]) or ())
        made._spread(op)
        made._trace()
        return made if op in made.movers else None

    def uses_outside(self, value: SSAValue) -> list[tuple[Operation, int]]:
        """Uses of ``value`` that do more than move its channels."""
        inside = (self.movers, self.inner)
        return [(use.operation, use.index) for use in value.uses if not any(use.operation in part for part in inside)]

    def _spread(self, op: CircleOp) -> None:
        waiting = [op]
        while waiting:
            op = waiting.pop()
            found = None if op in self.movers else channels_of(op, self.axis)
            if found is None or not all(self._fits(value) for value in (*_read(found), *op.results)):
                continue
            self.movers[op] = found
            if op.SPEC.name == "RESHAPE" and (shuffle := shuffle_of(op)) is not None:
                self.inner |= dict.fromkeys(shuffle.inner)
            waiting += [value.owner for value in _read(found) if isinstance(value.owner, CircleOp)]
            waiting += [reader for result in op.results for reader in _movers_behind(result)]

    def _fits(self, value: SSAValue) -> bool:
        shape = static_shape_of(value)
        if shape is None or len(shape) != len(self.shape) or not is_real(value) or not is_simple(value):
            return False
        rest = [extent == wanted for extent, wanted in zip(shape, self.shape, strict=True)]
        return all(fits for place, fits in enumerate(rest) if place != self.axis) and shape[self.axis] > 0

    def _trace(self) -> None:
        """Follow the channels to the sources; operators come after those whose results they read."""
        waiting = list(reversed(self.movers))
        while waiting:
            op = waiting[-1]
            before = [
                value.owner
                for value in _read(self.movers[op])
                if value not in self.channels and isinstance(value.owner, CircleOp) and value.owner in self.movers
            ]
            if before:
                waiting += before
                continue
            waiting.pop()
            for result, given in zip(op.results, self.movers[op], strict=True):
                self.channels[result] = [self._source(channel) for channel in given]

    def _source(self, channel: Channel) -> Channel:
        if channel.value in self.channels:
            return self.channels[channel.value][channel.number]
        self.sources[channel.value] = None
        return channel


def _read(results: Sequence[Channels]) -> dict[SSAValue, None]:
    return {channel.value: None for channels in results for channel in channels}


def _movers_behind(value: SSAValue) -> Iterator[CircleOp]:
    """The readers of ``value`` that may move channels; of a shuffle its last operator."""
    for use in value.uses:
        op: Operation = use.operation
        for name in ("RESHAPE", "TRANSPOSE"):
            if isinstance(op, CircleOp) and op.SPEC.name == name and is_used_once(op.results[0]):
                (inner,) = op.results[0].uses
                op = inner.operation
        if isinstance(op, CircleOp):
            yield op
