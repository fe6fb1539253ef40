"""What an operator may use beyond its operands: state that outlives one run, and choices made for the whole run.

Three kinds of state exist, and all of them begin anew when an executor is reset:

* *Variable tensors.* An operator declares which operands it writes (``Operand(..., mutated=True)`` in the table, for
  custom operators the model's own ``mutating_variable_inputs``). Its kernel gets a writable array there and changes it
  in place; see :class:`~odc_mlir.ops.spec.Operand`. Contents start at real zero, that is at the zero point.
* *Resources*, reached by a handle that an operator makes: resource variables and hash tables.
* *Private state* of one operator, such as the position of its random number generator: ``node.private_state()``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from odc_mlir.ops.registry import CustomOps, default_custom_ops

T = TypeVar("T")

MAX_ITERATIONS = 1 << 16
"""Iterations after which a WHILE that has not ended is an error."""


@dataclass(slots=True)
class ExecutionState:
    """State beside the variable tensors; ``resources`` by kind and name, ``private`` by the operator's place."""

    resources: dict[Hashable, Any] = field(default_factory=dict)
    private: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)

    def reset(self) -> None:
        """Forget everything."""
        self.resources.clear()
        self.private.clear()

    def resource(self, key: Hashable, make: Callable[[], T]) -> T:
        """The resource under ``key``, made when first asked for."""
        if key not in self.resources:
            self.resources[key] = make()
        found: T = self.resources[key]
        return found


@dataclass(frozen=True, slots=True)
class BinaryCodes:
    """How the bits of binary-coded weights are read, which nothing published says.

    ``lowest_first``: the first sign of a word is its lowest bit, else its highest; ``one_is_plus``: a bit that is set
    stands for +1, else for -1. The defaults are what published quantisers of this kind do.
    """

    lowest_first: bool = True
    one_is_plus: bool = True


@dataclass(slots=True)
class Context:
    """Shared by all operators that one executor runs; an operator prepared without one has one of its own."""

    state: ExecutionState = field(default_factory=ExecutionState)
    custom_ops: CustomOps = field(default_factory=default_custom_ops)
    max_iterations: int = MAX_ITERATIONS
    max_bytes: int | None = None  # largest activation, which also bounds results whose size only a run can tell
    binary_codes: BinaryCodes | None = None  # None refuses operators on binary-coded weights
    microscaling: bool = False  # False refuses operators on tensors of microscaling types
    numerics: str = "fixed"  # how fully connected layers requantise: in fixed point, or "litert": in float64
