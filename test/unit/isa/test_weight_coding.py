"""Weight coding: what is encoded decodes to the same, never grows, and damage is an error."""

from __future__ import annotations

import heapq
import operator
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odc_mlir.errors import SimulationError
from odc_mlir.isa import weight_coding
from odc_mlir.isa.table.transfers import CODINGS
from odc_mlir.isa.weight_coding import RUNS, coded_bytes, decode, encode

ONE_BY_ONE = [(), ("rice",), ("huffman",)]


@st.composite
def weights(draw: st.DrawFn) -> bytes:
    """Bytes spread around some centre, many of them equal to it or not."""
    seed, size = draw(st.integers(0, 1 << 30)), draw(st.integers(1, 3000))
    spread, centre = draw(st.sampled_from((0.0, 0.6, 3.0, 20.0, 300.0))), draw(st.integers(0, 255))
    rng = np.random.default_rng(seed)
    values = rng.laplace(0, spread, size) * (rng.random(size) < draw(st.sampled_from((1.0, 0.5, 0.02))))
    return (np.rint(values).astype(np.int64) + centre).astype(np.uint8).tobytes()


@given(weights(), st.sampled_from([*ONE_BY_ONE, CODINGS]))
@settings(max_examples=60)
def test_decoding_gives_back_what_was_encoded(data: bytes, codings: tuple[str, ...]) -> None:
    coding, coded = encode(data, codings)
    assert coding == "raw" or coding in codings
    assert len(coded) == coded_bytes(data, codings) <= len(data)
    assert decode(coding, coded, len(data)).tobytes() == data
    if coding != "raw":
        assert decode(coding, coded + b"\0\0", len(data)).tobytes() == data


@given(weights(), st.data())
@settings(max_examples=60)
def test_damage_is_an_error_or_other_weights(data: bytes, draw: st.DataObject) -> None:
    coding, coded = encode(data, draw.draw(st.sampled_from([*ONE_BY_ONE, CODINGS])))
    bad = bytearray(coded)
    for _ in range(draw.draw(st.integers(1, 4))):
        bad[draw.draw(st.integers(0, len(bad) - 1))] ^= draw.draw(st.integers(1, 255))
    length = draw.draw(st.integers(0, len(bad)))
    for stream in (bytes(bad), coded[:length]):
        with suppress(SimulationError):
            assert len(decode(coding, stream, len(data))) == len(data)


@given(st.binary(max_size=64), st.sampled_from(CODINGS), st.integers(1, 70_000))
@settings(max_examples=60)
def test_any_bytes_are_an_error_or_weights(stream: bytes, coding: str, count: int) -> None:
    with suppress(SimulationError):
        assert len(decode(coding, stream, count)) == count


def bits(*fields: tuple[int, int]) -> bytes:
    """(value, width) fields one after the other, padded to bytes."""
    text = "".join(f"{value:0{width}b}" for value, width in fields)
    return int(text.ljust(-(-len(text) // 8) * 8, "0"), 2).to_bytes(-(-len(text) // 8), "big")


def test_rice_as_described() -> None:
    # centre 5, k 1; ranks 0, 3, 200: 0|0, 10|1, 1111|11001000
    stream = bits((5, 8), (1, 3), (0b00, 2), (0b101, 3), (0b1111, 4), (200, 8))
    assert decode("rice", stream, 3).tolist() == [5, 5 - 2, 105]


def test_huffman_as_described() -> None:
    # lengths 1 to 2: rank 0 has one bit, the two that are left have two: 0, 10, 11
    stream = bits((255, 8), (0, 1), (1, 4), (2, 4), (1, 2), (0b10, 2), (0b11, 2), (0b0, 1))
    assert decode("huffman", stream, 3).tolist() == [254, 0, 255]


def test_runs_come_before_ranks_of_the_same_length() -> None:
    # run 4 and ranks 0 and 1 have 1, 2, 2 bits
    lengths = [(1 if run == 4 else 0, 4) for run in RUNS]
    stream = bits((7, 8), (1, 1), (1, 4), (2, 4), *lengths, (0, 2), (0b0, 1), (0b11, 2), (0b10, 2))
    assert decode("huffman", stream, 6).tolist() == [7, 7, 7, 7, 6, 7]


@pytest.mark.parametrize(
    ("coding", "stream", "count", "message"),
    [
        ("raw", b"ab", 3, "2 raw bytes cannot give 3 weights"),
        ("rice", b"", 1, "the header of coded weights is cut off"),
        ("huffman", bytes(3), 1, "codewords of coded weights have 0 to 0 bits"),
        ("huffman", bits((0, 8), (0, 1), (3, 4), (2, 4)), 1, "codewords of coded weights have 3 to 2 bits"),
        ("huffman", bits((0, 8), (0, 1), (1, 4), (13, 4)), 1, "codewords of coded weights have 1 to 13 bits"),
        ("huffman", bits((0, 8), (0, 1), (1, 4), (2, 4), (3, 2), (0, 8)), 1, "more than its lengths allow"),
        ("huffman", bits((0, 8), (0, 1), (9, 4), (9, 4), (0, 9)), 1, "512 codewords"),
        ("huffman", bits((0, 8), (1, 1), (2, 4), (2, 4), (1, 4), (0, 20)), 1, "outside 2 to 2 bits"),
        ("huffman", bits((0, 8), (0, 1), (1, 4), (1, 4)), 9, "3 coded bytes give 7 weights, not 9"),
        ("huffman", bits((0, 8), (0, 1), (1, 4), (1, 4), (0b01, 2)), 1, "bits after the last of 1 coded weights"),
        ("huffman", bits((0, 8), (1, 1), (1, 4), (1, 4), (0, 20), (1, 4), (0, 1)), 9, "ends after the last of 9"),
        ("rice", bits((0, 8), (7, 3), (0b111, 3), (0, 20)), 1, "5 coded bytes give 0 weights"),
        ("rice", bits((0, 8), (0, 3), (0b1111, 4), (3, 8), (0, 8)), 1, "4 coded bytes give 0 weights"),
    ],
)
def test_streams_that_break_a_rule(coding: str, stream: bytes, count: int, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        decode(coding, stream, count)


def test_long_repetitions_take_next_to_nothing() -> None:
    assert len(encode(bytes(16_384)).data) < 64
    sparse = bytearray(4096)
    sparse[::100] = bytes(range(1, 42))
    assert len(encode(bytes(sparse)).data) < 120


@pytest.mark.parametrize("centre", [0, 3, 128, 250])
def test_the_middle_of_codes_is_found_for_signed_and_unsigned_ones(centre: int) -> None:
    values = np.rint(np.random.default_rng(0).normal(0, 4, 4000)).astype(np.int64) + centre
    assert len(encode(values.astype(np.uint8).tobytes()).data) < 4000 * 4.2 / 8


@given(st.lists(st.integers(1, 60), min_size=2, max_size=300))
@settings(max_examples=60)
def test_code_lengths_are_huffmans(counts: list[int]) -> None:
    """Those of flat counts, which are found without a tree, too."""
    weights = sorted(map(float, counts), reverse=True)
    heap, total = sorted(weights), 0.0
    while len(heap) > 1:
        first, second = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, first + second)
        total += first + second
    lengths = weight_coding._depths(weights)
    assert lengths == sorted(lengths)
    assert sum(map(operator.mul, weights, lengths)) == total or max(lengths) == weight_coding.LONGEST_BITS
