"""What can be done with a package, told by its stamps: each of them changed, each state."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from helpers.sessions import quantised
from odc_mlir.errors import ModelError
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.manifest import MANIFEST_PATH
from odc_mlir.formats.native_segment import parse_native_segment
from odc_mlir.formats.package import PackageFiles, parse_package
from odc_mlir.runtime import Session, validity
from odc_mlir.runtime.validity import check
from odc_mlir.tools import odc_package


@pytest.fixture(scope="module")
def packages() -> dict[str, PackageFiles]:
    module = odc_mlir.load(model_bytes(quantised()))
    return {
        "npu": odc_mlir.compile(module, target="npu-256", placement={"strategy": "supported"}).files,
        "cpu": odc_mlir.compile(module, target="cpu").files,
    }


def changed(files: PackageFiles, name: str, change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    """The members with one changed: the segment, or ``plan.json`` or ``model.circle`` with its digest listed."""
    path = next(path for path in files.members if path.endswith(name))
    members = {**files.members, path: change(files.members[path])}
    return members if name.startswith(".") else listed(members, path)


def listed(members: dict[str, bytes], path: str) -> dict[str, bytes]:
    """The members with the digest of ``path`` in the manifest."""
    manifest = json.loads(members[MANIFEST_PATH])
    manifest["odc-files"][path] = content_digest(members[path])
    return {**members, MANIFEST_PATH: json.dumps(manifest).encode()}


def plan_with(**values: object) -> Callable[[bytes], bytes]:
    return lambda data: json.dumps({**json.loads(data), **values}).encode()


def byte_at(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes([data[place] ^ 0x5A]) + data[place % len(data) + 1 :]


def native_with(**values: object) -> Callable[[bytes], bytes]:
    return lambda data: replace(parse_native_segment(data), **values).to_bytes()  # type: ignore[arg-type]


def newer_operator(data: bytes) -> bytes:
    model = read_model(data)
    model.subgraphs[0].operators[0].version = 99
    return bytes(write_model(model))


@pytest.mark.parametrize("kind", ["npu", "cpu"])
def test_what_was_compiled_here_runs(kind: str, packages: dict[str, PackageFiles], tmp_path: Path) -> None:
    found = check(packages[kind])
    assert (found.state, found.target) == ("runs", packages[kind].plan.target)  # type: ignore[union-attr]
    odc_mlir.Package(packages[kind]).save(tmp_path / "p")
    assert odc_mlir.check(tmp_path / "p") == found  # type: ignore[attr-defined]


STAMPS = [
    ("npu", "plan.json", plan_with(schema_version=99), "cannot", "plan schema version 99 is newer"),
    ("npu", "plan.json", plan_with(compiler_version="0.0.1"), "rebuild", "compiled by version 0.0.1, this is"),
    ("npu", ".npu", byte_at(4), "rebuild", "container 91, instruction set 1; this simulator runs 1 and 1"),
    ("npu", ".npu", byte_at(0), "rebuild", "not an NPU program"),
    ("npu", ".npu", byte_at(8), "rebuild", "the description of npu-256 has changed"),
    ("npu", ".npu", lambda data: data[:-1], "rebuild", "the header says"),
    ("npu", ".npu", lambda data: data[: len(data) // 2], "rebuild", "the header says"),
    ("npu", ".npu", byte_at(-1), "rebuild", "checksum of the section"),
    ("npu", ".npu", byte_at(40), "rebuild", "checksum of the header"),
    ("npu", ".npu", lambda data: b"", "rebuild", "not an NPU program"),
    ("cpu", ".cpu", lambda data: data[: len(data) // 2], "rebuild", "its checksum is wrong"),
    ("cpu", ".cpu", byte_at(-1), "rebuild", "its checksum is wrong"),
    ("cpu", ".cpu", lambda data: b"", "rebuild", "no .cpu file of this version"),
    ("npu", "model.circle", newer_operator, "cannot", "version 99 of this operator is newer than"),
    ("npu", "model.circle", lambda data: b"nothing", "cannot", "no Circle or TFLite model"),
    ("cpu", ".cpu", byte_at(7), "rebuild", "no .cpu file of this version"),
    ("cpu", ".cpu", native_with(features=("wings",)), "rebuild", "this machine lacks wings"),
    ("cpu", ".cpu", native_with(triple="vax-dec-vms"), "rebuild", "it is for vax, this machine is"),
    ("cpu", "plan.json", plan_with(compiler_version=""), "rebuild", "compiled by version unknown"),
]


@pytest.mark.parametrize(("kind", "name", "change", "state", "reason"), STAMPS)
def test_each_stamp(
    kind: str,
    name: str,
    change: Callable[[bytes], bytes],
    state: str,
    reason: str,
    packages: dict[str, PackageFiles],
    tmp_path: Path,
) -> None:
    for path, data in changed(packages[kind], name, change).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    found = check(tmp_path)
    assert found.state == state
    assert reason in found.reason


def test_other_targets(packages: dict[str, PackageFiles], monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(packages["npu"], "npu-512").reason.endswith("compiled for npu-256, not for npu-512")
    assert check(packages["npu"], "npu-512").state == "rebuild"
    assert check(packages["npu"], "npu-256").state == "runs"
    assert check(packages["cpu"], "npu-256").state == "rebuild"
    assert check(packages["npu"], "tvn-gen").state == "cannot"  # there is no such compiler
    with pytest.raises(odc_mlir.OdcError, match="unknown target 'npu-7'"):
        check(packages["npu"], "npu-7")
    uncompiled = parse_package(
        {
            "metadata/MANIFEST": b'{"models": ["model.circle"], "model-types": ["circle"]}',
            "model.circle": packages["npu"].model,
        },
        "test",
    )
    assert check(uncompiled).state == "runs"
    assert check(uncompiled, "cpu").state == "rebuild"
    monkeypatch.setitem(sys.modules, "llvmlite", None)  # as if it were not installed
    for source, target in ((uncompiled, "cpu"), (packages["npu"], "cpu"), (packages["cpu"], None)):
        found = check(source, target)
        assert found.state == "cannot"
        assert "pip install 'odc-mlir[native]'" in found.reason
    assert check(packages["npu"]).state == "runs"


def test_what_is_no_package_and_what_has_nothing_compiled(
    packages: dict[str, PackageFiles], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text = tmp_path / "m.circle", tmp_path / "t.zip"
    model.write_bytes(packages["npu"].model)
    text.write_text("nothing")
    assert check(model).state == check(text).state == "cannot"
    assert "it is a model, not a package" in check(model).reason
    assert "it is not a package: neither a folder nor a zip file" in check(text).reason
    assert odc_package.main(["inspect", str(model)]) == 1
    assert "it is a model, not a package" in capsys.readouterr().err
    host = odc_mlir.compile(odc_mlir.load(packages["npu"].model), target="npu-256", placement={"min_operators": 99})
    assert (check(host).state, check(host).reason) == ("runs", "nothing in it is compiled: host kernels run it")


def test_a_device_that_is_not_here(packages: dict[str, PackageFiles]) -> None:
    files = packages["npu"]
    path = next(path for path in files.members if path.endswith(".npu"))
    members = {name.replace(".npu", ".mya"): data for name, data in files.members.items()}
    plan = next(name for name in members if name.endswith("plan.json"))
    members[plan] = members[plan].replace(b".npu", b".mya")
    assert path not in members
    found = check(parse_package(listed(members, plan), "test"))
    assert found.state == "cannot"


@pytest.mark.parametrize("name", ["plan.json", "model.circle"])
def test_a_changed_plan_or_model_never_runs(name: str, packages: dict[str, PackageFiles], tmp_path: Path) -> None:
    odc_mlir.Package(packages["npu"]).save(tmp_path / "p")
    file = next((tmp_path / "p").rglob(name))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    message = rf"{name}' was changed: its digest is not the one in"
    assert re.search(message, check(tmp_path / "p").reason)
    with pytest.raises(odc_mlir.OdcError, match=message):
        odc_mlir.run(tmp_path / "p", [])
    with pytest.raises(odc_mlir.OdcError, match=message):
        Session(str(tmp_path / "p"))


def test_a_device_that_examines_nothing(packages: dict[str, PackageFiles], monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        name, simulated = "plain", False

    monkeypatch.setattr(validity, "open_device", lambda _extension: Plain())
    assert check(packages["cpu"]).state == "runs"
    found = check(parse_package(changed(packages["cpu"], ".cpu", byte_at(-1)), "test"))
    assert found.state == "rebuild"
    assert "its digest is not the one in metadata/MANIFEST" in found.reason


def test_the_command(packages: dict[str, PackageFiles], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odc_mlir.Package(packages["npu"]).save(tmp_path / "p")
    assert odc_package.main(["check", str(tmp_path / "p")]) == 0
    assert capsys.readouterr().out.startswith("runs: ")
    assert odc_package.main(["check", str(tmp_path / "p"), "--target", "cpu", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["state"] == "rebuild"


def joined(first: float, second: float) -> bytes:
    """CONCATENATION of int8 codes with these scales, behind a RELU that the NPU runs."""
    builder = ModelBuilder()
    x, y, z = (
        builder.tensor(name, (1, 4), "int8", quant=(scale, 0))
        for name, scale in (("x", first), ("y", first), ("z", second))
    )
    out = builder.tensor("out", (1, 8), "int8", quant=(first, 0))
    builder.operator("RELU", [x], [y])
    builder.operator("CONCATENATION", [y, z], [out], options={"axis": 1})
    return model_bytes(builder.finish([x, z], [out]))


@pytest.mark.parametrize("target", ["npu-256", "cpu"])
def test_what_no_kernel_runs_is_refused_by_the_compiler(target: str) -> None:
    assert check(odc_mlir.compile(joined(0.5, 0.5), target=target)).state == "runs"
    with pytest.raises(ModelError, match="different scales or zero points"):
        odc_mlir.compile(joined(0.5, 0.25), target=target)


@pytest.mark.parametrize("scale", [0.5, 0.0])
def test_kernels_behind_shapes_computed_from_an_open_batch_are_checked(scale: float) -> None:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 4), "int8", signature=(-1, 4), quant=(0.5, 0)) for name in "xy")
    size = builder.tensor("size", (2,), "int32")
    out = builder.tensor("out", (1, 4), "int8", signature=(-1, 4), quant=(scale, -128))
    builder.operator("SHAPE", [x], [size], options={"out_type": "int32"})
    builder.operator("RESHAPE", [x, size], [y])
    builder.operator("LOGISTIC", [y], [out])
    model = model_bytes(builder.finish([x], [out]))
    if scale:
        assert check(odc_mlir.compile(model)).state == "runs"
    else:
        with pytest.raises(ModelError, match="must be positive and finite"):
            odc_mlir.compile(model)


def test_a_package_with_an_operator_that_no_kernel_runs_cannot_run() -> None:
    files = odc_mlir.compile(joined(0.5, 0.5), placement={"host": ["RELU", "CONCATENATION"]}).files
    same = changed(files, "model.circle", lambda _: joined(0.5, 0.5))
    assert check(parse_package(same, "test")).state != "cannot"
    other = changed(files, "model.circle", lambda _: joined(0.5, 0.25))
    found = check(parse_package(other, "test"))
    assert found.state == "cannot"
    assert "different scales or zero points" in found.reason


def test_a_custom_operator_with_a_scratch_tensor_can_be_read_but_not_compiled() -> None:
    builder = ModelBuilder()
    x, scratch, y = (builder.tensor(name, (1, 4)) for name in ("x", "scratch", "y"))
    builder.operator("CUSTOM", [x, scratch], [y], custom_code="vendor-npu")
    model = model_bytes(builder.finish([x], [y]))
    assert odc_mlir.load(model)
    with pytest.raises(ModelError, match="'scratch' is read before anything produces it"):
        odc_mlir.compile(model)
