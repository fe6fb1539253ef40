"""Strategies of single NPU instructions."""

from __future__ import annotations

from hypothesis import strategies as st

from odc_mlir.isa.codec import Instr
from odc_mlir.isa.fields import SEMAPHORES, Queue
from odc_mlir.isa.instructions import INSTRUCTIONS


@st.composite
def instructions(draw: st.DrawFn) -> Instr:
    """Any instruction with any values that its fields hold."""
    spec = draw(st.sampled_from(INSTRUCTIONS))
    values = {field.name: draw(st.integers(*field.range)) for field in spec.fields}
    semaphores = st.lists(st.integers(0, SEMAPHORES - 1), max_size=2).map(tuple)
    queue = draw(st.sampled_from(Queue)) if spec.queue is None else spec.queue
    steps = None
    if spec.addresses and draw(st.booleans()):
        halves = [1 << (field.step_bits - 1) for field in spec.addresses]
        steps = tuple(draw(st.integers(-half, half - 1)) for half in halves)
    return Instr(spec, values, draw(semaphores), draw(semaphores), queue, steps)
