"""Every model file of the test data is read and written."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from helpers.data import MISSING, data_folder
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.schema import tflite_schema
from odc_mlir.formats.circle.writer import write_model


def _files() -> list[object]:
    """Files in bundles, so that listing hundreds of tests does not take longer than running them."""
    root = data_folder()
    if root is None:
        return [pytest.param([], marks=pytest.mark.skip(reason=MISSING), id="no-test-data")]
    files = sorted(path for suffix in ("circle", "tflite") for path in root.glob(f"**/*.{suffix}"))
    bundles: dict[str, list[Path]] = {}
    for path in files:
        folder = path.parent.relative_to(root).as_posix()
        bundles.setdefault(f"{folder}/{path.name[0]}" if "conformance" in folder else folder, []).append(path)
    return [pytest.param(paths, id=name) for name, paths in bundles.items()]


@pytest.mark.parametrize("paths", _files())
def test_round_trip(paths: list[Path]) -> None:
    for path in paths:
        model = read_model(path)
        assert model.unknown == [], path
        data = write_model(model)
        again = read_model(data)
        expected = model if model.schema == "circle" else dataclasses.replace(model, schema="circle", version=0)
        assert again == expected, path
        assert write_model(again) == data, path


@pytest.mark.parametrize("paths", _files())
def test_quantisation_is_consistent(paths: list[Path]) -> None:
    for path in paths:
        for subgraph in read_model(path).subgraphs:
            for tensor in subgraph.tensors:
                params = tensor.quant_params()
                assert params is None or len(params.scales) == len(params.zero_points)


@pytest.mark.parametrize("name", ["zoo/kws_ref_model", "zoo/ad01_int8", "zoo-int16/digits_cnn_int16"])
def test_both_formats_hold_the_same(test_data: Path, name: str) -> None:
    circle, tflite = (read_model(test_data / "models" / f"{name}.{suffix}") for suffix in ("circle", "tflite"))
    assert dataclasses.replace(tflite, schema="circle", version=circle.version) == circle


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kws_ref_model", "pretrainedResnet_quant", "vww_96_float"])
def test_an_independent_runtime_reads_what_we_write(test_data: Path, name: str) -> None:
    """Where the schemas agree, a file of ours is a TFLite file but for its identifier."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    import numpy as np

    path = test_data / "models" / "zoo" / f"{name}.tflite"
    model = dataclasses.replace(read_model(path), schema="circle")  # keeps the version
    written = write_model(model).replace(b"CIR0", tflite_schema().identifier, 1)
    results = []
    for content in (path.read_bytes(), written):
        runtime = interpreter.Interpreter(model_content=content)
        runtime.allocate_tensors()
        details = runtime.get_input_details()[0]
        values = np.random.default_rng(1).uniform(-100, 100, details["shape"]).astype(details["dtype"])
        runtime.set_tensor(details["index"], values)
        runtime.invoke()
        results.append(runtime.get_tensor(runtime.get_output_details()[0]["index"]))
    np.testing.assert_array_equal(results[0], results[1])
