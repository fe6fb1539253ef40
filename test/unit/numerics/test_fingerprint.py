"""The hash of projections: fixed values of every length class (the projections themselves are compared with LiteRT)."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir.numerics.fingerprint import fingerprint64


def keys(length: int) -> np.ndarray:
    return np.arange(2 * length, dtype=np.uint8).reshape(2, length)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (1, [0xBE6056EDF5E94B54, 0x47A24C13B17E583E]),
        (3, [0x94A13D22E9EBA49A, 0x8E3B14525B770584]),
        (4, [0x82BFFD898958E540, 0xB0C735B1827A20BD]),
        (7, [0xA2E0BFF20DB0A6A1, 0x52614AC621ED9D6E]),
        (8, [0xAD5A13E1E8E93B98, 0xC04478D16167174F]),
        (16, [0xEFD25A0A34156D4, 0x20FDF570F26A173D]),
        (17, [0xBBB6A6F8F20D1F1C, 0x29EE2EF2DCD7DF8]),
        (32, [0x1A9D8199972CDF49, 0xC414C249B4E43413]),
        (33, [0xE8756EC1CB75524E, 0x1A0A789ADE487ECD]),
        (64, [0xF58504BB53DECC4B, 0xB3160D61689FEA42]),
        (65, [0xC6A3282C3E793DBE, 0xD9C26070D08DB132]),
        (128, [0x1C484C95F0EA5DD3, 0xC845AC04B175B91C]),
        (150, [0xC44A300E5947C6D0, 0x6A347B70A1CB802F]),
    ],
)
def test_values(length: int, expected: list[int]) -> None:
    assert fingerprint64(keys(length)).tolist() == expected


def test_the_empty_key() -> None:
    assert fingerprint64(np.zeros((3, 0), np.uint8)).tolist() == [0x9AE16A3B2F90404F] * 3


@pytest.mark.parametrize("length", [1, 5, 12, 25, 50, 64, 65, 129])
def test_keys_are_hashed_one_by_one(length: int) -> None:
    many = keys(length)
    assert fingerprint64(many).tolist() == [int(fingerprint64(many[i : i + 1])[0]) for i in range(2)]
    changed = many.copy()
    changed[0, -1] ^= 1
    assert (fingerprint64(changed) == fingerprint64(many)).tolist() == [False, True]
