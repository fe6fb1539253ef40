"""Threads of matrix products: limited during small runs, BLAS's own number for large ones and between runs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from helpers.data import REPOSITORY
from helpers.kernels import blas_threads, chain, zeros
from odc_mlir.errors import OptionError
from odc_mlir.ops.context import Context
from odc_mlir.runtime.execution.blas_threads import BlasLimit
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.session import Session

DIGITS = REPOSITORY / "examples" / "on_device" / "digits_cnn.circle"
OWN = 3  # the number that the application chose

pytestmark = pytest.mark.skipif(not blas_threads(), reason="threads of numpy's BLAS cannot be chosen")


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    with threadpool_limits(OWN, user_api="blas"):
        yield


@pytest.mark.parametrize(
    ("macs", "threads", "expected"),
    [("", None, 1), ("almost_large", None, 1), ("large", None, OWN), ("large", 1, 1), ("", 2, 2)],
)
def test_a_run_has_one_thread_unless_an_operator_is_large_or_the_user_chooses(
    macs: str, threads: int | None, expected: int
) -> None:
    executor = HostExecutor(chain("gives_blas_threads", macs=macs), context=Context(threads=threads))
    for _ in range(2):
        assert executor.run([zeros(2)])[0][0] == expected
        assert blas_threads() == {OWN}
    assert executor.run([zeros(2)], observe=lambda event: None)[0][0] == expected


def test_a_failed_run_returns_the_threads() -> None:
    with pytest.raises(Exception, match="ZeroDivisionError"):
        HostExecutor(chain("raises")).run([zeros(2)])
    assert blas_threads() == {OWN}


def test_the_last_of_overlapping_runs_returns_the_threads() -> None:
    first, second = BlasLimit(1), BlasLimit(1)
    with first:
        second.__enter__()
    assert blas_threads() == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == {OWN}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_forgets_the_runs_of_its_parent() -> None:
    with BlasLimit(1):
        child = os.fork()
        if child == 0:
            with BlasLimit(2):
                is_limited = blas_threads() == {2}
            os._exit(0 if is_limited and blas_threads() == {1} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(("threads", "expected"), [(None, 1), (2, 2)])
def test_the_threads_of_a_session(monkeypatch: pytest.MonkeyPatch, threads: int | None, expected: int) -> None:
    limits: list[int] = []
    monkeypatch.setattr("odc_mlir.runtime.execution.executor.BlasLimit", lambda n: limits.append(n) or BlasLimit(n))
    with Session(DIGITS, threads=threads) as session:
        session.infer([np.zeros((1, 8, 8, 1), np.float32)])
    assert limits == [expected]


def test_an_invalid_number_of_threads() -> None:
    with pytest.raises(OptionError, match="NUM_THREADS cannot be '0'"):
        Session(DIGITS, threads=0)
