"""Passes on models whose values all have recorded ranges, outputs too: functions keep the types of what they return."""

from __future__ import annotations

import pytest

import odc_mlir
from helpers.corpus import Case, cases
from helpers.equivalence import module_of, transformed
from odc_mlir import pipelines
from odc_mlir.dialects.circle import CircleOp, tensor_facts, tensor_type
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.placement import main_function
from odc_mlir.transforms.common.retyping import retype
from odc_mlir.transforms.quant.quant_attach_ranges import attach_ranges

PASSES = (*pipelines.QUANTIZE_PREPARE, "circle-optimize", "circle-simplify", "circle-equalize-channels")


def _is_net(case: Case) -> bool:
    return case.model.stem.startswith("Net_") and sum(case.model.stem.encode()) % 4 == 0


def test_the_function_follows_a_value_that_it_takes_and_returns() -> None:
    module = module_of("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  func.return %x : tensor<2xf32>\n}")
    function = main_function(module)
    retype(function.body.block.args[0], tensor_type("float32", (3,)))
    module.verify()
    assert tensor_facts(function.function_type.outputs.data[0]).shape == (3,)


@pytest.mark.parametrize("case", cases(_is_net))
def test_recorded_outputs_stay_valid(case: Case) -> None:
    module = odc_mlir.load(case.model)
    function = main_function(module)
    values = [*function.args, *(result for op in function.walk() if isinstance(op, CircleOp) for result in op.results)]
    attach_ranges(function, {value_name(value): (-7.0, 7.0) for value in values})
    for name in PASSES:
        transformed(module, name).verify()
