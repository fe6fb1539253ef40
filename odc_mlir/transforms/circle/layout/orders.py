"""Orders of dimensions. ``order[i]`` is the dimension of a tensor that is stored as its i-th.

A tensor stored in order ``p`` is what ``TRANSPOSE(tensor, p)`` gives; the identity is how the model wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.ops.spec import Shape

Order = tuple[int, ...]


def identity(rank: int) -> Order:
    """The order that the model wrote."""
    return tuple(range(rank))


def moves(stored: Order, wanted: Order) -> Order:
    """The permutation that TRANSPOSE takes from order ``stored`` to order ``wanted``."""
    return tuple(stored.index(dimension) for dimension in wanted)


def permuted(shape: Shape, order: Order) -> Shape:
    """The extents of a tensor of ``shape`` when it is stored in ``order``."""
    return tuple(shape[dimension] for dimension in order)


def same_elements(shape: Shape | None, stored: Order, wanted: Order) -> bool:
    """Whether two orders differ in places of dimensions of extent 1 only: a RESHAPE then turns one into the other."""
    if stored == wanted:
        return True
    if shape is None:
        return False
    return [d for d in stored if shape[d] != 1] == [d for d in wanted if shape[d] != 1]


def without(order: Order, removed: frozenset[int]) -> Order:
    """The order of the dimensions that are left when some go, numbered anew."""
    left = [dimension for dimension in order if dimension not in removed]
    numbers = {dimension: number for number, dimension in enumerate(sorted(left))}
    return tuple(numbers[dimension] for dimension in left)


def with_removed(order: Order, removed: frozenset[int], rank: int) -> Order:
    """An order whose :func:`without` is ``order``: the removed dimensions stay at their own places."""
    kept = [dimension for dimension in range(rank) if dimension not in removed]
    rest = iter(kept[number] for number in order)
    return tuple(place if place in removed else next(rest) for place in range(rank))


def blocks(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The smallest groups of neighbouring dimensions with equal products, of a shape before and after RESHAPE.

    Dimensions of extent 1 that nothing stands for on the other side are groups of their own.
    """
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        if i < len(before) and j < len(after) and before[i] == after[j]:
            groups.append(([i], [j]))
            i, j = i + 1, j + 1
        elif i < len(before) and before[i] == 1:
            groups.append(([i], []))
            i += 1
        elif j < len(after) and after[j] == 1:
            groups.append(([], [j]))
            j += 1
        else:
            left, right = [i], [j]
            a, b = before[i], after[j]
            i, j = i + 1, j + 1
            while a != b:
                if a < b:
                    a, left, i = a * before[i], [*left, i], i + 1
                else:
                    b, right, j = b * after[j], [*right, j], j + 1
            groups.append((left, right))
    return groups


def through_reshape(order: Order, groups: Sequence[tuple[list[int], list[int]]], side: int) -> Order | None:
    """The order behind RESHAPE (``side`` 0), or before it (1), of data that stay in their places.

    None where ``order`` takes a group of dimensions apart or turns it round.
    """
    whole = {group[side][0]: group for group in groups if group[side]}
    found: list[int] = []
    place = 0
    while place < len(order):
        group = whole.get(order[place])
        if group is None or list(order[place : place + len(group[side])]) != group[side]:
            return None
        found += group[1 - side]
        place += len(group[side])
    loose = [dimension for group in groups if not group[side] for dimension in group[1 - side]]
    for dimension in loose:  # extents of 1 that are on one side only go where their number puts them
        found.insert(min(dimension, len(found)), dimension)
    return tuple(found)
