"""Proof of what was made, beside the runs that other things answer meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Condition

import numpy as np

from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.auto.background import Background
from odc_mlir.runtime.auto.lane import Lane
from odc_mlir.runtime.auto.serving import Serving

_log = logging.getLogger(__name__)


def prove(lane: Lane, serving: Serving, inputs: Sequence[Array], background: Background, changed: Condition) -> None:
    """Prove ``serving`` of ``lane`` by a copy of ``inputs``, in the ``background``; ``changed`` is told the end.

    The lock of ``changed`` must be held. What fails is given up.
    """
    if serving.is_being_proven or lane.is_loading:
        return
    kept = [np.array(value) for value in inputs]

    def work() -> None:
        try:
            serving.prove(kept)
        except OdcError as error:
            _log.warning("%s: %s; going on without", serving.level, error)
            with changed:
                lane.give_up(serving, error.stage or "run", str(error))
        finally:
            with changed:
                serving.is_being_proven = lane.is_loading = False
                changed.notify_all()

    serving.is_being_proven = lane.is_loading = True
    if not background.submit(work):
        serving.is_being_proven = lane.is_loading = False
