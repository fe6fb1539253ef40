"""Threads that compute parts together: they begin with a run and end with the team, whatever happens."""

from __future__ import annotations

import gc
import os
import threading
from multiprocessing import get_context

import pytest

from odc_mlir.runtime.execution.team import Team


def parts() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("odc-part-")]


def never() -> None:
    raise AssertionError("no part is missing")


def test_all_parts_are_computed_side_by_side() -> None:
    before = len(parts())
    team = Team(3)
    assert len(parts()) == before
    together = threading.Barrier(3, timeout=30)
    seen: set[tuple[int, int]] = set()

    def work(number: int) -> int:
        together.wait()  # passes only where all parts run at the same time
        seen.add((number, threading.get_ident()))
        return number + 7

    for _ in range(5):
        assert team.run(work, never) == 7
    assert sorted(number for number, _ in seen) == [0, 1, 2]  # the same threads every time
    assert (0, threading.get_ident()) in seen
    team.close()
    assert len(parts()) == before
    assert team.run(work, never) == 7
    team.close()


def test_a_team_that_nobody_holds_has_no_threads() -> None:
    team = Team(2)
    team.run(lambda number: number, never)
    threads = parts()
    assert threads
    del team
    gc.collect()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)


def test_an_interrupt_leaves_nobody_waiting() -> None:
    team, given_up = Team(2), threading.Event()

    def work(number: int) -> int:
        if number == 0:
            raise KeyboardInterrupt
        assert given_up.wait(30)
        return 0

    with pytest.raises(KeyboardInterrupt):
        team.run(work, given_up.set)
    assert given_up.is_set()
    assert not parts()
    assert team.run(lambda number: 5, never) == 5
    team.close()


def _in_child(team: Team) -> None:
    seen = []
    team.run(lambda number: seen.append(number) or 0, never)  # type: ignore[func-returns-value]
    os._exit(0 if sorted(seen) == [0, 1] else 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is nothing to fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    team = Team(2)
    team.run(lambda number: 0, never)
    child = get_context("fork").Process(target=_in_child, args=(team,))
    child.start()
    child.join(timeout=60)
    assert child.exitcode == 0
    assert team.run(lambda number: 3, never) == 3
    team.close()
