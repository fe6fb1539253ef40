"""Small models that carry state from run to run, and sequences of frames for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.models import ModelBuilder, model_bytes
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

Array = NDArray[Any]


@dataclass(frozen=True)
class Streaming:
    """A float model with one frame of ``features`` and ``states`` (inputs by output) as inputs, the answer first."""

    model: bytes
    features: int
    states: Mapping[str, str]
    shapes: tuple[tuple[int, ...], ...]

    def frames(self, count: int, seed: int) -> list[Array]:
        """Frames [1, features] that change slowly around levels that change now and then, as sensors and sound do."""
        rng = np.random.default_rng(seed)
        level, found = np.zeros(self.features), np.zeros((count, self.features))
        for step in range(count):
            level = rng.uniform(-1.2, 1.2, self.features) if step % 10 == 0 else level
            noise = rng.normal(0, 0.05, self.features)
            found[step] = 0.7 * (found[step - 1] if step else 0.0) + 0.3 * level + noise
        return [frame[None].astype(np.float32) for frame in found]

    def samples(self, count: int, seed: int) -> list[list[Array]]:
        """Samples without states: one sequence."""
        return [[frame] for frame in self.frames(count, seed)]


class Net:
    """Builder of operators on vectors, with random weights."""

    def __init__(self, seed: int) -> None:
        self.builder, self.rng = ModelBuilder(), np.random.default_rng(seed)
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._count = 0

    def tensor(self, name: str, *shape: int, data: Any = None, dtype: str = "float32") -> int:
        """A tensor, a constant with ``data``."""
        array = None if data is None else np.ascontiguousarray(data, dtype)
        index = self.builder.tensor(name, shape, dtype, data=array)
        self._shapes[index] = shape
        return index

    def add(self, operator: str, inputs: list[int], *shape: int, name: str = "", **options: Any) -> int:
        """The result of an operator."""
        self._count += 1
        result = self.tensor(name or f"{operator.lower()}_{self._count}", *shape)
        self.builder.operator(operator, inputs, [result], options=options)
        return result

    def dense(self, x: int, size: int, name: str = "", gain: float = 1.0, bias: float = 0.0) -> int:
        """A layer with weights of the size that keeps what values vary by, times ``gain``."""
        width = self._shapes[x][-1]
        weights = self.rng.normal(0, gain * width**-0.5, (size, width))
        given = [self.tensor(f"w{self._count}", size, width, data=weights)]
        given.append(self.tensor(f"b{self._count}", size, data=self.rng.normal(bias, 0.1, size)))
        return self.add("FULLY_CONNECTED", [x, *given], 1, size, name=name)

    def of(self, operator: str, *inputs: int, name: str = "") -> int:
        """An operator by element."""
        return self.add(operator, list(inputs), *self._shapes[inputs[0]], name=name)

    def gate(self, x: int, state: int, size: int, bias: float = 0.0) -> int:
        """Shares by a frame and a state."""
        return self.of("LOGISTIC", self.of("ADD", self.dense(x, size, bias=bias), self.dense(state, size)))

    def made(self, inputs: list[int], outputs: list[int], features: int) -> Streaming:
        """The model; states are inputs after the first and outputs after the first."""
        names = [self.builder.subgraph.tensors[index].name for index in (*outputs[1:], *inputs[1:])]
        states = dict(zip(names[: len(names) // 2], names[len(names) // 2 :], strict=True))
        shapes = tuple(self._shapes[index] for index in inputs[1:])
        return Streaming(model_bytes(self.builder.finish(inputs, outputs)), features, states, shapes)


def gru(seed: int = 1, features: int = 6, size: int = 12, *, slow: float = 2.0) -> Streaming:
    """A GRU step that keeps most of its state, more with ``slow``, and a layer."""
    net = Net(seed)
    x, h = net.tensor("x", 1, features), net.tensor("h_in", 1, size)
    keep, reset = net.gate(x, h, size, slow), net.gate(x, h, size)
    new = net.of("TANH", net.of("ADD", net.dense(x, size), net.of("MUL", reset, net.dense(h, size))))
    change = net.of("MUL", net.of("SUB", net.tensor("one", 1, size, data=np.ones((1, size))), keep), new)
    state = net.of("ADD", net.of("MUL", keep, h), change, name="h_out")
    return net.made([x, h], [net.dense(state, 4, "y"), state], features)


def _lstm_cell(net: Net, x: int, h: int, c: int, size: int, end: str) -> tuple[int, int]:
    forget, enter, leave = (net.gate(x, h, size, bias) for bias in (1.5, 0.0, 0.0))
    new = net.of("TANH", net.of("ADD", net.dense(x, size), net.dense(h, size)))
    cell = net.of("ADD", net.of("MUL", forget, c), net.of("MUL", enter, new), name=f"c{end}_out")
    return net.of("MUL", leave, net.of("TANH", cell), name=f"h{end}_out"), cell


def lstm(seed: int = 2, features: int = 6, size: int = 10) -> Streaming:
    """An LSTM step with two states, and a layer."""
    net = Net(seed)
    x = net.tensor("x", 1, features)
    h, c = net.tensor("h_in", 1, size), net.tensor("c_in", 1, size)
    new_h, new_c = _lstm_cell(net, x, h, c, size, "")
    return net.made([x, h, c], [net.dense(new_h, 4, "y"), new_h, new_c], features)


def elman(seed: int = 3, features: int = 5, size: int = 12) -> Streaming:
    """A plain recurrent step, whose state is the result of TANH, with the scale that it always has."""
    net = Net(seed)
    x, h = net.tensor("x", 1, features), net.tensor("h_in", 1, size)
    state = net.of("TANH", net.of("ADD", net.dense(x, size), net.dense(h, size, gain=0.8)), name="h_out")
    return net.made([x, h], [net.dense(state, 4, "y"), state], features)


def denoiser(seed: int = 4, features: int = 8, size: int = 10) -> Streaming:
    """Two LSTM steps whose answer is a mask times the frame, as for sound."""
    net = Net(seed)
    x = net.tensor("x", 1, features)
    ends = [(net.tensor(f"h{i}_in", 1, size), net.tensor(f"c{i}_in", 1, size)) for i in (1, 2)]
    h1, c1 = _lstm_cell(net, x, *ends[0], size, "1")
    h2, c2 = _lstm_cell(net, h1, *ends[1], size, "2")
    mask = net.of("LOGISTIC", net.dense(h2, features, gain=3.0))
    inputs = [x, ends[0][0], ends[0][1], ends[1][0], ends[1][1]]
    return net.made(inputs, [net.of("MUL", mask, x, name="y"), h1, c1, h2, c2], features)


def cache(seed: int = 5, features: int = 8, positions: int = 12) -> Streaming:
    """Attention to the last frames, whose keys and values move along by one in each run."""
    net = Net(seed)
    x = net.tensor("x", 1, features)
    pasts = [net.tensor(f"{name}_in", positions, features) for name in ("keys", "values")]
    query = net.dense(x, features, gain=1.5)
    ends = [
        net.tensor(name, 2, data=data, dtype="int32")
        for name, data in (("from", [1, 0]), ("size", [positions - 1, features]))
    ]
    moved = []
    for name, past in zip(("keys", "values"), pasts, strict=True):
        rest = net.add("SLICE", [past, *ends], positions - 1, features)
        moved.append(
            net.add("CONCATENATION", [rest, net.dense(x, features)], positions, features, name=f"{name}_out", axis=0)
        )
    nothing = -1
    scores = net.add("FULLY_CONNECTED", [query, moved[0], nothing], 1, positions)
    shares = net.add("SOFTMAX", [scores], 1, positions, beta=features**-0.5)
    turned = net.add("TRANSPOSE", [moved[1], net.tensor("order", 2, data=[1, 0], dtype="int32")], features, positions)
    mixed = net.add("FULLY_CONNECTED", [shares, turned, nothing], 1, features)
    return net.made([x, *pasts], [net.of("ADD", x, net.dense(mixed, features), name="y"), *moved], features)


def averager(seed: int = 6, features: int = 8) -> Streaming:
    """A moving average of a layer, of which a step changes a twentieth."""
    net = Net(seed)
    x, mean = net.tensor("x", 1, features), net.tensor("mean_in", 1, features)
    parts = [
        net.tensor(f"part{i}", 1, features, data=np.full((1, features), part)) for i, part in enumerate((0.95, 0.05))
    ]
    moved = net.of("MUL", net.of("TANH", net.dense(x, features)), parts[1])
    state = net.of("ADD", net.of("MUL", mean, parts[0]), moved, name="mean_out")
    return net.made([x, mean], [net.dense(state, 4, "y"), state], features)


MODELS: Mapping[str, Callable[..., Streaming]] = {
    "gru": gru,
    "lstm": lstm,
    "elman": elman,
    "denoiser": denoiser,
    "cache": cache,
    "averager": averager,
}


def rolled(model: bytes, streaming: Streaming, frames: list[Array]) -> Array:
    """Return the answers of a model over a sequence, with its own states, from zero."""
    graph = build_graph(read_model(model))
    executor, infos = HostExecutor(graph), graph.input_infos()
    states: list[Array] = [np.zeros(shape, np.float32) for shape in streaming.shapes]
    found = []
    for frame in frames:
        inputs = [to_codes(info, value) for info, value in zip(infos, [frame, *states], strict=True)]
        results = [to_reals(i, np.array(v)) for i, v in zip(graph.output_infos(), executor.run(inputs), strict=True)]
        found.append(results[0])
        states = results[1:]
    return np.stack(found)


def sqnr_db(expected: Array, found: Array) -> float:
    """Return signal over noise."""
    return float(10 * np.log10(np.square(expected).sum() / np.square(expected - found).sum()))
