"""Cost of a token of a whole language model with random weights, in int4, whose caches are states of the NPU.

    python benchmarks/decoder.py [--width 288] [--hidden 768] [--vocabulary 32000] [--context 256] [--layers 6]
                                 [--heads 6] [--memory flash sram] [--tokens 8] [--eager]

A step reads a token, its position, a mask and the row of the caches that it replaces. The status is 1 if a token or a
state differs from the host's.

``--eager`` compares native code of the model in float, int8 and int4 with the float function in PyTorch, eagerly and on
one thread: CPU time of a step, in alternation, the median of nine rounds. The status is 1 if native code takes more
than 0.3 of PyTorch's time, or if answers differ: in float from PyTorch's, in integers from the host's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import odc_mlir
from odc_mlir.runtime import Session

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))
from helpers.models import ModelBuilder

MOST_OF_EAGER = 0.3  # of PyTorch's CPU time
HIDDEN = -1e4  # of the mask, where a query may not look
Array = np.ndarray[Any, Any]


class Decoder:
    """One step of a model of the Llama kind; ``file`` is the float model."""

    def __init__(self, size: argparse.Namespace) -> None:
        self.size, self.each = size, size.width // size.heads
        self.builder, self.random, self.pairs = ModelBuilder(), np.random.default_rng(0), dict[str, str]()
        self.file = self._file()

    def inputs(self, token: int, position: int) -> list[Array]:
        """Return the inputs of a step without the caches, in real numbers."""
        mask = np.where(np.arange(self.size.context) <= position, 0.0, HIDDEN).astype(np.float32)
        row = [0, 0, position, 0]
        return [np.array([[token]], np.int32), np.array([position], np.int32), mask[None, None, None], np.int32(row)]

    def sample(self, position: int) -> list[Array]:
        """Return inputs with random caches, for calibration."""
        size, caches = self.size, []
        for _ in self.pairs:
            caches.append(self.random.normal(size=(1, size.heads, size.context, self.each)).astype(np.float32))
            caches[-1][:, :, position:] = 0
        return [*self.inputs(int(self.random.integers(size.vocabulary)), position), *caches]

    def _file(self) -> bytes:
        size, made, tensor = self.size, self.builder.made, self.builder.tensor
        token, position = tensor("token", (1, 1), "int32"), tensor("position", (1,), "int32")
        self._mask, self._row = tensor("mask", (1, 1, 1, size.context)), tensor("row", (4,), "int32")
        shape = (1, size.heads, size.context, self.each)
        self._caches = [tensor(f"cache{index}", shape) for index in range(2 * size.layers)]
        angles = np.arange(size.context)[:, None] * 10000.0 ** (-np.arange(0, self.each, 2) / self.each)
        self._turns = []
        for name, values in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            table = self.builder.constant(f"{name}/table", np.concatenate([values] * 2, 1))
            row = made(name, (1, self.each), "GATHER", table, position)
            self._turns.append(self._reshaped(f"{name}/row", row, (1, 1, 1, self.each)))
        x = made("x", (1, 1, size.width), "GATHER", self._weights("embedding", size.vocabulary, size.width), token)
        kept: list[int] = []
        for layer in range(size.layers):
            x = self._layer(f"layer{layer}", x, self._caches[2 * layer :][:2], kept)
        logits = self._dense("logits", self._norm("norm", x), size.width, size.vocabulary)
        return self.builder.file([token, position, self._mask, self._row, *self._caches], [logits, *kept])

    def _layer(self, name: str, x: int, caches: list[int], kept: list[int]) -> int:
        size, made, joint = self.size, self.builder.made, (1, 1, self.size.width)
        row, scores = (1, size.heads, 1, self.each), (1, size.heads, 1, size.context)
        normal = self._norm(f"{name}/norm1", x)
        heads = {}
        for part in "qkv":
            dense = self._dense(f"{name}/{part}", normal, size.width, size.width)
            heads[part] = self._reshaped(f"{name}/{part}/heads", dense, row)
        for part in "qk":
            heads[part] = self._turned(f"{name}/{part}", heads[part])
        whole = []
        for part, cache in zip("kv", caches, strict=True):
            self.pairs[f"{name}/{part}/all"] = self.builder.subgraph.tensors[cache].name
            shape = (1, size.heads, size.context, self.each)
            update = (cache, heads[part], self._row)
            whole.append(made(f"{name}/{part}/all", shape, "DYNAMIC_UPDATE_SLICE", *update))
        kept += whole
        found = made(f"{name}/scores", scores, "BATCH_MATMUL", heads["q"], whole[0], adjoint_rhs=True)
        scale = self.builder.constant(f"{name}/scale", np.float32(self.each**-0.5))
        found = made(f"{name}/masked", scores, "ADD", made(f"{name}/scaled", scores, "MUL", found, scale), self._mask)
        found = made(
            f"{name}/mixed", row, "BATCH_MATMUL", made(f"{name}/p", scores, "SOFTMAX", found, beta=1.0), whole[1]
        )
        found = self._dense(f"{name}/out", self._reshaped(f"{name}/joined", found, joint), size.width, size.width)
        x = made(f"{name}/x", joint, "ADD", x, found)
        normal, wide = self._norm(f"{name}/norm2", x), (1, 1, size.hidden)
        gate = self._dense(f"{name}/gate", normal, size.width, size.hidden)
        silu = made(f"{name}/silu", wide, "MUL", gate, made(f"{name}/sigmoid", wide, "LOGISTIC", gate))
        up = self._dense(f"{name}/up", normal, size.width, size.hidden)
        down = self._dense(f"{name}/down", made(f"{name}/both", wide, "MUL", silu, up), size.hidden, size.width)
        return made(f"{name}/y", joint, "ADD", x, down)

    def _turned(self, name: str, x: int) -> int:
        """Rotate the halves of each head by the position."""
        made, half = self.builder.made, (1, self.size.heads, 1, self.each // 2)
        row, parts = (1, self.size.heads, 1, self.each), []
        for index in range(2):
            first = self.builder.constant(f"{name}/first{index}", [0, 0, 0, index * half[3]], "int32")
            sizes = self.builder.constant(f"{name}/size{index}", half, "int32")
            parts.append(made(f"{name}/half{index}", half, "SLICE", x, first, sizes))
        other = made(
            f"{name}/other", row, "CONCATENATION", made(f"{name}/neg", half, "NEG", parts[1]), parts[0], axis=3
        )
        pairs = zip((x, other), self._turns, strict=True)
        terms = [made(f"{name}/term{turn}", row, "MUL", value, turn) for value, turn in pairs]
        return made(f"{name}/turned", row, "ADD", *terms)

    def _norm(self, name: str, x: int) -> int:
        ones = self.builder.constant(f"{name}/gamma", np.ones(self.size.width))
        return self.builder.made(name, (1, 1, self.size.width), "RMS_NORM", x, ones, epsilon=1e-5)

    def _weights(self, name: str, rows: int, columns: int) -> int:
        return self.builder.constant(f"{name}/w", self.random.normal(size=(rows, columns)) / np.sqrt(columns))

    def _dense(self, name: str, x: int, inputs: int, outputs: int) -> int:
        operands = (x, self._weights(name, outputs, inputs), -1)
        return self.builder.made(name, (1, 1, outputs), "FULLY_CONNECTED", *operands, keep_num_dims=True)

    def _reshaped(self, name: str, x: int, shape: tuple[int, ...]) -> int:
        return self.builder.made(name, shape, "RESHAPE", x, self.builder.constant(f"{name}/shape", shape, "int32"))


def differing(package: odc_mlir.Package, decoder: Decoder, tokens: int) -> int:
    """Return the number of steps, states included, in which the NPU differs from the host."""
    found, token = 0, 1
    with Session(package, "host") as host, Session(package, strict=True) as npu:
        for position in range(tokens):
            given = decoder.inputs(token, position % decoder.size.context)
            wanted = host.infer(given)[0]
            found += not np.array_equal(wanted, npu.infer(given)[0])
            token = int(np.argmax(wanted))
        states = npu.get_state()
        return found + sum(not np.array_equal(value, states[name]) for name, value in host.get_state().items())


def eager(decoder: Decoder, torch: Any) -> Callable[..., list[Any]]:
    """Return the step in PyTorch, on tensors with the order of the model's inputs."""
    size, functional = decoder.size, torch.nn.functional
    weights = {
        each.name: torch.frombuffer(bytearray(decoder.builder.model.buffers[each.buffer]), dtype=torch.float32).reshape(
            each.shape
        )
        for each in decoder.builder.subgraph.tensors
        if each.buffer and each.dtype == "float32"
    }

    def dense(name: str, x: Any) -> Any:
        return functional.linear(x, weights[f"{name}/w"])

    def norm(name: str, x: Any) -> Any:
        return functional.rms_norm(x, (size.width,), weights[f"{name}/gamma"], 1e-5)

    def step(token: Any, position: Any, mask: Any, row: Any, *caches: Any) -> list[Any]:
        x, kept = functional.embedding(token, weights["embedding/w"]), list(caches)
        cos, sin = (weights[f"{name}/table"][position][:, None] for name in ("cos", "sin"))
        for layer in range(size.layers):
            name = f"layer{layer}"
            normal = norm(f"{name}/norm1", x)
            q, k, v = (dense(f"{name}/{part}", normal).view(1, size.heads, 1, -1) for part in "qkv")
            q, k = (part * cos + torch.cat([-part.chunk(2, -1)[1], part.chunk(2, -1)[0]], -1) * sin for part in (q, k))
            for at, new in ((2 * layer, k), (2 * layer + 1, v)):
                kept[at] = kept[at].index_copy(2, position, new)
            scores = torch.matmul(q, kept[2 * layer].transpose(2, 3)) * decoder.each**-0.5 + mask
            mixed = torch.matmul(torch.softmax(scores, -1), kept[2 * layer + 1])
            x = x + dense(f"{name}/out", mixed.reshape(1, 1, -1))
            normal = norm(f"{name}/norm2", x)
            inner = functional.silu(dense(f"{name}/gate", normal)) * dense(f"{name}/up", normal)
            x = x + dense(f"{name}/down", inner)
        return [dense("logits", norm("norm", x)), *kept]

    return step


