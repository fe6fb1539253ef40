"""Recognition of record files as outputs. It does not load the readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odc_mlir.formats.kinds import OutputKind

if TYPE_CHECKING:
    from pathlib import Path


def _is_records(path: Path) -> bool:
    from odc_mlir.calibration.records import is_minmax, is_record_store

    with path.open("rb") as file:
        head = file.read(100)
    return is_minmax(head) or is_record_store(head)


RECORDS = OutputKind("a file of records", _is_records)
