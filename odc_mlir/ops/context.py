"""Context of operators: state that persists between runs, and options of all operators.

An executor's reset clears all three kinds of state:

- *Variable tensors.* ``Operand(..., mutated=True)`` in the table declares operands that an operator writes. For custom
  operators, the model's ``mutating_variable_inputs`` declares them. The kernel changes a writable array in place, see
  :class:`~odc_mlir.ops.spec.Operand`. Variables start at real zero, the zero point.
- *Resources* behind a handle: resource variables and hash tables.
- *Private state* of an operator (``node.private_state()``), such as the position of a random number generator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from odc_mlir.ops.registry import CustomOps, default_custom_ops

T = TypeVar("T")

MAX_ITERATIONS = 1 << 16
"""Largest number of iterations of a WHILE."""


@dataclass(slots=True)
class ExecutionState:
    """State except variable tensors: ``resources`` by kind and name, ``private`` by the operator's position."""

    resources: dict[Hashable, Any] = field(default_factory=dict)
    private: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)

    def reset(self) -> None:
        self.resources.clear()
        self.private.clear()

    def resource(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the resource for ``key``, created on first use."""
        if key not in self.resources:
            self.resources[key] = make()
        found: T = self.resources[key]
        return found


@dataclass(frozen=True, slots=True)
class BinaryCodes:
    """Interpretation of binary-coded weights. The format is not specified publicly.

    If ``lowest_first``, the first sign of a word is its lowest bit, else its highest bit. If ``one_is_plus``, a set bit
    means +1, else -1. The defaults follow published quantisers of this kind.
    """

    lowest_first: bool = True
    one_is_plus: bool = True


@dataclass(slots=True)
class Context:
    """Context of all operators of an executor. An operator that is prepared alone has its own context."""

    state: ExecutionState = field(default_factory=ExecutionState)
    custom_ops: CustomOps = field(default_factory=default_custom_ops)
    max_iterations: int = MAX_ITERATIONS
    max_bytes: int | None = None  # limit on each activation, including results whose size depends on values
    binary_codes: BinaryCodes | None = None  # if None, operators on binary-coded weights are rejected
    microscaling: bool = False  # if False, operators on microscaling types are rejected
    threads: int | None = None  # of native code and BLAS; None: one, but BLAS's own number for large operators
    numerics: str = "fixed"  # "litert": order of sums and roundings of LiteRT's reference kernels; "fixed": of the NPU
