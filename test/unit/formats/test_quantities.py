"""Sizes as users write them, and how quantities are written."""

from __future__ import annotations

import pytest

from odc_mlir.errors import OptionError
from odc_mlir.formats.quantities import bytes_of, decibel_text, listed, quality_text, share_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (7, 7),
        ("7", 7),
        (" 100K ", 102_400),
        ("2M", 2 << 20),
        ("2MiB", 2 << 20),
        ("1g", 1 << 30),
        ("0x19000", 102_400),
        ("0X1F", 31),
        ("-1", -1),
    ],
)
def test_sizes(text: int | str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("value", [-0.0, -1e-9])
def test_zero_has_no_sign(value: float) -> None:
    assert (share_text(value), decibel_text(value)) == ("0.0 %", "0.0 dB")
    assert quality_text("mpeir", value * 0.0) == "0"
    assert quality_text("mpeir", -1e-9) == "-1e-09"


@pytest.mark.parametrize("text", ["", "K", "1.5M", "100KB", "1 0", "0x", "0x1K", "ten", "١", True, None, 1.0])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(OptionError, match="is not a size; write a number of bytes, 100K, 2M or 0x19000"):
        bytes_of(text)


@pytest.mark.parametrize(("words", "text"), [("", ""), ("a", "a"), ("ab", "a and b"), ("abc", "a, b and c")])
def test_what_is_listed(words: str, text: str) -> None:
    assert listed(list(words)) == text
