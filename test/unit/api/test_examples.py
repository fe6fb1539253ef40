"""The digits example runs, and its files say the same thing."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest

import odc_mlir
from helpers.data import REPOSITORY

FOLDER = REPOSITORY / "examples" / "digits"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_demo", FOLDER / "run_demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_samples_are_the_pictures(demo: ModuleType) -> None:
    package = odc_mlir.compile(FOLDER / "digits_cnn_int8.circle")
    pictures = demo.read_pictures()
    with np.load(FOLDER / "samples.npz") as archive:
        assert archive["y"].tolist() == [label for label, _ in pictures]
        for index, (_, picture) in enumerate(pictures):
            np.testing.assert_array_equal(archive[f"in_{index}_0"], demo.to_codes(picture, package.inputs[0]))


def test_the_demonstration(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run_demo.py", "--memory", "sram"])
    assert demo.main() == 0
    text = capsys.readouterr().out
    assert "7 read as 7" in text
    assert "10 of 10 pictures read correctly; host and NPU agree bit for bit on 10" in text
    assert "cycles on npu-256 (sram)" in text
