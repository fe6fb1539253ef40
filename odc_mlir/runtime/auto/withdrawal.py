"""Takes back what has been made, where its answers have left the limits, so that no later process begins with it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from odc_mlir.errors import OdcError
from odc_mlir.formats.package_update import roll_back
from odc_mlir.runtime.auto.artefacts import WATCH, Artefacts, JobResult
from odc_mlir.runtime.auto.locks import file_lock

_log = logging.getLogger(__name__)

_LOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Given:
    """``result`` is given up for ``key`` until ``records_needed`` runs are recorded."""

    key: str
    result: JobResult
    records_needed: int


def withdraw(artefacts: Artefacts, package: Path | None, given: Sequence[Given], reason: str) -> None:
    """Take back what is ``given`` up because of ``reason``, from ``package`` as well if it was installed there.

    What cannot be taken back is logged.
    """
    for item in given:
        budget = {**item.result.budget, "runs": float(item.records_needed - 1)}
        refusal = JobResult(None, reason, WATCH, "watch", item.result.scheme, budget=budget)
        try:
            with file_lock(artefacts.lock_path(item.key), seconds=_LOCK_SECONDS):
                found, _ = artefacts.find(item.key)
                if found is not None and found.result == item.result:  # nobody has made another one
                    artefacts.keep_refusal(item.key, refusal)
        except OdcError as error:
            _log.warning("%s; later sessions may start with the rejected result", error)
    if package is not None:
        with suppress(OdcError):  # where nothing was installed there is nothing to undo
            roll_back(package)
