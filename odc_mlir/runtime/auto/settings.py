"""Settings and status of on-device compilation."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odc_mlir.errors import OptionError
from odc_mlir.formats.cache import CACHE_VARIABLE, DEFAULT_LIMIT_MB, LIMIT_VARIABLE, cache_folder
from odc_mlir.plugins.request import Preference
from odc_mlir.plugins.target import check_name
from odc_mlir.runtime.auto.aim import AUTO

SCHEMA_VERSION = 1
_MOST_SHOWN = 3


class Phase(StrEnum):
    """Phase of on-device compilation for one set of input shapes."""

    FLOAT = "float"  # the session has not looked for results yet; the original model answers
    COLLECTING = "collecting"
    QUANTIZING = "quantizing"
    CHECKING = "checking"
    COMPILING = "compiling"
    ACTIVE = "active"  # an executor other than the original model answers
    REJECTED = "rejected"  # only the original model answers, for a reason


class Level(StrEnum):
    """Kind of executor that answers, best first."""

    COMPILED = "compiled"
    DIRECT = "direct"  # native code of the float model
    QUANTIZED = "quantized"  # the quantised model, on the host
    ORIGINAL = "original"  # the original model


@dataclass(frozen=True, slots=True)
class Fallback:
    """A failure: ``level`` failed at ``stage`` because of ``reason``."""

    level: str
    stage: str
    reason: str


@dataclass(slots=True, repr=False)
class AutoStatus:
    """Status of on-device compilation. :meth:`to_json` has stable keys.

    ``serving``: level of the last answer, or of the first answer before any run. ``progress``: 0 to 1. ``reason``:
        cause of the phase, if necessary. ``shapes``: input shapes of this status. ``notes``: for example, ignored
        settings. ``watch``: data of the active result's watch. ``latency_us``: times of a run by level or plugin,
        measured side by side, empty for simulated hardware. ``cycles``: cycles of a run on simulated hardware, after
        the first run. As text, the status is short. :meth:`to_dict` has all entries.
    """

    enabled: bool = False
    phase: Phase = Phase.FLOAT
    serving: Level = Level.ORIGINAL
    progress: float = 0.0
    reason: str | None = None
    records: int = 0
    records_needed: int = 0
    target: str | None = None
    scheme: str | None = None
    preference: str | None = None
    trigger: str | None = None
    shapes: list[list[int]] = field(default_factory=list)
    key: str | None = None
    artefact: str | None = None
    verdict: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    latency_us: dict[str, float] = field(default_factory=dict)
    cycles: int | None = None
    fallbacks: list[Fallback] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    watch: dict[str, Any] | None = None

    def __repr__(self) -> str:
        verdict, where = self.verdict or {}, ", ".join(filter(None, (self.target, self.scheme)))
        entries = {
            "reason": [self.reason],
            "records": [self.records_needed and f"{self.records} of {self.records_needed}"],
            "accuracy": [
                verdict and "{status}: {metric} {value!s:.6}, limit {limit}".format_map(defaultdict(str, verdict))
            ],
            "finding": verdict.get("findings", ()),
            "cycles": [self.cycles and f"{self.cycles:,} a run, simulated"],
            "measured here": [", ".join(f"{level} {time:.1f} us" for level, time in self.latency_us.items())],
            "fallback": [f"{item.level} ({item.stage}): {item.reason}" for item in self.fallbacks[-_MOST_SHOWN:]],
            "note": self.notes[:_MOST_SHOWN],
        }
        lines = [f"{name}: {text}" for name, texts in entries.items() for text in texts if text]
        return "\n  ".join([f"{self.phase}, served by {self.serving}{where and f' ({where})'}", *lines])

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON data."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """Return the status as JSON text."""
        return json.dumps(self.to_dict(), indent=1)


def simulated_note(target: str | None, by: str) -> str:
    """Return the note about an executor that answers in place of hardware."""
    return f"{target} is simulated on this machine: {by} computes the same values, at another speed"


PROCESSES_VARIABLE = "ODC_PROCESSES"
IDLE_SECONDS = 1.0

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "ODC_TARGET": AUTO,  # an attached device, else the processor
        "ODC_QUANT_TYPE": "",  # the target's default
        # Ten runs are the default of ONE, and the smallest number that leaves two held-out runs for the check.
        "ODC_RECORDS": "10",
        "ODC_ACC_METRIC": "",  # the quantiser's default, which depends on the model
        "ODC_ACC_LIMIT": "",
        "ODC_TRIGGER": "after-records",
        "ODC_PREF": "default",
        "ODC_TIMEOUT_S": "600",  # longer background jobs do not help an application
        "ODC_MEM_LIMIT_MB": "4096",  # of address space; numpy and BLAS reserve much more than they use
        PROCESSES_VARIABLE: "1",  # simultaneous compile processes of the user, over all sessions and models
        CACHE_VARIABLE: "",
        LIMIT_VARIABLE: str(DEFAULT_LIMIT_MB),
        "ODC_UPDATE_PACKAGE": "0",
        "ODC_WATCH": "1",
        # Percentage of the time of answers: unnoticeable, but enough to detect a lasting problem within minutes.
        "ODC_WATCH_PERCENT": "2",
    }
)
"""Defaults of all settings by key, except the switch that enables the feature."""


class Trigger(StrEnum):
    """Time at which compiling starts."""

    FIRST_RUN = "first-run"  # before the first run, which waits for the result, if the model needs no records
    AFTER_RECORDS = "after-records"  # in the background, as soon as enough runs are recorded
    IDLE = "idle"  # as after-records, but not before the application has paused its runs for a while
    EXPLICIT = "explicit"  # when the application asks for it


_TRIGGERS = {str(item): item for item in Trigger} | {
    "first_prepare": Trigger.FIRST_RUN,
    "records": Trigger.AFTER_RECORDS,
    "background": Trigger.IDLE,
    "manual": Trigger.EXPLICIT,
}


@dataclass(frozen=True, slots=True)
class AutoSettings:
    """Settings of on-device compilation.

    ``target``: AUTO, a target or a machine of a target (``cpu``, ``npu-256``, a TOML file), or a plugin (``tvn-gen``).
    ``scheme`` None: the target's default. ``timeout_seconds`` and ``memory_bytes`` limit each compile process,
    ``processes`` the number of processes, ``cache_bytes`` the contents of ``folder``. ``watch``: check that records
    vary, and watch answers. ``shadow_share``: time for shadow runs, as a share of the time of answers.
    """

    target: str
    scheme: str | None
    records: int
    metric: str | None
    limit: float | None
    trigger: Trigger
    preference: Preference
    timeout_seconds: float
    memory_bytes: int
    processes: int
    folder: Path
    cache_bytes: int
    update_package: bool
    watch: bool
    shadow_share: float

    @property
    def budget(self) -> dict[str, float]:
        """The limits of a compile process, in the form of stored results."""
        return {"seconds": self.timeout_seconds, "bytes": float(self.memory_bytes)}


def compiles_before_first_run(get: Callable[[str, str], str]) -> bool:
    """Return whether the first run waits for a compile process. Reads only the trigger."""
    return _TRIGGERS.get(get("ODC_TRIGGER", DEFAULTS["ODC_TRIGGER"]).strip().casefold()) is Trigger.FIRST_RUN


def read_cache(get: Callable[[str, str], str]) -> tuple[Path, int]:
    """Return the cache folder and the size limit in bytes. Raises OptionError for invalid values."""
    folder = get(CACHE_VARIABLE, DEFAULTS[CACHE_VARIABLE]).strip()
    if folder and not Path(folder).is_absolute():
        raise _bad(CACHE_VARIABLE, folder, "an absolute path")
    limit = get(LIMIT_VARIABLE, DEFAULTS[LIMIT_VARIABLE]).strip()
    limit_bytes = int(_number(LIMIT_VARIABLE, limit, whole=True)) << 20
    return Path(folder) if folder else cache_folder(), limit_bytes


def read_settings(get: Callable[[str, str], str], flag: Callable[[str, str], bool]) -> AutoSettings:
    """Read the settings by ``get(key, default)`` and ``flag(key, default)``. Raises OptionError."""

    def value(key: str) -> str:
        return get(key, DEFAULTS[key]).strip()

    scheme, metric, limit = value("ODC_QUANT_TYPE"), value("ODC_ACC_METRIC").casefold(), value("ODC_ACC_LIMIT")
    if scheme and scheme != "none":
        from odc_mlir.quantizer.policy.schemes import scheme as scheme_of

        scheme = scheme_of(scheme).name
    if metric:
        from odc_mlir.quantizer.policy.verdict import metric_name  # the quantiser is slow to import

        metric = metric_name(metric)
    percent = _number("ODC_WATCH_PERCENT", value("ODC_WATCH_PERCENT"), positive=False)
    if not 0 <= percent <= 100:
        raise _bad("ODC_WATCH_PERCENT", value("ODC_WATCH_PERCENT"), "a number from 0 to 100")
    trigger = value("ODC_TRIGGER").casefold()
    if trigger not in _TRIGGERS:
        raise _bad("ODC_TRIGGER", trigger, f"one of {', '.join(Trigger)}")
    preference = value("ODC_PREF").casefold().replace("_first", "").replace("-first", "")
    if preference != "default" and not preference.isdecimal():
        preference = f"{preference}-first"
    folder, cache_bytes = read_cache(get)
    target = value("ODC_TARGET")
    if target != AUTO:
        check_name(target)  # raises an error for an unknown target, and for a file that cannot be read
        # The compile process runs in another folder.
        target = str(Path(target).absolute()) if target.endswith(".toml") else target
    return AutoSettings(
        target=target,
        scheme=None if scheme in ("", "none") else scheme,
        records=int(_number("ODC_RECORDS", value("ODC_RECORDS"), whole=True)),
        metric=metric or None,
        limit=_number("ODC_ACC_LIMIT", limit, positive=False) if limit else None,
        trigger=_TRIGGERS[trigger],
        preference=Preference.of(int(preference) if preference.isdecimal() else preference),
        timeout_seconds=_number("ODC_TIMEOUT_S", value("ODC_TIMEOUT_S")),
        memory_bytes=int(_number("ODC_MEM_LIMIT_MB", value("ODC_MEM_LIMIT_MB"), whole=True)) << 20,
        processes=int(_number(PROCESSES_VARIABLE, value(PROCESSES_VARIABLE), whole=True)),
        folder=folder,
        cache_bytes=cache_bytes,
        update_package=flag("ODC_UPDATE_PACKAGE", DEFAULTS["ODC_UPDATE_PACKAGE"]),
        watch=flag("ODC_WATCH", DEFAULTS["ODC_WATCH"]),
        shadow_share=percent / 100,
    )


def _number(key: str, text: str, *, whole: bool = False, positive: bool = True) -> float:
    try:
        number = float(int(text)) if whole else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (positive and number <= 0):
        raise _bad(key, text, f"a {'whole ' if whole else ''}number{' above 0' if positive else ''}")
    return number


def _bad(key: str, text: str, allowed: str) -> OptionError:
    return OptionError(f"{key} is {text!r}, expected {allowed}")
