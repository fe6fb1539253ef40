"""Models that we quantise, run by LiteRT: it accepts them and computes the same integers as our host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.data import Array
from helpers.models import ModelBuilder
from odc_mlir import pipelines, transforms
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.recording import record
from odc_mlir.transforms.quant.common.ir import quantized_function
from odc_mlir.transforms.quant.quant_attach_ranges import attach_ranges, ranges_of
from odc_mlir.universe import make_context

MODELS = ("digits_cnn", "digits_mobile", "digits_mobile_hard", "digits_dynbatch", "digits_unet")
SAMPLES = 24


def samples(folder: Path, model: str, split: str) -> list[Array]:
    suffix = "_denoise" if model == "digits_unet" else ""
    with np.load(folder / f"{split}{suffix}.npz") as file:
        images = next(array for array in file.values() if array.ndim == 4)
    return [images[i : i + 1].astype(np.float32) for i in range(SAMPLES)]


def quantised(path: Path, scheme: str, calibration: Sequence[Array], io: str) -> Model:
    context, module = make_context(), import_model(read_model(path))
    pipelines.run(context, module, "circle-opt")
    statistics = record(HostExecutor(build_graph(export_model(module))), [[x] for x in calibration]).statistics()
    function = quantized_function(module)
    assert function is not None
    attach_ranges(function, ranges_of(statistics, "minmax"))
    for name, options in (
        ("quant-assign-params", {"scheme": scheme, "reader": "litert"}),
        ("quant-propagate-params", {}),
        ("convert-circle-to-quant", {"io": io}),
        ("quant-insert-requantize", {}),
        ("quant-verify-params", {}),
    ):
        transforms.load(name)(**options).apply(context, module)
        module.verify()
    return export_model(module)


def interpreter(model: Model) -> Any:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    made = litert.Interpreter(
        model_content=write_tflite(model), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    made.allocate_tensors()
    return made


def litert_outputs(made: Any, x: Array) -> Array:
    made.set_tensor(made.get_input_details()[0]["index"], x)
    made.invoke()
    return np.asarray(made.get_tensor(made.get_output_details()[0]["index"]))


@pytest.mark.parametrize("scheme", ["int8", "int8x4", "int16x8"])
@pytest.mark.parametrize("name", MODELS)
def test_litert_computes_the_same_codes(test_data: Path, name: str, scheme: str) -> None:
    """Newer versions of LiteRT requantise fully connected layers in real numbers, so our host is asked to as well."""
    folder = test_data / "models" / "digits"
    model = quantised(folder / f"{name}.circle", scheme, samples(folder, name, "calibration"), "quantized")
    made, data = interpreter(model), bytes(write_model(model))
    quant = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].quant_params()
    assert quant is not None
    dtype = made.get_input_details()[0]["dtype"]
    info = np.iinfo(dtype)
    for x in samples(folder, name, "evaluation"):
        codes = np.clip(np.round(x / np.float32(quant.scale)) + quant.zero_point, info.min, info.max).astype(dtype)
        (ours,) = odc_mlir.run(data, [codes], backend="host", numerics="litert")
        np.testing.assert_array_equal(ours, litert_outputs(made, codes))


def test_litert_runs_weights_only(test_data: Path) -> None:
    """Its real arithmetic differs from ours in the last bits, its weights do not."""
    folder = test_data / "models" / "digits"
    module = import_model(read_model(folder / "digits_cnn.circle"))
    transforms.load("quant-weights-only")().apply(make_context(), module)
    model = export_model(module)
    made, data = interpreter(model), bytes(write_model(model))
    for x in samples(folder, "digits_cnn", "evaluation"):
        (ours,) = odc_mlir.run(data, [x], backend="host")
        np.testing.assert_allclose(ours, litert_outputs(made, x), atol=1e-5)


@pytest.mark.parametrize("name", ["ad01_fp32", "pretrainedResnet", "vww_96_float"])
def test_weights_only_models_are_small(test_data: Path, name: str) -> None:
    """A byte for four of weights; beside that a scale and a zero point for each channel, and little else."""
    module = import_model(read_model(test_data / "models" / "zoo" / f"{name}.circle"))
    before = len(write_model(export_model(module)))
    transforms.load("quant-weights-only")().apply(make_context(), module)
    model = export_model(module)
    coded = [item for item in model.subgraphs[0].tensors if item.quantization is not None and item.buffer]
    codes = sum(len(model.buffers[item.buffer]) for item in coded)
    channels = sum(item.quantization.scale.size for item in coded if item.quantization is not None)
    assert len(write_model(model)) <= before - 3 * codes + 12 * channels + 1024


@pytest.mark.parametrize(("most", "largest"), [(1.0, 3.0), (3.0, 20.0), (8.0, 1.0)])
def test_litert_makes_the_same_table_of_an_exponential(most: float, largest: float) -> None:
    """Entries come of exponentials that are rounded once: those of a few units less may be a code off."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 1 << 16), "int16", quant=(most / 32768, 0))
    y = builder.tensor("y", (1, 1 << 16), "int16", quant=(largest / 32768, 0))
    builder.operator("EXP", [x], [y])
    model = builder.finish([x], [y])
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.int16)[None]
    ours = odc_mlir.run(bytes(write_model(model)), [codes], numerics="litert")[0]
    np.testing.assert_array_equal(ours, litert_outputs(interpreter(model), codes))
