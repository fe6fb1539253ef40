"""Masks that are inputs, or computed of them: what they hide stays hidden in the model that is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer.models import graph_of, limited_masks, prepare
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.runtime.api import run
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor

Array = np.ndarray
Samples = list[list[Array]]
ROWS, WIDTH = 8, 16
LOWEST = float(np.finfo(np.float32).min)


class _Net(FloatNet):
    def reshaped(self, x: SSAValue, *shape: int) -> SSAValue:
        return self.add("RESHAPE", x, self.const(np.array(shape), "int32"), new_shape=None)

    def hidden(self, shown: SSAValue, number: float) -> SSAValue:
        return self.add("MUL", self.add("SUB", self.const(1.0), shown), self.const(number))


def _given(net: _Net, scores: SSAValue, mask: SSAValue) -> SSAValue:
    """The mask itself, LOWEST where it hides."""
    return net.add("ADD", scores, net.reshaped(mask, 1, 1, ROWS))


def _of_shown(net: _Net, scores: SSAValue, shown: SSAValue) -> SSAValue:
    """Ones are shown."""
    return net.add("ADD", scores, net.hidden(shown, -1e9))


def _of_pairs(net: _Net, scores: SSAValue, shown: SSAValue) -> SSAValue:
    """Where both are shown; rows of others are hidden altogether."""
    pairs = net.add("MUL", net.reshaped(shown, 1, ROWS, 1), net.reshaped(shown, 1, 1, ROWS))
    return net.add("SUB", scores, net.hidden(pairs, -LOWEST))


Form = Callable[[_Net, SSAValue, SSAValue], SSAValue]


def _network(form: Form) -> ModuleOp:
    """Attention; inputs are ``x`` and what says where nobody is to look."""
    net = _Net(0)
    x, given = net.real(1, ROWS, WIDTH), net.input(np.zeros((1, ROWS), np.float32))
    with np.errstate(all="ignore"):
        q, k, v = (
            net.add("FULLY_CONNECTED", x, net.weights(WIDTH, WIDTH, spread=0.25), None, keep_num_dims=True)
            for _ in range(3)
        )
        scores = net.add("BATCH_MATMUL", q, k, adjoint_rhs=True)
        shares = net.add("SOFTMAX", form(net, scores, given), beta=1.0, name="shares")
        module = net.module(net.add("BATCH_MATMUL", shares, v))
    return import_model(export_model(module))


def _samples(form: Form, count: int, seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        shown = np.arange(ROWS)[None] < rng.integers(2, ROWS)
        mask = np.where(shown, 0.0, LOWEST) if form is _given else shown
        found.append([rng.normal(size=(1, ROWS, WIDTH)).astype(np.float32), mask.astype(np.float32)])
    return found


def _shares(module: ModuleOp, sample: list[Array]) -> Array:
    graph, values = graph_of(module), dict[int, Array]()
    HostExecutor(graph).run(sample, watch=lambda index, value: values.update({index: value}))
    (place,) = [item.outputs[0] for item in graph.nodes if item.node.spec.name == "SOFTMAX"]
    return to_reals(graph.tensors[place], values[place])


@cache
def _quantised(form: Form, scheme: str) -> Quantized:
    options = {"scheme": scheme, "help": False, "mixed": "off", "reader": "litert"}
    return quantize(_network(form), calibration=_samples(form, 24, 0), **options)


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("form", [_given, _of_shown, _of_pairs])
def test_what_inputs_hide_stays_hidden(form: Form, scheme: str) -> None:
    network, found, unseen = _network(form), _quantised(form, scheme), _samples(form, 8, 1)
    assert found.passed
    # Nothing but the mask's own steps stay real.
    reals = {layer["op"] for layer in found.verdict["layers"] if layer["scheme"] == "float"}
    assert reals <= {"RESHAPE", "MUL", "SUB", "MAXIMUM", "MINIMUM"}
    signal = noise = 0.0
    model = bytes(write_model(export_model(network)))
    for sample in unseen:
        expected = _shares(network, sample)
        assert _shares(found.model, sample)[expected == 0].max() <= (2 / 32768 if scheme == "int16x8" else 0)
        (wanted,), (given,) = run(model, sample), run(found.to_circle(), sample)
        signal, noise = signal + float((wanted**2).sum()), noise + float(((wanted - given) ** 2).sum())
    assert 10 * np.log10(signal / noise) > (38 if scheme == "int16x8" else 20)


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
def test_a_mask_of_codes_leaves_nothing_real(scheme: str) -> None:
    """A caller gives the lowest code for what it hides."""
    options = {"scheme": scheme, "help": False, "mixed": "off", "io": "quantized"}
    found = quantize(_network(_given), calibration=_samples(_given, 24, 0), **options)
    assert "float" not in {layer["scheme"] for layer in found.verdict["layers"]}
    graph = graph_of(found.model)
    for x, mask in _samples(_given, 8, 1):
        given = [to_codes(info, array) for info, array in zip(graph.input_infos(), (x, mask), strict=True)]
        hidden = _shares(_network(_given), [x, mask]) == 0
        assert _shares(found.model, given)[hidden].max() <= (2 / 32768 if scheme == "int16x8" else 0)


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("form", [_given, _of_shown, _of_pairs])
def test_litert_gives_the_same(form: Form, scheme: str) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    found = _quantised(form, scheme)
    interpreter = litert.Interpreter(
        model_content=found.to_tflite(), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    for sample in _samples(form, 4, 1):
        for detail, value in zip(interpreter.get_input_details(), sample, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        theirs = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        (ours,) = run(found.to_circle(), sample, numerics="litert")
        np.testing.assert_array_equal(theirs, ours)


@pytest.mark.parametrize("nearest", [0.0, 3000.0])
def test_scores_that_are_far_from_zero_are_no_mask(nearest: float) -> None:
    """Shares of places by their distance: limited where that changes none of them only."""
    net = _Net(0)
    x = net.input(np.zeros((1, ROWS), np.float32))
    distances = net.add("NEG", net.add("SQUARE", x), name="distances")
    module = import_model(export_model(net.module(net.add("SOFTMAX", distances, beta=1.0))))
    rng = np.random.default_rng(0)
    rows = [np.sort(np.sqrt(nearest + rng.uniform(0, 10, ROWS)))[None] for _ in range(8)]
    samples = [[np.concatenate([row[:, 1:], np.full((1, 1), 90.0)], axis=1).astype(np.float32)] for row in rows]
    model = prepare(module)
    found = limited_masks(model, samples)
    assert (found is model) == (nearest > 0)
    for sample in samples:
        np.testing.assert_array_equal(_shares(found.module, sample), _shares(module, sample))
