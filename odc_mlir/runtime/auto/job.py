"""What the background process is asked to do, and how it tells how far it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odc_mlir import targets
from odc_mlir._version import __version__
from odc_mlir.plugins import registry
from odc_mlir.quantization.recorded import Shapes
from odc_mlir.runtime.auto.artefacts import make_key
from odc_mlir.runtime.auto.settings import AutoSettings
from odc_mlir.runtime.auto.status import Phase


class Step(StrEnum):
    """What the process says when it gets there, in this order; some may be left out."""

    STARTED = "started"
    LOCKED = "locked"
    MODEL_READ = "model read"
    TARGET_ASKED = "target asked"
    SAMPLES_READ = "samples read"
    QUANTIZING = "quantizing"
    QUANTIZED = "quantized"
    CHECKED = "checked"
    MODEL_KEPT = "model kept"
    COMPILING = "compiling"
    COMPILED = "compiled"
    COMMITTING = "committing"
    COMMITTED = "committed"
    INSTALLED = "installed"
    DONE = "done"


PHASES: Mapping[Step, Phase] = MappingProxyType(
    {
        Step.QUANTIZING: Phase.QUANTIZING,
        Step.QUANTIZED: Phase.CHECKING,
        Step.COMPILING: Phase.COMPILING,
    }
)
"""The phase that begins with a step."""


@dataclass(frozen=True, slots=True)
class Job:
    """``model`` is a file whose content must have ``digest``; ``quantized``: it is quantised already.

    ``fixed_shapes``: the shapes to give to the model's inputs, None where they are the model's own. ``package``: the
    nnpackage to install the result in.
    """

    key: str
    folder: str
    model: str
    digest: str
    records: str
    quantized: bool
    plugin: str
    machine: str | None
    scheme: str | None
    metric: str | None
    limit: float | None
    preference: int
    seconds: float
    memory_bytes: int
    fixed_shapes: list[list[int]] | None = None
    package: str | None = None

    @property
    def budget(self) -> dict[str, float]:
        """The limits as a result remembers them."""
        return {"seconds": self.seconds, "bytes": float(self.memory_bytes)}

    def to_json(self) -> str:
        """One line that :meth:`from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that :meth:`to_json` wrote."""
        return cls(**json.loads(text))


def key_of(settings: AutoSettings, digest: str, shapes: Shapes) -> str:
    """The key of what these settings make of the model with ``digest`` for inputs of ``shapes``; raises OptionError."""
    facts: dict[str, Any] = {
        "model": digest,
        "shapes": [list(shape) for shape in shapes],
        "target": _target_facts(settings),
        "scheme": settings.scheme,
        "metric": settings.metric,
        "limit": settings.limit,
        "preference": int(settings.preference),
        "version": __version__,
    }
    return make_key(facts)


def _target_facts(settings: AutoSettings) -> list[str]:
    """What tells one target from another: the plugin with its version, and the machine by its description."""
    source = registry.find(settings.plugin)
    if settings.machine is None:
        return [settings.plugin, source.origin]
    target = targets.load(settings.machine)
    return [settings.plugin, source.origin, target.name, target.digest("flash").hex()]


def progress_line(step: str, **facts: Any) -> bytes:
    """A line by which the process tells what it is doing."""
    return json.dumps({"step": step, **facts}).encode() + b"\n"


def read_progress(line: bytes) -> dict[str, Any] | None:
    """What such a line says; None for anything else that the process prints."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("step"), str) else None


def model_file(folder: Path, digest: str) -> Path:
    """Where a model is kept that has no file of its own."""
    return folder / "models" / f"{digest}.circle"
