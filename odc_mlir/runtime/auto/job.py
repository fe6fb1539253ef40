"""What the background process is asked to do, and how it tells how far it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odc_mlir._version import __version__
from odc_mlir.calibration.recorded import Shapes
from odc_mlir.formats.private import digest_file
from odc_mlir.runtime.auto.aim import Aim
from odc_mlir.runtime.auto.artefacts import Artefact, make_key
from odc_mlir.runtime.auto.original import Original, is_quantized
from odc_mlir.runtime.auto.settings import AutoSettings
from odc_mlir.runtime.auto.status import Phase


class Milestone(StrEnum):
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
    MEASURED = "measured"
    COMMITTING = "committing"
    COMMITTED = "committed"
    INSTALLED = "installed"
    DONE = "done"


QUEUED = "queued"
"""The step before a process starts, if others are at work."""

PHASES: Mapping[Milestone, Phase] = MappingProxyType(
    {
        Milestone.QUANTIZING: Phase.QUANTIZING,
        Milestone.QUANTIZED: Phase.CHECKING,
        Milestone.COMPILING: Phase.COMPILING,
    }
)
"""The phase that begins with a step."""


TIMES_ENOUGH = 4
"""At so many times the runs that are needed nothing more is expected of records."""


@dataclass(frozen=True, slots=True)
class Job:
    """``model`` is a file whose content must have ``digest``; ``quantized``: it is quantised already.

    ``shapes`` are those of the inputs to make it for; ``fixed_shapes`` are the same, to give to the model's inputs,
    None where they are the model's own. ``package``: the
    nnpackage to install the result in. ``again``: what is there already is not good enough. ``target``: what the key
    says of it. ``runs`` are recorded; records of so many as ``patience_runs`` are taken even where they show little,
    with 0 they are not looked at. ``verdict`` is that of a model quantised already. ``direct``: the model itself is
    compiled, whatever it computes with. ``rival`` serves now, as a package (None: the model itself, by host kernels):
    what is made must be faster here, where ``must_be_faster``. ``twin`` makes native code of the same model, which
    answers in place of a simulator; None where nothing is simulated. ``processes``: the most compile processes at once.
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
    cache_bytes: int
    shapes: list[list[int]] = field(default_factory=list)
    fixed_shapes: list[list[int]] | None = None
    package: str | None = None
    again: bool = False
    target: list[str] = field(default_factory=list)
    runs: int = 0
    patience_runs: int = 0
    verdict: dict[str, Any] | None = None
    direct: bool = False
    rival: str | None = None
    must_be_faster: bool = False
    twin: str | None = None
    processes: int = 1

    @property
    def places(self) -> list[Path]:
        """Lock files of the places for compile processes: all jobs of the user share them."""
        return [Path(self.folder, "jobs", f"place-{number}") for number in range(self.processes)]

    @property
    def interest_path(self) -> Path:
        """Lock file that each session holds, shared, while it wants the result."""
        return Path(self.folder, "jobs", self.key)

    @property
    def budget(self) -> dict[str, float]:
        """The limits as a result remembers them."""
        return {"seconds": self.seconds, "bytes": float(self.memory_bytes), "runs": float(self.runs)}

    def to_json(self) -> str:
        """One line that :meth:`from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that :meth:`to_json` wrote."""
        return cls(**json.loads(text))


def key_of(
    settings: AutoSettings, digest: str, shapes: Shapes, facts_of_target: Sequence[str], *, direct: bool = False
) -> str:
    """The key of what these settings make of the model with ``digest`` for inputs of ``shapes``.

    ``direct``: of the model itself, so that nothing of quantising counts.
    """
    choices = {"scheme": settings.scheme, "metric": settings.metric, "limit": settings.limit}
    facts: dict[str, Any] = {
        "model": digest,
        "shapes": [list(shape) for shape in shapes],
        "target": list(facts_of_target),
        **({"direct": True} if direct else choices),
        "preference": int(settings.preference),
        "version": __version__,
    }
    return make_key(facts)


def make_job(
    settings: AutoSettings, aim: Aim, original: Original, base: Artefact | None, shapes: Shapes, **facts: Any
) -> Job:
    """The job that ``settings`` ask for; ``facts`` are its other fields. Raises OdcError.

    It is about ``original``, or the quantised model of ``base``, for inputs of ``shapes``.
    """
    quantized = None if base is None else base.model
    if quantized is not None:
        model, digest = quantized, digest_file(quantized)
    else:
        model, digest = original.file(settings.folder), original.digest
    others = original.other_shapes(shapes)
    fixed = None if others is None else [list(shape) for shape in others]
    # The model itself as code is a beginning: a package that holds it would look compiled, and stay as it is.
    package = None if facts.get("direct") else original.package
    return Job(
        folder=str(settings.folder),
        model=str(model.absolute()),
        digest=digest,
        quantized=quantized is not None or is_quantized(original.graph),
        verdict=None if base is None else base.result.verdict,
        plugin=aim.plugin,
        machine=aim.machine,
        target=list(aim.facts),
        scheme=settings.scheme,
        metric=settings.metric,
        limit=settings.limit,
        preference=int(settings.preference),
        seconds=settings.timeout_seconds,
        memory_bytes=settings.memory_bytes,
        cache_bytes=settings.cache_bytes,
        processes=settings.processes,
        shapes=[list(shape) for shape in shapes],
        fixed_shapes=fixed,
        twin=aim.twin[0] if aim.twin else None,
        package=str(package.absolute()) if package is not None and fixed is None else None,
        patience_runs=TIMES_ENOUGH * settings.records if settings.watch else 0,
        **facts,
    )


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
