"""Judgements on single operators: OpenVINO's own query, a comparison with host kernels, and the time on the device.

The cache keeps them by machine, version of OpenVINO and driver, so that a layer is measured once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import odc_mlir
from odc_mlir import ops
from odc_mlir.errors import OdcError
from odc_mlir.formats.cache import cache_folder
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.private import make_folder, read_file, write_file
from odc_mlir.ops.spec import Array, Node, TensorInfo
from odc_mlir.plugins.target import Costs, operator_model
from odc_mlir.targets.costs import load_host
from odc_openvino.importing import reason_of, to_openvino
from odc_openvino.machines import Machine, core
from odc_openvino.running import Runner

_MAX_CACHE_BYTES = 16 << 20
_MOST_RUNS = 50
_SECONDS = 0.005  # of measured runs
_SMALL = 64  # elements of constants that may decide which code runs
_PLANE = (1, 512, 512, 1)
_CALL_ROUNDS = 5


class Judgement(NamedTuple):
    """Reason why the device does not run an operator, None if it does; and its time there without the call's own."""

    reason: str | None
    ns: float


class Judge:
    """Judgements for one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        facts = "\0".join(("2", odc_mlir.__version__, *machine.facts()))
        name = f"openvino-{hashlib.sha256(facts.encode()).hexdigest()[:32]}.json"
        self._path = cache_folder() / "plugins" / name
        self._known = _read(self._path)

    def judge(self, node: Node) -> Judgement:
        """Return the judgement on an operator with known shapes."""
        return Judgement(*self._kept(_key(node), lambda: self._measure(node)))

    def costs(self) -> Costs:
        """Return the cost model: measured times of operators, calls and copies, and host kernels of such processors."""
        call_ns, copied_bytes_per_us = self._kept("call", self._measure_call)
        host = replace(
            load_host("x86-64", "the target openvino"), switch_ns=call_ns, transfer_bytes_per_us=copied_bytes_per_us
        )
        return Costs(lambda node: self.judge(node).ns, host)

    def _kept(self, key: str, measure: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        if key not in self._known:
            self._known[key] = list(measure())
            with suppress(OdcError, OSError):  # without a cache, the next process measures again
                make_folder(self._path.parent, within=cache_folder())
                write_file(self._path, json.dumps(_read(self._path) | self._known).encode())
        return self._known[key]

    def _measure(self, node: Node) -> Judgement:
        try:
            model = operator_model(node)
            converted = to_openvino(model)
            query = core().query_model(converted, self.machine.device)
            missing = {op.get_type_name() for op in converted.get_ops() if op.get_friendly_name() not in query}
            if missing:
                return Judgement(f"the device lacks {', '.join(sorted(missing))}", 0.0)
            inputs = _samples(node)
            expected = odc_mlir.run(write_model(model), inputs)
            runner = self._runner(converted)
            outputs = runner.run(inputs)
        except OdcError as error:
            return Judgement(error.message, 0.0)
        except Exception as error:  # OpenVINO has no common class of errors
            return Judgement(reason_of(error), 0.0)
        for ours, theirs in zip(outputs, expected, strict=True):
            if (problem := _difference(ours, theirs, self.machine.tolerance)) is not None:
                return Judgement(problem, 0.0)
        call_ns, _ = self._kept("call", self._measure_call)
        return Judgement(None, max(0.0, _time_ns(runner, inputs) - call_ns))

    def _runner(self, model: Any) -> Runner:
        compiled = core().compile_model(model, self.machine.device, self.machine.properties())
        return Runner(compiled, len(model.inputs), len(model.outputs))

    def _measure_call(self) -> tuple[float, float]:
        """Return the nanoseconds of a call that computes nothing, and the bytes per microsecond to and from it."""
        taken = []
        for shape in ((1, 1, 1, 1), _PLANE):
            x, y = (TensorInfo(name, "float32", shape) for name in "xy")
            node = Node(ops.get("RELU"), (x,), (y,))
            runner = self._runner(to_openvino(operator_model(node)))
            taken.append(min(_time_ns(runner, _samples(node)) for _ in range(_CALL_ROUNDS)))
        total_bytes = 2 * 4 * float(np.prod(_PLANE))
        return taken[0], 1000 * total_bytes / max(1.0, taken[1] - taken[0])


@lru_cache(maxsize=8)
def judge_of(machine: Machine) -> Judge:
    """Return the process's judge for a machine; raise OptionError for a missing device."""
    return Judge(machine)


def _key(node: Node) -> str:
    """Return a digest of what decides about support and time: options, types, shapes and small constants."""
    tensors = [
        None if info is None else (info.dtype, info.shape, info.is_const, _content(info))
        for info in (*node.operands, *node.results)
    ]
    options = sorted((name, str(value)) for name, value in node.options.items())
    facts = (node.spec.name, node.custom_code, node.custom_options.hex(), options, tensors)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _content(info: TensorInfo) -> str | None:
    if info.data is None or int(np.prod(info.static_shape)) > _SMALL:
        return None
    return bytes(info.data).hex()


def _samples(node: Node) -> list[Array]:
    """Return random inputs: floats in a range where most functions are defined, 0 as an index or number."""
    random = np.random.default_rng(3)
    found: list[Array] = []
    for info in node.operands:
        if info is not None and not info.is_const:
            value = random.uniform(0.05, 0.95, info.static_shape)
            found.append(
                value.astype(info.info.numpy) if info.dtype == "float32" else np.zeros(value.shape, info.info.numpy)
            )
    return found


def _difference(ours: Array, theirs: Array, tolerance: float) -> str | None:
    """Return how results differ from those of host kernels, None if they agree."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"it gives {ours.dtype} {list(ours.shape)} where host kernels give {theirs.dtype} {list(theirs.shape)}"
    if theirs.dtype.kind != "f":
        return None if np.array_equal(ours, theirs) else "its integers differ from those of host kernels"
    apart = float(np.max(np.abs(ours.astype(np.float64) - theirs), initial=0.0))
    largest = float(np.max(np.abs(theirs), initial=np.finfo(np.float32).tiny))
    agree = np.array_equal(ours, theirs, equal_nan=True) or apart <= tolerance * largest
    return None if agree else f"it differs from host kernels by {apart / largest:.1e} of the largest value"


def _time_ns(runner: Runner, inputs: Sequence[Array]) -> float:
    """Return the shortest time of a run; other work on the machine only adds to it."""
    best, end = np.inf, time.perf_counter() + _SECONDS
    for number in range(_MOST_RUNS):
        start = time.perf_counter()
        runner.run(inputs)
        best = min(best, time.perf_counter() - start)
        if number >= 2 and time.perf_counter() > end:
            break
    return 1e9 * best


def _read(path: Path) -> dict[str, list[Any]]:
    """Return the stored judgements; nothing of a missing or malformed file."""
    try:
        found = json.loads(read_file(path, max_bytes=_MAX_CACHE_BYTES))
    except (OdcError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
