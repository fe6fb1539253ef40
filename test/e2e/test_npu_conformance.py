"""Every model of the corpus that computes with integers compiles, explains itself, and gives the host's numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.corpus import Case, cases
from helpers.data import golden_samples
from helpers.reports import check_report
from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.runtime.reporting.report import build_report


def run_on_ones(case: Case) -> None:
    graph = build_graph(read_model(str(case.model)))
    HostExecutor(graph).run([np.ones(info.static_shape, info.info.numpy) for info in graph.input_infos()])


@pytest.mark.parametrize("case", cases(lambda case: case.kind not in ("float", "string")))
def test_integer_models(case: Case) -> None:
    """What is refused has no golden values, and runs nowhere."""
    try:
        package = odc_mlir.compile(case.model)
    except OdcError as error:
        assert not case.data.is_file()
        with pytest.raises(OdcError, match=re.escape(error.message)):
            run_on_ones(case)
        return
    plan = package.plan
    assert plan is not None
    operators = range(len(package.model.subgraphs[0].operators))
    on_npu = {index for step in plan.segments for index in step.operators}
    assert all(index in on_npu or plan.host_reasons[index] for index in operators)
    check_report(build_report(package, quick=True))
    if "plans" in plan.partition:
        least = min(entry["estimate_ns"] for entry in plan.partition["plans"])
        assert plan.partition["chosen"]["estimate_ns"] <= 1.05 * least
    for sample in golden_samples(case.data) if case.data.is_file() else ():
        expected = odc_mlir.run(package, sample.inputs, backend="host")
        # Inputs of another size than was compiled for are run by host kernels; that is no failure of a segment.
        for found, wanted in zip(odc_mlir.run(package, sample.inputs, backend="npu"), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        executor = package.executor()
        assert isinstance(executor, PlanExecutor)
        assert not executor.fallbacks


@pytest.mark.parametrize("case", cases(lambda case: case.kind == "uint8" and case.data.is_file()))
def test_other_plans_give_the_same(case: Case) -> None:
    """Wherever operators are placed: all that the NPU can run there, or nothing."""
    (sample, *_) = golden_samples(case.data)
    results: list[Any] = []
    for placement in ({"strategy": "supported"}, {"max_segments": 0}):
        package = odc_mlir.compile(case.model, placement=placement)
        results.append(odc_mlir.run(package, sample.inputs, strict=True))
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(found, wanted)
