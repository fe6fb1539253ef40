"""Networks that shuffle channels, as ShuffleNets do, and random ones that move channels in every way."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet
from helpers.rewrite_parts import image, ints, relu, reshape, transpose


def conv(n: FloatNet, x: SSAValue, *, outputs: int = 2, activation: str = "none") -> SSAValue:
    """A layer whose results are about as large as what it reads."""
    channels = n.array(x).shape[-1]
    weights = n.weights(outputs, 1, 1, channels, spread=channels**-0.5)
    options = {"padding": "same", "stride_w": 1, "stride_h": 1, "fused_activation_function": activation}
    made: SSAValue = n.add("CONV_2D", x, weights, n.weights(outputs), **options)
    return made


def depthwise(n: FloatNet, x: SSAValue) -> SSAValue:
    channels = n.array(x).shape[-1]
    options = {"padding": "same", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
    weights = n.weights(1, 2, 2, channels, spread=0.5)
    made: SSAValue = n.add("DEPTHWISE_CONV_2D", x, weights, n.weights(channels), **options)
    return made


def shuffle(n: FloatNet, x: SSAValue, groups: int, axis: int = 3) -> SSAValue:
    """Channel ``i`` of each group beside channel ``i`` of the others."""
    shape = n.array(x).shape
    parts = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    order = [axis + 1 if place == axis else axis if place == axis + 1 else place for place in range(len(parts))]
    return reshape(n, transpose(n, reshape(n, x, *parts), *order), *shape)


def joined(n: FloatNet, *values: SSAValue, axis: int = 3) -> SSAValue:
    made: SSAValue = n.add("CONCATENATION", *values, axis=axis)
    return made


def parted(n: FloatNet, x: SSAValue, *sizes: int, axis: int = 3) -> Sequence[SSAValue]:
    made: Sequence[SSAValue] = n.add(
        "SPLIT_V", x, ints(n, *sizes), n.const(axis, "int32"), count=len(sizes), num_splits=len(sizes)
    )
    return made


def shuffle_net(n: FloatNet, *, units: int = 3, channels: int = 32, groups: int = 2) -> SSAValue:
    """A stage of ShuffleNet v2: one half of the channels goes through layers, then all are shuffled."""
    half = channels // 2
    x = image(n, h=4, w=4, c=8)
    y = shuffle(n, joined(n, conv(n, x, outputs=half), conv(n, x, outputs=half)), groups)
    for _ in range(units):
        kept, read = parted(n, y, half, half)
        made = conv(n, depthwise(n, relu(n, conv(n, read, outputs=half))), outputs=half)
        y = shuffle(n, joined(n, kept, made), groups)
    padded = n.add("PAD", y, n.const([[0, 0], [1, 1], [1, 1], [0, 0]], "int32"))
    return joined(n, conv(n, depthwise(n, padded)), conv(n, n.add("PAD", relu(n, y), _nothing(n))))


def _nothing(n: FloatNet) -> SSAValue:
    return n.const([[0, 0], [1, 1], [1, 1], [0, 0]], "int32")


def moved_at_random(n: FloatNet) -> Sequence[SSAValue]:
    """Channels of layers and inputs, moved a few times; layers, functions and outputs read them."""
    values = [_source(n) for _ in range(2 + _pick(n, 2))]
    values.append(shuffle(n, joined(n, *values), (2, 4)[_pick(n, 2)]))
    for _ in range(_pick(n, 6)):
        values += _moved(n, values[-1 - _pick(n, min(4, len(values)))], values)
    ends = [_read(n, value) for value in values if not value.uses]
    return list(dict.fromkeys([*ends, *([_read(n, values[-1])] if _pick(n, 2) else [])]))


def _pick(n: FloatNet, count: int) -> int:
    return int(n.rng.integers(0, count))


def _source(n: FloatNet) -> SSAValue:
    """A multiple of four channels."""
    x, kind = image(n, h=2, w=2, c=4), _pick(n, 4)
    if kind == 0:
        return n.real(1, 2, 2, 8)
    made = conv(n, x, outputs=4 * (1 + _pick(n, 4)), activation=("none", "relu")[_pick(n, 2)])
    return (made, depthwise(n, made), relu(n, depthwise(n, made)))[kind - 1]


def _moved(n: FloatNet, x: SSAValue, values: Sequence[SSAValue]) -> Sequence[SSAValue]:
    shape, kind = n.array(x).shape, _pick(n, 6)
    channels = shape[-1]
    begin = _pick(n, channels)
    if kind == 0 and channels % 2 == 0:
        return [shuffle(n, x, 2)]
    if kind == 1 and begin:
        return parted(n, x, begin, channels - begin)
    if kind == 2:
        size = 1 + _pick(n, channels - begin)
        return [n.add("SLICE", x, ints(n, 0, 0, 0, begin), ints(n, *shape[:-1], size))]
    if kind == 3:
        first, step = begin - channels * _pick(n, 2), 1 + _pick(n, 2)
        bounds = (ints(n, 0, 0, 0, first), ints(n, 1, 2, 2, channels), ints(n, 1, 1, 1, step))
        return [n.add("STRIDED_SLICE", x, *bounds, begin_mask=8 * _pick(n, 2), end_mask=8)]
    if kind == 4:
        return [n.add("GATHER", x, ints(n, *n.rng.integers(0, channels, 1 + begin)), axis=3)]
    return [joined(n, x, values[_pick(n, len(values))])]


def _read(n: FloatNet, x: SSAValue) -> SSAValue:
    kind = _pick(n, 5)
    if kind == 0:
        return x
    return (relu(n, x), conv(n, x), conv(n, relu(n, depthwise(n, x))), joined(n, conv(n, x), relu(n, x)))[kind - 1]


def shuffled_beside(n: FloatNet) -> Sequence[SSAValue]:
    """A shuffle of what is an output as it is as well."""
    made = conv(n, image(n), outputs=32)
    return made, relu(n, shuffle(n, made, 2))
