"""Rows of a fully connected layer that a TRANSPOSE has put in order: on codes every bit stays."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.float_nets import FloatNet, assign, run_pass
from helpers.rewrite_parts import dense, reshape, transpose
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.optimizer import count_operators
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph


@pytest.mark.parametrize(
    ("scheme", "granularity"), [("int8", "channel"), ("int8", "tensor"), ("uint8", "tensor"), ("int16", "channel")]
)
def test_codes_keep_every_bit(scheme: str, granularity: str) -> None:
    n = FloatNet(2)
    rows = reshape(n, transpose(n, n.real(2, 3, 5, 4), 0, 3, 1, 2), 2, 60)
    module = assign(n.module(dense(n, rows)), scheme, granularity=granularity)
    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "quant-insert-requantize")
    before = HostExecutor(build_graph(export_model(module))).run(n.inputs)
    run_pass(module, "circle-simplify")
    assert "TRANSPOSE" not in count_operators(module)
    for old, new in zip(before, HostExecutor(build_graph(export_model(module))).run(n.inputs), strict=True):
        np.testing.assert_array_equal(new, old)