def quantised(decoder: Decoder, scheme: str) -> bytes:
    """Return the model in integers, with caches in 8 bits."""
    samples = [decoder.sample(decoder.size.context * part // 8) for part in (1, 3, 5, 7)]
    coded = dict.fromkeys(decoder.pairs.values(), "quantized"), dict.fromkeys(decoder.pairs, "quantized")
    options: dict[str, Any] = {"scheme": scheme, "calibration": samples, "help": False, "states": decoder.pairs}
    return odc_mlir.quantize(decoder.file, **options, input_types=coded[0], output_types=coded[1]).to_circle()


def compared(decoder: Decoder, scheme: str | None, rounds: int = 9, steps: int = 5) -> float:
    """Print the times of native code and of PyTorch; return their ratio, infinite for different answers."""
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    file = decoder.file if scheme is None else quantised(decoder, scheme)
    start, step = time.process_time(), eager(decoder, torch)
    package = odc_mlir.compile(file, target="cpu", states=None if scheme is None else decoder.pairs)
    seconds = time.process_time() - start
    given = decoder.sample(decoder.size.context // 2)
    tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in given]
    tensors[0], tensors[1] = tensors[0].long(), tensors[1].long()
    wanted = step(*tensors)
    given = given if scheme is None else given[:4]  # the session keeps the caches
    times: list[list[float]] = []
    with Session(package, strict=True) as session:
        found = session.infer(given)
        for _ in range(rounds):
            times.append([])
            for run in (lambda: session.infer(given), lambda: step(*tensors)):
                before = time.process_time()
                for _ in range(steps):
                    run()
                times[-1].append((time.process_time() - before) / steps)
    if scheme is None:
        pairs = zip(found, wanted, strict=True)
        error = max(float(np.abs(a - b.numpy()).max() / max(1e-3, b.abs().max())) for a, b in pairs)
    else:
        error = differing(package, decoder, decoder.size.tokens)
    native, reference = np.median(times, 0)
    ratio = float(np.median([a / b for a, b in times]))
    print(
        f"{scheme or 'float'}: native {package.report['segment_count']} segments, "
        f"{package.report['host_op_count']} operators on the host, "
        f"{1e6 * native:,.0f} us; PyTorch {1e6 * reference:,.0f} us; ratio {ratio:.2f}; "
        f"{'steps that differ' if scheme else 'largest error'} {error:.1g}, compiled in {seconds:.1f} s CPU",
        flush=True,
    )
    return ratio if error < 1e-3 else np.inf


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"width": 288, "hidden": 768, "vocabulary": 32_000, "context": 256, "layers": 6, "heads": 6, "tokens": 8}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--memory", nargs="+", choices=("flash", "sram"), default=["flash"])
    parser.add_argument("--eager", action="store_true")
    arguments = parser.parse_args()
    decoder = Decoder(arguments)
    if arguments.eager:
        return int(max(compared(decoder, scheme) for scheme in (None, "int8", "int8x4")) > MOST_OF_EAGER)
    model = quantised(decoder, "int8x4")
    wrong = 0
    for memory in arguments.memory:
        start = time.process_time()
        package = odc_mlir.compile(model, target="npu-256", memory=memory, states=decoder.pairs)
        seconds, report = time.process_time() - start, package.report
        wrong += (found := differing(package, decoder, arguments.tokens))
        print(
            f"{memory:5s} {len(model):,} bytes, {report['segment_count']} segment, {report['cycles_total']:,} cycles, "
            f"{report['cycles_total'] / report['model_floor_cycles']:.2f} of the floor, "
            f"{1000 / report['latency_ms']:.1f} tokens/s, compiled in {seconds:.1f} s CPU, {found} differences",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
