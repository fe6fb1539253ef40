"""Execution of a package's plan: segments run on a device, other operators and failed segments by host kernels."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from odc_mlir.errors import InputError, OdcError, PackageError, SimulationError
from odc_mlir.formats.plan import HostStep, Plan, SegmentStep
from odc_mlir.formats.quantities import counted
from odc_mlir.formats.states import others
from odc_mlir.ops.check import type_text
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array, ResultType
from odc_mlir.plugins.foreign import contained, raised
from odc_mlir.runtime.devices import base
from odc_mlir.runtime.execution.binding import fits
from odc_mlir.runtime.execution.executor import SHAPES_KEPT, Executor, Prepared, Shapes
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.team import Team
from odc_mlir.runtime.execution.units import DirectRun, Event, Frame, SpecializedGraph, Step, Unit, operator_units

_log = logging.getLogger(__name__)

SegmentReader = Callable[[str], bytes]


class _DeviceRun(Protocol):
    def __call__(self, inputs: Sequence[Array], *, trace: bool = ...) -> base.DeviceResult: ...


def check_plan(plan: Plan, graph: Graph, location: str = "plan.json") -> None:
    """Check that a plan fits the model. Raises PackageError.

    Inputs and outputs must equal the graph's. Every operator must run in exactly one step, after all operands exist. A
    segment must bind every tensor that an operator reads from outside, and every tensor that is read outside.
    """

    def error(message: str) -> PackageError:
        return PackageError(message, location=location)

    if plan.inputs != graph.inputs or plan.outputs != graph.outputs:
        raise error("the inputs and outputs are not those of the model")
    planned = [index for step in plan.steps for index in step.operators]
    for index in (*planned, *plan.host_reasons):
        if index >= len(graph.nodes):
            raise error(f"operator {index} does not exist; the model has {len(graph.nodes)}")
    if sorted(planned) != list(range(len(graph.nodes))):
        raise error("each operator of the model must be in exactly one step")
    available = graph.available()
    for position, step in enumerate(plan.steps):
        if isinstance(step, SegmentStep):
            _check_segment(step, graph, error)
            reads: Iterable[int] = step.inputs
        else:
            reads = _reads_from_outside(graph, step.operators)
        for tensor in reads:
            if tensor not in available:
                raise error(f"steps[{position}] reads {graph.tensors[tensor].name!r} before anything produces it")
        available.update(
            step.outputs
            if isinstance(step, SegmentStep)
            else (tensor for index in step.operators for tensor in graph.nodes[index].outputs)
        )
    for tensor in graph.results:
        if tensor not in available:
            raise error(f"no step produces the output {graph.tensors[tensor].name!r}")


def _check_segment(step: SegmentStep, graph: Graph, error: Callable[[str], PackageError]) -> None:
    for tensor in (*step.inputs, *step.outputs):
        if tensor >= len(graph.tensors):
            raise error(f"{step.file} is bound to tensor {tensor}, but the model has {len(graph.tensors)}")
    inside = [graph.nodes[index] for index in step.operators]
    produced = {tensor for item in inside for tensor in (*item.outputs, *item.written)}
    for tensor in step.outputs:
        if tensor not in produced:
            raise error(f"{step.file} outputs {graph.tensors[tensor].name!r}, which none of its operators produces")
    known = {(state.input, state.output) for state in graph.states}
    known |= {(tensor, tensor) for tensor in step.inputs if graph.tensors[tensor].is_variable}
    for source, result in step.states:
        is_bound = source < len(step.inputs) and result < len(step.outputs)
        if not is_bound or (step.inputs[source], step.outputs[result]) not in known:
            raise error(f"{step.file} keeps input {source} and output {result}, which are no state of the model")
    for tensor in _reads_from_outside(graph, step.operators):
        info = graph.tensors[tensor]
        if tensor not in step.inputs and not info.is_const:
            raise error(f"{step.file} lacks input {info.name!r}, which one of its operators reads")


def _reads_from_outside(graph: Graph, operators: Iterable[int]) -> list[int]:
    produced: set[int] = set()
    reads: dict[int, None] = {}
    for index in operators:
        node = graph.nodes[index]
        reads.update((i, None) for i in node.inputs if i >= 0 and i not in produced)
        produced.update(node.outputs)
    return list(reads)


_REPLAYED = 16  # runs between copies of the device's states


class SegmentUnit(Unit):
    """A segment on ``device``. ``failure``: why host kernels run the segment instead, None while the device works.
    ``misfit``: why host kernels ran it in the last run, None if the inputs fitted.

    The first run writes the states to the device. Afterwards only the device has the states. To continue after a
    failure of the device, the unit keeps a copy of the states, at most 16 runs old, and all later inputs.
    """

    def __init__(
        self, step: SegmentStep, graph: Graph, device: base.Device, read: SegmentReader, *, strict: bool
    ) -> None:
        self.step = step
        self.strict = strict
        self.reads, self.writes = step.inputs, step.outputs
        self.failure: str | None = None
        self.misfit: str | None = None
        self.is_told = False  # whether the log has a misfit
        self.program: base.DeviceProgram | None = None
        self.counters: Mapping[str, Any] | None = None
        self.trace: Any = None
        self.keep_trace = False
        self._graph = graph
        self._copy: list[Array] | None = None  # copy of the states; None: the device has no states
        self._inputs_since: list[list[Array]] = []
        try:
            data = read(step.file)
            with contained(PackageError, "the device failed"):
                program = device.load(data)
                self._check_ports(program)
                if isinstance(program, base.StatefulProgram) and tuple(program.states) != step.states:
                    raise PackageError(f"{step.file} keeps the states {program.states}, the plan says {step.states}")
            self.program = program
        except OdcError as error:
            self._give_up("load", error)  # the executor logs the reason

    def _check_ports(self, program: base.DeviceProgram) -> None:
        for what, ports, tensors in (
            ("input", program.inputs, self.step.inputs),
            ("output", program.outputs, self.step.outputs),
        ):
            if len(ports) != len(tensors):
                raise PackageError(f"{self.step.file} has {counted(len(ports), what)}, the plan binds {len(tensors)}")
            for port, tensor in zip(ports, tensors, strict=True):
                if port.dtype != self._graph.tensors[tensor].dtype:
                    raise PackageError(
                        f"{self.step.file} has {what}s of {port.dtype} where the model has "
                        f"{self._graph.tensors[tensor].dtype}",
                        tensor=port.name,
                    )
                # Results of direct programs are not checked. Results of other programs are checked in every run.
                direct = isinstance(program, base.DirectProgram)
                if direct and not fits(self._graph.tensors[tensor].shape, port.shape):
                    raise PackageError(
                        f"{self.step.file} has {what}s of shape {list(port.shape)}, which the model does not allow",
                        tensor=port.name,
                    )

    def cycles(self) -> int | None:
        """Return the cycles of a run on the device, or None for host kernels and machines that model no cycles."""
        if not isinstance(self.program, base.ModelledProgram) or self.failure is not None:
            return None
        try:
            counters = self.counters or self.program.measure().counters
        except OdcError:
            return None
        return counters.get("cycles")

    def takes(self, shaped: SpecializedGraph) -> bool:
        """Return whether the program may take tensors of these shapes, or failed for another reason."""
        pairs = () if self.program is None else zip(self.program.inputs, self.reads, strict=True)
        return self.failure is not None or all(fits(shaped.tensors[i].shape, port.shape) for port, i in pairs)

    def prepare(self, shaped: SpecializedGraph) -> Step | None:
        """Return the step of the loaded program, if any. Prepare host kernels if host kernels run the segment."""
        if self.failure is not None:
            for index in self.step.operators:
                shaped.prepare(index)
        program = self.program
        if self.failure is not None or not isinstance(program, base.DirectProgram):
            return None
        if any(shaped.tensors[tensor].is_variable for tensor in (*self.reads, *self.writes)):
            return None  # state is not among the values of a run
        pairs = zip(program.inputs, self.reads, strict=True)
        is_same = all(shaped.tensors[tensor].shape == port.shape for port, tensor in pairs)
        return program.step(self.reads, self.writes) if is_same else None

    def run(self, frame: Frame) -> None:
        """Run on the device. After a failure, keep the reason and run the segment's operators by host kernels.

        A rejected input value does not count as a failure.
        """
        misfit = self.misfit = self._misfit(frame)
        kept = self.program if self.step.states and isinstance(self.program, base.StatefulProgram) else None
        if self.program is not None and self.failure is None and misfit is None:
            try:
                if kept is None:
                    self._finish(frame, self.reads, self.writes, self.program.outputs, self.program.run)
                else:
                    self._run_with_states(frame, kept)
                return
            except InputError:  # host kernels reject the value too, and name the operator
                if self.strict:
                    raise
            except OdcError as error:
                self._give_up("run", error)
                _log_failures([self])
        elif misfit is not None and self.failure is None:
            if self.strict:
                raise PackageError(misfit, location=self.step.file)
            if not self.is_told:
                _log.warning("%s: %s; host kernels run it this time", self.step.file, misfit)
            self.is_told = True
        self._take_states_back(frame)
        frame.stand_in(self.step.operators, self.writes)

    def _run_with_states(self, frame: Frame, program: base.StatefulProgram) -> None:
        """Run with the states on the device. If the device has none, write the frame's states to it first."""
        with contained(SimulationError, "the device failed"):
            if self._copy is None:
                self._copy = [frame.value(self.reads[place]).copy() for place, _ in self.step.states]
                program.write_states(self._copy)
            inputs, outputs = self.step.passed
            ports = others(program.outputs, (place for _, place in self.step.states))
            self._finish(frame, inputs, outputs, ports, program.run_kept)
            if frame.watched:
                frame.put(
                    {self.writes[new]: v for (_, new), v in zip(self.step.states, program.read_states(), strict=True)}
                )
            self._inputs_since.append([frame.value(index).copy() for index in inputs])
            if len(self._inputs_since) >= _REPLAYED:
                self._copy, self._inputs_since = list(program.read_states()), []

    def states(self) -> dict[int, Array]:
        """Return the states on the device (none, if it has none) by state input tensor. Raises OdcError."""
        if self._copy is None or not isinstance(self.program, base.StatefulProgram):
            return {}
        with contained(SimulationError, "the device failed"):
            values = self.program.read_states()
        return {self.reads[place]: value for (place, _), value in zip(self.step.states, values, strict=True)}

    def forget_states(self) -> None:
        """Discard the states on the device. The next run writes the frame's states again."""
        self._copy, self._inputs_since = None, []

    def _take_states_back(self, frame: Frame) -> None:
        """Compute the device's states from the last copy by host kernels, and put the states into ``frame``."""
        if self._copy is None:
            return
        held = {self.reads[place]: value for (place, _), value in zip(self.step.states, self._copy, strict=True)}
        inputs, _ = self.step.passed
        for values in self._inputs_since:
            given = dict(zip(inputs, values, strict=True))
            earlier = Frame(frame.shaped, given, frame.variables, frame.calls, None)
            earlier.put(held)
            earlier.stand_in(self.step.operators, self.writes)
            held = {self.reads[place]: earlier.value(self.writes[new]) for place, new in self.step.states}
        frame.put(held)
        self.forget_states()

    def _finish(
        self, frame: Frame, reads: Sequence[int], writes: Sequence[int], ports: Sequence[base.Port], run: _DeviceRun
    ) -> None:
        start = time.perf_counter()
        inputs = [frame.value(i) for i in reads]
        try:
            result = run(inputs, trace=self.keep_trace)
        except OdcError:
            raise
        except (Exception, SystemExit) as error:
            raise SimulationError(f"the device failed: {raised(error)}") from error
        for port, value in zip(ports, result.outputs, strict=True):
            if value.shape != port.shape:
                raise SimulationError(f"the device gave the shape {value.shape}, not {port.shape}", tensor=port.name)
        frame.put(dict(zip(writes, result.outputs, strict=True)))
        self.counters, self.trace = result.counters, result.trace
        if frame.observe is not None:
            frame.observe(Event(self.step.name, "SEGMENT", "segment", start, time.perf_counter() - start))

    def _misfit(self, frame: Frame) -> str | None:
        if self.program is None:
            return None
        for port, tensor in zip(self.program.inputs, self.reads, strict=True):
            shape = frame.value(tensor).shape
            if shape != port.shape:
                wanted = type_text(ResultType(port.dtype, port.shape))
                return f"it was compiled for {port.name!r} as {wanted}, the input has the shape {list(shape)}"
        return None

    def _give_up(self, action: str, error: OdcError) -> None:
        if self.strict:
            raise error
        self.failure = f"cannot {action} the segment: {error}"


