"""Kinds of output files, recognised by content and never by name.

This module imports nothing heavy: commands declare arguments with these kinds, and ``--help`` must be fast.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

OWN_MARK = "odc-mlir"
"""Mark in our files of formats that other programs also write: pages and array files."""

_MARK_BYTES = 2048  # the mark of a page is in its first bytes


class OutputKind(NamedTuple):
    """A kind of output. ``name`` is for errors.

    ``recognises`` may raise any error of the functions that read a file of another format.
    """

    name: str
    recognises: Callable[[Path], bool]
    suffixes: tuple[str, ...] = ()  # allowed ends of names; empty: any
    is_text: bool = False  # may go to standard output
    is_folder: bool = False


def _is_never_ours(path: Path) -> bool:
    return False


def _is_own_zip(path: Path) -> bool:
    from odc_mlir.formats.cache import content_digest
    from odc_mlir.formats.manifest import MANIFEST_PATH, ZipMembers, recognised_files
    from odc_mlir.formats.package import zip_bytes

    members = ZipMembers(path)
    if zip_bytes({name: members[name] for name in sorted(members)}) != path.read_bytes():
        return False  # archive readers ignore data before and between members
    known = recognised_files(members[MANIFEST_PATH]) if MANIFEST_PATH in members else {}
    return bool(known) and all(known.get(name) == content_digest(members[name]) for name in members)


def _is_own_model(path: Path) -> bool:
    from odc_mlir.formats.circle.reader import read_model
    from odc_mlir.formats.circle.writer import write_model, write_tflite

    model = read_model(path)
    again = write_tflite(model) if model.schema == "tflite" else write_model(model)
    return bytes(again) == path.read_bytes()


def json_kind(name: str, *keys: str) -> OutputKind:
    """Return the kind of JSON objects, or lists of objects, with these keys."""

    def recognises(path: Path) -> bool:
        document = json.loads(path.read_bytes())
        rows = document if isinstance(document, list) else [document]
        return all(isinstance(row, dict) and set(keys) <= row.keys() for row in rows)

    return OutputKind(name, recognises, is_text=True)


def _is_own_page(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_MARK_BYTES)
    return head.startswith(b"<!DOCTYPE html>") and PAGE_MARK.encode() in head


def _is_own_array_file(path: Path) -> bool:
    import zipfile

    with path.open("rb") as start:
        head = start.read(4)
    if head == b"PK\x03\x04":
        with zipfile.ZipFile(path) as archive:
            return archive.comment == OWN_MARK.encode()
    import h5py

    with h5py.File(path, "r") as file:
        return bool(file.attrs.get("generator") == OWN_MARK)


IR_NOTE = "// odc-mlir: "
"""Prefix of comments by our IR printer."""

_OWN_COMMENTS = ("// -----", IR_NOTE)


def _is_printed_ir(path: Path) -> bool:
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith(_OWN_COMMENTS)), "")
    starts = ("module", "builtin.module", '"builtin.module"', "!", "#")
    commented = any(line.lstrip().startswith("//") and not line.startswith(_OWN_COMMENTS) for line in lines)
    return first.startswith(starts) and not commented


def starts_with(name: str, *heads: bytes) -> OutputKind:
    """Return the kind of texts that start with one of ``heads``."""

    def recognises(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(max(map(len, heads), default=0)).startswith(heads)

    return OutputKind(name, recognises, is_text=True)


def _is_own_object(path: Path) -> bool:
    data = path.read_bytes()
    return data.startswith((b"\x7fELF", b"\0asm")) and OWN_MARK.encode() in data


PAGE_MARK = f'<meta name="generator" content="{OWN_MARK}">'
"""HTML element that identifies a page as ours."""

OBJECT = OutputKind("an object file", _is_own_object, (".o",))
HEADER = starts_with("a C header", f"/* {OWN_MARK}: ".encode())
FOLDER = OutputKind("a package", _is_never_ours, is_folder=True)
ZIP = OutputKind("a package", _is_own_zip)
MODEL = OutputKind("a model", _is_own_model)
MODEL_BY_NAME = OutputKind("a model", _is_own_model, (".circle", ".tflite"))
ARRAYS = OutputKind("a file of arrays", _is_own_array_file, (".npz", ".h5", ".hdf5"))
PAGE = OutputKind("a page", _is_own_page, is_text=True)
IR_TEXT = OutputKind("IR", _is_printed_ir, is_text=True)
TRACE = json_kind("a trace", "traceEvents", "displayTimeUnit")
PROFILE = json_kind("a profile", "schema_version", "measured")
UNKNOWN = OutputKind("a file", _is_never_ours)
"""Kind of files that cannot be recognised as ours. Only empty ones may be replaced."""


FILE_SUFFIXES = frozenset(
    (
        ".bin",
        ".cfg",
        ".circle",
        ".cpu",
        ".csv",
        ".h",
        ".h5",
        ".hdf5",
        ".html",
        ".ini",
        ".json",
        ".mlir",
        ".npu",
        ".npy",
        ".npz",
        ".o",
        ".onnx",
        ".sqlite",
        ".tflite",
        ".toml",
        ".txt",
    )
)
"""Suffixes of single files. A new folder must not have such a name, because the user probably meant a file."""


def package_kind(path: str | os.PathLike[str]) -> OutputKind:
    """Return the kind of a package by the suffix of ``path``: zip or folder."""
    return ZIP if os.fspath(path).lower().endswith(".zip") else FOLDER
