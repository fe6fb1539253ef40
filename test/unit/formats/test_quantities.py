"""Sizes as users write them, and how quantities are written."""

from __future__ import annotations

import pytest

from odc_mlir.errors import OptionError
from odc_mlir.formats.quantities import (
    bytes_of,
    decibel_text,
    distinct_cuts,
    listed,
    middle_cut,
    quality_text,
    share_text,
)


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "100.0 %"),
        (0.9998, "99.98 %"),
        (0.99998, "99.998 %"),
        (1 - 1e-12, "100.0 %"),
        (0.9994, "99.9 %"),
        (1.2, "120.0 %"),
    ],
)
def test_what_is_not_all_is_not_rounded_to_it(value: float, text: str) -> None:
    assert share_text(value) == quality_text("top1_match", value) == quality_text("top1_percent", 100 * value) == text


@pytest.mark.parametrize(
    ("metric", "value", "beside", "text"),
    [
        ("top1_match", 95 / 96, 0.99, "98.96 %"),
        ("top1_match", 0.99, 0.99, "99.0 %"),
        ("top1_match", 0.99 - 1e-12, 0.99, "99.0 %"),
        ("top1_match", 0.95, 0.99, "95.0 %"),
        ("sqnr_db", 19.97, 20.0, "19.97 dB"),
        ("mpeir", 0.100004, 0.1, "0.100004"),
        ("r2", 0.7496, 0.75, "0.7496"),
    ],
)
def test_what_is_not_the_same_does_not_look_so(metric: str, value: float, beside: float, text: str) -> None:
    assert quality_text(metric, value, beside) == text


@pytest.mark.parametrize("text", ["", "K", "1.5M", "100KB", "1 0", "0x", "0x1K", "ten", "١", True, None, 1.0])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(OptionError, match="is not a size; write a number of bytes, 100K, 2M or 0x19000"):
        bytes_of(text)


@pytest.mark.parametrize(("words", "text"), [("", ""), ("a", "a"), ("ab", "a and b"), ("abc", "a, b and c")])
def test_what_is_listed(words: str, text: str) -> None:
    assert listed(list(words)) == text


def test_cut_names_stay_distinct() -> None:
    whole = [
        f"model/a/re_lu_{k}/Relu;{'model/x/batch_normalization/' * 4}depthwise_15/depthwise" for k in range(25, 29)
    ]
    found = distinct_cuts([*whole, "short"], 40)
    assert found["short"] == "short"
    assert len(set(found.values())) == 5
    for k, name in enumerate(whole, 25):
        assert len(found[name]) <= 40
        assert f"re_lu_{k}" in found[name], "where the names differ is what remains"
    alike = [f"{'x' * 50}{k}{'y' * 50}" for k in range(12)]
    numbered = distinct_cuts(alike, 20)
    assert len(set(numbered.values())) == 12
    assert max(map(len, numbered.values())) == 20
    assert distinct_cuts(["z" * 60] * 2, 20) == {"z" * 60: middle_cut("z" * 60, 20)}, "one name has one text"
