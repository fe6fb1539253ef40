"""Golden outputs by one executor for all samples, and by the command: what callers other than ``run`` use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.data import GoldenModel, golden_models
from odc_mlir.errors import UnsupportedError
from odc_mlir.runtime.api import open_executor
from odc_mlir.tools import odc_run

MODELS = golden_models("zoo", "digits")


def _assert_golden(found: np.ndarray, golden: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (golden.dtype, golden.shape)
    if golden.dtype.kind == "f":
        np.testing.assert_allclose(found, golden, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, golden)


@pytest.mark.parametrize("model", MODELS)
def test_one_executor_for_all_samples(model: GoldenModel) -> None:
    executor = open_executor(model.circle)
    samples = list(model.samples())
    try:
        executor.prepare([array.shape for array in samples[0].inputs])
    except UnsupportedError as error:
        pytest.skip(error.message)
    for sample in samples:
        for found, golden in zip(executor.run(sample.inputs), sample.outputs, strict=True):
            _assert_golden(found, golden)


@pytest.mark.parametrize("model", golden_models("digits"))
def test_samples_by_the_command(model: GoldenModel, tmp_path: Path) -> None:
    file = model.folder / "golden" / f"{model.name}.npz"
    arguments = [model.circle, "-q", "--load", file, "--samples", "--dump", tmp_path / "out.npz"]
    assert odc_run.main([str(argument) for argument in arguments]) == 0
    with np.load(file) as golden, np.load(tmp_path / "out.npz") as found:
        _assert_golden(found["out_0"], golden["out_0"])


def test_numbered_samples_by_the_command(test_data: Path, tmp_path: Path) -> None:
    zoo = test_data / "models" / "zoo"
    file = zoo / "golden" / "kws_ref_model.npz"
    arguments = [zoo / "kws_ref_model.circle", "-q", "--load", file, "--dump", tmp_path / "out.npz"]
    assert odc_run.main([str(argument) for argument in arguments]) == 0
    with np.load(file) as golden, np.load(tmp_path / "out.npz") as found:
        assert found.files == [name for name in golden.files if name.startswith("out")]
        for name in found.files:
            _assert_golden(found[name], golden[name])


def test_accuracy_of_the_digits(test_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The accuracies that the models were published with, on real digits with labels."""
    folder = test_data / "models" / "digits"
    for name, flags, accuracy in (("digits_cnn", [], "97.655"), ("digits_cnn_int8", ["--force_float"], "97.822")):
        arguments = [str(folder / f"{name}.circle"), "--load", str(folder / "evaluation.npz"), "--samples", *flags]
        assert odc_run.main(arguments) == 0
        assert f"top1_percent {accuracy} over 597 samples" in capsys.readouterr().out
