"""odc-package: each command, its output and its status."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, add_model, model_bytes
from odc_mlir.formats.package import install, read_package
from odc_mlir.tools.odc_package import main


def _models(folder: Path) -> list[str]:
    """``a`` computes |x|, ``b`` -x, both on int8 codes of one scale."""
    paths = []
    for name, operator in (("a", "ABS"), ("b", "NEG")):
        builder = ModelBuilder()
        x, y = (builder.tensor(tensor, (1, 4), "int8", quant=(0.5, 0)) for tensor in "xy")
        builder.operator(operator, [x], [y])
        path = folder / f"{name}.circle"
        path.write_bytes(model_bytes(builder.finish([x], [y])))
        paths.append(str(path))
    return paths


JOINED = ["--graph-input", "0:0:0", "--graph-output", "1:0:0", "--connect", "0:0:0=1:0:0"]


def test_pack_inspect_unpack_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "my.cfg"
    config.write_text("BACKENDS = cpu # which\n")
    packed = str(tmp_path / "p.zip")
    assert main(["pack", *_models(tmp_path), "-o", packed, "-c", str(config), *JOINED]) == 0
    (y,) = odc_mlir.run(packed, [np.array([[-1, 2, -3, 4]], np.int8)])
    assert y.tolist() == [[-1, -2, -3, -4]]
    assert "next: odc-run" in capsys.readouterr().out
    assert main(["inspect", packed, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["models"] == ["a.circle", "b.circle"]
    assert document["connected"]
    assert document["config"] == {"BACKENDS": "cpu"}
    assert document["outputs"][0]["scale"] == 0.5
    assert document["compiled"] is None
    folder = str(tmp_path / "p")
    assert main(["unpack", packed, folder]) == 0
    assert capsys.readouterr().out == f"next: odc-run {folder} --load DATA\n"
    assert dict(read_package(folder).members) == dict(read_package(packed).members)
    assert main(["verify", folder]) == 0
    assert capsys.readouterr().out == "6 checks, 0 problems\n"
    assert main(["unpack", packed, folder]) == 0
    Path(folder, "note").write_text("mine")
    assert main(["unpack", packed, folder]) == 1
    assert "'note' is in the way" in capsys.readouterr().err
    assert main(["unpack", packed, folder, "--overwrite"]) == 0
    assert Path(folder, "note").read_text() == "mine"


def test_text_of_a_compiled_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p"
    odc_mlir.compile(_models(tmp_path)[0], placement={"strategy": "supported"}).save(path)
    assert main(["inspect", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "models: model.circle" in lines
    assert "connected: false" in lines
    assert "  target: npu-256" in lines
    assert any(line.startswith("    file segment-0.npu, bytes ") for line in lines)


def test_a_damaged_segment_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p"
    odc_mlir.compile(_models(tmp_path)[0], placement={"strategy": "supported"}).save(path)
    (segment,) = path.glob("odc/*/segment-0.npu")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    assert main(["verify", str(path)]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^member odc/\w+/segment-0\.npu: it was changed", out)
    assert "\nsegment segment-0.npu: " in out
    assert out.endswith(", 2 problems\n")


def test_rollback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = _models(tmp_path)
    path = str(tmp_path / "p")
    assert main(["pack", first, "-o", path]) == 0
    install(path, odc_mlir.compile(second).files)
    assert odc_mlir.run(path, [np.ones((1, 4), np.int8)])[0][0, 0] == -1
    assert main(["rollback", path]) == 0
    assert capsys.readouterr().out.endswith(f"{path} runs a.circle again\n")
    assert odc_mlir.run(path, [np.ones((1, 4), np.int8)])[0][0, 0] == 1
    assert main(["rollback", path]) == 1
    assert "nothing was installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--connect", "0:0:0"], "the connection '0:0:0' is not of the form"),
        (["--connect", "0:0:0=x"], "'x' in .* not of the form model:subgraph:index"),
        (["--graph-input", "0:0:0"], "must list 'pkg-inputs' and 'pkg-outputs'"),
        ([*JOINED[:4], "--connect", "0:0:0=1:0:3"], "nothing is connected to input 1:0:0"),
    ],
)
def test_refusals(tmp_path: Path, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p"
    assert main(["pack", *_models(tmp_path), "-o", str(out), *arguments]) == 1
    assert re.search(text, capsys.readouterr().err)
    assert not out.exists()


def test_two_models_of_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.circle"
    path.write_bytes(model_bytes(add_model()))
    assert main(["pack", str(path), str(path), "-o", str(tmp_path / "p")]) == 1
    assert "two models are called 'm.circle'" in capsys.readouterr().err


def test_verify_compares_with_the_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "p"
    assert main(["pack", *_models(tmp_path)[:1], "-o", str(folder)]) == 0
    model = folder / "a.circle"
    model.write_bytes(model.read_bytes() + b"\0")
    (folder / "note").write_text("mine")
    assert main(["verify", str(folder)]) == 1
    told = capsys.readouterr().out
    assert "member a.circle: it was changed" in told
    assert "member note: it was added" in told
    manifest = folder / "metadata" / "MANIFEST"
    document = json.loads(manifest.read_text())
    document["odc-files"]["gone"] = "0" * 64
    manifest.write_text(json.dumps(document))
    assert main(["verify", str(folder)]) == 1
    told = capsys.readouterr().out
    assert "member gone: the member 'gone' is missing" in told
    assert "member metadata/MANIFEST: it was changed" in told
    del document["odc-files"], document["odc-digest"]
    manifest.write_text(json.dumps(document))
    assert main(["verify", str(folder)]) == 0  # as packages of other tools
