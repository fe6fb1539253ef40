"""Reading, checking and compiling a model takes work in proportion to its size, whatever it is large by."""

from __future__ import annotations

import cProfile
from collections.abc import Callable

import pytest

import odc_mlir
from helpers.costly import MODELS
from helpers.models import model_bytes
from odc_mlir.support.text import module_text, parse_module
from odc_mlir.universe import make_context


def _calls(action: Callable[[bytes], object], kind: str, size: int) -> int:
    """Functions that ``action`` calls on a model, which tells work without a clock."""
    data, profile = model_bytes(MODELS[kind](size)), cProfile.Profile()
    profile.runcall(action, data)
    return sum(entry.callcount for entry in profile.getstats())


def _read_text(data: bytes) -> object:
    return parse_module(make_context(), module_text(odc_mlir.load(data)))


STEPS: dict[str, Callable[[bytes], object]] = {
    "lint": odc_mlir.lint,
    "read text": _read_text,
    "optimize": odc_mlir.optimize,
    "compile": lambda data: odc_mlir.compile(data, target="npu-256"),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", MODELS)
def test_work_grows_with_size(kind: str, step: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    _calls(STEPS[step], kind, 10)  # prepares what is prepared once
    small, middle, large = (_calls(STEPS[step], kind, size) for size in (10, 20, 40))
    assert large - middle < 2.4 * (middle - small)
