"""Lowering patterns: kinds of operations, order, locations and names of new operations, refusals, legality."""

from __future__ import annotations

import textwrap

import pytest
from xdsl.dialects import test
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from helpers.float_nets import FloatNet
from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.errors import CompileError, TimeLimitError
from odc_mlir.legality import ConversionTarget
from odc_mlir.support.locations import name_loc, op_name
from odc_mlir.transforms.common import conversion
from odc_mlir.transforms.common.conversion import LoweringPattern, apply_conversion
from odc_mlir.transforms.common.placement import main_function
from odc_mlir.transforms.common.rewriting import PatternPass, RewriteCounts, observed
from odc_mlir.universe import make_context

TARGET = ConversionTarget("convert-circle-to-test", ("func.", "test.", "circle.const"))


class LowerUnary(LoweringPattern[CircleOp]):
    operators = ("ABS", "NEG")

    def lower(self, op: CircleOp, rewriter: PatternRewriter, /) -> None:
        first = rewriter.insert(test.TestPureOp(op.operands, result_types=[op.results[0].type]))
        rewriter.replace(op, test.TestPureOp(first.results, result_types=[op.results[0].type]))


class LowerLong(LowerUnary):
    def matches(self, op: CircleOp, /) -> bool:
        return op_name(op).startswith("long")


class LowerTwo(LoweringPattern[test.TestOp | ConstOp]):
    pass


class RefuseExp(LoweringPattern[CircleOp]):
    operators = ("EXP",)

    def lower(self, op: CircleOp, rewriter: PatternRewriter, /) -> None:
        raise CompileError("its scale is zero", hint="quantise it again")


class RefuseNeg(LoweringPattern[CircleOp]):
    operators = ("ABS", "NEG")

    def matches(self, op: CircleOp, /) -> bool:
        return op.SPEC.name == "NEG"


class LowerToIllegal(LoweringPattern[CircleOp]):
    operators = ("EXP",)

    def lower(self, op: CircleOp, rewriter: PatternRewriter, /) -> None:
        rewriter.replace(op, op.clone())


def convert(module: ModuleOp, *patterns: RewritePattern) -> list[Operation]:
    """The operations of the module's function after the conversion."""
    apply_conversion(make_context(), module.body, TARGET, patterns)
    return list(next(iter(module.ops)).regions[0].block.ops)


def chain(*operators: str) -> ModuleOp:
    n = FloatNet(1)
    value = n.real(2)
    for name in operators:
        value = n.add(name, value)
    return n.module(value)


def first_of(module: ModuleOp) -> Operation:
    first = next(iter(module.ops)).regions[0].block.first_op
    assert first is not None
    return first


def test_new_operations_get_location_and_name_of_the_lowered_one() -> None:
    module = chain("ABS")
    first_of(module).location, first_of(module).results[0].name_hint = name_loc("layer/abs"), "abs"
    first, second, _ = convert(module, LowerUnary())
    assert [op_name(op) for op in (first, second)] == ["layer/abs", "layer/abs"]
    assert [op.results[0].name_hint for op in (first, second)] == ["abs", "abs"]


def test_the_first_pattern_that_matches_is_applied() -> None:
    module, applied = chain("ABS", "NEG"), RewriteCounts()
    first_of(module).location = name_loc("long name")
    with observed(applied):
        convert(module, RefuseExp(), LowerLong(), LowerUnary())
    assert applied.counts == {LowerLong: 1, LowerUnary: 1}


def test_a_type_argument_names_the_kinds() -> None:
    assert LowerTwo.kinds == (test.TestOp, ConstOp)
    assert LowerTwo().handles(test.TestOp)
    assert not LowerTwo().handles(test.TestTermOp)
    assert LowerLong().handles(type(first_of(chain("ABS"))))
    assert not LowerLong().handles(type(first_of(chain("EXP"))))


def test_a_refusal_names_operator_and_tensor_and_ends_the_conversion() -> None:
    module = chain("ABS", "EXP", "NEG")
    exp = first_of(module).next_op
    assert exp is not None
    exp.location = name_loc("layer/exp")
    with pytest.raises(CompileError) as raised:
        convert(module, LowerUnary(), RefuseExp())
    assert str(raised.value) == "its scale is zero (op EXP, tensor 'layer/exp'); quantise it again"
    assert not hasattr(raised.value, "__notes__"), "no print of the module"
    assert exp.next_op is not None
    assert exp.next_op.name == "circle.neg"


@pytest.mark.parametrize(
    ("patterns", "reason"),
    [
        ([LowerLong()], "does not match LowerLong (op ABS"),
        ([LowerLong(), RefuseNeg()], "does not match LowerLong, RefuseNeg (op ABS"),
        ([], "no pattern lowers this operation (op ABS"),
    ],
)
def test_an_operation_that_no_pattern_matches_is_an_error(patterns: list[RewritePattern], reason: str) -> None:
    with pytest.raises(CompileError) as raised:
        convert(chain("ABS"), *patterns)
    assert str(raised.value).startswith(f"illegal after convert-circle-to-test: {reason}")


def test_an_illegal_operation_that_a_pattern_creates_is_an_error() -> None:
    with pytest.raises(CompileError, match="illegal after convert-circle-to-test: does not match LowerToIllegal"):
        convert(chain("EXP"), LowerToIllegal())


def test_legal_operations_are_left_alone() -> None:
    module, target = (
        chain("ABS", "NEG"),
        ConversionTarget("any", ("func.", "circle.", "test."), lambda op: op.name != "circle.abs"),
    )
    apply_conversion(make_context(), module.body, target, [LowerUnary()])
    assert [op.name for op in next(iter(module.ops)).regions[0].block.ops] == [
        "test.pureop",
        "test.pureop",
        "circle.neg",
        "func.return",
    ]


def test_a_conversion_keeps_the_time_limit() -> None:
    with pytest.raises(TimeLimitError):
        apply_conversion(make_context(time_limit=1e-9), chain("ABS").body, TARGET, [LowerUnary()])


def test_the_skeleton_in_the_documentation_runs() -> None:
    names = {**vars(conversion), "npu": npu, "ModuleOp": ModuleOp, "PatternPass": PatternPass}
    exec(textwrap.dedent((conversion.__doc__ or "").partition("::\n")[2]), names)
    net = FloatNet()
    module = net.module(net.add("EXPAND_DIMS", net.real(1, 4), net.const([0], "int32")))
    names["ConvertViewsPass"]().apply(make_context(), module)
    assert [op.name for op in main_function(module).body.block.ops] == ["circle.const", "npu.reshape", "func.return"]
