"""Sessions: shapes, types, backends, signatures, background runs, errors and measurements."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder, add_model, model_bytes
from helpers.sessions import SUM, A, B, add_session, quantised, unary
from odc_mlir.errors import (
    InputError,
    InvalidStateError,
    OdcError,
    OptionError,
    SessionError,
    UnexpectedNullError,
    UnsupportedError,
)
from odc_mlir.formats.circle.model import Signature
from odc_mlir.runtime import Session, State, tensorinfo

# Shapes.


@pytest.mark.parametrize("before_prepare", [True, False])
def test_new_input_shapes(before_prepare: bool) -> None:
    session = add_session()
    session.set_prepare_config("ENABLE_INTERNAL_OUTPUT_ALLOC")
    shape = tensorinfo("int8", dims=(3, 4))  # the element type does not matter
    if not before_prepare:
        session.prepare()
    session.set_input_tensorinfo(0, shape)
    session.set_input_tensorinfo(1, shape)
    assert session.input_tensorinfo(0).dims == [3, 4]
    if before_prepare:
        session.prepare()
    assert session.output_tensorinfo(0).shape == ((3, 4) if before_prepare else (1, 4))
    session.set_inputs(2, [np.ones((3, 4), np.float32)])
    session.run()
    assert session.get_output(0).shape == session.output_tensorinfo(0).shape == (3, 4)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (tensorinfo(rank=7, dims=[1] * 7), "rank is 7, allowed are 0 to 6"),
        (tensorinfo(rank=-1), "rank is -1"),
        (tensorinfo(rank=2, dims=[1]), "rank is 2, but dims has 1 entries"),
        (tensorinfo(dims=[1, 0]), "a dimension is 0"),
        (tensorinfo(dims=[1, -4]), "a dimension is -4"),
        (tensorinfo(dims=[1, 4.0]), "a dimension is 4.0"),  # type: ignore[list-item]
        (tensorinfo(dims=[4]), "the input has rank 2, the shape given has 1"),
        ((1, 4), "a tensorinfo is needed, not tuple"),
    ],
)
def test_shapes_that_cannot_be(info: Any, message: str) -> None:
    session = add_session()
    with pytest.raises(SessionError, match=message):
        session.set_input_tensorinfo(0, info)
    assert session.input_tensorinfo(0).dims == [1, 4]


def test_of_dims_longer_than_the_rank_the_first_count() -> None:
    session = add_session()
    session.set_input_tensorinfo(0, tensorinfo(rank=2, dims=[2, 4, 0, 0, 0, 0]))
    assert session.input_tensorinfo(0).dims == [2, 4]


def test_prepare_can_be_repeated_after_a_failure() -> None:
    session = add_session()
    session.set_input_tensorinfo(0, tensorinfo(dims=(2, 3)))
    with pytest.raises(OdcError):
        session.prepare()
    assert session.state is State.MODEL_LOADED
    session.set_input_tensorinfo(0, tensorinfo(dims=(1, 4)))
    session.prepare()
    assert session.state is State.PREPARED


# Layouts and types.


def test_layouts() -> None:
    model = model_bytes(unary(shape=(1, 2, 3, 4)))
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 2, 3)
    session = Session(model)
    session.set_prepare_config("ENABLE_INTERNAL_OUTPUT_ALLOC")
    session.set_input_layout(0, "CHANNELS_FIRST")
    assert session.input_tensorinfo(0).dims == [1, 4, 2, 3]
    session.prepare()
    session.set_input(0, x)
    session.run()
    np.testing.assert_array_equal(session.get_output(0), x.transpose(0, 2, 3, 1))
    session = Session(model)
    session.set_input_layout(0, 2)
    session.set_output_layout(0, "NCHW")
    np.testing.assert_array_equal(session.infer([x])[0], x)
    with pytest.raises(SessionError, match=r"unknown layout 'NCWH'.*; use one of NONE, NHWC, NCHW"):
        Session(model).set_input_layout(0, "NCWH")


def test_integers_by_default_and_real_values_on_request() -> None:
    codes = np.array([-128, -1, 3, 127], np.int8).reshape(1, 2, 2, 1)
    session = Session(model_bytes(quantised()))
    np.testing.assert_array_equal(session.infer([codes])[0], codes)
    session = Session(model_bytes(quantised()))
    session.set_input_type(0, "float32")
    session.set_output_type(0, "float32")
    assert session.input_tensorinfo(0).dtype == "float32"
    assert session.input_tensorinfo(0).scale is None
    reals = np.array([-100.0, 0.0, 2.2, 64.0], np.float32).reshape(1, 2, 2, 1)
    np.testing.assert_array_equal(session.infer([reals])[0].ravel(), [-63.5, 0.0, 2.0, 64.0])


def test_types_that_cannot_be_asked_for() -> None:
    with pytest.raises(SessionError, match="the type cannot be 'int8'; only float32"):
        Session(model_bytes(quantised())).set_input_type(0, "int8")
    with pytest.raises(SessionError, match="a tensor of int32 has no float32 values"):
        Session(model_bytes(unary(dtype="int32"))).set_input_type(0, "float32")


# Backends.


def test_backends() -> None:
    session = add_session(backends="gpu_cl;cpu")  # what is not here is passed over
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)
    session = add_session(backends="gpu_cl;trix")
    with pytest.raises(
        SessionError, match=r"none of the backends 'gpu_cl', 'trix' is known here.*; use one of cpu, host"
    ):
        session.prepare()
    session.set_available_backends("npu")
    with pytest.raises(SessionError, match="can run it: the model is not compiled"):
        session.prepare()
    session.set_available_backends("host")
    session.prepare()


@pytest.mark.parametrize(
    ("backends", "message"), [("x" * 32, "longer than 31 bytes"), (["cpu"], "must be text such as 'npu;cpu'")]
)
def test_lists_of_backends_that_cannot_be(backends: Any, message: str) -> None:
    with pytest.raises(SessionError, match=message):
        add_session().set_available_backends(backends)


@pytest.mark.parametrize("text", ["0", "a=cpu", "0=", "=cpu", "0:cpu"])
def test_assignments_that_cannot_be_read(text: str) -> None:
    with pytest.raises(SessionError, match="is not of the form <operator index>=<backend>"):
        add_session().set_backends_per_operation(text)


def test_backends_per_operation() -> None:
    session = add_session()
    session.set_backends_per_operation("0=cpu;1=host;99=cpu")  # an operator that is not there is passed over
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)
    session = add_session()
    session.set_backends_per_operation("1=npu")
    with pytest.raises(UnsupportedError, match=r"operator 1 cannot run on 'npu': the model is run by host.*op ADD"):
        session.prepare()
    session = add_session(settings={"OP_BACKEND_Add": "trix"})
    with pytest.raises(UnsupportedError, match="operator 0 cannot run on 'trix': there is no such backend"):
        session.prepare()
    session = add_session(settings={"OP_BACKEND_Add": "npu", "OP_BACKEND_MAP": "0=cpu;1=cpu"})  # by index wins
    session.prepare()


# Signatures.


def test_signatures() -> None:
    model = add_model()
    other = unary("NEG").subgraphs[0]
    model.subgraphs.append(other)
    model.signatures.append(Signature("negate", 1, {"x": 0}, {"y": 1}))
    session = Session(model_bytes(model))
    with pytest.raises(SessionError, match=r"no signature 'train'.*; it has 'serve', 'negate'"):
        session.configure_signature("train")
    session.configure_signature("negate")
    assert session.input_size() == 1
    with pytest.raises(SessionError, match="the layout must be set before configure_signature"):
        session.set_input_layout(0, "NHWC")
    with pytest.raises(SessionError, match="the type must be set before configure_signature"):
        session.set_output_type(0, "float32")
    np.testing.assert_array_equal(session.infer([A])[0], -A)
    session.set_signature_run("serve")
    with pytest.raises(InputError, match="input 0 has no buffer"):  # buffers of the other one are gone
        session.run()
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)
    with pytest.raises(SessionError, match="no signature 'train'"):
        session.set_signature_run("train")
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)


# In the background.


def test_run_async() -> None:
    session = add_session()
    session.prepare()
    out = np.zeros((1, 4), np.float32)
    session.set_inputs(2, [A, B])
    session.set_output(0, out)
    for _ in range(3):
        session.run_async()
        assert session.state is State.RUNNING
        with pytest.raises(InvalidStateError, match="run is not allowed in the state 'running'"):
            session.run()
        session.wait()
        np.testing.assert_array_equal(out, SUM)
    with pytest.raises(SessionError, match="wait is not allowed in the state 'finished run'") as caught:
        session.wait()
    assert type(caught.value) is SessionError


def failing_custom(started: threading.Event | None = None) -> Session:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1,)), builder.tensor("y", (1,))
    builder.operator("CUSTOM", [x], [y], custom_code="Mine")
    session = Session(model_bytes(builder.finish([x], [y])))

    def evaluate(inputs: Any, outputs: Any, options: Any) -> Any:
        if started is not None:
            started.set()
            time.sleep(0.05)
            return inputs
        raise RuntimeError("no luck")

    session.register_custom_op_info("Mine", evaluate)
    session.prepare()
    session.set_input(0, np.ones(1, np.float32))
    return session


def test_what_fails_in_the_background_is_raised_by_wait() -> None:
    session = failing_custom()
    session.run_async()
    with pytest.raises(OdcError, match="no luck") as caught:
        session.wait()
    assert session.state is State.PREPARED
    assert session.last_error_message == str(caught.value) == session.get_last_error_message()


def test_wrong_buffers_are_reported_at_once() -> None:
    session = add_session()
    session.prepare()
    with pytest.raises(InputError, match="input 0 has no buffer"):
        session.run_async()
    assert session.state is State.PREPARED


def test_close_waits_for_a_run() -> None:
    started = threading.Event()
    session = failing_custom(started)
    session.run_async()
    assert started.wait(60)
    session.close()
    assert session.state is State.CLOSED
    with pytest.raises(UnexpectedNullError, match="wait was called on a session that is closed"):
        session.wait()


def test_custom_operators_belong_to_their_session() -> None:
    session = failing_custom()
    with pytest.raises(OptionError, match="registered already"):
        session.register_custom_op_info("Mine", lambda *arguments: arguments)
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1,)), builder.tensor("y", (1,))
    builder.operator("CUSTOM", [x], [y], custom_code="Mine")
    with pytest.raises(OdcError, match="Mine"):
        Session(model_bytes(builder.finish([x], [y]))).prepare()


def test_threads_that_share_a_session_wait_for_one_another() -> None:
    session = add_session()
    session.infer([A, B])
    wrong: list[Any] = []

    def work(scale: int) -> None:
        for _ in range(50):
            (out,) = session.infer([scale * A, scale * B])
            if not np.array_equal(out, scale * SUM):
                wrong.append(out)

    threads = [threading.Thread(target=work, args=(scale,)) for scale in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Errors and measurements.


def test_the_last_error_stays() -> None:
    session = add_session()
    assert session.last_error_message == ""
    with pytest.raises(SessionError) as caught:
        session.input_tensorinfo(5)
    assert caught.value.stage == "input_tensorinfo"
    session.prepare()
    assert session.last_error_message == str(caught.value)


def test_memory_errors_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    from odc_mlir.errors import OutOfMemoryError

    session = add_session()

    def fail(*arguments: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(session, "_prepare", fail)
    with pytest.raises(OutOfMemoryError, match="not enough memory"):
        session.prepare()
    assert session.state is State.MODEL_LOADED


def test_profile_and_trace(tmp_path: Path) -> None:
    session = add_session(workspace=tmp_path)
    session.prepare()
    session.set_execute_config("PROFILE")
    session.set_execute_config(1)
    session.set_inputs(2, [A, B])
    session.run()
    session.run()
    profile = json.loads(session.save_profile(tmp_path / "mine.json").read_text())
    assert profile["measured"]["runs"] == 2
    assert [unit["op"] for unit in profile["measured"]["units"]] == ["ADD", "ADD"]
    session.save_profile(tmp_path / "mine.json")
    (tmp_path / "mine.json").write_text("notes")
    with pytest.raises(OptionError, match="not a profile that odc-mlir wrote"):
        session.save_profile(tmp_path / "mine.json")
    session.reset_execute_config()
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 4
    (tmp_path / "trace.json").unlink()
    session.run()
    session.close()
    assert not (tmp_path / "trace.json").exists()  # watching had been switched off


def test_an_empty_workspace_takes_no_files() -> None:
    session = add_session(workspace="")
    session.prepare()
    with pytest.raises(SessionError, match="TRACE writes to the workspace, which is empty"):
        session.set_execute_config("TRACE")
    session.set_execute_config("PROFILE")
    with pytest.raises(SessionError, match="the workspace is empty"):
        session.save_profile()


def test_the_workspace_can_be_set_only_at_first() -> None:
    session = Session()
    session.set_workspace(os.curdir)
    with pytest.raises(UnexpectedNullError):
        session.set_workspace(None)  # type: ignore[arg-type]
