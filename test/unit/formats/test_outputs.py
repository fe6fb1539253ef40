"""What may be replaced: files of ours that nobody has changed, by every kind; anything else when it is asked for."""

from __future__ import annotations

import logging
import os
import zipfile
from pathlib import Path

import pytest

from helpers.models import add_model, model_bytes
from odc_mlir.errors import OdcError, OptionError
from odc_mlir.formats import kinds
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.formats.kinds import OutputKind
from odc_mlir.formats.outputs import beside_or_in_cache, check_output, write_output
from odc_mlir.formats.samples import write_outputs

REPORT = kinds.json_kind("a report", "schema_version", "layers")
LISTING = kinds.starts_with("a listing", b"; segment ")


def _arrays(suffix: str) -> bytes:
    import tempfile

    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        write_outputs(Path(folder, f"x{suffix}"), [[np.zeros(2, np.int8)]], "single")
        return Path(folder, f"x{suffix}").read_bytes()


def _zip_of_arrays(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("out_0.npy", b"theirs")
    return path.read_bytes()


OURS: list[tuple[OutputKind, bytes]] = [
    (kinds.MODEL, model_bytes(add_model())),
    (kinds.MODEL, bytes(write_tflite(add_model()))),
    (kinds.ARRAYS, _arrays(".npz")),
    (kinds.ARRAYS, _arrays(".h5")),
    (kinds.PAGE, f"<!DOCTYPE html>\n<html><head>{kinds.PAGE_MARK}".encode()),
    (kinds.IR_TEXT, b"builtin.module {\n}\n"),
    (kinds.IR_TEXT, b"// odc-mlir: the bytes of 1 large constants are left out\nbuiltin.module {\n}\n"),
    (kinds.IR_TEXT, b"builtin.module {\n}\n// -----\nbuiltin.module {\n}\n"),
    (kinds.TRACE, b'{"traceEvents": [], "displayTimeUnit": "ms"}'),
    (REPORT, b'{"schema_version": 1, "layers": [], "more": 0}'),
    (LISTING, b"; segment a\nstop\n"),
]
THEIRS = [
    b"notes",
    b"\xff\xd8\xff\xe0 a picture",
    b'{"name": "theirs"}',
    b"[1, 2]",
    b"int main() {}",
    b"// RUN: odc-opt %s | filecheck %s\nbuiltin.module {\n}\n",
    b"builtin.module {\n  // why\n}\n",
    b"<!DOCTYPE html><html><head><title>mine</title>",
    b"\x18\0\0\0CIR0 no model",
    b"\x89HDF\r\n\x1a\n",
]


@pytest.mark.parametrize(("kind", "content"), OURS)
def test_what_we_wrote_is_replaced(kind: OutputKind, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"file{kind.suffixes[0] if kind.suffixes else ''}"
    path.write_bytes(content)
    write_output(path, b"new", kind)
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("kind", [*{kind.name: kind for kind, _ in OURS}.values(), kinds.ZIP, kinds.UNKNOWN])
def test_what_others_wrote_is_not(kind: OutputKind, tmp_path: Path) -> None:
    path = tmp_path / f"file{kind.suffixes[0] if kind.suffixes else ''}"
    for content in [*THEIRS, _zip_of_arrays(tmp_path / "theirs"), *(data for other, data in OURS if other != kind)]:
        path.write_bytes(content)
        with pytest.raises(OdcError, match=r"is not .* that odc-mlir wrote .*--overwrite"):
            write_output(path, b"new", kind)
        assert path.read_bytes() == content
        write_output(path, b"new", kind, overwrite=True)
        assert path.read_bytes() == b"new"


def test_a_model_of_another_tool_is_not_ours(test_data: Path, tmp_path: Path) -> None:
    """Our writer gives its own bytes back, and not those of others."""
    theirs = next(path for path in sorted((test_data / "models").rglob("*.circle")))
    path = tmp_path / "m.circle"
    path.write_bytes(theirs.read_bytes())
    with pytest.raises(OptionError, match="not a model that odc-mlir wrote"):
        check_output(path, kinds.MODEL)
    path.write_bytes(write_model(read_model(theirs)))
    check_output(path, kinds.MODEL)


def test_folders_and_empty_files(tmp_path: Path) -> None:
    for overwrite in (False, True):
        with pytest.raises(OptionError, match="a folder is in the way"):
            check_output(tmp_path, kinds.MODEL, overwrite=overwrite)
    (tmp_path / "empty").touch()
    write_output(tmp_path / "empty", b"new", kinds.UNKNOWN)
    write_output(tmp_path / "empty", b"new", kinds.UNKNOWN)  # the same bytes again
    check_output(os.devnull, kinds.UNKNOWN)


def test_links_in_a_circle_and_names_of_folders_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "loop")
    (tmp_path / "loop").symlink_to(tmp_path / "link")
    for name in ("link", "loop"):
        with pytest.raises(OptionError, match=r"the link there leads to itself.*; remove it"):
            write_output(tmp_path / name, b"new", kinds.UNKNOWN, overwrite=True)
        assert (tmp_path / name).is_symlink()
    with pytest.raises(OptionError, match="this is the name of a folder, but the output is a file"):
        check_output(f"{tmp_path}/m.circle/", kinds.MODEL)
    check_output(f"{tmp_path}/package/", kinds.FOLDER)
    assert sorted(os.listdir(tmp_path)) == ["link", "loop"]


def test_parents_are_made_and_tried(tmp_path: Path) -> None:
    check_output(tmp_path / "a" / "b" / "c.circle", kinds.MODEL)
    assert os.listdir(tmp_path / "a" / "b") == []
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="the output cannot be written"):
        check_output(tmp_path / "file" / "c.circle", kinds.MODEL)
    with pytest.raises(OptionError, match="the output cannot be written"):
        check_output("/proc/c.circle", kinds.MODEL)


