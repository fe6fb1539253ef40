"""Measure what host kernels cost on this machine and write it as the ``[host]`` table of a target file.

    python benchmarks/host_costs.py --target npu-256 -o mine.toml [--data DIR] [--rounds N] [PATTERN ...]

Every operator of the models in ``--data`` (default: $ODC_TEST_DATA, else ``shared`` beside the repository) runs alone
on random codes; PATTERNs choose models by name. What tiny operators take is the cost of any operator; what larger ones
take beyond it is divided by their elements or multiply-accumulates, and the weighted median of each kernel family and
of each operator is written. Costs of the way to the NPU cannot be measured here: they are copied from the target.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import platform
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from odc_mlir import targets
from odc_mlir.errors import OdcError
from odc_mlir.formats.atomic import write_file
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.ops.spec import Trait
from odc_mlir.ops.work import kernel_family, largest_tensor
from odc_mlir.runtime.graph import build_graph
from odc_mlir.runtime.shaping import ShapedGraph

ROOT = Path(__file__).resolve().parents[1]
GROUPS = ("models/zoo", "models/digits", "conformance/models")
TINY_ELEMENTS = 256
TINY_MACS = 1000
DIGITS = 3  # significant ones that are written


class Sample(NamedTuple):
    """One operator: what it is, how large, how long its kernel took."""

    operator: str
    family: str
    is_view: bool
    elements: int
    macs: int
    seconds: float


def samples(path: Path, rounds: int) -> Iterator[Sample]:
    """The operators of one model that can run on random data, without those that have effects."""
    graph = build_graph(read_model(path))
    shapes = [tuple(1 if dim is None else dim for dim in info.shape or ()) for info in graph.input_infos()]
    shaped = ShapedGraph(graph, shapes)
    random = np.random.default_rng(1)
    for index, node in enumerate(shaped.nodes):
        if Trait.PURE not in node.spec.traits:
            continue
        operands = []
        for info in node.operands:
            if info is None or info.is_const:
                operands.append(None if info is None else info.array())
            elif info.shape is None or any(dim is None for dim in info.shape):
                break
            elif info.info.numpy.kind in "iu":
                operands.append(random.integers(0, 100, info.static_shape).astype(info.info.numpy))
            else:
                operands.append(random.standard_normal(info.static_shape).astype(info.info.numpy))
        else:
            best = float("inf")
            try:
                kernel = shaped.kernel(index)
                with np.errstate(all="ignore"):
                    for _ in range(rounds):
                        begun = time.perf_counter()
                        kernel(operands)
                        best = min(best, time.perf_counter() - begun)
            except OdcError:  # what it computes with is not among random numbers, or not supported
                continue
            is_view = Trait.VIEW in node.spec.traits
            family = kernel_family(node)
            yield Sample(node.spec.name, family, is_view, largest_tensor(node), node.macs, best)


def weighted_median(pairs: Iterable[tuple[float, float]]) -> float:
    """The value that has half of the weight on either side; ``pairs`` are (value, weight)."""
    ordered = sorted(pairs)
    half, passed = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    return 0.0


def fit(found: list[Sample]) -> dict[str, float | dict[str, float]]:
    """The measured part of a ``[host]`` table, in nanoseconds."""
    tiny = [s for s in found if s.elements <= TINY_ELEMENTS and s.macs <= TINY_MACS and not s.is_view]
    views = [s for s in found if s.is_view]
    operator = weighted_median((s.seconds, 1) for s in tiny)
    families: dict[str, list[tuple[float, float]]] = defaultdict(list)
    operators: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for s in found:
        rest = max(s.seconds - operator, 0.0)
        if s.macs > TINY_MACS:
            operators[s.operator].append((rest / s.macs, s.macs))
        elif s.elements > TINY_ELEMENTS and not s.is_view and not s.macs:
            families[s.family].append((rest / s.elements, s.elements))

    def table(groups: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
        rows = {"default": weighted_median(pair for pairs in groups.values() for pair in pairs)}
        rows |= {name: weighted_median(groups[name]) for name in sorted(groups)}
        return {name: nanoseconds(value) for name, value in rows.items()}

    return {
        "operator_ns": nanoseconds(operator),
        "view_ns": nanoseconds(weighted_median((s.seconds, 1) for s in views)),
        "element_ns": table(families),
        "mac_ns": table(operators),
    }


def nanoseconds(seconds: float) -> float:
    """Rounded to what repeats."""
    return float(f"{seconds * 1e9:.{DIGITS}g}")


def host_table(measured: dict[str, float | dict[str, float]], host: targets.HostCosts) -> str:
    """The table as TOML."""
    lines = [
        "[host]",
        f'description = "host kernels measured on {platform.machine()}, {os.cpu_count()} processors"',
        f"operator_ns = {measured['operator_ns']}",
        f"view_ns = {measured['view_ns']}",
        f"switch_ns = {host.switch_ns}",
        f"tensor_ns = {host.tensor_ns}",
        f"transfer_bytes_per_us = {host.transfer_bytes_per_us}",
    ]
    for key in ("element_ns", "mac_ns"):
        rows = measured[key]
        assert isinstance(rows, dict), "made of groups"
        lines += ["", f"[host.{key}]", *(f"{name} = {value}" for name, value in rows.items())]
    return "\n".join(lines) + "\n"


def target_text(name: str) -> str:
    """The text of a target without its host costs."""
    shipped = resources.files(targets) / f"{name}.toml"
    text = (shipped if name in targets.names() else Path(name)).read_text("utf-8")
    without = re.sub(r"(?ms)^\[host(\.\w+)?\].*?(?=^\[(?!host)|\Z)", "", text)
    return re.sub(r"(?m)^host = .*\n", "", without).rstrip() + "\n"


def main() -> int:
    """Measure and write; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="npu-256", help="target that the table is added to (%(default)s)")
    parser.add_argument("-o", "--output", required=True, help="target file to write")
    default = os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    arguments = parser.parse_args()
    found: list[Sample] = []
    for group in GROUPS:
        for path in sorted((arguments.data / group).glob("*.circle")):
            if arguments.patterns and not any(fnmatch.fnmatch(path.stem, p) for p in arguments.patterns):
                continue
            try:
                found += samples(path, arguments.rounds)
            except OdcError as error:
                print(f"{path.name}: {error}", file=sys.stderr)
    if not found:
        parser.error(f"no operator could be measured in {arguments.data}")
    table = host_table(fit(found), targets.load(arguments.target).host)
    write_file(arguments.output, f"{target_text(arguments.target)}\n{table}".encode())
    targets.load(arguments.output)
    print(table, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
