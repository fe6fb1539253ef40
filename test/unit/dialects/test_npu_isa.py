"""Rules of instructions beyond the definitions of the operations."""

from __future__ import annotations

from typing import Any

import pytest
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from helpers.npu_layers import Body, make_module, schedule
from odc_mlir.dialects.npu_isa import BY_MNEMONIC, Fields, InstructionOp
from odc_mlir.isa.fields import Queue
from odc_mlir.isa.immediates import shared
from odc_mlir.isa.instructions import BY_MNEMONIC as INSTRUCTION_TABLE


def instruction(mnemonic: str) -> InstructionOp:
    """An instruction of a small program."""

    def build(body: Body) -> SSAValue:
        return body.softmax(body.conv(body.block.args[0], 32, kernel=(3, 3), pads=(1, 1, 1, 1)))

    module = schedule(make_module(build, (1, 40, 40, 16)))
    return next(op for op in module.walk() if isinstance(op, BY_MNEMONIC[mnemonic]))


def test_an_instruction_names_a_buffer_for_each_address() -> None:
    op = instruction("conv")
    op.verify()
    op.operands = op.operands[1:]
    with pytest.raises(VerifyException, match="addresses and names"):
        op.verify()


def test_an_instruction_takes_no_fields_of_another() -> None:
    op, spec = instruction("store"), INSTRUCTION_TABLE["load"]
    op.set_fields(Fields(shared("load", {}), (0,) * len(spec.places), spec.queue or Queue.FETCH))
    with pytest.raises(VerifyException, match=r"npu\.isa\.store has the fields of load"):
        op.verify()


def test_every_field_is_a_property() -> None:
    for mnemonic, kind in BY_MNEMONIC.items():
        for field in INSTRUCTION_TABLE[mnemonic].fields:
            assert getattr(kind, field.name).__doc__ == field.doc


def test_properties_read_and_set_fields() -> None:
    op: Any = instruction("conv")
    assert (op.kernel_height, op.in_type, op.output, op.SPEC.places[0].name) == (3, "i8", 0, "input")
    op.kernel_height, op.in_type, op.output = 1, "i16", 64
    assert (op.kernel_height, op.in_type, op.output) == (1, "i16", 64)
    text = str(op)
    assert 'in_type "i16"' in text
    assert " + 64 " in text
    op.verify()
    with pytest.raises(VerifyException, match="kernel_height is 9999, allowed: 0 to 255"):
        op.kernel_height = 9999
    with pytest.raises(VerifyException, match=r"in_type is 'f32', allowed: u8, i8"):
        op.in_type = "f32"
    with pytest.raises(VerifyException, match="output is -1 into a buffer"):
        op.output = -1
