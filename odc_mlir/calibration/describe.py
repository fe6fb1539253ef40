"""Files of records as documents that JSON can hold, for people to look at."""

from __future__ import annotations

import math
import os
from typing import Any

from odc_mlir.calibration.coverage import coverage, document
from odc_mlir.calibration.minmax_file import VERSION, read_runs
from odc_mlir.calibration.recorded import TensorKey
from odc_mlir.calibration.records import RECORDS_VERSION, RecordStore
from odc_mlir.calibration.statistics import TensorStatistics

Document = dict[str, Any]


def describe_records(path: str | os.PathLike[str]) -> Document:
    """Describe the record file at ``path``; raise RecordsError."""
    store = RecordStore(path, create=False)
    records = store.records()
    inputs = [key for key in records.tensors if key[0] == 0 and key[1] in records.inputs]
    return {
        "format": "records",
        "version": RECORDS_VERSION,
        "digest": store.digest,
        "runs": records.runs,
        "shapes": [{"inputs": [list(s) for s in shapes], "runs": runs} for shapes, runs in store.shapes().items()],
        "raw_inputs": len(store.inputs()),
        "tensors": [_tensor(key, statistics) for key, statistics in records.tensors.items()],
        "findings": document(coverage(records, inputs)),
    }


def _tensor(key: TensorKey, statistics: TensorStatistics) -> Document:
    return {
        "subgraph": key[0],
        "name": key[1],
        "runs": statistics.runs,
        "minimum": _finite(statistics.minimum),
        "maximum": _finite(statistics.maximum),
        "mean": _finite(statistics.mean) if statistics.count else None,
        "deviation": _finite(math.sqrt(statistics.variance)) if statistics.count else None,
        "elements": statistics.count,
        "channels": None if statistics.channels is None else len(statistics.channels.counts),
        "nan": statistics.nan_count,
        "infinite": statistics.infinite_count,
        "lowest": statistics.lowest_count,
        "run_minima": [float(value) for value in statistics.minima],
        "run_maxima": [float(value) for value in statistics.maxima],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def describe_minmax(data: bytes, location: str | None = None) -> Document:
    """Describe a ``minmax.bin`` by its addresses; raise RecordsError."""
    runs = read_runs(data, location)
    found: dict[tuple[int, int, str, int], list[tuple[float, float]]] = {}
    for parts in runs:
        for entries, kind in zip(parts, ("operator", "input"), strict=True):
            for model, subgraph, index, low, high in entries.tolist():
                found.setdefault((model, subgraph, kind, index), []).append((low, high))
    return {
        "format": "minmax",
        "version": VERSION,
        "runs": len(runs),
        "ranges": [
            {
                "model": model,
                "subgraph": subgraph,
                "kind": kind,
                "index": index,
                "runs": len(pairs),
                "minimum": _finite(min(low for low, _ in pairs)),
                "maximum": _finite(max(high for _, high in pairs)),
            }
            for (model, subgraph, kind, index), pairs in found.items()
        ],
    }
