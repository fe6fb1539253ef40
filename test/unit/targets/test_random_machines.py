"""Whatever a target's file says, compiling for it ends soon: with a program, or with a typed error."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

import odc_mlir
from helpers.exercise import Outcome, bounded
from odc_mlir import targets
from odc_mlir.errors import OdcError

CASES = int(os.environ.get("ODC_FUZZ_CASES", "20"))
SEED = int(os.environ.get("ODC_FUZZ_SEED", "1"))
MODEL = Path(__file__).parents[3] / "examples" / "digits" / "digits_cnn_int8.circle"
TEXT = (Path(targets.__file__).parent / "npu-256.toml").read_text("utf-8").replace('"npu-256"', '"mine"', 1)
NUMBER = re.compile(r"^(\w+ = )([\d_]+)(?=\s|$)", re.MULTILINE)


def machine(rng: random.Random) -> str:
    """npu-256 with some of its numbers small, large or slightly other."""
    share = rng.choice((0.05, 0.1, 0.3, 0.9))
    style = rng.choice(("small", "large", "near", "any"))

    def changed(match: re.Match[str]) -> str:
        if match[1].startswith("macs_per_cycle") or rng.random() > share:
            return match[0]
        old = int(match[2].replace("_", ""))
        kind = rng.choice(("small", "large", "near")) if style == "any" else style
        factor = {"small": (1 / 64, 1), "large": (1, 64), "near": (0.5, 2)}[kind]
        return f"{match[1]}{rng.choice((int(old * rng.uniform(*factor)), rng.choice((0, 1, 2, 16, 1 << 12, 1 << 16))))}"

    return NUMBER.sub(changed, TEXT)


@pytest.mark.timeout(120 + 10 * CASES)
def test_random_machines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compiled = 0
    for case in range(CASES):
        rng = random.Random(f"{SEED}/{case}")
        path = tmp_path / f"{case}.toml"
        path.write_text(machine(rng))
        memory = rng.choice(targets.MEMORY_MODES)

        def build(path: Path = path, memory: str = memory) -> None:
            odc_mlir.compile(MODEL, target=str(path), memory=memory)

        outcome: Outcome = bounded("compile", build)
        finding = outcome.finding or ("a defect" if "defect" in caplog.text else None)
        if finding is not None:
            pytest.fail(f"case {SEED}/{case}: {finding}\n{path.read_text()}")
        compiled += not outcome.errors
    assert compiled >= CASES // 10


def test_the_smallest_machine_that_is_accepted(tmp_path: Path) -> None:
    """Every local memory at its least size: no layer of a real network may need endless programs."""
    text = TEXT
    for key, value in {
        "tile_bytes": 1024,
        "weight_bytes": 512,
        "accumulators": 32,
        "param_entries": 16,
        "table_bytes": 256,
    }.items():
        text = re.sub(rf"^{key} = [\d_]+", f"{key} = {value}", text, flags=re.MULTILINE)
    (tmp_path / "least.toml").write_text(text)

    def build() -> None:
        odc_mlir.compile(MODEL, target=str(tmp_path / "least.toml"))

    outcome = bounded("compile", build)
    assert outcome.finding is None
    assert not outcome.errors


def test_time_limits() -> None:
    with pytest.raises(OdcError, match=r"the time limit is 0 s, it must be above 0"):
        odc_mlir.compile(MODEL, time_limit=0)
    with pytest.raises(odc_mlir.errors.TimeLimitError, match=r"takes longer than the time limit of 1e-06 s"):
        odc_mlir.lower(odc_mlir.load(MODEL), "npu", time_limit=1e-6)
