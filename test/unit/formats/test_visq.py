"""Errors of tensors as ONE's visq has them: metrics, files, graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder, model_bytes
from odc_mlir.errors import OptionError
from odc_mlir.formats import one
from odc_mlir.runtime.reporting.metrics import ErrorMeter, Tolerance
from odc_mlir.tools import odc_diff


def test_metrics_of_visq() -> None:
    """TAE sums over elements and is the mean over records; SRMSE is in steps of the scale."""
    meter = ErrorMeter(Tolerance(), scale=0.5)
    for a, b in (([0.0, 4.0], [1.0, 2.0]), ([0.0, 1.0], [0.0, 0.0])):
        meter.add(np.array(a, np.float32), np.array(b, np.float32))
    errors = meter.errors()
    assert errors.tae == (3.0 + 1.0) / 2
    assert errors.mse == (1 + 4 + 0 + 1) / 4
    assert errors.srmse == np.sqrt(errors.mse) / 0.5
    assert errors.mpeir == (2 + 1) / 2 / 4
    assert ErrorMeter(Tolerance()).errors().srmse is None


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    errors = {"a": 0.25, "b:0": 1.0 / 3}
    content = one.document("m.circle", "mse", errors)
    assert content["meta"]["metric"] == "MSE"
    scheme = content["meta"]["colorscheme"]
    assert (len(scheme), scheme[0]["b"], scheme[-1]["e"]) == (9, 0.25, 0.3333)
    (tmp_path / "e.json").write_text(json.dumps(content))
    assert one.read(tmp_path / "e.json") == ("mse", {"a": 0.25, "b:0": 0.3333})
    whole = one.document("m", "mpeir", errors)["meta"]["colorscheme"]
    assert (whole[0]["b"], whole[-1]["e"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "cannot read the errors of layers"),
        ("[1]", "this is not an error file in the format of visq"),
        ('{"meta": {"metric": "MPEIR"}, "error": []}', "this is not an error file in the format of visq"),
        ('{"meta": {"metric": "MPEIR"}, "error": [{}]}', "errors must be numbers of at least 0; there is none"),
        ('{"meta": {"metric": "best"}, "error": [{"a": 1}]}', "the errors are in 'best'.*; use one of mpeir, mse"),
        (
            '{"meta": {"metric": "MSE"}, "error": [{"a": NaN}]}',
            "errors must be numbers of at least 0; that of 'a' is nan",
        ),
        ('{"meta": {"metric": "MSE"}, "error": [{"a": -1}]}', "that of 'a' is -1"),
        ('{"meta": {"metric": "MSE"}, "error": [{"a": "x"}]}', "this is not an error file in the format of visq"),
    ],
)
def test_files_that_are_none(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text(content)
    with pytest.raises(OptionError, match=message):
        one.read(tmp_path / "e.json")


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """A float model and what codes make of it: y = x + 1, z = y * y."""
    paths = []
    for name, quant in (("float", None), ("codes", (0.125, 0))):
        builder = ModelBuilder()
        dtype = "float32" if quant is None else "int8"
        x, y, z = (builder.tensor(text, (1, 4), dtype, quant=quant) for text in ("x", 'y"', "z"))
        one = np.full((1, 4), 1.0 if quant is None else 8)
        data = one.astype(np.float32 if quant is None else np.int8)
        c = builder.tensor("c", (1, 4), dtype, quant=quant, data=data)
        builder.operator("ADD", [x, c], [y])
        builder.operator("MUL", [y, y], [z])
        paths.append(tmp_path / f"{name}.circle")
        paths[-1].write_bytes(model_bytes(builder.finish([x], [z])))
    np.savez(tmp_path / "in.npz", in_0=np.array([[0.06, 0.5, -0.3, 1.0]], np.float32))
    return paths


def test_the_command_knows_all_metrics() -> None:
    assert odc_diff.VISQ_METRICS == one.METRICS


def _diff(*words: Any) -> int:
    return odc_diff.main([str(word) for word in words])


def test_two_models_give_a_file(models: list[Path], tmp_path: Path) -> None:
    for metric in one.METRICS:
        out = tmp_path / f"{metric}.json"
        flags = ("--load", tmp_path / "in.npz", "-q", "--visq", out, "--visq-metric", metric)
        assert _diff(*models, *flags) == 1
        found, errors = one.read(out)
        assert (found, list(errors)) == (metric, ['y"', "z"])
    values = {metric: one.read(tmp_path / f"{metric}.json")[1]['y"'] for metric in one.METRICS}
    # codes of 0.06 and -0.3 are 0 and -2 (-0.25): they are wrong by 0.06 and 0.05
    assert values["tae"] == pytest.approx(0.06 + 0.05, rel=1e-3)
    assert values["mse"] == pytest.approx((0.06**2 + 0.05**2) / 4, rel=1e-3)
    assert values["srmse"] == pytest.approx(np.sqrt(values["mse"]) / 0.125, rel=1e-3)
    assert values["mpeir"] == pytest.approx(0.06 / 1.3, rel=1e-3)


def test_what_has_no_error(models: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _diff(models[0], models[0], "--visq", tmp_path / "e.json", "--visq-metric", "srmse") == 1
    assert "no tensor has an error in srmse; compare with a quantised model" in capsys.readouterr().err
