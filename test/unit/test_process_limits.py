"""What holds processes: limits that they set on themselves, and the end of what they started."""

from __future__ import annotations

import math
import os
import subprocess
import sys

from odc_mlir.process_limits import Limits, end_group

SHOW = """
import resource
from odc_mlir.process_limits import Limits
{before}
{limits}.hold_this_process()
print(resource.getrlimit(resource.RLIMIT_CPU)[0], resource.getrlimit(resource.RLIMIT_AS)[0])
"""

ALLOWED = """
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
"""


def shown(limits: Limits, before: str = "") -> tuple[int, int]:
    """Limits of processor seconds and of memory that a process has that holds itself to ``limits``."""
    code = SHOW.format(before=before, limits=limits)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, memory = map(int, done.stdout.split())
    return seconds, memory


def test_seconds_of_the_clock_are_as_many_of_every_processor() -> None:
    assert shown(Limits(1.5, 3 << 30)) == (math.ceil(1.5 * (os.cpu_count() or 1)) + 1, 3 << 30)


def test_what_has_no_limit_is_left_as_it_is() -> None:
    before = (
        "resource.setrlimit(resource.RLIMIT_CPU, (777, 888)); resource.setrlimit(resource.RLIMIT_AS, (5 << 30,) * 2)"
    )
    assert shown(Limits(None, None), before) == (777, 5 << 30)


def test_what_the_system_allows_is_not_exceeded() -> None:
    assert shown(Limits(1e6, 4 << 30), ALLOWED.format(seconds=5, memory=2 << 30)) == (5, 2 << 30)


def test_nothing_of_a_group_is_left() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 100 & echo started; wait"], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        end_group(process.pid)
        assert process.communicate(timeout=60)[0] == b""  # at its end no process that could write is left
    end_group(process.pid)
