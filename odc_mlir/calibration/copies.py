"""Detection of repeated samples and near copies, to count them as a single observation, and of far larger samples.

Two samples are near copies if float inputs differ by at most 1/32 of the mean absolute deviation over the samples, and
all other inputs are equal. The limit applies to the mean over the elements that vary most, and to any element relative
to the deviation of the element. Independent samples of few dimensions may be as near by chance, but then other samples
lie at all distances. Near copies therefore need a gap: no other sample within 16 times the distance of the farthest
copy. In one dimension, a pair in 16 is this near by chance, otherwise fewer pairs. A small number of copies is ignored.
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
    """Return ``count`` of ``total`` indices in order: a random index from each of ``count`` consecutive strata.

    Consecutive samples are often similar, or periodic: equally spaced samples could all be of one kind. The same
    arguments give the same indices.
    """
    random = Random(total)
    ends = [total * place // max(count, 1) for place in range(count + 1)]
    return [random.randrange(start, end) for start, end in pairwise(ends)]


Sample = Sequence[Array]


def distinct(samples: Sequence[Sample], labels: Array | None = None) -> list[int]:
    """Return the indices of distinct samples. The first one represents equal samples.

    A sample with two different labels counts as two samples: one label is wrong, and scores should show this.
    """
    keys = [(digest(sample), None if labels is None else digest([labels[i]])) for i, sample in enumerate(samples)]
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    return sorted(first.values())


def digest(sample: Sample) -> bytes:
    """Return a digest of a sample. 0 and -0 have the same digest, and all NaNs have the same digest."""
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
# An element counts as varying most if its variation is at least this part of the largest variation.
_MOST_VARYING = 1.0 / 16.0
# Noise of millions of elements, normal or from image compression, nowhere exceeds this multiple of the mean.
_NOISE = 16.0
# Samples with a largest value beyond this multiple of the median are left out of the variation.
_FAR = 16.0
# Limit on the number of copies explained by chance: standard deviations above the expectation in one dimension.
_BEYOND_CHANCE = 3.0
_PARTS = 64  # number of partial sums of an input's elements, by which samples are compared first
_AT_ONCE = 1 << 21  # elements that are compared at a time


def independent(samples: Sequence[Sample], labels: Array | None = None) -> list[int]:
    """Return the indices of samples that are not near copies of earlier samples, or all indices if copies are few.

    Samples with different labels are not copies.
    """
    return _kept(range(len(samples)), [first != place for place, first in enumerate(copied(samples, labels))])


def standing_out(samples: Sequence[list[Array]]) -> tuple[list[int], list[list[Array]]]:
    """Return the indices of samples with an input far larger than in all others, and these others, or nothing."""
    ratio = 100.0  # from this ratio on, a common range leaves the other samples hardly any codes
    for values in zip(*samples, strict=True):
        if any(value.dtype.kind != "f" or not value.size for value in values):
            continue
        largest = np.array([np.abs(value).max() for value in values], np.float64)
        order = np.argsort(largest)
        low, high = largest[order[:-1]], largest[order[1:]]
        gaps = np.flatnonzero(np.isfinite(high) & (high > ratio * low) & (low > 0))
        if gaps.size:
            far = sorted(order[gaps[-1] + 1 :].tolist())
            return far, [sample for i, sample in enumerate(samples) if i not in far]
    return [], []


def without(samples: Sequence[Sample], others: Sequence[Sample]) -> list[int]:
    """Return the indices of ``samples`` that are not near copies of ``others``, or all indices if copies are few."""
    known = set(map(digest, others))
    new = [place for place, sample in enumerate(samples) if digest(sample) not in known]
    firsts = copied([*others, *(samples[place] for place in new)])
    return _kept(new, [first < len(others) for first in firsts[len(others) :]])


def _kept(places: Sequence[int], is_copy: Sequence[bool]) -> list[int]:
    """Return the indices ``places`` except copies, or all indices if chance explains the number of copies."""
    by_chance = len(places) / _APART
    if sum(is_copy) <= by_chance + _BEYOND_CHANCE * math.sqrt(by_chance):
        return list(places)
    return [place for place, copy in zip(places, is_copy, strict=True) if not copy]


def copied(samples: Sequence[Sample], labels: Array | None = None) -> list[int]:
    """Return an index for each sample: of the original if the sample is a near copy, else of the sample itself.

    Copies are near the original itself: a chain of small steps is not a group of copies.
    """
    result = list(range(len(samples)))
    shapes = [tuple((np.shape(array), np.asarray(array).dtype.str) for array in sample) for sample in samples]
    with np.errstate(all="ignore"):  # sums of large numbers may overflow; such samples are near no other
        for alike in _by_key(range(len(samples)), shapes):
            inputs = [
                _RealInput([np.ravel(samples[other][place]) for other in alike])
                for place, array in enumerate(samples[alike[0]])
                if _is_real(array) and np.size(array)
            ]
            # Near copies have equal labels and equal inputs of other types than float.
            others = [
                digest([*filterfalse(_is_real, samples[place]), *([] if labels is None else [labels[place]])])
                for place in alike
            ]
            for members in _by_key(range(len(alike)), others) if inputs else ():
                for place, first in _Neighbours(inputs, np.array(members)).copies():
                    result[alike[place]] = alike[first]
    return result


def _by_key(places: Sequence[int], keys: Sequence[_Key]) -> list[list[int]]:
    found: dict[_Key, list[int]] = {}
    for place in places:
        found.setdefault(keys[place], []).append(place)
    return [group for group in found.values() if len(group) > 1]


def _is_real(array: Array) -> bool:
    return np.asarray(array).dtype.kind == "f"


class _RealInput:
    """Values of an input, a flat array per sample, and the variation of the values.

    ``parts``: [samples, parts], scaled sums of consecutive elements. Distances between the parts of two samples never
    exceed the distance between the samples.
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
        if not self._varying.size:
            return np.where(differences.any(axis=1), np.inf, 0.0)
        mean = differences[:, self._varying].mean(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            single = np.where(differences > _NOISE * mean[:, None], differences / self._deviations, 0.0)
        return np.asarray(np.maximum(mean / self._typical, single.max(axis=1)))


def _deviations(values: Sequence[Array]) -> Reals:
    """Return the mean absolute deviation of elements over samples, except samples with unusually large values."""
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
    """Search for near samples among the samples ``members``.

    Sums of inputs, and then partial sums, exclude most pairs before elements are compared: differences of sums never
    exceed the distance of the elements.
    """

    def __init__(self, inputs: Sequence[_RealInput], members: Places) -> None:
        self._inputs, self._members = inputs, members
        self._parts = np.concatenate([item.parts[members] for item in inputs], axis=1)
        self._sums = self._parts.sum(axis=1)
        self._order = np.argsort(self._sums, kind="stable")

    def copies(self) -> Iterator[tuple[int, int]]:
        """Yield copies with the originals."""
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
        most = reach * len(self._inputs) * (1.0 + 1e-9)
        most += 1e-12 * float(np.abs(self._parts[place]).sum())  # rounding errors of the sums
        ends = [self._sums[place] - most, self._sums[place] + most]
        others = self._order[slice(*np.searchsorted(self._sums, ends, sorter=self._order))]
        rough = np.abs(self._parts[others] - self._parts[place]).sum(axis=1)
        others = others[(rough <= most) & (others != place)]
        distances = np.zeros(len(others))  # largest distance over all inputs
        for item in self._inputs if len(others) else ():
            own = item.distances(int(self._members[place]), self._members[others])
            np.maximum(distances, own, out=distances)
        return others[distances <= reach], distances[distances <= reach]
