"""Targets and segments from Python."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Block, Region
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle import tensor_type
from odc_mlir.dialects.odc import TARGET, SegmentOp, TargetAttr, TargetChoice, YieldOp, target_of

X = tensor_type("float32", (8,))


def test_the_target_of_a_module() -> None:
    module = ModuleOp([])
    assert target_of(module) is None
    module.attributes[TARGET] = UnitAttr()
    assert target_of(module) is None
    module.attributes[TARGET] = TargetAttr(TargetChoice("npu-256", memory="sram"))
    assert target_of(module) == TargetChoice("npu-256", "sram", "performance", None, "fixed")


@pytest.mark.parametrize("field", ["memory", "prefer", "numerics"])
def test_words_of_a_target(field: str) -> None:
    with pytest.raises(VerifyException, match=f"{field} is 'other', allowed: "):
        TargetAttr(TargetChoice("npu-256", **{field: "other"}))


def test_a_segment_made_in_python() -> None:
    outer, body = Block(arg_types=[X]), Block(arg_types=[X])
    body.add_op(YieldOp(body.args[0]))
    segment = SegmentOp("s", outer.args, [X], Region(body), target_name="npu-256")
    segment.verify()
    assert segment.circle_block is body


def test_an_empty_body() -> None:
    segment = SegmentOp("s", Block(arg_types=[X]).args, [X], Region(Block(arg_types=[X])))
    with pytest.raises(VerifyException, match=r"the circle body must end in odc\.yield, found nothing"):
        segment.verify(verify_nested_ops=False)
