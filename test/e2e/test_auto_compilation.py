"""Compiling on the device with the real quantiser and compiler: accuracy, other input shapes, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder, model_bytes
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.settings import Level, Phase

Array = np.ndarray[Any, Any]
SETTINGS = {"OnDeviceCompilation": "1", "ODC_TARGET": "npu-256"}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("auto")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def digits(test_data: Path) -> Path:
    return test_data / "models" / "digits"


@pytest.fixture(scope="module")
def evaluation(digits: Path) -> tuple[Array, Array]:
    with np.load(digits / "evaluation.npz") as archive:
        return archive["in_0"], archive["y"]


def settle(session: Session, inputs: Array, rows: int = 1, count: int = 10) -> None:
    for index in range(count):
        session.infer([inputs[index : index + rows]])
    assert session.wait_for_auto_compilation(100)
    session.infer([inputs[:rows]])


def right_answers(session: Session, pictures: Array, labels: Array) -> float:
    found = [int(session.infer([pictures[i : i + 1]])[0].argmax()) for i in range(len(labels))]
    return float(np.mean(np.array(found) == labels))


@pytest.mark.parametrize(("model", "scheme"), [("digits_cnn", "uint8"), ("digits_mobile_hard", "int8")])
def test_accuracy(model: str, scheme: str, digits: Path, evaluation: tuple[Array, Array]) -> None:
    pictures, labels = (part[:300] for part in evaluation)
    plain = right_answers(Session(digits / f"{model}.circle"), pictures, labels)
    with Session(digits / f"{model}.circle", settings={**SETTINGS, "ODC_QUANT_TYPE": scheme}) as session:
        settle(session, pictures)
        status = session.odc_status
        assert (status.phase, status.serving, status.scheme) == (Phase.ACTIVE, Level.COMPILED, scheme)
        assert status.verdict is not None
        assert status.verdict["passed"]
        assert right_answers(session, pictures, labels) >= plain - 0.01


def test_what_is_not_accurate_enough_is_refused_and_the_float_model_serves(
    digits: Path, evaluation: tuple[Array, Array]
) -> None:
    limits = {"ODC_ACC_METRIC": "sqnr", "ODC_ACC_LIMIT": "300"}
    model = digits / "digits_cnn.circle"
    pictures = evaluation[0]
    with Session(model, settings={**SETTINGS, **limits}) as session:
        settle(session, pictures)
        status = session.odc_status
        assert (status.phase, status.serving) == (Phase.REJECTED, Level.ORIGINAL)
        assert "the quantised model failed: SQNR" in (status.reason or "")
        assert status.verdict is not None
        assert status.verdict["worst_layers"]
        np.testing.assert_array_equal(session.infer([pictures[:1]])[0], Session(model).infer([pictures[:1]])[0])


def test_other_input_shapes(digits: Path, evaluation: tuple[Array, Array]) -> None:
    pictures = evaluation[0]
    with Session(digits / "digits_dynbatch.circle", settings=SETTINGS) as session:
        settle(session, pictures, 2)
        assert session.odc_status.serving is Level.COMPILED
        (two,) = session.infer([pictures[:2]])
        (three,) = session.infer([pictures[:3]])  # at once
        assert session.odc_status.serving is Level.QUANTIZED
        np.testing.assert_array_equal(three[:2], two)
        assert session.wait_for_auto_compilation(100)
        (again,) = session.infer([pictures[:3]])
        assert session.odc_status.serving is Level.COMPILED
        np.testing.assert_array_equal(again, three)
        assert session.odc_status.shapes == [[3, 8, 8, 1]]


NOTHING = [
    ("CUMSUM", Level.ORIGINAL, "nothing is quantised to int8"),  # what it has no codes for stays as it is
    ("LOG", Level.QUANTIZED, "nothing in it is for the device"),  # it could, but the host takes less time
]


@pytest.mark.parametrize(("operator", "serving", "reason"), NOTHING)
def test_a_model_of_which_the_target_runs_nothing(operator: str, serving: Level, reason: str) -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 8))
    axis = builder.tensor("axis", (), "int32", data=np.array(1, np.int32))
    builder.operator(operator, [x, axis] if operator == "CUMSUM" else [x], [y])
    samples = np.random.default_rng(3).random((11, 8), np.float32)
    with Session(model_bytes(builder.finish([x], [y])), settings=SETTINGS) as session:
        settle(session, samples)
        status = session.odc_status
        assert status.serving is serving
        assert reason in (status.reason or "")
