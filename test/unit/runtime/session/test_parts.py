"""The parts that a session is made of, each alone: loader, runner, switcher, recorder; and what the session shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.models import add_model, model_bytes
from helpers.nodes import tensor
from helpers.sessions import SUM, A, Array, B, quantised, unary
from odc_mlir.errors import InputError, SessionError
from odc_mlir.formats.cache import records_path
from odc_mlir.formats.circle.model import Model, Signature
from odc_mlir.runtime import Session, State
from odc_mlir.runtime.auto.settings import AutoStatus
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.session.loader import Choices, Exchange, Loader, source_from_bytes
from odc_mlir.runtime.session.runner import Runner, SessionRecorder, converted
from odc_mlir.runtime.session.session import CALLS
from odc_mlir.runtime.session.switcher import Switcher
from odc_mlir.runtime.session.tensors import Fitted, SessionPort

PROPERTIES = {"digest", "last_error_message", "odc_status", "state", "verdict", "workspace"}


def loader_of(model: Model, **settings: str) -> Loader:
    return Loader(Choices(settings), source_from_bytes(model_bytes(model)))


def with_signature(model: Model) -> Model:
    """``model`` with a second subgraph of other inputs, which a signature names."""
    model.subgraphs.append(unary().subgraphs[0])
    model.signatures.append(Signature("other", 1, {}, {}))
    return model


def test_what_a_session_shows() -> None:
    shown = {name for name in dir(Session) if not name.startswith("_")}
    assert shown == PROPERTIES | set(CALLS) | {"odc_delete_minmax_file"}
    assert Session.__mro__ == (Session, object)


# Loader.


def test_a_loader_without_a_model() -> None:
    loader = Loader(Choices())
    assert (loader.inputs, loader.known_input_shapes, loader.workspace) == ((), (), ".")
    for ask in (lambda: loader.digest, loader.open):
        with pytest.raises(SessionError, match="the session has no model"):
            ask()


def test_shapes_that_are_asked_for_are_prepared() -> None:
    loader = loader_of(add_model((1, 4), signature=(-1, 4)))
    assert loader.known_input_shapes is None
    loader.follow([np.concatenate([A, A])] * 2)
    assert loader.known_input_shapes == ((2, 4), (2, 4))
    loader.open()
    assert loader.output_shapes == [(2, 4)]
    with pytest.raises(InputError, match="2 dimensions, the array 1"):
        loader.follow([A[0], B[0]])


def test_another_signature_is_another_loader() -> None:
    loader = loader_of(with_signature(add_model()))
    other = loader.with_signature("other")
    assert (len(loader.inputs), len(other.inputs)) == (2, 1)
    assert other.open().graph.subgraph == 1
    with pytest.raises(SessionError, match="no signature 'none'"):
        loader.with_signature("none")


def test_choices_outlive_the_model() -> None:
    choices = Choices({"ODC_RECORDS": "3"})
    first = Loader(choices, source_from_bytes(model_bytes(add_model())))
    first.settings.set("NUM_THREADS", "1")
    first.set_backends("cpu")
    second = Loader(choices, source_from_bytes(model_bytes(quantised())))
    assert (second.settings.get("ODC_RECORDS"), second.settings.get("NUM_THREADS")) == ("3", "1")
    assert (first.backends, second.backends) == (("cpu",), ())


# Runner.


def doubled(arrays: list[Array]) -> list[Array]:
    return [2 * arrays[0] + arrays[1]]


def test_a_runner_gives_what_is_computed() -> None:
    runner = Runner(loader_of(add_model()), doubled)
    assert runner.output_shapes is None
    runner.deliver(runner.compute(runner.converted([A, B.astype(np.float64)])))
    np.testing.assert_array_equal(runner.results[0], SUM)
    assert runner.output_shapes == [(1, 4)]
    runner.set_input(1, None)
    with pytest.raises(InputError, match="input 1 has no buffer"):
        runner.compute()


def test_whole_numbers_that_do_not_fit_are_refused() -> None:
    """They would wrap round to others."""
    port = SessionPort(tensor("int32", (2,)))
    assert converted(port, np.array([3, -4]), 0).tolist() == [3, -4]
    with pytest.raises(InputError, match=r"input 0 holds 1099511627776, outside int32's -2147483648\.\.2147483647"):
        converted(port, np.array([3, 1 << 40]), 0)


def test_a_background_run_keeps_what_it_raises() -> None:
    def fail(arrays: list[Array]) -> list[Array]:
        raise SessionError("on purpose")

    runner = Runner(loader_of(add_model()), fail)
    runner.set_inputs(2, [A, B])
    runner.start(State.PREPARED)
    ended = runner.wait()
    assert (str(ended.error), ended.before) == ("on purpose", State.PREPARED)
    with pytest.raises(SessionError, match="nothing is running"):
        runner.wait()


def test_channels_first() -> None:
    picture = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1)
    loader = loader_of(unary(shape=(1, 2, 2, 1)))
    for ports in (loader.inputs, loader.outputs):
        ports[0].set_layout("NCHW")
    runner = Runner(loader, lambda arrays: [array + (array.shape == (1, 2, 2, 1)) for array in arrays])
    runner.set_input(0, picture.transpose(0, 3, 1, 2))
    runner.deliver(runner.compute())
    np.testing.assert_array_equal(runner.results[0], picture.transpose(0, 3, 1, 2) + 1)


# Switcher.


def test_a_switcher_runs_the_model_where_nothing_is_compiled() -> None:
    loader = loader_of(add_model())
    switcher = Switcher(loader, SessionRecorder(loader), Exchange())
    with pytest.raises(SessionError, match="not prepared"):
        switcher.run([A, B])
    switcher.begin(loader.open())
    np.testing.assert_array_equal(switcher.run([A, B])[0], SUM)
    assert switcher.status() == AutoStatus()
    with pytest.raises(SessionError, match="does not compile on the device"):
        switcher.compiler()


def test_who_stands_in_is_fitted_to_what_the_user_sees() -> None:
    loader = loader_of(unary("RELU", dtype="float32"))
    codes = HostExecutor(build_graph(unary("RELU", dtype="int8", quant=(0.5, 1))))
    fitted = Fitted(codes, loader.inputs, loader.outputs)
    (encoded,) = fitted.encoded([A])
    np.testing.assert_array_equal(encoded, (A / 0.5 + 1).astype(np.int8))
    np.testing.assert_array_equal(fitted.decoded([encoded])[0], A)
    with pytest.raises(SessionError, match="int32 where the session promises float32"):
        Fitted(HostExecutor(build_graph(unary(dtype="int32"))), loader.inputs, loader.outputs)


# Recorder.


def test_a_recorder_keeps_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))
    loader = loader_of(add_model(), WORKSPACE_DIR=str(tmp_path))
    recorder, executor = SessionRecorder(loader), loader.open()
    recorder.run(executor, [A, B], is_original=True)
    recorder.add("PROFILE")
    recorder.add("DUMP_MINMAX")
    recorder.run(executor, [A, B], is_original=False)  # ranges of something else are not those of the model
    recorder.flush()
    assert not records_path(loader.digest).exists()
    np.testing.assert_array_equal(recorder.run(executor, [A, B], is_original=True)[0], SUM)
    recorder.flush()
    assert records_path(loader.digest).exists()
    assert json.loads(recorder.save_profile(None).read_text())["measured"]["runs"] == 2
    recorder.reset()
    recorder.forget_ranges()
    recorder.run(executor, [A, B], is_original=True)
    recorder.flush()
    assert not records_path(loader.digest).exists()


def test_ranges_are_kept_where_compiling_wants_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))
    loader = loader_of(add_model())
    recorder = SessionRecorder(loader)
    recorder.run(loader.open(), [A, B], is_original=True, wanted=True)
    recorder.flush()
    assert records_path(loader.digest).exists()


# Session.


def test_runs_in_shapes_that_were_seen_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of inputs whose size is not declared; other shapes and other types go the long way."""
    with Session(model_bytes(add_model((1, 4), signature=(-1, 4)))) as session:
        pair = [np.concatenate([A, A])] * 2
        (expected,) = session.infer(pair)
        monkeypatch.setattr(Loader, "follow", None)
        (found,) = session.infer(pair)
        np.testing.assert_array_equal(found, expected)
        for other in ([A, A], [value.astype(np.float64) for value in pair]):
            with pytest.raises(TypeError, match="not callable"):
                session.infer(other)
