"""The status of on-device compilation as text, and its entries for simulated hardware."""

from __future__ import annotations

import numpy as np

import odc_mlir
from helpers.data import REPOSITORY
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.settings import AutoStatus, Fallback, Level, Phase

MODEL = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"


def test_a_status_without_entries_is_one_line() -> None:
    assert str(AutoStatus()) == "float, served by original"


def test_a_full_status_is_a_short_screen() -> None:
    status = AutoStatus(True, Phase.ACTIVE, Level.COMPILED, 1.0, "a cause", 10, 20, "npu-256", "int8")
    status.verdict = {"status": "passed", "metric": "mpeir", "value": 0.0123456, "limit": 0.1, "layers": ["x"] * 1000}
    status.verdict["findings"] = ["a finding"]
    status.cycles, status.latency_us = 12126, {"original": 3.14159}
    status.fallbacks = [Fallback("compiled", "run", f"cause {number}") for number in range(9)]
    assert str(status).splitlines() == [
        "active, served by compiled (npu-256, int8)",
        "  reason: a cause",
        "  records: 10 of 20",
        "  accuracy: passed: mpeir 0.0123, limit 0.1",
        "  finding: a finding",
        "  cycles: 12,126 a run, simulated",
        "  measured here: original 3.1 us",
        *(f"  fallback: compiled (run): cause {number}" for number in (6, 7, 8)),
    ]
    assert len(status.to_dict()["fallbacks"]) == 9
    status.verdict = {"findings": []}  # a damaged file
    assert "accuracy: :  , limit" in str(status)


def test_a_compiled_package_has_the_cycles_of_the_last_run() -> None:
    package = odc_mlir.compile(MODEL, target="npu-256")
    with Session(package) as session:
        assert session.odc_status.cycles is None
        session.infer([np.zeros((1, 8, 8, 1), np.int8)])
        status = session.odc_status
    assert status.cycles == package.report["cycles_total"]
    assert [note.partition(":")[0] for note in status.notes] == ["npu-256 is simulated on this machine"]
