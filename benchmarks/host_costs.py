"""Measure what host kernels cost on this machine and write it as the ``[host]`` table of a target file.

    python benchmarks/host_costs.py --target npu-256 -o mine.toml [--data DIR] [--networks DIR] [PATTERN ...]

Every operator of the models in ``--data`` (default: $ODC_TEST_DATA, else ``shared`` beside the repository) and in
``--networks`` runs on the models' own samples, else on random values; small models also on inputs several times as
long, where they take them, and kernels that no model has as the tests have them. PATTERNs choose models by name.

Of each kind of kernel (its family, and whether it computes with codes or with real numbers) three numbers are fitted: a
start, and what each element and each multiply-accumulate takes. The error of an operator counts by its share of the
CPU time of its network. Operators that the fit of their family misses have entries of their own. The script prints the
errors by family, and of networks that a fit leaves out. Costs of the way to the NPU cannot be measured here: they are
copied from the target.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import math
import os
import platform
import re
import sys
import time
import tomllib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from odc_mlir import targets
from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.outputs import write_file
from odc_mlir.formats.samples import random_inputs
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.ops.work import is_view, kernel_names, moved_elements
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.execution.units import Event
from odc_mlir.targets.costs import HostCosts, parse_host

ROOT = Path(__file__).resolve().parents[1]
GROUPS = (
    *(f"models/{name}" for name in ("zoo", "zoo-int16", "digits", "mediapipe", "tico", "architectures", "trained")),
    "conformance/models",
)
SCALES = (1, 16, 256)  # lengths of the first dimension of inputs, times their own
FACTORS = (1, 4, 16, 32)  # widths of the tests' cases
LARGEST_SCALED = 1 << 18  # elements of inputs that are made longer
DIGITS = 3  # significant ones that are written
MISSED = 1.25  # an operator has entries of its own where its family's are further off than this factor
ROUNDS_OF_FIT = 30
FOLDS = 5
TELLING = (0, 4096, 65536)  # the largest sample tells what an element (a product) costs from this size on
LEAST_SECONDS = 2e-7  # of an operator
TELLING_SECONDS = 1e-3  # networks that take less tell what observing an operator takes
LEAST_OPERATORS = 5  # of a network
CASE_SHARE = 0.02  # of a network's time that an operator outside of networks counts for
LEAST_SHARE = 0.2  # of the cost that a larger group of kernels has


class Sample(NamedTuple):
    """One operator: the names its costs are looked up by, what it is of, how long its kernel took.

    ``share`` is its part of the time of ``network``, which is "" for single operators and longer inputs.
    ``observed`` times include the time of observing the operator.
    """

    names: tuple[str, ...]
    is_view: bool
    elements: int
    macs: int
    seconds: float
    share: float = CASE_SHARE
    network: str = ""
    observed: bool = False


class Costs(NamedTuple):
    """Seconds: to start, for each element, for each multiply-accumulate."""

    start: float
    element: float
    mac: float

    def seconds(self, sample: Sample) -> float:
        return self.start + self.element * sample.elements + self.mac * sample.macs


def samples(path: Path, rounds: int, observing: list[float]) -> Iterator[Sample]:
    """The observed operators of one model, without those that call others.

    The time that observing an operator takes is appended to ``observing`` if the model is small enough to tell.
    """
    graph = build_graph(read_model(path))
    for scale in SCALES:
        inputs = _inputs(path, graph, scale)
        if inputs is None:
            continue
        try:
            found, whole = _measured(graph, inputs, rounds)
        except OdcError:  # these lengths do not fit the model
            continue
        if scale > 1 or len(found) < LEAST_OPERATORS:
            yield from found
            continue
        if whole < TELLING_SECONDS:
            observing.append((sum(sample.seconds for sample in found) - whole) / len(found))
        yield from (sample._replace(network=path.stem) for sample in found)


def unobserved(found: Iterable[Sample], observing: float) -> list[Sample]:
    """Subtract the time of observing, and set the shares of networks."""
    found = [s._replace(seconds=max(s.seconds - observing, LEAST_SECONDS)) if s.observed else s for s in found]
    whole = {name: sum(s.seconds for s in group) for name, group in _grouped(found, lambda s: s.network).items()}
    return [s._replace(share=s.seconds / whole[s.network]) if s.network else s for s in found]


def _measured(graph: Graph, inputs: Sequence[Any], rounds: int) -> tuple[list[Sample], float]:
    """The least CPU time of ``rounds`` runs: of each operator with observing it, and of all without."""
    executor = HostExecutor(graph, resize=True)
    nodes = executor.prepare([np.shape(value) for value in inputs]).nodes
    whole, best = math.inf, list[float]()
    for _ in range(rounds):
        executor.reset()
        begun = time.thread_time()
        executor.run(inputs)
        whole = min(whole, time.thread_time() - begun)
        executor.reset()
        names, ends = list[str](), [time.thread_time()]

        def observe(event: Event, names: list[str] = names, ends: list[float] = ends) -> None:
            names.append(event.name)
            ends.append(time.thread_time())

        executor.run(inputs, observe=observe)
        spent = [end - start for start, end in pairwise(ends)]
        best = [min(*both) for both in zip(best, spent, strict=True)] if best else spent
    events = deque(zip(names, best, strict=True))
    found = []
    for item, node in zip(graph.nodes, nodes, strict=True):
        if events and events[0][0] == node.name:  # operators on constants run once, when the executor is made
            seconds = events.popleft()[1]
            if not item.calls:
                found.append(sample_of(node, seconds)._replace(observed=True))
    return found, whole


def case_samples(rounds: int) -> Iterator[Sample]:
    """Kernels that the models lack, as the tests have them, in several sizes."""
    sys.path.insert(0, str(ROOT / "test"))
    from helpers.nodes import Session, bind
    from helpers.product_cases import product_cases

    for factor in FACTORS:
        for made, inputs in product_cases(factor).values():
            types = made.spec.infer_function(made)
            shaped = [dataclasses.replace(r, shape=t.shape) for r, t in zip(made.results, types, strict=True)]
            made = dataclasses.replace(made, results=tuple(shaped))
            session = Session(made)
            session(*inputs)
            operands = bind(made, inputs)
            for index, contents in session.variables.items():
                operands[index] = contents
            best = float("inf")
            for _ in range(rounds):
                begun = time.thread_time()
                session.kernel(operands)
                best = min(best, time.thread_time() - begun)
            yield sample_of(made, best)


def sample_of(node: Node, seconds: float) -> Sample:
    """What is known of one operator that took ``seconds``."""
    return Sample(kernel_names(node), is_view(node), moved_elements(node), node.macs, seconds)


def _inputs(path: Path, graph: Graph, scale: int) -> list[Any] | None:
    """Inputs ``scale`` times as long as the model's own; None where that is too long or there is nothing to scale."""
    infos = graph.input_infos()
    found = _samples_of(path, infos) or random_inputs([(i.info.numpy, _static(i)) for i in infos], 1)
    if scale == 1:
        return found
    if any(value.ndim == 0 for value in found) or sum(value.size for value in found) * scale > LARGEST_SCALED:
        return None
    return [np.concatenate([value] * scale) for value in found]


