"""Tokens a second and bytes per token of transformers on an NPU, and whether their blocks are one segment.

    python benchmarks/transformers.py [--data DIR] [--target NAME ...] [--memory MODE ...] [MODEL ...]
    python benchmarks/transformers.py --decode WIDTH HEADS POSITIONS [...]

MODELs are Circle files; without them, those of ``DIR/models/trained`` that multiply computed matrices (``--data``:
default $ODC_TEST_DATA, else ``shared`` beside the repository). Float models are quantised to int8 with the samples in
``NAME.calibration.npz`` beside them. Inputs are those of ``NAME.evaluation.npz``, without it random ones.

``--decode``: one step of a decoder instead, with random weights: a token joins an int8 cache of POSITIONS at a position
that is computed, and attends to it.

A token is a position of the sequence: a run computes as many as attention has rows. Bytes are those that cross the
off-chip and the SRAM port. The status is 1 where bits differ from the host's, less than 99 % of the products are on the
NPU, or they are in several segments.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import odc_mlir
from npu_coverage import codes
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.support.text import parse_module
from odc_mlir.universe import make_context

ROOT = Path(__file__).resolve().parents[1]
LEAST_ON_NPU = 0.99  # of the products
SAMPLES = 3
HEAD = (
    f"{'model':20s} {'target':8s} {'mode':5s} {'tokens':>6s} {'cycles':>8s} {'tokens/s':>9s}"
    f" {'off-chip':>8s} {'SRAM':>8s}  bytes per token"
)


def has_attention(model: Model) -> bool:
    """Whether ``model`` multiplies matrices of which both are computed."""
    return any(op.name == "BATCH_MATMUL" for graph in model.subgraphs for op in graph.operators)


def tokens_of(model: Model) -> int:
    """Rows of the largest attention: positions that a run computes."""
    rows = [
        graph.tensors[op.outputs[0]].shape[-2]
        for graph in model.subgraphs
        for op in graph.operators
        if op.name == "SOFTMAX" and len(graph.tensors[op.outputs[0]].shape) > 1
    ]
    return max(rows, default=1)


def quantised(path: Path, folder: Path) -> Path:
    """``path``, or where it holds real numbers, an int8 model made of it in ``folder``."""
    model, samples = read_model(path), path.with_name(f"{path.stem}.calibration.npz")
    if any(tensor.dtype == "int8" for tensor in model.subgraphs[0].tensors):
        return path
    made = folder / path.name
    odc_mlir.quantize(path, scheme="int8", calibration=samples).save(made)
    return made


def inputs_of(path: Path, package: odc_mlir.Package) -> Iterator[list[np.ndarray[Any, Any]]]:
    """Some inputs for the model at ``path``."""
    recorded, random = path.with_name(f"{path.stem}.evaluation.npz"), np.random.default_rng(1)
    for index in range(SAMPLES):
        if recorded.is_file():
            yield [np.load(recorded)["in_0"][index : index + 1]]
        else:
            yield codes(package.inputs, random)


def measure(path: Path, model: Path, target: str, memory: str) -> bool:
    """Compile, compare and print one line; whether it holds."""
    package = odc_mlir.compile(model, target=target, memory=memory)
    report, tokens = package.report, tokens_of(read_model(model))
    same = all(
        np.array_equal(ours, host)
        for given in inputs_of(path, package)
        for ours, host in zip(odc_mlir.run(package, given), odc_mlir.run(model, given, backend="host"), strict=True)
    )
    products = [(layer["macs"] or 0, layer["placed"] == "npu") for layer in report["layers"]]
    share = sum(macs for macs, on_npu in products if on_npu) / max(1, sum(macs for macs, _ in products))
    rate = tokens * report["clock_hz"] / report["cycles_total"]
    offchip = (report["offchip_read_bytes"] + report["offchip_write_bytes"]) / tokens
    sram = (report["sram_read_bytes"] + report["sram_write_bytes"]) / tokens
    holds = same and share >= LEAST_ON_NPU and report["segment_count"] == 1
    print(
        f"{path.stem:20s} {target:8s} {memory:5s} {tokens:6d} {report['cycles_total']:8d} {rate:9.0f} {offchip:8.0f} "
        f"{sram:8.0f}  {'' if same else 'OTHER BITS, '}{share:.1%} of products on the NPU, segments: "
        f"{report['segment_count']}, operators on the host: {report['host_op_count']}",
        flush=True,
    )
    return holds


def decode(arguments: argparse.Namespace) -> int:
    """Measure a decoder's step; returns the exit code."""
    sys.path.insert(0, str(ROOT / "test"))
    from helpers.decode_step import decode_step

    text = decode_step(*arguments.decode)
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"decode-{'-'.join(map(str, arguments.decode))}.circle"
        path.write_bytes(write_model(export_model(parse_module(make_context(), text))))
        pairs = [(target, memory) for target in arguments.target for memory in arguments.memory]
        held = [measure(path, path, target, memory) for target, memory in pairs]
    return int(not all(held))


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--target", nargs="+", default=["npu-256"])
    parser.add_argument("--memory", nargs="+", choices=("flash", "sram"), default=["flash"])
    parser.add_argument("--decode", nargs=3, type=int, metavar=("WIDTH", "HEADS", "POSITIONS"))
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    arguments = parser.parse_args()
    if arguments.decode is not None:
        return decode(arguments)
    found = arguments.models or sorted((Path(arguments.data) / "models" / "trained").glob("*.circle"))
    paths = [path for path in found if has_attention(read_model(path))]
    if not paths:
        parser.error("no model with attention")
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        held = [
            measure(path, model, target, memory)
            for path in paths
            for model in [quantised(path, Path(folder))]
            for target in arguments.target
            for memory in arguments.memory
        ]
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
