"""The functions of ``odc_mlir`` as users call them."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, add_model, host_plan, model_bytes
from odc_mlir.errors import InputError, ModelError, OptionError, PackageError, UnsupportedError
from odc_mlir.formats.package import build_package, write_package

A = np.arange(4, dtype=np.float32).reshape(1, 4)
B = np.full((1, 4), 10, np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "add.circle"
    path.write_bytes(model_bytes(add_model()))
    return path


def _quantised_add(batch: int = 1) -> bytes:
    builder = ModelBuilder()
    shape, signature = (1, 4, 4, 8), (batch, 4, 4, 8)
    a, b, c = (builder.tensor(n, shape, "int8", quant=(0.5, 3), signature=signature) for n in ("a", "b", "c"))
    builder.operator("ADD", [a, b], [c])
    return model_bytes(builder.finish([a, b], [c]))


def test_everything_public_exists() -> None:
    for name in odc_mlir.__all__:
        assert getattr(odc_mlir, name) is not None
        assert name in dir(odc_mlir)
    for package in ("odc_mlir", "odc_mlir.emitter", "odc_mlir.runtime", "odc_mlir.simulator"):
        with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
            _ = importlib.import_module(package).nothing


def test_run_a_file_by_path_text_and_bytes(model: Path) -> None:
    for source in (model, str(model), model.read_bytes()):
        for backend in ("auto", "host"):
            (out,) = odc_mlir.run(source, [A, B], backend=backend)  # type: ignore[arg-type]
            np.testing.assert_array_equal(out, 2 * A + B)


def test_tensors_inside_the_model(model: Path) -> None:
    outputs, tensors = odc_mlir.run(model, [A, B], tensors=["sum", "b"])
    np.testing.assert_array_equal(outputs[0], 2 * A + B)
    assert list(tensors) == ["sum", "b"]
    np.testing.assert_array_equal(tensors["sum"], A + B)
    assert odc_mlir.run(model, [A, B], tensors=[])[1] == {}
    with pytest.raises(OptionError, match=r"not a string; pass \['sum'\]"):
        odc_mlir.run(model, [A, B], tensors="sum")


def test_tensors_inside_a_segment_stay_there() -> None:
    builder = ModelBuilder()
    a, b, c = (builder.tensor(n, (1, 4, 4, 8), "int8", quant=(0.5, 3)) for n in ("a", "inside", "c"))
    builder.operator("ADD", [a, a], [b])
    builder.operator("ADD", [b, a], [c])
    package = odc_mlir.compile(model_bytes(builder.finish([a], [c])))
    ones = np.ones((1, 4, 4, 8), np.int8)
    with pytest.raises(OptionError, match=r"is internal to the segment .*'inside'.* use the backend host"):
        odc_mlir.run(package, [ones], tensors=["inside"])
    outputs, tensors = odc_mlir.run(package, [ones], tensors=["c"])
    np.testing.assert_array_equal(outputs[0], tensors["c"])


def test_run_takes_what_compile_takes(tmp_path: Path) -> None:
    (tmp_path / "sum.circle").write_bytes(model_bytes(add_model()))
    module = odc_mlir.load(tmp_path / "sum.circle")
    text = tmp_path / "sum.mlir"
    text.write_text(str(module))
    inputs = [np.ones((1, 4), np.float32), np.arange(4, dtype=np.float32)[None]]
    raw = model_bytes(add_model())
    for model in (module, text, str(text), str(module).encode(), bytearray(raw), memoryview(raw)):
        for backend in ("host", "npu"):
            (found,) = odc_mlir.run(model, inputs, backend=backend)  # type: ignore[arg-type]
            assert found.tolist() == [[2, 3, 4, 5]]
    for wrong in (3, None, [1]):
        with pytest.raises(OptionError, match="is not a model"):
            odc_mlir.run(wrong, inputs)


def test_run_packages(model: Path, tmp_path: Path) -> None:
    files = build_package(model.read_bytes(), host_plan(add_model()), {})
    for name in ("package", "package.zip"):
        write_package(files, tmp_path / name)
        for source in (tmp_path / name, odc_mlir.load_package(tmp_path / name)):
            np.testing.assert_array_equal(odc_mlir.run(source, [A, B])[0], 2 * A + B)


def test_run_packages_of_other_tools(test_data: Path) -> None:
    package = odc_mlir.load_package(test_data / "nnpackage" / "v1.0.0" / "add")
    inputs = [np.ones(spec.shape, spec.dtype) for spec in package.inputs]
    (out,) = odc_mlir.run(package, inputs)
    assert out.shape == package.outputs[0].shape
    with pytest.raises(PackageError, match="nothing in this package is compiled, so there is no report"):
        _ = package.report


def test_run_on_the_npu_compiles_first() -> None:
    data = _quantised_add()
    values = np.arange(128).reshape(1, 4, 4, 8)
    inputs = [values.astype(np.int8), (values - 128).astype(np.int8)]
    on_npu, on_host = (odc_mlir.run(data, inputs, backend=backend) for backend in ("npu", "host"))
    np.testing.assert_array_equal(on_npu[0], on_host[0])
    assert len(np.unique(on_host[0])) > 100
    package = odc_mlir.compile(data, target="npu-128", memory="sram")
    np.testing.assert_array_equal(odc_mlir.run(package, inputs)[0], on_host[0])


def test_another_batch_than_compiled_for(caplog: pytest.LogCaptureFixture) -> None:
    data = _quantised_add(batch=-1)
    package = odc_mlir.compile(data)
    assert package.report["npu_op_count"] == 1
    assert package.inputs[0].shape == (None, 4, 4, 8)
    inputs = [np.arange(384).reshape(3, 4, 4, 8).astype(np.int8)] * 2
    for batch in (1, 3):
        parts = [array[:batch] for array in inputs]
        np.testing.assert_array_equal(odc_mlir.run(package, parts)[0], odc_mlir.run(data, parts)[0])
    assert "host kernels run it this time" in caplog.text


def test_compile_takes_modules_and_packages(tmp_path: Path) -> None:
    data = _quantised_add()
    package = odc_mlir.compile(data)
    package.save(tmp_path / "package")
    (tmp_path / "m.circle").write_bytes(data)
    module = odc_mlir.load(tmp_path / "m.circle")
    for source in (module, package, tmp_path / "package", tmp_path / "m.circle"):
        assert odc_mlir.compile(source).files.segment("segment-0.npu") == package.files.segment("segment-0.npu")


def test_lower_leaves_its_argument_alone(model: Path) -> None:
    module = odc_mlir.load(model)
    before = str(module)
    lowered = str(odc_mlir.lower(module, stage="partition", target="npu-256"))
    assert lowered != before
    assert str(module) == before
    for source in (model, model.read_bytes(), odc_mlir.compile(model)):
        assert str(odc_mlir.import_model(source)) == before
        assert str(odc_mlir.lower(source, "partition")) == lowered


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"backend": "gpu"}, OptionError, "unknown backend 'gpu'; use one of auto, host, npu, native, litert"),
        ({"numerics": "exact"}, OptionError, "unknown numerics 'exact'"),
        (
            {"numerics": "litert", "backend": "npu"},
            UnsupportedError,
            "litert numerics are not available on the backend npu",
        ),
    ],
)
def test_options_of_run(model: Path, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        odc_mlir.run(model, [A, B], **options)


@pytest.mark.parametrize(("name", "hint"), [("bakend", "did you mean 'backend'?"), ("resize_to", "see help")])
def test_an_unknown_option_of_run_is_named(model: Path, name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"run() got an unexpected keyword argument {name!r}; {hint}")):
        odc_mlir.run(model, [A, B], **{name: "npu"})  # type: ignore[arg-type]


def test_quantising(model: Path) -> None:
    rng = np.random.default_rng(0)
    samples = [[rng.normal(size=(1, 4)).astype(np.float32) for _ in range(2)] for _ in range(16)]
    made = odc_mlir.quantize(model, scheme="uint8", calibration=samples)
    assert made.verdict["passed"]
    assert set(made.verdict["scheme"].values()) == {"uint8"}
    package = odc_mlir.compile(model, quantize="uint8", calibration=samples, help=False)
    assert package.verdict is not None
    assert package.report["quantize"] == "uint8"
    assert package.report["quantization"] == package.verdict
    assert odc_mlir.run(package, [A, B])[0].dtype == np.float32


def test_quantising_needs_data_and_to_be_asked_for(model: Path) -> None:
    with pytest.raises(InputError, match="quantising activations needs input samples"):
        odc_mlir.quantize(model)
    with pytest.raises(OptionError, match="calibration is for quantising, which was not requested"):
        odc_mlir.compile(model, calibration=[[A, B]])


def test_bad_inputs_and_files(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 inputs"):
        odc_mlir.run(model, [A])
    for function in (odc_mlir.import_model, odc_mlir.load, odc_mlir.compile):
        with pytest.raises(odc_mlir.OdcError, match=r"none\.circle"):
            function(tmp_path / "none.circle")
    (tmp_path / "text.circle").write_text("no model")
    with pytest.raises(ModelError):
        odc_mlir.run(tmp_path / "text.circle", [A, B])


def test_runs_do_not_share_state(model: Path) -> None:
    """Variables start at zero in every call, also where one package object runs all of them."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4))
    state = builder.tensor("state", (1, 4), variable=True)
    y = builder.tensor("y", (1, 4))
    builder.operator("ADD", [x, state], [y])
    records = builder.finish([x], [y])
    package = odc_mlir.Package(build_package(model_bytes(records), host_plan(records), {}))
    for _ in range(2):
        np.testing.assert_array_equal(odc_mlir.run(package, [A])[0], A)


RUN = """
import sys
import numpy as np
import odc_mlir
odc_mlir.run(sys.argv[1], [np.zeros((1, 4), np.float32)] * 2)
package = odc_mlir.load_package(sys.argv[2])
outputs = odc_mlir.run(package, [np.zeros(spec.shape, spec.dtype) for spec in package.inputs])
assert outputs and package.report["npu_op_count"] == 1
print([name for name in sys.modules if name.partition(".")[0] == "xdsl" or name == "odc_mlir.compiler"])
"""


def test_running_loads_no_compiler(model: Path, tmp_path: Path) -> None:
    odc_mlir.compile(_quantised_add()).save(tmp_path / "package")
    command = [sys.executable, "-c", RUN, str(model), str(tmp_path / "package")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
