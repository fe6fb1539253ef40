"""Small float models of kinds that are hard to quantise, and samples for them: made on the spot, random weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.runtime.api import open_executor

Array = NDArray[Any]
SAMPLES = 40
# Options that turn off everything that help chooses.
HELP_OFF: dict[str, Any] = {"ranges": "minmax", "equalize": "none", "headroom": 0.0}
HELP_OFF |= dict.fromkeys(("output_room", "normalize", "rounding", "correction", "mixed"), "off")


def only(*kinds: str) -> dict[str, Any]:
    """Return options that leave only these kinds to help: a search of one kind takes a fraction of the time."""
    return {name: value for name, value in HELP_OFF.items() if name not in kinds}


def samples(shape: tuple[int, ...], count: int = SAMPLES, seed: int = 7) -> list[list[Array]]:
    """Smooth random inputs, of different loudness."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        values = rng.normal(0, rng.uniform(0.5, 1.5), shape)
        result.append([(values + np.roll(values, 1, axis=-2)).astype(np.float32)])
    return result


def sqnr_db(model: bytes, made: Any, samples: list[list[Array]]) -> float:
    """Return the SQNR in dB of the first output of the quantised model ``made`` over all samples."""
    executors = [open_executor(file) for file in (model, made.to_circle())]
    pairs = [[executor.run(sample)[0].astype(np.float64) for executor in executors] for sample in samples]
    return float(10 * np.log10(sum((a**2).sum() for a, _ in pairs) / sum(((a - b) ** 2).sum() for a, b in pairs)))


def normal(rng: np.random.Generator, count: int, *shape: int, size: float = 1.0) -> list[list[Array]]:
    """Draw ``count`` samples of one normally distributed input."""
    return [[(size * rng.normal(size=shape)).astype(np.float32)] for _ in range(count)]


