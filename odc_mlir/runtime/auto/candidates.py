"""Candidate executors: opened from results, and verified against host kernels before the first answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from odc_mlir.calibration.recorded import Shapes
from odc_mlir.errors import OdcError, SimulationError, UnsupportedError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.package import is_package
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.auto.aim import ExecutorOptions
from odc_mlir.runtime.auto.artefacts import Artefact
from odc_mlir.runtime.auto.settings import Fallback, Level
from odc_mlir.runtime.devices import open_device
from odc_mlir.runtime.devices.base import tolerance_of
from odc_mlir.runtime.execution.executor import Executor, HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.runtime.package import Package


@dataclass(slots=True, eq=False)
class ExecutorCandidate:
    """An executor that answers at ``level``. ``twin`` runs the same model by host kernels and must agree with it.

    ``tolerance``: allowed difference of float values, as a share of the largest value, because native code sums in
        another order. Codes must be equal. No application waits for a simulator. Once a ``simulated`` candidate agrees
        with the twin, native code of the same model (``native``) answers if results are bit-equal. Otherwise host
        kernels answer. ``cycles``: simulated cycles of a run. ``notes``: why native code does not answer.
    """

    level: Level
    executor: Executor
    twin: Executor | None = None
    verified: bool = True
    tolerance: float = 0.0
    simulated: bool = False
    cycles: int | None = None
    simulation: Executor | None = None
    native: Executor | None = None
    notes: list[Fallback] = field(default_factory=list)

    def verify(self, inputs: Sequence[Array]) -> None:
        """Compare one run with host kernels on the same model. Raises OdcError if results differ."""
        outputs = self.executor.run(inputs)
        if self.twin is not None:
            for index, (ours, theirs) in enumerate(zip(outputs, self.twin.run(inputs), strict=True)):
                if not _agree(ours, theirs, self.tolerance):
                    differing = int(np.count_nonzero(ours != theirs)) if ours.shape == theirs.shape else ours.size
                    info = self.executor.graph.output_infos()[index]
                    raise SimulationError(
                        f"device and host compute different values: {differing} of {ours.size} values differ",
                        tensor=info.name,
                        stage="proof",
                    )
            if self.simulated:
                native = self._verified_native(inputs, outputs)
                self.simulation, self.executor = self.executor, native or self.twin
                self.cycles = _cycles(self.simulation)
        self.verified, self.twin, self.native = True, None, None

    def _verified_native(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Executor | None:
        if self.native is None:
            return None
        try:
            found = self.native.run(inputs)
            if all(map(_equal, found, outputs)):
                return self.native
            reason = "native code and simulator compute different values: host kernels answer"
        except OdcError as error:
            reason = str(error)
        self.notes.append(Fallback("twin", "proof", reason))
        return None

    def failures(self) -> list[Fallback]:
        """Return the failures of segments that host kernels run instead."""
        executors = [item for item in (self.simulation, self.executor) if item is not None]
        failed = {name: reason for executor in executors for name, reason in executor.fallbacks.items()}
        return [*self.notes, *(Fallback(f"segment {name}", "run", reason) for name, reason in failed.items())]


def _cycles(executor: Executor) -> int | None:
    segments = executor.segments if isinstance(executor, PlanExecutor) else ()
    found = [unit.cycles() for unit in segments if unit.failure is None]
    known = [cycles for cycles in found if cycles is not None]
    return sum(known) if known else None


def _equal(ours: Array, theirs: Array) -> bool:
    return ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


def _agree(ours: Array, theirs: Array, tolerance: float) -> bool:
    if _equal(ours, theirs):
        return True
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype or not tolerance or ours.dtype.kind != "f":
        return False
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return False
    apart = np.abs(ours[finite].astype(np.float64) - theirs[finite])
    return bool(np.all(apart <= tolerance * np.max(np.abs(theirs[finite]), initial=np.finfo(np.float32).tiny)))


@dataclass(slots=True)
class Opened:
    """The usable candidates of a result, best first, and the failures of unusable candidates."""

    candidates: list[ExecutorCandidate] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)


def open_artefact(
    artefact: Artefact, original: Graph, shapes: Shapes, options: ExecutorOptions, inputs: Sequence[Array] | None = None
) -> Opened:
    """Return executors for a result, ready for inputs of ``shapes``. Never raises: the result includes failures.

    The executors must have the inputs and outputs of the graph ``original``. Candidates are verified on ``inputs``, if
    given and of the right types.
    """
    opened = Opened()
    makers = []
    if artefact.compiled is not None:
        direct = artefact.result.level == Level.DIRECT
        makers.append((Level.DIRECT if direct else Level.COMPILED, artefact.compiled, _compiled))
    if artefact.model is not None:
        makers.append((Level.QUANTIZED, artefact.model, _on_host))
    for level, path, make in makers:
        try:
            candidate = make(level, path, options)
            _check_interface(candidate.executor.graph, original)
            candidate.executor.prepare(shapes)
            if candidate.twin is not None:
                candidate.twin.prepare(shapes)
            if candidate.simulated and artefact.twin is not None:
                candidate.native, problem = _native_twin(artefact.twin, shapes, options)
                candidate.notes += [] if problem is None else [Fallback("twin", "load", problem)]
            types = [[info.dtype for info in graph.input_infos()] for graph in (candidate.executor.graph, original)]
            if inputs is not None and not candidate.verified and types[0] == types[1]:
                candidate.verify(inputs)
            opened.candidates.append(candidate)
        except OdcError as error:
            opened.fallbacks.append(Fallback(str(level), "run" if error.stage == "proof" else "load", str(error)))
    return opened


def _compiled(level: Level, path: Path, options: ExecutorOptions) -> ExecutorCandidate:
    if not is_package(path):
        return _on_host(level, path, options)
    package = Package.from_path(path, cache=options.cache)
    if package.plan is None:
        raise UnsupportedError("the package has no plan", location=str(path))
    limits: dict[str, Any] = {"resize": True, "max_bytes": options.max_bytes}
    executor = package.executor("npu", context=options.context(), **limits)
    units = executor.segments if isinstance(executor, PlanExecutor) else ()
    if isinstance(executor, PlanExecutor) and not any(unit.failure is None for unit in units):
        reasons = "; ".join(dict.fromkeys(executor.fallbacks.values())) or "nothing in it is for the device"
        raise UnsupportedError(reasons, location=str(path))
    twin = HostExecutor(executor.graph, context=options.context(), **limits)
    device = open_device(package.plan.extension)
    tolerance = 0.0 if device.simulated else max((tolerance_of(unit.program) for unit in units), default=0.0)
    return ExecutorCandidate(level, executor, twin, verified=False, tolerance=tolerance, simulated=device.simulated)


def _native_twin(path: Path, shapes: Shapes, options: ExecutorOptions) -> tuple[Executor | None, str | None]:
    try:
        executor = Package.from_path(path, cache=options.cache).executor(
            context=options.context(), resize=True, max_bytes=options.max_bytes
        )
        executor.prepare(shapes)
    except OdcError as error:
        return None, str(error)
    reasons = "; ".join(dict.fromkeys(executor.fallbacks.values()))
    return (None, reasons) if reasons else (executor, None)


def _on_host(level: Level, path: Path, options: ExecutorOptions) -> ExecutorCandidate:
    context = options.context()
    graph = build_graph(read_model(path), custom_ops=context.custom_ops)
    return ExecutorCandidate(level, HostExecutor(graph, resize=True, max_bytes=options.max_bytes, context=context))


def _check_interface(graph: Graph, original: Graph) -> None:
    for what, ours, theirs in (
        ("input", graph.input_infos(), original.input_infos()),
        ("output", graph.output_infos(), original.output_infos()),
    ):
        if len(ours) != len(theirs):
            raise UnsupportedError(f"the compiled model has {counted(len(ours), what)}, the original has {len(theirs)}")
        for our, their in zip(ours, theirs, strict=True):
            if our.dtype != their.dtype and not (their.dtype == "float32" and our.quant is not None):
                raise UnsupportedError(f"the compiled model has {our.dtype} {what}s, the original {their.dtype}")
