"""Quantise small networks of many kinds, trained on the spot, and compare with another quantiser on unseen samples.

    pip install scikit-learn ai-edge-quantizer        # the second for the comparison only
    python benchmarks/unseen.py [--schemes int8,int16x8,int8_wo] [--draws 1] [--plain] [--save DIR] [NETWORK ...]

Networks that no test has: what holds for the models that a quantiser is made with need not hold for others. They are
trained here by fixed seeds (:mod:`training`), a few seconds each. A draw is 16, 32 or 48 samples to calibrate by and
200 others to measure on, none of which were trained on. The gain is over the best of all ways that the other quantiser
(ai-edge-quantizer, see ``peer.py``) has, as measured on the same 200, with the standard error of the paired difference.
The last columns tell whether our verdict's 95 % interval of the SQNR holds what was measured on the 200. Exits with 1
where ours is worse by more than two standard errors.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import odc_mlir
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.ops.spec import Array
from peer import figures
from training import Loss, Net, Network, Value, classes, squares, train, write

SCHEMES = ("int8", "int16x8", "int8_wo")
COUNTS = (16, 32, 48)  # of calibration samples, in turn
UNSEEN = 200
Made = tuple[Model, list[Array]]  # and its inputs [samples, ...] that it was not trained on


def _finished(
    network: Network,
    inputs: Sequence[Array],
    answers: Sequence[Array],
    loss: Loss,
    steps: int,
    *,
    trained: int = 1000,
    change: Callable[[Net], None] | None = None,
    **options: Any,
) -> Made:
    """Train on the first samples; ``change`` the parameters afterwards."""
    most = [array[:trained] for array in inputs]
    net = train(network, most, [array[:trained] for array in answers], loss, steps=steps, **options)
    if change is not None:
        change(net)
    return write(net, network, most), [array[trained:] for array in inputs]


@cache
def _digits() -> tuple[Array, Array]:
    from sklearn import datasets

    data = datasets.load_digits()
    order = np.random.default_rng(3).permutation(len(data.data))
    return data.images[order][..., np.newaxis] / 16.0, data.target[order]


def _shapes(count: int, size: int, seed: int) -> tuple[Array, Array, Array]:
    """Images of one bright ellipse or rectangle, where it is, and its box (centre and size)."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:size, :size]
    images, masks, boxes = [], [], []
    for _ in range(count):
        ground = random.normal(0, 0.15, (size, size)) + random.uniform(-0.5, 0.5)
        ground = ground + (columns - size / 2) * random.normal(0, 0.03)
        height, width = random.uniform(3, size / 2, 2)
        y, x = random.uniform(height / 2, size - height / 2), random.uniform(width / 2, size - width / 2)
        down, right = np.abs(rows - y) / height * 2, np.abs(columns - x) / width * 2
        inside = (down**2 + right**2 <= 1) if random.random() < 0.5 else (down <= 1) & (right <= 1)
        images.append(ground + inside * random.uniform(0.6, 2))
        masks.append(inside)
        boxes.append((x, y, width, height))
    return np.array(images)[..., np.newaxis], np.array(masks), np.array(boxes)


def separable() -> Made:
    """Depthwise separable convolutions with RELU6 and batch normalisation; classes of digits."""

    def network(net: Net, x: Value) -> Value:
        x = net.conv(x, 12, "stem", activation="relu6", normalized=True)
        for i, (size, stride) in enumerate(((16, 1), (24, 2), (24, 1), (32, 2))):
            x = net.conv(x, 0, f"deep{i}", depthwise=True, stride=stride, activation="relu6", normalized=True)
            x = net.conv(x, size, f"point{i}", (1, 1), activation="relu6", normalized=True)
        logits = net.dense(net.pool(x), 10, "logits")
        return logits if net.is_training else net.op("SOFTMAX", logits, beta=1.0)

    return _finished(network, [_digits()[0]], [_digits()[1]], classes, 250)


def inverted() -> Made:
    """Inverted bottlenecks with HARD_SWISH and squeeze-and-excite; classes of digits."""

    def swish(net: Net, x: Value, size: int, name: str, **options: Any) -> Value:
        return net.op("HARD_SWISH", net.conv(x, size, name, normalized=True, activation="none", **options))

    def network(net: Net, x: Value) -> Value:
        x = swish(net, x, 8, "stem")
        for i, stride in enumerate((1, 2, 1)):
            wide = swish(net, x, 32, f"expand{i}", kernel=(1, 1))
            wide = swish(net, wide, 0, f"deep{i}", depthwise=True, stride=stride)
            gate = net.dense(net.dense(net.pool(wide), 8, f"squeeze{i}", "relu"), 32, f"excite{i}")
            gate = net.op("RELU6", net.op("ADD", gate, net.constant([3.0])))
            gate = net.reshape(net.op("MUL", gate, net.constant([1 / 6])), 1, 1, 32)
            wide = net.op("MUL", wide, gate)
            new = net.conv(wide, 12 if i else 8, f"project{i}", (1, 1), normalized=True, activation="none")
            x = net.op("ADD", x, new) if x.shape == new.shape else new
        return net.dense(net.op("HARD_SWISH", net.dense(net.pool(x), 32, "head")), 10, "logits")

    return _finished(network, [_digits()[0]], [_digits()[1]], classes, 250)


