"""Small int8 models with state: recurrent cells with declared pairs, and rings of frames in Circle variables."""

from __future__ import annotations

import numpy as np

from helpers.models import ModelBuilder
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.states import NAME, StatePair, encode

REAL, SIGMOID, TANH = (1 / 32, 0), (1 / 256, -128), (1 / 128, 0)


class StatefulNet(ModelBuilder):
    """Layers on int8 codes with random weights."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.pairs: list[StatePair] = []

    def shape(self, tensor: int) -> tuple[int, ...]:
        shape = self.subgraph.tensors[tensor].shape
        assert shape is not None, "every tensor here has a shape"
        return shape

    def quant(self, tensor: int) -> tuple[float, int]:
        found = self.subgraph.tensors[tensor].quantization
        assert found is not None, "every tensor here is quantised"
        return float(found.scale[0]), int(found.zero_point[0])

    def real(self, name: str, *shape: int) -> int:
        return self.tensor(name, shape, "int8", quant=REAL)

    def weights(self, name: str, *shape: int) -> tuple[int, int]:
        """Weights, and a bias for inputs at the scale of ``REAL``."""
        codes = self.rng.integers(-127, 128, shape).astype(np.int8)
        scale = 2.0 / (127 * float(np.sqrt(np.prod(shape[1:]))))
        bias = self.rng.integers(-300, 300, shape[0]).astype(np.int32)
        return (
            self.tensor(f"{name}/weights", shape, "int8", quant=(scale, 0), data=codes),
            self.tensor(f"{name}/bias", (shape[0],), "int32", quant=(scale * REAL[0], 0), data=bias),
        )

    def apply(self, kind: str, name: str, inputs: list[int], shape: tuple[int, ...], **fields: object) -> int:
        quant = fields.pop("quant", REAL)
        made = self.tensor(name, shape, "int8", quant=quant)  # type: ignore[arg-type]
        self.operator(kind, inputs, [made], options=fields)
        return made

    def dense(self, name: str, x: int, size: int) -> int:
        weights, bias = self.weights(name, size, self.shape(x)[-1])
        return self.apply("FULLY_CONNECTED", name, [x, weights, bias], (1, size))

    def gate(self, name: str, x: int, h: int, size: int, kind: str = "LOGISTIC") -> int:
        """``kind`` of a layer of ``x`` plus a layer of ``h``."""
        total = self.apply(
            "ADD", f"{name}/sum", [self.dense(f"{name}/x", x, size), self.dense(f"{name}/h", h, size)], (1, size)
        )
        return self.apply(kind, name, [total], (1, size), quant=TANH if kind == "TANH" else SIGMOID)

    def binary(self, kind: str, name: str, a: int, b: int) -> int:
        return self.apply(kind, name, [a, b], self.shape(a))

    def gru(self, name: str, x: int, size: int) -> int:
        """Return the new state, which is declared; it equals ``n + z * (h - n)``."""
        h = self.real(f"{name}/h", 1, size)
        self.inputs.append(h)
        update, reset = self.gate(f"{name}/z", x, h, size), self.gate(f"{name}/r", x, h, size)
        new = self.gate(f"{name}/n", x, self.binary("MUL", f"{name}/rh", reset, h), size, "TANH")
        kept = self.binary("MUL", f"{name}/kept", update, self.binary("SUB", f"{name}/diff", h, new))
        return self.keep(self.binary("ADD", f"{name}/h_next", new, kept), h)

    def lstm(self, name: str, x: int, size: int) -> int:
        """Return the new hidden state; it and the cell are declared."""
        h, c = self.real(f"{name}/h", 1, size), self.real(f"{name}/c", 1, size)
        self.inputs += [h, c]
        enter, forget, leave = (self.gate(f"{name}/{gate}", x, h, size) for gate in "ifo")
        new = self.gate(f"{name}/g", x, h, size, "TANH")
        kept, added = self.binary("MUL", f"{name}/fc", forget, c), self.binary("MUL", f"{name}/ig", enter, new)
        cell = self.keep(self.binary("ADD", f"{name}/c_next", kept, added), c)
        bent = self.apply("TANH", f"{name}/bent", [cell], (1, size), quant=TANH)
        return self.keep(self.binary("MUL", f"{name}/h_next", leave, bent), h)

    inputs: list[int]
    outputs: list[int]

    def keep(self, output: int, source: int) -> int:
        """Declare ``output`` as the next value of ``source``; return it."""
        names = [self.subgraph.tensors[index].name for index in (output, source)]
        self.pairs.append(StatePair(*names))
        self.outputs.append(output)
        return output

    def declared(self, outputs: list[int], *, declare: bool = True) -> Model:
        """The finished model; ``declare``: its file names the pairs."""
        model = self.finish(self.inputs, [*outputs, *self.outputs])
        if declare:
            model.metadata.append((NAME, len(model.buffers)))
            model.buffers.append(memoryview(encode(self.pairs)))
        return model


def _begun(features: int, seed: int) -> tuple[StatefulNet, int]:
    net = StatefulNet(seed)
    x = net.real("x", 1, features)
    net.inputs, net.outputs = [x], []
    return net, x


def gru(features: int = 12, size: int = 24, *, declare: bool = True, seed: int = 1) -> Model:
    net, x = _begun(features, seed)
    return net.declared([net.dense("y", net.gru("cell", x, size), 4)], declare=declare)


def lstm(features: int = 12, size: int = 24, *, declare: bool = True, seed: int = 2) -> Model:
    net, x = _begun(features, seed)
    return net.declared([net.dense("y", net.lstm("cell", x, size), 4)], declare=declare)


def dtln(features: int = 33, size: int = 16, *, declare: bool = True, seed: int = 3) -> Model:
    """Two cells whose mask multiplies the input."""
    net, x = _begun(features, seed)
    inner = net.lstm("second", net.lstm("first", x, size), size)
    mask = net.apply("LOGISTIC", "mask", [net.dense("logits", inner, features)], (1, features), quant=SIGMOID)
    return net.declared([net.binary("MUL", "y", x, mask)], declare=declare)


def cache(tokens: int = 16, heads: int = 2, width: int = 8, *, seed: int = 5) -> Model:
    """Queries times keys, of which each run gives one as ``new`` and reads the others as ``keys``."""
    net = StatefulNet(seed)
    x, old = net.real("x", 1, heads, 1, width), net.real("keys", 1, heads, tokens - 1, width)
    new = net.binary("ADD", "new", x, x)
    keys = net.apply("CONCATENATION", "all", [old, new], (1, heads, tokens, width), axis=2)
    y = net.apply("BATCH_MATMUL", "y", [x, keys], (1, heads, 1, tokens), adjoint_rhs=True)
    return net.finish([x, old], [y, new])


def ring(features: int = 8, frames: int = 3, channels: int = 16, *, seed: int = 4) -> Model:
    """Two convolutions over the last frames, which Circle variables hold, as streaming models have them."""
    net = StatefulNet(seed)
    x = net.real("x", 1, 1, 1, features)
    handles: list[tuple[str, tuple[int, ...]]] = []
    net.operator("CALL_ONCE", [], [], options={"init_subgraph_index": 1})
    value = x
    for number in range(2):
        value = _streamed(net, f"stream{number}", value, frames, channels, handles)
    flat = net.apply("RESHAPE", "flat", [value], (1, channels), new_shape=(1, channels))
    model = net.finish([x], [net.dense("y", flat, 3)])
    net.begin("initial")
    for name, shape in handles:
        handle = net.tensor(name, (), "resource")
        net.operator("VAR_HANDLE", [], [handle], options={"container": "", "shared_name": name})
        start = net.tensor(f"{name}/start", shape, "int8", quant=REAL, data=np.full(shape, 5, np.int8))
        net.operator("ASSIGN_VARIABLE", [handle, start], [])
    net.finish([], [])
    return model


def _streamed(
    net: StatefulNet, name: str, x: int, frames: int, channels: int, handles: list[tuple[str, tuple[int, ...]]]
) -> int:
    features = net.shape(x)[-1]
    held, joined = (1, frames - 1, 1, features), (1, frames, 1, features)
    handle = net.tensor(f"{name}/handle", (), "resource")
    handles.append((name, held))
    net.operator("VAR_HANDLE", [], [handle], options={"container": "", "shared_name": name})
    old = net.apply("READ_VARIABLE", f"{name}/old", [handle], held)
    window = net.apply("CONCATENATION", f"{name}/window", [old, x], joined, axis=1)
    ends = [
        net.tensor(f"{name}/{part}", (4,), "int32", data=np.array(numbers, np.int32))
        for part, numbers in (("begin", (0, 1, 0, 0)), ("end", joined), ("strides", (1, 1, 1, 1)))
    ]
    new = net.apply("STRIDED_SLICE", f"{name}/new", [window, *ends], held)
    net.operator("ASSIGN_VARIABLE", [handle, new], [])
    weights, bias = net.weights(f"{name}/conv", channels, frames, 1, features)
    return net.apply(
        "CONV_2D",
        f"{name}/conv",
        [window, weights, bias],
        (1, 1, 1, channels),
        padding="valid",
        stride_w=1,
        stride_h=1,
        fused_activation_function="relu",
    )
