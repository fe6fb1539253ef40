"""Proof of what was made, beside the runs that other things answer meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Condition

import numpy as np

from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.auto.background import Background
from odc_mlir.runtime.auto.candidates import ExecutorCandidate
from odc_mlir.runtime.auto.specialization import Specialization

_log = logging.getLogger(__name__)


def prove(
    state: Specialization,
    candidate: ExecutorCandidate,
    inputs: Sequence[Array],
    background: Background,
    changed: Condition,
) -> None:
    """Prove ``candidate`` of ``state`` by a copy of ``inputs``, in the ``background``; ``changed`` is told the end.

    The lock of ``changed`` must be held. What fails is given up.
    """
    if candidate.is_being_proven or state.is_loading:
        return
    kept = [np.array(value) for value in inputs]

    def work() -> None:
        try:
            candidate.prove(kept)
        except OdcError as error:
            _log.warning("%s: %s; continuing without it", candidate.level, error)
            with changed:
                state.give_up(candidate, error.stage or "run", str(error))
        finally:
            with changed:
                candidate.is_being_proven = state.is_loading = False
                changed.notify_all()

    candidate.is_being_proven = state.is_loading = True
    if not background.submit(work):
        candidate.is_being_proven = state.is_loading = False
