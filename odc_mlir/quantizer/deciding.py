"""What decides outputs: the operator that computes one, the tensor in which noise shows, and places as answers.

A place, such as the class that ARG_MAX names, is right or wrong and never nearly so: the next class has nothing to do
with it, and its number is no quantity.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.reporting.metrics import Errors

SOFTMAX = frozenset({"SOFTMAX", "LOG_SOFTMAX"})
_SQUASHING = SOFTMAX | {"LOGISTIC"}
# What ends in logits: several of them for each row, of which each of a few is sometimes the largest.
LOGITS = frozenset({"FULLY_CONNECTED", "CONV_2D", "ADD", "BATCH_MATMUL"})
LEAST_WINNERS = 3
# The largest share of samples that one of several numbers wins which are taken for scores whatever their sum does:
# beyond it, offsets of numbers of other kinds decide who is the largest.
_MOST_WON = 0.5
# The same where the sum varies by no more than this part of what it would if numbers had nothing to do with each other:
# that of trained classifiers has 0.02 to 0.15, of coordinates more than a half.
_MOST_WON_BY_A_SCORE, _LEAST_OF_SUM = 0.9, 0.25
# Steps of a series: neighbours differ by no more than this part of what any two columns do (of classes it is about 1),
# and the sum varies by so many times what it would if columns had nothing to do with each other.
_MOST_OF_NEIGHBOURS, _LEAST_OF_STEPS = 0.5, 2.0
UNDECIDED_NATS = math.log(2.0)
# What answers are measured by: the share of those that are the same, or where another class is nearly as likely.
SHARE, DECIDED = "top1_match", "top1_decided"
_KEEP_ORDER = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "CAST", "DEQUANTIZE", "QUANTIZE"})
_PLACES = {"ARG_MAX": 0, "ARG_MIN": 0, "TOPK_V2": 1}  # which of the results


def _logarithms(shares: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(shares.astype(np.float64)))


# Logarithms of odds, but for a number that all have, of what these operators give.
NATS: dict[str, Callable[[Array], Array]] = {"SOFTMAX": _logarithms, "LOG_SOFTMAX": np.asarray}


def last_operator(graph: Graph, tensor: int, *, in_order: bool = True) -> GraphNode | None:
    """What computes a tensor, seen through operators that only move values, ``in_order``, or change their type."""
    tensor = _source(graph, tensor, _KEEP_ORDER if in_order else _KEEP_ORDER | {"TRANSPOSE"})
    return next((node for node in graph.nodes if tensor in node.outputs), None)


def _source(graph: Graph, tensor: int, seen_through: frozenset[str] = _KEEP_ORDER) -> int:
    """The tensor whose values ``tensor`` has, behind operators that are ``seen_through``."""
    producers = {index: node for node in graph.nodes for index in node.outputs}
    while (node := producers.get(tensor)) is not None and node.node.spec.name in seen_through:
        tensor = node.inputs[0]
    return tensor


def decisive_tensor(graph: Graph, output: int, places: Places | None) -> int:
    """The tensor in which noise shows that may change an output: what a function squashes, or is searched."""
    if places is not None:
        output = places.searched
    node = last_operator(graph, output)
    return node.inputs[0] if node is not None and node.node.spec.name in _SQUASHING else output


def is_in_order(graph: Graph, output: int, axis: int | None) -> bool:
    """Whether what decides ``output`` of a made model has its elements where the float model's tensor has them.

    Operators may compute in another order of the axes than in the float model, under the same name. What they give is
    then transposed, or they search along another axis than the float model, where that is ``axis`` from the end.
    """
    if axis is not None:
        found = places_of(graph, output)
        return found is None or found.from_end(graph) == axis
    node = last_operator(graph, output)
    return node is None or node.node.spec.name != "TRANSPOSE"


def is_varied(winners: Sequence[int], classes: int, most: float = _MOST_WON) -> bool:
    """Whether different ones of several win, none of them nearly always, as coordinates and the like have it.

    ``most``: the largest share of the samples in which the same one may win.
    """
    won = max(map(winners.count, winners))
    return len(set(winners)) >= min(LEAST_WINNERS, classes) and won <= most * len(winners)


def are_scores(rows: NDArray[np.float64], alone: bool = True) -> bool:
    """Whether ``rows``, [samples, classes], of an output, ``alone`` or beside others, look like scores of classes.

    Different ones win. Where one wins more often than not, as a frequent class and the largest of several numbers do,
    what one gains the others must lose: steps of the cross entropy by which classifiers are trained leave the sum as
    it is, which then varies less than that of numbers that have nothing to do with each other. Beside other outputs,
    which may be boxes or the like, the sum has to show it anyway. Steps of a series, as forecasts are, rise and fall
    together, and neighbours most.
    """
    winners = np.argmax(rows, axis=1).tolist()
    if _are_steps(rows):
        return False
    if alone and is_varied(winners, rows.shape[1]):
        return True
    return is_varied(winners, rows.shape[1], _MOST_WON_BY_A_SCORE) and _part_of_sum(rows) <= _LEAST_OF_SUM


def _part_of_sum(rows: NDArray[np.float64]) -> float:
    """By how much the sum of a row varies, in parts of what it would if columns had nothing to do with each other."""
    with np.errstate(all="ignore"):  # of values that are not finite, or never vary
        return float(rows.sum(axis=1).var() / rows.var(axis=0).sum())


def _are_like_neighbours(rows: NDArray[np.float64]) -> bool:
    """Whether neighbouring columns differ far less than others: order says something, as it does not of classes."""
    with np.errstate(all="ignore"):
        varying, width = rows - rows.mean(axis=0), rows.shape[1]
        nearest = np.square(np.diff(varying, axis=1)).mean()
        # Of all pairs the sum of squared differences is n times that of the squares without the square of the sum.
        every = (width * np.square(varying).sum(axis=1) - np.square(varying.sum(axis=1))).mean()
        return bool(nearest <= _MOST_OF_NEIGHBOURS * every / max(1, width * (width - 1) / 2) and every > 0.0)


def _are_steps(rows: NDArray[np.float64]) -> bool:
    """Whether columns are like steps of a series, of which neighbours are alike and all rise and fall together."""
    return _part_of_sum(rows) >= _LEAST_OF_STEPS and _are_like_neighbours(rows)


def remedy_of_guess(has_labels: bool) -> str:
    """What to do about a wrong guess, before the metric to give; ``has_labels``: as :func:`doubt_of_scores` has it."""
    return "give labels, or" if has_labels else "give"


def doubt_of_scores(name: str, rows: NDArray[np.float64], alone: bool = True, has_labels: bool = True) -> str | None:
    """What is said of output ``name`` that may or may not have scores of classes; None where there is no doubt.

    ``alone``: as :func:`are_scores` has it; ``has_labels``: whether labels would be compared with it.
    """
    remedy = remedy_of_guess(has_labels)
    winners = np.argmax(rows, axis=1).tolist()
    if are_scores(rows, alone):
        if not _are_like_neighbours(rows):
            return None
        return (
            f"output {name!r} is taken for scores of classes, though neighbouring columns are alike, as steps of a "
            f"series are; if it has numbers, {remedy} --metric mpeir"
        )
    if not is_varied(winners, rows.shape[1], 1.0):
        return None
    if _are_steps(rows):
        why = "its columns rise and fall together, neighbours most, as steps of a series do"
    elif is_varied(winners, rows.shape[1]):
        why = "it is beside others, and the sum of its columns varies as that of numbers does"
    else:
        best, won = max(((place, winners.count(place)) for place in set(winners)), key=lambda found: found[1])
        why = f"column {best} is the largest for {won} of {len(winners)} samples"
    return f"output {name!r} is not taken for scores of classes, as {why}; if it has such, {remedy} --metric top1"


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """An output of places along ``axis`` of the tensor ``searched``; ``in_order``: as the search gave them."""

    searched: int
    axis: int
    largest: bool
    in_order: bool

    def may_be_undecided(self, graph: Graph, answers: Sequence[Array], classes: int) -> bool:
        """Whether logits are searched, in which a class may be nearly as likely as that of all ``answers``."""
        node = last_operator(graph, self.searched)
        if not (self.in_order and self.largest) or node is None or node.node.spec.name not in LOGITS:
            return False
        return is_varied(np.concatenate([np.ravel(answer) for answer in answers]).astype(np.int64).tolist(), classes)

    def from_end(self, graph: Graph) -> int:
        """The axis counted from the last, which is -1."""
        shape = graph.tensors[self.searched].shape
        return self.axis if self.axis < 0 or shape is None else self.axis - len(shape)

    def nearly(self, searched: Array, expected: Array, found: Array) -> Array:
        """Of each place whether ``found`` has at least half the odds of what is expected."""
        best, chosen = (self._at(searched, places) for places in (expected, found))
        return np.ravel(chosen >= best - UNDECIDED_NATS)

    def shares_of_ties(self, searched: Array, expected: Array, found: Array, decisive: Array) -> NDArray[np.float64]:
        """What each place of ``found`` counts, see :func:`share_of_ties`, that was searched for in ``decisive``."""
        values, seen = (np.moveaxis(array, self.axis, -1) for array in (searched, decisive))
        least, chosen = self._at(searched, expected) - UNDECIDED_NATS, self._at(decisive, found)
        ranks = range(chosen.shape[-1])
        return np.ravel(np.stack([share_of_ties(values, least[..., i], seen, chosen[..., i]) for i in ranks], axis=-1))

    def _at(self, values: Array, places: Array) -> Array:
        """``values`` at ``places``: [..., places], the searched axis being the last."""
        moved = np.moveaxis(values, self.axis, -1)
        shape = (*moved.shape[:-1], -1)
        return np.take_along_axis(moved, np.clip(places.astype(np.int64), 0, moved.shape[-1] - 1).reshape(shape), -1)


def share_of_ties(expected: Array, least: Array, found: Array, chosen: Array) -> NDArray[np.float64]:
    """What answers count that have the values ``chosen`` of ``found``; [..., classes], like the float ``expected``.

    1 where no other class has that value, as codes of close logits have, and ``expected`` is ``least`` or more. Of
    several it is a coin's toss which of them answers, if always the first: they count as if each did so in turn, but
    nothing where one is below ``least``, and as one where the float model cannot tell them apart either.
    """
    tied = found == chosen[..., None]
    low = np.where(tied, expected, np.inf).min(axis=-1)
    high = np.where(tied, expected, -np.inf).max(axis=-1)
    count = np.where(low == high, 1, np.maximum(1, np.count_nonzero(tied, axis=-1)))
    return np.where(low >= least, 1.0 / count, 0.0)


def places_of(graph: Graph, output: int) -> Places | None:
    """What an output's places are of; None for one of other values."""
    producers = {index: node for node in graph.nodes for index in node.outputs}
    tensor, in_order = output, True
    while (node := producers.get(tensor)) is not None:
        spec = node.node.spec
        if spec.name in _PLACES:
            return _searching(graph, node, in_order) if tensor == node.outputs[_PLACES[spec.name]] else None
        keeps_order = spec.name in _KEEP_ORDER
        if not keeps_order and spec.quant.source is None:
            return None
        in_order &= keeps_order
        tensor = node.inputs[0 if keeps_order else spec.quant.source or 0]
    return None


