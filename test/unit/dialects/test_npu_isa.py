"""The quick way to verify instructions says what the definition of the operation says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from xdsl.dialects import test as xdsl_test
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, UnitAttr, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from helpers.npu_layers import Body, make_module, schedule
from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.dialects.npu_fields import Fields, fields_attr
from odc_mlir.dialects.npu_isa import BY_MNEMONIC, FIELDS, TOKENS, BufferOp, InstructionOp
from odc_mlir.dialects.npu_memory import flat_type
from odc_mlir.isa.fields import Queue, Space
from odc_mlir.isa.immediates import shared
from odc_mlir.isa.instructions import BY_MNEMONIC as INSTRUCTION_TABLE

VALUES: tuple[Attribute, ...] = (
    IntegerAttr(1, i64),
    StringAttr("row"),
    DenseArrayBase.from_list(i32, [1]),
    DenseArrayBase.from_list(i64, [1]),
    UnitAttr(),
)


def instructions() -> list[InstructionOp]:
    """Those of a small program."""

    def build(body: Body) -> SSAValue:
        return body.softmax(body.conv(body.block.args[0], 32, kernel=(3, 3), pads=(1, 1, 1, 1)))

    return [op for op in schedule(make_module(build, (1, 40, 40, 16))).walk() if isinstance(op, InstructionOp)]


def made(cls: type[InstructionOp], types: list[Attribute], properties: dict[str, Attribute]) -> InstructionOp:
    """An instruction on buffers of these types."""
    return cls.create(operands=xdsl_test.TestOp(result_types=types).results, properties=properties)


def full_fields(mnemonic: str) -> Fields:
    """Fields that use every address."""
    spec = INSTRUCTION_TABLE[mnemonic]
    return Fields(shared(mnemonic, {}), (0,) * len(spec.places), spec.queue or Queue.FETCH)


def variants(cls: type[InstructionOp]) -> Iterator[InstructionOp]:
    """An instruction that uses every field, and what is one step away from it."""
    fields = full_fields(cls.SPEC.mnemonic)
    types: list[Attribute] = [flat_type(Space.TILE, 8)] * len(fields.offsets)
    every = {FIELDS: fields_attr(fields)} | {name: DenseArrayBase.from_list(i32, [1]) for name in TOKENS}
    yield made(cls, types, every)
    for index in range(len(types)):
        yield made(cls, [*types[:index], i32, *types[index + 1 :]], every)
    for name in (FIELDS, *TOKENS, "unknown"):
        yield made(cls, types, {key: value for key, value in every.items() if key != name})
        for value in VALUES:
            yield made(cls, types, every | {name: value})
    yield cls.create(operands=made(cls, types, every).operands, properties=every, result_types=[i32])


def verifies(op: BufferOp | InstructionOp) -> bool:
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


def buffers() -> Iterator[BufferOp]:
    """Buffers with every property, and what is one step away from them."""
    ints = DenseArrayBase.from_list(i32, [1, 2])
    every: dict[str, Attribute] = {
        "label": StringAttr("x"), "address": IntegerAttr(1, i64), "data": BlobAttr.of(b"12345678"),
        "binds": ints, "takes": ints, "gives": ints, "live": ints,
    }  # fmt: skip
    type_ = flat_type(Space.CONSTANTS, 8)
    yield BufferOp.create(properties=every, result_types=[type_])
    yield BufferOp.create(properties=every, result_types=[i32])
    yield BufferOp.create(properties=every, result_types=[type_, type_])
    yield BufferOp.create(properties=every)
    yield BufferOp.create(
        operands=xdsl_test.TestOp(result_types=[type_]).results, properties=every, result_types=[type_]
    )
    for name in (*every, "unknown"):
        yield BufferOp.create(
            properties={key: value for key, value in every.items() if key != name}, result_types=[type_]
        )
        for value in (*VALUES, IntegerAttr(1, i32)):
            yield BufferOp.create(properties=every | {name: value}, result_types=[type_])


def test_the_quick_way_agrees_with_the_definition_of_buffers() -> None:
    seen = set()
    for op in buffers():
        assert op.has_usual_form() == verifies(op), (op.result_types, op.properties)
        seen.add(op.has_usual_form())
    assert seen == {True, False}


def test_the_compilers_own_instructions_are_verified_the_quick_way() -> None:
    found = instructions()
    assert len(found) > 10
    assert all(op.has_usual_form() for op in found)


def test_rules_hold_the_quick_way_too() -> None:
    op = next(op for op in instructions() if isinstance(op, BY_MNEMONIC["conv"]))
    op.verify()
    op.operands = op.operands[1:]
    assert op.has_usual_form()
    with pytest.raises(VerifyException, match="addresses and names"):
        op.verify()


def test_an_instruction_takes_no_fields_of_another() -> None:
    op = next(op for op in instructions() if isinstance(op, BY_MNEMONIC["store"]))
    op.set_fields(full_fields("load"))
    with pytest.raises(VerifyException, match=r"npu\.isa\.store has the fields of load"):
        op.verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f._replace(immediates=f.immediates.replace(out_width=-1)), r"out_width is -1, allowed: 0 to 4095"),
        (lambda f: f._replace(offsets=(None, *f.offsets[1:])), "input is missing"),
        (lambda f: f._replace(offsets=(-1, *f.offsets[1:])), "input is -1 into a buffer"),
        (lambda f: f._replace(steps=(1 << 15, *f.steps[1:])), "the step of input is 32768"),
    ],
)
def test_fields_that_cannot_be_encoded_make_no_attribute(change: Callable[[Fields], Fields], message: str) -> None:
    fields = full_fields("conv")._replace(steps=(0,) * len(INSTRUCTION_TABLE["conv"].addresses))
    fields_attr(fields)
    with pytest.raises(VerifyException, match=message):
        fields_attr(change(fields))


def test_instructions_share_what_is_equal() -> None:
    first, second = (shared("load", {"size0": 8, "size1": size}) for size in (1, True))
    assert first is second
    assert first.values is second.values
    assert first.replace(size1=2) != first
    assert shared("load", {"size1": 1, "size0": 8}) is first
    with pytest.raises(KeyError, match="no field bananas"):
        shared("load", {"bananas": 1})
