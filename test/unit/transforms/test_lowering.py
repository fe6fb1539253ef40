"""Every lowering keeps the bits: ``npu`` operations interpreted against the host kernels of what they replace."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.operator_cases import CASES, inputs_of, module_of, q
from odc_mlir import pipelines
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.dialects.npu_program import programs
from odc_mlir.errors import CompileError
from odc_mlir.interpreters.module import run_module
from odc_mlir.numerics.lut import codes_by_bits
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.common.placement import operators, reason_of
from odc_mlir.transforms.npu.convert_circle_to_npu import ConvertCircleToNpuPass
from odc_mlir.transforms.partition.npu_choose_segments import NpuChooseSegmentsPass
from odc_mlir.universe import make_context


@pytest.mark.parametrize("name", CASES)
def test_npu_operations_give_the_codes_of_the_host_kernel(name: str) -> None:
    module = module_of(name)
    inputs = inputs_of(module)
    expected = run_module(module, inputs)
    pipelines.run(make_context(), module, "npu", options=[NpuChooseSegmentsPass("supported")])
    (program,) = programs(module).values()
    assert not [reason_of(op) for op in operators(module) if reason_of(op)]
    assert not [op for op in program.body.walk() if isinstance(op, CircleOp)]
    for found, wanted in zip(run_module(module, inputs), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
        assert len(np.unique(wanted)) > 2, "all codes equal: the case compares nothing"


def test_a_table_holds_the_host_kernel_of_every_code() -> None:
    module = module_of("leaky_relu")
    every = np.resize(codes_by_bits("int8"), (11, 2, 3, 8))
    lowered = module.clone()
    pipelines.run(make_context(), lowered, "npu", options=[NpuChooseSegmentsPass("supported")])
    for batch in every:
        np.testing.assert_array_equal(run_module(lowered, [batch])[0], run_module(module, [batch])[0])


def test_an_operator_without_lowering_is_an_error() -> None:
    type = q("4")
    body = f"^bb0(%a: {type}):\n%r = circle.l2_normalization(%a) : ({type}) -> {type}\nodc.yield %r : {type}"
    text = (
        f"func.func @main(%x: {type}) -> {type} {{\n%y = odc.segment @s(%x) : ({type}) -> {type} "
        f"circle {{\n{body}\n}}\nfunc.return %y : {type}\n}}"
    )
    module = parse_module(make_context(), text)
    with pytest.raises(CompileError, match=r"no pattern lowers this operation \(op L2_NORMALIZATION"):
        ConvertCircleToNpuPass().apply(make_context(), module)