def _samples_of(path: Path, infos: Sequence[TensorInfo]) -> list[Any]:
    """The first sample beside a model, if there is one."""
    for file, prefix in (
        (path.parents[1] / "data" / f"{path.stem}.npz", "in_0_"),
        (path.parent / "golden" / f"{path.stem}.npz", "in_0_"),
    ):
        if file.is_file():
            with np.load(file) as data:
                names = [f"{prefix}{i}" for i in range(len(infos))]
                if all(name in data for name in names):
                    return [data[name] for name in names]
    return []


def _static(info: TensorInfo) -> tuple[int, ...]:
    return tuple(1 if dim is None else dim for dim in info.shape or ())


def fit(found: Sequence[Sample], parent: Costs | None = None) -> Costs:
    """The costs that are off by the least factor: the sum of the logarithms' errors is least.

    What these samples are too small to tell is taken from ``parent``, and nothing is taken to cost next to nothing. By
    least squares again and again, each time along the tangent of the logarithm, with less weight on what is far off.
    """
    rows = np.array([[1.0, s.elements, s.macs] for s in found])
    seconds = np.array([s.seconds for s in found])
    told = [index for index, least in enumerate(TELLING) if rows[:, index].max() >= least]
    least = np.zeros(3) if parent is None else np.array([0.0, *parent[1:]])
    least[[index for index in told if parent is not None]] *= LEAST_SHARE
    shares = np.sqrt([s.share for s in found])
    costs = least + _least_squares(rows * (shares / seconds)[:, None], (1 - rows @ least / seconds) * shares, told)
    for _ in range(ROUNDS_OF_FIT):
        guess = np.maximum(rows @ costs, LEAST_SHARE * seconds)
        misses = np.log(seconds / guess)
        weights = shares / np.sqrt(np.maximum(np.abs(misses), 0.05))
        tangent = np.clip(misses, -1, 1) + 1 - rows @ least / guess
        costs = (costs + least + _least_squares(rows * (weights / guess)[:, None], tangent * weights, told)) / 2
    return Costs(*map(float, costs))


