"""Package objects: what goes in and out, what is kept, and the order of fallbacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, add_model, host_plan, model_bytes
from odc_mlir.errors import PackageError
from odc_mlir.formats.package import build_package
from odc_mlir.runtime.package import Package, TensorSpec


@pytest.fixture(scope="module")
def binary_package() -> Package:
    """One int8 addition, compiled."""
    builder = ModelBuilder()
    a, b, c = (builder.tensor(name, (1, 4, 4, 8), "int8", quant=(0.5, 3)) for name in ("a", "b", "c"))
    builder.operator("ADD", [a, b], [c])
    return odc_mlir.compile(model_bytes(builder.finish([a, b], [c])))


def _damaged(package: Package) -> Package:
    """The same package with one byte of the segment changed."""
    assert package.plan is not None
    folder = (package.files.manifest.plan or "").rpartition("/")[0]
    data = bytearray(package.files.segment("segment-0.npu"))
    data[len(data) // 2] ^= 1
    members = {**package.files.members, f"{folder}/segment-0.npu": bytes(data)}
    files = build_package(members["model.circle"], package.plan, {"segment-0.npu": bytes(data)})
    return Package(files)


def test_inputs_and_outputs(binary_package: Package) -> None:
    assert binary_package.inputs == (
        TensorSpec("a", (1, 4, 4, 8), "int8", 0.5, 3),
        TensorSpec("b", (1, 4, 4, 8), "int8", 0.5, 3),
    )
    assert [spec.name for spec in binary_package.outputs] == ["c"]


def test_unquantised_and_unknown_sizes() -> None:
    model = add_model((1, 4), signature=(-1, 4))
    package = Package(build_package(model_bytes(model), host_plan(model), {}))
    assert package.inputs[0] == TensorSpec("a", (None, 4), "float32", None, None)


def test_executors_are_kept(binary_package: Package) -> None:
    assert binary_package.executor() is binary_package.executor()
    assert binary_package.executor("host") is not binary_package.executor()


def test_save_and_open(binary_package: Package, tmp_path: Path) -> None:
    binary_package.save(tmp_path / "p")
    binary_package.save(tmp_path / "p")
    (tmp_path / "p" / "note").write_text("mine")
    with pytest.raises(PackageError, match="'note' is in the way"):
        binary_package.save(tmp_path / "p")
    binary_package.save(tmp_path / "p", overwrite=True)
    assert (tmp_path / "p" / "note").read_text() == "mine"
    again = Package.from_path(tmp_path / "p")
    assert again.plan == binary_package.plan
    assert again.report["cycles_total"] == binary_package.report["cycles_total"]


def test_a_damaged_segment_runs_on_the_host(binary_package: Package, caplog: pytest.LogCaptureFixture) -> None:
    damaged = _damaged(binary_package)
    values = np.arange(128, dtype=np.int8).reshape(1, 4, 4, 8)
    expected = odc_mlir.run(binary_package, [values, values])
    np.testing.assert_array_equal(odc_mlir.run(damaged, [values, values])[0], expected[0])
    assert "checksum" in caplog.text
    with pytest.raises(PackageError, match="checksum"):
        odc_mlir.run(damaged, [values, values], strict=True)
    report = damaged.report
    assert (report["npu_op_count"], report["host_op_count"], report["cycles_total"]) == (0, 1, 0)
    assert "checksum" in report["layers"][0]["reason"]
    assert "checksum" in report["fallbacks"]["segment-0"]
