"""odc-run --labels: what the model scores, and what speaks against the labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.models import ModelBuilder, model_bytes
from odc_mlir.tools import odc_run


def _run(*arguments: object) -> int:
    return odc_run.main([str(argument) for argument in arguments])


def _negation(path: Path, width: int) -> Path:
    """A model at ``path`` that answers so many numbers, its inputs negated."""
    builder = ModelBuilder()
    a, b = builder.tensor("a", (1, width)), builder.tensor("b", (1, width))
    builder.operator("NEG", [a], [b])
    path.write_bytes(model_bytes(builder.finish([a], [b])))
    return path


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (lambda classes, values: classes, None),
        (lambda classes, values: values, None),
        (lambda classes, values: classes + 1, "labels are 1 to 4, the model's 4 classes 0 to 3"),
        (
            lambda classes, values: np.minimum(classes + 1, 3),
            "the model gets 25 % of the labels right, and 75 % of them with -1: they seem to be off by one class",
        ),
        (lambda classes, values: 12.0 * values, "labels of column 0 rise and fall with the answers of the model, but"),
        (
            lambda classes, values: np.random.default_rng(1).permutation(values),
            "fit the answers of the model no better than chance",
        ),
    ],
    ids=["classes", "numbers", "one too many", "one-based", "another unit", "others"],
)
def test_labels_that_cannot_be_right_are_told(
    labels: Callable[..., np.ndarray], said: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the quantiser has it; it refuses them, here the score is what was asked for."""
    model = _negation(tmp_path / "m.circle", 4)
    classes = np.arange(40) % 4
    values = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    values[np.arange(40), classes] += 8.0
    np.savez(tmp_path / "in.npz", in_0=-values, y=labels(classes, values))
    assert _run(model, "--load", tmp_path / "in.npz", "--labels") == 0
    told = capsys.readouterr()
    assert "over 40 samples" in told.out
    assert told.err.count("odc-run: warning: ") == (said is not None)
    assert (said or "") in told.err


def test_numbers_are_scored_by_column_the_worst_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in the quantiser's verdict: an error over all would be that of thousands, beside which hundredths are lost."""
    model = _negation(tmp_path / "m.circle", 3)
    rng = np.random.default_rng(0)
    values = rng.uniform(-1.0, 1.0, (40, 3)) * [1000.0, 0.01, 1.0]
    wrong = np.where(np.arange(40) % 2, 1.0, -1.0)[:, None] * [10.0, 0.002, 0.0]
    labels = (values + wrong) * [1.0, 1.0, 0.0]
    labels[0, 0] = 30000.0
    np.savez(tmp_path / "in.npz", in_0=-values.astype(np.float32), y=labels)
    assert _run(model, "--load", tmp_path / "in.npz", "--labels") == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "column" in line or "far out" in line]
    assert [line.partition(" (r2")[0] for line in told[1:2]] == ["  without 1 label far out 10"]
    assert told[0].startswith("rmse of column 0 ")
    assert told[2].startswith("rmse of column 1 0.002 (r2 0.8")
    assert told[2].endswith(") over 40 samples")
    assert told[3] == "labels of column 2 are the same for all samples and have no score"


@pytest.mark.parametrize("count", [3, 20])
def test_labels_that_are_not_finite_are_told(count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = _negation(tmp_path / "m.circle", 1)
    values = np.linspace(-1.0, 1.0, count, dtype=np.float32)[:, None]
    np.savez(tmp_path / "in.npz", in_0=values, y=np.where(values > 0.5, np.nan, -values))
    assert _run(model, "--load", tmp_path / "in.npz", "--labels") == 0
    assert "odc-run: warning: labels are not finite" in capsys.readouterr().err


def test_quantised_outputs_are_scored_as_reals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = ModelBuilder()
    a, b = builder.tensor("a", (1, 2)), builder.tensor("b", (1, 2), "int8", quant=(0.25, -128))
    builder.operator("QUANTIZE", [a], [b])
    path = tmp_path / "q.circle"
    path.write_bytes(model_bytes(builder.finish([a], [b])))
    values = np.array([[0.25, 0.5], [0.75, 0.0]], np.float32)
    np.savez(tmp_path / "in.npz", in_0=values, y=values + np.float32(0.1))
    assert _run(path, "--load", tmp_path / "in.npz", "--labels") == 0
    assert "rmse 0.1 over 2 samples" in capsys.readouterr().out


@pytest.mark.parametrize("order", [("places",), ("places", "values"), ("values", "places")])
def test_the_first_of_the_best_is_compared_with_labels(
    order: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = ModelBuilder()
    x, k = builder.tensor("x", (1, 4)), builder.tensor("k", (), "int32", data=np.array(2, np.int32))
    results = {"values": builder.tensor("values", (1, 2)), "places": builder.tensor("places", (1, 2), "int32")}
    builder.operator("TOPK_V2", [x, k], list(results.values()))
    (tmp_path / "best.circle").write_bytes(model_bytes(builder.finish([x], [results[name] for name in order])))
    np.savez(tmp_path / "in.npz", in_0=np.eye(4, dtype=np.float32)[[3, 1, 2, 0]], y=np.array([3, 1, 2, 1]))
    assert _run(tmp_path / "best.circle", "--load", tmp_path / "in.npz", "--labels") == 0
    assert "top1_percent 75.000 over 4 samples" in capsys.readouterr().out
