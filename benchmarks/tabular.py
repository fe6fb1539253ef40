"""Quantise small networks of raw tables, with the normalisation inside, and compare with another quantiser.

    pip install scikit-learn ai-edge-quantizer        # the second for the comparison only
    python benchmarks/tabular.py [--schemes int8,int16x8,int8_wo] [--plain] [--save DIR] [MODEL ...]

Columns of such tables differ in size by up to four orders of magnitude, so that codes of the raw input say nothing of
the small ones. Networks of two hidden layers are trained here with a fixed seed on scikit-learn's wine, breast cancer
and diabetes data, and on made ones: columns with two modes (``modes``), categories as zeros and ones beside numbers and
counts (``mixed``), several inputs of different units (``inputs``), several answers of different units in one output
(``targets``). They take the raw columns, which are normalised by SUB and MUL, by SUB and DIV, or within the first layer
(``folded``); answers get their units in the same way. Half of the rows train, a quarter calibrate, a quarter, which no
quantiser sees, are measured: SQNR against the float model, and in brackets that of the worst column about its mean.
The other quantiser (ai-edge-quantizer, see ``peer.py``) is run in every way that it has; its best counts. Its models
are run by LiteRT's reference kernels, ours by our host, and by these as well where they are there. Exits with 1 where
ours is worse.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import odc_mlir
from odc_mlir import ops
from odc_mlir.formats.circle.model import Model, Operator, Signature, SubGraph, Tensor
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.ops.spec import Array
from peer import by_litert, figures, sqnr_db

KNOWN = ("wine", "breast_cancer", "diabetes")
MADE = ("modes", "mixed", "inputs", "targets")
FORMS = ("multiplied", "divided", "folded")
SCHEMES = ("int8", "int16x8", "int8_wo")
HIDDEN = (32, 16)
SEED = 1
ROWS = 800  # of tables that are made
UNITS, OFFSETS = (0.01, 1.0, 1000.0), (0.2, -3.0, 500.0)  # of answers
INPUTS = {"inputs": (4, 3, 5)}  # columns of each input where there are several


class Builder:
    """Tensors and operators of a model with one subgraph."""

    def __init__(self) -> None:
        self.model = Model(subgraphs=[SubGraph("main")])
        self.graph = self.model.subgraphs[0]

    def tensor(self, name: str, shape: tuple[int, ...], data: Array | None = None) -> int:
        """The index of a new tensor, a constant with ``data``."""
        buffer = 0
        if data is not None:
            buffer = len(self.model.buffers)
            self.model.buffers.append(memoryview(np.ascontiguousarray(data, np.float32).tobytes()))
        self.graph.tensors.append(Tensor(name, "float32", shape, None, buffer, None))
        return len(self.graph.tensors) - 1

    def add(self, kind: str, inputs: Sequence[int], name: str, shape: tuple[int, ...], **options: Any) -> int:
        """The index of the result of a new operator."""
        result = self.tensor(name, shape)
        table = ops.get(kind).options
        fields = {} if table is None else {"options_type": table, "options": default_options(table) | options}
        self.graph.operators.append(Operator(kind, inputs=tuple(inputs), outputs=(result,), **fields))
        return result


def network(
    mean: Array,
    deviation: Array,
    layers: Sequence[tuple[Array, Array]],
    form: str,
    last: str | None,
    *,
    widths: Sequence[int] = (),
    answers: tuple[Array, Array] | None = None,
) -> Model:
    """The network of raw columns; ``layers`` are (weights [out, in], bias), ``last`` the operator after them.

    ``widths``: columns of each input where there are several; ``answers``: units and offsets of the results.
    """
    builder, width = Builder(), len(mean)
    inputs = [builder.tensor(f"x{i}", (1, size)) for i, size in enumerate(widths)] or [builder.tensor("x", (1, width))]
    value = inputs[0] if len(inputs) == 1 else builder.add("CONCATENATION", inputs, "columns", (1, width), axis=1)
    if form == "folded":
        weights, bias = layers[0]
        layers = [(weights / deviation, bias - (weights / deviation) @ mean), *layers[1:]]
    else:
        value = builder.add("SUB", [value, builder.tensor("mean", (width,), mean)], "centred", (1, width))
        kind, by = ("MUL", 1.0 / deviation) if form == "multiplied" else ("DIV", deviation)
        value = builder.add(kind, [value, builder.tensor("by", (width,), by)], "normalised", (1, width))
    if answers is not None and form == "folded":
        units, offsets = answers
        weights, bias = layers[-1]
        layers = [*layers[:-1], (weights * units[:, None], bias * units + offsets)]
    for number, (weights, bias) in enumerate(layers):
        operands = [
            value,
            builder.tensor(f"layer{number}/weights", weights.shape, weights),
            builder.tensor(f"layer{number}/bias", bias.shape, bias),
        ]
        activation = "relu" if number + 1 < len(layers) else "none"
        value = builder.add(
            "FULLY_CONNECTED", operands, f"layer{number}", (1, len(bias)), fused_activation_function=activation
        )
    shape = (1, len(layers[-1][1]))
    if answers is not None and form != "folded":
        units, offsets = (builder.tensor(name, shape, a) for name, a in zip(("units", "offsets"), answers, strict=True))
        value = builder.add("MUL", [value, units], "scaled", shape)
        value = builder.add("ADD", [value, offsets], "answers", shape)
    if last is not None:
        more = {"beta": 1.0} if last == "SOFTMAX" else {}
        value = builder.add(last, [value], "y", shape, **more)
    builder.graph.inputs, builder.graph.outputs = tuple(inputs), (value,)
    names = ["x"] if len(inputs) == 1 else [f"x{i}" for i in range(len(inputs))]
    builder.model.signatures.append(
        Signature("serving_default", 0, dict(zip(names, inputs, strict=True)), {"y": value})
    )
    return builder.model


def table_of(name: str) -> tuple[Array, Array]:
    """Raw columns [rows, columns] and answers: classes or numbers [rows], or normalised numbers [rows, answers]."""
    random = np.random.default_rng(SEED)
    if name in KNOWN:
        from sklearn import datasets

        options = {"scaled": False} if name == "diabetes" else {}
        data, answers = getattr(datasets, f"load_{name}")(return_X_y=True, **options)
        order = random.permutation(len(data))
        return data[order].astype(np.float32), answers[order]
    if name == "modes":
        sizes = np.logspace(-2, 3, 8)
        data = (random.standard_normal((ROWS, 8)) + np.where(random.random((ROWS, 8)) < 0.5, 0.0, 30.0)) * sizes
    elif name == "mixed":
        kinds = [np.eye(4)[random.choice(4, ROWS, p=(0.55, 0.3, 0.1, 0.05))] for _ in range(3)]
        numbers = np.exp(random.standard_normal((ROWS, 4)) / 2) * np.array([0.01, 1.0, 100.0, 10000.0])
        counts = [random.poisson(3, ROWS), random.integers(1950, 2021, ROWS), random.random(ROWS) < 0.05]
        data = np.concatenate([*kinds, numbers, np.stack(counts, axis=1)], axis=1)
    else:
        sizes = np.repeat((1e-3, 1.0, 1e3), INPUTS["inputs"])
        data = (random.standard_normal((ROWS, 12)) + 2.0) * sizes
    data = data.astype(np.float32)
    hidden = np.tanh((data - data.mean(axis=0)) / data.std(axis=0) @ random.standard_normal((data.shape[1], 6)) / 2)
    answers = hidden @ random.standard_normal((6, len(UNITS) if name == "targets" else 1))
    return data, answers / answers.std(axis=0) if name == "targets" else answers[:, 0]


def trained(table: str) -> tuple[dict[str, Model], list[list[Array]], list[list[Array]]]:
    """The networks of a table by form, its samples for calibration and those for measuring."""
    from sklearn import neural_network

    data, answers = table_of(table)
    half, most = len(data) // 2, 3 * len(data) // 4
    mean, deviation = data[:half].mean(axis=0, dtype=np.float64), data[:half].std(axis=0, dtype=np.float64)
    kind = neural_network.MLPClassifier if answers.dtype.kind == "i" else neural_network.MLPRegressor
    learner = kind(hidden_layer_sizes=HIDDEN, random_state=SEED, max_iter=400, solver="adam")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that more steps might help
        learner.fit((data[:half] - mean) / deviation, answers[:half])
    layers = [(w.T, b) for w, b in zip(learner.coefs_, learner.intercepts_, strict=True)]
    last = {"softmax": "SOFTMAX", "logistic": "LOGISTIC"}.get(learner.out_activation_)
    widths = INPUTS.get(table, ())
    units = (np.array(UNITS), np.array(OFFSETS)) if table == "targets" else None
    models = {form: network(mean, deviation, layers, form, last, widths=widths, answers=units) for form in FORMS}
    places = np.cumsum(widths)[:-1] if widths else []
    samples = [np.split(row[None], places, axis=1) for row in data[half:]]
    return models, samples[: most - half], samples[most - half :]


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="such as wine/divided")
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--plain", action="store_true", help="without help")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write the float models and their data")
    a = parser.parse_args()
    gains = []
    print(
        f"{'model':<24}{'scheme':<9}{'ours':>14}{'.tflite':>8}{'others':>15}{'gain':>7}  others' ways, layers of ours"
    )
    for table in (*KNOWN, *MADE):
        if a.models and not any(f"{table}/{form}" in a.models for form in FORMS):
            continue
        models, calibration, unseen = trained(table)
        for form, model in models.items():
            name = f"{table}/{form}"
            if a.models and name not in a.models:
                continue
            if a.save is not None:
                _save(a.save, name.replace("/", "_"), model, calibration, unseen)
            for scheme in a.schemes.split(","):
                gains.append(_measure(name, scheme, model, calibration, unseen, a))
    known = [gain for gain in gains if gain is not None]
    if known:
        print(f"gain over the others' best: least {min(known):+.1f} dB, median {np.median(known):+.1f} dB")
    return int(any(gain < 0.0 for gain in known))


def _save(folder: Path, name: str, model: Model, *samples: Sequence[Sequence[Array]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.circle").write_bytes(write_model(model))
    for part, rows in zip(("calibration", "evaluation"), samples, strict=True):
        inputs = {f"in_{i}": np.concatenate(arrays) for i, arrays in enumerate(zip(*rows, strict=True))}
        np.savez(folder / f"{name}.{part}.npz", **inputs)


def _measure(
    name: str,
    scheme: str,
    model: Model,
    calibration: Sequence[Sequence[Array]],
    unseen: Sequence[Sequence[Array]],
    a: argparse.Namespace,
) -> float | None:
    file = write_model(model)
    expected = [odc_mlir.run(file, sample) for sample in unseen]
    start = time.process_time()
    made = odc_mlir.quantize(file, scheme=scheme, calibration=calibration, help=not a.plain)
    taken = time.process_time() - start
    found = [odc_mlir.run(made.model, sample) for sample in unseen]
    portable = odc_mlir.quantize(file, scheme=scheme, calibration=calibration, help=not a.plain, reader="litert")
    try:
        there = by_litert(write_tflite(read_model(portable.to_circle())), unseen)
    except ImportError:
        there = None
    others = dict(figures(bytes(write_tflite(model)), calibration, unseen, scheme))
    values = {way: _sqnr_db(expected, results) for way, (results, _) in others.items() if results is not None}
    columns = [_columns_db(expected, results) for results, _ in others.values() if results is not None]
    ours, best = _sqnr_db(expected, found), max(values.values(), default=None)
    gain = None if best is None else ours - best
    layers = ", ".join(f"{layer} {kind}" for layer, kind in made.verdict["scheme"].items())
    print(
        f"{name:<24}{scheme:<9}{ours:6.1f} ({_columns_db(expected, found):5.1f})"
        f"{_number(None if there is None else _sqnr_db(expected, there)):>8}"
        f"{_number(best):>7} ({_number(max(columns, default=None)):>5}){_number(gain, '+'):>7}  "
        f"{', '.join(f'{way} {value:.1f}' for way, value in values.items())}; {layers}"
        f"{'' if made.passed else ' FAILED'} {taken:.1f} s",
        flush=True,
    )
    return gain


def _sqnr_db(expected: Sequence[Sequence[Array]], found: Sequence[Sequence[Array]]) -> float:
    """Of the worst output, over all samples."""
    return min(map(sqnr_db, zip(*expected, strict=True), zip(*found, strict=True)))


def _columns_db(expected: Sequence[Sequence[Array]], found: Sequence[Sequence[Array]]) -> float:
    """The variance of the column of the only output that is worst, over its error."""
    a, b = (np.concatenate([results[0] for results in every]).astype(np.float64) for every in (expected, found))
    return float(np.min(10.0 * np.log10(a.var(axis=0) / np.maximum(np.square(a - b).mean(axis=0), 1e-30))))


def _number(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.1f}"


if __name__ == "__main__":
    sys.exit(main())
