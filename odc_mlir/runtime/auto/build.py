"""The steps of making a better model on the device; the only part of it that reaches quantiser and compiler.

Everything here takes long and needs much memory: sessions call it when their user asks for it, and else leave it to a
process of its own (see worker.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from odc_mlir.errors import SessionError
from odc_mlir.ops.spec import Array
from odc_mlir.quantization.records import RecordStore
from odc_mlir.quantization.schemes import scheme as scheme_of

Progress = Callable[[str, int, int | None], None]


class QuantizedModel(NamedTuple):
    """The bytes of a Circle file, and how close it is to the float model."""

    model: bytes
    verdict: dict[str, Any]


def recorded_inputs(records: Path | None) -> list[list[Array]]:
    """The raw inputs in the store at ``records``, oldest first, none where there is no store; raises RecordsError."""
    if records is None or not records.is_file():
        return []
    return RecordStore(records, create=False).inputs()


def quantize(
    model: Path,
    scheme: str,
    *,
    samples: Sequence[Sequence[Array]],
    io: str = "float",
    metric: str | None = None,
    limit: float | None = None,
    max_seconds: float | None = None,
    progress: Progress | None = None,
) -> QuantizedModel:
    """``model`` quantised by ``samples`` of its inputs, and the verdict; raises OdcError.

    Schemes that quantise weights alone need no sample to choose parameters, but samples are what a verdict is made of.
    """
    if not samples and not scheme_of(scheme).weights_only:
        raise SessionError(
            "nothing has been recorded of this model", hint="run it with set_execute_config('DUMP_MINMAX') first"
        )
    from odc_mlir.runtime import api

    made = api.quantize(
        model,
        scheme=scheme,
        calibration=list(samples) or None,
        io=io,
        metric=metric,
        limit=limit,
        max_seconds=max_seconds,
        progress=progress,
    )
    return QuantizedModel(bytes(made.to_circle()), dict(made.verdict))
