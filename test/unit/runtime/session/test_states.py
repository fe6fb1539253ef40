"""Every call of a session in every state, from the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.language import language_model
from helpers.models import add_model, model_bytes
from odc_mlir.errors import AllocationError, DeprecatedApiError, ModelError, OdcError, SessionError, UnexpectedNullError
from odc_mlir.plugins import codegen
from odc_mlir.runtime import Session, State, Status, tensorinfo
from odc_mlir.runtime.auto import build
from odc_mlir.runtime.session import CALLS, status_of

MODEL = model_bytes(add_model())
SHAPE = (1, 4)

# Arguments with which each call succeeds where the state allows it.
GOOD: dict[str, tuple[Any, ...]] = {
    "set_workspace": ("folder",),
    "load_circle_from_buffer": (MODEL,),
    "set_available_backends": ("cpu",),
    "set_backends_per_operation": ("0=cpu",),
    "set_input_layout": (0, "NHWC"),
    "set_output_layout": (0, 1),
    "set_input_type": (0, "float32"),
    "set_output_type": (0, "float32"),
    "set_input_tensorinfo": (0, tensorinfo(dims=SHAPE)),
    "input_tensorinfo": (0,),
    "output_tensorinfo": (0,),
    "input_tensorindex": ("a",),
    "output_tensorindex": ("out",),
    "configure_signature": ("serve",),
    "set_signature_run": ("serve",),
    "set_input": (0, np.zeros(SHAPE, np.float32)),
    "set_inputs": (2, []),
    "set_state": ({},),
    "set_output": (0, np.zeros(SHAPE, np.float32)),
    "get_output": (0,),
    "infer": ([np.zeros(SHAPE, np.float32)] * 2,),
    "generate": ([1], 1),
    "set_prepare_config": ("ENABLE_INTERNAL_OUTPUT_ALLOC",),
    "set_execute_config": ("PROFILE",),
    "register_custom_op_info": ("Mine", lambda inputs, outputs, options: inputs),
    "set_config": ("EXECUTOR", "Linear"),
    "get_config": ("EXECUTOR",),
    "query_info_u32": (0,),
    "set_quantization_type": ("U8_ASYM",),
    "set_quantized_model_path": ("quantized.circle",),
    "set_codegen_model_path": ("compiled.circle",),
    "set_odc_param_minmax_records_count": (5,),
    "codegen": ("circle-gen",),
    "run_with_auto_compilation": ("circle-gen",),
}
DEPRECATED = tuple(name for name, rule in CALLS.items() if rule.instead)
CHECKED = tuple(name for name in CALLS if name not in DEPRECATED)


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, and in place of quantiser and plugins something that gives the model back."""

    def quantize(*arguments: Any, **options: Any) -> build.QuantizedModel:
        return build.QuantizedModel(MODEL, {"status": "passed", "passed": True})

    def generate(model: Path, target: str, output: Path, **options: Any) -> Path:
        output.write_bytes(MODEL)
        return output

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "quantize", quantize)
    monkeypatch.setattr(codegen, "generate", generate)
    Path("model.circle").write_bytes(MODEL)


COMPILING = {"OnDeviceCompilation": "1", "ODC_TRIGGER": "explicit"}


def session_in(state: State, settings: dict[str, str] | None = None) -> Session:
    """A session in ``state`` to which every call is possible that the state allows."""
    if state is State.INITIALIZED:
        return Session()
    session = Session("model.circle", settings=settings)
    session.set_quantization_type("uint8")
    session.set_quantized_model_path("quantized.circle")
    session.set_codegen_model_path("compiled.circle")
    session.set_prepare_config("ENABLE_INTERNAL_OUTPUT_ALLOC")
    if state is State.MODEL_LOADED:
        return session
    session.prepare()
    session.set_inputs(session.input_size())
    if state is State.PREPARED:
        return session
    if state is State.RUNNING:
        session.run_async()
        return session
    session.run()
    if state is State.CLOSED:
        session.close()
    return session


def arguments_of(name: str) -> tuple[Any, ...]:
    return ("model.circle",) if name == "load_model_from_file" else GOOD.get(name, ())


