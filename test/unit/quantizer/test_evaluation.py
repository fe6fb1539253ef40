from __future__ import annotations

import numpy as np
import pytest

from helpers.float_models import attention, squeeze_excite
from helpers.models import ModelBuilder, add_model
from odc_mlir.errors import InputError, ModelError
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.evaluation import EXACT_DB, Reference
from odc_mlir.quantizer.quantize import quantize
from odc_mlir.runtime.execution.graph import build_graph


def test_a_model_is_exactly_itself() -> None:
    module, samples = squeeze_excite()
    graph = build_graph(export_model(module))
    reference = Reference(graph, samples[:3])
    found = reference.measure(graph)
    assert found.quality_db == EXACT_DB
    assert reference.metrics(found)["differing"] == 0
    assert reference.metrics(found)["mpeir"] == 0


def test_a_softmax_over_classes_is_a_classifier() -> None:
    for make, classifies in ((squeeze_excite, True), (attention, False)):
        module, samples = make()
        assert Reference(build_graph(export_model(module)), samples[:1]).classifies is classifies


def test_labels_score_and_the_drop_is_in_points() -> None:
    module, samples = squeeze_excite()
    graph = build_graph(export_model(module))
    answers = [int(np.argmax(outputs[0])) for outputs in Reference(graph, samples[:10]).outputs]
    labels = np.array(answers)
    labels[0] = (labels[0] + 1) % 6
    reference = Reference(graph, samples[:10], labels)
    assert reference.score == ("top1_percent", 90.0)
    found = reference.measure(graph)
    assert found.score == ("top1_percent", 90.0)
    assert reference.metrics(found)["drop"] == 0


def test_quantised_inputs_and_outputs_are_compared_as_reals() -> None:
    module, samples = squeeze_excite()
    reference = Reference(build_graph(export_model(module)), samples[:8])
    both = [
        reference.measure(build_graph(export_model(quantize(module, calibration=samples, io=io, help=False).model)))
        for io in ("float", "quantized")
    ]
    assert both[0].outputs == both[1].outputs
    assert both[0].quality_db == both[1].quality_db


def test_noise_shows_before_the_softmax() -> None:
    module, samples = squeeze_excite()
    reference = Reference(build_graph(export_model(module)), samples[:8])
    found = reference.measure(build_graph(export_model(quantize(module, calibration=samples, help=False).model)))
    assert found.outputs[0].sqnr_db is not None
    assert abs(found.quality_db - found.outputs[0].sqnr_db) > 0.1


def test_refusals() -> None:
    graph = build_graph(add_model())
    with pytest.raises(InputError, match="there is no sample"):
        Reference(graph, [])
    sample = [np.ones((1, 4), np.float32)] * 2
    builder = ModelBuilder()
    a, b, c = (builder.tensor(name, (1, 4)) for name in "abc")
    builder.operator("ADD", [a, b], [c])
    two = build_graph(builder.finish([a, b], [c, c]))
    with pytest.raises(ModelError, match="the quantised model has 2 outputs, the other 1"):
        Reference(graph, [sample]).measure(two)
