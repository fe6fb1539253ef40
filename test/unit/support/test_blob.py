"""Constant bytes: identity by digest, bytes that may be missing, interning."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.errors import ModelError
from odc_mlir.support.blob import Blob, BlobResources, named_blob

DIGEST = hashlib.sha256(b"abc").hexdigest()


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_blobs_are_equal_when_their_bytes_are(a: bytes, b: bytes) -> None:
    assert (Blob(a) == Blob(b)) == (a == b)
    assert hash(Blob(a)) == hash(Blob(memoryview(a)))
    assert Blob(a).digest == hashlib.sha256(a).hexdigest()
    assert bytes(Blob(a).data) == a


def test_the_bytes_are_held_not_copied_and_read_only() -> None:
    source = bytearray(b"abcd")
    blob = Blob(memoryview(source))
    source[0] = ord("x")
    assert bytes(blob.data) == b"xbcd"
    with pytest.raises(TypeError):
        blob.data[0] = 1


def test_elements_wider_than_a_byte_are_bytes() -> None:
    assert Blob(memoryview(b"abcdefgh").cast("I")).size == 8


def test_other_things_are_no_blobs() -> None:
    assert Blob(b"abc") != b"abc"


def test_unresolved_bytes_are_an_error_that_says_what_to_do() -> None:
    blob = Blob.unresolved(DIGEST, 3)
    assert not blob.is_resolved
    assert blob == Blob(b"abc")
    with pytest.raises(ModelError, match=f"the 3 bytes of constant {DIGEST[:12]} are not in this text; print the IR"):
        _ = blob.data
    assert "unresolved" in repr(blob)
    assert "unresolved" not in repr(Blob(b"abc"))


def test_resolving_checks_size_and_digest() -> None:
    blob = Blob.unresolved(DIGEST, 3)
    for wrong in (b"ab", b"abd"):
        with pytest.raises(ModelError, match=f"is damaged: found {len(wrong)} bytes"):
            blob.resolve(wrong)
    blob.resolve(b"abc")
    assert bytes(blob.data) == b"abc"


def test_blobs_of_one_name_are_one_until_it_has_its_bytes() -> None:
    handle, resources = f"sha256_{DIGEST}", BlobResources()
    first = named_blob(handle, 3)
    assert named_blob(handle, 3) is first
    resources.parse_resource(handle, "0x10000000" + b"abc".hex())
    assert bytes(first.data) == b"abc"
    resources.parse_resource(handle, "0x10000000" + b"abd".hex())  # nothing waits for it any more
    assert bytes(first.data) == b"abc"
    assert not named_blob(handle, 3).is_resolved
    with pytest.raises(ValueError, match="sha256_"):
        named_blob("other", 3)


def test_what_is_found_of_bytes_is_found_once() -> None:
    blob, made = Blob(b"\x01\x02"), []

    def sums(key: str) -> int:
        made.append(key)
        return sum(blob.data)

    assert [blob.found(key, lambda key=key: sums(key)) for key in "aba"] == [3, 3, 3]
    assert made == ["a", "b"]


def test_what_fails_is_tried_again() -> None:
    blob = Blob(b"\x01")
    with pytest.raises(ModelError):
        blob.found("key", lambda: Blob.unresolved("0" * 64, 1).data)
    assert blob.found("key", lambda: 7) == 7


def test_only_the_last_few_finds_are_kept() -> None:
    blob = Blob(b"\x01")
    for number in range(100):
        blob.found(number, lambda number=number: number)
    assert blob.found(99, lambda: -1) == 99
    assert blob.found(0, lambda: -1) == -1
