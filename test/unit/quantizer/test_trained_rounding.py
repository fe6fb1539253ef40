"""Models that were trained with rounding: its parameters become those of the quantised model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import squeeze_excite
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.editing.parameters import fake_quantize
from odc_mlir.errors import ModelError, OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.ops.spec import QuantParams, TensorInfo
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph

SAMPLES = [[np.random.default_rng(k).uniform(-1, 1, (1, 6, 6, 2)).astype(np.float32)] for k in range(12)]
CODES = {"x": (1 / 127, 0), "y": (0.03, -60), "z": (0.05, 4)}
WEIGHTS = (0.02, 0.01, 0.03)  # scales of the first layer's channels


class _Trained(ModelBuilder):
    """Two layers with rounding between them, written as ``form`` says."""

    def __init__(self, form: str, dtype: str = "int8") -> None:
        super().__init__()
        self.form, self.dtype = form, dtype
        random = np.random.default_rng(0)
        codes = random.integers(-127, 128, (3, 3, 3, 2)).astype(np.int8)
        x = self.tensor("x", (1, 6, 6, 2))
        w = self._weights(codes)
        b = self.tensor("b", (3,), data=random.uniform(-0.1, 0.1, 3).astype(np.float32))
        first = self.tensor("y", (1, 6, 6, 3))
        step = {"stride_h": 1, "stride_w": 1, "padding": "same", "fused_activation_function": "relu"}
        self.operator("CONV_2D", [self._rounded(x, "x"), w, b], [first], options=step)
        axes = self.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
        mean, last = self.tensor("mean", (1, 3)), self.tensor("z", (1, 2))
        self.operator("MEAN", [self._rounded(first, "y"), axes], [mean], options={"keep_dims": False})
        v = self.tensor("v", (2, 3), data=random.uniform(-0.5, 0.5, (2, 3)).astype(np.float32))
        self.operator("FULLY_CONNECTED", [mean, v, -1], [last])
        self.out = self._rounded(last, "z")
        self.x = x

    def _weights(self, codes: np.ndarray) -> int:
        reals = codes * np.array(WEIGHTS, np.float32)[:, None, None, None]
        if self.form == "fake":
            return self._fake(
                self.tensor("w", codes.shape, data=reals.astype(np.float32)), "w", -127 * 0.03, 127 * 0.03
            )
        made = self.tensor("w", codes.shape, "float32")
        stored = self.tensor("w/codes", codes.shape, "int8", data=codes, quant=(1.0, 0))
        quant = self.subgraph.tensors[stored].quantization
        assert quant is not None
        quant.scale, quant.zero_point = np.array(WEIGHTS, np.float32), np.zeros(3, np.int64)
        self.operator("DEQUANTIZE", [stored], [made])
        return made

    def _rounded(self, value: int, name: str) -> int:
        scale, zero = CODES[name]
        shape = self.subgraph.tensors[value].shape
        if self.form == "fake":
            return self._fake(value, name, scale * (-128 - zero), scale * (127 - zero))
        moved = zero + 128 if self.dtype == "uint8" else zero
        codes = self.tensor(f"{name}/q", shape, self.dtype, quant=(scale, moved))
        back = self.tensor(f"{name}/dq", shape)
        self.operator("QUANTIZE", [value], [codes])
        self.operator("DEQUANTIZE", [codes], [back])
        return back

    def _fake(self, value: int, name: str, low: float, high: float) -> int:
        made = self.tensor(f"{name}/dq", self.subgraph.tensors[value].shape)
        narrow = name == "w"
        self.operator(
            "FAKE_QUANT", [value], [made], options={"min": low, "max": high, "num_bits": 8, "narrow_range": narrow}
        )
        return made

    def file(self) -> bytes:
        return bytes(model_bytes(self.finish([self.x], [self.out])))


def _graph(made: Quantized) -> Graph:
    return build_graph(read_model(made.to_circle()))


def _codes(made: Quantized) -> dict[str, TensorInfo]:
    return {info.name: info for info in _graph(made).tensors if info.quant is not None and info.info.is_integer}


def _params(scale: float, zero: int) -> QuantParams:
    return QuantParams((float(np.float32(scale)),), (zero,))


@pytest.mark.parametrize("samples", [SAMPLES, None], ids=["samples", "no-samples"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_pairs_give_their_parameters(dtype: str, samples: Any) -> None:
    made = quantize(_Trained("pairs", dtype).file(), calibration=samples, io="quantized")
    graph, found = _graph(made), _codes(made)
    offset = 128 if dtype == "uint8" else 0
    (x,), (z,) = graph.input_infos(), graph.output_infos()
    seen = {"x": x, "y": found["y"]} | ({"z": z} if samples else {})
    for name, info in seen.items():
        scale, zero = CODES[name]
        assert (info.dtype, info.quant) == (dtype, _params(scale, zero + offset))
    weights = next(info for info in found.values() if info.shape == (3, 3, 3, 2))
    assert weights.quant is not None
    assert weights.quant.scales == tuple(np.array(WEIGHTS, np.float32).tolist())
    lost = [text for text in made.verdict["findings"] if "other parameters" in text]
    assert made.verdict["status"] == ("passed" if samples else "unchecked")
    if samples:
        assert not lost
    else:
        assert made.verdict["float_reasons"]["mean"] == "no range is known for 'mean'", "nobody rounded it, or ran it"
        assert "'z/dq' (it stays real)" in lost[0]


def test_the_quantised_model_computes_what_the_trained_one_does() -> None:
    """Every value is a code of the one and the other; roundings at halves may differ by one."""
    made = quantize(_Trained("pairs").file(), calibration=SAMPLES)
    assert made.verdict["choices"]["scheme"] == "int8"
    assert made.verdict["metrics"]["max_abs"] <= 1.001 * CODES["z"][0]
    codes = [node.node.spec.name for node in _graph(made).nodes]
    assert codes == ["QUANTIZE", "CONV_2D", "MEAN", "FULLY_CONNECTED", "DEQUANTIZE"]
    assert [info.name for info in _graph(made).output_infos()] == ["z/dq"], "the name that the model's users know"


def test_fake_quant_gives_its_parameters() -> None:
    made = quantize(_Trained("fake").file(), calibration=SAMPLES, io="quantized")
    found = _codes(made)
    for name in ("x", "y"):
        quant = found[name].quant
        assert quant is not None
        assert quant.scale == pytest.approx(CODES[name][0], rel=1e-6)
        assert quant.zero_point == CODES[name][1]
    weights = next(info for info in found.values() if info.shape == (3, 3, 3, 2))
    assert weights.quant is not None
    assert weights.quant.per_tensor
    assert weights.quant.scale == pytest.approx(0.03, rel=1e-6)
    assert weights.quant.zero_point == 0


def test_another_scheme_takes_the_ranges() -> None:
    made = quantize(_Trained("pairs").file(), scheme="int16", io="quantized")
    (x,) = _graph(made).input_infos()
    assert (x.dtype, x.quant is not None and x.quant.zero_point) == ("int16", 0)


def test_a_fake_quantised_model_gives_back_the_quantised_one() -> None:
    """Bit for bit: what ``odc-circle fake-quantize`` wrote is a model of reals with its parameters in pairs."""
    module, samples = squeeze_excite()
    first = quantize(module, calibration=samples, help=False)
    again = quantize(fake_quantize(first.model), calibration=samples, help=False)
    runs = [HostExecutor(_graph(made)) for made in (first, again)]
    for sample in samples:
        (a,), (b,) = (run.run(sample) for run in runs)
        np.testing.assert_array_equal(a, b)


def test_what_is_lost_is_said() -> None:
    """SOFTMAX fixes its result's parameters, whatever was trained."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    codes, back = builder.tensor("c", (1, 4), "int8", quant=(0.01, 0)), builder.tensor("d", (1, 4))
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    builder.operator("QUANTIZE", [y], [codes])
    builder.operator("DEQUANTIZE", [codes], [back])
    samples = [[np.arange(4, dtype=np.float32)[None] * k] for k in range(8)]
    made = quantize(model_bytes(builder.finish([x], [back])), calibration=samples)
    (said,) = [text for text in made.verdict["findings"] if "parameters than the model brings" in text]
    assert said.startswith(
        "1 of 1 tensors have other parameters than the model brings: 'd' (it is int8 with scale 0.0039"
    )


def test_what_is_refused() -> None:
    file = _Trained("pairs").file()
    with pytest.raises(OptionError, match="equalisation would change values whose parameters the model already has"):
        quantize(file, calibration=SAMPLES, equalize="weights")
    made = quantize(file, calibration=SAMPLES)
    with pytest.raises(ModelError, match="quantised already"):
        quantize(made.to_circle(), calibration=SAMPLES)


def test_compiling_takes_it_too() -> None:
    package = odc_mlir.compile(quantize(_Trained("pairs").file()).model, target="npu-256")
    assert package is not None


@pytest.mark.parametrize(
    "given",
    [{"ranges": "entropy"}, {"headroom": 0.3}, {"normalize": "on"}, {"rounding": "on"}, {"equalize": "weights"}],
    ids=lambda given: next(iter(given)),
)
def test_what_training_chose_is_not_chosen_again(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"parameters .*the model already has.*; omit"):
        quantize(_Trained("fake").file(), calibration=SAMPLES, **given)
