"""Errors of layers: what is reported for an operator is what comes of running it alone."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from helpers.float_models import recurrent, rescaled_mobilenet, squeeze_excite
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.execution import float_names
from odc_mlir.quantizer.layers import Examination, coded_constants, precision_of
from odc_mlir.quantizer.models import prepare
from odc_mlir.quantizer.policy.verdict import LayerError
from odc_mlir.quantizer.quantize import quantize
from odc_mlir.runtime.execution.graph import Graph, build_graph


@cache
def models(make: object, scheme: str, granularity: str = "channel") -> tuple[Graph, Graph, list[list[np.ndarray]]]:
    """A float model as it is before quantising, the quantised one, and samples."""
    module, samples = make()  # type: ignore[operator]
    made = quantize(module, scheme=scheme, calibration=samples, help=False, granularity=granularity)
    return prepare(module).graph, build_graph(export_model(made.model)), samples


def _layers(make: object, scheme: str, granularity: str = "channel") -> dict[str, LayerError]:
    real, quantised, samples = models(make, scheme, granularity)
    return {layer.name: layer for layer in Examination(real, samples[:4]).layers(quantised)}


def test_every_operator_is_a_layer_and_conversions_are_none() -> None:
    real, quantised, _ = models(squeeze_excite, "int8")
    found = _layers(squeeze_excite, "int8")
    assert list(found) == [node.node.name for node in real.nodes]
    assert len(found) == len(quantised.nodes) - 2
    assert all(layer.precision == "int8" for layer in found.values())


def test_the_first_layer_sees_no_error_of_others() -> None:
    stem = _layers(squeeze_excite, "int8")["stem"]
    assert stem.isolated == stem.accumulated
    last = _layers(squeeze_excite, "int8")["logits"]
    isolated, accumulated = last.isolated["sqnr_db"], last.accumulated["sqnr_db"]
    assert isolated is not None
    assert accumulated is not None
    assert isolated > accumulated + 0.5


def test_the_effect_of_the_last_operator_is_its_own_error() -> None:
    probs = _layers(squeeze_excite, "int8")["probs"]
    assert probs.effect_db == pytest.approx(probs.isolated["sqnr_db"])
    assert probs.noise == pytest.approx(10 ** (-probs.isolated["sqnr_db"] / 10))  # type: ignore[operator]


def test_layers_with_mixed_scales_stand_out() -> None:
    found = _layers(rescaled_mobilenet, "int8", "tensor")
    worst = sorted(found.values(), key=lambda layer: -layer.noise)[:6]
    assert {layer.name.partition("/")[2] for layer in worst} == {"expand", "depthwise"}


def test_coded_weights_of_real_operators() -> None:
    found = _layers(squeeze_excite, "int8_wo")
    assert found["stem"].precision == "int8_wo"
    assert found["probs"].precision == "float"
    assert found["probs"].noise == 0
    assert found["stem"].noise > 0


def test_a_recurrent_layer_is_examined_with_its_first_state() -> None:
    found = _layers(recurrent, "int8")
    assert found["lstm"].precision == "int8"
    sqnr = found["lstm"].isolated["sqnr_db"]
    assert sqnr is not None
    assert sqnr > 25


def test_work_counts_products_and_values() -> None:
    real, _, samples = models(squeeze_excite, "int8")
    work = Examination(real, samples[:1]).work()
    assert work["stem"] == 8 * 8 * 16 * 9 * 4 + 8 * 8 * 16
    assert work["probs"] == 6


def test_names_reach_through_conversions() -> None:
    real, quantised, _ = models(squeeze_excite, "int8")
    known = {info.name: index for index, info in enumerate(real.tensors)}
    names = float_names(quantised, known)
    softmax = next(node for node in quantised.nodes if node.node.spec.name == "SOFTMAX")
    assert quantised.tensors[softmax.outputs[0]].name == "probs_quantized"
    assert names[softmax.outputs[0]] == "probs"


@pytest.mark.parametrize(
    ("scheme", "operator", "precision"),
    [("uint8", "CONV_2D", "uint8"), ("int16", "CONV_2D", "int16"), ("int16x8", "CONV_2D", "int16x8")],
)
def test_precision_is_told_by_types(scheme: str, operator: str, precision: str) -> None:
    _, quantised, _ = models(squeeze_excite, scheme)
    node = next(node for node in quantised.nodes if node.node.spec.name == operator)
    assert precision_of(node, quantised, coded_constants(quantised)) == precision
