"""The file format: what is written is read back, and nothing that is not accounted for is accepted."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.npu import pack, repair_checksums, tensors
from odc_mlir import targets
from odc_mlir.errors import PackageError
from odc_mlir.isa import container
from odc_mlir.isa.codec import encode, make
from odc_mlir.isa.container import ALIGNMENT, Container, MapEntry, SectionKind, TensorRecord
from odc_mlir.isa.fields import Region

DIGEST = targets.load("npu-256").digest("flash")
METADATA = {"target": "npu-256", "target_version": 1, "memory": "flash"}
BASE = Container(
    code=encode([make("halt")]),
    constants=b"constants",
    inputs=tensors(Region.INPUTS, (1, 2, 3)),
    outputs=tensors(Region.OUTPUTS, ("int16", (4,))),
    operators=(MapEntry("layer", "CONV_2D", 10, 2, ((0, 1),)),),
    target_digest=DIGEST,
    arena_bytes=256,
    metadata=METADATA,
    source_hash=bytes(range(16)),
    compiler_version=(1, 2, 3),
)
FILE = container.write(BASE)

RECORDS = st.builds(
    TensorRecord,
    name=st.text(max_size=12),
    dtype=st.sampled_from(list(container.ELEMENT_BYTES)),
    shape=st.lists(st.integers(1, 9), max_size=8).map(tuple),
    scale=st.none() | st.floats(min_value=1e-30, max_value=1e30),
    zero_point=st.integers(-(1 << 31), (1 << 31) - 1),
    region=st.just(int(Region.OUTPUTS)),
    offset=st.integers(0, 10_000),
)


def changed(**values: Any) -> Container:
    return dataclasses.replace(BASE, **values)


@given(
    st.binary(max_size=200).map(lambda b: b[: len(b) // 16 * 16]),
    st.binary(max_size=200),
    st.lists(RECORDS, max_size=4).map(tuple),
    st.dictionaries(
        st.text(max_size=6).filter(lambda key: key not in METADATA and key != "target_digest"), st.integers()
    ),
)
def test_round_trip(code: bytes, constants: bytes, outputs: tuple[TensorRecord, ...], metadata: dict[str, int]) -> None:
    before = changed(code=code, constants=constants, outputs=outputs, metadata=METADATA | metadata)
    data = container.write(before)
    after = container.read(data)
    assert after == before
    assert container.write(after) == data


def test_sections_are_aligned() -> None:
    rows = [struct.unpack_from("<HBBIQQII", FILE, 64 + 32 * i) for i in range(5)]
    assert [row[0] for row in rows] == [1, 2, 3, 5, 6]
    assert all(row[4] % ALIGNMENT == 0 for row in rows)


def test_region_sizes_cover_the_tensors() -> None:
    record = BASE.inputs[0]
    two = changed(inputs=(record, dataclasses.replace(record, name="b", offset=100)))
    assert two.region_bytes == {Region.CONSTANTS: 9, Region.ARENA: 256, Region.INPUTS: 106, Region.OUTPUTS: 8}


def edited(offset: int, value: bytes, *, repair: bool = True) -> bytes:
    data = bytearray(FILE)
    data[offset : offset + len(value)] = value
    return repair_checksums(bytes(data)) if repair else bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a header of 64 bytes, the file has 0"),
        (FILE[:63], "the file has 63"),
        (FILE[:-1], f"the header says {len(FILE)} bytes, the file has {len(FILE) - 1}"),
        (FILE + b"\0", "the file has"),
        (edited(0, b"ELF!"), "starts with b'ELF!'"),
        (edited(4, b"\x02"), "container version 2, instruction set 1 are not supported"),
        (edited(18, b"\x02"), "container version 1, instruction set 2 are not supported"),
        (edited(6, b"\x20"), "header of 32 bytes with 5 sections is malformed"),
        (edited(16, b"\xff\xff"), "with 65535 sections is malformed"),
        (edited(16, b"\x00\x00"), "with 0 sections is malformed"),
        (edited(24, b"\x01", repair=False), "checksum of the header or the section table"),
        (edited(12, b"\x02"), "asks for another alignment, region or queue count, or feature"),
        (edited(28, b"\x10"), "asks for another alignment"),
        (edited(30, b"\x05"), "asks for another alignment"),
        (edited(31, b"\x08"), "asks for another alignment"),
        (edited(52, b"\x01"), "asks for another alignment"),
        (edited(24, b"\x01\x00\x00\x10"), "arena of 268435457 bytes cannot be addressed"),
        (edited(8, b"\x00\x00\x00\x00"), "hardware id does not belong to the target digest"),
        (edited(12, b"\x01"), "memory mode 'flash' contradicts the header's flags"),
        (edited(64, b"\x09\x00\xff"), "section kind 9 is not known"),
        (edited(64, b"\x04\x00\xff"), "section kind 4 is not known"),
        (edited(64, b"\x03\x00\xff"), "two sections of kind 3|bound"),
        (edited(66, b"\x00"), "section 0 is bound to region 0"),
        (edited(67, b"\x0f"), "entry 0 of the section table is malformed"),
        (edited(68, b"\x02"), "entry 0 of the section table is malformed"),
        (edited(92, b"\x01"), "entry 0 of the section table is malformed"),
        (edited(72, b"\x01"), "entry 0 of the section table is malformed"),
        (edited(72, b"\x00\x00\x00\x00\x00\x00\x00\x80"), "kind 2 does not match, or bytes before"),
        (edited(80, b"\xff\xff\xff\xff\xff\xff\xff\xff"), "overlaps or leaves the file"),
        (edited(64 + 32 + 8, struct.pack("<Q", 256)), "overlaps or leaves the file"),
        (edited(250, b"\x01"), "bytes before it are not zero"),
        (edited(256, b"\x01", repair=False), "checksum of the section of kind 1"),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(PackageError, match=message) as raised:
        container.read(data, "x.npu")
    assert "in x.npu" in str(raised.value)


def test_an_optional_section_of_an_unknown_kind_is_skipped() -> None:
    data = bytearray(FILE)
    row = 64 + 3 * 32  # the map
    struct.pack_into("<HBBI", data, row, 99, 0xFF, 7, container.OPTIONAL)
    assert container.read(repair_checksums(bytes(data))).operators == ()


def rewritten(kind: SectionKind, body: bytes) -> bytes:
    """FILE with another body for one section, checksums right."""
    rows = [struct.unpack_from("<HBBIQQII", FILE, 64 + 32 * i) for i in range(5)]
    table, bodies, offset = b"", b"", 64 + 32 * 5
    for row in rows:
        part = body if row[0] == kind else FILE[row[4] : row[4] + row[5]]
        padding = -offset % ALIGNMENT
        offset += padding
        table += struct.pack("<HBBIQQII", *row[:4], offset, len(part), 0, 0)
        bodies += bytes(padding) + part
        offset += len(part)
    return repair_checksums(FILE[:20] + struct.pack("<I", offset) + FILE[24:64] + table + bodies)


TENSOR = struct.pack("<HHBBBxIdiHH", 0, 1, 1, 1, 3, 0, 0.5, 0, 1, 0) + struct.pack("<I", 4) + b"t"


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (SectionKind.TENSORS, b"", "tensors section is malformed"),
        (SectionKind.TENSORS, TENSOR + b"x", "bytes after its last record"),
        (SectionKind.TENSORS, TENSOR[:-1], "tensors section is cut off"),
        (SectionKind.TENSORS, TENSOR[:-1] + b"\xff", "tensors section is malformed: 'utf-8'"),
        (SectionKind.TENSORS, TENSOR[:4] + b"\x09" + TENSOR[5:], "type code 9"),
        (SectionKind.TENSORS, TENSOR[:5] + b"\x09" + TENSOR[6:], "rank 9"),
        (SectionKind.TENSORS, TENSOR[:6] + b"\x02" + TENSOR[7:], "does not fit at offset 0 of region 2"),
        (SectionKind.TENSORS, TENSOR[:12] + struct.pack("<d", -1.0) + TENSOR[20:], "output has the scale -1.0"),
        (SectionKind.TENSORS, TENSOR[:12] + struct.pack("<d", float("nan")) + TENSOR[20:], "has the scale nan"),
        (SectionKind.TENSORS, TENSOR[:-5] + struct.pack("<I", 0) + b"t", r"output has the shape \[0\]"),
        (SectionKind.MAP, b"[]", "map section is not a JSON object"),
        (SectionKind.MAP, b"{", "map section is not valid JSON"),
        (SectionKind.MAP, b"\xff", "map section is not valid JSON"),
        (SectionKind.MAP, b"[" * 100_000, "map section is not valid JSON"),
        (SectionKind.MAP, b'{"operators": 1}', "must hold a list of operators"),
        (SectionKind.MAP, b'{"operators": [{}]}', "operator 0 of the map section is malformed"),
        (
            SectionKind.MAP,
            b'{"operators":[{"name":"a","kind":"b","macs":true,"recomputed_macs":0,"ranges":[]}]}',
            "operator 0 of the map section is malformed",
        ),
        (
            SectionKind.MAP,
            b'{"operators":[{"name":"a","kind":"b","macs":1,"recomputed_macs":0,"ranges":[[0,-1]]}]}',
            "instruction ranges of operator 0",
        ),
        (SectionKind.METADATA, b"{}", "metadata key 'target' is None, expected str"),
        (
            SectionKind.METADATA,
            b'{"target":"a","target_version":1,"memory":"flash"}',
            "'target_digest' must be 64 hexadecimal digits",
        ),
        (
            SectionKind.METADATA,
            b'{"target":"a","target_version":1,"memory":"tape"}',
            "metadata key 'memory' is 'tape', allowed: flash, sram",
        ),
        *(
            (
                SectionKind.METADATA,
                b'{"target":"a","target_version":1,"memory":"sram","results":%s}' % results,
                "metadata key 'results' must be lists of names, one for each operator",
            )
            for results in (b"null", b'["a"]', b"[[1]]")
        ),
    ],
)
def test_malformed_sections_are_named(kind: SectionKind, body: bytes, message: str) -> None:
    with pytest.raises(PackageError, match=message):
        container.read(rewritten(kind, body))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metadata": METADATA | {"target_version": "1"}}, "'target_version' is '1', expected int"),
        ({"inputs": (BASE.inputs[0], BASE.inputs[0])}, "two inputs share bytes"),
        ({"inputs": tensors(Region.OUTPUTS, (1,))}, "does not fit at offset 0 of region 3"),
        ({"inputs": tensors(Region.ARENA, (257,))}, "input of 257 bytes does not fit at offset 0 of region 1"),
        ({"inputs": (dataclasses.replace(BASE.inputs[0], dtype="float32"),)}, "element type float32, allowed: uint8"),
        ({"outputs": tensors(Region.OUTPUTS, *[(1,)] * 257)}, "257 outputs, at most 256"),
        ({"inputs": (dataclasses.replace(BASE.inputs[0], offset=-1),)}, "does not fit at offset -1 of region"),
        ({"inputs": (dataclasses.replace(BASE.inputs[0], zero_point=1 << 31),)}, "has the zero point 2147483648"),
        (
            {"inputs": (dataclasses.replace(BASE.inputs[0], name="\ud800"),)},
            "the name of an input or output is not text",
        ),
        ({"inputs": (dataclasses.replace(BASE.inputs[0], name="n" * 65536),)}, "65536 bytes, at most 65535"),
        ({"arena_bytes": -1}, "arena of -1 bytes cannot be addressed"),
        ({"source_hash": bytes(15)}, "source hash of 15 bytes, expected 16"),
        ({"target_digest": bytes(33)}, "target digest of 33 bytes, expected 32"),
        ({"compiler_version": (256, 0, 0)}, "compiler version 256.0.0 has no room"),
        ({"operators": (MapEntry("a", "ADD", -1, 0, ()),)}, r"operator 0 \(ADD\) must be natural numbers"),
        ({"metadata": METADATA | {"share": float("nan")}}, "cannot be written as JSON"),
    ],
)
def test_what_cannot_be_written_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(PackageError, match=message):
        container.write(changed(**values))


def test_the_same_contents_give_the_same_bytes() -> None:
    assert pack("halt") == pack("halt")
    assert container.write(changed(metadata=dict(reversed(METADATA.items())))) == FILE
