"""Compiling on the device with what does not show the world: dark first frames, then what the model is for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.settings import Level, Phase

Array = np.ndarray[Any, Any]

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("auto")]

SETTINGS = {"OnDeviceCompilation": "1", "ODC_TARGET": "npu-256"}  # for processors, speeds are measured too
DARK = np.float32(0.1)
THE_MODEL = (Level.ORIGINAL, Level.DIRECT)
MODELS = ("digits_cnn", "digits_mobile_hard", "digits_dynbatch")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def pictures(test_data: Path) -> tuple[Array, Array]:
    with np.load(test_data / "models" / "digits" / "evaluation.npz") as archive:
        return archive["in_0"], archive["y"]


def right_answers(session: Session, pictures: tuple[Array, Array], count: int = 50) -> float:
    found = [int(session.infer([pictures[0][i : i + 1]])[0].argmax()) for i in range(count)]
    return float(np.mean(np.array(found) == pictures[1][:count]))


def begin_in_the_dark(
    model: Path, pictures: Array, frames: int = 10, dark: np.float32 = DARK, **settings: str
) -> Session:
    session = Session(model, settings={**SETTINGS, **settings})
    for index in range(frames):
        session.infer([dark * pictures[-1 - index][None]])
        session.wait_for_auto_compilation(100)
    return session


@pytest.mark.parametrize("name", [MODELS[0], *(pytest.param(name, marks=pytest.mark.soak) for name in MODELS[1:])])
def test_dark_first_frames(name: str, test_data: Path, pictures: tuple[Array, Array]) -> None:
    model = test_data / "models" / "digits" / f"{name}.circle"
    with Session(model) as session:
        plain = right_answers(session, pictures)
    with begin_in_the_dark(model, pictures[0]) as session:
        assert right_answers(session, pictures) >= plain - 0.02
        status = session.odc_status
        assert status.fallbacks
        if status.serving is Level.ORIGINAL:
            assert status.reason
        assert session.wait_for_auto_compilation(100)
        assert right_answers(session, pictures) >= plain - 0.02
        assert session.odc_status.serving is Level.COMPILED


def test_what_hardly_varies_in_the_dark_is_a_reservation(test_data: Path, pictures: tuple[Array, Array]) -> None:
    """Frames so dark that an output hardly varies do not refuse the model for good, and what they make harms none."""
    model = test_data / "models" / "digits" / "digits_mobile_hard.circle"
    with begin_in_the_dark(model, pictures[0], 11, np.float32(0.05)) as session:
        status = session.odc_status
        assert status.phase is Phase.ACTIVE
        assert any("constant outputs would meet, or nearly meet, all limits" in note for note in status.notes)
        assert right_answers(session, pictures, 10) > 0.8


def test_what_was_made_in_the_dark_is_given_up(tmp_path: Path, test_data: Path, pictures: tuple[Array, Array]) -> None:
    """Also what was put into a package, and for later processes."""
    from odc_mlir.formats.package import read_original

    model, settings = tmp_path / "package", {"ODC_UPDATE_PACKAGE": "1"}
    (model / "metadata").mkdir(parents=True)
    shutil.copy(test_data / "models" / "digits" / "digits_mobile_hard.circle", model / "model.circle")
    (model / "metadata" / "MANIFEST").write_text('{"models": ["model.circle"], "model-types": ["circle"]}')
    with begin_in_the_dark(model, pictures[0], 11, **settings) as session:
        assert session.odc_status.serving is Level.COMPILED
        assert read_original(model) is not None
        for index in range(4):
            session.infer([pictures[0][index : index + 1]])
            assert session.odc_status.serving in THE_MODEL
            assert "outside" in (session.odc_status.reason or "")
        assert session.wait_for_auto_compilation(100)
        status = session.odc_status
        assert status.phase is Phase.COLLECTING
        assert "lie outside of the ranges recorded" in (status.reason or "")
    with Session(model, settings={**SETTINGS, **settings}) as later:
        later.infer([pictures[0][:1]])
        status = later.odc_status
        assert (status.phase, status.serving in THE_MODEL) == (Phase.COLLECTING, True)
        assert "lie outside of the ranges recorded" in (status.reason or "")
        assert read_original(model) is None


def test_watching_finds_nothing_where_there_is_nothing(test_data: Path, pictures: tuple[Array, Array]) -> None:
    """What shadow runs may cost is a law of the watch itself, and tested there, with times that are given."""
    model = test_data / "models" / "digits" / "digits_cnn.circle"
    with Session(model, settings={"OnDeviceCompilation": "1"}) as session:
        for index in range(10):
            session.infer([pictures[0][index : index + 1]])
        assert session.wait_for_auto_compilation(100)
        for index in range(100):
            session.infer([pictures[0][index : index + 1]])
        assert session.wait_for_auto_compilation(100)
        status = session.odc_status
        assert (status.phase, status.serving) == (Phase.ACTIVE, Level.COMPILED)
        assert status.watch is not None
        assert status.watch["shadow_runs"] > 0
        assert status.watch["shadow_seconds"] > 0
        assert status.watch["shadow_interval_runs"] > 0
