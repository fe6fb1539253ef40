"""What a session may be asked in which state: one table, from which every call checks itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

from odc_mlir.errors import (
    AllocationError,
    DeprecatedApiError,
    InsufficientOutputError,
    InvalidStateError,
    OutOfMemoryError,
    SessionError,
    UnexpectedNullError,
)


class State(StrEnum):
    """Where a session stands."""

    INITIALIZED = "initialized"  # no model yet
    MODEL_LOADED = "model loaded"
    PREPARED = "prepared"
    RUNNING = "running"  # between run_async and wait
    FINISHED_RUN = "finished run"
    CLOSED = "closed"


class Status(IntEnum):
    """The outcome of a call as a number."""

    NO_ERROR = 0
    ERROR = 1
    UNEXPECTED_NULL = 2
    INVALID_STATE = 3
    OUT_OF_MEMORY = 4
    INSUFFICIENT_OUTPUT_SIZE = 5
    DEPRECATED_API = 6


_STATUS_BY_ERROR: tuple[tuple[type[BaseException], Status], ...] = (
    (UnexpectedNullError, Status.UNEXPECTED_NULL),
    (InvalidStateError, Status.INVALID_STATE),
    (OutOfMemoryError, Status.OUT_OF_MEMORY),
    (AllocationError, Status.OUT_OF_MEMORY),
    (InsufficientOutputError, Status.INSUFFICIENT_OUTPUT_SIZE),
    (DeprecatedApiError, Status.DEPRECATED_API),
)


def status_of(error: BaseException | None) -> Status:
    """The number that stands for ``error``, NO_ERROR for None."""
    if error is None:
        return Status.NO_ERROR
    return next((status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), Status.ERROR)


@dataclass(frozen=True, slots=True)
class Call:
    """What one call needs and does.

    ``allowed`` are the states in which it may be made, ``to`` is the state after it succeeds (None: as before; after a
    failure the state is always as before). ``wrong`` is the error in other states. ``required`` are the parameters
    that must not be None; with ``null_first`` they are looked at before the state. ``instead`` is what callers of a
    deprecated call should use.
    """

    allowed: frozenset[State]
    to: State | None = None
    required: tuple[str, ...] = ()
    null_first: bool = False
    wrong: type[SessionError] = InvalidStateError
    null: type[SessionError] = UnexpectedNullError
    instead: str = ""


_OPEN = frozenset(State) - {State.CLOSED}
_LOADED = _OPEN - {State.INITIALIZED}
_IDLE = _OPEN - {State.RUNNING}
_NEW = frozenset({State.INITIALIZED})
_MODEL = frozenset({State.MODEL_LOADED})
_READY = frozenset({State.PREPARED, State.FINISHED_RUN})
_AT_REST = _MODEL | _READY  # the states in which the model may be exchanged

CALLS: Mapping[str, Call] = MappingProxyType(
    {
        "close": Call(frozenset(State), State.CLOSED),
        "get_last_error_message": Call(frozenset(State)),
        "query_info_u32": Call(frozenset(State), required=("information",)),
        "set_workspace": Call(_NEW, required=("folder",), null_first=True),
        "load_model_from_file": Call(_NEW, State.MODEL_LOADED, required=("path",)),
        "load_circle_from_buffer": Call(_NEW, State.MODEL_LOADED, required=("data",)),
        "set_available_backends": Call(_MODEL, required=("backends",)),
        "set_backends_per_operation": Call(_MODEL, required=("assignments",), null_first=True, null=SessionError),
        "set_input_layout": Call(_MODEL),
        "set_output_layout": Call(_MODEL),
        "set_input_type": Call(_MODEL),
        "set_output_type": Call(_MODEL),
        "set_input_tensorinfo": Call(_LOADED - {State.RUNNING}, required=("info",)),
        "input_size": Call(_LOADED),
        "output_size": Call(_LOADED),
        "input_tensorinfo": Call(_LOADED),
        "output_tensorinfo": Call(_LOADED),
        "input_tensorindex": Call(_LOADED, required=("name",)),
        "output_tensorindex": Call(_LOADED, required=("name",)),
        "get_inputs_tensorinfo": Call(_LOADED),
        "get_outputs_tensorinfo": Call(_LOADED),
        "configure_signature": Call(_MODEL, required=("name",), null_first=True),
        "set_signature_run": Call(_READY, required=("name",), null_first=True),
        "prepare": Call(_MODEL, State.PREPARED),
        "set_input": Call(_READY),
        "set_inputs": Call(_READY),
        "set_output": Call(_READY),
        "run": Call(_READY, State.FINISHED_RUN),
        "run_async": Call(_READY, State.RUNNING),
        "wait": Call(frozenset({State.RUNNING}), State.FINISHED_RUN, wrong=SessionError),
        "get_output": Call(frozenset({State.FINISHED_RUN}), required=("index",), null_first=True),
        "infer": Call(_AT_REST, State.FINISHED_RUN),
        "set_prepare_config": Call(_MODEL),
        "reset_prepare_config": Call(_MODEL),
        "set_execute_config": Call(_READY),
        "reset_execute_config": Call(_READY),
        "save_trace": Call(_AT_REST),
        "save_profile": Call(_AT_REST),
        "register_custom_op_info": Call(_IDLE, required=("code", "evaluate")),
        "set_config": Call(_MODEL, required=("key", "value")),
        "get_config": Call(_MODEL, required=("key",)),
        "set_quantization_type": Call(_AT_REST),
        "set_quantized_model_path": Call(_AT_REST, required=("path",)),
        "set_codegen_model_path": Call(_AT_REST, required=("path",)),
        "set_odc_param_minmax_records_count": Call(_AT_REST),
        "quantize": Call(_AT_REST, State.MODEL_LOADED),
        "codegen": Call(_AT_REST, State.MODEL_LOADED, required=("target",)),
        "delete_odc_minmax_file": Call(_IDLE),
        "run_with_auto_compilation": Call(_READY, State.FINISHED_RUN, required=("target",)),
        "start_auto_compilation": Call(_READY),
        "retry_auto_compilation": Call(_READY),
        "wait_for_auto_compilation": Call(_READY),
        "apply_tensorinfo": Call(_OPEN, instead="set_input_tensorinfo"),
        "set_op_backend": Call(_OPEN, instead="set_backends_per_operation"),
        "prepare_pipeline": Call(_OPEN, instead="prepare"),
        "push_pipeline_input": Call(_OPEN, instead="run_async"),
        "pop_pipeline_output": Call(_OPEN, instead="wait and get_output"),
    }
)
"""Every call of a session by name."""
