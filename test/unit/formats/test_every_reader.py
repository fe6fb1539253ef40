"""Every reader of files of others: damaged in structured ways, they give a result or a typed error, soon.

``ODC_FUZZ_CASES`` sets how many cases run, of all readers together (default 150), ``ODC_FUZZ_SEED`` where they start,
``ODC_FUZZ_READER`` restricts them to one reader. The soak test (``--soak``) runs 20,000, in parts, and prints what came
of them.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from helpers.exercise import bounded
from helpers.readers import Reader, readers

CASES = int(os.environ.get("ODC_FUZZ_CASES", "150"))
SEED = os.environ.get("ODC_FUZZ_SEED", "1")
ONLY = os.environ.get("ODC_FUZZ_READER", "")
PARTS, PART = 10, 2_000


@pytest.fixture(scope="module")
def everything() -> list[Reader]:
    return [reader for reader in readers() if ONLY in reader.name]


def _run(everything: list[Reader], folder: Path, cases: range) -> Counter[str]:
    """What became of the cases, by reader and outcome; fails at the first finding."""
    counts: Counter[str] = Counter()
    findings = []
    weights = [reader.weight for reader in everything]
    for case in cases:
        rng = random.Random(f"{SEED}/{case}")
        (reader,) = rng.choices(everything, weights)
        data = reader.damaged(rng)

        def read(reader: Reader = reader, data: bytes = data, rng: random.Random = rng) -> None:
            reader.read(data, folder, rng)

        outcome = bounded(reader.name, read)
        if outcome.finding is not None:
            findings.append(f"case {SEED}/{case}, {outcome.finding}")
        what = "finding" if outcome.finding else type(outcome.errors[0]).__name__ if outcome.errors else "read"
        counts[f"{reader.name}: {what}"] += 1
    assert not findings, "\n".join(findings[:20])
    return counts


@pytest.mark.timeout(120 + CASES)
def test_damaged_files(everything: list[Reader], tmp_path: Path) -> None:
    counts = _run(everything, tmp_path, range(CASES))
    assert {entry.partition(":")[0] for entry in counts} == {reader.name for reader in everything}


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_damaged_files(everything: list[Reader], part: int, tmp_path: Path) -> None:
    for entry, count in sorted(_run(everything, tmp_path, range(part * PART, (part + 1) * PART)).items()):
        print(f"{count:6d}  {entry}")
