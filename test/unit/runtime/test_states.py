"""States of models: kept from run to run by executors and sessions, on the host and in packages."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers import stateful
from helpers.models import ModelBuilder
from helpers.streaming import elman
from odc_mlir.calibration.records import RecordStore
from odc_mlir.errors import InputError, OptionError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.states import NAME, StatePair, decode, encode
from odc_mlir.runtime import Session
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

Array = np.ndarray[Any, Any]
Make = Callable[..., Model]
MAKERS: tuple[Make, ...] = (stateful.gru, stateful.lstm, stateful.dtln)


def frames(model: Model, count: int, seed: int = 0) -> list[Array]:
    shape = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].shape
    assert shape is not None
    rng = np.random.default_rng(seed)
    return [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(count)]


def fed_back(make: Make, xs: list[Array]) -> list[Array]:
    """The first output for each frame, with states carried by the caller."""
    graph = build_graph(make(declare=False))
    pairs = {pair.output: pair.input for pair in decode(make().metadata_bytes(NAME) or b"")}
    values = {info.name: np.zeros(info.static_shape, np.int8) for info in graph.input_infos()}
    executor, found = HostExecutor(graph), []
    for x in xs:
        values["x"] = x
        outputs = executor.run([values[info.name] for info in graph.input_infos()])
        found.append(outputs[0])
        named = zip(graph.output_infos(), outputs, strict=True)
        values |= {pairs[info.name]: value for info, value in named if info.name in pairs}
    return found


def data_of(model: Model) -> bytes:
    return bytes(write_model(model))


@pytest.mark.parametrize("make", MAKERS)
def test_declared_states_are_kept_and_not_shown(make: Make) -> None:
    xs = frames(make(), 5)
    with Session(data_of(make())) as session:
        assert (session.input_size(), session.output_size()) == (1, 1)
        got = [session.infer([x])[0] for x in xs]
    assert np.array_equal(got, fed_back(make, xs))
    assert len({y.tobytes() for y in got}) == len(got)


def test_packages_keep_states_or_show_them() -> None:
    xs = frames(stateful.gru(), 4)
    wanted = fed_back(stateful.gru, xs)
    declared, plain = data_of(stateful.gru()), data_of(stateful.gru(declare=False))
    kept = odc_mlir.compile(plain, states={"cell/h_next": "cell/h"})
    assert [[item.name for item in items] for items in (kept.inputs, kept.outputs)] == [["x"], ["y"]]
    assert [(state.name, state.dtype, state.shape) for state in kept.states] == [("cell/h", "int8", (1, 24))]
    assert kept.files.members == odc_mlir.compile(declared).files.members
    with Session(kept) as session:
        assert np.array_equal([session.infer([x])[0] for x in xs], wanted)
    shown = odc_mlir.compile(declared, states={})
    assert [item.name for item in shown.inputs] == ["x", "cell/h"]
    assert shown.files.members == odc_mlir.compile(plain).files.members


@pytest.mark.parametrize("states", [["y=cell/h"], {"cell/h_next": "x"}, ["nothing=x"]])
def test_states_that_do_not_fit_are_refused(states: Any) -> None:
    with pytest.raises(OptionError, match="the state"):
        odc_mlir.compile(data_of(stateful.gru(declare=False)), states=states)


def test_states_of_files_are_checked() -> None:
    model = stateful.gru(declare=False)
    model.metadata.append((NAME, len(model.buffers)))
    model.buffers.append(memoryview(encode([StatePair("cell/h_next", "h")])))
    with pytest.raises(OptionError, match="names no input of the model"):
        Session(data_of(model))


def test_state_is_read_written_and_reset() -> None:
    data, xs = data_of(stateful.lstm()), frames(stateful.lstm(), 4)
    with Session(data) as one, Session(data) as other:
        first = [one.infer([x])[0] for x in xs]
        state = one.get_state()
        assert set(state) == {"cell/h", "cell/c"}
        after = one.infer([xs[0]])[0]
        other.set_state(state)
        assert np.array_equal(other.infer([xs[0]])[0], after)
        one.reset_state()
        assert not one.get_state()["cell/h"].any()
        assert np.array_equal([one.infer([x])[0] for x in xs], first)
        assert not np.array_equal(other.get_state()["cell/h"], one.get_state()["cell/h"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"h": np.zeros((1, 24), np.int8)}, "the model has no state 'h'"),
        ({"cell/h": np.zeros((1, 23), np.int8)}, r"the state is int8 \[1, 24\], got int8 \[1, 23\]"),
        ({"cell/h": np.zeros((1, 24))}, "got float64"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(values: dict[str, Array], message: str) -> None:
    with Session(data_of(stateful.gru())) as session:
        session.infer(frames(stateful.gru(), 1))
        before = session.get_state()
        with pytest.raises(InputError, match=message):
            session.set_state(before | {"cell/h": before["cell/h"] + 1} | values)
        assert np.array_equal(session.get_state()["cell/h"], before["cell/h"])


@pytest.mark.parametrize("first", ["reset_state", "get_state", "set_state"])
def test_states_of_a_loaded_model_are_there_before_the_first_run(first: str) -> None:
    with Session(data_of(stateful.gru())) as session:
        getattr(session, first)(*([{}] if first == "set_state" else []))
        assert not session.get_state()["cell/h"].any()
        assert session.infer(frames(stateful.gru(), 1))


def test_nan_and_lists_of_unequal_lengths_are_no_states() -> None:
    model = read_model(elman().model)
    model.metadata.append((NAME, len(model.buffers)))
    model.buffers.append(memoryview(encode([StatePair("h_out", "h_in")])))
    state = np.ones((1, 12), np.float32)
    with Session(data_of(model)) as session:
        session.set_state({"h_in": state})
        with pytest.raises(InputError, match="the state has NaN"):
            session.set_state({"h_in": state * np.nan})
        for wrong in ([1], {"h_in": [[1], [1, 2]]}):
            with pytest.raises(InputError, match="no arrays by name"):
                session.set_state(wrong)
        assert np.array_equal(session.get_state()["h_in"], state)


def test_variables_are_states_by_their_names() -> None:
    model = stateful.ring()
    xs = frames(model, 4)
    with Session(data_of(model)) as session:
        session.infer([xs[0]])
        state = session.get_state()
        assert {name: value.shape for name, value in state.items()} == {
            "stream0": (1, 2, 1, 8),
            "stream1": (1, 2, 1, 16),
        }
        assert np.array_equal(state["stream0"][0, 1, 0], xs[0].ravel())
        after = [session.infer([x])[0] for x in xs]
        session.set_state(state)
        assert np.array_equal([session.infer([x])[0] for x in xs], after)


def _passing() -> Model:
    """The state is a view of the input, and so is the output."""
    builder = ModelBuilder()
    x, h = builder.tensor("x", (1, 2)), builder.tensor("h", (2, 1))
    shape = builder.tensor("shape", (2,), "int32", data=np.array([2, 1], np.int32))
    new, y = builder.tensor("new", (2, 1)), builder.tensor("y", (2, 1))
    builder.operator("RESHAPE", [x, shape], [new])
    builder.operator("ABS", [h], [y])
    model = builder.finish([x, h], [y, new])
    model.metadata.append((NAME, len(model.buffers)))
    model.buffers.append(memoryview(encode([StatePair("new", "h", np.array([-4, 4], "<f4").tobytes())])))
    return model


def test_arrays_of_the_application_are_no_state() -> None:
    executor = HostExecutor(build_graph(_passing(), states=True))
    x = np.ones((1, 2), np.float32)
    (y,) = executor.run([x])
    assert y.tolist() == [[4], [4]]
    x[...] = 9
    (y,) = executor.run([x])
    assert y.tolist() == [[1], [1]]
    y[...] = 7
    assert executor.get_states()["h"].tolist() == [[9], [9]]


def test_a_failed_run_leaves_the_state() -> None:
    executor = HostExecutor(build_graph(_passing(), states=True))
    with pytest.raises(InputError):
        executor.run([np.ones((1, 3), np.float32)])
    assert executor.get_states()["h"].tolist() == [[-4], [4]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_a_state_of_its_own() -> None:
    xs = frames(stateful.gru(), 6)
    wanted = fed_back(stateful.gru, xs)
    with Session(data_of(stateful.gru())) as session:
        for x in xs[:3]:
            session.infer([x])
        child = os.fork()
        if child == 0:
            good = all(np.array_equal(session.infer([x])[0], y) for x, y in zip(xs[3:], wanted[3:], strict=True))
            os._exit(0 if good else 1)
        got = [session.infer([x])[0] for x in xs[3:]]
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(got, wanted[3:])


def test_files_name_the_states_of_a_package() -> None:
    package = odc_mlir.compile(data_of(stateful.gru(declare=False)), states=["cell/h_next=cell/h"])
    model = read_model(package.files.model)
    assert decode(model.metadata_bytes(NAME) or b"") == (StatePair("cell/h_next", "cell/h"),)


def test_variables_become_states_of_a_package() -> None:
    model = stateful.ring()
    xs = frames(model, 8)
    with Session(data_of(model)) as session:
        wanted = [session.infer([x])[0] for x in xs]
        held = session.get_state()
    for target in ("npu-256", "cpu"):
        package = odc_mlir.compile(data_of(model), target=target, strict=True)
        assert len(package.plan.segments) == 1 if package.plan else False
        with Session(package) as session:
            assert (session.input_size(), session.output_size()) == (1, 1)
            assert np.array_equal([session.infer([x])[0] for x in xs], wanted)
            assert {k: v.tobytes() for k, v in session.get_state().items()} == {k: v.tobytes() for k, v in held.items()}


def test_recorded_ranges_are_those_of_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))
    builder = ModelBuilder()
    x, h = builder.tensor("x", (1, 2)), builder.tensor("h", (1, 2))
    total = builder.made("total", (1, 2), "ADD", x, h)
    file = builder.file([x, h], [builder.made("y", (1, 2), "TANH", total), total])
    with Session(odc_mlir.compile(file, states={"total": "h"})) as session:
        session.prepare()
        session.set_execute_config("DUMP_MINMAX")
        for _ in range(6):
            session.infer([np.ones((1, 2), np.float32)])
    (path,) = tmp_path.rglob("ranges.sqlite")
    found = {name: (each.minimum, each.maximum) for name, each in RecordStore(path).statistics().items()}
    assert (found["x"], found["h"], found["total"]) == ((1.0, 1.0), (0.0, 5.0), (1.0, 6.0))
