"""nnpackages on disk: whole or not there, the same bytes every time, and nothing hostile is followed."""

from __future__ import annotations

import dataclasses
import os
import shutil
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odc_mlir.errors import PackageError
from odc_mlir.formats import manifest, package
from odc_mlir.formats.manifest import MANIFEST_PATH
from odc_mlir.formats.package import PackageFiles, build_package, is_package, read_package, write_package
from odc_mlir.formats.plan import HostStep, Plan, SegmentStep

PLAN = Plan("model.circle", (0,), (2,), (SegmentStep("segment-0.npu", (0,), (1,), (0,)), HostStep((1,))), "npu-256")
MODEL, SEGMENT = b"the model", b"the segment"


@pytest.fixture
def files() -> PackageFiles:
    made = build_package(MODEL, PLAN, {"segment-0.npu": SEGMENT})
    config = {"A": "1", **made.config}
    members = {**made.members, manifest.CONFIG_PATH: manifest.format_config(config)}
    return package.sealed(dataclasses.replace(made, members=members, config=config))


def _tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _zip(path: Path, content: Mapping[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            info = zipfile.ZipInfo(name)
            if change is not None:
                change(info)
            archive.writestr(info, data)
    return path


@pytest.mark.parametrize("name", ["package", "package.zip", "deep/er/package"])
def test_round_trip(files: PackageFiles, tmp_path: Path, name: str) -> None:
    write_package(files, tmp_path / name)
    assert is_package(tmp_path / name)
    read = read_package(tmp_path / name)
    assert dict(read.members) == dict(files.members)
    assert (read.manifest, read.plan, read.config) == (files.manifest, PLAN, {"A": "1", "ODC_TARGET": "npu-256"})
    assert (read.model, read.segment("segment-0.npu")) == (MODEL, SEGMENT)
    assert sorted(os.listdir(tmp_path)) == [name.partition("/")[0]]


def test_key_depends_on_everything_compiled(files: PackageFiles) -> None:
    other = build_package(MODEL, PLAN, {"segment-0.npu": b"another"})
    assert files.manifest.plan != other.manifest.plan
    assert files.manifest.plan == build_package(MODEL, PLAN, {"segment-0.npu": SEGMENT}).manifest.plan


def test_plan_and_segments_must_agree() -> None:
    for segments in ({}, {"segment-0.npu": b"", "segment-1.npu": b""}):
        with pytest.raises(PackageError, match=r"the plan names the segments \['segment-0.npu'\], but"):
            build_package(MODEL, PLAN, segments)


def test_zips_are_reproducible(files: PackageFiles, tmp_path: Path) -> None:
    write_package(files, tmp_path / "a.zip")
    write_package(files, tmp_path / "b.ZIP")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.ZIP").read_bytes()


def test_permissions_follow_the_umask(files: PackageFiles, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    write_package(files, tmp_path / "package")
    assert stat.S_IMODE((tmp_path / "package").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


OTHER = build_package(b"new", Plan("model.circle", (), (), ()), {})


@pytest.mark.parametrize("name", ["package", "package.zip"])
def test_our_own_package_is_replaced(files: PackageFiles, tmp_path: Path, name: str) -> None:
    write_package(files, tmp_path / name)
    write_package(OTHER, tmp_path / name)
    assert dict(read_package(tmp_path / name).members) == dict(OTHER.members)
    assert os.listdir(tmp_path) == [name]


def _edit(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


CHANGES: dict[str, Callable[[Path], object]] = {
    "README.md": lambda folder: (folder / "README.md").write_text("mine"),
    "odc/note": lambda folder: (folder / "odc" / "note").write_text("mine"),
    "metadata/config.cfg": lambda folder: _edit(folder / "metadata" / "config.cfg"),
    "metadata/MANIFEST": lambda folder: (folder / MANIFEST_PATH).write_text(
        (folder / MANIFEST_PATH).read_text().replace('"circle"', '"tflite"')
    ),
    "model.circle": lambda folder: _edit(folder / "model.circle"),
    "link": lambda folder: (folder / "link").symlink_to(folder.parent),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_user_put_into_a_package_stays(files: PackageFiles, tmp_path: Path, name: str) -> None:
    """Without ``overwrite`` all of it, with it all whose place nothing takes."""
    folder = tmp_path / "package"
    write_package(files, folder)
    CHANGES[name](folder)
    before = _tree(folder)
    refused = "model.circle" if name == "metadata/MANIFEST" else name  # without its manifest nothing is known
    with pytest.raises(PackageError, match=f"'{refused}' is in the way.*overwrite=True"):
        write_package(OTHER, folder)
    assert _tree(folder) == before
    write_package(OTHER, folder, overwrite=True)
    after = _tree(folder)
    assert OTHER.members.items() <= after.items()
    assert all(after[path] == before[path] for path in ("README.md", "odc/note") if path in before)
    assert os.path.lexists(folder / name) == (name in before or name == "link")
    assert os.listdir(tmp_path) == ["package"]
    # What was ours and unchanged has gone, unless its manifest cannot tell that any more.
    assert name == "metadata/MANIFEST" or not list(folder.rglob("*.npu"))


def test_a_foreign_package_is_not_replaced(files: PackageFiles, tmp_path: Path, test_data: Path) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(test_data / "nnpackage" / "v1.1.0" / "one_op_in_tflite", folder)
    before = _tree(folder)
    with pytest.raises(PackageError, match="is in the way"):
        write_package(files, folder)
    assert _tree(folder) == before
    write_package(files, folder, overwrite=True)
    assert _tree(folder) == {**before, **files.members}


def test_a_zip_of_others_is_not_replaced(files: PackageFiles, tmp_path: Path) -> None:
    theirs = _zip(tmp_path / "p.zip", {**files.members, "note": b"mine"})
    with pytest.raises(PackageError, match="not a package that odc-mlir wrote"):
        write_package(files, theirs)
    write_package(files, theirs, overwrite=True)
    write_package(files, theirs)


def test_a_package_may_replace_itself(files: PackageFiles, tmp_path: Path) -> None:
    write_package(files, tmp_path / "package")
    write_package(read_package(tmp_path / "package"), tmp_path / "package", overwrite=True)
    assert _tree(tmp_path / "package") == dict(files.members)


def test_only_packages_are_replaced(files: PackageFiles, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    (tmp_path / "notes.zip").write_bytes(b"no zip at all")
    (tmp_path / "file").write_bytes(b"a file")
    (tmp_path / "folder.zip").mkdir()
    for name in ("photos", "notes.zip", "file", "folder.zip"):
        with pytest.raises(PackageError, match=r"in the way|not a package that odc-mlir wrote"):
            write_package(files, tmp_path / name)
    for name in ("file", "folder.zip"):
        with pytest.raises(PackageError, match="in the way"):
            write_package(files, tmp_path / name, overwrite=True)
    write_package(files, tmp_path / "photos", overwrite=True)
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == b"cat"
    (tmp_path / "empty").mkdir()
    write_package(files, tmp_path / "empty")


def test_a_failed_write_leaves_the_old_package(
    files: PackageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(files, tmp_path / "package")
    rename = os.rename

    def fail_on_new(source: Path, target: Path) -> None:
        if str(source).endswith(".new"):
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(package.os, "rename", fail_on_new)
    other = build_package(b"new", Plan("model.circle", (), (), ()), {})
    with pytest.raises(PackageError, match=r"cannot write the package: .*No space left"):
        write_package(other, tmp_path / "package", overwrite=True)
    assert _tree(tmp_path / "package") == dict(files.members)
    assert os.listdir(tmp_path) == ["package"]


def test_missing_things(files: PackageFiles, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="there is no such package"):
        read_package(tmp_path / "none")
    with pytest.raises(PackageError, match="it has no metadata/MANIFEST"):
        read_package(tmp_path)
    write_package(files, tmp_path / "package")
    (tmp_path / "package" / "model.circle").unlink()
    with pytest.raises(PackageError, match=r"'model\.circle', which metadata/MANIFEST names, is missing"):
        read_package(tmp_path / "package")


def test_missing_segment(files: PackageFiles, tmp_path: Path) -> None:
    write_package(files, tmp_path / "package")
    next((tmp_path / "package").rglob("*.npu")).unlink()
    with pytest.raises(PackageError, match=r"the member 'odc/\w+/segment-0.npu' is missing"):
        read_package(tmp_path / "package").segment("segment-0.npu")


def test_plan_of_another_model(files: PackageFiles, tmp_path: Path) -> None:
    manifest = dataclasses.replace(files.manifest, models=("other.circle",))
    changed = {**files.members, "other.circle": b"x", MANIFEST_PATH: manifest.to_json()}
    with pytest.raises(PackageError, match=r"the plan is for 'model\.circle', .* model is 'other\.circle'"):
        read_package(_zip(tmp_path / "p.zip", changed))


def test_packages_of_other_tools(test_data: Path) -> None:
    folder = test_data / "nnpackage"
    read = read_package(folder / "v1.1.0" / "one_op_in_tflite")
    assert (read.plan, read.config, read.manifest.models) == (None, {"BACKENDS": "cpu"}, ("add.tflite",))
    assert read.model[4:8] == b"TFL3"
    with pytest.raises(PackageError, match="metadata/MANIFEST is not valid JSON") as raised:
        read_package(folder / "v1.0.0" / "add_invalid_manifest")
    assert raised.value.location == str(folder / "v1.0.0" / "add_invalid_manifest")


def test_zip_of_a_folder(files: PackageFiles, tmp_path: Path) -> None:
    inside = {f"my model/{name}": data for name, data in files.members.items()}
    assert read_package(_zip(tmp_path / "p.zip", inside)).model == MODEL


def test_a_model_with_an_archive_at_its_end_is_no_package(files: PackageFiles, tmp_path: Path) -> None:
    archive = _zip(tmp_path / "labels.zip", {"labels.txt": b"cat"})
    (tmp_path / "m.tflite").write_bytes(b"\0\0\0\0TFL3" + archive.read_bytes())
    assert zipfile.is_zipfile(tmp_path / "m.tflite")
    assert not is_package(tmp_path / "m.tflite")
    assert not is_package(tmp_path / "none")


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "C:evil", "a\\b"])
def test_paths_that_leave_a_zip(files: PackageFiles, tmp_path: Path, name: str) -> None:
    with pytest.raises(PackageError, match="the member path"):
        read_package(_zip(tmp_path / "p.zip", {**files.members, name: b"x"}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_given_twice(files: PackageFiles, tmp_path: Path) -> None:
    path = _zip(tmp_path / "p.zip", files.members)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model.circle", b"another")
    with pytest.raises(PackageError, match=r"'model\.circle' is given twice"):
        read_package(path)


def test_links_in_a_zip(files: PackageFiles, tmp_path: Path) -> None:
    def link(info: zipfile.ZipInfo) -> None:
        info.external_attr = (stat.S_IFLNK | 0o777) << 16

    with pytest.raises(PackageError, match="is a link"):
        read_package(_zip(tmp_path / "p.zip", files.members, link))


@pytest.mark.parametrize(("method", "text"), [(zipfile.ZIP_BZIP2, "compressed by method 12"), (zipfile.ZIP_LZMA, "14")])
def test_compression_methods(files: PackageFiles, tmp_path: Path, method: int, text: str) -> None:
    def compress(info: zipfile.ZipInfo) -> None:
        info.compress_type = method

    with pytest.raises(PackageError, match=text):
        read_package(_zip(tmp_path / "p.zip", files.members, compress))


def test_deflated_packages(files: PackageFiles, tmp_path: Path) -> None:
    def compress(info: zipfile.ZipInfo) -> None:
        info.compress_type = zipfile.ZIP_DEFLATED

    assert read_package(_zip(tmp_path / "p.zip", files.members, compress)).model == MODEL


def test_encrypted_members(files: PackageFiles, tmp_path: Path) -> None:
    data = bytearray(_zip(tmp_path / "p.zip", files.members).read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "p.zip").write_bytes(data)
    with pytest.raises(PackageError, match="is encrypted"):
        read_package(tmp_path / "p.zip")


def test_zip_bombs(files: PackageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "_EXPANSION_SLACK_BYTES", 0)

    def compress(info: zipfile.ZipInfo) -> None:
        info.compress_type = zipfile.ZIP_DEFLATED

    path = _zip(tmp_path / "p.zip", {**files.members, "zeros": bytes(1 << 20)}, compress)
    with pytest.raises(PackageError, match=r"the members claim .* more than the"):
        read_package(path)


def test_too_many_members(files: PackageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "MAX_MEMBERS", len(files.members))
    write_package(files, tmp_path / "p.zip")
    write_package(read_package(tmp_path / "p.zip"), tmp_path / "p")
    monkeypatch.setattr(manifest, "MAX_MEMBERS", len(files.members) - 1)
    with pytest.raises(PackageError, match=r"more than \d+ files"):
        read_package(tmp_path / "p.zip")
    with pytest.raises(PackageError, match=r"more than \d+ files"):
        dict(read_package(tmp_path / "p").members)


def test_links_that_leave_a_folder(files: PackageFiles, tmp_path: Path) -> None:
    write_package(files, tmp_path / "package")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (tmp_path / "package" / "model.circle").unlink()
    (tmp_path / "package" / "model.circle").symlink_to(secret)
    with pytest.raises(PackageError, match="is a link that leaves the package"):
        _ = read_package(tmp_path / "package").model


def test_linked_packages(files: PackageFiles, tmp_path: Path) -> None:
    write_package(files, tmp_path / "package")
    (tmp_path / "link").symlink_to(tmp_path / "package")
    assert read_package(tmp_path / "link").model == MODEL


def test_members_that_are_no_files(files: PackageFiles, tmp_path: Path) -> None:
    write_package(files, tmp_path / "package")
    read = read_package(tmp_path / "package")
    (tmp_path / "package" / "model.circle").unlink()
    os.mkfifo(tmp_path / "package" / "model.circle")
    with pytest.raises(PackageError, match=r"'model\.circle' is not a file"):
        _ = read.model


def _use(path: Path) -> None:
    """Read everything; whatever is wrong with the file must be a PackageError."""
    try:
        read = read_package(path)
        for name in read.members:
            _ = read.members[name]
    except PackageError:
        pass


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_damaged_zips(files: PackageFiles, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "p.zip"
    write_package(files, path, overwrite=path.exists() and zipfile.is_zipfile(path))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    _use(path)
    path.unlink()


def test_a_folder_that_changes_while_it_is_read(files: PackageFiles, tmp_path: Path) -> None:
    write_package(files, tmp_path / "package")
    read = read_package(tmp_path / "package")
    shutil.rmtree(tmp_path / "package")
    with pytest.raises(PackageError, match="is missing"):
        _ = read.model
