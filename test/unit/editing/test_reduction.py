"""Models shrink while something holds of them."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers.float_nets import FloatNet
from odc_mlir.editing.cutting import main_operators, reduce
from odc_mlir.editing.parameters import constants
from odc_mlir.tools.odc_reduce import main


def _network(count: int = 20) -> ModuleOp:
    n = FloatNet(1)
    x = n.real(4, 4)
    for number in range(count):
        x = n.add("MUL", x, n.weights(4, 4)) if number % 3 else n.add("TANH" if number % 2 else "ABS", x)
    return n.module(n.add("EXP", x), n.add("NEG", x))


def _names(module: ModuleOp) -> list[str]:
    return [op.SPEC.name for op in main_operators(module)]


def test_one_operator_is_left() -> None:
    found = reduce(_network(), lambda module: "TANH" in _names(module))
    assert _names(found.model) == ["TANH"]
    assert (found.before, found.after) == (22, 1)
    assert found.checks < 40


def test_what_has_to_stay_together_stays() -> None:
    def holds(module: ModuleOp) -> bool:
        names = _names(module)
        return any(pair == ("ABS", "MUL") for pair in itertools.pairwise(names))

    assert _names(reduce(_network(), holds).model) == ["ABS", "MUL"]


def test_weights_become_zeros_where_they_do_not_matter() -> None:
    found = reduce(_network(), lambda module: "MUL" in _names(module))
    assert not any(array.any() for array in constants(found.model).values())
    kept = reduce(_network(), lambda module: "MUL" in _names(module), zeros=False)
    assert all(array.any() for array in constants(kept.model).values())
    matters = reduce(_network(), lambda m: any(np.any(a) for a in constants(m).values()))
    assert len(constants(matters.model)) == 1


def test_the_number_of_checks_is_bounded() -> None:
    asked = 0

    def holds(module: ModuleOp) -> bool:
        nonlocal asked
        asked += 1
        return "TANH" in _names(module)

    assert reduce(_network(), holds, most_checks=3).checks == asked == 3


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = str(tmp_path / "m.circle"), str(tmp_path / "o.circle")
    odc_mlir.optimize(_network(4), level=None).save(model)
    assert main([model, "-o", out, "--check", "grep -q CIR0 {} && echo boom && exit 7", "--match", "boom"]) == 0
    assert "1 after" in capsys.readouterr().out
    assert main([model, "-o", out, "--check", "true"]) == 1
    assert "succeeds on the whole model" in capsys.readouterr().err
    assert main([model, "-o", out, "--check", "echo no; false", "--match", "boom"]) == 1
    assert "does not print 'boom'" in capsys.readouterr().err
    assert main([model, "-o", out, "--check", "sleep 5; test -f", "--timeout", "0.1", "--max-checks", "1", "-q"]) == 0


def test_a_command_that_cannot_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = str(tmp_path / "m.circle"), tmp_path / "o.circle"
    odc_mlir.optimize(_network(2), level=None).save(model)
    for command, text in (("", "empty"), ("no-such-command-here", "127: .*not found"), (f"{model} {{}}", "126")):
        assert main([model, "-o", str(out), "--check", command]) == 1
        assert re.search(text, capsys.readouterr().err)
        assert not out.exists()
    assert main([model, "-o", str(out), "--check", "echo usage; exit 2;"]) == 0
    assert "ends with 2 and the same output on an empty file" in capsys.readouterr().err
    assert main([model, "-o", str(out), "--overwrite", "--check", "grep -q CIR0 {} && exit 7"]) == 0
    assert not capsys.readouterr().err
