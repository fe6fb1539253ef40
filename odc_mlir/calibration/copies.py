"""Detection of repeated samples and near copies, which count as one observation.

Two samples are near copies if no float input differs by more than 1/32 of its mean absolute deviation over the samples,
and all other inputs are equal. This holds in the mean for the elements that vary most, and for a single element
relative to its own deviation. Draws of few dimensions may be equally near by chance, but then others are at all
distances. So there must be no other sample within 16 times the distance of the farthest copy. In one dimension, chance
has such a gap for one pair in 16, otherwise for fewer; so few copies are ignored.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import filterfalse, pairwise
from random import Random
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array


def stratified(count: int, total: int) -> list[int]:
    """Return ``count`` of ``total`` indices in order: a random one of each of ``count`` strata of consecutive samples.

    Consecutive samples are often alike, or periodic; equally spaced ones could then all be of one kind. The same
    numbers give the same indices.
    """
    random = Random(total)
    ends = [total * place // max(count, 1) for place in range(count + 1)]
    return [random.randrange(start, end) for start, end in pairwise(ends)]


Sample = Sequence[Array]


def distinct(samples: Sequence[Sample], labels: Array | None = None) -> list[int]:
    """Return the indices of distinct samples: of equal samples, the first.

    A sample with two different labels counts as two, because one label is wrong, which scores should show.
    """
    keys = [(digest(sample), None if labels is None else digest([labels[i]])) for i, sample in enumerate(samples)]
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    return sorted(first.values())


def digest(sample: Sample) -> bytes:
    """Return a digest that equal samples share; 0 and -0 are equal, and so are NaNs."""
    hashed = hashlib.blake2b(digest_size=16)
    for array in map(np.asarray, sample):
        hashed.update(f"{array.shape}{array.dtype}".encode())
        if array.dtype.hasobject:
            hashed.update(repr(array.tolist()).encode())
        else:
            plain = array + array.dtype.type(0) if array.dtype.kind in "fc" else array  # -0 + 0 is 0
            hashed.update(np.ascontiguousarray(plain).tobytes())
    return hashed.digest()


Reals = NDArray[np.float64]
Places = NDArray[np.intp]
_Key = TypeVar("_Key", bound=Hashable)

_NEAR = 1.0 / 32.0
_APART = 16.0
# Elements count as varying most if their variation is at least this part of the largest.
_MOST_VARYING = 1.0 / 16.0
# Noise is less than so many times its mean in all of millions of elements, be it normal or of compressed pictures.
_NOISE = 16.0
# Samples whose largest value is so many times the usual one are left out of the variation.
_FAR = 16.0
# So many standard deviations more copies than chance has in one dimension may be chance.
_BEYOND_CHANCE = 3.0
_PARTS = 64  # sums of an input's elements by which samples are compared first
_AT_ONCE = 1 << 21  # elements that are compared at a time


def independent(samples: Sequence[Sample], labels: Array | None = None) -> list[int]:
    """Return the indices of samples without near copies, or of the first of each group; all, if copies are few.

    Samples with different labels are neither copies nor repeats.
    """
    return _kept(range(len(samples)), [first != place for place, first in enumerate(copied(samples, labels))])


def without(samples: Sequence[Sample], others: Sequence[Sample]) -> list[int]:
    """Return the indices of ``samples`` that are not in ``others``, nor near copies of these, unless copies are few."""
    known = set(map(digest, others))
    new = [place for place, sample in enumerate(samples) if digest(sample) not in known]
    firsts = copied([*others, *(samples[place] for place in new)])
    return _kept(new, [first < len(others) for first in firsts[len(others) :]])


def _kept(places: Sequence[int], is_copy: Sequence[bool]) -> list[int]:
    """Return the ``places`` without copies; all of them if chance explains as many copies."""
    by_chance = len(places) / _APART
    if sum(is_copy) <= by_chance + _BEYOND_CHANCE * math.sqrt(by_chance):
        return list(places)
    return [place for place, copy in zip(places, is_copy, strict=True) if not copy]


def copied(samples: Sequence[Sample], labels: Array | None = None) -> list[int]:
    """Return for each sample the index of the sample that it is a near copy of, or its own index.

    Copies are near the first of their group, so that chains of small steps are not copies.
    """
    result = list(range(len(samples)))
    shapes = [tuple((np.shape(array), np.asarray(array).dtype.str) for array in sample) for sample in samples]
    with np.errstate(all="ignore"):  # of numbers too large for their sums, which are near nothing
        for alike in _by_key(range(len(samples)), shapes):
            inputs = [
                _RealInput([np.ravel(samples[other][place]) for other in alike])
                for place, array in enumerate(samples[alike[0]])
                if _is_real(array) and np.size(array)
            ]
            # Near copies share the inputs that are not real, and the label.
            others = [
                digest([*filterfalse(_is_real, samples[place]), *([] if labels is None else [labels[place]])])
                for place in alike
            ]
            for members in _by_key(range(len(alike)), others) if inputs else ():
                for place, first in _Neighbours(inputs, np.array(members)).copies():
                    result[alike[place]] = alike[first]
    return result


def _by_key(places: Sequence[int], keys: Sequence[_Key]) -> list[list[int]]:
    """Return the indices with the same key, if there are several."""
    found: dict[_Key, list[int]] = {}
    for place in places:
        found.setdefault(keys[place], []).append(place)
    return [group for group in found.values() if len(group) > 1]


def _is_real(array: Array) -> bool:
    return np.asarray(array).dtype.kind == "f"


class _RealInput:
    """Values of one input, a flat array per sample, and their variation.

    ``parts``: [samples, parts], sums of elements in a row, scaled: two samples are there no farther from each other
    than they are.
    """

    def __init__(self, values: Sequence[Array]) -> None:
        self._values = values
        self._deviations = _deviations(values)
        most = self._deviations.max()
        self._varying = np.flatnonzero((self._deviations >= _MOST_VARYING * most) & (self._deviations > 0))
        self._typical = float(self._deviations[self._varying].mean()) if self._varying.size else 0.0
        self.parts = np.array([self._sums(value) for value in values])

    def _sums(self, value: Array) -> Reals:
        count = self._varying.size
        if not count:
            return np.zeros(1)
        starts = np.arange(min(count, _PARTS)) * count // min(count, _PARTS)
        return np.add.reduceat(value[self._varying].astype(np.float64), starts) / (count * self._typical)

    def distances(self, place: int, others: Places) -> Reals:
        """Return the distances of the samples ``others`` from ``place``, relative to the elements' variation."""
        found = np.empty(len(others))
        step = max(1, _AT_ONCE // self._values[0].size)
        for start in range(0, len(others), step):
            rows = np.stack([self._values[other] for other in others[start : start + step]])
            found[start : start + step] = self._of_rows(
                np.abs(np.subtract(rows, self._values[place], dtype=np.float64))
            )
        return found

    def _of_rows(self, differences: Reals) -> Reals:
        """Return the distances for ``differences``, [samples, elements]."""
        if not self._varying.size:
            return np.where(differences.any(axis=1), np.inf, 0.0)
        mean = differences[:, self._varying].mean(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            single = np.where(differences > _NOISE * mean[:, None], differences / self._deviations, 0.0)
        return np.asarray(np.maximum(mean / self._typical, single.max(axis=1)))


def _deviations(values: Sequence[Array]) -> Reals:
    """Return the mean absolute deviation of each element, without samples that have values far beyond the usual."""
    largest = np.array([np.abs(value).max() for value in values], np.float64)
    usual = float(np.median(largest))
    counted = [value for value, most in zip(values, largest, strict=True) if most <= _FAR * usual or not usual]
    mean = np.zeros(values[0].size)
    for value in counted:
        mean += value
    mean /= len(counted)
    result = np.zeros_like(mean)
    for value in counted:
        result += np.abs(value - mean)
    return result / len(counted)


class _Neighbours:
    """Search for near samples among the samples at ``members``.

    Samples are compared by the sum of an input first, then by sums of its parts, which can be no farther from each
    other than the elements are, so that few pairs are left to compare by these.
    """

    def __init__(self, inputs: Sequence[_RealInput], members: Places) -> None:
        self._inputs, self._members = inputs, members
        self._parts = np.concatenate([item.parts[members] for item in inputs], axis=1)
        self._sums = self._parts.sum(axis=1)
        self._order = np.argsort(self._sums, kind="stable")

    def copies(self) -> Iterator[tuple[int, int]]:
        """Map each copy to its original."""
        is_copy = np.zeros(len(self._members), bool)
        for place in range(len(self._members)):
            if is_copy[place]:
                continue
            near, distances = self._within(place, _NEAR)
            later = near[(near > place) & ~is_copy[near]]
            if later.size and len(self._within(place, _APART * float(distances.max()))[0]) == len(near):
                is_copy[later] = True
                yield from ((int(self._members[other]), int(self._members[place])) for other in later)

    def _within(self, place: int, reach: float) -> tuple[Places, Reals]:
        """Return the other samples within ``reach``, and their distances."""
        most = reach * len(self._inputs) * (1.0 + 1e-9)
        most += 1e-12 * float(np.abs(self._parts[place]).sum())  # rounding of sums
        ends = [self._sums[place] - most, self._sums[place] + most]
        others = self._order[slice(*np.searchsorted(self._sums, ends, sorter=self._order))]
        rough = np.abs(self._parts[others] - self._parts[place]).sum(axis=1)
        others = others[(rough <= most) & (others != place)]
        distances = np.zeros(len(others))  # the largest of all inputs
        for item in self._inputs if len(others) else ():
            own = item.distances(int(self._members[place]), self._members[others])
            np.maximum(distances, own, out=distances)
        return others[distances <= reach], distances[distances <= reach]
