"""What every call of a session shares: its state, its lock, and the memory of the last error."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast

from odc_mlir.errors import DeprecatedApiError, OdcError, OutOfMemoryError, UnexpectedNullError
from odc_mlir.runtime.session.states import CALLS, Call, State

Method = TypeVar("Method", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


class SessionCore:
    """A state, and a lock for threads that share the session."""

    def __init__(self) -> None:
        self._state = State.INITIALIZED
        self._lock = RLock()
        self._last_error = ""
        self._log_level = logging.DEBUG

    @property
    def state(self) -> State:
        """Where the session stands."""
        return self._state

    @property
    def last_error_message(self) -> str:
        """The text of the last failure, empty before the first; success does not clear it."""
        return self._last_error

    def _keep_error(self, name: str, error: OdcError) -> None:
        if error.stage is None:
            error.stage = name
        self._last_error = str(error)

    def _enter(self, name: str, state: State) -> None:
        if state is not self._state:
            _log.log(self._log_level, "%s: %s -> %s", name, self._state, state)
            self._state = state


def call(method: Method) -> Method:
    """``method`` behind the checks that the table of calls has for its name.

    Parameters that are required and the state are checked, a failure is remembered and leaves the state as it was, and
    success enters the next state. Threads that share a session wait for one another.
    """
    name = method.__name__
    rule = CALLS[name]
    allowed, to = rule.allowed, rule.to
    positions = {parameter: place for place, parameter in enumerate(inspect.signature(method).parameters)}
    required = tuple((parameter, positions[parameter] - 1) for parameter in rule.required)

    @wraps(method)
    def checked(self: SessionCore, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            try:
                if required and rule.null_first:
                    _check_given(name, rule, required, args, kwargs)
                if self._state not in allowed:
                    raise _wrong_state(name, rule, self._state)
                if required:
                    _check_given(name, rule, required, args, kwargs)
                result = method(self, *args, **kwargs)
            except OdcError as error:
                self._keep_error(name, error)
                raise
            except MemoryError as error:
                failure = OutOfMemoryError("there is not enough memory", stage=name)
                self._keep_error(name, failure)
                raise failure from error
            if to is not None:
                self._enter(name, to)
            return result

    return cast(Method, checked)


def deprecated(method: Method) -> Method:
    """A call that always raises DeprecatedApiError, naming what to use instead."""
    name = method.__name__
    instead = CALLS[name].instead

    @wraps(method)
    def refused(self: SessionCore, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            failure = DeprecatedApiError(f"{name} is deprecated", hint=f"use {instead}", stage=name)
            self._keep_error(name, failure)
            raise failure

    return cast(Method, refused)


def _check_given(
    name: str, rule: Call, required: tuple[tuple[str, int], ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    for parameter, place in required:
        value = args[place] if place < len(args) else kwargs.get(parameter, parameter)
        if value is None:
            raise rule.null(f"{name} needs {parameter}, but it is None")


def _wrong_state(name: str, rule: Call, state: State) -> OdcError:
    if state is State.CLOSED:
        return UnexpectedNullError(f"{name} was called on a session that is closed")
    allowed = " or ".join(repr(str(item)) for item in State if item in rule.allowed)
    return rule.wrong(f"{name} is not allowed in the state {str(state)!r}", hint=f"it needs the state {allowed}")
