"""What the runtime asks of whatever runs a graph's operators on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.units import Unit


class Backend(Protocol):
    """Turns operators into units that run them, in the same order: one for each operator, or fewer, larger ones."""

    name: str

    def units(self, graph: Graph, operators: Sequence[int]) -> list[Unit]:
        """Units for ``operators``; every tensor that others read is among the ``writes`` of one of them."""
