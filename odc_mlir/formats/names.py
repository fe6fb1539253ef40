"""Names that tell tensors apart: models may leave names out, and may give several tensors the same one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Names:
    """Names that are taken; :meth:`fresh` adds to them."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def fresh(self, name: str) -> str:
        """``name``, numbered where it is taken already; taken from now on."""
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found


def distinct(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Make ``names`` unique and non-empty; entries of ``others`` replace empty or repeated ones."""
    known, used = Names(names), set[str]()
    found = []
    for name, other in zip(names, others, strict=True):
        chosen = known.fresh(other) if not name or name in used else name
        used.add(chosen)
        found.append(chosen)
    return found


def tensor_names(names: Sequence[str]) -> list[str]:
    """Names of a subgraph's tensors in all outputs: those of the file, or the tensor's index.

    The third tensor is ``tensor 2`` without a name of its own, and ``x#2`` if another one before it is ``x`` as well.
    """
    return distinct(names, [f"{name}#{index}" if name else f"tensor {index}" for index, name in enumerate(names)])
