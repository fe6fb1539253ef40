"""Packages: the same bytes every time, and usable by a process that knows nothing of the compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers.compiled import Compiled
from helpers.data import golden_samples

COMPILE = "import odc_mlir, sys; odc_mlir.compile(sys.argv[1]).save(sys.argv[2])"

RUN_WITHOUT_COMPILER = """
import sys
for blocked in ("xdsl", "odc_mlir.compiler", "odc_mlir.dialects", "odc_mlir.transforms", "odc_mlir.emitter"):
    sys.modules[blocked] = None
import json
import numpy as np
import odc_mlir
package = odc_mlir.load_package(sys.argv[1])
with np.load(sys.argv[2]) as archive:
    outputs = odc_mlir.run(package, [archive["in_0"]])
np.savez(sys.argv[3], *outputs)
"""


def _python(code: str, *arguments: object, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["pretrainedResnet_quant"])
def test_same_input_same_bytes(name: str, test_data: Path, tmp_path: Path) -> None:
    """Two processes with different hash seeds write the same package."""
    model = test_data / "models" / "zoo" / f"{name}.circle"
    for seed in ("1", "2"):
        _python(COMPILE, model, tmp_path / seed, PYTHONHASHSEED=seed)
    first, second = _contents(tmp_path / "1"), _contents(tmp_path / "2")
    assert first.keys() == second.keys()
    assert [member for member in first if first[member] != second[member]] == []


def test_the_zip_is_the_same_twice_and_runs(test_data: Path, tmp_path: Path) -> None:
    folder = test_data / "models" / "digits"
    package = odc_mlir.compile(folder / "digits_cnn_int8.circle")
    for name in ("one.zip", "two.zip"):
        package.save(tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert zipfile.ZipFile(tmp_path / "one.zip").testzip() is None
    sample = next(golden_samples(folder / "golden" / "digits_cnn_int8.npz"))
    (output,) = odc_mlir.run(odc_mlir.load_package(tmp_path / "one.zip"), sample.inputs)
    np.testing.assert_array_equal(output, sample.outputs[0])


@pytest.mark.parametrize("name", ["str_ww_ref_model", "vww_96_int8"])
def test_runs_without_compiler(name: str, test_data: Path, tmp_path: Path, compiled: Compiled) -> None:
    zoo = test_data / "models" / "zoo"
    package = compiled(zoo / f"{name}.circle")
    sample = next(golden_samples(zoo / "golden" / f"{name}.npz"))
    np.savez(tmp_path / "in.npz", in_0=sample.inputs[0])
    _python(RUN_WITHOUT_COMPILER, package, tmp_path / "in.npz", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        np.testing.assert_array_equal(archive["arr_0"], sample.outputs[0])


def test_the_packages_model_runs_on_the_host_alone(test_data: Path, compiled: Compiled) -> None:
    """Any Circle reader can run a package's ``model.circle``: it is the whole model."""
    zoo = test_data / "models" / "zoo"
    package = compiled(zoo / "kws_ref_model.circle")
    for sample in golden_samples(zoo / "golden" / "kws_ref_model.npz"):
        (output,) = odc_mlir.run(package / "model.circle", sample.inputs, backend="host")
        np.testing.assert_array_equal(output, sample.outputs[0])


def test_a_damaged_segment_falls_back_to_the_host(
    test_data: Path, tmp_path: Path, compiled: Compiled, caplog: pytest.LogCaptureFixture
) -> None:
    """The outputs are right, the reason is said, and --strict makes it an error."""
    zoo = test_data / "models" / "zoo"
    damaged = tmp_path / "damaged"
    shutil.copytree(compiled(zoo / "kws_ref_model.circle"), damaged)
    (segment,) = damaged.rglob("*.npu")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    sample = next(golden_samples(zoo / "golden" / "kws_ref_model.npz"))
    (output,) = odc_mlir.run(odc_mlir.load_package(damaged), sample.inputs)
    np.testing.assert_array_equal(output, sample.outputs[0])
    assert "was changed" in caplog.text
    with pytest.raises(odc_mlir.OdcError, match="was changed"):
        odc_mlir.run(odc_mlir.load_package(damaged), sample.inputs, strict=True)


def test_an_open_batch_stays_open(test_data: Path, compiled: Compiled) -> None:
    """Segments run one sample at a time; another batch size runs too, with the same results."""
    zoo = test_data / "models" / "zoo"
    package = odc_mlir.load_package(compiled(zoo / "pretrainedResnet_quant.circle"))
    samples = list(golden_samples(zoo / "golden" / "pretrainedResnet_quant.npz"))[:2]
    assert package.inputs[0].shape == (None, 32, 32, 3)
    (output,) = odc_mlir.run(package, [np.concatenate([sample.inputs[0] for sample in samples])])
    np.testing.assert_array_equal(output, np.concatenate([sample.outputs[0] for sample in samples]))


def test_the_plan_refers_to_the_model_and_its_segments(test_data: Path, compiled: Compiled) -> None:
    package = compiled(test_data / "models" / "zoo" / "kws_ref_model.circle")
    (plan_file,) = package.glob("odc/*/plan.json")
    plan = json.loads(plan_file.read_text())
    assert plan["schema_version"] == 1
    files = [step["file"] for step in plan["steps"] if step["kind"] == "segment"]
    assert sorted(files) == sorted(path.name for path in plan_file.parent.glob("*.npu"))
    covered = [index for step in plan["steps"] for index in step["operators"]]
    assert sorted(covered) == list(range(len(covered)))
