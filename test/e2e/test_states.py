"""States on the NPU simulator: the same numbers as on the host, whatever happens to the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers import stateful
from helpers.stateful import REAL, StatefulNet
from odc_mlir import compiler, simulator
from odc_mlir.errors import OptionError, PackageError, SimulationError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.isa.container import STATES, read, write
from odc_mlir.runtime import Session
from odc_mlir.runtime.devices.simulator import SimulatorProgram
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

Array = np.ndarray[Any, Any]
NETWORKS = (stateful.gru, stateful.lstm, stateful.dtln, stateful.ring)


def inputs(model: Model, count: int) -> list[Array]:
    shape = model.subgraphs[0].tensors[0].shape
    assert shape is not None
    rng = np.random.default_rng(0)
    return [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(count)]


def answers(session: Session, xs: Sequence[Array]) -> list[list[Any]]:
    return [[value.tolist() for value in session.infer([x])] for x in xs]


def on_host(model: Model, xs: Sequence[Array]) -> tuple[list[list[Any]], dict[str, Any]]:
    with Session(bytes(write_model(model))) as session:
        return answers(session, xs), listed(session)


def listed(session: Session) -> dict[str, Any]:
    return {name: value.tolist() for name, value in session.get_state().items()}


def compiled(model: Model, kept: int | None = None, **options: Any) -> odc_mlir.Package:
    package = odc_mlir.compile(bytes(write_model(model)), **options)
    assert package.plan is not None
    (segment,) = package.plan.segments
    if kept is not None:
        assert len(segment.states) == kept
    return package


@pytest.mark.parametrize("make", NETWORKS)
@pytest.mark.parametrize("memory", ["flash", "sram"])
def test_states_stay_on_the_device(make: Callable[[], Model], memory: str) -> None:
    model = make()
    xs = inputs(model, 40)
    wanted, end = on_host(model, xs)
    package = compiled(model, kept=len(end), memory=memory, strict=True)
    with Session(package, strict=True) as session:
        assert answers(session, xs) == wanted
        assert listed(session) == end
    program = read(package.files.segment(package.plan.segments[0].file)) if package.plan else None
    assert program is not None
    assert len({program.inputs[source].offset for source, _ in program.states}) == len(end)


@pytest.mark.parametrize(("quant", "kept"), [(REAL, 1), ((1 / 16, 0), 0)])
def test_states_with_float_ends_are_kept_as_codes(quant: tuple[float, int], kept: int) -> None:
    net = StatefulNet()
    x, h = net.real("x", 1, 1, 16), net.tensor("h", (1, 1, 16), "float32")
    net.inputs, net.outputs = [x, h], []
    new = net.binary("ADD", "new", x, net.apply("QUANTIZE", "codes", [h], (1, 1, 16), quant=quant))
    shown = net.tensor("shown", (1, 1, 16), "float32")
    net.operator("DEQUANTIZE", [new], [shown])
    net.keep(shown, h)
    model = net.declared([net.binary("MUL", "y", new, x)])
    xs = inputs(model, 40)
    wanted, end = on_host(model, xs)
    package = compiled(model, kept=kept, placement={"strategy": "supported"})
    with Session(package, strict=kept > 0) as session:
        assert answers(session, xs) == wanted
        state = session.get_state()["h"] * (REAL[0] if kept else 1)
        assert state.tolist() == end["h"]


def test_a_driver_without_states_gets_them_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    model = stateful.lstm(size=8)
    xs = inputs(model, 4)
    wanted, end = on_host(model, xs)
    package = compiled(model, kept=2)
    monkeypatch.delattr(SimulatorProgram, "run_kept")
    with Session(package, strict=True) as session:
        assert answers(session, xs) == wanted
        assert listed(session) == end


def test_only_inputs_and_outputs_without_states_are_transferred() -> None:
    data = bytes(write_model(stateful.lstm()))
    kept, shown = (odc_mlir.compile(data, states=states).modelled.to_dict() for states in (None, {}))
    assert kept["npu_ms"] == shown["npu_ms"]
    assert kept["transfer_ms"] < 0.5 * shown["transfer_ms"]


def _net() -> tuple[StatefulNet, int, int]:
    net = StatefulNet()
    x, h = net.real("x", 1, 1, 16), net.real("h", 1, 1, 16)
    net.inputs, net.outputs = [x, h], []
    return net, x, h


def _sum() -> Model:
    """The layer that computes the next state reads the last one; the application sees the new one."""
    net, x, h = _net()
    new = net.keep(net.binary("ADD", "new", x, h), h)
    return net.declared([new])


def _delay() -> Model:
    """The application sees the state that another value replaces."""
    net, x, h = _net()
    net.keep(net.binary("ADD", "new", x, x), h)
    return net.declared([net.binary("ADD", "y", h, h)])


def _turned(net: StatefulNet, name: str, value: int) -> int:
    axes = net.tensor(f"{name}/axes", (3,), "int32", data=np.array([1, 0, 2], np.int32))
    return net.apply("TRANSPOSE", name, [value, axes], (1, 1, 16))


def _exchange() -> Model:
    """Two states take each other's place."""
    net, x, h = _net()
    g = net.real("g", 1, 1, 16)
    net.inputs.append(g)
    y = net.binary("SUB", "y", net.binary("ADD", "sum", x, h), g)
    net.keep(_turned(net, "h/next", g), h)
    net.keep(_turned(net, "g/next", net.binary("MAXIMUM", "most", h, x)), g)
    return net.declared([y])


