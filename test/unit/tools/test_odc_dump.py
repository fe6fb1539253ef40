"""``odc-dump``: every kind of file by its content, as text and as JSON."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odc_mlir.formats.circle.model import Model, Operator, Quantization, Signature, SubGraph, Tensor
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.package import build_package, write_package
from odc_mlir.formats.plan import HostStep, Plan, SegmentStep
from odc_mlir.isa import codec, container
from odc_mlir.isa.fields import Region
from odc_mlir.tools.odc_dump import main


def _model() -> Model:
    per_tensor = Quantization(np.array([0.5], "<f4"), np.array([-3], "<i8"))
    per_axis = Quantization(
        np.array([0.5, 0.25], "<f4"), np.zeros(2, "<i8"), 1, details=("MXQuantization", {"axis": 1})
    )
    ranges = Quantization(min=np.array([-1.0], "<f4"), max=np.array([np.inf], "<f4"))
    tensors = [
        Tensor("x", "int8", (1, 2), (-1, 2), quantization=per_tensor),
        Tensor("w", "int8", (1, 2), buffer=1, quantization=per_axis),
        Tensor("tricky\n\x1b[2J", "float32", None, quantization=ranges),
        Tensor("state", "int8", (1,), is_variable=True),
        Tensor("", "int8", (1,)),
    ]
    operators = [
        Operator("ADD", inputs=(0, 1), outputs=(2,), options_type="AddOptions", options=default_options("AddOptions")),
        Operator("CUSTOM", custom_code="Erf", inputs=(2, -1), outputs=(4,), custom_options=memoryview(b"\xab" * 40)),
    ]
    return Model(
        description="a\ttab",
        subgraphs=[SubGraph("main", tensors, (0,), (4,), operators)],
        buffers=[memoryview(b""), memoryview(b"\1\2"), memoryview(b"1.14.0")],
        metadata=[("min_runtime_version", 2)],
        signatures=[Signature("serve", 0, {"in": 0}, {"out": 4})],
    )


def _segment() -> bytes:
    record = container.TensorRecord("x", "int8", (1, 2), 0.5, -3, int(Region.INPUTS), 0)
    return container.write(
        container.Container(
            code=codec.encode([codec.make("halt")]),
            constants=b"",
            inputs=(record,),
            outputs=(container.TensorRecord("y", "int8", (1, 2), None, 0, int(Region.OUTPUTS), 0),),
            operators=(container.MapEntry("y", "ADD", 1234, 0, ((0, 1),)),),
            target_digest=bytes(32),
            arena_bytes=0,
            metadata={"target": "npu-256", "target_version": 1, "memory": "flash"},
        )
    )


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def _squeezed(line: str) -> str:
    """A table row without its alignment."""
    return " ".join(line.split())


def _document(capsys: pytest.CaptureFixture[str], path: Path) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(_run(capsys, path, "--json"), parse_constant=refuse)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "any.name"
    path.write_bytes(write_model(_model()))
    return path


def test_model_as_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _run(capsys, model).splitlines()
    assert lines[0].startswith(f"{model}: Circle model, version 0, ")
    assert "description: 'a\\ttab'" in lines
    assert "signature serve: subgraph 0, (in=0) -> (out=4)" in lines
    assert "metadata min_runtime_version: buffer 2, 6 bytes" in lines
    assert "buffers: 3, of which 2 hold 8 bytes" in lines
    assert "subgraph 0 main: (0) -> (4)" in lines
    rows = [_squeezed(line) for line in lines]
    assert "0 input int8[?,2] 0.5:-3 x" in rows
    assert "1 constant int8[1,2] 1:2 2 scales along 1, type=MXQuantization axis=1 w" in rows
    assert "3 variable int8[1] state" in rows
    assert "0 ADD v1 (0, 1) -> (2) fused_activation_function=none pot_scale_int16=true" in rows
    assert f"1 CUSTOM(Erf) v1 (2, -1) -> (4) 40 bytes {'ab' * 32}..." in rows


def test_names_cannot_control_the_terminal(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _run(capsys, model)
    assert "\x1b" not in out
    assert "2 computed float32[*] range [-1] to [inf] 'tricky\\n\\x1b[2J'" in [
        _squeezed(line) for line in out.splitlines()
    ]


def test_model_as_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = _document(capsys, model)
    assert (document["format"], document["bytes"]) == ("circle", model.stat().st_size)
    assert document["signatures"] == [{"key": "serve", "subgraph": 0, "inputs": {"in": 0}, "outputs": {"out": 4}}]
    tensors = document["subgraphs"][0]["tensors"]
    assert [tensor["role"] for tensor in tensors] == ["input", "constant", "computed", "variable", "computed"]
    assert tensors[1]["quantization"]["scale"] == [0.5, 0.25]
    assert tensors[2]["quantization"]["max"] == ["inf"]
    assert document["subgraphs"][0]["operators"][1]["custom_options"] == "ab" * 40


def test_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(_segment())
    lines = _run(capsys, path).splitlines()
    assert lines[0] == f"{path}: NPU program for npu-256, memory flash, {path.stat().st_size:,} bytes"
    rows = [_squeezed(line) for line in lines]
    assert "x int8[1,2] 0.5:-3 inputs+0x0" in rows
    assert "y int8[1,2] outputs+0x0" in rows
    assert "ADD 1,234 0-0 y" in rows
    assert rows[-1] == "0 halt"
    assert _document(capsys, path)["instructions"] == ["halt"]


@pytest.mark.parametrize("name", ["package", "package.zip"])
def test_package(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    steps = (SegmentStep("segment-0.npu", (0,), (2,), (0,)), HostStep((1,)))
    plan = Plan("model.circle", (0,), (4,), steps, "npu-256", "flash")
    path = tmp_path / name
    write_package(build_package(write_model(_model()), plan, {"segment-0.npu": _segment()}), path)
    lines = _run(capsys, path).splitlines()
    assert lines[0] == f"{path}: nnpackage"
    assert "plan: target npu-256, memory flash, 2 steps" in lines
    assert "0 segment segment-0.npu (0)" in [_squeezed(line) for line in lines]
    assert any(line.startswith("model.circle: Circle model") for line in lines)
    assert any(line.startswith("segment-0.npu: NPU program for npu-256") for line in lines)
    document = _document(capsys, path)
    assert [part["format"] for part in (*document["models"], *document["segments"])] == ["circle", "npu"]


def test_every_kind_of_package_member_of_others(test_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "TFLite model" in _run(capsys, test_data / "nnpackage" / "v1.0.0" / "add")


def zipped(*names: str) -> bytes:
    """A zip file with empty members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nothing known", "file is of an unknown kind: it starts with b'nothing '"),
        (b"", "file is of an unknown kind: it starts with b''"),
        (b"\x08\0\0\0CIR0", "truncated or corrupt"),
        (b"ONPU", "header"),
        (zipped("in_0.npy"), "not an nnpackage: it is an .npz file of arrays"),
        (zipped("model/data.pkl", "model/data/0"), "a PyTorch checkpoint, which has no exported graph"),
        (zipped("x", "in_0.npy"), "not an nnpackage: it has no metadata/MANIFEST"),
        (None, "file does not exist"),
    ],
)
def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("odc-dump: error: ")
    assert error.count("\n") == 1
    assert message in error


def test_unreadable_kinds_of_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/dev/null"]) == 1
    assert "/dev/null is not a regular file" in capsys.readouterr().err
