"""Every lowering keeps the bits: ``npu`` operations interpreted against the host kernels of what they replace."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.interpreting import run_module
from helpers.operator_cases import CASES, inputs_of, module_of, q
from odc_mlir import pipelines
from odc_mlir.dialects.circle import CircleOp, op_class
from odc_mlir.dialects.npu_program import programs
from odc_mlir.errors import CompileError
from odc_mlir.numerics.lut import codes_by_bits
from odc_mlir.ops import all_specs
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.common.placement import operators, reason_of
from odc_mlir.transforms.npu import lowering
from odc_mlir.transforms.npu.convert_circle_to_npu import ConvertCircleToNpuPass
from odc_mlir.transforms.npu.lowering.site import LowerToNpu
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
        assert len(np.unique(wanted)) > (1 if "truths" in name or wanted.dtype == np.bool_ else 2), (
            "all codes equal: the case compares nothing"
        )


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


def test_patterns_of_one_benefit_for_an_operator_are_in_one_module() -> None:
    """Else names of modules would decide which of them is applied."""
    kinds = [kind for kind in ConvertCircleToNpuPass.patterns() if issubclass(kind, LowerToNpu)]
    for name in all_specs():
        handling = [kind for kind in kinds if kind().handles(op_class(name))]
        assert len({(kind.benefit, kind.__module__) for kind in handling}) == len({kind.benefit for kind in handling})


def test_the_patterns_of_a_new_module_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
from odc_mlir.transforms.npu.lowering.site import Benefit, LowerToNpu, Site


class LowerMine(LowerToNpu):
    benefit = Benefit.SPECIAL
    operators = ("RESHAPE",)

    def rewrite(self, site: Site) -> None:
        pass


class Base(LowerToNpu):
    operators = ("RESHAPE",)
"""
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.setattr(lowering, "__path__", [*lowering.__path__, str(tmp_path)])
    names = [kind.__name__ for kind in ConvertCircleToNpuPass.patterns()]
    monkeypatch.delitem(sys.modules, f"{lowering.__name__}.mine")
    assert names.index("LowerMine") < names.index("LowerReshape")
    assert "Base" not in names
