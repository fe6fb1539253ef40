"""Parts of networks that are quantised in tests."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet

I32 = "int32"


def conv(net: FloatNet, x: SSAValue, channels: int, kernel: int = 1, **options: Any) -> SSAValue:
    """A convolution with random weights and bias."""
    depth = net.array(x).shape[-1]
    options = {"padding": "same", "stride_h": 1, "stride_w": 1, **options}
    made: SSAValue = net.add(
        "CONV_2D",
        x,
        net.weights(channels, kernel, kernel, depth, spread=1 / (kernel * depth**0.5)),
        net.weights(channels, spread=0.1),
        **options,
    )
    return made


def squeeze_and_excite(net: FloatNet) -> SSAValue:
    """A convolution whose channels are weighted by what they are on average."""
    x = conv(net, net.real(1, 8, 8, 3), 16, 3, name="stem", fused_activation_function="relu")
    pooled = net.add("MEAN", x, net.const([1, 2], I32), keep_dims=True, name="pooled")
    inner = net.add("HARD_SWISH", conv(net, pooled, 4, name="reduce"), name="inner")
    gate = net.add("LOGISTIC", conv(net, inner, 16, name="expand"), name="gate")
    found: SSAValue = net.add("MUL", x, gate, name="out")
    return found


def attention(net: FloatNet) -> SSAValue:
    """Attention with two heads, and a residual connection."""
    x = net.real(1, 6, 8)
    parts = []
    for name in ("q", "k", "v"):
        flat = net.add("FULLY_CONNECTED", x, net.weights(8, 8, spread=0.4), None, keep_num_dims=True, name=name)
        heads = net.add("RESHAPE", flat, net.const([1, 6, 2, 4], I32), name=f"{name}-heads")
        parts.append(net.add("TRANSPOSE", heads, net.const([0, 2, 1, 3], I32), name=f"{name}-turned"))
    scores = net.add("BATCH_MATMUL", parts[0], parts[1], adjoint_rhs=True, name="scores")
    weights = net.add("SOFTMAX", scores, beta=0.5, name="weights")
    mixed = net.add("BATCH_MATMUL", weights, parts[2], name="mixed")
    back = net.add("TRANSPOSE", mixed, net.const([0, 2, 1, 3], I32), name="turned-back")
    found: SSAValue = net.add("ADD", x, net.add("RESHAPE", back, net.const([1, 6, 8], I32), name="flat"), name="out")
    return found


def pyramid(net: FloatNet) -> SSAValue:
    """Two resolutions joined, and a residual connection."""
    x = net.real(1, 8, 8, 4)
    fine = net.add("LEAKY_RELU", conv(net, x, 6, 3, name="fine"), alpha=0.1, name="leaky")
    coarse = net.add(
        "MAX_POOL_2D", fine, stride_h=2, stride_w=2, filter_height=2, filter_width=2, padding="valid", name="pool"
    )
    up = net.add("RESIZE_BILINEAR", conv(net, coarse, 6, 3, name="coarse"), net.const([8, 8], I32), name="up")
    joined = net.add("CONCATENATION", fine, up, axis=3, name="joined")
    residual = net.add("ADD", conv(net, joined, 4, name="project"), x, fused_activation_function="relu6", name="out")
    found: SSAValue = residual
    return found


def lstm(net: FloatNet, *, peephole: bool = False, activation: str = "tanh") -> SSAValue:
    """A recurrent cell over a sequence."""
    x = net.real(1, 12, 5)
    inputs, recurrent = ([net.weights(6, width, spread=0.5) for _ in range(4)] for width in (5, 6))
    biases = [net.weights(6, spread=0.3) for _ in range(4)]
    peepholes = [net.weights(6, spread=0.1) if peephole else None] * 3
    states = net.variable(1, 6, name="h"), net.variable(1, 6, name="c")
    operands = (x, *inputs, *recurrent, *peepholes, *biases, None, None, *states, *[None] * 4)
    made = net.add("UNIDIRECTIONAL_SEQUENCE_LSTM", *operands, fused_activation_function=activation, name="lstm")
    found: SSAValue = net.add("RESHAPE", made, net.const([12, 6], I32), name="flat")
    return found
