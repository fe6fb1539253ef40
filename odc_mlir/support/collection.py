"""Control of garbage collection while IR is built."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.ir import Block

ALLOCATIONS = 4_000_000  # allocations between two collections; Python's default is 700


@contextmanager
def seldom_collected() -> Generator[None]:
    """Raise the threshold of the garbage collector to :data:`ALLOCATIONS` new objects in this block.

    IR is large and nearly all of it in use. With the default threshold, collections take a third of the compile time of
    a large network. The threshold applies to the process. If blocks are nested or parallel, the block that raised the
    threshold lowers it again. This may slow down the rest.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < ALLOCATIONS:
        yield
        return
    gc.set_threshold(ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def take_apart(block: Block) -> None:
    """Free the operations of the unused ``block``.

    References between operations have cycles. Operations would therefore stay until the next garbage collection.
    """
    for op in list(block.ops):
        for region in op.regions:
            for inner in region.blocks:
                take_apart(inner)
        block.detach_op(op)
        op.drop_all_references()
        op.properties.clear()
