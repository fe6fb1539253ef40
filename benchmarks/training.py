"""Train small networks of the format's own operators, by numpy alone, and make models of them.

A network is a function of a :class:`Net` and its inputs. Every operator runs as it is added and knows its gradient, so
that the same function trains on a batch and, run on one sample, gives the model. Batch normalisation uses the batch in
training and is folded into the weights before it afterwards. The same seed gives the same network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir import ops
from odc_mlir.formats.circle.model import Model, Operator, Signature, SubGraph, Tensor
from odc_mlir.formats.circle.schema import default_options

Array = NDArray[Any]
Backward = Callable[[Array], Sequence[Array | None]]
WINDOW = {"padding": "same", "dilation_h_factor": 1, "dilation_w_factor": 1}
EPSILON = 1e-3  # of batch normalisation


class Value:
    """An array, and the operator that it is the result of; without ``kind`` an input or a constant.

    ``backward`` gives the gradients of the operands for that of the result.
    """

    def __init__(self, array: Array, kind: str = "", operands: Sequence[Value] = (), **options: Any) -> None:
        self.array, self.kind, self.operands, self.options = array, kind, tuple(operands), options
        self.backward: Backward | None = None
        self.grad: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array, the batch included."""
        return self.array.shape


class Net:
    """Parameters by name, and what makes layers and operators of them; ``statistics`` are of batches, by layer."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.parameters: dict[str, Array] = {}
        self.statistics: dict[str, tuple[Array, Array]] = {}
        self.used: dict[str, Value] = {}
        self.is_training = True

    # Leaves.

    def parameter(self, name: str, shape: Sequence[int], spread: float, mean: float = 0.0) -> Value:
        """What is trained, at first normal with this deviation and mean."""
        if name not in self.parameters:
            self.parameters[name] = self.random.normal(mean, spread, tuple(shape)) if spread else np.full(shape, mean)
        if name not in self.used:
            self.used[name] = Value(self.parameters[name])
        return self.used[name]

    def constant(self, data: Any, dtype: str = "float64") -> Value:
        """What is not trained."""
        return Value(np.asarray(data, dtype))

    # Layers.

    def dense(self, x: Value, size: int, name: str, activation: str = "none", gain: float = 2.0) -> Value:
        """A layer whose weights have at first a variance of ``gain`` over the number of inputs."""
        inputs = x.shape[-1]
        w = self.parameter(f"{name}/w", (size, inputs), (gain / inputs) ** 0.5)
        b = self.parameter(f"{name}/b", (size,), 0.0)
        return self.op("FULLY_CONNECTED", x, w, b, fused_activation_function=activation, keep_num_dims=x.array.ndim > 2)

    def conv(
        self,
        x: Value,
        size: int,
        name: str,
        kernel: tuple[int, int] = (3, 3),
        stride: int | tuple[int, int] = 1,
        activation: str = "relu",
        normalized: bool = False,
        depthwise: bool = False,
        dilation: int = 1,
    ) -> Value:
        """A convolution, a depthwise one where asked for; ``normalized``: with a batch normalisation after it."""
        c = x.shape[-1]
        h, w_ = stride if isinstance(stride, tuple) else (stride, stride)
        shape = (1, *kernel, c) if depthwise else (size, *kernel, c)
        size = c if depthwise else size
        fan = kernel[0] * kernel[1] * (1 if depthwise else c)
        w = self.parameter(f"{name}/w", shape, (2.0 / fan) ** 0.5)
        b = self.parameter(f"{name}/b", (size,), 0.0)
        kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
        options = dict(
            WINDOW,
            stride_h=h,
            stride_w=w_,
            dilation_h_factor=dilation if kernel[0] > 1 else 1,
            dilation_w_factor=dilation if kernel[1] > 1 else 1,
        )
        if depthwise:
            options["depth_multiplier"] = 1
        if not normalized:
            return self.op(kind, x, w, b, fused_activation_function=activation, **options)
        gamma, beta = self.parameter(f"{name}/gamma", (size,), 0.2, 1.0), self.parameter(f"{name}/beta", (size,), 0.1)
        if self.is_training:
            y = self.op(kind, x, w, b, fused_activation_function="none", **options)
            y = self.op("NORMALIZE", y, gamma, beta)
            mean, var = y.options["mean"], y.options["var"]
            old = self.statistics.get(name, (mean, var))
            self.statistics[name] = (0.9 * old[0] + 0.1 * mean, 0.9 * old[1] + 0.1 * var)
            return y if activation == "none" else self.op(activation.upper(), y)
        mean, var = self.statistics[name]
        by = gamma.array / np.sqrt(var + EPSILON)
        folded = w.array * (by if depthwise else by[:, None, None, None])
        bias = (b.array - mean) * by + beta.array
        return self.op(kind, x, Value(folded), Value(bias), fused_activation_function=activation, **options)

    def layer_norm(self, x: Value, name: str, mean: bool = True) -> Value:
        """LayerNorm along the last axis, without ``mean`` RMSNorm."""
        axis = self.constant([x.array.ndim - 1], "int32")
        if mean:
            x = self.op("SUB", x, self.op("MEAN", x, axis, keep_dims=True))
        square = self.op("MUL", x, x)
        power = self.op("ADD", self.op("MEAN", square, axis, keep_dims=True), self.constant([1e-5]))
        y = self.op("MUL", x, self.op("RSQRT", power))
        y = self.op("MUL", y, self.parameter(f"{name}/gamma", (x.shape[-1],), 0.1, 1.0))
        return self.op("ADD", y, self.parameter(f"{name}/beta", (x.shape[-1],), 0.05)) if mean else y

    def reshape(self, x: Value, *shape: int) -> Value:
        """All but the first axis."""
        return self.op("RESHAPE", x, self.constant((1, *shape), "int32"), new_shape=(1, *shape))

    def transpose(self, x: Value, *order: int) -> Value:
        """The axes in this order, the batch's included."""
        return self.op("TRANSPOSE", x, self.constant(order, "int32"))

    def pool(self, x: Value) -> Value:
        """The mean of each channel of images."""
        return self.op("MEAN", x, self.constant([1, 2], "int32"), keep_dims=False)

    def slice(self, x: Value, axis: int, start: int, stop: int) -> Value:
        """Places from ``start`` to before ``stop`` of an axis that is not the batch's."""
        begin, size = [0] * x.array.ndim, list(x.shape)
        begin[axis], size[axis], size[0] = start, stop - start, 1
        return self.op("SLICE", x, self.constant(begin, "int32"), self.constant(size, "int32"))

    def heads(self, x: Value, name: str, count: int, mask: Array | None = None) -> Value:
        """Attention of ``count`` heads on [batch, tokens, width]."""
        t, width = x.shape[1:]
        size = width // count
        q, k, v = (
            self.transpose(self.reshape(self.dense(x, width, f"{name}/{p}", gain=1.0), t, count, size), 0, 2, 1, 3)
            for p in "qkv"
        )
        scores = self.op("BATCH_MATMUL", q, k, adjoint_lhs=False, adjoint_rhs=True)
        scores = self.op("MUL", scores, self.constant([size**-0.5]))
        if mask is not None:
            scores = self.op("ADD", scores, self.constant(mask))
        weights = self.op("SOFTMAX", scores, beta=1.0)
        mixed = self.op("BATCH_MATMUL", weights, v, adjoint_lhs=False, adjoint_rhs=False)
        joined = self.reshape(self.transpose(mixed, 0, 2, 1, 3), t, width)
        return self.dense(joined, width, f"{name}/o", gain=1.0)

    def op(self, kind: str, *operands: Value, **options: Any) -> Value:
        """The result of an operator."""
        activation = options.get("fused_activation_function", "none")
        result = Value(np.zeros(0), kind, operands, **options)
        result.array, back = OPERATORS[kind]([o.array for o in operands], options, result)
        if activation != "none":
            result.array, again = OPERATORS[activation.upper()]([result.array], {}, result)
            result.backward = lambda grad: back(again(grad)[0])
        else:
            result.backward = back
        return result


