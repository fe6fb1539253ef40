"""Packages of other tools: minimal, with a configuration, with control flow over unknown shapes, and a broken one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from odc_mlir.errors import PackageError
from odc_mlir.formats.package import read_package
from odc_mlir.ops.spec import Array


@pytest.fixture
def packages(test_data: Path) -> Path:
    return test_data / "nnpackage"


@pytest.mark.parametrize("name", ["v1.0.0/add", "v1.1.0/one_op_in_tflite"])
def test_one_addition(packages: Path, name: str) -> None:
    package = odc_mlir.load_package(packages / name)
    inputs = [np.full([dim or 1 for dim in spec.shape or ()], 3, spec.dtype) for spec in package.inputs]
    (y,) = odc_mlir.run(package, inputs)
    assert y.dtype == np.float32
    (again,) = odc_mlir.run(odc_mlir.compile(packages / name), inputs)
    np.testing.assert_array_equal(again, y)


def test_configuration(packages: Path) -> None:
    assert read_package(packages / "v1.1.0/one_op_in_tflite").config == {"BACKENDS": "cpu"}
    assert read_package(packages / "v1.0.0/add").config == {}


def test_a_broken_manifest(packages: Path) -> None:
    with pytest.raises(PackageError, match="metadata/MANIFEST is not valid JSON: Expecting ',' delimiter: line 3"):
        odc_mlir.load_package(packages / "v1.0.0/add_invalid_manifest")


def _recorded(path: Path) -> list[Array]:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path) as file:
        values = file["value"]
        return [values[str(index)][()] for index in range(len(values))]


def test_a_loop_whose_shapes_only_a_run_can_tell(packages: Path) -> None:
    package = packages / "v1.0.0/while_dynamic"
    inputs, expected = (_recorded(package / f"metadata/tc/{name}.h5") for name in ("input", "expected"))
    for runnable in (package, odc_mlir.compile(package)):
        outputs = odc_mlir.run(runnable, inputs)
        assert len(outputs) == len(expected)
        for output, values in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(output, values, rtol=1e-4, atol=1e-5)