def _twice() -> Model:
    """One value replaces two states."""
    net, x, h = _net()
    g = net.real("g", 1, 1, 16)
    net.inputs.append(g)
    new = net.binary("ADD", "new", x, net.binary("SUB", "difference", h, g))
    net.keep(net.keep(new, h), g)
    return net.declared([net.binary("ADD", "y", h, x)])


def _equal() -> Model:
    """The next state is computed twice; one of the two goes, and its name with it."""
    net, x, h = _net()
    first, second = (net.apply("RELU", name, [x], (1, 1, 16)) for name in ("first", "second"))
    net.keep(second, h)
    return net.declared([net.binary("ADD", "y", first, h), first])


def _wide() -> Model:
    """A layer and an addition that are computed tile by tile, and both read the state."""
    net = StatefulNet()
    x, h = net.real("x", 1, 12, 12, 48), net.real("h", 1, 12, 12, 48)
    net.inputs, net.outputs = [x, h], []
    weights, bias = net.weights("layer", 48, 3, 3, 48)
    fields = {"padding": "same", "stride_w": 1, "stride_h": 1}
    layer = net.apply("CONV_2D", "layer", [h, weights, bias], (1, 12, 12, 48), quant=REAL, **fields)
    net.keep(net.binary("ADD", "new", layer, x), h)
    return net.declared([net.apply("RELU", "y", [x], (1, 12, 12, 48))])


@pytest.mark.parametrize("make", [_sum, _delay, _exchange, _twice, _equal, _wide])
@pytest.mark.parametrize("memory", ["flash", "sram"])
def test_updates_read_what_the_states_held_before(make: Callable[[], Model], memory: str) -> None:
    model = make()
    xs = inputs(model, 6)
    wanted, end = on_host(model, xs)
    package = compiled(model, memory=memory, placement={"strategy": "supported"})
    with Session(package, strict=True) as session:
        assert answers(session, xs) == wanted
        assert listed(session) == end


@pytest.mark.parametrize("memory", ["flash", "sram"])
def test_rows_are_appended_to_a_cache_in_place(memory: str) -> None:
    model = stateful.cache()
    package = compiled(model, kept=1, memory=memory, strict=True, states={"new": "keys"})
    assert [[item.name for item in items] for items in (package.inputs, package.outputs)] == [["x"], ["y"]]
    program = simulator.load(package.files.segment(package.plan.segments[0].file)) if package.plan else None
    assert program is not None
    assert "copy" not in {item.mnemonic for item in program.instructions}
    host, held = HostExecutor(build_graph(model)), np.zeros((1, 2, 15, 8), np.int8)
    with Session(package, strict=True) as session:
        for x in inputs(model, 20):
            y, new = host.run([x, held])
            held = np.concatenate([held[:, :, 1:], new], axis=2)
            assert np.array_equal(session.infer([x])[0], y)
        assert np.array_equal(session.get_state()["keys"], held)


def test_other_differences_of_types_are_refused() -> None:
    with pytest.raises(OptionError, match="one static type"):
        compiled(stateful.cache(), states={"y": "keys"})


