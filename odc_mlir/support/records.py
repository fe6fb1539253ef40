"""Records that a pass has read from IR, kept for the pass that runs directly behind it.

Reading a program takes as long as many a pass works on it. A pass that keeps records and IR equal says so by a class
variable ``keeps_records``; behind every other pass, and at the end of a run, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from xdsl.context import Context
from xdsl.ir import Operation
from xdsl.passes import ModulePass

T = TypeVar("T")

_RECORDS = "records"  # attribute of the context while passes run


@contextmanager
def sharing_records(context: Context) -> Generator[None]:
    """Let the passes that run in this block share records; around it and without it, each reads its own."""
    setattr(context, _RECORDS, {})
    try:
        yield
    finally:
        setattr(context, _RECORDS, None)


def after_pass(context: Context, item: ModulePass) -> None:
    """Forget what ``item``, which has just run, may have made wrong."""
    records: dict[Operation, object] | None = getattr(context, _RECORDS, None)
    if records and not getattr(item, "keeps_records", False):
        records.clear()


def records_of(context: Context, op: Operation, read: Callable[[], T]) -> T:
    """What the pass before left of ``op``, else what ``read`` returns."""
    records: dict[Operation, T] | None = getattr(context, _RECORDS, None)
    if records is None:
        return read()
    if op not in records:
        records[op] = read()
    return records[op]