def gru() -> Made:
    """A gated recurrent cell written out over ten steps; kinds of waves."""
    random, count, length = np.random.default_rng(4), 1600, 10
    time_of = np.arange(length)
    rows, kinds = [], random.integers(0, 4, count)
    for kind in kinds:
        speed, phase, size = random.uniform(0.3, 0.6), random.uniform(0, 2 * np.pi), random.uniform(0.5, 2)
        wave = np.sin(speed * time_of + phase + (0.03 * time_of**2 if kind == 2 else 0.0))
        wave = size * {1: np.sign(wave), 3: np.abs(wave) * 2 - 1}.get(int(kind), wave)
        noise = random.normal(0, (0.2, 0.2, 0.3), (length, 3))
        drift = (time_of / length - 0.5) * random.normal()
        rows.append(np.stack([wave, np.roll(wave, 2), drift], axis=1) + noise)

    def network(net: Net, x: Value) -> Value:
        state = None
        for step in range(length):
            now = net.reshape(net.slice(x, 1, step, step + 1), 3)
            if state is None:
                state = net.op(
                    "MUL", net.op("LOGISTIC", net.dense(now, 16, "z0")), net.op("TANH", net.dense(now, 16, "c0"))
                )
                continue
            both = net.op("CONCATENATION", now, state, axis=1)
            update, kept = (net.op("LOGISTIC", net.dense(both, 16, name)) for name in ("z", "r"))
            old = net.op("CONCATENATION", now, net.op("MUL", kept, state), axis=1)
            new = net.op("TANH", net.dense(old, 16, "c"))
            state = net.op("ADD", state, net.op("MUL", update, net.op("SUB", new, state)))
        return net.dense(state, 4, "logits")

    return _finished(network, [np.array(rows)], [kinds], classes, 400, rate=1e-2)


def outliers() -> Made:
    """A transformer's encoder with LayerNorm in which two channels are far larger, as those of large ones have."""
    blocks, width = 3, 24

    def network(net: Net, x: Value) -> Value:
        x = net.dense(x, width, "embed", gain=1.0)
        x = net.op("ADD", x, net.parameter("places", (1, 8, width), 0.1))
        for i in range(blocks):
            x = net.op("ADD", x, net.heads(net.layer_norm(x, f"norm{i}"), f"attention{i}", 3))
            hidden = net.op("GELU", net.dense(net.layer_norm(x, f"middle{i}"), 2 * width, f"up{i}"))
            x = net.op("ADD", x, net.dense(hidden, width, f"down{i}", gain=1.0))
        x = net.op("MEAN", net.layer_norm(x, "last"), net.constant([1], "int32"), keep_dims=False)
        return net.dense(x, 10, "logits")

    def change(net: Net) -> None:
        by = np.ones(width)
        by[[3, 11]] = 30.0, 12.0
        for i in range(blocks):
            for norm, readers in ((f"norm{i}", [f"attention{i}/{part}" for part in "qkv"]), (f"middle{i}", [f"up{i}"])):
                for name in (f"{norm}/gamma", f"{norm}/beta"):
                    net.parameters[name] = net.parameters[name] * by
                for name in readers:
                    net.parameters[f"{name}/w"] = net.parameters[f"{name}/w"] / by

    return _finished(network, [_digits()[0][..., 0]], [_digits()[1]], classes, 300, change=change)