def _log_failures(segments: Iterable[SegmentUnit]) -> None:
    reasons: dict[str, list[str]] = {}
    for unit in segments:
        if unit.failure is not None:
            reasons.setdefault(unit.failure, []).append(unit.step.file)
    for reason, files in reasons.items():
        _log.warning("%s: %s; host kernels run it instead", ", ".join(files), reason)


class _ShapedUnit(Unit):
    """A whole graph for one set of input shapes: ``executor`` runs code that was compiled for these shapes."""

    def __init__(self, graph: Graph, executor: Executor) -> None:
        self.reads, self.writes = graph.inputs, graph.outputs
        self._executor = executor

    def step(self, values: dict[int, Array]) -> None:
        """Run on the inputs in ``values``, and add the outputs."""
        values.update(zip(self.writes, self._executor.run([values[index] for index in self.reads]), strict=True))

    def run(self, frame: Frame) -> None:
        found = self._executor.run([frame.value(index) for index in self.reads], observe=frame.observe)
        frame.put(dict(zip(self.writes, found, strict=True)))


class PlanExecutor(Executor):
    """Executor that runs ``graph`` as in ``plan``. ``read`` returns the bytes of a segment's file.

    Host kernels replace a segment that cannot be loaded or run, with the same results. :attr:`fallbacks` holds the
    reasons. With ``strict``, failures are errors. ``recompile`` returns an executor of code for other input shapes. It
    is called for at most four sets of shapes. Host kernels run the others. Raises PackageError for a plan that does not
    fit the model.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        device: base.Device,
        read: SegmentReader,
        *,
        strict: bool = False,
        recompile: Callable[[Shapes], Executor] | None = None,
        context: Context | None = None,
        location: str = "plan.json",
        **options: Any,
    ) -> None:
        check_plan(plan, graph, location)
        self.plan = plan
        self._recompile = recompile
        self._others: dict[Shapes, Executor | None] = {}
        threads = 1 if context is None or context.threads is None else context.threads
        self._team = Team(threads) if threads > 1 else None
        units: list[Unit] = []
        for step in plan.steps:
            if isinstance(step, HostStep):
                units += operator_units(graph, step.operators)
            else:
                units.append(unit := SegmentUnit(step, graph, device, read, strict=strict))
                if self._team is not None and isinstance(unit.program, base.DivisibleProgram):
                    unit.program.divide(self._team)
        super().__init__(graph, units, context=context, **options)
        _log_failures(self.segments)

    def _prepare(self, shapes: Shapes) -> Prepared:
        is_new = shapes not in self._prepared
        prepared = super()._prepare(shapes)
        if is_new and (executor := self._other(shapes, prepared.shaped)) is not None:
            unit = _ShapedUnit(self.graph, executor)
            program = ((unit, unit.step, (), ()),)
            prepared = self._prepared[shapes] = prepared._replace(
                program=program, straight=unit.step, quietly=unit.step
            )
        return prepared

    def _other(self, shapes: Shapes, shaped: SpecializedGraph) -> Executor | None:
        """Return an executor of code for other input shapes, or None if the plan or host kernels run these shapes."""
        # Without a segment, the compiler may lack dimensions of inputs.
        is_known = bool(self.segments) or not any(None in (i.shape or (None,)) for i in self.graph.input_infos())
        if self._recompile is None or (is_known and all(unit.takes(shaped) for unit in self.segments)):
            return None
        if shapes not in self._others and len(self._others) < SHAPES_KEPT:
            try:
                self._others[shapes] = self._recompile(shapes)
            except OdcError as error:
                if None not in self._others.values():
                    _log.warning("no code for inputs of %s: %s", ", ".join(map(str, map(list, shapes))), error)
                self._others[shapes] = None
        return self._others.get(shapes)

    def device_states(self) -> dict[int, Array]:
        return {tensor: value for unit in self.segments for tensor, value in unit.states().items()}

    def forget_device_states(self) -> None:
        for unit in self.segments:
            unit.forget_states()

    def _direct_run(self) -> DirectRun | None:
        """Return the function of the only segment if it computes all outputs from all inputs, and needs no checks."""
        graph, segments = self.graph, self.segments
        program = segments[0].program if len(segments) == len(self.units) == 1 else None
        narrow = any(info.info.is_integer and info.info.bits < 8 for info in graph.input_infos())
        if not isinstance(program, base.DirectProgram) or graph.states or narrow:
            return None
        reads, writes = segments[0].reads, segments[0].writes
        if sorted(reads) != sorted(graph.inputs) or not set(writes) >= set(graph.outputs):
            return None
        return program.direct([*map(reads.index, graph.inputs)], [*map(writes.index, graph.outputs)])

    def close(self) -> None:
        """End the threads of native code."""
        if self._team is not None:
            self._team.close()
        for executor in filter(None, self._others.values()):
            executor.close()

    @property
    def segments(self) -> tuple[SegmentUnit, ...]:
        return tuple(unit for unit in self.units if isinstance(unit, SegmentUnit))

    @property
    def fallbacks(self) -> dict[str, str]:
        """Reasons why host kernels run segments, by segment name. Empty if every segment works."""
        return {unit.step.name: unit.failure for unit in self.segments if unit.failure is not None}