def order_of(results: Sequence[Value]) -> list[Value]:
    """The values that results need, operands first."""
    found: dict[int, Value] = {}
    stack = [(r, False) for r in reversed(results)]
    while stack:
        value, done = stack.pop()
        if done:
            found[id(value)] = value
        elif id(value) not in found:
            stack.append((value, True))
            stack += [(o, False) for o in reversed(value.operands) if id(o) not in found]
    return list(found.values())


def _summed(grad: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of what was broadcast."""
    while grad.ndim > len(shape):
        grad = grad.sum(axis=0)
    axes = tuple(i for i, size in enumerate(shape) if size == 1 and grad.shape[i] != 1)
    return grad.sum(axis=axes, keepdims=True) if axes else grad


def _binary(forward: Callable[..., Array], left: Callable[..., Array], right: Callable[..., Array]) -> Any:
    def run(a: list[Array], options: Any, _: Value) -> tuple[Array, Backward]:
        x, y = a
        return forward(x, y), lambda g: (_summed(left(g, x, y), x.shape), _summed(right(g, x, y), y.shape))

    return run


def _unary(forward: Callable[[Array], Array], slope: Callable[[Array, Array], Array]) -> Any:
    def run(a: list[Array], options: Any, _: Value) -> tuple[Array, Backward]:
        y = forward(a[0])
        return y, lambda g: (g * slope(a[0], y),)

    return run


def _dense(a: list[Array], options: Any, _: Value) -> tuple[Array, Backward]:
    x, w, b = a

    def back(g: Array) -> Sequence[Array]:
        flat = g.reshape(-1, g.shape[-1])
        return g @ w, flat.T @ x.reshape(-1, x.shape[-1]), flat.sum(axis=0)

    return x @ w.T + b, back


def _windows(x: Array, kernel: tuple[int, int], o: Any) -> tuple[Array, Any]:
    """Windows [n, h, w, kh, kw, c] and how to put gradients of them back."""
    (kh, kw), (n, h, w, c) = kernel, x.shape
    sh, sw, dh, dw = o["stride_h"], o["stride_w"], o["dilation_h_factor"], o["dilation_w_factor"]
    oh, ow = -(-h // sh), -(-w // sw)
    ph, pw = max((oh - 1) * sh + (kh - 1) * dh + 1 - h, 0), max((ow - 1) * sw + (kw - 1) * dw + 1 - w, 0)
    padded = np.zeros((n, h + ph, w + pw, c))
    padded[:, ph // 2 : ph // 2 + h, pw // 2 : pw // 2 + w] = x

    def views(p: Array) -> list[list[Array]]:
        down = [slice(i * dh, i * dh + (oh - 1) * sh + 1, sh) for i in range(kh)]
        right = [slice(j * dw, j * dw + (ow - 1) * sw + 1, sw) for j in range(kw)]
        return [[p[:, rows, places] for places in right] for rows in down]

    columns = np.stack([np.stack(row, axis=3) for row in views(padded)], axis=3)

    def back(g: Array) -> Array:
        p = np.zeros_like(padded)
        for i, row in enumerate(views(p)):
            for j, view in enumerate(row):
                view += g[:, :, :, i, j]
        return p[:, ph // 2 : ph // 2 + h, pw // 2 : pw // 2 + w]

    return columns, back


def _conv(a: list[Array], o: Any, _: Value) -> tuple[Array, Backward]:
    x, w, b = a
    columns, put = _windows(x, w.shape[1:3], o)
    n, h, v = columns.shape[:3]
    flat, matrix = columns.reshape(n * h * v, -1), w.reshape(len(w), -1)

    def back(g: Array) -> Sequence[Array]:
        f = g.reshape(-1, len(w))
        return put((f @ matrix).reshape(columns.shape)), (f.T @ flat).reshape(w.shape), f.sum(axis=0)

    return (flat @ matrix.T).reshape(n, h, v, len(w)) + b, back


def _depthwise(a: list[Array], o: Any, _: Value) -> tuple[Array, Backward]:
    x, w, b = a
    columns, put = _windows(x, w.shape[1:3], o)

    def back(g: Array) -> Sequence[Array]:
        wide = g[:, :, :, None, None]
        return put(wide * w[0]), (wide * columns).sum(axis=(0, 1, 2))[None], g.sum(axis=(0, 1, 2))

    return (columns * w[0]).sum(axis=(3, 4)) + b, back


def _normalize(a: list[Array], o: Any, result: Value) -> tuple[Array, Backward]:
    x, gamma, beta = a
    axes = tuple(range(x.ndim - 1))
    mean, var = x.mean(axis=axes), x.var(axis=axes)
    result.options = {"mean": mean, "var": var}
    root = 1.0 / np.sqrt(var + EPSILON)
    y = (x - mean) * root

    def back(g: Array) -> Sequence[Array]:
        d = g * gamma
        return (d - d.mean(axis=axes) - y * (d * y).mean(axis=axes)) * root, (g * y).sum(axis=axes), g.sum(axis=axes)

    return y * gamma + beta, back


def _softmax(a: list[Array], o: Any, _: Value) -> tuple[Array, Backward]:
    e = np.exp(a[0] - a[0].max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return y, lambda g: (y * (g - (g * y).sum(axis=-1, keepdims=True)),)


def _mean(a: list[Array], o: Any, _: Value) -> tuple[Array, Backward]:
    x, axes = a[0], tuple(int(i) for i in a[1])
    shape = tuple(1 if i in axes else s for i, s in enumerate(x.shape))
    count = x.size // int(np.prod(shape))
    y = x.mean(axis=axes, keepdims=bool(o.get("keep_dims")))
    return y, lambda g: (np.broadcast_to(g.reshape(shape) / count, x.shape), None)


def _matmul(a: list[Array], o: Any, _: Value) -> tuple[Array, Backward]:
    x, y = a
    if o["adjoint_rhs"]:
        return x @ y.swapaxes(-1, -2), lambda g: (g @ y, g.swapaxes(-1, -2) @ x)
    return x @ y, lambda g: (g @ y.swapaxes(-1, -2), x.swapaxes(-1, -2) @ g)


def _reshape(a: list[Array], o: Any, _: Value) -> tuple[Array, Backward]:
    x = a[0]
    return x.reshape(len(x), *o["new_shape"][1:]), lambda g: (g.reshape(x.shape), None)


def _transpose(a: list[Array], o: Any, _: Value) -> tuple[Array, Backward]:
    return a[0].transpose(a[1]), lambda g: (g.transpose(np.argsort(a[1])), None)


def _join(a: list[Array], o: Any, _: Value) -> tuple[Array, Backward]:
    places = np.cumsum([x.shape[o["axis"]] for x in a])[:-1]
    return np.concatenate(a, axis=o["axis"]), lambda g: np.split(g, places, axis=o["axis"])


def _slice(a: list[Array], o: Any, _: Value) -> tuple[Array, Backward]:
    x, begin, size = a
    places = (slice(None), *(slice(int(b), int(b + s)) for b, s in zip(begin[1:], size[1:], strict=True)))

    def back(g: Array) -> Sequence[Array | None]:
        full = np.zeros_like(x)
        full[places] = g
        return full, None, None

    return x[places], back


def _gather(a: list[Array], o: Any, _: Value) -> tuple[Array, Backward]:
    table, places = a

    def back(g: Array) -> Sequence[Array | None]:
        full = np.zeros_like(table)
        np.add.at(full, places, g)
        return full, None

    return table[places], back


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


_GELU = 0.7978845608028654


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(_GELU * (x + 0.044715 * x**3)))


def _gelu_slope(x: Array, _: Array) -> Array:
    t = np.tanh(_GELU * (x + 0.044715 * x**3))
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * _GELU * (1.0 + 3 * 0.044715 * x * x)


OPERATORS: dict[str, Any] = {
    "ADD": _binary(lambda x, y: x + y, lambda g, x, y: g, lambda g, x, y: g),
    "SUB": _binary(lambda x, y: x - y, lambda g, x, y: g, lambda g, x, y: -g),
    "MUL": _binary(lambda x, y: x * y, lambda g, x, y: g * y, lambda g, x, y: g * x),
    "RELU": _unary(lambda x: np.maximum(x, 0.0), lambda x, y: x > 0.0),
    "RELU6": _unary(lambda x: np.clip(x, 0.0, 6.0), lambda x, y: (x > 0.0) & (x < 6.0)),
    "LOGISTIC": _unary(_sigmoid, lambda x, y: y * (1.0 - y)),
    "TANH": _unary(np.tanh, lambda x, y: 1.0 - y * y),
    "RSQRT": _unary(lambda x: x**-0.5, lambda x, y: -0.5 * y / x),
    "GELU": _unary(_gelu, _gelu_slope),
    "HARD_SWISH": _unary(
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
        lambda x, y: np.where(x < -3, 0.0, np.where(x > 3, 1.0, (2 * x + 3) / 6)),
    ),
    "FULLY_CONNECTED": _dense,
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "NORMALIZE": _normalize,
    "SOFTMAX": _softmax,
    "MEAN": _mean,
    "BATCH_MATMUL": _matmul,
    "RESHAPE": _reshape,
    "TRANSPOSE": _transpose,
    "CONCATENATION": _join,
    "SLICE": _slice,
    "GATHER": _gather,
}

Network = Callable[..., "Value | Sequence[Value]"]
Loss = Callable[[Sequence[Array], Any], Sequence[Array]]


def _results(made: Any) -> list[Value]:
    return list(made) if isinstance(made, (list, tuple)) else [made]


def train(
    network: Network,
    inputs: Sequence[Array],
    answers: Sequence[Array],
    loss: Loss,
    *,
    seed: int = 1,
    steps: int = 300,
    batch: int = 32,
    rate: float = 3e-3,
) -> Net:
    """Adam; ``loss`` gives the gradients of results, given these and the answers of the batch."""
    net, random = Net(seed), np.random.default_rng(seed)
    moments: dict[str, tuple[Array, Array]] = {}
    for step in range(steps):
        chosen = random.permutation(len(inputs[0]))[:batch]
        net.used = {}
        results = _results(network(net, *(Value(a[chosen]) for a in inputs)))
        values = order_of(results)
        for result, grad in zip(results, loss([r.array for r in results], [a[chosen] for a in answers]), strict=True):
            result.grad = grad
        for value in reversed(values):
            if value.grad is None or value.backward is None:
                continue
            for operand, grad in zip(value.operands, value.backward(value.grad), strict=False):
                if grad is not None:
                    operand.grad = grad if operand.grad is None else operand.grad + grad
        now = rate * min(1.0, 2.0 * (1.0 - step / steps))
        for name, leaf in net.used.items():
            if leaf.grad is None:
                continue
            m, v = moments.get(name, (np.zeros_like(leaf.array), np.zeros_like(leaf.array)))
            m, v = 0.9 * m + 0.1 * leaf.grad, 0.99 * v + 0.01 * np.square(leaf.grad)
            moments[name] = m, v
            by = now / (1 - 0.9 ** (step + 1)) / (np.sqrt(v / (1 - 0.99 ** (step + 1))) + 1e-8)
            net.parameters[name] = net.parameters[name] - by * m
    net.is_training = False
    return net


def classes(results: Sequence[Array], answers: Sequence[Array]) -> list[Array]:
    """Gradients of the cross entropy of logits [..., classes]."""
    y, t = results[0], answers[0]
    e = np.exp(y - y.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return [(p - np.eye(y.shape[-1])[t]) / t.size]


def squares(results: Sequence[Array], answers: Sequence[Array]) -> list[Array]:
    """Gradients of the mean square errors."""
    return [2.0 * (y - t.reshape(y.shape)) / y.size for y, t in zip(results, answers, strict=True)]


def write(net: Net, network: Network, inputs: Sequence[Array]) -> Model:
    """The trained network as a model for one sample."""
    net.used = {}
    sources = [Value(a[:1]) for a in inputs]
    results = _results(network(net, *sources))
    model = Model(subgraphs=[SubGraph("main")])
    graph, places = model.subgraphs[0], {}
    names = {id(value): name for name, value in net.used.items()}
    names |= {id(value): f"x{i}" for i, value in enumerate(sources)}
    for value in order_of(results):
        dtype, buffer = "float32" if value.array.dtype.kind == "f" else "int32", 0
        name = names.get(id(value), f"{value.kind.lower() or 'constant'}{len(graph.tensors)}")
        if not value.kind and value not in sources:
            buffer = len(model.buffers)
            model.buffers.append(memoryview(np.ascontiguousarray(value.array, dtype).tobytes()))
        graph.tensors.append(Tensor(name, dtype, value.shape, None, buffer, None))
        places[id(value)] = len(graph.tensors) - 1
        if value.kind:
            table = ops.get(value.kind).options
            extra = (
                {}
                if table is None
                else {"options_type": table, "options": default_options(table) | dict(value.options)}
            )
            operands = tuple(places[id(o)] for o in value.operands)
            graph.operators.append(Operator(value.kind, inputs=operands, outputs=(places[id(value)],), **extra))
    graph.inputs, graph.outputs = tuple(places[id(v)] for v in sources), tuple(places[id(r)] for r in results)
    model.signatures.append(
        Signature(
            "serving_default",
            0,
            {f"x{i}": p for i, p in enumerate(graph.inputs)},
            {f"y{i}": p for i, p in enumerate(graph.outputs)},
        )
    )
    return model
