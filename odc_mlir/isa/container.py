"""``.npu`` files: a program with its constants, tables and checksums. ``docs/npu.md`` describes the layout.

:func:`write` is deterministic. :func:`read` checks every byte of a file: either a CRC-32 covers the byte, or it must be
zero. Sizes are checked against the file's size or address widths before memory is allocated.
"""

from __future__ import annotations

import binascii
import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from typing import Any

from odc_mlir.errors import PackageError, parsing
from odc_mlir.isa.fields import OFFSET_BITS, Queue, Region
from odc_mlir.isa.fields import REGION_ALIGNMENT_BYTES as ALIGNMENT

MAGIC = b"ONPU"
MAJOR, MINOR = 1, 0
ISA_VERSION = 1
OPTIONAL = 1  # section flag: readers that do not know the section kind skip the section
CONSTANTS_IN_SRAM = 1  # header flag: memory mode "sram"
SEGMENT = "segment"  # metadata key: name of the segment that the program computes
# Metadata key: names in the map for the results of each operator of the segment, in order. Present only if tensor names
# do not distinguish operators.
RESULTS = "results"
# Metadata key: indices of an input and an output for each state. Both share bytes of the arena. A device that keeps the
# state there neither writes these bytes before a run nor reads them after it.
STATES = "states"

_HEADER = struct.Struct("<4sBBHIIHHIIHBB16sIQI")
_SECTION = struct.Struct("<HBBIQQII")
_TENSOR = struct.Struct("<BBBxIdiHH")
_COUNTS = struct.Struct("<HH")
_MAX_SECTIONS = 64
_MAX_RANK = 8
_MAX_TENSORS = 256
_MAX_NESTING = 32  # limit on nesting in JSON: non-recursive readers keep one bit per level
_NO_REGION = 0xFF


class SectionKind(IntEnum):
    """Kinds of sections. ``RELOCATION`` is reserved for constant pools that several programs share."""

    CODE = 1
    CONSTANTS = 2
    TENSORS = 3
    RELOCATION = 4
    MAP = 5
    METADATA = 6


_KNOWN = frozenset(SectionKind) - {SectionKind.RELOCATION}
_REQUIRED = (SectionKind.CODE, SectionKind.TENSORS, SectionKind.METADATA)

