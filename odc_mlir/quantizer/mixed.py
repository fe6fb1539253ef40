"""Automatic mixed precision: more bits, or none of it quantised, for as few layers as the limits allow.

Every layer starts in the model's scheme and may be taken to a wider one and then to float. What such a move gains is
estimated from what the layer alone does to the outputs in either precision (the *effect* of :mod:`.layers`); noise of
different layers is taken to be independent, so that gains add up. What it costs is work: multiply-accumulates and
values, of which wide integers cost twice as much as narrow ones and floats, which no integer NPU takes, eight times.

Moves are taken in the order of gain per cost. How many of them are needed is then measured on the whole model, not
estimated: the number doubles until the limits hold, and the smallest such number is found by bisection. At last each
move of a short list is tried without.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from odc_mlir.quantizer.policy.schemes import FLOAT
from odc_mlir.quantizer.policy.verdict import LayerError

LOG = logging.getLogger(__name__)

Precisions = dict[str, str]  # by layer name; layers left out are in the model's scheme

# What layers of each scheme are taken to, one after the other. A wider scheme is of the same family, whose readers
# know both.
LADDERS: Mapping[str, tuple[str, ...]] = {
    "int8": ("int16x8", FLOAT),
    "uint8": ("int16", FLOAT),
    "int16": (FLOAT,),
    "int16x8": (FLOAT,),
}

_RELATIVE_COST = {FLOAT: 8.0}
_WIDE_COST = 2.0
# A move that takes away less than this share of a layer's noise is left out: the next step of the ladder is better.
_LEAST_GAIN = 0.5
# Up to this many moves, each is tried without in the end.
_MOST_TRIED_WITHOUT = 12


@dataclass(frozen=True, slots=True)
class Move:
    """Take ``layer`` to ``precision``: the outputs' noise ratio falls by ``gain``, work rises by ``cost``."""

    layer: str
    precision: str
    gain: float
    cost: float

    @property
    def merit(self) -> float:
        return self.gain / self.cost


def ladder_of(scheme: str) -> tuple[str, ...]:
    """The precisions that layers of ``scheme`` can be taken to, cheapest first; none for weights-only schemes."""
    return LADDERS.get(scheme, ())


def plan_moves(
    narrow: Sequence[LayerError],
    wide: Mapping[str, Sequence[LayerError]],
    work: Mapping[str, float],
    ladder: Sequence[str],
) -> list[Move]:
    """All moves that gain something, best first; a layer's step to float comes after its step to a wider scheme.

    ``narrow``: effects in the model's scheme; ``wide``: by each integer step of the ladder, the effects when all layers
    are in that. ``work``: of each layer, in any unit.
    """
    noise_of = {step: {layer.name: layer for layer in layers} for step, layers in wide.items()}
    moves: list[Move] = []
    for layer in narrow:
        noise, spent, last = layer.noise, 1.0, float("inf")
        for step in ladder:
            reached = noise_of.get(step, {}).get(layer.name)
            if step != FLOAT and (reached is None or reached.precision in (layer.precision, FLOAT)):
                continue
            left = 0.0 if step == FLOAT or reached is None else reached.noise
            if noise <= 0 or noise - left < _LEAST_GAIN * noise:
                continue
            factor = _RELATIVE_COST.get(step, _WIDE_COST)
            move = Move(layer.name, step, noise - left, (factor - spent) * max(work.get(layer.name, 1.0), 1.0))
            # No step can be worth more than the one that it needs: the order of moves must keep that of the ladder.
            if move.merit > last:
                move = Move(move.layer, move.precision, last * move.cost, move.cost)
            moves.append(move)
            noise, spent, last = left, factor, move.merit
    places = {name: place for place, name in enumerate(ladder)}
    return sorted(moves, key=lambda move: (-move.merit, places[move.precision], move.layer))


def precisions_after(moves: Sequence[Move]) -> Precisions:
    """Each layer's precision after these moves, of which later ones win."""
    return {move.layer: move.precision for move in moves}


def search(
    moves: Sequence[Move], good_enough: Callable[[Precisions], bool], *, in_time: Callable[[], bool] = lambda: True
) -> Precisions | None:
    """The precisions after as few of ``moves`` as make the model good enough; None where even all of them do not.

    ``good_enough`` measures the model with these precisions. When the time is over, the best found so far is returned.
    """
    reached, failing = _double(moves, good_enough, in_time)
    if reached is None:
        return None
    while reached - failing > 1 and in_time():
        middle = (reached + failing) // 2
        if good_enough(precisions_after(moves[:middle])):
            reached = middle
        else:
            failing = middle
    return _without_needless(list(moves[:reached]), good_enough, in_time)


def _double(
    moves: Sequence[Move], good_enough: Callable[[Precisions], bool], in_time: Callable[[], bool]
) -> tuple[int | None, int]:
    """A number of moves that is enough (None: there is none), and the largest seen that is not."""
    failing, count = 0, 1
    while failing < len(moves):
        count = min(count, len(moves))
        # Out of time nothing more is known, and what has not been measured is not taken.
        if not in_time():
            return None, failing
        if good_enough(precisions_after(moves[:count])):
            return count, failing
        failing, count = count, 2 * count
    return None, failing


def _without_needless(
    moves: list[Move], good_enough: Callable[[Precisions], bool], in_time: Callable[[], bool]
) -> Precisions:
    """The precisions without moves that the limits do not need, the least rewarding tried first."""
    if len(moves) <= _MOST_TRIED_WITHOUT:
        for move in reversed(moves[:-1]):
            fewer = [other for other in moves if other is not move]
            if in_time() and good_enough(precisions_after(fewer)):
                LOG.info("%s need not be %s", move.layer, move.precision)
                moves = fewer
    return precisions_after(moves)
