"""Plans are compared with their model, and host kernels stand in for whatever a device fails to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from helpers.models import add_model, host_plan
from odc_mlir import targets
from odc_mlir.errors import InputError, OdcError, PackageError, SimulationError
from odc_mlir.formats.plan import HostStep, Plan, SegmentStep
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.devices.base import DeviceResult, Port
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.execution.plan import PlanExecutor, check_plan
from odc_mlir.runtime.execution.units import Event

SEGMENT = SegmentStep("segment-0.npu", (0, 1), (2,), (0,))
PLAN = Plan("model.circle", (0, 1), (3,), (SEGMENT, HostStep((1,))))


class AddDevice:
    """Computes ``a + b`` as its only program; ``fail`` is called first and may raise."""

    name = "adder"

    def __init__(self, fail_load: Exception | None = None, fail_run: Exception | None = None, **ports: Any) -> None:
        self.fail_load, self.fail_run = fail_load, fail_run
        self.target = targets.load("npu-256")
        self.inputs = ports.get("inputs", (Port("a", "float32", (1, 4)), Port("b", "float32", (1, 4))))
        self.outputs = (Port("sum", "float32", ports.get("output_shape", (1, 4))),)
        self.runs = 0

    def load(self, data: bytes) -> AddDevice:
        assert data == b"binary"
        if self.fail_load is not None:
            raise self.fail_load
        return self

    def run(self, inputs: Sequence[Array], *, trace: bool = False) -> DeviceResult:
        self.runs += 1
        if self.fail_run is not None:
            raise self.fail_run
        return DeviceResult((inputs[0] + inputs[1],), {"cycles": 7}, ["trace"] if trace else None)

    def measure(self, memory_model: str = "parity") -> DeviceResult:
        return DeviceResult((), {"cycles": 7})


def _executor(device: AddDevice, **options: Any) -> PlanExecutor:
    graph = build_graph(add_model((1, 4), signature=(-1, 4)))
    return PlanExecutor(graph, PLAN, device, lambda file: b"binary", **options)


def _run(executor: PlanExecutor, batch: int = 1, **options: Any) -> Array:
    a, b = np.full((batch, 4), 2, np.float32), np.full((batch, 4), 3, np.float32)
    (out,) = executor.run([a, b], **options)
    np.testing.assert_array_equal(out, a + b + a)
    return out


def test_segment_and_host_steps() -> None:
    device = AddDevice()
    executor = _executor(device)
    events: list[Event] = []
    _run(executor, observe=events.append)
    assert [(event.name, event.kind) for event in events] == [("segment-0", "segment"), ("out", "host")]
    assert device.runs == 1
    assert executor.fallbacks == {}
    assert executor.segments[0].counters == {"cycles": 7}


def test_trace_is_kept_when_asked_for() -> None:
    executor = _executor(AddDevice())
    _run(executor)
    assert executor.segments[0].trace is None
    executor.segments[0].keep_trace = True
    _run(executor)
    assert executor.segments[0].trace == ["trace"]


def test_failing_to_load_falls_back(caplog: pytest.LogCaptureFixture) -> None:
    device = AddDevice(fail_load=PackageError("it is damaged"))
    executor = _executor(device)
    _run(executor)
    assert device.runs == 0
    assert executor.fallbacks == {"segment-0": "cannot load the segment: it is damaged"}
    assert "segment-0.npu: cannot load the segment: it is damaged; host kernels run it instead" in caplog.text


@pytest.mark.parametrize("failure", [SimulationError("deadlock"), RuntimeError("oops")])
def test_failing_to_run_falls_back_for_good(failure: Exception) -> None:
    device = AddDevice(fail_run=failure)
    executor = _executor(device)
    for _ in range(2):
        _run(executor)
    assert device.runs == 1
    assert str(failure) in executor.fallbacks["segment-0"]


def test_a_refused_value_is_no_failure_of_the_segment() -> None:
    """The host's kernels say what they think of it; the next run is the device's again."""
    device = AddDevice(fail_run=InputError("index 7 is out of range"))
    executor = _executor(device)
    for _ in range(2):
        _run(executor)
    assert device.runs == 2
    assert executor.fallbacks == {}
    with pytest.raises(InputError, match="index 7"):
        _run(_executor(device, strict=True))


def test_another_shape_falls_back_for_that_run_only(caplog: pytest.LogCaptureFixture) -> None:
    device = AddDevice()
    executor = _executor(device)
    _run(executor, batch=2)
    assert device.runs == 0
    assert "compiled for 'a' as float32[1, 4], the input has the shape [2, 4]" in caplog.text
    _run(executor, batch=1)
    assert device.runs == 1
    assert executor.fallbacks == {}


def test_strict_raises_instead() -> None:
    with pytest.raises(PackageError, match="it is damaged"):
        _executor(AddDevice(fail_load=PackageError("it is damaged")), strict=True)
    with pytest.raises(SimulationError, match="deadlock"):
        _run(_executor(AddDevice(fail_run=SimulationError("deadlock")), strict=True))
    with pytest.raises(SimulationError, match="the device failed: RuntimeError: oops"):
        _run(_executor(AddDevice(fail_run=RuntimeError("oops")), strict=True))
    with pytest.raises(PackageError, match="compiled for"):
        _run(_executor(AddDevice(), strict=True), batch=2)


@pytest.mark.parametrize(
    ("ports", "text"),
    [
        ({"inputs": (Port("a", "float32", (1, 4)),)}, "has 1 input, the plan binds 2"),
        ({"inputs": (Port("a", "int8", (1, 4)), Port("b", "int8", (1, 4)))}, "inputs of int8 .* has float32"),
    ],
)
def test_a_program_that_does_not_fit_the_model(ports: dict[str, Any], text: str) -> None:
    with pytest.raises(PackageError, match=text):
        _executor(AddDevice(**ports), strict=True)
    executor = _executor(AddDevice(**ports))
    _run(executor)
    assert "cannot load" in executor.fallbacks["segment-0"]


def test_a_device_that_gives_another_shape() -> None:
    with pytest.raises(SimulationError, match=r"gave the shape \(1, 4\), not \(1, 5\)"):
        _run(_executor(AddDevice(output_shape=(1, 5)), strict=True))


def test_a_plan_of_host_steps() -> None:
    model = add_model()
    check_plan(host_plan(model), build_graph(model))


Change = Callable[[Plan], Plan]


def _steps(*steps: HostStep | SegmentStep) -> Change:
    return lambda plan: dataclasses.replace(plan, steps=steps)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda plan: dataclasses.replace(plan, inputs=(1, 0)), "not those of the model"),
        (lambda plan: dataclasses.replace(plan, outputs=(2,)), "not those of the model"),
        (lambda plan: dataclasses.replace(plan, host_reasons={2: "?"}), "operator 2 does not exist; the model has 2"),
        (_steps(SEGMENT), "exactly one step"),
        (_steps(SEGMENT, HostStep((0, 1))), "exactly one step"),
        (_steps(SEGMENT, HostStep((1, 2))), "operator 2 does not exist"),
        (_steps(HostStep((1,)), SEGMENT), r"steps\[0\] reads 'sum' before anything produces it"),
        (_steps(HostStep((1, 0))), r"steps\[0\] reads 'sum' before"),
        (_steps(dataclasses.replace(SEGMENT, inputs=(0,)), HostStep((1,))), "lacks input 'b'"),
        (_steps(dataclasses.replace(SEGMENT, inputs=(0, 9)), HostStep((1,))), "bound to tensor 9, .* has 4"),
        (_steps(dataclasses.replace(SEGMENT, outputs=(3,)), HostStep((1,))), "outputs 'out', which none of its"),
        (_steps(dataclasses.replace(SEGMENT, outputs=()), HostStep((1,))), r"steps\[1\] reads 'sum'"),
        (_steps(SegmentStep("a.npu", (0, 1), (2,), (0, 1))), "no step produces the output 'out'"),
        (_steps(SegmentStep("a.npu", (0, 1, 3), (3,), (0, 1))), r"steps\[0\] reads 'out' before"),
    ],
)
def test_plans_that_do_not_fit_the_model(change: Change, text: str) -> None:
    graph = build_graph(add_model())
    check_plan(PLAN, graph)
    with pytest.raises(PackageError, match=text) as raised:
        check_plan(change(PLAN), graph, "here/plan.json")
    assert raised.value.location == "here/plan.json"


def test_errors_of_a_device_are_typed() -> None:
    with pytest.raises(OdcError):
        _run(_executor(AddDevice(fail_run=MemoryError()), strict=True))
