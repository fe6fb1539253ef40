"""Quantise small networks of raw tables, with the normalisation inside, and compare with another quantiser.

    pip install scikit-learn ai-edge-quantizer        # the second for the comparison only
    python benchmarks/tabular.py [--schemes int8,int16x8,int8_wo] [--plain] [--save DIR] [MODEL ...]

Columns of such tables differ in size by up to four orders of magnitude, so that codes of the raw input say nothing of
the small ones. Networks of two hidden layers are trained here on scikit-learn's wine, breast cancer and diabetes data
with a fixed seed, and take the raw columns: they are normalised by SUB and MUL, by SUB and DIV, or within the first
layer (``folded``). Half of the rows train, a quarter calibrate, a quarter, which no quantiser sees, are measured:
SQNR against the float model. The other quantiser (ai-edge-quantizer) is run with ranges of all samples and with its
moving averages, by every way that it has of choosing scales of weights; its best counts. Its models are run by LiteRT's
reference kernels, ours by our host, and by these as well where they are there. Exits with 1 where ours is worse.
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

TABLES = ("wine", "breast_cancer", "diabetes")
FORMS = ("multiplied", "divided", "folded")
SCHEMES = ("int8", "int16x8", "int8_wo")
HIDDEN = (32, 16)
SEED = 1


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


def network(mean: Array, deviation: Array, layers: Sequence[tuple[Array, Array]], form: str, last: str | None) -> Model:
    """The network of raw columns; ``layers`` are (weights [out, in], bias), ``last`` the operator after them."""
    builder, width = Builder(), len(mean)
    x = value = builder.tensor("x", (1, width))
    if form == "folded":
        weights, bias = layers[0]
        layers = [(weights / deviation, bias - (weights / deviation) @ mean), *layers[1:]]
    else:
        value = builder.add("SUB", [value, builder.tensor("mean", (width,), mean)], "centred", (1, width))
        kind, by = ("MUL", 1.0 / deviation) if form == "multiplied" else ("DIV", deviation)
        value = builder.add(kind, [value, builder.tensor("by", (width,), by)], "normalised", (1, width))
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
    if last is not None:
        more = {"beta": 1.0} if last == "SOFTMAX" else {}
        value = builder.add(last, [value], "y", (1, len(layers[-1][1])), **more)
    builder.graph.inputs, builder.graph.outputs = (x,), (value,)
    builder.model.signatures.append(Signature("serving_default", 0, {"x": x}, {"y": value}))
    return builder.model


def trained(table: str) -> tuple[dict[str, Model], Array, Array]:
    """The networks of a table by form, its samples for calibration and those for measuring."""
    from sklearn import datasets, neural_network

    options = {"scaled": False} if table == "diabetes" else {}
    data, answers = getattr(datasets, f"load_{table}")(return_X_y=True, **options)
    order = np.random.default_rng(SEED).permutation(len(data))
    data, answers = data[order].astype(np.float32), answers[order]
    half, most = len(data) // 2, 3 * len(data) // 4
    mean, deviation = data[:half].mean(axis=0, dtype=np.float64), data[:half].std(axis=0, dtype=np.float64)
    kind = neural_network.MLPRegressor if table == "diabetes" else neural_network.MLPClassifier
    learner = kind(hidden_layer_sizes=HIDDEN, random_state=SEED, max_iter=400, solver="adam")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that more steps might help
        learner.fit((data[:half] - mean) / deviation, answers[:half])
    layers = [(w.T, b) for w, b in zip(learner.coefs_, learner.intercepts_, strict=True)]
    last = {"softmax": "SOFTMAX", "logistic": "LOGISTIC"}.get(learner.out_activation_)
    return {form: network(mean, deviation, layers, form, last) for form in FORMS}, data[half:most], data[most:]


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="such as wine/divided")
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--plain", action="store_true", help="without help")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write the float models and their data")
    a = parser.parse_args()
    gains = []
    print(f"{'model':<24}{'scheme':<9}{'ours':>7}{'.tflite':>8}{'others':>8}{'gain':>7}  others' ways, layers of ours")
    for table in TABLES:
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


def _save(folder: Path, name: str, model: Model, calibration: Array, unseen: Array) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.circle").write_bytes(write_model(model))
    for part, rows in (("calibration", calibration), ("evaluation", unseen)):
        np.savez(folder / f"{name}.{part}.npz", in_0=rows)


def _measure(
    name: str, scheme: str, model: Model, calibration: Array, unseen: Array, a: argparse.Namespace
) -> float | None:
    file, measured = write_model(model), [[row[None]] for row in unseen]
    expected = [odc_mlir.run(file, sample) for sample in measured]
    rows = [[row[None]] for row in calibration]
    start = time.process_time()
    made = odc_mlir.quantize(file, scheme=scheme, calibration=rows, help=not a.plain)
    taken = time.process_time() - start
    ours = _sqnr_db(expected, [odc_mlir.run(made.model, sample) for sample in measured])
    portable = odc_mlir.quantize(file, scheme=scheme, calibration=rows, help=not a.plain, reader="litert")
    try:
        there = _sqnr_db(expected, by_litert(write_tflite(read_model(portable.to_circle())), measured))
    except ImportError:
        there = None
    found = {
        way: value
        for way, value, _ in figures(bytes(write_tflite(model)), rows, measured, expected, scheme)
        if value is not None
    }
    best = max(found.values(), default=None)
    gain = None if best is None else ours - best
    layers = ", ".join(f"{layer} {kind}" for layer, kind in made.verdict["scheme"].items())
    print(
        f"{name:<24}{scheme:<9}{ours:7.1f}{_number(there):>8}{_number(best):>8}{_number(gain, '+'):>7}  "
        f"{', '.join(f'{way} {value:.1f}' for way, value in found.items())}; {layers}"
        f"{'' if made.passed else ' FAILED'} {taken:.1f} s",
        flush=True,
    )
    return gain


def _sqnr_db(expected: Sequence[Sequence[Array]], found: Sequence[Sequence[Array]]) -> float:
    """Of the worst output, over all samples."""
    return min(map(sqnr_db, zip(*expected, strict=True), zip(*found, strict=True)))


def _number(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.1f}"


if __name__ == "__main__":
    sys.exit(main())
