"""Block formats, element by element."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir.numerics.blocks import BLOCK_ELEMENTS, decode_blocks

SIZES = {"ggml_q4_0": 18, "ggml_q4_1": 20, "ggml_q8_0": 34, "ggml_q8_1": 36}


def element(block: bytes, dtype: str, place: int) -> float:
    """Value of one element of one block, by the definition of its format."""
    scale, other = (float(np.frombuffer(block[at : at + 2], "<f2")[0]) for at in (0, 2))
    if dtype.startswith("ggml_q8"):
        numbers = block[2:] if dtype == "ggml_q8_0" else block[4:]
        return scale * (numbers[place] - 256 * (numbers[place] > 127))
    packed = (block[2:] if dtype == "ggml_q4_0" else block[4:])[place % 16]
    nibble = packed % 16 if place < 16 else packed // 16
    return scale * (nibble - 8) if dtype == "ggml_q4_0" else scale * nibble + other


@pytest.mark.parametrize("dtype", SIZES)
def test_every_element(dtype: str) -> None:
    raw = np.random.default_rng(1).integers(0, 256, (2, 3, SIZES[dtype])).astype(np.uint8)
    raw[..., :4] = np.array([0.5, -3.25], "<f2").view(np.uint8)
    found = decode_blocks(raw, dtype)
    assert (found.dtype, found.shape) == (np.float32, (2, 3 * BLOCK_ELEMENTS))
    for row in range(2):
        for place in range(3 * BLOCK_ELEMENTS):
            block, inside = divmod(place, BLOCK_ELEMENTS)
            assert found[row, place] == np.float32(element(raw[row, block].tobytes(), dtype, inside))


def test_other_types_are_no_blocks() -> None:
    with pytest.raises(KeyError):
        decode_blocks(np.zeros((1, 1, 18), np.uint8), "mxfp4")
