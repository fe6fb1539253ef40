"""States of a session, and checks of calls."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast

from odc_mlir import errors
from odc_mlir.runtime.forks import is_stuck, mend_after_fork


class State(StrEnum):
    """State of a session."""

    INITIALIZED = "initialized"  # no model yet
    MODEL_LOADED = "model loaded"
    PREPARED = "prepared"
    RUNNING = "running"  # between run_async and wait
    FINISHED_RUN = "finished run"
    CLOSED = "closed"


class Status(IntEnum):
    """Outcome of a call, as the number that the C API returns."""

    NO_ERROR = 0
    ERROR = 1
    UNEXPECTED_NULL = 2
    INVALID_STATE = 3
    OUT_OF_MEMORY = 4
    INSUFFICIENT_OUTPUT_SIZE = 5
    DEPRECATED_API = 6


_STATUS_BY_ERROR: tuple[tuple[type[BaseException], Status], ...] = (
    (errors.UnexpectedNullError, Status.UNEXPECTED_NULL),
    (errors.InvalidStateError, Status.INVALID_STATE),
    (errors.OutOfMemoryError, Status.OUT_OF_MEMORY),
    (errors.AllocationError, Status.OUT_OF_MEMORY),
    (errors.InsufficientOutputError, Status.INSUFFICIENT_OUTPUT_SIZE),
    (errors.DeprecatedApiError, Status.DEPRECATED_API),
)


def status_of(error: BaseException | None) -> Status:
    """Return the number that the C API returns for ``error``, or NO_ERROR for None."""
    if error is None:
        return Status.NO_ERROR
    return next((status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), Status.ERROR)


@dataclass(frozen=True, slots=True)
class Call:
    """Conditions and effect of one call.

    ``allowed``: the states that permit the call. ``to``: the state after success (None: unchanged). A failure never
        changes the state. ``wrong``: the error in other states. ``required``: parameters that must not be None. With
    ``null_first``, the check precedes the check of the state. ``instead``: the replacement of a deprecated call.
    """

    allowed: frozenset[State]
    to: State | None = None
    required: tuple[str, ...] = ()
    null_first: bool = False
    wrong: type[errors.SessionError] = errors.InvalidStateError
    null: type[errors.SessionError] = errors.UnexpectedNullError
    instead: str = ""


# Sets of states that permit calls.
ANY = frozenset(State)
OPEN = ANY - {State.CLOSED}
LOADED = OPEN - {State.INITIALIZED}
IDLE = OPEN - {State.RUNNING}
NEW = frozenset({State.INITIALIZED})
MODEL = frozenset({State.MODEL_LOADED})
READY = frozenset({State.PREPARED, State.FINISHED_RUN})
AT_REST = MODEL | READY  # the states that permit another model

Method = TypeVar("Method", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


class SessionCore:
    """State, lock and last error of a session."""

    def __init__(self) -> None:
        self.state = State.INITIALIZED
        self.lock = RLock()
        self.last_error = ""
        self.log_level = logging.DEBUG
        mend_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child, replace the lock if a thread of the parent holds it."""
        if is_stuck(self.lock):
            self.lock = RLock()

    def keep_error(self, name: str, error: errors.OdcError) -> None:
        """Keep ``error``, which the call ``name`` raises, as the last error."""
        if error.stage is None:
            error.stage = name
        self.last_error = str(error)

    def enter(self, name: str, state: State) -> None:
        """Change to ``state`` after the call ``name``."""
        _log.log(self.log_level, "%s: %s -> %s", name, self.state, state)
        self.state = state


def call(allowed: frozenset[State], to: State | None = None, **conditions: Any) -> Callable[[Method], Method]:
    """Return a decorator that checks the conditions of a :class:`Call`, stored as attribute ``rule`` of the method.

    The decorator checks required parameters and the state. It records a failure and keeps the state. Success enters the
    next state. Threads that share a session take turns.
    """
    rule = Call(allowed, to, **conditions)

    def wrap(method: Method) -> Method:
        name = method.__name__
        positions = {parameter: at for at, parameter in enumerate(inspect.signature(method).parameters)}
        required = tuple((parameter, positions[parameter] - 1) for parameter in rule.required)

        @wraps(method)
        def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
            core: SessionCore = self._core
            lock = core.lock
            lock.acquire()
            try:
                if required and rule.null_first:
                    _check_given(name, rule, required, args, kwargs)
                if core.state not in allowed:
                    raise _wrong_state(name, rule, core.state)
                if required:
                    _check_given(name, rule, required, args, kwargs)
                result = method(self, *args, **kwargs) if kwargs else method(self, *args)  # costs less
                if to is not None and core.state is not to:
                    core.enter(name, to)
                return result
            except errors.OdcError as error:
                core.keep_error(name, error)
                raise
            except MemoryError as error:
                failure = errors.OutOfMemoryError("there is not enough memory", stage=name)
                core.keep_error(name, failure)
                raise failure from error
            finally:
                lock.release()

        checked.__dict__["rule"] = rule
        return cast(Method, checked)

    return wrap


def deprecated(name: str, instead: str) -> Callable[..., None]:
    """Return a method that always raises DeprecatedApiError, which names the replacement."""

    def refused(self: Any, *args: Any, **kwargs: Any) -> None:
        core: SessionCore = self._core
        with core.lock:
            failure = errors.DeprecatedApiError(f"{name} is deprecated", hint=f"use {instead}", stage=name)
            core.keep_error(name, failure)
            raise failure

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = f"Deprecated: always raises; use {instead}."
    refused.__dict__["rule"] = Call(OPEN, instead=instead)
    return refused


def _check_given(
    name: str, rule: Call, required: tuple[tuple[str, int], ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    for parameter, position in required:
        value = args[position] if position < len(args) else kwargs.get(parameter, parameter)
        if value is None:
            raise rule.null(f"{name} needs {parameter}, but it is None")


def _wrong_state(name: str, rule: Call, state: State) -> errors.OdcError:
    if state is State.CLOSED:
        return errors.UnexpectedNullError(f"{name} was called on a session that is closed")
    allowed = " or ".join(repr(str(item)) for item in State if item in rule.allowed)
    return rule.wrong(f"{name} is not allowed in the state {str(state)!r}", hint=f"it needs the state {allowed}")
