"""What callers choose, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odc_mlir.errors import OptionError
from odc_mlir.formats.circle.model import Signature
from odc_mlir.runtime.execution.team import MAX_THREADS


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise OptionError for a value that is not allowed."""
    if value not in allowed:
        raise OptionError(f"unknown {name} {value!r}", hint=f"use one of {', '.join(allowed)}")


def check_threads(count: int) -> None:
    """Raise OptionError for what is not a number of threads."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_THREADS:
        raise OptionError(f"threads is {count!r}", hint=f"use a number from 1 to {MAX_THREADS}")


def subgraph_of(signatures: Sequence[Signature], key: str) -> int:
    """The subgraph of the signature called ``key``; raises OptionError, listing the known ones."""
    for record in signatures:
        if record.key == key:
            return record.subgraph
    known = ", ".join(repr(record.key) for record in signatures) or "none"
    raise OptionError(f"the model has no signature {key!r}", hint=f"it has {known}")
