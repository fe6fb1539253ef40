"""Files built to cost time or memory: shared and overlapping structures, impossible lengths, offsets that loop."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import flatbuffers
import pytest

from odc_mlir.errors import ModelError
from odc_mlir.formats.circle import reader
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model

SECONDS = 5.0
BYTES_PER_FILE_BYTE = 200


def _read(data: bytes) -> Model:
    """read_model within the time and memory that a file of this size may cost."""
    read_model(_file(lambda builder: _vector(builder, [_table(builder, {})])))  # loads the schema
    tracemalloc.start()
    started = time.process_time()
    try:
        return read_model(data)
    finally:
        seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert seconds < SECONDS
        assert peak < BYTES_PER_FILE_BYTE * len(data) + (1 << 20)


def _table(builder: Any, slots: dict[int, int]) -> int:
    """A table that refers to the given offsets."""
    builder.StartObject(10)
    for slot, offset in slots.items():
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    return int(builder.EndObject())


def _vector(builder: Any, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in offsets:
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _file(subgraphs: Callable[[Any], int], slot: int = 2) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(_table(builder, {slot: subgraphs(builder)}), b"CIR0")
    return bytes(builder.Output())


def test_shared_vectors_do_not_multiply() -> None:
    """20,000 subgraphs that are one, with 20,000 tensors that are one: 400 million records from 160 kB."""

    def subgraphs(builder: Any) -> int:
        tensors = _vector(builder, [_table(builder, {})] * 20_000)
        return _vector(builder, [_table(builder, {0: tensors})] * 20_000)

    with pytest.raises(ModelError, match="tables are referenced too often"):
        _read(_file(subgraphs))


def test_distinct_owners_of_one_vector_do_not_multiply() -> None:
    def subgraphs(builder: Any) -> int:
        tensors = _vector(builder, [_table(builder, {})] * 20_000)
        return _vector(builder, [_table(builder, {0: tensors}) for _ in range(2_000)])

    with pytest.raises(ModelError, match="tables are referenced too often"):
        _read(_file(subgraphs))


def test_overlapping_vectors_do_not_multiply() -> None:
    """Shapes that start one word apart and all reach to the end: quadratic work if each were decoded."""
    count = 20_000

    def subgraphs(builder: Any) -> int:
        # Read as a vector from any word k, the words give a length of count - k and that many elements.
        builder.StartVector(4, count, 4)
        for length in range(count):
            builder.PrependInt32(length)
        words = int(builder.EndVector())
        shapes = [_table(builder, {0: words - 4 * k}) for k in range(1, count, 4)]
        return _vector(builder, [_table(builder, {0: _vector(builder, shapes)})])

    with pytest.raises(ModelError, match=r"tensors\[\d+\].shape: its structures overlap so much"):
        _read(_file(subgraphs))


def _file_with_vtables(vtables: bytes, starts: list[int]) -> bytes:
    """A model whose subgraphs have their vtables in one block, at the offsets ``starts``."""
    head = struct.pack("<I4sHHHHHH", 20, b"CIR0", 10, 8, 0, 0, 4, 0)  # root offset, identifier, root vtable
    head += struct.pack("<iI", 12, 4)  # the root table: distance to its vtable, offset of the subgraphs
    first = len(head) + 4 + 4 * len(starts)
    block = first + 4 * len(starts)
    entries = [first + 4 * k - (len(head) + 4 + 4 * k) for k in range(len(starts))]
    tables = [(first + 4 * k) - (block + start) for k, start in enumerate(starts)]
    return head + struct.pack(f"<I{len(starts)}I{len(starts)}i", len(starts), *entries, *tables) + vtables


def test_overlapping_vtables_do_not_multiply() -> None:
    """1,000 vtables of 60 kB within 124 kB."""
    block = bytearray(64 * 1_000 + 60_000)
    starts = list(range(0, 64_000, 64))
    for start in starts:
        struct.pack_into("<HH", block, start, 60_000, 4)
    with pytest.raises(ModelError, match=r"subgraphs\[\d+\]: its structures overlap so much"):
        _read(_file_with_vtables(bytes(block), starts))


def test_unknown_fields_are_looked_for_once() -> None:
    """One vtable with 30,000 fields that our schema lacks, shared by 4,000 tables."""
    vtable = struct.pack("<32000H", 64_000, 4, *[0] * 10, *[1] * 31_988)
    model = _read(_file_with_vtables(vtable, [0] * 4_000))
    assert len(model.unknown) == 31_988


@pytest.mark.parametrize("count", [0xFFFFFFFF, 0x7FFFFFFF, 0x40000000])
@pytest.mark.parametrize("slot", [1, 2, 3, 4, 5, 6, 7])
def test_impossible_lengths(count: int, slot: int) -> None:
    def vector(builder: Any) -> int:
        builder.StartVector(4, 2, 4)
        builder.PrependUint32(1)
        builder.PrependUint32(count)
        builder.EndVector()
        return int(builder.Offset()) - 4  # the length that the builder wrote is not part of it

    with pytest.raises(ModelError, match=f"a vector of {count} elements at byte .* is longer than the file"):
        _read(_file(vector, slot))


def test_offset_to_itself() -> None:
    data = bytearray(_file(lambda builder: _vector(builder, [_table(builder, {})])))
    (root,) = struct.unpack_from("<I", data, 0)
    (vtable,) = struct.unpack_from("<i", data, root)
    (field,) = struct.unpack_from("<H", data, root - vtable + 4 + 2 * 2)
    struct.pack_into("<I", data, root + field, 0)
    with pytest.raises(ModelError, match=r"^subgraphs: the offset at byte \d+ points to itself"):
        _read(bytes(data))


@pytest.mark.parametrize("distance", [1 << 30, -(1 << 30), 0])
def test_vtable_outside(distance: int) -> None:
    data = bytearray(_file(lambda builder: _vector(builder, [_table(builder, {})])))
    (root,) = struct.unpack_from("<I", data, 0)
    struct.pack_into("<i", data, root, distance)
    with pytest.raises(ModelError):
        _read(bytes(data))


def test_more_tables_than_any_model_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_TABLES", 9)
    assert read_model(_file(lambda builder: _vector(builder, [_table(builder, {})] * 9))).subgraphs
    with pytest.raises(ModelError, match=r"subgraphs\[9\]: the file has more than 9 tables"):
        read_model(_file(lambda builder: _vector(builder, [_table(builder, {}) for _ in range(10)])))


def test_one_string_for_everything_is_decoded_once() -> None:
    """A megabyte of name for 1,000 tensors."""

    def subgraphs(builder: Any) -> int:
        name = builder.CreateString("n" * 1_000_000)
        tensors = _vector(builder, [_table(builder, {3: name}) for _ in range(1_000)])
        return _vector(builder, [_table(builder, {0: tensors})])

    names = {id(tensor.name) for tensor in _read(_file(subgraphs)).subgraphs[0].tensors}
    assert len(names) == 1
