"""Models that compile and then do not run, or run although they are said not to.

    python benchmarks/can_run.py FOLDER... [--mutants N] [--seed S]

Each model file below the folders, and N mutants of them (other element types, scales, zero points and versions), are
compiled. What compiles must be said to run by ``odc_mlir.check`` and run once on ones; what is refused must be refused
with an OdcError. Prints a line for each that differs, and their number; exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from pathlib import Path

import numpy as np

import odc_mlir
from odc_mlir.errors import InputError, OdcError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.dtypes import DTYPES

TYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "float16", "bool", "int4")
FACTORS = (0.0, 0.5, 1.0000001, 1.1, 3.0, float("nan"))
LARGEST_BYTES = 1 << 20  # of a model to mutate


def problem_of(model: bytes) -> str:
    """Return what was said wrongly about a model; empty if nothing, or if compiling refuses it."""
    try:
        package = odc_mlir.compile(model)
    except OdcError:
        return ""
    except Exception as error:
        return f"compile raises {type(error).__name__}: {error}"
    said = odc_mlir.check(package)
    shapes = [tuple(1 if extent is None else extent for extent in item.shape or ()) for item in package.inputs]
    inputs = [np.ones(shape, DTYPES[item.dtype].numpy) for shape, item in zip(shapes, package.inputs, strict=True)]
    try:
        odc_mlir.run(package, inputs)
    except InputError:
        pass  # ones are values that the model does not take
    except Exception as error:
        return f"compiles, check says {said.state.value!r}, run raises {type(error).__name__}: {error}"
    return "" if said.state == "runs" else f"compiles and runs, check says {said.state.value!r}: {said.reason}"


def mutate(model: Model, chance: random.Random) -> str:
    """Change the element type, the scale, the zero point or the version somewhere in ``model``; return what."""
    graph = model.subgraphs[0]
    tensor = chance.choice(graph.tensors)
    for item in (graph.tensors[i] for i in graph.inputs if chance.random() < 0.5):
        item.shape_signature = (-1, *item.shape[1:]) if item.shape else None  # an open batch
    kind = chance.choice(("type", "scale", "zero", "version"))
    quant = tensor.quantization
    if kind == "version":
        operator = chance.choice(graph.operators)
        operator.version = chance.choice((1, 2, 3, 5, 9, 40))
        return f"{operator.name} of version {operator.version}"
    if kind == "type" or quant is None or quant.scale is None or not len(quant.scale):
        tensor.dtype = chance.choice(TYPES)
        return f"{tensor.name!r} of {tensor.dtype}"
    if kind == "scale":
        factor = chance.choice(FACTORS)
        quant.scale = np.asarray(quant.scale * np.float32(factor), np.float32)
        return f"scale of {tensor.name!r} times {factor}"
    quant.zero_point = np.asarray(quant.zero_point) + chance.choice((-3, 1, 200))
    return f"zero point of {tensor.name!r} moved"


def main() -> int:
    """Check all models and mutants; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--mutants", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    files = sorted(
        path for folder in args.folders for kind in ("circle", "tflite") for path in folder.rglob(f"*.{kind}")
    )
    wrong = 0
    for path in files:
        if wrongly := problem_of(path.read_bytes()):
            wrong += 1
            print(f"{path}: {wrongly}", flush=True)
    small = [path for path in files if path.stat().st_size <= LARGEST_BYTES]
    chance, made = random.Random(args.seed), 0
    while made < args.mutants and small:
        path = chance.choice(small)
        try:
            model = read_model(str(path))
            if not model.subgraphs[0].tensors or not model.subgraphs[0].operators:
                continue
            steps = [mutate(model, chance) for _ in range(chance.choice((1, 1, 2)))]
            data = write_model(model)
        except OdcError:
            continue
        made += 1
        if wrongly := problem_of(data):
            wrong += 1
            print(f"{path}: {'; '.join(steps)}: {wrongly}", flush=True)
    print(f"{wrong} of {len(files)} models and {made} mutants are said to be what they are not")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
