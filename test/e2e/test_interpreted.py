"""The IR run directly, after each stage that works on tensors, gives what the model gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers.data import golden_samples
from helpers.interpreting import run_module

STAGES = ("circle", "circle-opt", "quant", "partition", "npu")
MODELS = (
    "zoo/kws_ref_model",
    "zoo/str_ww_ref_model",
    "zoo/ad01_int8",
    "digits/digits_cnn_int8",
    "lstm/keras_lstm_mnist_ptq",
)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", MODELS)
def test_stage(name: str, stage: str, test_data: Path) -> None:
    model = test_data / "models" / f"{name}.circle"
    module = odc_mlir.lower(odc_mlir.load(model), stage, target="npu-256")
    for sample in list(golden_samples(model.parent / "golden" / f"{model.stem}.npz"))[:4]:
        for found, expected in zip(run_module(module, sample.inputs), sample.outputs, strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["digits_cnn", "digits_mobile", "digits_unet"])
def test_float_models_keep_their_values(name: str, test_data: Path) -> None:
    model = test_data / "models" / "digits" / f"{name}.circle"
    module = odc_mlir.lower(odc_mlir.load(model), "partition", target="npu-256")
    sample = next(golden_samples(model.parent / "golden" / f"{name}.npz"))
    for found, expected in zip(run_module(module, sample.inputs), sample.outputs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
