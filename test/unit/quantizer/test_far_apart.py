"""Values that neither 8 nor 16 bits can hold: mixed precision finds what has to stay real."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.models import ModelBuilder, model_bytes
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.quantizer.layers import Effect, Examination
from odc_mlir.quantizer.models import graph_of
from odc_mlir.quantizer.quantize import quantize
from odc_mlir.runtime.api import run
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

Samples = list[list[np.ndarray]]
ROWS, WIDTH = 8, 16
PRODUCTS = ("FULLY_CONNECTED", "BATCH_MATMUL")


class _Builder(ModelBuilder):
    """Makes operators whose results have the name that they are given."""

    def made(self, name: str, shape: tuple[int, ...], operator: str, *operands: int, **options: object) -> int:
        result = self.tensor(name, shape)
        self.operator(operator, list(operands), [result], options=options)
        return result

    def dense(self, name: str, x: int, width: int, seed: int) -> int:
        weights = np.random.default_rng(seed).normal(size=(width, WIDTH)).astype(np.float32) / 4
        constant = self.tensor(f"{name}/w", weights.shape, data=weights)
        return self.made(name, (1, ROWS, width), "FULLY_CONNECTED", x, constant, -1, keep_num_dims=True)


def _masked(hiding: float = -1e9) -> tuple[bytes, Samples, Samples]:
    """Attention whose mask is an input: 0, or ``hiding`` where nobody is to look."""
    builder = _Builder()
    x, mask = builder.tensor("x", (1, ROWS, WIDTH)), builder.tensor("mask", (1, ROWS, ROWS))
    q, k, v = (builder.dense(name, x, WIDTH, seed) for seed, name in enumerate("qkv"))
    scores = builder.made("scores", (1, ROWS, ROWS), "BATCH_MATMUL", q, k, adjoint_rhs=True)
    shares = builder.made(
        "shares", (1, ROWS, ROWS), "SOFTMAX", builder.made("masked", (1, ROWS, ROWS), "ADD", scores, mask), beta=1.0
    )
    out = builder.dense("out", builder.made("seen", (1, ROWS, WIDTH), "BATCH_MATMUL", shares, v), WIDTH, 3)
    rng = np.random.default_rng(0)

    def sample() -> list[np.ndarray]:
        hidden = np.where(np.arange(ROWS) < rng.integers(2, ROWS), 0.0, hiding)
        return [rng.normal(size=(1, ROWS, WIDTH)).astype(np.float32), np.tile(hidden, (1, ROWS, 1)).astype(np.float32)]

    return model_bytes(builder.finish([x, mask], [out])), [sample() for _ in range(40)], [sample() for _ in range(20)]


def _hovering() -> tuple[bytes, Samples, Samples]:
    """A layer, and what is left of its results around their mean, far from which all of them are."""
    builder, rng = _Builder(), np.random.default_rng(0)
    x = builder.tensor("x", (1, ROWS, WIDTH))
    far = builder.tensor("far", (), data=np.array(30000.0, np.float32))
    axis = builder.tensor("axis", (1,), "int32", data=np.array([2], np.int32))
    y = builder.made("y", (1, ROWS, WIDTH), "ADD", builder.dense("h", x, WIDTH, 0), far)
    centred = builder.made(
        "d", (1, ROWS, WIDTH), "SUB", y, builder.made("m", (1, ROWS, 1), "MEAN", y, axis, keep_dims=True)
    )
    out = builder.dense("out", centred, WIDTH, 1)
    samples = [[rng.normal(size=(1, ROWS, WIDTH)).astype(np.float32)] for _ in range(60)]
    return model_bytes(builder.finish([x], [out])), samples[:40], samples[40:]


def _sqnr_db(model: bytes, quantised: bytes, samples: Samples) -> float:
    pairs = [(run(model, sample)[0], run(quantised, sample)[0]) for sample in samples]
    return float(10 * np.log10(sum((a**2).sum() for a, _ in pairs) / sum(((a - b) ** 2).sum() for a, b in pairs)))


def test_what_no_integers_hold_stays_real() -> None:
    model, calibration, unseen = _hovering()
    plain = quantize(model, calibration=calibration, mixed="off")
    assert _sqnr_db(model, plain.to_circle(), unseen) < 10.0
    found = quantize(model, calibration=calibration)
    assert found.verdict["status"] == "passed"
    assert "float" in found.verdict["choices"]["precisions"].values()
    assert _sqnr_db(model, found.to_circle(), unseen) > 15.0
    products = {layer["scheme"] for layer in found.verdict["layers"] if layer["op"] in PRODUCTS}
    assert "int8" in products


@pytest.mark.parametrize("reader", [None, "litert"])
def test_what_readers_quantise_is_within_32_bits(reader: str | None) -> None:
    model, calibration, unseen = _masked(float(np.finfo(np.float32).min))
    found = quantize(model, calibration=calibration, help=False, mixed="off", reader=reader)
    graph = graph_of(found.model)
    values: dict[int, np.ndarray] = {}
    HostExecutor(graph).run(unseen[0], watch=lambda index, value: values.update({index: value}))
    casts = [item for item in graph.nodes if item.node.spec.name == "QUANTIZE"]
    assert {graph.tensors[item.outputs[0]].name for item in casts} == {"x_quantized", "mask_quantized"}
    for item in casts:
        codes = graph.tensors[item.outputs[0]].quant
        assert codes is not None
        assert np.abs(values[item.inputs[0]] / codes.scale).max() < 2**30


def test_softmax_that_hides_gets_no_16_bits() -> None:
    """Its table of exponentials ends at exp(-10), which is more than half a code: what is masked would be seen."""
    model, calibration, _ = _masked()
    assert Examination(build_graph(read_model(model)), calibration[:2]).hiding() == {"shares"}
    found = quantize(model, calibration=calibration, metric="sqnr", limit=31.0).verdict
    assert found["choices"]["precisions"]
    assert found["choices"]["precisions"].get("shares") not in ("int16x8", "int16")


@pytest.mark.parametrize("error", [1e30, float("inf"), float("nan")])
def test_no_output_is_more_than_wrong(error: float) -> None:
    effect = Effect(frozenset({"a"}), of_weights=False, sums=[[error, 1.0], [0.5, 1.0]])
    assert effect.noise == (2.0, 0.5)
