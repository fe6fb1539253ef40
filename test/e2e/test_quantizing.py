"""Float models quantised as users do it, and measured on data that the quantiser has not seen."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

import odc_mlir
from helpers.data import MISSING, Array, data_folder
from helpers.float_models import MODELS
from odc_mlir.errors import AccuracyError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.quantize import Quantized
from odc_mlir.quantizer.reference import Reference
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.execution.graph import build_graph

CLASSIFIERS = ("digits_cnn", "digits_mobile", "digits_mobile_hard", "digits_dynbatch")
DIGITS = (*CLASSIFIERS, "digits_unet")
SCHEMES = ("int8", "uint8", "int16", "int16x8")
NPU_SAMPLES = 6
ZOO = {"ad01_fp32": "ad", "pretrainedResnet": "ic", "vww_96_float": "vww"}

needs_data = pytest.mark.skipif(data_folder() is None, reason=MISSING)


@dataclass(frozen=True)
class Model:
    """A float model with its data, below the data folder's models."""

    path: str
    calibration: str
    evaluation: str

    def file(self, name: str) -> Path:
        folder = data_folder()
        assert folder is not None
        return folder / "models" / name

    @cache  # noqa: B019 - few models, all of which other tests measure again
    def quantize(self, scheme: str, **options: Any) -> Quantized:
        """Return the model quantised once per set of options."""
        return self.quantize_anew(scheme, **options)

    def quantize_anew(self, scheme: str, **options: Any) -> Quantized:
        return odc_mlir.quantize(
            self.file(f"{self.path}.circle"), scheme=scheme, calibration=self.file(f"{self.calibration}.npz"), **options
        )


def digits(name: str) -> Model:
    suffix = "_denoise" if name == "digits_unet" else ""
    return Model(f"digits/{name}", f"digits/calibration{suffix}", f"digits/evaluation{suffix}")


def zoo(name: str) -> Model:
    return Model(f"zoo/{name}", f"zoo/calibration/{ZOO[name]}", f"zoo/scoring/{ZOO[name]}")


@cache
def reference(model: Model) -> Reference:
    with np.load(model.file(f"{model.evaluation}.npz")) as archive:
        data, labels = archive["in_0"], archive["y"] if "y" in archive.files else None
    graph = build_graph(read_model(model.file(f"{model.path}.circle")))
    return Reference(graph, [[data[i : i + 1]] for i in range(len(data))], labels)


def measured(model: Model, made: Quantized) -> Measurement:
    return reference(model).measure(build_graph(read_model(made.to_circle())))


def scores(model: Model, made: Quantized) -> tuple[float, float]:
    """The score of the float model and of the quantised one."""
    found, expected = measured(model, made).scored, reference(model).scores
    assert found is not None
    assert expected is not None
    metric = next(iter(expected))
    return expected[metric], found.after[metric]


def same_on_the_npu(made: Quantized, samples: list[list[Array]]) -> bool:
    file = made.to_circle()
    host, npu = open_executor(file, backend="host"), open_executor(file, backend="npu")
    return all(np.array_equal(a, b) for s in samples for a, b in zip(host.run(s), npu.run(s), strict=True))


def _others_soak(pairs: Iterable[tuple[str, str]], run: Collection[tuple[str, str]]) -> list[ParameterSet]:
    """Return pairs of a model and a scheme; those that are not to ``run`` always are marked ``soak``."""
    return [pytest.param(*pair, marks=() if pair in run else pytest.mark.soak) for pair in pairs]


# Each network in 8 bits, the smallest in every scheme, and each scheme on a network of another kind.
ALWAYS = {*((name, "int8") for name in DIGITS), *(("digits_dynbatch", scheme) for scheme in SCHEMES)}
ALWAYS |= {("digits_unet", "uint8"), ("digits_cnn", "int16"), ("digits_mobile", "int16x8")}


@needs_data
@pytest.mark.parametrize(("name", "scheme"), _others_soak(product(DIGITS, SCHEMES), ALWAYS))
def test_digits_keep_their_accuracy(name: str, scheme: str) -> None:
    model = digits(name)
    made = model.quantize(scheme, help=name == "digits_mobile_hard")
    assert made.passed, made
    before, after = scores(model, made)
    assert after >= before - (0.3 if name == "digits_unet" else 0.7)
    if scheme in ("int8", "uint8"):
        assert same_on_the_npu(made, list(reference(model).samples[:NPU_SAMPLES]))


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits_mobile", pytest.param("digits_unet", marks=pytest.mark.soak)])
def test_help_makes_digits_better(name: str) -> None:
    model = digits(name)
    plain = measured(model, model.quantize("int8", help=False)).quality_db
    helped = measured(model, model.quantize("int8")).quality_db
    # What is chosen by samples held back need not be best on others, but must not be much worse.
    assert helped > plain - 0.5


