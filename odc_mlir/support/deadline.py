"""Time limit and progress of compiling, checked by passes between units of work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from xdsl.context import Context

from odc_mlir.errors import OptionError, TimeLimitError

T = TypeVar("T")
Progress = Callable[[str, int, int | None], None]
"""Callback for progress: activity, completed steps, total number of steps if known."""

_DOING = "doing"  # last activity of a context's passes


class Deadline:
    """Deadline ``seconds`` from now. Raises OptionError if ``seconds`` is not positive."""

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise OptionError(f"the time limit is {seconds:g} s, it must be above 0")
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        if time.monotonic() > self._end:
            hint = "raise the time limit, or prefer compile-time; nothing was written"
            raise TimeLimitError(f"compiling takes longer than the time limit of {self.seconds:g} s", hint=hint)


def checkpoint(context: Context) -> None:
    """Raise TimeLimitError if the deadline of ``context`` has passed."""
    deadline = getattr(context, "deadline", None)
    if deadline is not None:
        deadline.check()


def tell(context: Context, text: str, done: int = 0, total: int | None = None) -> None:
    """Report progress to the callback of ``context``."""
    progress: Progress | None = getattr(context, "progress", None)
    if progress is not None:
        setattr(context, _DOING, text)
        progress(text, done, total)


def in_time(context: Context, items: Iterable[T]) -> Iterator[T]:
    """Yield ``items``. Check the deadline and report progress before each item."""
    total = len(items) if isinstance(items, Sized) else None
    for number, item in enumerate(items):
        checkpoint(context)
        tell(context, getattr(context, _DOING, ""), number + 1, total)
        yield item
