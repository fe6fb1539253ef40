"""Settings of a session: from the user, the environment, the package's config.cfg and defaults, in this order."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odc_mlir.errors import OdcError, OptionError, SessionError, did_you_mean
from odc_mlir.formats.cache import CACHE_VARIABLE, LIMIT_VARIABLE
from odc_mlir.runtime.auto.settings import DEFAULTS as KNOWN
from odc_mlir.runtime.auto.settings import read_settings
from odc_mlir.runtime.execution.team import MAX_THREADS

ENABLE = "OnDeviceCompilation"

# Settings that a package's config.cfg may have in addition to settings of on-device compilation. Other keys and values
# are ignored, so that the model can still be loaded.
DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "BACKENDS": "",  # empty: the target that the model was compiled for, otherwise the host
        "EXECUTOR": "Linear",
        "OP_BACKEND_MAP": "",
        "ENABLE_LOG": "0",
        "PROFILING_MODE": "0",
        "TRACING_MODE": "0",
        "MINMAX_DUMP": "0",
        "INTERNAL_OUTPUT_ALLOC": "0",
        "NUM_THREADS": "-1",  # one, except for large matrix products
        "USE_SCHEDULER": "0",
        "GRAPH_DOT_DUMP": "0",
        "WORKSPACE_DIR": ".",
        ENABLE: "0",
    }
)
OP_BACKEND = "OP_BACKEND_"
SETTABLE = ("GRAPH_DOT_DUMP", "EXECUTOR", "USE_SCHEDULER", "PROFILING_MODE", "ENABLE_LOG", "NUM_THREADS")
READABLE = ("BACKENDS", "EXECUTOR")

# Accepted values of options of other runtimes. They do not affect our results.
_ONLY = MappingProxyType({"EXECUTOR": ("Linear",), "USE_SCHEDULER": ("0",), "GRAPH_DOT_DUMP": ("0",)})
_THREADS = "NUM_THREADS"
_OF_USERS = (CACHE_VARIABLE, LIMIT_VARIABLE, "ODC_PROCESSES")
_FALSE = frozenset({"", "0", "off", "false", "n", "no"})


def _may_choose(key: str, value: str) -> bool:
    """Return whether a package may set ``key`` to ``value``. Files and resources belong to the user."""
    if key in _OF_USERS:
        return False
    if key == "ODC_TARGET":  # a name of a machine or plugin, never a path
        return not (value.strip().endswith(".toml") or os.path.basename(value) != value)
    return key != "WORKSPACE_DIR" or not (os.path.isabs(value) or ".." in Path(value).parts)


def _objection(key: str, value: str) -> str | None:
    if not _may_choose(key, value):
        return "which only the application and the environment may"
    if key == _THREADS:
        try:
            _threads(value)
        except OdcError as error:
            return f"which is ignored: {error}"
    if _is_of_runtime(key):
        return None
    if key not in KNOWN:
        return "which is no setting of ours"
    only = {CACHE_VARIABLE: os.path.abspath(os.sep), key: value}
    try:
        read_settings(lambda name, default: only.get(name, default), lambda _, default: is_true(default))
    except OdcError as error:
        return f"which is ignored: {error}"
    return None


def check_chosen(chosen: Mapping[str, Any]) -> None:
    """Raise OptionError for invalid settings of the user, and of the environment if the session compiles.

    Invalid settings of a package are ignored instead, so that the model can still be loaded.
    """
    for key, value in chosen.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise OptionError(f"the setting {key!r} is {value!r}, expected text")
        _check_value(key, value)
    rest = [key for key in chosen if not _is_of_runtime(key)]
    if not rest and not Settings({}, dict(chosen)).flag(ENABLE):
        return
    for key in rest:
        if key not in KNOWN:
            names = (*DEFAULTS, *KNOWN)
            hint = did_you_mean(key, names).strip() or f"there are {', '.join(names)}"
            raise OptionError(f"there is no setting {key!r}", hint=hint)
    settings = Settings({}, dict(chosen))
    read_settings(settings.get, settings.flag)


def _is_of_runtime(key: str) -> bool:
    """Return whether ``key`` is a setting of the runtime, not of on-device compilation."""
    return key in DEFAULTS or key.startswith(OP_BACKEND)


def _check_value(key: str, value: str) -> None:
    allowed = _ONLY.get(key)
    if allowed is not None and value and value not in allowed:
        raise OptionError(f"{key} cannot be {value!r} here", hint=f"use {' or '.join(allowed)}")
    if key == _THREADS:
        _threads(value)


def _threads(text: str) -> int | None:
    count = int(text) if re.fullmatch("-?[0-9]{1,6}", text) else 0
    if count != -1 and not 1 <= count <= MAX_THREADS:
        seen = repr(text) if text else "empty"
        raise OptionError(f"{_THREADS} cannot be {seen}", hint=f"use a number from 1 to {MAX_THREADS}, or -1")
    return None if count == -1 else count


def is_true(text: str) -> bool:
    """Parse a switch: true except for "", 0, off, false, n and no, in upper or lower case."""
    return text.strip().casefold() not in _FALSE


def _note(key: str, value: str, objection: str) -> str:
    return f"the package's config.cfg chooses {key} {value!r}, {objection}"


class Settings:
    """The settings of one session: ``config`` of the package, and ``chosen`` by the user, which take precedence.

    ``chosen`` is not copied. Later settings are added to it. ``ignored``: notes on invalid settings of the package.
    """

    def __init__(self, config: Mapping[str, str] | None = None, chosen: dict[str, str] | None = None) -> None:
        self.config: dict[str, str] = {}
        self.chosen = {} if chosen is None else chosen
        self.ignored: list[str] = []
        for key, value in (config or {}).items():
            objection = _objection(key, value) if value else None
            if objection is None:
                self.config[key] = value
            else:
                self.ignored.append(_note(key, value, objection))

    def without_backends(self, reason: str) -> Settings | None:
        """Return the settings without the package's backends, with a note on ``reason``, or None if it sets none."""
        ours = {key: value for key, value in self.config.items() if key == "BACKENDS" or key.startswith(OP_BACKEND)}
        if not any(ours.values()):
            return None
        found = Settings(chosen=self.chosen)
        found.config = {key: value for key, value in self.config.items() if key not in ours}
        found.ignored = [*self.ignored, *(_note(*item, f"which is ignored: {reason}") for item in ours.items())]
        return found

    def get(self, key: str, default: str | None = None) -> str:
        """Return the value of ``key``. An empty string counts as not set."""
        for source in (self.chosen, os.environ):
            if value := source.get(key, ""):
                return value
        if value := self.config.get(key, ""):
            return value
        return DEFAULTS.get(key, "") if default is None else default

    def flag(self, key: str, default: str | None = None) -> bool:
        """Return the value of the switch ``key``."""
        return is_true(self.get(key, default))

    @property
    def threads(self) -> int | None:
        """Number of threads, as in a context. Raises OptionError for an invalid value of the environment."""
        return _threads(self.get(_THREADS))

    def op_backends(self) -> dict[str, str]:
        """Return backends by operator name, from keys such as ``OP_BACKEND_Conv2D``."""
        keys = dict.fromkeys((*self.config, *os.environ, *self.chosen))
        found = {key.removeprefix(OP_BACKEND): self.get(key) for key in keys if key.startswith(OP_BACKEND)}
        found.pop("MAP", None)
        return {name: backend for name, backend in found.items() if name and backend}

    def set(self, key: str, value: str) -> None:
        """Set a key that users may set. Raises SessionError for other keys and OptionError for invalid values."""
        if key not in SETTABLE:
            raise SessionError(f"the setting {key!r} cannot be set", hint=f"it must be one of {', '.join(SETTABLE)}")
        _check_value(key, value)
        self.chosen[key] = value

    def read(self, key: str) -> str:
        """Return the value of a key that users may read. Raises SessionError for other keys."""
        if key not in READABLE:
            raise SessionError(f"the setting {key!r} cannot be read", hint=f"it must be one of {', '.join(READABLE)}")
        return self.get(key)
