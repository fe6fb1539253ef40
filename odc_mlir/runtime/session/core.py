"""What every call of a session shares: its state, its lock, and the memory of the last error."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, Protocol, TypeVar, cast

from odc_mlir.errors import DeprecatedApiError, OdcError, OutOfMemoryError, UnexpectedNullError
from odc_mlir.runtime.forks import is_stuck, mend_after_fork
from odc_mlir.runtime.session.states import CALLS, Call, State

Method = TypeVar("Method", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


class SessionCore:
    """A state, and a lock for threads that share the session."""

    def __init__(self) -> None:
        self.state = State.INITIALIZED
        self.lock = RLock()
        self.last_error = ""
        self.log_level = logging.DEBUG
        mend_after_fork(self)

    def after_fork(self) -> None:
        """In a child process: nobody waits for a call of a thread that is not here. What it was doing has no effect."""
        if is_stuck(self.lock):
            self.lock = RLock()

    def keep_error(self, name: str, error: OdcError) -> None:
        """Remember what the call ``name`` raises."""
        if error.stage is None:
            error.stage = name
        self.last_error = str(error)

    def enter(self, name: str, state: State) -> None:
        """The call ``name`` leads to ``state``."""
        if state is not self.state:
            _log.log(self.log_level, "%s: %s -> %s", name, self.state, state)
            self.state = state


class _HasCore(Protocol):
    @property
    def _core(self) -> SessionCore: ...


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
    def checked(self: _HasCore, *args: Any, **kwargs: Any) -> Any:
        core = self._core
        with core.lock:
            try:
                if required and rule.null_first:
                    _check_given(name, rule, required, args, kwargs)
                if core.state not in allowed:
                    raise _wrong_state(name, rule, core.state)
                if required:
                    _check_given(name, rule, required, args, kwargs)
                result = method(self, *args, **kwargs)
            except OdcError as error:
                core.keep_error(name, error)
                raise
            except MemoryError as error:
                failure = OutOfMemoryError("there is not enough memory", stage=name)
                core.keep_error(name, failure)
                raise failure from error
            if to is not None:
                core.enter(name, to)
            return result

    return cast(Method, checked)


def deprecated(name: str) -> Callable[..., None]:
    """A call that always raises DeprecatedApiError, naming what to use instead."""
    instead = CALLS[name].instead

    def refused(self: _HasCore, *args: Any, **kwargs: Any) -> None:
        core = self._core
        with core.lock:
            failure = DeprecatedApiError(f"{name} is deprecated", hint=f"use {instead}", stage=name)
            core.keep_error(name, failure)
            raise failure

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = f"Deprecated: always raises; use {instead}."
    return refused


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