def _failing(monkeypatch: pytest.MonkeyPatch, step: int, *, lost: bool) -> None:
    works, runs = SimulatorProgram.run, [0]

    def run(self: SimulatorProgram, values: Any, **options: Any) -> Any:
        runs[0] += 1
        if runs[0] > step:
            raise SimulationError("the device is gone")
        return works(self, values, **options)

    def read_states(self: SimulatorProgram) -> tuple[Array, ...]:
        raise SimulationError("the device is gone")

    monkeypatch.setattr(SimulatorProgram, "run", run)
    if lost:
        monkeypatch.setattr(SimulatorProgram, "read_states", read_states)


@pytest.mark.parametrize("step", [0, 1, 15, 16, 17, 30])
def test_the_host_goes_on_from_the_state_of_a_failed_device(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = stateful.lstm(size=8)
    xs = inputs(model, 34)
    wanted, end = on_host(model, xs)
    with Session(compiled(model, kept=2)) as session:
        _failing(monkeypatch, step, lost=step < 16)
        assert answers(session, xs) == wanted
        assert listed(session) == end
        assert "the device is gone" in str(session.odc_status)


@pytest.mark.parametrize("step", [3, 20])
def test_variables_of_recurrent_operators_stay_on_the_device(
    step: int, test_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = test_data / "models" / "lstm" / "keras_lstm_mnist_ptq.circle"
    with Session(path) as host, Session(odc_mlir.compile(path)) as npu:
        host.prepare()
        npu.prepare()
        shape = host.input_tensorinfo(0).shape
        rng = np.random.default_rng(0)
        xs = [rng.integers(0, 256, shape).astype(np.uint8) for _ in range(24)]
        assert answers(npu, xs[:2]) == answers(host, xs[:2])
        assert listed(npu) == listed(host)
        npu.reset_state()
        host.reset_state()
        _failing(monkeypatch, step, lost=step < 16)
        assert answers(npu, xs) == answers(host, xs)
        assert listed(npu) == listed(host)
        assert "the device is gone" in str(npu.odc_status)


def test_state_moves_between_device_and_host() -> None:
    model = stateful.dtln(size=8)
    xs = inputs(model, 12)
    wanted, _ = on_host(model, xs)
    package = compiled(model, kept=4)
    with Session(package) as npu, Session(package) as other, Session(package, backends="cpu") as host:
        assert answers(npu, xs[:4]) == wanted[:4]
        host.prepare()
        host.set_state(npu.get_state())
        assert answers(host, xs[4:8]) == wanted[4:8]
        other.prepare()
        other.set_state(host.get_state())
        assert answers(other, xs[8:]) == wanted[8:]
        assert answers(npu, xs[4:6]) == wanted[4:6]
        npu.set_state({"first/h": npu.get_state()["first/h"]})
        assert answers(npu, xs[6:8]) == wanted[6:8]
        npu.reset_state()
        assert answers(npu, xs) == wanted


def test_runs_that_are_watched_see_the_state() -> None:
    model = stateful.gru(size=8)
    xs = inputs(model, 3)
    executor = compiled(model, kept=1).executor("npu")
    for x in xs:
        held, seen = executor.get_states(), dict[int, Array]()
        executor.run([x], watch=seen.__setitem__)
        (state,) = executor.graph.states
        assert np.array_equal(seen[state.input], held[state.name])
        assert np.array_equal(seen[state.output], executor.get_states()[state.name])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_has_a_copy_of_the_device_and_its_state() -> None:
    model = stateful.gru(size=8)
    xs = inputs(model, 8)
    wanted, _ = on_host(model, xs)
    with Session(compiled(model, kept=1)) as session:
        assert answers(session, xs[:4]) == wanted[:4]
        child = os.fork()
        if child == 0:
            os._exit(0 if answers(session, xs[4:]) == wanted[4:] else 1)
        assert answers(session, xs[4:]) == wanted[4:]
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("states", [[[9, 0]], [[0, 0]], [[1]], "all"])
def test_states_of_a_program_are_checked(states: Any) -> None:
    package = compiled(stateful.gru(size=8), kept=1)
    assert package.plan is not None
    held = read(package.files.segment(package.plan.segments[0].file))
    with pytest.raises(PackageError, match="state"):
        read(write(replace(held, metadata={**held.metadata, STATES: states})))


@pytest.mark.parametrize("target", ["npu-256", "cpu"])
def test_lifted_variables_compute_what_the_variables_did(target: str) -> None:
    compiler.compile(bytes(write_model(stateful.ring())), target=target, verify="run")
