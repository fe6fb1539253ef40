"""Which of many samples to take."""

from __future__ import annotations

from itertools import pairwise
from random import Random


def stratified(count: int, total: int) -> list[int]:
    """``count`` places of ``total``, in order: a random one of each of so many strata, as many samples in a row.

    Frames of one scene follow each other, months take turns: at equal distances samples could all be of one kind. The
    same numbers give the same places.
    """
    random = Random(total)
    ends = [total * place // max(count, 1) for place in range(count + 1)]
    return [random.randrange(start, end) for start, end in pairwise(ends)]
