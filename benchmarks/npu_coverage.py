"""Compile every model for an NPU, compare its bits with the host's, and rank the rules that keep operators on the host.

    python benchmarks/npu_coverage.py [--data DIR] [--target NAME] [--quantize SCHEME] [--json FILE] [PATTERN ...]

``--data`` is a folder with ``models`` and ``conformance`` (default: $ODC_TEST_DATA, else ``shared`` beside the
repository); PATTERNs choose models by name. With ``--quantize``, float models are quantised first, with help switched
off and random samples as calibration: what matters here is that they compile, not what they answer. Inputs are random
codes. The status is 1 when a model does not compile, bits differ, a segment falls back, or the plan that was chosen is
modelled to take over 5 % more than all on the host, or all that the NPU can run there. Rules are ranked by the modelled
milliseconds of the operators that they refuse.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import odc_mlir
from odc_mlir.errors import OdcError, UnsupportedError
from odc_mlir.formats.outputs import write_file
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.runtime.execution.work import graph_work
from odc_mlir.runtime.package import Package, TensorSpec
from odc_mlir.runtime.reporting.report import host_of

ROOT = Path(__file__).resolve().parents[1]
GROUPS = (
    "models/zoo",
    "models/zoo-int16",
    "models/digits",
    "models/tico",
    "models/reported",
    "conformance/models",
)
MOST_OVER = 1.05  # of the better extreme's modelled time


@dataclass
class Row:
    """One model. ``status``: equal, different, fallback, slower plan, cannot run, defect, or the stage that refused."""

    model: str
    status: str
    npu: int = 0
    host: int = 0
    detail: str = ""
    reasons: list[tuple[str, float]] = field(default_factory=list)  # of operators on the host, with milliseconds

    @property
    def failed(self) -> bool:
        return self.status in ("different", "fallback", "slower plan", "compile", "defect")


def codes(specs: Iterable[TensorSpec], random: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Random inputs over the whole range of codes of up to 8 bits; small numbers of other types. Raises OdcError."""
    inputs = []
    for spec in specs:
        shape = tuple(1 if dim is None else dim for dim in spec.shape or ())
        dtype = DTYPES[spec.dtype]
        if dtype.numpy.kind not in "fbiu":
            raise UnsupportedError(f"there are no random inputs of {spec.dtype}", tensor=spec.name)
        if dtype.numpy.kind == "f":
            inputs.append(random.standard_normal(shape).astype(dtype.numpy))
            continue
        narrow = dtype.numpy.itemsize == 1 and dtype.numpy.kind != "b"
        low, high = dtype.range if narrow else (0, 2 if dtype.numpy.kind != "b" else 1)
        inputs.append(random.integers(low, high + 1, shape).astype(dtype.numpy))
    return inputs


def check(path: Path, target: str, scheme: str | None) -> Row:
    """Compile and run one model."""
    name, random = path.stem, np.random.default_rng(1)
    model: Any = path
    if scheme is not None:
        try:
            specs = odc_mlir.compile(path).inputs
            samples = [codes(specs, random) for _ in range(4)]
            made = odc_mlir.quantize(path, scheme=scheme, calibration=samples, help=False, io="quantized")
            model = made.to_circle()
        except OdcError as error:
            return Row(name, "quantize", detail=str(error))
    try:
        package = odc_mlir.compile(model, target=target)
    except OdcError as error:
        return Row(name, "compile", detail=str(error))
    row = placed(name, package)
    try:
        inputs = codes(package.inputs, random)
        expected = odc_mlir.run(package, inputs, backend="host")
    except OdcError as error:
        row.status, row.detail = "cannot run", str(error)
        return row
    try:
        found = odc_mlir.run(package, inputs, strict=True)
    except OdcError as error:
        row.status, row.detail = "fallback", str(error)
        return row
    pairs = zip(found, expected, strict=True)
    same = all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
    row.status = row.status if same else "different"
    return row


def placed(name: str, package: Package) -> Row:
    """Where the operators went."""
    plan = package.plan
    assert plan is not None, "compiled packages have plans"
    graph = package.model.subgraphs[0]
    works = graph_work(package.graph, host_of(plan)).works
    reasons = [
        (f"{graph.operators[i].name}: {reason}", works[i].host_ns / 1e6) for i, reason in plan.host_reasons.items()
    ]
    times = {entry["name"]: entry["estimate_ns"] for entry in plan.partition.get("plans", ())}
    chosen = plan.partition.get("chosen")  # where nothing may go to the NPU, there was nothing to choose
    over = chosen is not None and chosen["estimate_ns"] > MOST_OVER * min(times.values())
    row = Row(name, "slower plan" if over else "equal", sum(len(s.operators) for s in plan.segments), reasons=reasons)
    row.host = len(graph.operators) - row.npu
    return row


def models(data: Path, patterns: list[str]) -> Iterator[Path]:
    """The models to check, each once."""
    for group in GROUPS:
        for path in sorted((data / group).glob("*.circle")):
            if not patterns or any(fnmatch.fnmatch(path.stem, pattern) for pattern in patterns):
                yield path


def main() -> int:
    """Check and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--target", default="npu-256")
    parser.add_argument("--quantize", metavar="SCHEME")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    arguments = parser.parse_args()
    rows = []
    for path in models(arguments.data, arguments.patterns):
        try:
            row = check(path, arguments.target, arguments.quantize)
        except Exception as error:
            row = Row(path.stem, "defect", detail=f"{type(error).__name__}: {error}")
        rows.append(row)
        if row.status != "equal":
            print(f"{row.model}: {row.status}: {row.detail}", flush=True)
    if not rows:
        parser.error(f"no model found in {arguments.data}")
    counts = Counter(row.status for row in rows)
    on_npu = sum(row.npu for row in rows)
    print(f"{len(rows)} models: {', '.join(f'{n} {status}' for status, n in counts.most_common())}")
    print(f"{on_npu} of {on_npu + sum(row.host for row in rows)} operators on {arguments.target}")
    lost: dict[str, list[float]] = defaultdict(list)
    for reason, host_ms in (item for row in rows for item in row.reasons):
        lost[": ".join(reason.split(": ")[:2])].append(host_ms)
    print("host ms  operators  rule")
    for rule, times in sorted(lost.items(), key=lambda item: -sum(item[1]))[:25]:
        print(f"{sum(times):7.3f}  {len(times):9d}  {rule}")
    if arguments.json:
        write_file(arguments.json, (json.dumps([asdict(row) for row in rows], indent=1) + "\n").encode())
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