def decoder() -> Made:
    """A causal decoder with RMSNorm and gated layers (SwiGLU) on symbols, each of which the two before it tell."""
    random, symbols, tokens, width = np.random.default_rng(6), 24, 12, 32
    chances = random.dirichlet(np.full(symbols, 0.1), (symbols, symbols))
    rows = np.zeros((2500, tokens + 1), np.int32)
    rows[:, :2] = random.integers(0, symbols, (len(rows), 2))
    for place in range(2, tokens + 1):
        ends = chances[rows[:, place - 2], rows[:, place - 1]].cumsum(axis=1)
        rows[:, place] = np.minimum((random.random((len(rows), 1)) > ends).sum(axis=1), symbols - 1)
    mask = np.where(np.tril(np.ones((tokens, tokens))) > 0, 0.0, -1e9)[np.newaxis, np.newaxis]

    def network(net: Net, x: Value) -> Value:
        y = net.op("GATHER", net.parameter("table", (symbols, width), 0.5), x)
        y = net.op("ADD", y, net.parameter("places", (1, tokens, width), 0.2))
        for i in range(2):
            y = net.op("ADD", y, net.heads(net.layer_norm(y, f"norm{i}", mean=False), f"attention{i}", 4, mask))
            given = net.layer_norm(y, f"middle{i}", mean=False)
            gate, up = (net.dense(given, 2 * width, f"{name}{i}") for name in ("gate", "up"))
            hidden = net.op("MUL", net.op("MUL", gate, net.op("LOGISTIC", gate)), up)
            y = net.op("ADD", y, net.dense(hidden, width, f"down{i}", gain=1.0))
        return net.dense(net.layer_norm(y, "last", mean=False), symbols, "logits")

    return _finished(network, [rows[:, :-1]], [rows[:, 1:]], classes, 500, trained=2000)


def detector() -> Made:
    """Two outputs: a box in pixels and a score."""
    images, _, boxes = _shapes(1600, 16, 10)
    large = (boxes[:, 2] * boxes[:, 3] > 30).astype(float)[:, np.newaxis]

    def network(net: Net, x: Value) -> tuple[Value, Value]:
        for i, (size, stride) in enumerate(((8, 1), (16, 2), (24, 2))):
            x = net.conv(x, size, f"conv{i}", stride=stride, normalized=True)
        hidden = net.dense(net.reshape(x, 384), 32, "hidden", "relu")
        box = net.op("MUL", net.dense(hidden, 4, "box"), net.constant([80.0]))
        score = net.dense(hidden, 1, "score")
        pixels = net.op("ADD", box, net.constant([160.0, 160.0, 80.0, 80.0]))
        return pixels, score if net.is_training else net.op("LOGISTIC", score)

    def loss(results: Sequence[Array], answers: Sequence[Array]) -> list[Array]:
        (box,) = squares(results[:1], answers[:1])
        return [box / 80.0**2, (1 / (1 + np.exp(-results[1])) - answers[1]) / len(answers[1])]

    return _finished(network, [images], [boxes * 20.0, large], loss, 300)


def quantities() -> Made:
    """Four quantities of an image, each in its unit, from 0.01 to hundreds."""
    images, masks, boxes = _shapes(1600, 12, 15)
    area, form = masks.sum(axis=(1, 2)) * 10.0, boxes[:, 2] / boxes[:, 3] * 0.01
    answers = np.stack([boxes[:, 0], boxes[:, 1], area, form], axis=1)
    mean, deviation = answers.mean(axis=0), answers.std(axis=0)

    def network(net: Net, x: Value) -> Value:
        x = net.conv(net.conv(x, 12, "conv0", (5, 5), stride=2), 16, "conv1", stride=2)
        y = net.dense(net.dense(net.reshape(x, 144), 24, "hidden", "relu"), 4, "answers")
        if net.is_training:
            return y
        return net.op("ADD", net.op("MUL", y, net.constant(deviation)), net.constant(mean))

    return _finished(network, [images], [(answers - mean) / deviation], squares, 400)


def recommender() -> Made:
    """Tables of users and things, their product, and three numbers of different size; a probability."""
    random, users, things = np.random.default_rng(13), 60, 80
    taste, kind = random.normal(size=(users, 4)), random.normal(size=(things, 4))
    user = random.integers(0, users, (3000, 1)).astype(np.int32)
    thing = np.minimum(random.exponential(20, (3000, 1)), things - 1).astype(np.int32)
    numbers = random.normal(size=(3000, 3)) * (1.0, 10.0, 0.1)
    likes = (taste[user[:, 0]] * kind[thing[:, 0]]).sum(axis=1) + numbers[:, 0] > 0

    def network(net: Net, user: Value, thing: Value, numbers: Value) -> Value:
        a = net.reshape(net.op("GATHER", net.parameter("users", (users, 8), 0.3), user), 8)
        b = net.reshape(net.op("GATHER", net.parameter("things", (things, 8), 0.3), thing), 8)
        scaled = net.op("MUL", numbers, net.constant([1.0, 0.1, 10.0]))
        y = net.op("CONCATENATION", a, b, net.op("MUL", a, b), scaled, axis=1)
        y = net.dense(net.dense(net.dense(y, 32, "first", "relu"), 16, "second", "relu"), 1, "logit")
        return y if net.is_training else net.op("LOGISTIC", y)

    def loss(results: Sequence[Array], answers: Sequence[Array]) -> list[Array]:
        return [(1 / (1 + np.exp(-results[0])) - answers[0]) / len(answers[0])]

    answers = likes.astype(float)[:, np.newaxis]
    return _finished(network, [user, thing, numbers], [answers], loss, 800, trained=2500, rate=1e-2)


