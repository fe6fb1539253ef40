"""Models run by the host kernels give the golden outputs: quantised ones exactly, float ones within tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers.data import Array, GoldenModel, golden_models, golden_samples


def assert_matches(found: Sequence[Array], expected: Sequence[Array]) -> None:
    """Integers must be equal; floats agree with the reference kernels to rounding of sums in another order."""
    assert len(found) == len(expected)
    for ours, golden in zip(found, expected, strict=True):
        assert ours.dtype == golden.dtype
        if golden.dtype.kind == "f":
            np.testing.assert_allclose(ours, golden, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(ours, golden)


def assert_golden(model: GoldenModel, file: Path) -> None:
    """Every golden sample of the model, run from ``file``."""
    for sample in model.samples():
        assert_matches(odc_mlir.run(file, sample.inputs, backend="host"), sample.outputs)


@pytest.mark.parametrize("model", golden_models("zoo", "zoo-int16", "digits"))
def test_golden_outputs(model: GoldenModel) -> None:
    assert_golden(model, model.circle)


@pytest.mark.parametrize("model", golden_models("zoo", "zoo-int16"))
def test_the_tflite_file_is_the_same_model(model: GoldenModel) -> None:
    assert_golden(model, model.tflite)


def test_dynamic_batch(test_data: Path) -> None:
    folder = test_data / "models" / "digits"
    samples = list(golden_samples(folder / "golden" / "digits_dynbatch.npz"))
    batch = np.concatenate([sample.inputs[0] for sample in samples])
    golden = np.concatenate([sample.outputs[0] for sample in samples])
    assert_matches(odc_mlir.run(folder / "digits_dynbatch.circle", [batch], backend="host"), [golden])
