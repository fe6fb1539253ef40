"""Quantise the float test models by ai-edge-quantizer, for ``benchmarks/quantizers.py`` to compare with.

    pip install ai-edge-quantizer
    python benchmarks/peer.py [--data DIR] [--schemes int8,int16x8,int8_wo] -o FILE.csv [MODEL ...]

It is run with ranges of all samples and with its moving averages, by every way that it has of choosing scales of
weights. Its models are run by LiteRT's reference kernels on samples that it has not seen; the SQNR is that of the
output for which it is worst. The rows are those of ``baselines/quantizers.csv``.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import logging
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_tflite
from odc_mlir.ops.spec import Array
from quantizer_tasks import TASKS, Prepared, Task, prepare

ROOT = Path(__file__).resolve().parents[1]
# Its recipe for a scheme, what its tables call that, and its ways to choose the scales of weights.
RECIPES = {
    "int8": "static_wi8_ai8",
    "int16x8": "static_wi8_ai16",
    "int8_wo": "weight_only_wi8_afp32",
    "int4_wo": "weight_only_wi4_afp32",
}
NAMES = {
    "int8": "static_int8",
    "int16x8": "static_int16x8",
    "int8_wo": "weight_only_int8",
    "int4_wo": "weight_only_int4",
}
ALGORITHMS = {"min_max": "MIN_MAX_UNIFORM_QUANT", "octav": "OCTAV", "mse": "MSE"}
LAYERS = ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D_TRANSPOSE", "BATCH_MATMUL")
FIELDS = ("model", "scheme", "tool", "inputs", "metric", "value_ref", "bytes", "note")


def sqnr_db(expected: Sequence[Array], found: Sequence[Array]) -> float:
    """Power of the signal over that of the error."""
    pairs = [(a.astype(np.float64), b) for a, b in zip(expected, found, strict=True)]
    noise = sum(float(np.square(a - b).sum()) for a, b in pairs)
    return 10.0 * np.log10(sum(float(np.square(a).sum()) for a, _ in pairs) / max(noise, 1e-30))


def by_litert(file: bytes, samples: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """What LiteRT's reference kernels compute of samples, as reals; raises RuntimeError where they cannot."""
    from ai_edge_litert import interpreter

    made = interpreter.Interpreter(
        model_content=file, experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF
    )
    sources = made.get_input_details()
    for source, array in zip(sources, samples[0], strict=True):
        if tuple(source["shape"]) != array.shape:
            made.resize_tensor_input(source["index"], array.shape)
    made.allocate_tensors()
    results, found = made.get_output_details(), []
    for sample in samples:
        for source, array in zip(sources, sample, strict=True):
            made.set_tensor(source["index"], _coded(array, source))
        made.invoke()
        found.append([_real(made.get_tensor(result["index"]), result) for result in results])
    return found


def _coded(array: Array, detail: dict[str, Any]) -> Array:
    scale, zero = detail["quantization"]
    if not scale:
        return array.astype(detail["dtype"])
    info = np.iinfo(detail["dtype"])
    return np.clip(np.round(array / scale) + zero, info.min, info.max).astype(detail["dtype"])


def _real(value: Array, detail: dict[str, Any]) -> Array:
    scale, zero = detail["quantization"]
    return value if not scale else (value.astype(np.float64) - zero) * scale


def others(file: bytes, samples: Sequence[Sequence[Array]], scheme: str) -> Iterator[tuple[str, bytes]]:
    """What ai-edge-quantizer makes of a model with one signature, by the way it chose scales and ranges.

    Nothing where it is not installed; what it raises goes through.
    """
    try:
        from ai_edge_quantizer import calibrator, quantizer
        from ai_edge_quantizer.utils import qsv_utils
    except ImportError:
        return
    logging.getLogger().setLevel(logging.ERROR)
    names = list(read_model(file).signatures[0].inputs)
    data = {"serving_default": [dict(zip(names, sample, strict=True)) for sample in samples]}
    updates = {"": qsv_utils.min_max_update, ", averages": qsv_utils.moving_average_update}
    known: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(file)
        for way, algorithm in ALGORITHMS.items():
            made = quantizer.Quantizer(str(path))
            made.load_quantization_recipe(_recipe(scheme, algorithm))
            if not made.need_calibration:
                with contextlib.redirect_stdout(io.StringIO()):
                    result = made.quantize(None)
                yield way, bytes(result.quantized_model)
                continue
            for name, update in updates.items():
                with contextlib.redirect_stdout(io.StringIO()):
                    if name not in known:
                        seen = calibrator.Calibrator(file, 1, qsv_update_func=update)
                        seen.calibrate(data, made._recipe_manager)
                        known[name] = seen.get_model_qsvs()
                    result = made.quantize(known[name])
                yield way + name, bytes(result.quantized_model)


