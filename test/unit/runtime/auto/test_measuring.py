"""Times of what was made beside what serves, as the background process takes them."""

from __future__ import annotations

import subprocess
import sys

# Under a limit of processor time the system counts a process's in ticks of milliseconds, in which nothing is seen here.
UNDER_A_LIMIT = """
import resource
from odc_mlir.runtime.auto.measuring import side_by_side

class Busy:
    def __init__(self, times):
        self.times = times

    def run(self, inputs):
        for _ in range(self.times):
            pass

resource.setrlimit(resource.RLIMIT_CPU, (600, resource.getrlimit(resource.RLIMIT_CPU)[1]))
short, long = side_by_side([Busy(100), Busy(100000)], [])
print(0 < short < long)
"""


def test_short_runs_are_measured_under_a_limit_of_processor_time() -> None:
    done = subprocess.run([sys.executable, "-c", UNDER_A_LIMIT], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
