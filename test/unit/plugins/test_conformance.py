"""The suite of ``odc-plugin check``: the example passes it, and each fault that a plugin can have is found."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from helpers.models import add_model
from helpers.plugins import install_example
from odc_mlir.plugins import registry
from odc_mlir.runtime import conformance
from odc_mlir.runtime.conformance import run_suite
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.tools import odc_plugin

FAULTS = [
    # file, what stands there, what takes its place, what is found
    (
        "device.py",
        "product + bias",
        "product - bias",
        "it computes something else than host kernels",
    ),
    ("device.py", 'return ("mya",)', "return (5,)", "attached() is (5,), expected a tuple of at most"),
    (
        "program.py",
        "dumps(header",
        "dumps(header | {'made': __import__('os').getpid()}",
        "other bytes the second time",
    ),
    ("target.py", "    return None if found in", "    return 1 / 0 if found in", "ZeroDivisionError"),
]
COMPARED = [
    "writes into its inputs",
    "the same inputs give other outputs the second time",
    "computes something else than host kernels",
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = install_example(tmp_path / "site")
    monkeypatch.setenv(registry.PATH_VARIABLE, str(folder))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "mya"]:
        del sys.modules[name]
    sys.path[:] = [place for place in sys.path if place != str(folder)]


@pytest.mark.soak
def test_the_example_conforms(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_plugin.main(["check", "mya"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("8 checks, 0 problems\n")
    assert "damaged files were refused" in said


@pytest.mark.soak
@pytest.mark.parametrize("name", ["npu-256", "cpu"])
def test_our_own_targets_conform(name: str) -> None:
    assert odc_plugin.main(["check", name]) == 0


@pytest.mark.soak
@pytest.mark.parametrize(("file", "old", "new", "problem"), FAULTS, ids=[fault[3] for fault in FAULTS])
def test_faults_are_found(
    file: str, old: str, new: str, problem: str, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = installed / "mya" / file
    assert old in source.read_text()
    source.write_text(source.read_text().replace(old, new, 1))
    assert odc_plugin.main(["check", "mya", "--json"]) == 1
    outcomes = json.loads(capsys.readouterr().out)
    assert any(problem in (outcome["problem"] or "") for outcome in outcomes)


class Device:
    """An executor with one fault, or none."""

    def __init__(self, fault: str) -> None:
        self._host, self._fault, self._runs = HostExecutor(build_graph(add_model())), fault, 0
        self.graph = self._host.graph

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        (output,) = self._host.run(inputs)
        self._runs += 1
        if self._fault == "writes into its inputs":
            inputs[0][...] = 0
        if self._fault == "computes something else than host kernels":
            output[..., -1] += 0.01
        return [output + self._runs] if self._fault.startswith("the same inputs") else [output]


@pytest.mark.parametrize("fault", ["", *COMPARED])
def test_a_device_is_compared_with_host_kernels(fault: str) -> None:
    device, host = Device(fault), Device("")
    if not fault:
        conformance._compare("m", device, host)  # type: ignore[arg-type]
        return
    with pytest.raises(conformance._FailedError, match=f"'m': .*{fault}"):
        conformance._compare("m", device, host)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["-1e9", "float('nan')", "float('inf')", "'12'", "None", "1 / 0"])
def test_costs_that_are_no_times_are_found(given: str, installed: Path) -> None:
    source = installed / "mya" / "target.py"
    text = source.read_text()
    assert "return 50.0 + node" in text
    source.write_text(text.replace("return 50.0 + node", f"return {given}  # 50.0 + node"))
    outcomes = {outcome.what: outcome for outcome in islice(run_suite("mya"), 3)}
    (costs,) = (outcome for what, outcome in outcomes.items() if "is a time" in what)
    assert re.match("operator_ns (gives|raises) .*in target mya, op FULLY_CONNECTED", costs.problem or "")
    assert [outcome.what for outcome in outcomes.values() if outcome.problem] == [costs.what]


def test_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_plugin.main(["check", "nix-gen"]) == 1
    assert "there is no codegen plugin 'nix-gen'" in capsys.readouterr().out
    assert odc_plugin.main(["rules", "tvn-gen"]) == 1


def test_lists_and_rules(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_plugin.main(["list"]) == 0
    said = capsys.readouterr().out
    assert "mya  mya 0.1 (mya.target:describe)" in said
    assert "cpu-gen  odc-mlir" in said
    assert "\n    npu-128, npu-2048, npu-256, npu-512\n" in said
    assert odc_plugin.main(["rules", "mya"]) == 0
    assert "  narrow: the matrix has at most 512 columns" in capsys.readouterr().out