def _least_squares(rows: Any, wanted: Any, used: Sequence[int]) -> Any:
    """The solution without negative numbers: columns that want one are left out, the worst first."""
    left = list(used)
    scale = np.abs(rows).max(axis=0)
    while left:
        solution = np.linalg.lstsq(rows[:, left] / scale[left], wanted, rcond=None)[0]
        if solution.min() >= 0:
            result = np.zeros(rows.shape[1])
            result[left] = solution / scale[left]
            return result
        left.pop(int(solution.argmin()))
    return np.zeros(rows.shape[1])


def tables(found: Sequence[Sample]) -> dict[str, Costs]:
    """Costs by the name of a kind of kernel, ``default`` for all that have no entry."""
    computing = [s for s in found if not s.is_view]
    result = {"default": fit(computing)}
    for operator, views in sorted(_grouped((s for s in found if s.is_view), lambda s: s.names[0]).items()):
        result[operator] = Costs(median(s.seconds for s in views), 0.0, 0.0)
    by_family = _grouped(computing, lambda s: s.names[1])
    for family, group in sorted(by_family.items()):
        result[family] = fit(group, result["default"])
        for operator, own in sorted(_grouped(group, lambda s: s.names[0]).items()):
            if off_by(own, result[family].seconds) > MISSED:
                result[operator] = fit(own, result[family])
    return result


def _grouped(found: Iterable[Sample], key: Callable[[Sample], str]) -> dict[str, list[Sample]]:
    groups: dict[str, list[Sample]] = defaultdict(list)
    for sample in found:
        groups[key(sample)].append(sample)
    return groups


def off_by(found: Iterable[Sample], seconds: Callable[[Sample], float]) -> float:
    """By what factor, one or more, ``seconds`` is off for half of the samples."""
    ratios = [seconds(s) / s.seconds for s in found]
    return median(max(ratio, 1 / ratio) if ratio > 0 else float("inf") for ratio in ratios)


def nanoseconds(seconds: float) -> float:
    """Rounded to what repeats."""
    return float(f"{seconds * 1e9:.{DIGITS}g}")