def test_parents_are_tried_and_not_made_before_there_is_something_to_write(tmp_path: Path) -> None:
    check_output(tmp_path / "a" / "b" / "c.circle", kinds.MODEL, makes_folders=False)
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "b" / "c.circle", Path("/proc/b/c.circle")):
        with pytest.raises(OptionError, match="the output cannot be written"):
            check_output(path, kinds.MODEL, makes_folders=False)


def test_suffixes(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot tell the format of 'm\.onnx'.*use \.circle or \.tflite"):
        check_output("m.onnx", kinds.MODEL_BY_NAME)
    check_output(tmp_path / "m.TFLITE", kinds.MODEL_BY_NAME)


def test_an_input_is_no_output(tmp_path: Path) -> None:
    path = tmp_path / "m.circle"
    path.write_bytes(model_bytes(add_model()))
    (tmp_path / "link").symlink_to(path)
    for name in (path, tmp_path / "link"):
        for overwrite in (False, True):
            with pytest.raises(OptionError, match="it is read as well"):
                check_output(name, kinds.MODEL, inputs=[path], overwrite=overwrite)


def test_nothing_in_a_folder_that_is_read_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"a picture")
    with pytest.raises(OptionError, match="it is read as well"):
        check_output(tmp_path / "a.png", kinds.UNKNOWN, inputs=[tmp_path], overwrite=True)
    check_output(tmp_path / "new", kinds.UNKNOWN, inputs=[tmp_path])


def test_the_cache_where_there_is_no_place_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    model = tmp_path / "m.circle"
    model.write_bytes(b"a model")
    wanted = tmp_path / "m.npu"
    assert beside_or_in_cache(model, wanted, kinds.ZIP) == wanted
    wanted.write_bytes(b"theirs")
    for taken in (wanted, Path("/proc/m.npu"), model):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            place = beside_or_in_cache(model, taken, kinds.ZIP)
        assert place.is_relative_to(tmp_path / "cache")
        assert str(place) in caplog.text
    write_output(place, b"one", kinds.ZIP)
    write_output(place, b"two", kinds.ZIP)
    monkeypatch.setenv("ODC_CACHE_DIR", "relative")
    with pytest.raises(OptionError, match="ODC_CACHE_DIR"):
        beside_or_in_cache(model, wanted, kinds.ZIP)
