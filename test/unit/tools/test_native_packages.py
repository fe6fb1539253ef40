"""Packages of native code in the commands: nothing modelled is told of them, and everything reads them."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.codegen.loading import LoadedObject
from odc_mlir.codegen.machine import resolve
from odc_mlir.codegen.objects import emit_object
from odc_mlir.errors import PackageError
from odc_mlir.formats.native_segment import MAGIC, parse_native_segment
from odc_mlir.formats.package import read_package, sealed
from odc_mlir.runtime.package import Package
from odc_mlir.tools import odc_compile, odc_dump, odc_package, odc_run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 4), "int8", quant=(0.5, 3)) for name in "xy")
    builder.operator("RELU", [x], [y])
    path = tmp_path_factory.mktemp("native") / "q.circle"
    path.write_bytes(model_bytes(builder.finish([x], [y])))
    return path


@pytest.fixture(scope="module")
def package(model: Path) -> Path:
    path = model.with_name("c.pkg")
    odc_mlir.compile(model, target="cpu").save(path)
    return path


def test_a_run_says_what_is_measured(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile, trace = tmp_path / "p.json", tmp_path / "t.json"
    assert odc_run.main([str(package), "--profile", str(profile), "--trace", str(trace)]) == 0
    told = capsys.readouterr().out
    assert "EXECUTE " in told
    assert not re.search(r"modelled|NPU|simulat", told, re.IGNORECASE)
    document = json.loads(profile.read_text())
    assert document["modelled"] is None
    assert list(document["segments"].values()) == [{}]


def test_dump_and_verify(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_package.main(["verify", str(package)]) == 0
    (segment,) = package.glob("odc/*/*.cpu")
    parsed = parse_native_segment(segment.read_bytes())
    for path in (package, segment):
        assert odc_dump.main([str(path)]) == 0
        told = capsys.readouterr().out
        assert f"native code for {parsed.target}, " in told
        assert re.search(r"^ +x +int8\[1,4\]$", told, re.MULTILINE)
    assert odc_dump.main([str(segment), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["features"] == list(parsed.features)
    assert document["code_bytes"] == len(parsed.code)
    assert document["outputs"] == [{"name": "y", "dtype": "int8", "shape": [1, 4]}]


@pytest.mark.parametrize(
    "changed",
    [
        {"code_bytes": -1},
        {"target": 1},
        {"arena_bytes": True},
        {"alignment_bytes": 0},
        {"alignment_bytes": 96},
        {"alignment_bytes": 1},
        {"alignment_bytes": 1 << 20},
        {"slack_bytes": 0},
        {"slack_bytes": 1 << 60},
        {"arena_bytes": 1 << 60},
        {"inputs": [["x", "int8", ["1"]]]},
        {"inputs": [["x", "object", [1]]]},
        {"inputs": [["x", "string", [1]]]},
        {"outputs": [["y", "int8", [-1, 10]]]},
        {"outputs": [["y", "int8", [1 << 40, 1 << 40]]]},
    ],
)
def test_headers_of_others(package: Path, changed: dict[str, object]) -> None:
    with pytest.raises(PackageError, match="malformed"):
        parse_native_segment(with_header(package, changed))


def with_header(package: Path, changed: dict[str, object]) -> bytes:
    """The segment of ``package`` with another header, and a checksum that is right."""
    (segment,) = package.glob("odc/*/*.cpu")
    data = segment.read_bytes()
    start, length = len(MAGIC) + 40, int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    header = json.dumps({**json.loads(data[start : start + length]), **changed}).encode()
    body = header + data[start + length :]
    return MAGIC + len(header).to_bytes(8, "little") + hashlib.sha256(body).digest() + body


@pytest.mark.parametrize(
    ("changed", "sealed_again", "reason"),
    [
        ({"arena_bytes": 0}, False, "its checksum is wrong by metadata/MANIFEST"),
        ({"entry": "system"}, True, "the object code has no function 'system'"),
        ({"outputs": [["y", "int8", [1, 9]]]}, True, "outputs of shape [1, 9], which the model does not allow"),
    ],
)
def test_changed_code_is_not_run(package: Path, changed: dict[str, object], sealed_again: bool, reason: str) -> None:
    """Host kernels stand in, with the reason."""
    files = read_package(package)
    name = next(name for name in files.members if name.endswith(".cpu"))
    files = replace(files, members={**files.members, name: with_header(package, changed)})
    executor = Package(sealed(files) if sealed_again else files).executor()
    source = np.array([[-5, 0, 3, 9]], np.int8)
    np.testing.assert_array_equal(executor.run([source])[0], [[3, 3, 3, 9]])
    assert reason in executor.fallbacks["segment-0"]


def test_what_code_may_call() -> None:
    """Names are not looked for among all that the process has."""
    target = resolve("cpu")
    text = "declare void @{0}(ptr)\ndefine void @f(ptr %p) {{\n  call void @{0}(ptr %p)\n  ret void\n}}\n"
    assert LoadedObject(emit_object(text.format("memset"), target), "f").address
    code = emit_object(text.format("system"), target)
    with pytest.raises(PackageError, match="calls 'system'"):
        LoadedObject(code, "f")
    with pytest.raises(PackageError, match="malformed"):
        LoadedObject(code[:200], "f")


@pytest.mark.parametrize("flag", ["--report-json", "--report-html"])
def test_no_report_of_what_is_not_modelled(
    flag: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [str(model), "--target", "cpu", "-o", str(tmp_path / "c"), flag, str(tmp_path / "r")]
    assert odc_compile.main(line) == 1
    assert "no model of native code" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
