"""Every placement rule says yes at its limit and no one past it, with what it saw."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from helpers.operator_cases import CASES
from helpers.rule_nodes import (
    CENTRED,
    NEAREST,
    Q,
    binary,
    casting,
    compared,
    compared_numbers,
    conv,
    depthwise,
    fully_connected,
    fully_connected_of,
    gathering,
    grouped,
    grouped_zero_points,
    lstm,
    matmul,
    matmul_by,
    mean,
    moving,
    numbers,
    pad,
    pool,
    prelu,
    replace_bias,
    resized,
    rms_norm,
    scattered,
    searching,
    several_zero_points,
    softmax,
    tensor,
    transpose,
    transpose_conv,
    unary,
    unsigned,
    updating,
    wide,
    wide_matmul,
    wide_product,
    with_operand,
    with_result,
    with_two_operands,
    zeros,
)
from odc_mlir import ops, targets
from odc_mlir.ops.spec import Node, QuantParams
from odc_mlir.transforms.npu.convert_circle_to_npu import ConvertCircleToNpuPass
from odc_mlir.transforms.partition.rules import table as npu_rules
from odc_mlir.transforms.partition.rules.checks import PlacementLimits

TARGET = targets.load("npu-256")
LIMITS = PlacementLimits(TARGET, TARGET.sram.capacity_bytes)


def images(node: Node, count: int) -> Node:
    """``node`` for ``count`` images."""
    x, y = node.operands[0], node.results[0]
    assert x is not None
    node = with_operand(node, 0, shape=(count, *x.static_shape[1:]))
    return with_result(node, shape=(count, *y.static_shape[1:]))


CASED = {name.upper() for _, body, _ in CASES.values() for name in re.findall(r"circle\.(\w+)\(", body)}

# Operators without a case in helpers.operator_cases: those are placed, lowered and computed by other tests.
SUPPORTED: dict[str, Callable[[], Node]] = {
    "TRANSPOSE_CONV": transpose_conv,
    "SUM": lambda: replace(mean(), spec=ops.get("SUM")),
    "REDUCE_MAX": lambda: replace(mean(), spec=ops.get("REDUCE_MAX")),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm,
    "RELU_0_TO_1": lambda: unary("RELU_0_TO_1"),
    **{name: partial(moving, name) for name in npu_rules.MOVERS if name not in CASED},
}

PER_AXIS_1 = QuantParams((0.25,) * 3, (0,) * 3, 1)

# Rule, an operator that breaks it and nothing before it, what the rule says it saw.
REFUSED: list[tuple[str, Callable[[], Node], str]] = [
    ("stateless", lambda: with_operand(unary("RELU"), 0, is_variable=True), "'x' keeps its value between runs"),
    ("has-input", lambda: with_operand(unary("RELU"), 0, data=memoryview(bytes(6))), "all operands are constant"),
    ("static-shape", lambda: with_operand(unary("RELU"), 0, shape=(None, 3)), "'x' has shape [?, 3]"),
    ("static-shape", lambda: with_result(unary("RELU"), shape=None), "'y' has unknown rank"),
    ("not-empty", lambda: with_operand(unary("RELU"), 0, shape=(0, 3)), "'x' has shape [0, 3]"),
    ("element-type", lambda: with_operand(unary("RELU"), 0, dtype="float32"), "'x' is float32"),
    ("element-type", lambda: with_result(unary("RELU"), dtype="int32"), "'y' is int32"),
    ("quantised", lambda: with_operand(unary("RELU"), 0, quant=None), "'x' has no scale"),
    ("quantised", lambda: with_operand(unary("RELU"), 0, quant=PER_AXIS_1), "'x' has 3 scales"),
    ("quantised", lambda: with_result(unary("RELU"), quant=QuantParams((0.0,), (0,))), "'y' has scale 0.0"),
    ("quantised", lambda: with_result(unary("RELU"), quant=QuantParams((1.0,), (128,))), "'y' has zero point 128"),
    ("fits-sram", lambda: conv(x=1 << 18), "4718592 bytes of 4194304"),
    ("fits-sram", lambda: images(conv(x=1024), 2), "20971520 bytes of 4194304"),
    ("rank-4", lambda: with_operand(pool(), 0, shape=(8, 8, 4)), "'x' has shape [8, 8, 4]"),
    ("constant-weights", lambda: with_operand(fully_connected(), 1, data=None), "'w' is computed at run time"),
    ("constant-bias", lambda: replace_bias(dtype="int8", quant=Q, data=None), "'b' is computed at run time"),
    ("one-type", lambda: with_result(conv(), dtype="uint8"), "'x' is int8, 'y' is uint8"),
    ("centred", lambda: wide(conv(), 3), "'x' is int16 with zero point 3"),
    ("centred", lambda: wide(binary(), -1), "'a' is int16 with zero point -1"),
    ("compared", lambda: compared(16009), "'a' has scale 16009 and zero point 3"),
    ("compared", lambda: compared_numbers(-32767), "'a' and 'details' are int32"),
    ("bounds", lambda: numbers("ADD", (0, 39_990), 10), "values of 'y' from 10 to 40000 exceed 16 bits"),
    ("bounds", lambda: numbers("SUB", (0, 9), 32_769), "values of 'y' from -32769 to -32760 exceed 16 bits"),
    ("bounds", lambda: numbers("MINIMUM", (0, 1 << 29), 5), "values of 'a' from 0 to 536870912 exceed 30 bits"),
    ("bounds", lambda: with_operand(numbers("MUL", (0, 9), 2), 0, bounds=None), "to 2147483647 exceed 30 bits"),
    ("bounds", lambda: numbers("ADD", (0, 9), 2, fused_activation_function="relu"), "to 2147483647 exceed 16 bits"),
    ("bounds", lambda: casting((0, 128), "int8"), "values of 'y' from 0 to 128 exceed int8"),
    ("bounds", lambda: casting((-1, 8), "uint8"), "values of 'y' from -1 to 8 exceed uint8"),
    ("divisor", lambda: numbers("FLOOR_DIV", (0, 9), -3), "'details' is not a positive constant"),
    ("divisor", lambda: numbers("FLOOR_MOD", (-32768, 0), 23_988), "values from -32768 to 0 are divided by 23988"),
    ("divisor", lambda: numbers("FLOOR_MOD", (0, 65_536), 2), "values from 0 to 65536 are divided by 2"),
    ("element-type", lambda: with_operand(moving("TILE"), 1, data=None), "'details' is int32"),
    ("quantised", lambda: with_operand(binary("MAXIMUM"), 0, quant=None), "'a' has no scale"),
    ("one-type", lambda: with_result(softmax(), dtype="uint8", quant=Q), "'x' is int8, 'y' is uint8"),
    ("weights", lambda: with_operand(conv(), 1, dtype="uint4"), "'w' is uint4, the input is int8"),
    ("weights", lambda: with_operand(conv(), 1, dtype="uint8"), "'w' is uint8, the input is int8"),
    ("weights", lambda: with_operand(wide(conv()), 1, dtype="int32"), "'w' is int32, the input is int16"),
    ("weights", lambda: with_operand(conv(), 1, quant=None), "'w' has no scale"),
    (
        "weights",
        lambda: grouped_zero_points(255),
        "'w' has 2 different zero points and values from -1 to 255",
    ),
    ("weights", lambda: with_operand(conv(), 1, quant=QuantParams((math.inf,), (0,))), "scale that is not positive"),
    ("weights", lambda: with_operand(conv(), 1, quant=QuantParams((0.0,), (1,))), "scale that is not positive"),
    ("weights", lambda: with_operand(conv(), 1, quant=QuantParams((0.5,), (200,))), "'w' has zero point 200"),
    ("bias", lambda: replace_bias(quant=QuantParams((0.0,), (3,))), "scale that is not positive"),
    ("bias", lambda: replace_bias(quant=QuantParams((0.5,) * 5, (0,) * 5)), "5 scales, of 6 channels"),
    ("bias", lambda: replace_bias(quant=QuantParams((5e8,), (3,))), "values up to 2147483648"),
    ("bias", lambda: replace_bias(dtype="int64"), "'b' is int64"),
    ("bias", lambda: replace_bias(shape=(5,)), "'b' has shape [5]"),
    ("bias", lambda: wide_product(bias=1 << 31), "'b' has values up to 2147483648, at most 2147483647"),
    ("sums", lambda: wide_product(1, rows=512), "sums reach 549755813889, accumulators have 40 bits"),
    ("sums", lambda: wide_product(scale=127.0), "a factor of 127, below 127 is allowed"),
    ("channels", lambda: fully_connected_of(65_536), "65536 channels, at most 65535"),
    ("activation", lambda: conv(fused_activation_function="tanh"), "fused activation tanh"),
    ("kernel", lambda: conv(kernel=(1, 256)), "kernel 1x256, at most 255x255"),
    ("stride-dilation", lambda: conv(stride_w=256), "stride_w is 256, allowed 1 to 255"),
    ("stride-dilation", lambda: conv(dilation_h_factor=256), "dilation_h_factor is 256, allowed 1 to 255"),
    ("weight-scales", lambda: with_operand(conv(), 1, quant=PER_AXIS_1), "'w' has 3 scales along axis 1"),
    ("groups", lambda: grouped(65), "65 groups of 2 input channels, at most 64"),
    ("polyphase", lambda: transpose_conv(1), "height 4 to 8 with a kernel of 1 and stride 2"),
    ("positions", lambda: unsigned(resized(4, 9)), "uint8 is interpolated in real numbers, and 4x4 to 9x9 with these"),
    ("positions", lambda: unsigned(resized(4, 512)), "4x4 to 512x512 with these options is not exact"),
    ("positions", lambda: resized(84, 576, NEAREST), "84x84 to 576x576 with these options has positions that rounding"),
    ("positions", lambda: resized(300, 2, NEAREST), "300x300 to 2x2 has steps that the instruction does not hold"),
    ("depth-multiplier", lambda: depthwise(4 * 256), "1024 result channels of 4 input channels, at most 255 of each"),
    ("weights-format", lambda: fully_connected(weights_format="shuffled4x16int8"), "weights format shuffled4x16int8"),
    ("numerics", fully_connected, "numerics litert"),
    (
        "matrix-scales",
        lambda: with_operand(matmul(), 1, dtype="int4", quant=QuantParams((1.0,), (0,)), data=b""),
        "'b' int4",
    ),
    ("matrix-sums", lambda: with_operand(matmul(), 1, dtype="int16", quant=CENTRED), "'b' is int16, 'a' int8"),
    ("matrix-sums", lambda: wide_matmul(512), "sums of 512 products reach 549755813888, accumulators have 40 bits"),
    ("matrix-sums", lambda: wide_matmul(8, scale=127), "a factor of 127, below 127 is allowed"),
    (
        "matrix-sums",
        lambda: replace(wide_matmul(7), operands=(*wide_matmul(7).operands[:1], zeros("b", 7, 3, quant=PER_AXIS_1))),
        "'b' has 3 scales",
    ),
    ("matrix-scales", lambda: with_result(matmul(), dtype="uint8"), "'a' is int8, 'b' int8, 'y' uint8"),
    ("matrix-scales", lambda: with_operand(matmul(), 0, quant=None, data=b""), "'a' has no scale"),
    ("matrix-scales", lambda: matmul_by(np.zeros((7, 4)), None), "'b' has no scale"),
    ("matrix-scales", lambda: matmul_by(np.zeros((7, 3)), QuantParams((0.0,) * 3, (0,) * 3, 1)), "'b' has 3 scales"),
    ("matrix-scales", lambda: matmul_by(np.zeros((7, 3)), QuantParams((0.5,), (-129,))), "'b' has zero point -129"),
    ("matrix-scales", lambda: matmul_by(np.zeros((2, 7, 3)), PER_AXIS_1), "'b' has 3 scales along axis 1"),
    (
        "matrix-scales",
        lambda: matmul_by(np.zeros((3, 7)).T, replace(PER_AXIS_1, axis=0)),
        "'b' has 3 scales along axis 0",
    ),
    (
        "matrix-scales",
        lambda: matmul_by([[127, -128]] * 7, QuantParams((0.5, 0.5), (-1, 0), 1)),
        "'b' has 2 different zero points and values from -128 to 128",
    ),
    ("slopes", lambda: wide(prelu("int8"), 3), "2 operands are computed at run time"),
    ("matrices", lambda: matmul((1, 1, 7), (1, 7, 65_536)), "65536 bytes of a row, at most 65535"),
    ("constant-scale", lambda: with_operand(binary(), 1, quant=None, data=memoryview(bytes(32))), "'b' has no scale"),
    *(
        ("constant-scale", partial(with_operand, binary(), 1, quant=quant, data=memoryview(bytes(32))), seen)
        for quant, seen in (
            (QuantParams((0.0,), (3,)), "'b' has scale 0.0"),
            (QuantParams((-0.5,), (3,)), "'b' has scale -0.5"),
            (QuantParams((0.5,), (128,)), "'b' has zero point 128"),
        )
    ),
    ("one-input", lambda: replace(unary("TANH"), operands=binary().operands), "2 operands are computed at run time"),
    ("one-input", lambda: with_two_operands(3), "constant 'c' has shape [3]"),
    ("same-shape", lambda: with_result(unary("TANH"), shape=(3, 2)), "'x' has shape [2, 3], 'y' shape [3, 2]"),
    ("table", lambda: with_result(unary("TANH"), dtype="int16"), "'y' is int16"),
    (
        "table",
        lambda: with_result(wide(unary("SIN")), quant=QuantParams((2.0**-15,), (0,))),
        "no sum of tables of 513 entries gives the results of SIN",
    ),
    ("table", lambda: with_result(wide(unary("TANH")), dtype="int8"), "'x' is int16, 'y' is int8"),
    ("broadcast", lambda: binary(shape=(1, 1, 1, 1, 4, 4, 2)), "'y' has shape [1, 1, 1, 1, 4, 4, 2]"),
    (
        "same-quantisation",
        lambda: with_result(pool(), quant=QuantParams((0.25,), (3,))),
        "'y' has scale 0.25 and zero point 3, 'x' has scale 0.5 and zero point 3",
    ),
    (
        "joined-quantisation",
        lambda: with_result(moving("CONCATENATION"), quant=QuantParams((0.25,), (3,))),
        "'y0' has scale 0.25 and zero point 3, 'x' has scale 0.5 and zero point 3",
    ),
    ("window", lambda: pool(filter_width=256, padding="same"), "filter_width is 256, allowed 1 to 255"),
    ("image", lambda: pool(filter_height=9), "window 9x2 on an image of 8x8"),
    ("constant-parameter", lambda: with_operand(mean(), 1, data=None, dtype="int8", quant=Q), "'axes' is computed"),
    ("axes", lambda: mean((1, 4099, 2), (1,)), "4099 elements along axes [1], at most 4095x4095"),
    ("axes", lambda: mean((2, 4, 3, 8), ()), "no dimension is reduced"),
    (
        "softmax-result",
        lambda: with_result(softmax(), quant=QuantParams((1 / 255,), (-128,))),
        "'y' has scale 0.00392157 and zero point -128, expected scale 0.00390625 and zero point -128",
    ),
    (
        "softmax-result",
        lambda: wide(softmax()),
        "'y' has scale 0.5 and zero point 0, expected scale 3.05176e-05 and zero point 0",
    ),
    ("positions", lambda: wide(resized(4, 12)), "int16 is interpolated in real numbers, and 4x4 to 12x12 with these"),
    (
        "constant-parameter",
        lambda: with_operand(searching(4), 1, data=None, dtype="int8", quant=Q),
        "'axis' is computed",
    ),
    (
        "position",
        lambda: updating((2, 5, 8), (1, 1, 8)),
        "'z' has shape [1, 1, 8], 'x' shape [2, 5, 8], and the position",
    ),
    ("position", lambda: with_operand(updating((5, 8), (1, 8)), 2, dtype="int64"), "'s' is int64"),
    ("position", lambda: updating((1 << 16, 2, 1), (1 << 16, 1, 1)), "65536 tables, at most 65535"),
    ("rows", lambda: gathering((65, 2, 3), 4, axis=1), "65 tables, at most 64"),
    ("rows", lambda: gathering((2, 3), 1 << 16), "65536 rows taken, at most 65535"),
    ("rows", lambda: gathering((1 << 24, 1), 4), "16777216 rows, at most 16777215"),
    ("rows", lambda: gathering((2, 1 << 20), 1), "1048576 bytes of a row, at most 1048575"),
    ("same-quantisation", lambda: with_result(gathering((2, 3), 4), quant=CENTRED), "'y' has"),
    ("element-type", lambda: with_operand(gathering((2, 3), 4), 1, dtype="int16"), "'i' is int16"),
    ("searched-row", lambda: searching(TARGET.local.tile_bytes), "19168 elements along the axis, at most 19"),
    ("element-type", lambda: with_result(searching(4), dtype="int16"), "'y' is int16"),
    ("softmax-row", lambda: softmax(TARGET.local.tile_bytes // 2 + 1), "rows of 9585 elements, allowed 1 to 9584"),
    ("constant-weights", lambda: rms_norm(8, tensor("g", 8)), "'g' is computed at run time"),
    ("row", lambda: rms_norm(TARGET.local.tile_bytes // 4 + 1), "rows of 4793 elements, at most 4792"),
    ("constant-weights", lambda: lstm(input_to_cell_weights=tensor("w", 1, 2)), "'w' is computed at run time"),
    ("states", lambda: lstm(cell_state=tensor("s", 1, 1)), "'s' is not a variable"),
    ("states", lambda: lstm(output_state=None), "the output_state is omitted"),
    (
        "cell",
        lambda: lstm(cell_to_forget_weights=zeros("p", 1, dtype="int16")),
        "'p' is the operand cell_to_forget_weights",
    ),
    ("cell", lambda: lstm(projection_weights=zeros("p", 1, 1)), "'p' is the operand projection_weights"),
    (
        "integers",
        lambda: lstm(cell_state=replace(tensor("s", 1, 1), is_variable=True)),
        "the cell_state is int8; it must be int16",
    ),
    (
        "integers",
        lambda: with_result(lstm(input=tensor("x", 1, 3, 2, dtype="uint8")), dtype="uint8"),
        "'x' is uint8, the cell's input must be int8",
    ),
    (
        "constant-parameter",
        lambda: with_operand(transpose(), 1, data=None, quant=Q, dtype="int8"),
        "'permutation' is",
    ),
    (
        "permutation",
        lambda: with_result(transpose((0, 1, 3, 2)), shape=(1, 1)),
        "holds more than codes of the operands",
    ),
    ("constant-parameter", lambda: with_operand(pad(), 1, data=None, dtype="int8", quant=Q), "'paddings' is computed"),
    ("paddings", lambda: pad(((0, 0), (-1, 0), (0, 0), (0, 0))), "negative"),
    ("element-type", lambda: with_operand(moving("SLICE"), 1, data=None), "'details' is int32"),
    (
        "understood",
        lambda: with_operand(conv(), 0, foreign_quant="Custom"),
        "a custom quantisation that only its author knows",
    ),
    ("moves", scattered, "'y' takes more than 64 strided copies"),
    ("moves", lambda: with_result(moving("REVERSE_V2"), shape=(4, 4, 4)), "'y0' holds more than codes of the operands"),
]


@pytest.mark.parametrize("name", sorted(SUPPORTED))
def test_a_plain_operator_is_supported(name: str) -> None:
    assert npu_rules.verdict(SUPPORTED[name](), LIMITS) == npu_rules.Verdict(True)


@pytest.mark.parametrize(("rule", "make", "seen"), REFUSED, ids=[f"{r}-{i}" for i, (r, _, _) in enumerate(REFUSED)])
def test_a_rule_says_what_it_saw(rule: str, make: Callable[[], Node], seen: str) -> None:
    limits = replace(LIMITS, numerics="litert") if rule == "numerics" else LIMITS
    result = npu_rules.verdict(make(), limits)
    assert not result.supported
    assert result.reason.startswith(f"{rule}: ")
    assert seen in result.reason


@pytest.mark.parametrize(
    "node",
    [
        conv(kernel=(255, 255), stride_h=255, stride_w=255, dilation_h_factor=255, dilation_w_factor=255),
        conv(taken=1, out=8),
        with_operand(conv(), 1, dtype="int4"),
        depthwise(4 * 255),
        fully_connected_of(65_535),
        matmul((1, 1, 7), (1, 7, 65_535)),
        wide_matmul(511),
        matmul_by([[127, -127]] * 7, QuantParams((0.5, 0.5), (-1, 0), 1)),
        pool(filter_height=8, filter_width=8),
        mean((1, 4095, 4095, 1), (1, 2)),
        mean((2, 1, 7), (-1,)),
        mean((1, 4096, 2), (1,)),
        mean((2, 4, 4, 8), (0, 2)),
        mean((2, 4, 3, 8), (0, 1, 2)),
        softmax(TARGET.local.tile_bytes // 2),
        pad(((0, 0), (255, 255), (255, 255), (0, 0))),
        with_two_operands(1),
        updating((32_767, 1), (1, 1)),
        updating((1, 8), (1, 8)),
        updating((2, 5, 8), (2, 2, 8)),
        gathering((64, 2, 3), 4, axis=1),
        gathering((2, 3), (1 << 16) - 1),
        gathering(((1 << 24) - 1, 1), 4),
        gathering((2, (1 << 20) - 1), 1),
        prelu("int8"),
        prelu("int16"),
        wide_product(rows=511, bias=(1 << 30) - 1),
        wide_product(bias=(1 << 31) - 1),
        wide_product(scale=126.9),
        grouped(64),
        binary(shape=(2, 1, 3, 1, 4, 2)),
        several_zero_points((255, 1), (0, 1)),
        several_zero_points((255, 0) * 128, (0, 1) * 128),
        several_zero_points((255, 0) * 129, (0, 255) * 129),
        several_zero_points((127, -128), (-1, 0), "int8"),
        grouped_zero_points(254),
        with_operand(conv(), 1, quant=QuantParams((0.5,) * 6, (0, 1, 2, 3, 4, 5))),
    ],
    ids=lambda node: node.spec.name,
)
def test_limits_themselves_are_allowed(node: Node) -> None:
    unlimited = replace(LIMITS, sram_bytes=1 << 28)
    assert npu_rules.verdict(node, unlimited) == npu_rules.Verdict(True)


@pytest.mark.parametrize("name", ["DEQUANTIZE", "L2_NORMALIZATION"])
def test_an_operator_without_rules_stays_on_the_host(name: str) -> None:
    """DEQUANTIZE works element by element, but what it gives is not a code."""
    assert npu_rules.verdict(unary(name), LIMITS).reason == f"operator: {name} is not supported by the NPU"


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH", "LEAKY_RELU"])
def test_element_wise_operators_are_tables(name: str) -> None:
    assert npu_rules.verdict(unary(name), LIMITS) == npu_rules.Verdict(True)


GROWING = ("HARD_SWISH", "ELU")


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH", "LEAKY_RELU", "ABS", "NEG", "ELU", "HARD_SWISH", "COS"])
def test_wide_functions_have_a_form(name: str) -> None:
    node = wide(unary(name))
    quant = QuantParams((2.0**-12,), (0,)), QuantParams((2.0 ** (-12 if name in GROWING else -15),), (0,))
    node = with_result(with_operand(node, 0, quant=quant[0]), quant=quant[1])
    assert npu_rules.verdict(node, LIMITS) == npu_rules.Verdict(True)


def test_scaled_codes_of_29_bits_are_compared() -> None:
    assert npu_rules.verdict(compared(16008), LIMITS) == npu_rules.Verdict(True)
    assert npu_rules.verdict(compared_numbers(-32766), LIMITS) == npu_rules.Verdict(True)


@pytest.mark.parametrize(
    "node",
    [
        numbers("ADD", (-32_778, 32_757), 10),
        numbers("MINIMUM", (0, (1 << 29) - 1), 5),
        numbers("MAXIMUM", (-(1 << 29), 32_767), -32_768),
        numbers("FLOOR_MOD", (-32_768, 32_767), 23_987),
        numbers("FLOOR_DIV", (0, 65_535), 2),
        casting((-128, 127), "int8"),
        casting((-(1 << 31), (1 << 31) - 1), "bool"),
    ],
    ids=lambda node: node.spec.name,
)
def test_numbers_at_their_bounds_are_allowed(node: Node) -> None:
    assert npu_rules.verdict(node, LIMITS) == npu_rules.Verdict(True)


def test_every_rule_is_refused_once() -> None:
    tables = (npu_rules.GENERIC, npu_rules.GENERIC_LAST, npu_rules.BY_TABLE, *npu_rules.OPERATORS.values())
    assert {rule.name for rules in tables for rule in rules} == {name for name, _, _ in REFUSED}


def test_every_operator_with_rules_has_a_lowering_and_a_case() -> None:
    lowered = {name for kind in ConvertCircleToNpuPass.patterns() for name in getattr(kind, "operators", ())}
    assert set(npu_rules.OPERATORS) <= lowered
    assert all(npu_rules.works_by_table(ops.get(name)) for name in lowered - set(npu_rules.OPERATORS))
    assert set(npu_rules.OPERATORS) - CASED == set(SUPPORTED)
    assert set(npu_rules.OPERATORS) <= set(ops.all_specs())


def test_a_smaller_sram_limit_refuses_more() -> None:
    """Three rows of the input and one of the result are needed at once; of several images, all."""
    assert "144 bytes of 143" in npu_rules.verdict(conv(), replace(LIMITS, sram_bytes=143)).reason
    assert npu_rules.verdict(conv(), replace(LIMITS, sram_bytes=144)).supported
    assert "1280 bytes of 1279" in npu_rules.verdict(images(conv(), 2), replace(LIMITS, sram_bytes=1279)).reason
