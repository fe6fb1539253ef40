"""What compiling does grows with the program: visits are counted, because times depend on the machine."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from helpers.large_networks import chain
from odc_mlir import compiler, loading

SMALL, LARGE = 8, 24
SLACK = 1.5  # squares would make it 3
# Leaving out one resident after the other looks at all layers again: a square, of what takes microseconds.
PLANNER = {f"transforms/npu/schedule/{name}.py" for name in ("residents", "layer_plan", "window_tiling")}


def calls(model: bytes) -> Counter[str]:
    """How often functions of the compiler are called per file."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and "/odc_mlir/" in (name := frame.f_code.co_filename):
            found[name.partition("/odc_mlir/")[2]] += 1

    module = loading.import_model(model)
    sys.setprofile(count)
    try:
        compiler.compile(module, placement={"strategy": "supported"})
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.slow
def test_calls_grow_no_faster_than_the_program() -> None:
    compiler.compile(chain(4, different=False))  # imports and memos
    small, large = calls(chain(SMALL, different=False)), calls(chain(LARGE, different=False))
    assert sum(small.values()) > 10_000
    growth = {file: large[file] / count for file, count in small.items() if large[file] > 3000 and file not in PLANNER}
    assert {file: ratio for file, ratio in growth.items() if ratio > SLACK * LARGE / SMALL} == {}
