"""Every model that compiles explains itself, by numbers that hold together.

Models of the corpus that compute with integers are compiled in test_npu_conformance.py, and those of the zoo in
test_npu.py, where their reports are checked too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import odc_mlir
from helpers.corpus import Case, cases
from helpers.data import REPOSITORY
from helpers.reports import check_report
from odc_mlir.errors import OdcError
from odc_mlir.runtime.reporting.report import build_report


@pytest.mark.parametrize("case", cases(lambda case: case.kind in ("float", "string")))
def test_corpus(case: Case) -> None:
    try:
        package = odc_mlir.compile(case.model)
    except OdcError:
        return  # what compiles is another test's concern
    check_report(build_report(package, quick=True))


def test_same_command_same_numbers(tmp_path: Path) -> None:
    """Two processes with other hash seeds, beside each other, differ in what was measured and nowhere else."""
    model = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"
    command = [str(Path(sys.executable).with_name("odc-compile")), str(model), "--host", "SOFTMAX"]
    started = [
        subprocess.Popen(
            [*command, "-o", str(tmp_path / f"{seed}.zip"), "--json", str(tmp_path / f"{seed}.json")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in "12"
    ]
    headlines = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    first, second = (json.loads((tmp_path / f"{seed}.json").read_text()) for seed in "12")
    assert {key for key in first if first[key] != second[key]} <= {"measured"}
    assert headlines[0].replace("1.zip", "2.zip") == headlines[1]
    opened = odc_mlir.load_package(tmp_path / "1.zip")
    assert (opened.modelled.latency_ms, opened.report["modelled"]) == (first["latency_ms"], first["modelled"])
    assert first["modelled"]["host_ms"] > 0
