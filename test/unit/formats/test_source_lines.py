"""Lines of source code as metadata."""

from __future__ import annotations

import pytest

from odc_mlir.errors import CompileError, ModelError
from odc_mlir.formats.source_lines import decode, encode, line_of, located

LINES = {"a/b": "model.py:3", "c": "model.py:3", "d": "other.py:1"}


def test_round_trip() -> None:
    assert decode(encode(LINES)) == LINES
    assert decode(None) == {}


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"a": 1}', b"\xff"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ModelError, match="cannot read the source lines"):
        decode(data)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a/b", "model.py:3"),
        ("a/b/conv_2d_3", "model.py:3"),
        ("d#5", "other.py:1"),
        ("d_quantized", "other.py:1"),
        ("a/b/relu_requantized_2", "model.py:3"),
        ("a_quantized", None),
        ("_quantized", None),
        ("a", None),
        ("", None),
    ],
)
def test_parts_of_an_operator_have_its_line(name: str, line: str | None) -> None:
    assert line_of(LINES, name) == line


@pytest.mark.parametrize(
    ("tensor", "location", "expected"),
    [("c", None, "model.py:3"), ("c", "model.mlir:1", "model.mlir:1"), ("x", None, None), (None, None, None)],
)
def test_errors_about_a_tensor_get_its_line(tensor: str | None, location: str | None, expected: str | None) -> None:
    with pytest.raises(CompileError) as caught, located(LINES):
        raise CompileError("it fails", tensor=tensor, location=location)
    assert caught.value.location == expected
