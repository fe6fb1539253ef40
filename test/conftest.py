"""Fixtures and hooks of every test: the data folder, a time limit per test, and a summary of what was skipped."""

from __future__ import annotations

import os

# Products are small, and the workers of a parallel run would fight for cores: numpy reads this when it loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import faulthandler
import gc
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling

from helpers.data import MISSING, data_folder

DEFAULT_TIMEOUT_SECONDS = 120.0
STUCK_SECONDS = 400.0

# Tests with such a part in their name verify IR after every pass. The others verify it after every stage, as users do:
# verification takes a third of a compilation.
VERIFYING_EACH_PASS = ("filecheck", "random", "conformance")

# The same examples in every run: a red run can be repeated. Time is limited per test below, not per example.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Property tests: the same examples in each run, and no limit per example, which a busy machine would exceed.
settings.register_profile("odc", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("odc")


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder with models, golden outputs and the conformance corpus; skips where there is none."""
    folder = data_folder()
    if folder is None:
        pytest.skip(MISSING)
    return folder


class _Watch:
    """Ends the run with a stack dump when a test is stuck inside native code, where its time limit does not reach.

    pytest's own option starts a thread for each test, which takes a millisecond.
    """

    stderr = 2
    begun = 0.0

    @classmethod
    def begin(cls, seconds: float) -> None:
        """Expect the end of a test within ``seconds`` from now."""
        now = time.monotonic()
        if seconds > STUCK_SECONDS or now > cls.begun + STUCK_SECONDS / 10:
            cls.begun = now
            faulthandler.dump_traceback_later(max(seconds, STUCK_SECONDS), exit=True, file=cls.stderr)


def pytest_configure() -> None:
    """Make a cache for this run of the tests, which neither depend on the user's cache nor fill it."""
    os.environ["ODC_CACHE_DIR"] = tempfile.mkdtemp(prefix="odc-test-cache-")
    _Watch.stderr = os.dup(2)  # output is not captured yet
    gc.disable()  # until all tests are collected: what is made then stays


def pytest_collection_finish() -> None:
    """Keep the garbage collector off modules and tests, and let it look seldom for the little that it finds."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_unconfigure() -> None:
    faulthandler.cancel_dump_traceback_later()
    shutil.rmtree(os.environ["ODC_CACHE_DIR"], ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="also run the tests marked soak, which take minutes each")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _name_groups(config, items)
    if config.getoption("--soak"):
        return
    left_out = [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadGroupScheduling | None:
    """Give a worker whole files, whose tests share models, instead of single tests; groups stay together too."""
    return _Files(config, log) if config.getoption("dist") == "loadgroup" else None


class _Files(LoadGroupScheduling):
    """A scheduler of files and groups."""

    def _split_scope(self, nodeid: str) -> str:
        group = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else group


def _name_groups(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Append its group to the id of a test in a worker, where xdist looks for it.

    xdist 3.8 does so itself, in a field that pytest no longer reads from version 9.1 on.
    """
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and item.parent is not None and not item.nodeid.endswith(f"@{mark.args[0]}"):
            item._id = item.parent.id.child(f"{item.name}@{mark.args[0]}")


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else DEFAULT_TIMEOUT_SECONDS


@contextmanager
def _time_limit(item: pytest.Item) -> Generator[None]:
    """Fail what runs inside when it takes longer than the test's limit; the traceback shows where it was."""
    seconds = _limit(item)

    def expired(_signal: int, _frame: FrameType | None) -> None:
        pytest.fail(f"took longer than {seconds:g} s; a slower test needs @pytest.mark.timeout(seconds)")

    previous = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    _Watch.begin(2 * _limit(item) + 60)  # set up and run
    os.environ["ODC_VERIFY_EACH"] = "1" if any(part in item.nodeid for part in VERIFYING_EACH_PASS) else "0"
    with _time_limit(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _time_limit(item):
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped and why, one line per reason."""
    reasons = Counter(_skip_reason(report) for report in terminalreporter.stats.get("skipped", []))
    terminalreporter.section(f"{reasons.total()} skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5d}  {reason}")


def _skip_reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)