@needs_data
def test_a_rescaled_model_fails_without_help_and_the_verdict_says_where(tmp_path: Path) -> None:
    model = digits("digits_mobile_hard")
    made = model.quantize("int8", help=False, granularity="tensor")
    assert not made.verdict["passed"]
    worst = [layer["name"] for layer in made.verdict["worst_layers"]]
    assert worst[:3] == [f"block{i}/dw/bn/add" for i in range(3)], "the layers that undo the scales"
    assert set(worst[3:6]) == {f"block{i}/expand/bn/add" for i in range(3)}, "and those that have them"
    assert scores(model, made)[1] < 50
    with pytest.raises(AccuracyError, match="worst layers: 'block0/dw/bn/add'"):
        odc_mlir.compile(
            model.file(f"{model.path}.circle"),
            quantize="int8",
            calibration=model.file(f"{model.calibration}.npz"),
            help=False,
            granularity="tensor",
        )


@needs_data
@pytest.mark.parametrize("scheme", ["int8", pytest.param("uint8", marks=pytest.mark.soak)])
def test_mixed_precision_saves_it_too(scheme: str) -> None:
    model = digits("digits_mobile_hard")
    made = model.quantize(scheme, granularity="tensor", equalize="none", rounding="off", correction="off")
    assert made.passed
    moved = made.verdict["choices"]["precisions"]
    assert 0 < len(moved) < len(made.verdict["scheme"]) / 2
    assert {f"block{i}/dw/bn/add" for i in range(3)} <= moved.keys()
    before, after = scores(model, made)
    assert after >= before - 2.0


@needs_data
def test_the_same_input_gives_the_same_bytes() -> None:
    model = digits("digits_cnn")
    first, second = model.quantize("int8"), model.quantize_anew("int8")
    assert first.to_circle() == second.to_circle()
    assert first.verdict == second.verdict


@needs_data
@pytest.mark.parametrize(("scheme", "bits"), [("int8_wo", 8), ("int16_wo", 16)])
@pytest.mark.parametrize("name", ["digits_mobile", pytest.param("ad01_fp32", marks=pytest.mark.soak)])
def test_weights_only_is_small_and_close(name: str, scheme: str, bits: int) -> None:
    model = digits(name) if name.startswith("digits") else zoo(name)
    made = model.quantize(scheme, help=False)
    sqnr = measured(model, made).worst()["sqnr_db"]
    assert sqnr is not None
    assert sqnr >= 30
    graph = build_graph(read_model(made.to_circle()))
    eligible = [t for t in graph.tensors if t.is_const and t.quant is not None]
    payload = sum(t.array().nbytes for t in eligible)
    channels = sum(len(t.quant.scales) for t in eligible if t.quant is not None)
    before = sum(t.array().size * 4 for t in eligible)
    assert payload <= (bits + 0.6) / 32 * before
    others = len(made.to_circle()) - payload - (model.file(f"{model.path}.circle").stat().st_size - before)
    assert others <= 12 * channels + 1024


@needs_data
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(ZOO))
def test_zoo_models_are_as_good_as_those_of_others(name: str, test_data: Path) -> None:
    model = zoo(name)
    narrow = measured(model, model.quantize("int8")).worst()["sqnr_db"]
    wide = measured(model, model.quantize("int16", help=False)).worst()["sqnr_db"]
    assert narrow is not None
    assert wide is not None
    with (test_data / "baselines" / "quantizers.csv").open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["model"] == name and r["metric"] == "sqnr_db"]
    ours = f"scoring/{ZOO[name]}.npz"
    peers = [
        float(row["value_ref"])
        for row in rows
        if row["inputs"] == ours and (row["scheme"] == "static_int8_minmax" or "twin" in row["tool"])
    ]
    assert len(peers) == 2
    assert narrow >= max(peers) - 0.5
    assert wide >= narrow + 20


KINDS = {*((name, "int8") for name in MODELS), ("squeeze_excite", "uint8"), ("recurrent", "int16")}
KINDS |= {("rescaled_mobilenet", "int16x8"), ("attention", "int8_wo")}


@pytest.mark.parametrize(("name", "scheme"), _others_soak(product(MODELS, [*SCHEMES, "int8_wo"]), KINDS))
def test_models_of_other_kinds(name: str, scheme: str) -> None:
    module, samples = MODELS[name]()
    made = odc_mlir.quantize(module, scheme=scheme, calibration=samples)
    assert all(limit["passed"] for limit in made.verdict["limits"]), made
    # No kernel computes an LSTM in these types: what stays float is most of the model, which so does not pass.
    assert made.passed == (name != "recurrent" or scheme in ("int8", "int8_wo")), made
    unseen = Reference(build_graph(read_model(_exported(module))), samples[::5])
    found = unseen.measure(build_graph(read_model(made.to_circle()))).quality_db
    assert found > (20 if scheme in ("int8", "uint8") else 40)
    allowed = {
        "recurrent": {"lstm"},
        "attention": {f"head{i}/{part}" for i in range(2) for part in ("scores", "mixed")},
    }
    if scheme != "int8":
        assert made.verdict["float_reasons"].keys() <= allowed.get(name, set())
    else:
        assert not made.verdict["float_reasons"]


def _exported(module: Any) -> bytes:
    from odc_mlir.formats.circle.writer import write_model
    from odc_mlir.frontend.export_circle import export_model

    return bytes(write_model(export_model(module)))
