"""The quick way to verify instructions says what the definition of the operation says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from xdsl.dialects import test as xdsl_test
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, UnitAttr, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from helpers.npu_layers import Body, make_module, schedule
from odc_mlir.dialects.npu_isa import BY_MNEMONIC, InstructionOp
from odc_mlir.dialects.npu_memory import flat_type
from odc_mlir.isa.fields import Space

SEGMENTS = "operandSegmentSizes"
VALUES: tuple[Attribute, ...] = (
    IntegerAttr(1, i64),
    IntegerAttr(1, i32),
    StringAttr("row"),
    DenseArrayBase.from_list(i32, [1, 0]),
    DenseArrayBase.from_list(i64, [1]),
    UnitAttr(),
)


def instructions() -> list[InstructionOp]:
    """Those of a small program."""

    def build(body: Body) -> SSAValue:
        return body.softmax(body.conv(body.block.args[0], 32, kernel=(3, 3), pads=(1, 1, 1, 1)))

    return [op for op in schedule(make_module(build, (1, 40, 40, 16))).walk() if isinstance(op, InstructionOp)]


def sizes(*counts: int) -> Attribute:
    return DenseArrayBase.from_list(i32, list(counts))


def made(cls: type[InstructionOp], types: list[Attribute], properties: dict[str, Attribute]) -> InstructionOp:
    """An instruction on buffers of these types."""
    return cls.create(operands=xdsl_test.TestOp(result_types=types).results, properties=properties)


def variants(cls: type[InstructionOp]) -> Iterator[InstructionOp]:
    """An instruction that uses every field, and what is one step away from it."""
    buffer = flat_type(Space.TILE, 8)
    count = len(cls.ADDRESS_FIELDS)
    types: list[Attribute] = [buffer] * count
    every: dict[str, Attribute] = {name: IntegerAttr(1, i64) for name in cls.INT_FIELDS}
    every |= {name: StringAttr(words[0]) for name, words in cls.WORD_FIELDS.items()}
    if cls.HAS_OPTIONAL_ADDRESSES:
        every[SEGMENTS] = sizes(*[1] * count)
        for index in range(count):
            for size in (0, 2):
                counts = [1] * count
                counts[index] = size
                yield made(cls, types, every | {SEGMENTS: sizes(*counts)})
                yield made(cls, [buffer] * sum(counts), every | {SEGMENTS: sizes(*counts)})
        yield made(cls, [buffer] * (count - 1), every | {SEGMENTS: sizes(*[1] * (count - 1))})
    yield made(cls, types, every)
    yield made(cls, [*types, buffer], every)
    for index in range(count):
        yield made(cls, types[1:], every)
        yield made(cls, [*types[:index], i32, *types[index + 1 :]], every)
    for name in (*cls.PROPERTY_FORMS, "unknown"):
        yield made(cls, types, {key: value for key, value in every.items() if key != name})
        for value in VALUES:
            yield made(cls, types, every | {name: value})
    yield cls.create(operands=made(cls, types, every).operands, properties=every, result_types=[i32])


def verifies(op: InstructionOp) -> bool:
    """Whether ``op`` is what its definition says."""
    try:
        op.get_irdl_definition().verify(op)
    except VerifyException:
        return False
    return True


@pytest.mark.parametrize("mnemonic", sorted(set(BY_MNEMONIC) - {"halt"}))
def test_the_quick_way_agrees_with_the_definition(mnemonic: str) -> None:
    seen = set()
    for op in variants(BY_MNEMONIC[mnemonic]):
        assert op.has_usual_form() == verifies(op), (op.operands.types, op.properties)
        seen.add(op.has_usual_form())
    assert seen == {True, False}


def test_the_compilers_own_instructions_are_verified_the_quick_way() -> None:
    found = instructions()
    assert len(found) > 10
    assert all(op.has_usual_form() for op in found)


def test_rules_hold_the_quick_way_too() -> None:
    op = next(op for op in instructions() if isinstance(op, BY_MNEMONIC["conv"]))
    op.verify()
    op.properties["out_width"] = IntegerAttr(-1, i64)
    assert op.has_usual_form()
    with pytest.raises(VerifyException, match="out_width is -1"):
        op.verify()
