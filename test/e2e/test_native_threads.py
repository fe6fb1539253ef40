"""Native code run by several threads: the bits of one thread, on layers of every kind and size."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.passes import ModulePass

import odc_mlir
from helpers.data import GoldenModel, golden_models
from helpers.networks import RANGES, RandomNetwork
from odc_mlir import pipelines
from odc_mlir.errors import OptionError
from odc_mlir.formats.native_segment import parse_native_segment
from odc_mlir.runtime import Session
from odc_mlir.runtime.package import Package
from odc_mlir.transforms.native.native_divide_layers import NativeDivideLayersPass

NAMES = ("digits_cnn_int16", "digits_mobile", "digits_vit")
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture
def all_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer that has pixels enough is divided."""
    run = pipelines.run

    def divided(*arguments: Any, options: Sequence[ModulePass] = (), **more: Any) -> None:
        run(*arguments, options=[*options, NativeDivideLayersPass(1, 1)], **more)

    monkeypatch.setattr(pipelines, "run", divided)


def divided(package: Package) -> bool:
    assert package.plan is not None
    return any(parse_native_segment(package.files.segment(step.file)).part_entry for step in package.plan.segments)


def parts() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("odc-part-")]


def assert_same_bits(package: Package, inputs: list[Any], counts: tuple[int, ...]) -> None:
    expected = odc_mlir.run(package, inputs, strict=True)
    for threads in counts:
        for _ in range(3):
            found = odc_mlir.run(package, inputs, strict=True, threads=threads)
            for ours, theirs in zip(found, expected, strict=True):
                assert ours.tobytes() == theirs.tobytes(), threads


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(6, 12))])
def test_random_networks(all_divided: None, seed: int) -> None:
    model = RandomNetwork(seed).build(operators=3 + seed % 8)
    package = odc_mlir.compile(model, target="cpu")
    (given,) = package.inputs
    low, high = RANGES[given.dtype]
    values = np.random.default_rng(seed).integers(low, high + 1, given.shape).astype(given.dtype)
    assert_same_bits(package, [values], (2, 3, 7))


MODELS = [model for model in golden_models("zoo-int16", "digits", "trained") if model.id in NAMES]


@pytest.mark.parametrize("model", MODELS)
def test_models(all_divided: None, model: GoldenModel) -> None:
    package = odc_mlir.compile(model.circle, target="cpu")
    assert divided(package)
    assert_same_bits(package, list(next(iter(model.samples())).inputs), (2, 5))


def test_small_models_are_not_divided() -> None:
    package = odc_mlir.compile(DIGITS / "digits_cnn_int8.circle", target="cpu")
    assert not divided(package)
    before = parts()
    odc_mlir.run(package, [np.zeros((1, 8, 8, 1), np.int8)], threads=4)
    assert parts() == before


def test_a_session_has_threads_until_it_is_closed(all_divided: None, tmp_path: Path) -> None:
    odc_mlir.compile(DIGITS / "digits_cnn_int8.circle", target="cpu").save(tmp_path / "package")
    before = len(parts())
    inputs = [np.ones((1, 8, 8, 1), np.int8)]
    with Session(tmp_path / "package") as session:
        session.set_config("NUM_THREADS", "3")
        session.prepare()
        (found,) = session.infer(inputs)
        assert len(parts()) == before + 2
    assert len(parts()) == before
    (expected,) = odc_mlir.run(tmp_path / "package", inputs)
    np.testing.assert_array_equal(found, expected)


def test_a_package_says_how_many(all_divided: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = odc_mlir.compile(DIGITS / "digits_cnn_int8.circle", target="cpu")
    package.save(tmp_path / "package")
    folder = tmp_path / "package" / "metadata"
    manifest = json.loads((folder / "MANIFEST").read_text())
    (folder / "MANIFEST").write_text(json.dumps(manifest | {"configs": ["config.cfg"]}))
    (folder / "config.cfg").write_text("NUM_THREADS=2\n")
    monkeypatch.delenv("NUM_THREADS", raising=False)
    before = len(parts())
    with Session(tmp_path / "package") as session:
        session.prepare()
        session.infer([np.ones((1, 8, 8, 1), np.int8)])
        assert len(parts()) == before + 1


@pytest.mark.parametrize("threads", [0, -1, 65, 2.0, True])
def test_how_many_there_can_be(threads: Any) -> None:
    with pytest.raises(OptionError, match=r"threads is .*; use a number from 1 to 64"):
        odc_mlir.run(DIGITS / "digits_cnn_int8.circle", [], backend="native", threads=threads)
