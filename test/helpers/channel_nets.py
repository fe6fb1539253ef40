"""Random networks on codes with channels that training has switched off, and others that nothing reads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet, assign, run_pass

_ACTIVATIONS = ("none", "relu", "relu6")


class ChannelNet(FloatNet):
    """Layers some of whose rows of weights are next to nothing, and some of whose columns are 0."""

    def pick(self, count: int) -> int:
        return int(self.rng.integers(0, count))

    def layer_weights(self, *shape: int, axis: int) -> tuple[SSAValue, SSAValue]:
        """Weights and bias; rows lie along ``axis``, columns along the last one if that is another."""
        weights = self.rng.normal(0, 1, shape)
        rows = [1] * len(shape)
        rows[axis] = -1
        quiet = np.where(self.rng.random(shape[axis]) < 0.4, self.rng.choice([0, 1e-6, 1e-3]), 1)
        weights *= quiet.reshape(rows)
        if axis == 0:
            weights *= self.rng.random(shape[-1]) < 0.9
        bias = self.rng.normal(0, 1, shape[axis])
        return self.const(weights), self.const(np.where(quiet < 1, -np.abs(bias) * self.rng.choice([1, -1]), bias))

    def options(self) -> dict[str, object]:
        return {
            "padding": ("same", "valid")[self.pick(2)],
            "stride_h": 1 + self.pick(2),
            "stride_w": 1,
            "fused_activation_function": _ACTIVATIONS[self.pick(3)],
        }


def _conv(n: ChannelNet, x: SSAValue) -> SSAValue:
    size, depth = 1 + n.pick(2), n.array(x).shape[3]
    made: SSAValue = n.add("CONV_2D", x, *n.layer_weights(2 + n.pick(6), size, size, depth, axis=0), **n.options())
    return made


def _depthwise(n: ChannelNet, x: SSAValue) -> SSAValue:
    size, multiplier, depth = 1 + n.pick(2), 1 + n.pick(2), n.array(x).shape[3]
    weights = n.layer_weights(1, size, size, depth * multiplier, axis=3)
    made: SSAValue = n.add("DEPTHWISE_CONV_2D", x, *weights, depth_multiplier=multiplier, **n.options())
    return made


def _residual(n: ChannelNet, x: SSAValue) -> SSAValue:
    depth = n.array(x).shape[3]
    options = {"padding": "same", "stride_h": 1, "stride_w": 1, "fused_activation_function": _ACTIVATIONS[n.pick(3)]}
    other = n.add("CONV_2D", x, *n.layer_weights(depth, 1, 1, depth, axis=0), **options)
    made: SSAValue = n.add(("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")[n.pick(5)], x, other)
    return made


def _with_constant(n: ChannelNet, x: SSAValue) -> SSAValue:
    shape = [(n.array(x).shape[3],), (1, 1, 1, n.array(x).shape[3]), (1,)][n.pick(3)]
    made: SSAValue = n.add(("ADD", "MUL", "MINIMUM")[n.pick(3)], x, n.weights(*shape))
    return made


def _joined(n: ChannelNet, x: SSAValue) -> SSAValue:
    depth = n.array(x).shape[3]
    options = {"padding": "same", "stride_h": 1, "stride_w": 1, "fused_activation_function": "relu"}
    other = n.add("CONV_2D", x, *n.layer_weights(depth, 1, 1, depth, axis=0), **options)
    made: SSAValue = n.add("CONCATENATION", x, other, axis=2 + n.pick(2))
    return made


def _pool(n: ChannelNet, x: SSAValue) -> SSAValue:
    options = {"filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1, "padding": "same"}
    made: SSAValue = n.add(("MAX_POOL_2D", "AVERAGE_POOL_2D")[n.pick(2)], x, **options)
    return made


def _unary(n: ChannelNet, x: SSAValue) -> SSAValue:
    made: SSAValue = n.add(("RELU", "RELU6", "LOGISTIC", "TANH", "HARD_SWISH", "ABS")[n.pick(6)], x)
    return made


def _pad(n: ChannelNet, x: SSAValue) -> SSAValue:
    made: SSAValue = n.add("PAD", x, n.const([[0, 0], [1, 0], [0, n.pick(2)], [0, 0]], "int32"))
    return made


def _mean(n: ChannelNet, x: SSAValue) -> SSAValue:
    made: SSAValue = n.add("MEAN", x, n.const([1 + n.pick(2)], "int32"), keep_dims=True)
    return made


def _barrier(n: ChannelNet, x: SSAValue) -> SSAValue:
    made: SSAValue = n.add("SOFTMAX", x, beta=1.0)
    return made


_PARTS: tuple[Callable[[ChannelNet, SSAValue], SSAValue], ...] = (
    *(_conv, _conv, _conv, _conv, _depthwise, _depthwise, _residual, _with_constant),
    *(_joined, _pool, _unary, _unary, _pad, _mean, _barrier),
)


def channel_net(seed: int, *, all_values: bool = False) -> ModuleOp:
    """A network of a few operators that ends in a fully connected layer; ``all_values``: it returns all that it has."""
    n = ChannelNet(seed)
    x = n.real(1, 4 + n.pick(3), 4, 1 + n.pick(4))
    made = [x, _conv(n, x)]
    for _ in range(1 + n.pick(7)):
        source = made[-1 - (n.pick(4) == 0)]
        if min(n.array(source).shape[1:3]) < 2:
            break
        made.append(_PARTS[n.pick(len(_PARTS))](n, source))
    height, width, depth = n.array(made[-1]).shape[1:]
    flat = made[-1]
    if n.pick(2):
        shape = [1, height * width * depth]
        flat = n.add("RESHAPE", flat, n.const(shape, "int32"), new_shape=shape)
    wide = n.add(
        "FULLY_CONNECTED",
        flat,
        *n.layer_weights(3 + n.pick(5), height * width * depth, axis=0),
        fused_activation_function=_ACTIVATIONS[n.pick(3)],
    )
    last = n.add("FULLY_CONNECTED", wide, *n.layer_weights(2, n.array(wide).shape[-1], axis=0))
    outputs = [*made[1:], wide, last] if all_values else [last, *made[-1 : len(made) * n.pick(2)]]
    module = assign(n.module(*dict.fromkeys(outputs)), ("int8", "int16", "uint8")[seed % 3])
    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "quant-insert-requantize")
    return module