def _recipe(scheme: str, algorithm: str) -> list[dict[str, Any]]:
    """The scheme for all operators, and for layers with weights with this way to choose their scales."""
    from ai_edge_quantizer import algorithm_manager, qtyping, recipe

    entries = getattr(recipe, RECIPES[scheme])()
    key = algorithm_manager.AlgorithmName[algorithm]
    if algorithm == ALGORITHMS["min_max"]:
        return list(entries)
    found = list(entries)
    for layer in LAYERS:
        for entry in getattr(recipe, RECIPES[scheme])(key):
            config = qtyping.OpQuantizationConfig.from_dict(entry["op_config"])
            try:
                algorithm_manager.check_op_quantization_config(key, qtyping.TFLOperationName[layer], config)
            except (KeyError, ValueError):
                continue
            found.append({**entry, "operation": layer})
    return found


def figures(
    file: bytes, calibration: Sequence[Sequence[Array]], evaluation: Sequence[Sequence[Array]], scheme: str
) -> Iterator[tuple[str, tuple[list[list[Array]] | None, int]]]:
    """By way of ai-edge-quantizer what its model computes of ``evaluation``, and the bytes of that model.

    ``file`` is a float .tflite model. None where LiteRT does not run what was made. Nothing where ai-edge-quantizer is
    not installed; what it raises goes through.
    """
    for way, made in others(file, calibration, scheme):
        try:
            yield way, (by_litert(made, evaluation), len(made))
        except RuntimeError:
            yield way, (None, len(made))  # such as a divisor whose code is 0


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"))
    parser.add_argument("--schemes", default="int8,int16x8,int8_wo")
    parser.add_argument("-o", "--output", type=Path, required=True)
    a = parser.parse_args()
    if not a.output.exists():
        with a.output.open("w", newline="") as file:
            csv.DictWriter(file, FIELDS).writeheader()
    for task in TASKS:
        if a.models and task.name not in a.models:
            continue
        ready = prepare(a.data / "models", task)
        for scheme in a.schemes.split(","):
            # in a process of its own: some files make it end
            process = multiprocessing.get_context("fork").Process(target=_measure, args=(a.output, task, ready, scheme))
            process.start()
            process.join()
            if process.exitcode:
                _write(a.output, task, NAMES[scheme], note=f"the process ended with {process.exitcode}")
    return 0


def _measure(output: Path, task: Task, ready: Prepared, scheme: str) -> None:
    """Add a row for every way to quantise the task's model, or one that says why there is none."""
    file = write_tflite(read_model(ready.file))
    try:
        for way, (found, size) in figures(file, ready.calibration, ready.evaluation, scheme):
            name = f"{NAMES[scheme]}_{way.replace(', ', '_').replace('min_max', 'minmax')}"
            if found is None:
                _write(output, task, name, bytes=size, note="LiteRT does not run it")
                continue
            value = min(map(sqnr_db, zip(*ready.reference.outputs, strict=True), zip(*found, strict=True)))
            _write(output, task, name, value_ref=f"{value:.3f}", bytes=size)
    except Exception as error:  # whatever it raises is its refusal
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        _write(output, task, NAMES[scheme], note=reason)


def _write(output: Path, task: Task, scheme: str, **found: Any) -> None:
    row = {"model": task.name, "tool": "ai-edge-quantizer", "inputs": task.inputs, "metric": "sqnr_db"}
    with output.open("a", newline="") as file:
        csv.DictWriter(file, FIELDS).writerow({**row, "scheme": scheme, **found})
    print(f"{task.name:<34}{scheme:<36}{found.get('value_ref') or found.get('note')}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
