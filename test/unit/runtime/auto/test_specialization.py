"""The state machine of a specialisation: its table, and the diagram in the documentation."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from odc_mlir.runtime.auto.candidates import ExecutorCandidate
from odc_mlir.runtime.auto.settings import Level, Phase
from odc_mlir.runtime.auto.specialization import (
    BUSY,
    TRANSITIONS,
    Active,
    Collecting,
    New,
    Opening,
    Rejected,
    Serving,
    Specialization,
    Track,
    TrackEvent,
    TrackState,
    Verifying,
    Working,
)
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph

CANDIDATE = ExecutorCandidate(Level.COMPILED, HostExecutor(Graph("g", 0, (), (), (), ())))
STATES: list[TrackState] = [
    New(),
    Opening(),
    Collecting(),
    Working(phase=Phase.QUANTIZING),
    Active(),
    Verifying(candidate=CANDIDATE),
    Rejected(),
]


def track(state: TrackState) -> Track:
    found = Track()
    found.state = state
    return found


@pytest.mark.parametrize(
    ("before", "event"), list(product(STATES, TrackEvent)), ids=lambda item: str(item).split("(")[0]
)
def test_events_lead_where_the_table_says(before: TrackState, event: TrackEvent) -> None:
    allowed = TRANSITIONS.get((type(before), event))
    for after in STATES:
        machine = track(before)
        if type(after) is allowed:
            machine.on(event, after)
            assert machine.state is after
        else:
            with pytest.raises(RuntimeError, match=f"cannot lead from {type(before).__name__} to"):
                machine.on(event, after)
            assert machine.state is before


def test_every_state_can_be_reached_and_left() -> None:
    reached: set[type[TrackState]] = {New}
    while more := {after for (before, _), after in TRANSITIONS.items() if before in reached} - reached:
        reached |= more
    assert reached == {type(state) for state in STATES} == {before for before, _ in TRANSITIONS}


def test_the_documentation_has_the_diagram() -> None:
    arrows: dict[tuple[str, str], list[str]] = {}
    for (source, event), target in TRANSITIONS.items():
        arrows.setdefault((source.__name__, target.__name__), []).append(event)
    lines = [f"    {source} --> {target}: {', '.join(events)}" for (source, target), events in arrows.items()]
    diagram = "\n".join(["stateDiagram-v2", "    [*] --> New", *lines])
    text = Path(__file__).parents[4].joinpath("docs", "design", "on_device.md").read_text()
    assert f"```mermaid\n{diagram}\n```" in text, f"put this diagram there:\n{diagram}"


@pytest.mark.parametrize("state", STATES, ids=lambda item: str(item).split("(")[0])
def test_a_forked_child_has_nobody_who_works(state: TrackState) -> None:
    machine = track(state)
    machine.abandon()
    assert not isinstance(machine.state, BUSY)
    assert machine.state is state or type(machine.state) in (Active, Collecting)


def test_what_fails_is_given_up_one_after_another() -> None:
    other = ExecutorCandidate(Level.QUANTIZED, CANDIDATE.executor)
    machine = track(Active(serving=Serving((CANDIDATE, other)), retry_at=3.0))
    machine.give_up(CANDIDATE, "compiled: broken")
    assert machine.state == Active(serving=Serving((other,)), retry_at=3.0)
    machine.give_up(other, "quantized: broken")
    assert machine.state == Rejected(reason="quantized: broken")
    borrowed = track(Working(phase=Phase.COMPILING, serving=Serving((other,))))
    borrowed.give_up(other, "quantized: broken")
    assert borrowed.state == Working(phase=Phase.COMPILING)


@pytest.mark.parametrize(
    ("quantized", "direct", "reason"),
    [
        (Collecting(), Working(phase=Phase.COMPILING), "the float model itself is compiled first"),
        (Collecting(), Working(phase=Phase.COMPILING, is_queued=True), "another compile process is at work"),
        (Collecting(reason="why"), Working(phase=Phase.COMPILING), "why"),
        (Collecting(), Collecting(), None),
        (Working(phase=Phase.QUANTIZING), Rejected(reason="slow"), None),
        (Active(), Rejected(reason="slow"), None),
        (Rejected(reason="floats only"), Active(), "floats only"),
        (Rejected(reason="floats only"), Rejected(reason="slow"), "floats only; slow"),
        (Rejected(reason="no device"), Rejected(reason="no device"), "no device"),
        (Rejected(), Rejected(), None),
    ],
)
def test_reasons_while_nothing_new_serves(quantized: TrackState, direct: TrackState, reason: str | None) -> None:
    spec = Specialization(((1, 4),))
    spec.quantized, spec.direct = track(quantized), track(direct)
    assert spec.reason == reason