# Sizes of the element types of inputs and outputs. Types of instructions come first, in the order of codes.
ELEMENT_BYTES = {"uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "bool": 1}
_TYPE_NAMES = tuple(ELEMENT_BYTES)


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """An input or output, dense and row-major, at byte ``offset`` of ``region``. ``scale`` is None if not quantised."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float | None
    zero_point: int
    region: int
    offset: int

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class MapEntry:
    """An operator of the model, and the ``ranges`` (first instruction, count) that compute it.

    ``macs``: multiply-accumulates of the operator in the graph.
    ``recomputed_macs``: multiply-accumulates that the program computes again.
    """

    name: str
    kind: str
    macs: int
    recomputed_macs: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Container:
    """Contents of a file. Required keys of ``metadata`` are ``target``, ``target_version`` and ``memory``."""

    code: bytes | memoryview
    constants: bytes | memoryview
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    operators: tuple[MapEntry, ...]
    target_digest: bytes
    arena_bytes: int
    metadata: Mapping[str, Any]
    source_hash: bytes = bytes(16)
    compiler_version: tuple[int, int, int] = (0, 0, 0)

    @cached_property
    def region_bytes(self) -> Mapping[int, int]:
        """Required size of each region by number."""
        sizes = dict.fromkeys(map(int, Region), 0)
        sizes[Region.CONSTANTS] = len(self.constants)
        sizes[Region.ARENA] = self.arena_bytes
        for tensor in (*self.inputs, *self.outputs):
            if tensor.region in (Region.INPUTS, Region.OUTPUTS):
                sizes[tensor.region] = max(sizes[tensor.region], tensor.offset + tensor.bytes)
        return sizes

    @property
    def states(self) -> tuple[tuple[int, int], ...]:
        """Indices of the input and the output of each state. Input and output share memory."""
        return tuple((source, result) for source, result in self.metadata.get(STATES, ()))

    def result_names(self, own: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Return the names in the map for the results of each operator. ``own`` are the names in the model."""
        named = self.metadata.get(RESULTS)
        return named if named is not None and len(named) == len(own) else own

    @property
    def target(self) -> str:
        return str(self.metadata["target"])

    @property
    def memory(self) -> str:
        return str(self.metadata["memory"])


def hardware_id(target_digest: bytes) -> int:
    """Return the short form of a target digest, which the header holds."""
    return binascii.crc32(target_digest)


def write(container: Container) -> bytes:
    """Return the file's bytes, equal for equal containers. Raises PackageError for invalid values."""
    _check_metadata(container.metadata)
    _check_tensors(container)
    _check_fields(container)
    metadata = dict(container.metadata) | {"target_digest": container.target_digest.hex()}
    sections = (
        (SectionKind.CODE, _NO_REGION, bytes(container.code)),
        (SectionKind.CONSTANTS, int(Region.CONSTANTS), bytes(container.constants)),
        (SectionKind.TENSORS, _NO_REGION, _write_tensors(container)),
        (SectionKind.MAP, _NO_REGION, _json({"operators": [asdict(entry) for entry in container.operators]})),
        (SectionKind.METADATA, _NO_REGION, _json(metadata)),
    )
    offset = _HEADER.size + _SECTION.size * len(sections)
    table = b""
    bodies: list[bytes] = []
    for kind, region, body in sections:
        padding = -offset % ALIGNMENT
        offset += padding
        log2 = ALIGNMENT.bit_length() - 1
        table += _SECTION.pack(kind, region, log2, 0, offset, len(body), binascii.crc32(body), 0)
        bodies += [bytes(padding), body]
        offset += len(body)
    major, minor, patch = container.compiler_version
    header = _HEADER.pack(
        MAGIC, MAJOR, MINOR, _HEADER.size, hardware_id(container.target_digest),
        CONSTANTS_IN_SRAM if container.memory == "sram" else 0, len(sections), ISA_VERSION, offset,
        container.arena_bytes, ALIGNMENT, len(Region), len(Queue), container.source_hash,
        major << 24 | minor << 16 | patch, 0, 0,
    )  # fmt: skip
    return b"".join((header[:-4], struct.pack("<I", header_checksum(header, table)), table, *bodies))


def header_checksum(header: bytes, table: bytes) -> int:
    """Return the CRC-32 of the 64-byte ``header``, except its last four bytes, and the section ``table``."""
    return binascii.crc32(table, binascii.crc32(header[: _HEADER.size - 4]))


def read(data: bytes | memoryview, location: str | None = None) -> Container:
    """Parse a file into a container that shares the memory of ``data``. Raises PackageError for malformed data."""
    try:
        return _read(memoryview(data).cast("B"))
    except PackageError as error:
        raise PackageError(error.message, location=location, hint=error.hint) from None


@dataclass(frozen=True, slots=True)
class Stamps:
    """Header fields that identify a file's target, compiler and source."""

    major: int
    isa_version: int
    hardware_id: int


def read_stamps(data: bytes | memoryview) -> Stamps:
    """Return the stamps of a file of any version. Raises PackageError."""
    view = memoryview(data).cast("B")
    if len(view) < _HEADER.size or bytes(view[: len(MAGIC)]) != MAGIC:
        raise PackageError(f"not an NPU program: the file starts with {bytes(view[:4])!r}, expected {MAGIC!r}")
    _, major, _, _, hardware, _, _, isa, *_ = _HEADER.unpack_from(view)
    return Stamps(major, isa, hardware)


def check_whole(data: bytes | memoryview) -> None:
    """Check size and checksums of a file. The contents are not parsed. Raises PackageError."""
    _read_header(memoryview(data).cast("B"))


_Header = tuple[int, int, int, bytes, int]


def _read_header(view: memoryview) -> tuple[_Header, dict[int, memoryview]]:
    if len(view) < _HEADER.size:
        raise PackageError(f"an NPU program has a header of {_HEADER.size} bytes, the file has {len(view)}")
    (
        magic, major, _, header_bytes, hardware, flags, count, isa, file_bytes,
        arena_bytes, alignment, regions, queues, source_hash, compiler, reserved, checksum,
    ) = _HEADER.unpack_from(view)  # fmt: skip
    if magic != MAGIC:
        raise PackageError(f"not an NPU program: the file starts with {magic!r}, expected {MAGIC!r}")
    if major != MAJOR or isa != ISA_VERSION:
        raise PackageError(
            f"container version {major}, instruction set {isa} are not supported (known: {MAJOR}, {ISA_VERSION})",
            hint="compile the model again",
        )
    if file_bytes != len(view):
        raise PackageError(f"the header says {file_bytes} bytes, the file has {len(view)}")
    table_end = _HEADER.size + count * _SECTION.size
    if header_bytes != _HEADER.size or not 0 < count <= _MAX_SECTIONS or table_end > len(view):
        raise PackageError(f"header of {header_bytes} bytes with {count} sections is malformed")
    if header_checksum(bytes(view[: _HEADER.size]), bytes(view[_HEADER.size : table_end])) != checksum:
        raise PackageError("checksum of the header or the section table does not match")
    if (alignment, regions, queues, reserved) != (ALIGNMENT, len(Region), len(Queue), 0) or flags > CONSTANTS_IN_SRAM:
        raise PackageError("the header asks for another alignment, region or queue count, or feature than supported")
    if arena_bytes > 1 << OFFSET_BITS:
        raise PackageError(f"arena of {arena_bytes} bytes cannot be addressed")
    return (hardware, flags, arena_bytes, bytes(source_hash), compiler), _read_sections(view, count, table_end)


def _read(view: memoryview) -> Container:
    (hardware, flags, arena_bytes, source_hash, compiler), sections = _read_header(view)
    inputs, outputs = _read_tensors(bytes(sections[SectionKind.TENSORS]))
    metadata = _parse(sections[SectionKind.METADATA], "metadata")
    digest = _take_digest(metadata)
    if hardware_id(digest) != hardware:
        raise PackageError("the header's hardware id does not belong to the target digest")
    container = Container(
        sections[SectionKind.CODE], sections.get(SectionKind.CONSTANTS, memoryview(b"")), inputs, outputs,
        _read_map(sections.get(SectionKind.MAP)), digest, arena_bytes, metadata, source_hash,
        (compiler >> 24, compiler >> 16 & 0xFF, compiler & 0xFFFF),
    )  # fmt: skip
    if (container.memory == "sram") != bool(flags & CONSTANTS_IN_SRAM):
        raise PackageError(f"memory mode {container.memory!r} contradicts the header's flags")
    _check_tensors(container)
    _check_states(container)
    return container


def _read_sections(view: memoryview, count: int, table_end: int) -> dict[int, memoryview]:
    sections: dict[int, memoryview] = {}
    end = table_end
    for offset, size, kind, flags, checksum in sorted(_read_section_row(view, index) for index in range(count)):
        if offset < end or offset + size > len(view):
            raise PackageError(f"section of kind {kind} at {offset} with {size} bytes overlaps or leaves the file")
        body, padding = view[offset : offset + size], bytes(view[end:offset])
        if padding.count(0) != len(padding) or binascii.crc32(body) != checksum:
            raise PackageError(
                f"checksum of the section of kind {kind} does not match, or bytes before it are not zero"
            )
        end = offset + size
        if kind in sections:
            raise PackageError(f"two sections of kind {kind}")
        if kind in _KNOWN:
            sections[kind] = body
        elif not flags & OPTIONAL:
            raise PackageError(f"section kind {kind} is not known to this version", hint="use a newer version")
    if end != len(view):
        raise PackageError(f"{len(view) - end} bytes after the last section")
    for kind in _REQUIRED:
        if kind not in sections:
            raise PackageError(f"the {kind.name.lower()} section is missing")
    return sections


def _read_section_row(view: memoryview, index: int) -> tuple[int, int, int, int, int]:
    row = _SECTION.unpack_from(view, _HEADER.size + index * _SECTION.size)
    kind, region, log2, flags, offset, size, checksum, reserved = row
    if reserved or flags > OPTIONAL or log2 > ALIGNMENT.bit_length() - 1 or offset % (1 << log2):
        raise PackageError(f"entry {index} of the section table is malformed")
    if region != (Region.CONSTANTS if kind == SectionKind.CONSTANTS else _NO_REGION):
        raise PackageError(f"section {index} is bound to region {region}")
    return offset, size, kind, flags, checksum


def _write_tensors(container: Container) -> bytes:
    parts = [_COUNTS.pack(len(container.inputs), len(container.outputs))]
    for tensor in (*container.inputs, *container.outputs):
        name = tensor.name.encode()
        code = _TYPE_NAMES.index(tensor.dtype)
        scale = 0.0 if tensor.scale is None else tensor.scale
        parts.append(
            _TENSOR.pack(code, len(tensor.shape), tensor.region, tensor.offset, scale, tensor.zero_point, len(name), 0)
        )
        parts.append(struct.pack(f"<{len(tensor.shape)}I", *tensor.shape) + name)
    return b"".join(parts)


def _read_tensors(data: bytes) -> tuple[tuple[TensorRecord, ...], tuple[TensorRecord, ...]]:
    try:
        input_count, output_count = _COUNTS.unpack_from(data)
        offset = _COUNTS.size
        records: list[TensorRecord] = []
        for _ in range(input_count + output_count):
            code, rank, region, start, scale, zero_point, name_bytes, reserved = _TENSOR.unpack_from(data, offset)
            offset += _TENSOR.size
            if code >= len(_TYPE_NAMES) or rank > _MAX_RANK or reserved:
                most = f"at most {len(_TYPE_NAMES) - 1} and {_MAX_RANK} are allowed"
                raise PackageError(f"tensor {len(records)} has type code {code} and rank {rank}, {most}")
            shape = struct.unpack_from(f"<{rank}I", data, offset)
            offset += 4 * rank + name_bytes
            if offset > len(data):
                raise PackageError("the tensors section is cut off")
            name = data[offset - name_bytes : offset].decode()
            records.append(
                TensorRecord(name, _TYPE_NAMES[code], shape, scale if scale else None, zero_point, region, start)
            )
    except (struct.error, UnicodeDecodeError) as error:
        raise PackageError(f"the tensors section is malformed: {error}") from None
    if offset != len(data):
        raise PackageError("the tensors section has bytes after its last record")
    return tuple(records[:input_count]), tuple(records[input_count:])


def _check_tensors(container: Container) -> None:
    roles = ((container.inputs, Region.INPUTS, "input"), (container.outputs, Region.OUTPUTS, "output"))
    for tensors, own, what in roles:
        if len(tensors) > _MAX_TENSORS:
            raise PackageError(f"{len(tensors)} {what}s, at most {_MAX_TENSORS} are allowed")
        taken: list[tuple[int, int, int]] = []
        for tensor in tensors:
            if tensor.dtype not in ELEMENT_BYTES:
                raise PackageError(
                    f"{what} has element type {tensor.dtype}, allowed: {', '.join(ELEMENT_BYTES)}", tensor=tensor.name
                )
            if len(tensor.shape) > _MAX_RANK or any(not 0 < dim < 1 << OFFSET_BITS for dim in tensor.shape):
                allowed = f"allowed: up to {_MAX_RANK} sizes from 1 to {(1 << OFFSET_BITS) - 1}"
                raise PackageError(f"{what} has the shape {list(tensor.shape)}, {allowed}", tensor=tensor.name)
            if tensor.scale is not None and not 0 < tensor.scale < math.inf:
                raise PackageError(f"{what} has the scale {tensor.scale}, allowed: finite, above 0", tensor=tensor.name)
            if not -(1 << 31) <= tensor.zero_point < 1 << 31:
                raise PackageError(
                    f"{what} has the zero point {tensor.zero_point}, allowed: 32 bits", tensor=tensor.name
                )
            limit = container.arena_bytes if tensor.region == Region.ARENA else 1 << OFFSET_BITS
            fits = 0 <= tensor.offset <= limit - tensor.bytes
            if tensor.region not in (own, Region.ARENA) or not fits:
                raise PackageError(
                    f"{what} of {tensor.bytes} bytes does not fit at offset {tensor.offset} of region {tensor.region}",
                    tensor=tensor.name,
                )
            span = (tensor.region, tensor.offset, tensor.offset + tensor.bytes)
            if what == "input" and any(r == span[0] and s < span[2] and span[1] < e for r, s, e in taken):
                raise PackageError("two inputs share bytes", tensor=tensor.name)
            taken.append(span)


def _check_states(container: Container) -> None:
    pairs = container.metadata.get(STATES, [])
    whole = type(pairs) is list and all(type(pair) is list and len(pair) == 2 and _naturals(pair) for pair in pairs)
    for source, result in pairs if whole else ():
        if source >= len(container.inputs) or result >= len(container.outputs):
            whole = False
            continue
        kept, new = container.inputs[source], container.outputs[result]
        same = (kept.region, kept.offset, kept.shape, kept.dtype) == (new.region, new.offset, new.shape, new.dtype)
        if not same or kept.region != Region.ARENA:
            raise PackageError(
                "the input and the output of a state must have the same address in the arena", tensor=kept.name
            )
    if not whole:
        raise PackageError(f"metadata key {STATES!r} must be pairs of an input's and an output's index")


def _check_fields(container: Container) -> None:
    if not 0 <= container.arena_bytes <= 1 << OFFSET_BITS:
        raise PackageError(f"arena of {container.arena_bytes} bytes cannot be addressed")
    for what, digest, size in (
        ("source hash", container.source_hash, 16),
        ("target digest", container.target_digest, 32),
    ):
        if len(digest) != size:
            raise PackageError(f"{what} of {len(digest)} bytes, expected {size}")
    version = container.compiler_version
    if any(not 0 <= part < 1 << bits for part, bits in zip(version, (8, 8, 16), strict=True)):
        raise PackageError(f"compiler version {'.'.join(map(str, version))} has no room in the header")
    for tensor in (*container.inputs, *container.outputs):
        with parsing("the name of an input or output is not text", PackageError):
            size = len(tensor.name.encode())
        if size >= 1 << 16:
            raise PackageError(f"the name of an input or output has {size} bytes, at most {(1 << 16) - 1} are allowed")
    for index, entry in enumerate(container.operators):
        if not _naturals((entry.macs, entry.recomputed_macs, *(number for span in entry.ranges for number in span))):
            raise PackageError(f"the counts of operator {index} ({entry.kind}) must be natural numbers below 2^63")


def _json(value: object) -> bytes:
    with parsing("metadata or operators cannot be written as JSON", PackageError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _parse(body: memoryview, what: str) -> dict[str, Any]:
    with parsing(f"the {what} section is not valid JSON", PackageError):
        text = bytes(body).decode()
        value = json.loads(text)
    brackets = re.sub(r'"(?:[^"\\]++|\\.)*+"|[^][{}"]++', "", text)
    if max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0) > _MAX_NESTING:
        raise PackageError(f"the {what} section has values within more than {_MAX_NESTING} others")
    if not isinstance(value, dict):
        raise PackageError(f"the {what} section is not a JSON object")
    return value


def _read_map(body: memoryview | None) -> tuple[MapEntry, ...]:
    if body is None:
        return ()
    document = _parse(body, "map")
    records = document.get("operators")
    if set(document) != {"operators"} or not isinstance(records, list):
        raise PackageError("the map section must hold a list of operators")
    entries: list[MapEntry] = []
    for record in records:
        if not isinstance(record, dict) or set(record) != set(MapEntry.__slots__):
            raise PackageError(f"operator {len(entries)} of the map section is malformed")
        name, kind, ranges = record["name"], record["kind"], record["ranges"]
        counts = (record["macs"], record["recomputed_macs"])
        if not (isinstance(name, str) and isinstance(kind, str) and _naturals(counts) and isinstance(ranges, list)):
            raise PackageError(f"operator {len(entries)} of the map section is malformed")
        if any(not isinstance(pair, list) or len(pair) != 2 or not _naturals(pair) for pair in ranges):
            raise PackageError(f"the instruction ranges of operator {len(entries)} in the map section are malformed")
        entries.append(MapEntry(name, kind, *counts, tuple((first, count) for first, count in ranges)))
    return tuple(entries)


def _naturals(values: Sequence[object]) -> bool:
    return all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def _take_digest(metadata: dict[str, Any]) -> bytes:
    digest = metadata.pop("target_digest", None)
    _check_metadata(metadata)
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise PackageError("metadata key 'target_digest' must be 64 hexadecimal digits")
    return bytes.fromhex(digest)


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    for key, kind in (("target", str), ("target_version", int), ("memory", str)):
        if type(metadata.get(key)) is not kind:
            raise PackageError(f"metadata key {key!r} is {metadata.get(key)!r}, expected {kind.__name__}")
    named = metadata.get(RESULTS, [])
    if type(named) is not list or not all(
        type(names) is list and all(type(name) is str for name in names) for names in named
    ):
        raise PackageError(f"metadata key {RESULTS!r} must be lists of names, one for each operator")
    if metadata["memory"] not in ("flash", "sram"):
        raise PackageError(f"metadata key 'memory' is {metadata['memory']!r}, allowed: flash, sram")
