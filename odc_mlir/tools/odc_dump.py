"""``odc-dump``: show the content of a model file, a compiled segment, a package or a calibration file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import ModelError, located
from odc_mlir.formats.kinds import json_kind
from odc_mlir.tools.common import base_parser, tool
from odc_mlir.tools.files import add_input, add_json, add_overwrite, add_switch, shown

if TYPE_CHECKING:
    from odc_mlir.formats.package import PackageFiles

Document = dict[str, Any]
DESCRIPTION = json_kind("the description of a file", "file", "format")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-dump``."""
    parser = base_parser(
        "odc-dump",
        "Show the content of a model (.circle, .tflite), a compiled segment (.npu, .cpu), an nnpackage, or a file of "
        "recorded ranges (ranges.sqlite, minmax.bin).",
        epilog="The kind of a file is recognised by its content.",
    )
    add_input(parser, "file", metavar="FILE")
    add_json(parser, DESCRIPTION, "every value in full")
    add_switch(parser, "--listing", "write the program of a .npu file as text that odc-sim can run")
    add_overwrite(parser)
    return parser


def _body(arguments: argparse.Namespace) -> None:
    from odc_mlir.tools.dump_text import render

    if arguments.listing:
        print(listing(arguments.file), end="")
        return
    document = describe(arguments.file)
    document["file"] = shown(document["file"])
    arguments.files.show(document, render(document))


def listing(path: str) -> str:
    """Return the whole program in the .npu file at ``path`` as text. Raises ModelError or PackageError."""
    from odc_mlir.isa import container
    from odc_mlir.isa.assembly import write_listing

    return write_listing(container.read(_existing(path).read_bytes(), path))


def _existing(path: str) -> Path:
    file = Path(path)
    if not file.is_file():
        raise ModelError(f"{path} {'is not a regular file' if file.exists() else 'does not exist'}")
    return file


def describe(path: str) -> Document:
    """Describe the file or folder at ``path`` as a document. ``format`` is the kind of file.

    Raises OdcError for unreadable and malformed files, ModelError for a file of unknown kind.
    """
    from odc_mlir.calibration.records import SQLITE_MAGIC, describe_minmax, describe_records, is_minmax
    from odc_mlir.formats import native_segment
    from odc_mlir.formats.circle.reader import identify
    from odc_mlir.formats.package import is_package
    from odc_mlir.isa import container

    if is_package(path):
        return _package(path)
    file = _existing(path)
    with file.open("rb") as stream:
        head = stream.read(8)
    known: Document = {"file": path, "bytes": file.stat().st_size}
    if identify(head) is not None:
        return known | _model(path)
    if head.startswith((container.MAGIC, native_segment.MAGIC)):
        return known | _segment(file.read_bytes(), path)
    if head and SQLITE_MAGIC.startswith(head):
        return known | describe_records(path)
    if is_minmax(head):
        return known | describe_minmax(file.read_bytes(), path)
    hint = "odc-dump shows Circle and TFLite models, .npu programs, .cpu files, nnpackages and records of ranges"
    raise ModelError(f"{path} is of an unknown kind: it starts with {head!r}", hint=hint)


def _model(source: str | bytes) -> Document:
    from odc_mlir.formats.circle.describe import describe_model
    from odc_mlir.formats.circle.reader import read_model

    return describe_model(read_model(source))


def _segment(data: bytes, location: str) -> Document:
    from odc_mlir.formats import native_segment

    return _native(data, location) if data.startswith(native_segment.MAGIC) else _program(data, location)


def _compiled(files: PackageFiles, file: str, path: str) -> Document:
    """Describe a segment of a package. A foreign format has only a name."""
    extension = "" if files.plan is None else files.plan.extension
    if extension not in ("npu", "cpu"):
        return {"format": extension}
    return _segment(files.segment(file), f"{path}/{file}")


def _native(data: bytes, location: str) -> Document:
    from dataclasses import asdict

    from odc_mlir.formats.circle.describe import plain
    from odc_mlir.formats.native_segment import parse_native_segment

    with located(location):
        segment = parse_native_segment(data)
    fields = asdict(segment)
    sizes = {"code_bytes": len(fields.pop("code")), "constants_bytes": len(fields.pop("constants"))}
    return {"format": "cpu", **plain(fields), **sizes}


def _program(data: bytes, location: str) -> Document:
    from odc_mlir.formats.circle.describe import plain
    from odc_mlir.isa import assembly, container
    from odc_mlir.isa.compact import read_code
    from odc_mlir.isa.fields import Region

    content = container.read(data, location)

    def tensors(records: Sequence[container.TensorRecord]) -> list[Document]:
        return [plain(item) | {"region": Region(item.region).name.lower(), "bytes": item.bytes} for item in records]

    return {
        "format": "npu",
        "metadata": plain(content.metadata),
        "target_digest": content.target_digest.hex(),
        "source_hash": content.source_hash.hex(),
        "compiler_version": list(content.compiler_version),
        "constants_bytes": len(content.constants),
        "code_bytes": len(content.code),
        "region_bytes": {Region(index).name.lower(): size for index, size in content.region_bytes.items()},
        "inputs": tensors(content.inputs),
        "outputs": tensors(content.outputs),
        "operators": plain(content.operators),
        "instructions": assembly.disassemble(read_code(content.code).instructions).splitlines(),
    }


def _package(path: str) -> Document:
    from odc_mlir.formats.package import read_package

    files = read_package(path)
    models = [
        {"file": name, "bytes": len(files.read(name)), **_model(files.read(name))} for name in files.manifest.models
    ]
    segments = [
        {"file": step.file, "bytes": len(files.segment(step.file)), **_compiled(files, step.file, path)}
        for step in (files.plan.segments if files.plan is not None else ())
    ]
    return {
        "format": "nnpackage",
        "file": path,
        "members": [{"path": name, "bytes": len(files.members[name])} for name in sorted(files.members)],
        "models": models,
        "config": dict(files.config),
        "plan": None if files.plan is None else json.loads(files.plan.to_json()),
        "segments": segments,
    }


main = tool(build_parser, _body)