def _searching(graph: Graph, node: GraphNode, in_order: bool) -> Places:
    name, axis = node.node.spec.name, -1
    if name != "TOPK_V2":
        info = graph.tensors[node.inputs[1]]
        axis, in_order = (int(info.array().reshape(-1)[0]), in_order) if info.is_const else (-1, False)
    return Places(node.inputs[0], axis, name != "ARG_MIN", in_order)


@dataclasses.dataclass(frozen=True, slots=True)
class Answering:
    """What of a sample's outputs labels are compared with: the one at ``output``, or the ``best`` of its indices."""

    output: int = 0
    best: bool = False

    def of(self, outputs: Sequence[Array]) -> Array:
        """The answer; the best of several indices is the first, int64."""
        found = outputs[self.output]
        return found[..., :1].astype(np.int64) if self.best else found


def answering(graph: Graph, outputs: Sequence[Array], labels: int) -> Answering:
    """What ``labels``, so many for each sample, are compared with, where ``outputs`` are those of one.

    The first output; where TOPK_V2 gives it and there is a label for each of its rows, the best of the indices, which
    may be another output.
    """
    node = last_operator(graph, graph.outputs[0])
    if node is None or node.node.spec.name != "TOPK_V2" or labels * outputs[0].shape[-1] != outputs[0].size:
        return Answering()
    indices = node.outputs[_PLACES["TOPK_V2"]]
    found = [place for place, tensor in enumerate(graph.outputs) if _source(graph, tensor) == indices]
    return Answering(found[0], best=True) if found else Answering()


class PlaceMeter:
    """Counts the places that are the same, as :class:`odc_mlir.runtime.reporting.metrics.ErrorMeter` adds up errors."""

    def __init__(self) -> None:
        self._elements = self._differing = 0
        self._shares: list[float] = []

    def add(self, reference: Array, other: Array) -> None:
        """One more record."""
        differing = int(np.count_nonzero(reference != other))
        self._elements += reference.size
        self._differing += differing
        self._shares.append(1.0 - differing / max(1, reference.size))

    def add_all(self, references: Sequence[Array], others: Sequence[Array]) -> None:
        """More records."""
        for reference, other in zip(references, others, strict=True):
            self.add(reference, other)

    def errors(self) -> Errors:
        """The counts, and the share that is the same; a place has no distance."""
        share = sum(self._shares) / len(self._shares) if self._shares else None
        return Errors(self._elements, self._differing, top1_match=share)
