"""Runs a prepared program batch by batch, and shows the values of each together: one by one that takes long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from odc_mlir.runtime.execution.specialization import SpecializedGraph
from odc_mlir.runtime.execution.units import Step, Unit, Values

WatchTogether = Callable[[tuple[int, ...], Values], None]
"""Is shown several tensors that a run has computed: their indices, and values by index, which may be more than these.

It must neither change nor keep the values. Each place in a program always gives the same indices.
"""

# A batch ends when it has computed so many bytes: what lives longer than without batches, and what is shown while
# it is still in the cache.
_BATCH_BYTES = 1 << 18

_Batch = tuple[tuple[Step, ...], tuple[int, ...], tuple[int, ...]]  # steps, what they write, what nothing reads then


class StepBatches:
    """A program whose units all have a step, beginning with ``inputs``."""

    def __init__(
        self,
        program: Sequence[tuple[Unit, Step | None, tuple[int, ...]]],
        shaped: SpecializedGraph,
        inputs: Sequence[int],
    ) -> None:
        self._program = program
        self._shaped = shaped
        self._inputs = inputs
        self._batches: list[_Batch] = []

    def run(self, values: Values, watch: WatchTogether) -> None:
        """Run all of it on the inputs in ``values``; ``watch`` sees the inputs and what every unit computes."""
        if not self._batches:
            self._batches = self._divide()
        with np.errstate(all="ignore"):
            for steps, written, dead in self._batches:
                for step in steps:
                    step(values)
                watch(written, values)
                for index in dead:
                    del values[index]

    def _divide(self) -> list[_Batch]:
        found: list[_Batch] = []
        steps: list[Step] = []
        written, dead = list(self._inputs), list[int]()
        size = sum(map(self._shaped.nbytes, written))
        for unit, step, unused in self._program:
            if size >= _BATCH_BYTES:
                found.append((tuple(steps), tuple(dict.fromkeys(written)), tuple(dead)))
                steps, written, dead, size = [], [], [], 0
            if step is not None:
                steps.append(step)
            written += unit.writes
            dead += unused
            size += sum(map(self._shaped.nbytes, unit.writes))
        found.append((tuple(steps), tuple(dict.fromkeys(written)), tuple(dead)))
        return found
