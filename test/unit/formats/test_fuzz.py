"""Damaged files: each gives a typed error or a model, in bounded time, and never anything else.

``ODC_FUZZ_CASES`` sets how many cases of each kind run (default 150), ``ODC_FUZZ_SEED`` where they start.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model

CASES = int(os.environ.get("ODC_FUZZ_CASES", "150"))
SEED = int(os.environ.get("ODC_FUZZ_SEED", "1"))
SECONDS = 5.0

FILES = (
    "models/zoo/kws_ref_model.tflite",
    "models/zoo-int16/digits_cnn_int16.circle",
    "models/digits/digits_dynbatch.circle",
    "conformance/models/UnidirectionalSequenceLSTM_001.circle",
    "conformance/models/While_003.circle",
    "conformance/models/InstanceNorm_000.circle",
)


@pytest.fixture(scope="module")
def originals(test_data: Path) -> list[bytes]:
    return [(test_data / name).read_bytes() for name in FILES]


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _position(data: bytes, rng: random.Random) -> int:
    """Anywhere, but mostly near the ends: the middle of a real file is constants."""
    near = min(2_000, len(data))
    return rng.choice([rng.randrange(len(data)), rng.randrange(near), len(data) - 1 - rng.randrange(near)])


def _flip(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5, 20])):
        at = _position(data, rng)
        damaged[at] = rng.choice([rng.randrange(256), 0, 127, 128, 255, damaged[at] ^ (1 << rng.randrange(8))])
    return bytes(damaged)


def _overwrite(data: bytes, rng: random.Random) -> bytes:
    """Whole words, which are mostly offsets, lengths and indices."""
    damaged = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = _position(data, rng) & ~3
        word = rng.choice([0, 1, 4, 8, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, at, len(data), rng.randrange(len(data))])
        damaged[at : at + 4] = struct.pack("<I", word)[: len(damaged) - at]
    return bytes(damaged)


@pytest.mark.parametrize("damage", [_truncate, _flip, _overwrite])
@pytest.mark.timeout(120 + CASES)
def test_damaged_files(originals: list[bytes], damage: Callable[[bytes, random.Random], bytes]) -> None:
    for case in range(CASES):
        seed = f"{SEED}/{case}"
        rng = random.Random(seed)
        data = damage(rng.choice(originals), rng)
        started = time.process_time()
        try:
            _exercise(data)
        except OdcError as error:
            text = str(error)
            if "\n" in text:
                pytest.fail(f"seed {seed}: {text!r}")
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}")
        assert time.process_time() - started < SECONDS, f"seed {seed}"


def _exercise(data: bytes) -> None:
    """Read, look at everything that is computed on demand, and write if it can be read."""
    model = read_model(data)
    for index, subgraph in enumerate(model.subgraphs):
        model.constants(index)
        for tensor in subgraph.tensors:
            tensor.effective_shape  # noqa: B018
    again = write_model(model)
    assert write_model(read_model(again)) == again