def host_table(found: Sequence[Sample], host: HostCosts) -> str:
    """The measured costs as TOML."""
    views = [s.seconds for s in found if s.is_view] or [0.0]
    costs = tables(found)
    default = costs.pop("default")
    lines = [
        "[host]",
        f'description = "host kernels measured on {platform.machine()}, {os.cpu_count()} processors"',
        f"operator_ns = {nanoseconds(default.start)}",
        f"view_ns = {nanoseconds(median(views))}",
        f"switch_ns = {host.switch_ns}",
        f"tensor_ns = {host.tensor_ns}",
        f"transfer_bytes_per_us = {host.transfer_bytes_per_us}",
    ]
    with_macs = {name for s in found if s.macs for name in s.names}
    computing = {name for s in found if not s.is_view for name in s.names}
    wanted = {"start_ns": set(costs), "element_ns": computing, "mac_ns": with_macs}
    for key, part in (("start_ns", "start"), ("element_ns", "element"), ("mac_ns", "mac")):
        rows = {} if key == "start_ns" else {"default": getattr(default, part)}
        rows |= {n: getattr(own, part) for n, own in costs.items() if n in wanted[key]}
        lines += ["", f"[host.{key}]", *(f"{_key(name)} = {nanoseconds(v)}" for name, v in rows.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    """A name as a key in TOML."""
    return name if re.fullmatch(r"[\w-]+", name) else f'"{name}"'


def errors(found: Sequence[Sample], host: HostCosts) -> str:
    """By family: how many samples, and by what share the model is off for half and for nine tenths of them."""
    lines = ["family                      samples  median   9 of 10"]
    everything = {"all": list(found), **dict(sorted(_grouped(found, lambda s: s.names[1]).items()))}
    for family, group in everything.items():
        shares = sorted(
            abs(1e-9 * host.of_kernel(s.names, s.is_view, s.elements, s.macs) / s.seconds - 1) for s in group
        )
        most = shares[int(0.9 * (len(shares) - 1))]
        lines.append(f"{family:27} {len(group):7} {100 * median(shares):6.0f} % {100 * most:7.0f} %")
    return "\n".join(lines)


def network_errors(found: Sequence[Sample]) -> str:
    """For networks that the fit leaves out, a fifth each time: the ratio of the model's time to the measured time."""
    networks = _grouped((s for s in found if s.network), lambda s: s.network)
    ratios: dict[str, float] = {}
    for fold in range(FOLDS):
        left_out = list(networks)[fold::FOLDS]
        costs = tables([s for s in found if s.network not in left_out])
        for name in left_out:
            modelled = sum(_costs_of(s, costs).seconds(s) for s in networks[name])
            ratios[name] = modelled / sum(s.seconds for s in networks[name])
    factors = sorted(max(ratio, 1 / ratio) for ratio in ratios.values())
    lines = [f"{ratio:5.2f} {name}" for name, ratio in sorted(ratios.items(), key=lambda item: item[1])]
    most = factors[int(0.9 * (len(factors) - 1))]
    return "\n".join(
        [*lines, f"{len(ratios)} networks: off by a factor of {median(factors):.2f}, 9 of 10 by {most:.2f}"]
    )


def _costs_of(sample: Sample, costs: dict[str, Costs]) -> Costs:
    names = sample.names[:1] if sample.is_view else sample.names
    return next((costs[name] for name in names if name in costs), costs["default"])


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
    parser.add_argument("--networks", type=Path, help="a folder with further models")
    parser.add_argument("--host-only", action="store_true", help="write the description of a host, as in targets/hosts")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    arguments = parser.parse_args()
    found: list[Sample] = []
    observing: list[float] = []
    folders = [arguments.data / group for group in GROUPS] + [arguments.networks] * bool(arguments.networks)
    for folder in folders:
        for path in sorted(folder.glob("*.circle")):
            if arguments.patterns and not any(fnmatch.fnmatch(path.stem, p) for p in arguments.patterns):
                continue
            try:
                found += samples(path, arguments.rounds, observing)
            except OdcError as error:
                print(f"{path.name}: {error}", file=sys.stderr)
    if not arguments.patterns:
        found += case_samples(arguments.rounds)
    if not found:
        parser.error(f"no operator could be measured in {arguments.data}")
    found = unobserved(found, median(observing or [0.0]))
    table = host_table(found, targets.load(arguments.target).host)
    alone = table.removeprefix("[host]\n").replace("[host.", "[")
    text = alone if arguments.host_only else f"{target_text(arguments.target)}\n{table}"
    write_file(arguments.output, text.encode())
    print(table)
    print(errors(found, parse_host(tomllib.loads(alone), arguments.output)))
    if len({s.network for s in found if s.network}) >= FOLDS:
        print(network_errors(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
