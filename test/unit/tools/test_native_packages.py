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
from odc_mlir.codegen.machine import emit_object, resolve
from odc_mlir.errors import PackageError, UnsupportedError
from odc_mlir.formats.native_segment import MAGIC, parse_native_segment
from odc_mlir.formats.package import read_package, sealed
from odc_mlir.runtime.package import Package
from odc_mlir.tools import odc_compile, odc_dump, odc_opt, odc_package, odc_report, odc_run


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


def test_sizes_of_parts_that_cancel_out(package: Path) -> None:
    (segment,) = package.glob("odc/*/*.cpu")
    parsed = parse_native_segment(segment.read_bytes())
    sizes: dict[str, object] = {"code_bytes": len(parsed.code) + len(parsed.constants) + 1, "constants_bytes": -1}
    with pytest.raises(PackageError, match="malformed"):
        parse_native_segment(with_header(package, sizes))


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
        ({"arena_bytes": 0}, False, "its digest is not the one in metadata/MANIFEST"),
        ({"entry": "system"}, True, "the object code has no function 'system'"),
        ({"outputs": [["y", "int8", [1, 9]]]}, True, "outputs of shape [1, 9], which the model does not allow"),
    ],
)
def test_changed_code_is_not_run(package: Path, changed: dict[str, object], sealed_again: bool, reason: str) -> None:
    """Even with consent host kernels run the segment, with the reason."""
    files = read_package(package)
    name = next(name for name in files.members if name.endswith(".cpu"))
    files = replace(files, members={**files.members, name: with_header(package, changed)})
    executor = Package(sealed(files) if sealed_again else files, trust_code=True).executor()
    source = np.array([[-5, 0, 3, 9]], np.int8)
    np.testing.assert_array_equal(executor.run([source])[0], [[3, 3, 3, 9]])
    assert reason in executor.fallbacks["segment-0"]


def test_what_code_may_call() -> None:
    """Names are not looked for among all that the process has."""
    target = resolve("cpu")
    text = "declare void @{0}(ptr)\ndefine void @f(ptr %p) {{\n  call void @{0}(ptr %p)\n  ret void\n}}\n"
    assert LoadedObject(emit_object(text.format("memset"), target), "f").addresses
    code = emit_object(text.format("system"), target)
    with pytest.raises(PackageError, match="calls 'system'"):
        LoadedObject(code, "f")
    with pytest.raises(PackageError, match="malformed"):
        LoadedObject(code[:200], "f")


def test_no_page_of_what_is_not_modelled(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [str(model), "--target", "cpu", "-o", str(tmp_path / "c"), "--report-html", str(tmp_path / "r")]
    assert odc_compile.main(line) == 1
    assert "no model of code" in capsys.readouterr().err
    text, out = tmp_path / "n.mlir", tmp_path / "c"
    assert odc_opt.main([str(model), "--stage", "native", "-o", str(text)]) == 0
    assert odc_compile.main([str(text), "-o", str(out), "--report-html", str(tmp_path / "r")]) == 1
    assert "no model of code" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [text]
    assert odc_compile.main([str(text), "-o", str(out)]) == 0
    assert "1 of 1 operator as code for " in capsys.readouterr().out


def test_the_report_has_placement_and_sizes(
    model: Path, package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Package.from_path(package).report
    (file,) = package.glob("odc/*/*.cpu")
    segment = parse_native_segment(file.read_bytes())
    assert report["files"] == {
        path.relative_to(package).as_posix(): path.stat().st_size for path in package.rglob("*") if path.is_file()
    }
    assert report["segments"] == [
        {
            "name": "segment-0",
            "file": file.name,
            "bytes": file.stat().st_size,
            "operators": [0],
            "macs": 0,
            "code_bytes": len(segment.code),
            "constants_bytes": len(segment.constants),
            "arena_bytes": segment.arena_bytes,
        }
    ]
    (layer,), target = report["layers"], report["target"]
    assert target == resolve("cpu").name
    assert (layer["op"], layer["name"], layer["placed"], layer["segment"]) == ("RELU", "y", target, "segment-0")
    assert (report["binary_bytes"], report["compiled_op_count"], report["host_op_count"]) == (file.stat().st_size, 1, 0)
    assert str(report).startswith(f"c.pkg: 1 of 1 operator as code for {target} in 1 segment, ")
    assert "segment-0" in report._repr_html_()
    out = tmp_path / "r.json"
    for _ in range(2):  # our own file may be replaced
        assert odc_compile.main([str(model), "--target", "cpu", "--json", str(out)]) == 0
    written = json.loads(out.read_text())
    assert written.keys() == report.keys()
    assert written["layers"] == report["layers"]
    for source in (out, package):
        assert odc_report.main([str(source)]) == 1
        assert "there is no model of" in capsys.readouterr().err
    for name in ("to_html", "to_csv", "compare", "latency_ms", "operators"):
        with pytest.raises(UnsupportedError, match=f"there is no model of code for {target}"):
            getattr(report, name)


def test_operators_that_stay_on_the_host_are_said_with_the_reason(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x, h, y = builder.tensor("x", (1, 4)), builder.tensor("h", (1, 4)), builder.tensor("y", (4, 1), "int64")
    builder.operator("ABS", [x], [h])
    builder.operator("WHERE", [builder.tensor("c", (4,), "bool", data=np.ones(4, np.bool_))], [y])
    report = odc_mlir.compile(model_bytes(builder.finish([x], [h, y])), target="cpu").report
    assert [layer["placed"] for layer in report["layers"]] == [report["target"], "host"]
    assert report["layers"][1]["reason"]
    assert (report["compiled_op_count"], report["host_op_count"]) == (1, 1)
    assert "host: " in str(report)


def test_what_is_not_compiled_has_no_report(model: Path, tmp_path: Path) -> None:
    plain = tmp_path / "p"
    assert odc_package.main(["pack", str(model), "-o", str(plain)]) == 0
    with pytest.raises(PackageError, match="nothing in this package is compiled, so there is no report"):
        _ = Package.from_path(plain).report