NETWORKS = {
    made.__name__: made for made in (separable, inverted, gru, outliers, decoder, detector, quantities, recommender)
}


def drawn(name: str, draw: int, inputs: Sequence[Array]) -> tuple[list[list[Array]], list[list[Array]]]:
    """Samples to calibrate by, and others to measure on."""
    code = zlib.crc32(name.encode())
    order = np.random.default_rng([code, draw]).permutation(len(inputs[0]))
    count = COUNTS[(code + draw) % len(COUNTS)]
    typed = [array.astype(np.float32) if array.dtype.kind == "f" else array for array in inputs]
    samples = [[array[i : i + 1] for array in typed] for i in order[: count + UNSEEN]]
    return samples[:count], samples[count:]


def _measure(name: str, scheme: str, draw: int, made: Made, plain: bool) -> tuple[float, float] | None:
    """Gain and its standard error in dB; None without the other quantiser."""
    model, inputs = made
    file, (calibration, unseen) = bytes(write_model(model)), drawn(name, draw, inputs)
    expected = [odc_mlir.run(file, sample) for sample in unseen]
    start = time.process_time()
    quantised = odc_mlir.quantize(file, scheme=scheme, calibration=calibration, help=not plain)
    taken = time.process_time() - start
    ours = _noise(expected, [odc_mlir.run(quantised.model, sample) for sample in unseen])
    others = figures(bytes(write_tflite(model)), calibration, unseen, scheme)
    theirs = {way: _noise(expected, found) for way, (found, _) in others if found is not None}
    value = _worst_db(ours)
    low, high = quantised.verdict["intervals"].get("sqnr_db", (-np.inf, np.inf))
    best = max(theirs, key=lambda way: _worst_db(theirs[way]), default="")
    gain = (value - _worst_db(theirs[best]), _error_db(ours, theirs[best])) if best else None
    text = f"{_worst_db(theirs[best]):7.2f} {gain[0]:+7.2f} ± {gain[1]:.2f}" if gain else f"{'-':>7}{'-':>15}"
    print(
        f"{name:<13}{scheme:<9}{len(calibration):>3}{value:8.2f}{text}  {best}  [{low:.1f}, {high:.1f}] "
        f"{'holds' if low <= value <= high else 'FAILS'}{'' if quantised.passed else ' REFUSED'} {taken:.1f} s",
        flush=True,
    )
    return gain


def _noise(expected: Sequence[Sequence[Array]], found: Sequence[Sequence[Array]]) -> Array:
    """Of each output and sample the error's power as a part of the output's mean power, [outputs, samples]."""
    powers = [
        [
            (np.square(a.astype(np.float64)).sum(), np.square(a.astype(np.float64) - b).sum())
            for a, b in zip(*of_sample, strict=True)
        ]
        for of_sample in zip(expected, found, strict=True)
    ]
    signal, noise = np.array(powers).transpose(2, 1, 0)
    return noise / signal.mean(axis=1, keepdims=True)


def _worst_db(noise: Array) -> float:
    return float(-10.0 * np.log10(np.maximum(noise.mean(axis=1), 1e-30)).max())


def _error_db(ours: Array, theirs: Array) -> float:
    """The standard error of the difference of both outputs that are worst."""
    a, b = (noise[noise.mean(axis=1).argmax()] for noise in (ours, theirs))
    parts = (b / max(b.mean(), 1e-30) - a / max(a.mean(), 1e-30)) * 10.0 / np.log(10.0)
    return float(parts.std(ddof=1) / np.sqrt(len(parts)))


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="without help")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write the float models")
    a = parser.parse_args()
    if unknown := set(a.networks) - NETWORKS.keys():
        parser.error(f"no such network: {', '.join(sorted(unknown))}")
    found = []
    print(f"{'network':<13}{'scheme':<9}{'by':>3}{'ours':>8}{'others':>7}{'gain':>15}  their best, interval of ours")
    for name in a.networks or NETWORKS:
        made = NETWORKS[name]()
        if a.save is not None:
            a.save.mkdir(parents=True, exist_ok=True)
            (a.save / f"{name}.circle").write_bytes(write_model(made[0]))
        for scheme in a.schemes.split(","):
            found += [_measure(name, scheme, draw, made, a.plain) for draw in range(a.draws)]
    known = [gain for gain in found if gain is not None]
    if known:
        gains = [gain for gain, _ in known]
        print(f"gain over the others' best: least {min(gains):+.2f} dB, median {np.median(gains):+.2f} dB")
    return int(any(gain < -2.0 * error for gain, error in known))


if __name__ == "__main__":
    sys.exit(main())
