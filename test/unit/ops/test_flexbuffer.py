"""FlexBuffers: what the flatbuffers package writes is read back, anything else is refused."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from flatbuffers import flexbuffers
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.errors import ModelError
from odc_mlir.ops.flexbuffer import decode, decode_map

# The package that writes them takes ASCII keys only, and no doubles beyond the range of float32.
_KEY = st.text(st.characters(min_codepoint=1, max_codepoint=0x7F), max_size=8)
_TEXT = st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), max_size=8)
_NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(-1e38, 1e38)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEY, inner, max_size=4),
    max_leaves=12,
)


@given(_VALUES)
def test_round_trip(value: Any) -> None:
    assert decode(bytes(flexbuffers.Dumps(value))) == value


def test_blobs() -> None:
    assert decode(bytes(flexbuffers.Dumps(b"\0\1"))) == b"\0\1"


@given(st.binary(max_size=64))
def test_other_bytes_are_refused_or_read(data: bytes) -> None:
    with contextlib.suppress(ModelError):
        decode(data)


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\1\4\3", b"\1\x50\1", b"\xff\x28\1"])
def test_malformed_bytes(data: bytes) -> None:
    with pytest.raises(ModelError, match="the FlexBuffer is malformed"):
        decode(data)


def test_only_maps_are_options() -> None:
    assert decode_map(b"") == {}
    with pytest.raises(ModelError, match="holds a int where a map is expected"):
        decode_map(bytes(flexbuffers.Dumps(3)))


def test_a_vector_in_itself_ends() -> None:
    """A length of 1, an element that points at itself, its type (a vector); then the root: offset, type, width."""
    vector = 10 << 2
    with pytest.raises(ModelError, match="malformed: it"):
        decode(bytes([1, 0, vector, 2, vector, 1]))
