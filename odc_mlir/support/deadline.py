"""A limit of time for compiling, which passes look at between pieces of work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from xdsl.context import Context

from odc_mlir.errors import OptionError, TimeLimitError

T = TypeVar("T")


class Deadline:
    """``seconds`` from now; raises OptionError unless that is a positive number."""

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise OptionError(f"the time limit is {seconds:g} s, it must be above 0")
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Raise TimeLimitError when the time is over."""
        if time.monotonic() > self._end:
            raise TimeLimitError(
                f"compiling takes longer than the {self.seconds:g} s that it may",
                hint="raise the time limit, or prefer compile-time; nothing was written",
            )


def checkpoint(context: Context) -> None:
    """Raise TimeLimitError when ``context`` has a deadline and it is over."""
    deadline = getattr(context, "deadline", None)
    if deadline is not None:
        deadline.check()


def in_time(context: Context, items: Iterable[T]) -> Iterator[T]:
    """``items``, with a checkpoint before each."""
    for item in items:
        checkpoint(context)
        yield item