def two_layers(outputs: int, scale: float, rng: np.random.Generator) -> tuple[ModelBuilder, int, int]:
    """Two layers from [1, 8] to [1, outputs], the weights of the last one times ``scale``; with input and result."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 8))
    hidden = builder.dense("hidden", x, rng.normal(size=(16, 8)))
    return builder, x, builder.dense("y", hidden, scale * rng.normal(size=(outputs, 16)))


@cache
def regressor(outputs: int = 1, scale: float = 1.0) -> tuple[bytes, list[list[Array]]]:
    """The file of two layers, and 24 samples."""
    rng = np.random.default_rng(3)
    builder, x, y = two_layers(outputs, scale, rng)
    return builder.file([x], [y]), normal(rng, 24, 1, 8)


@cache
def without_ranges(make: Callable[[], tuple[ModuleOp, list[list[Array]]]]) -> tuple[bytes, list[list[Array]]]:
    """The file of a model without the ranges that its tensors had, and its samples."""
    module, samples = make()
    model = export_model(module)
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return bytes(write_model(model)), samples


def dense_layers() -> tuple[ModuleOp, list[list[Array]]]:
    """Three layers with large weights on [1, 1, 64]: the fewest operators between which a search can choose."""
    data = samples((1, 1, 64))
    net = FloatNet(13)
    x = net.input(data[0][0])
    for i in range(2):
        x = net.add("RELU", _dense(net, x, 64, f"hidden{i}"), name=f"relu{i}")
    return net.module(_dense(net, x, 64, "last")), data


def attention() -> tuple[ModuleOp, list[list[Array]]]:
    """One transformer block on [1, 12, 16]: normalisation, two heads of attention, two layers with GELU."""
    data = samples((1, 12, 16))
    net = FloatNet(3)
    x = net.input(data[0][0])
    y = _normalised(net, x, "norm")
    heads = [_head(net, y, f"head{i}") for i in range(2)]
    joined = net.add("CONCATENATION", *heads, axis=2, name="heads")
    x = net.add("ADD", x, _dense(net, joined, 16, "project"), name="residual1")
    hidden = net.add("GELU", _dense(net, x, 32, "up"), approximate=False, name="gelu")
    return net.module(net.add("ADD", x, _dense(net, hidden, 16, "down"), name="residual2")), data


def _dense(net: FloatNet, x: SSAValue, size: int, name: str) -> SSAValue:
    inputs = net.array(x).shape[-1]
    weights = net.weights(size, inputs, spread=inputs**-0.5)
    bias = net.weights(size, spread=0.1)
    return net.add("FULLY_CONNECTED", x, weights, bias, keep_num_dims=True, name=name)


def _normalised(net: FloatNet, x: SSAValue, name: str) -> SSAValue:
    """Mean 0 and variance 1 along the last axis, then a scale and an offset."""
    axis = net.const([2], "int32")
    mean = net.add("MEAN", x, axis, keep_dims=True, name=f"{name}/mean")
    squares = net.add("SQUARED_DIFFERENCE", x, mean, name=f"{name}/squares")
    variance = net.add("MEAN", squares, axis, keep_dims=True, name=f"{name}/variance")
    root = net.add("RSQRT", net.add("ADD", variance, net.const([1e-3]), name=f"{name}/eps"), name=f"{name}/rsqrt")
    centred = net.add("SUB", x, mean, name=f"{name}/centred")
    scaled = net.add("MUL", centred, root, name=f"{name}/scaled")
    gamma = net.add("MUL", scaled, net.const(net.rng.uniform(0.5, 1.5, 16)), name=f"{name}/gamma")
    return net.add("ADD", gamma, net.weights(16, spread=0.2), name=f"{name}/beta")


def _head(net: FloatNet, x: SSAValue, name: str) -> SSAValue:
    query, key, value = (_dense(net, x, 8, f"{name}/{part}") for part in ("query", "key", "value"))
    scores = net.add("BATCH_MATMUL", query, key, adjoint_rhs=True, name=f"{name}/scores")
    scaled = net.add("MUL", scores, net.const([8**-0.5]), name=f"{name}/scaled")
    weights = net.add("SOFTMAX", scaled, beta=1.0, name=f"{name}/weights")
    return net.add("BATCH_MATMUL", weights, value, name=f"{name}/mixed")


def squeeze_excite(branches: int = 1) -> tuple[ModuleOp, list[list[Array]]]:
    """Convolutions on [1, 8, 8, 4] with branches that scale channels by functions of their means."""
    data = samples((1, 8, 8, 4))
    net = FloatNet(5)
    x = _conv(net, net.input(data[0][0]), 16, "stem", "relu6")
    for i in range(2):
        x = _conv(net, x, 16, f"conv{i}")
        x = x if i < 2 - branches else _excited(net, x, f"se{i}")
    pooled = net.add("MEAN", x, net.const([1, 2], "int32"), name="pool")
    return net.module(net.add("SOFTMAX", _dense(net, pooled, 6, "logits"), beta=1.0, name="probs")), data


def _conv(net: FloatNet, x: SSAValue, channels: int, name: str, activation: str = "relu") -> SSAValue:
    inputs = net.array(x).shape[-1]
    weights, bias = net.weights(channels, 3, 3, inputs, spread=(9 * inputs) ** -0.5), net.weights(channels, spread=0.1)
    return net.add(
        "CONV_2D",
        x,
        weights,
        bias,
        padding="same",
        stride_h=1,
        stride_w=1,
        dilation_h_factor=1,
        dilation_w_factor=1,
        fused_activation_function=activation,
        name=name,
    )


def _excited(net: FloatNet, x: SSAValue, name: str) -> SSAValue:
    mean = net.add("MEAN", x, net.const([1, 2], "int32"), keep_dims=False, name=f"{name}/mean")
    squeezed = net.add("RELU", _dense(net, mean, 4, f"{name}/squeeze"), name=f"{name}/relu")
    gate = net.add("LOGISTIC", _dense(net, squeezed, 16, f"{name}/excite"), name=f"{name}/gate")
    shaped = net.add("RESHAPE", gate, net.const([1, 1, 1, 16], "int32"), new_shape=(1, 1, 1, 16), name=f"{name}/shape")
    return net.add("MUL", x, shaped, name=f"{name}/scaled")


def rescaled_mobilenet() -> tuple[ModuleOp, list[list[Array]]]:
    """Depthwise blocks on [1, 8, 8, 8] whose channels were given scales from 2^-6 to 2^6 that change nothing."""
    data = samples((1, 8, 8, 8))
    net = FloatNet(9)
    x = net.input(data[0][0])
    for i in range(2):
        x = _separable(net, x, 16, f"block{i}")
    pooled = net.add("MEAN", x, net.const([1, 2], "int32"), name="pool")
    return net.module(_dense(net, pooled, 5, "logits")), data


def _separable(net: FloatNet, x: SSAValue, channels: int, name: str) -> SSAValue:
    """A pointwise layer, a depthwise one that takes its scales back, and a pointwise one."""
    inputs = net.array(x).shape[-1]
    scales = 2.0 ** net.rng.integers(-6, 7, 2 * channels)
    weights = net.rng.normal(0, inputs**-0.5, (2 * channels, 1, 1, inputs)) * scales[:, None, None, None]
    bias = net.rng.normal(0, 0.1, 2 * channels) * scales
    wide = _window(net, "CONV_2D", x, net.const(weights), net.const(bias), f"{name}/expand")
    depthwise = net.rng.normal(0, 1 / 3, (1, 3, 3, 2 * channels)) / scales
    bias = net.rng.normal(0, 0.1, 2 * channels)
    deep = _window(net, "DEPTHWISE_CONV_2D", wide, net.const(depthwise), net.const(bias), f"{name}/depthwise")
    weights = net.rng.normal(0, (2 * channels) ** -0.5, (channels, 1, 1, 2 * channels))
    return _window(net, "CONV_2D", deep, net.const(weights), net.weights(channels, spread=0.1), f"{name}/project")


def _window(net: FloatNet, operator: str, x: SSAValue, weights: SSAValue, bias: SSAValue, name: str) -> SSAValue:
    options: dict[str, Any] = {"depth_multiplier": 1} if operator == "DEPTHWISE_CONV_2D" else {}
    return net.add(
        operator,
        x,
        weights,
        bias,
        padding="same",
        stride_h=1,
        stride_w=1,
        dilation_h_factor=1,
        dilation_w_factor=1,
        fused_activation_function="relu",
        name=name,
        **options,
    )


def recurrent() -> tuple[ModuleOp, list[list[Array]]]:
    """An LSTM over [1, 10, 6] and a classifier of its last state."""
    data = samples((1, 10, 6))
    net = FloatNet(11)
    x, cells = net.input(data[0][0]), 8
    gates: list[SSAValue | None] = [net.weights(cells, 6, spread=0.4) for _ in range(4)]
    again: list[SSAValue | None] = [net.weights(cells, cells, spread=0.3) for _ in range(4)]
    biases: list[SSAValue | None] = [net.weights(cells, spread=0.1) for _ in range(4)]
    state, cell = net.variable(1, cells, name="state"), net.variable(1, cells, name="cell")
    nothing: list[SSAValue | None] = [None] * 4
    sequence = net.add(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        x,
        *gates,
        *again,
        *nothing[:3],
        *biases,
        *nothing[:2],
        state,
        cell,
        *nothing,
        fused_activation_function="tanh",
        cell_clip=0.0,
        proj_clip=0.0,
        time_major=False,
        name="lstm",
    )
    last = net.add(
        "STRIDED_SLICE",
        sequence,
        net.const([0, 9, 0], "int32"),
        net.const([1, 10, cells], "int32"),
        net.const([1, 1, 1], "int32"),
        shrink_axis_mask=2,
        name="last",
    )
    return net.module(net.add("SOFTMAX", _dense(net, last, 4, "logits"), beta=1.0, name="probs")), data


MODELS = {
    "attention": attention,
    "squeeze_excite": squeeze_excite,
    "rescaled_mobilenet": rescaled_mobilenet,
    "recurrent": recurrent,
}


def activation(kind: str, shape: tuple[int, ...], tail: tuple[int, ...] = (), **tensor: Any) -> bytes:
    """The file of a SOFTMAX, LOG_SOFTMAX or LOGISTIC, whose result gets the shape ``tail`` if given."""
    builder = ModelBuilder()
    x, y = (builder.tensor(name, shape, **tensor) for name in "xy")
    builder.operator(kind, [x], [y], options={"beta": 1.0} if kind == "SOFTMAX" else {})
    if tail:
        y = builder.made("flat", tail, "RESHAPE", y, builder.constant("shape", tail, "int32"))
    return builder.file([x], [y])