def outcome(call: Callable[..., Any], arguments: tuple[Any, ...]) -> OdcError | None:
    try:
        call(*arguments)
    except OdcError as error:
        return error
    return None


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("name", CHECKED)
def test_a_call_in_a_state(name: str, state: State) -> None:
    if name == "generate":
        Path("model.circle").write_bytes(model_bytes(language_model({"decode": 1})))
    session, rule = session_in(state, COMPILING if name.endswith("_auto_compilation") else None), CALLS[name]
    assert session.state is state
    if name == "delete_odc_minmax_file":
        if state is State.INITIALIZED:  # there is no model of which there could be records
            with pytest.raises(OdcError):
                session.delete_odc_minmax_file()
            return
        if state in rule.allowed:
            session = _with_records(session)
    error = outcome(getattr(session, name), arguments_of(name))
    if state in rule.allowed:
        assert error is None, error
        prepares = state is State.MODEL_LOADED and name in ("reset_state", "get_state", "set_state")
        assert session.state is (State.PREPARED if prepares else rule.to or state)
        assert not session.last_error_message
        return
    expected = UnexpectedNullError if state is State.CLOSED else rule.wrong
    assert type(error) is expected
    assert str(error).startswith(f"{name} was called on" if state is State.CLOSED else f"{name} is not allowed in")
    assert session.state is state
    assert session.last_error_message == str(error)
    assert error.stage == name


def _with_records(session: Session) -> Session:
    from odc_mlir.calibration.records import RecordStore
    from odc_mlir.formats.cache import records_path

    RecordStore(records_path(session.digest), session.digest)
    return session


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("name", DEPRECATED)
def test_deprecated_calls_say_what_to_use(name: str, state: State) -> None:
    session = session_in(state)
    with pytest.raises(DeprecatedApiError, match=f"use {CALLS[name].instead}"):
        getattr(session, name)(1, 2)
    assert session.state is state


def test_every_public_call_is_in_the_table() -> None:
    methods = {name for name in dir(Session) if not name.startswith("_") and callable(getattr(Session, name))}
    assert methods - {"odc_delete_minmax_file"} == set(CALLS)


REQUIRED = [(name, parameter) for name, rule in CALLS.items() for parameter in rule.required]
OPEN = frozenset(State) - {State.CLOSED}


@pytest.mark.parametrize(("name", "parameter"), REQUIRED)
def test_none_where_a_value_is_required(name: str, parameter: str) -> None:
    rule = CALLS[name]
    session = session_in(min(rule.allowed, key=list(State).index))
    parameters = list(getattr(Session, name).__wrapped__.__code__.co_varnames[1:])
    arguments = list(arguments_of(name))
    arguments[parameters.index(parameter)] = None
    before = session.state
    with pytest.raises(rule.null, match=f"{name} needs {parameter}, but it is None") as caught:
        getattr(session, name)(*arguments)
    assert type(caught.value) is rule.null
    assert session.state is before


@pytest.mark.parametrize(
    ("name", "parameter"), [(name, parameter) for name, parameter in REQUIRED if OPEN - CALLS[name].allowed]
)
def test_which_is_looked_at_first(name: str, parameter: str) -> None:
    rule = CALLS[name]
    wrong = next(state for state in State if state not in rule.allowed and state is not State.CLOSED)
    arguments = [None] * len(arguments_of(name))
    with pytest.raises(SessionError) as caught:
        getattr(session_in(wrong), name)(*arguments)
    assert type(caught.value) is (rule.null if rule.null_first else rule.wrong)


def test_errors_as_numbers() -> None:
    assert status_of(None) is Status.NO_ERROR
    assert status_of(ModelError("x")) is Status.ERROR
    assert status_of(SessionError("x")) is Status.ERROR
    assert status_of(UnexpectedNullError("x")) is Status.UNEXPECTED_NULL
    assert status_of(AllocationError("x")) is Status.OUT_OF_MEMORY
    assert status_of(DeprecatedApiError("x")) is Status.DEPRECATED_API
