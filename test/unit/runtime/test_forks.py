"""Processes that are forked while another thread runs the same session: each answers, and answers right."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers import kernels
from helpers.kernels import chain, zeros
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.background import Background
from odc_mlir.runtime.execution.executor import HostExecutor

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_cnn_int8.circle"
INPUTS = [np.arange(64, dtype=np.int8).reshape(1, 8, 8, 1)]
LIMIT_SECONDS = 30

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing can be forked here"),
]


def succeeds_in_a_child(work: Callable[[], bool]) -> bool:
    """Whether ``work`` gives True in a forked process, which a signal ends where it hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT_SECONDS)
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Gate:
    """Holds the other threads' runs of a kernel, so that a fork finds them in the middle of one."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.keeper = threading.get_ident()

    def pass_through(self) -> None:
        if threading.get_ident() != self.keeper:
            self.entered.set()
            self.leave.wait(LIMIT_SECONDS)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate()

    def waiting(node: Node) -> Execute:
        def execute(operands: list[Array]) -> list[Array]:
            found.pass_through()
            return [operands[0] + 1]

        return execute

    monkeypatch.setattr(kernels, "identity", waiting)
    yield found
    found.leave.set()


def test_an_executor_that_another_thread_runs(gate: Gate) -> None:
    executor = HostExecutor(chain("identity"))
    other = threading.Thread(target=lambda: executor.run([zeros(2)]))
    other.start()
    assert gate.entered.wait(LIMIT_SECONDS)
    assert succeeds_in_a_child(lambda: bool((executor.run([zeros(2)])[0] == 1).all()))
    gate.leave.set()
    other.join()
    assert (executor.run([zeros(2)])[0] == 1).all()


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("backend", ["host", "native"])
def test_a_session_that_another_thread_runs(backend: str, threads: str) -> None:
    with Session(DIGITS, settings={"NUM_THREADS": threads}) as session:
        session.set_available_backends(backend)
        (expected,) = session.infer(INPUTS)
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                session.infer(INPUTS)

        other = threading.Thread(target=work)
        other.start()
        try:
            for _ in range(5):
                assert succeeds_in_a_child(lambda: bool((session.infer(INPUTS)[0] == expected).all()))
        finally:
            stop.set()
            other.join()


def test_a_session_whose_lock_another_thread_holds() -> None:
    """The fork comes in the middle of a call for certain; a thread's own call is left as it is."""
    session = Session(DIGITS)
    (expected,) = session.infer(INPUTS)
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with session._core.lock:
            held.set()
            leave.wait(LIMIT_SECONDS)

    other = threading.Thread(target=hold)
    other.start()
    held.wait(LIMIT_SECONDS)
    assert succeeds_in_a_child(lambda: bool((session.infer(INPUTS)[0] == expected).all()))
    leave.set()
    other.join()
    with session._core.lock:
        lock = session._core.lock
        assert succeeds_in_a_child(lambda: session._core.lock is lock)


def test_a_run_in_the_background_is_done_by_the_child_that_waits_for_it() -> None:
    session = Session(DIGITS)
    session.set_prepare_config("ENABLE_INTERNAL_OUTPUT_ALLOC")
    session.prepare()
    session.set_input(0, INPUTS[0])
    (expected,) = odc_mlir.run(DIGITS, INPUTS)

    def ends() -> bool:
        session.wait()
        return bool((session.get_output(0) == expected).all())

    session.run_async()
    assert succeeds_in_a_child(ends)
    assert ends()


def test_work_in_the_background_is_the_parents() -> None:
    background, begun, leave = Background("held"), threading.Event(), threading.Event()

    def task() -> None:
        begun.set()
        leave.wait(LIMIT_SECONDS)

    assert background.submit(task)
    assert begun.wait(LIMIT_SECONDS)

    def work() -> bool:
        done: list[int] = []
        return background.wait(LIMIT_SECONDS) and background.submit(lambda: done.append(1)) and background.wait(5)

    assert succeeds_in_a_child(work)
    leave.set()
    assert background.wait(LIMIT_SECONDS)
