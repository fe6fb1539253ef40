"""Cost model: rates of a few layers, measured once.

The cache keeps them by processor and version of IREE.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from odc_iree.target import TARGET, facts
from odc_mlir import __version__, ops
from odc_mlir.errors import OdcError
from odc_mlir.formats.cache import cache_folder
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.private import make_folder, read_file, write_file
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.ops.work import is_view, moved_elements
from odc_mlir.plugins.target import Costs, SegmentModel, operator_model
from odc_mlir.targets.costs import load_host

_SECONDS = 0.02  # of runs of one layer
_LEAST_RUNS = 3
_MAX_BYTES = 4096
_SMALL, _PLANE = (1, 1), (512, 512)


def _layer(name: str, x: tuple[int, ...], weights: tuple[int, ...] | None = None, **options: object) -> Node:
    spec, infos = ops.get(name), [TensorInfo("x", "float32", x)]
    if weights is not None:
        data = np.random.default_rng(5).normal(size=weights).astype(np.float32)
        infos += [TensorInfo("w", "float32", weights, data=memoryview(data.tobytes())), None]  # type: ignore[list-item]
    result = (x[0], weights[0]) if name == "FULLY_CONNECTED" and weights is not None else x
    fields = default_options(spec.options) if spec.options else {}
    return Node(spec, tuple(infos), (TensorInfo("y", "float32", result),), {**fields, **options})


_WINDOW = {"padding": "same", "stride_h": 1, "stride_w": 1}
_LAYERS = {
    "CONV_2D": _layer("CONV_2D", (1, 32, 32, 32), (32, 3, 3, 32), **_WINDOW),
    "DEPTHWISE_CONV_2D": _layer("DEPTHWISE_CONV_2D", (1, 32, 32, 32), (1, 3, 3, 32), depth_multiplier=1, **_WINDOW),
    "FULLY_CONNECTED": _layer("FULLY_CONNECTED", (4, 256), (256, 256)),
}
_ELEMENTS = "elements"
_EMPTY, _COPY, _COMPUTE = _layer("RELU", _SMALL), _layer("RELU", _PLANE), _layer("LOGISTIC", _PLANE)
_BYTES_COPIED = 2 * 4 * _PLANE[0] * _PLANE[1]


def costs() -> Costs:
    """Return the cost model: rates of layers and copies on this processor, and host kernels of such processors."""
    rates = _rates()
    host = replace(
        load_host("x86-64", f"the target {TARGET}"),
        switch_ns=rates["call"],
        transfer_bytes_per_us=1000 * _BYTES_COPIED / max(1.0, rates["copy"]),
    )
    return Costs(lambda node: _operator_ns(node, rates), host)


def _operator_ns(node: Node, rates: Mapping[str, float]) -> float:
    if node.macs:
        return node.macs * rates.get(node.spec.name, rates["CONV_2D"])
    return 0.0 if is_view(node) else moved_elements(node) * rates[_ELEMENTS]


def _rates() -> dict[str, float]:
    """Return nanoseconds of a call and a copy, by multiply-accumulate of each kind of layer, and by element."""
    key = hashlib.sha256("\0".join(("1", __version__, *facts())).encode()).hexdigest()[:32]
    path = cache_folder() / "plugins" / f"{TARGET}-{key}.json"
    with suppress(OdcError, OSError, ValueError, TypeError, KeyError):
        found = json.loads(read_file(path, max_bytes=_MAX_BYTES))
        return {name: float(found[name]) for name in ("call", "copy", _ELEMENTS, *_LAYERS)}
    call = _time_ns(_EMPTY)
    copy = max(0.0, _time_ns(_COPY) - call)
    rates = {"call": call, "copy": copy}
    elements = _PLANE[0] * _PLANE[1]
    rates[_ELEMENTS] = max(0.0, _time_ns(_COMPUTE) - call - copy) / elements
    for name, node in _LAYERS.items():
        rates[name] = max(0.0, _time_ns(node) - call) / node.macs
    with suppress(OdcError, OSError):  # without a cache, the next process measures again
        make_folder(path.parent, within=cache_folder())
        write_file(path, json.dumps(rates).encode())
    return rates


def _time_ns(node: Node) -> float:
    """Return the shortest time of a run; other work on the machine only adds to it."""
    from odc_iree.compiler import compiled
    from odc_iree.device import IreeProgram

    program = IreeProgram(compiled(SegmentModel("layer", write_model(operator_model(node)))))
    inputs = [np.random.default_rng(3).normal(size=port.shape).astype(np.float32) for port in program.inputs]
    best, runs, end = np.inf, 0, time.perf_counter() + _SECONDS
    while runs < _LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        program.run(inputs)
        best, runs = min(best, time.perf_counter() - start), runs + 1
    return 1e9 * best
