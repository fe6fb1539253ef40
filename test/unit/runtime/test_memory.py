"""What a run takes beside its activations, and what stays behind, as numpy reports it to tracemalloc."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.samples import random_inputs
from odc_mlir.numerics.convolution import TILE_BYTES
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

_ONE_RUN, _RUNS = 4 << 10, 5
_TEMPORARIES = 3 * TILE_BYTES  # of one operator: patches of a tile, its sums, and these rescaled


@pytest.mark.parametrize(
    "name",
    ["zoo/mobilenet_v1_0.25_128_quant.tflite", "zoo/vww_96_float.tflite", "digits/digits_cnn.circle"],
)
def test_a_warm_run_takes_what_is_planned_and_leaves_nothing(test_data: Path, name: str) -> None:
    executor = HostExecutor(build_graph(read_model(test_data / "models" / name)))
    infos = executor.graph.input_infos()
    shapes = [tuple(dim or 1 for dim in info.shape or ()) for info in infos]
    inputs = random_inputs([(info.info.numpy, shape) for info, shape in zip(infos, shapes, strict=True)], 1)
    planned = executor.prepare(shapes).peak_bytes
    assert planned > 0
    tracemalloc.start()
    try:
        for _ in range(2):
            outputs = executor.run(inputs)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(_RUNS):
            outputs = executor.run(inputs)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outputs
    assert peak - before < planned + _TEMPORARIES
    assert after - before < _RUNS * _ONE_RUN
