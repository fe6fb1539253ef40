"""Table of placement rules of the NPU.

A rule checks one property of an operator. If this property prevents the NPU from running the operator, the rule returns
its value. ``npu-mark-supported`` calls :func:`verdict` for every operator. Compile reports and the generated
documentation read the same table. Rules take an :class:`odc_mlir.ops.spec.Node`, so the table needs no IR.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from odc_mlir import ops
from odc_mlir.ops.spec import Node, OpSpec, QuantKind, Trait
from odc_mlir.targets import NUMBER_TYPES, TRUTH_TYPE
from odc_mlir.transforms.partition.plans.plans import PATTERNS
from odc_mlir.transforms.partition.rules import checks as check
from odc_mlir.transforms.partition.rules import operator_checks
from odc_mlir.transforms.partition.rules.checks import PlacementLimits, Rule


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the rules for an operator. ``reason`` is empty if the NPU can run it."""

    supported: bool
    reason: str = ""


def rules_of(spec: OpSpec) -> tuple[Rule, ...] | None:
    """Return the specific rules of an operator, without generic rules, or None for an unsupported operator."""
    if spec.name in OPERATORS:
        return OPERATORS[spec.name]
    return BY_TABLE if works_by_table(spec) else None


def works_by_table(spec: OpSpec) -> bool:
    """Return whether a lookup table can replace an operator: element-wise, pure, quantised."""
    makes_numbers = not any(result.dtypes for result in spec.results)
    quantisable = spec.quant.kind not in (QuantKind.NONE, QuantKind.FLOAT)
    return quantisable and makes_numbers and {Trait.PURE, Trait.ELEMENTWISE} <= spec.traits


def verdict(node: Node, limits: PlacementLimits) -> Verdict:
    """Check the rules for ``node`` and return the first violation with the offending value.

    A rule of the operator with the name of a generic rule replaces it.
    """
    rules = rules_of(node.spec)
    if rules is None:
        return Verdict(False, f"operator: {node.spec.name} is not supported by the NPU")
    for rule in {rule.name: rule for rule in (*GENERIC, *rules, *GENERIC_LAST)}.values():
        if seen := rule(node, limits):
            return Verdict(False, f"{rule.name}: {seen}")
    return Verdict(True)


def rules_text() -> Iterator[str]:
    """Yield the table and the pattern groups as lines of text. Operators without a line are not supported."""
    yield "every operator"
    yield from _lines((*GENERIC, *GENERIC_LAST))
    for name, rules in OPERATORS.items():
        yield name
        yield from _lines(rules)
    by_table = sorted(s.name for s in ops.all_specs().values() if s.name not in OPERATORS and works_by_table(s))
    yield ", ".join(by_table)
    yield from _lines(BY_TABLE)
    yield "groups, placed together"
    for pattern in PATTERNS:
        yield f"  {pattern.name}: {' -> '.join(pattern.chain)}: {pattern.text}"
    yield "  island: element-wise float or boolean operators between 8-bit codes become a table of the results"


def _lines(rules: Sequence[Rule]) -> Iterator[str]:
    return (f"  {rule.name}: {rule.text}" for rule in rules)


GENERIC: tuple[Rule, ...] = (
    check.stateless,
    check.has_input,
    check.static_shapes,
    check.not_empty,
    check.types(*check.CODES),
    check.quantised,
    check.fits_sram,
)

# Rules of all operators that run after the rules of the single operator.
GENERIC_LAST: tuple[Rule, ...] = (check.understood,)


_WEIGHTS = Rule("constant-weights", "weights are constant", check.constant(1))
_SUMS = (
    check.one_type,
    operator_checks.centred_codes,
    operator_checks.weights,
    operator_checks.bias,
    operator_checks.sums,
    check.channels,
    check.activation,
)
_PRODUCT = (_WEIGHTS, Rule("constant-bias", "the bias is constant or absent", check.constant(2)), *_SUMS)

_WINDOW = Rule(
    "stride-dilation",
    "strides and dilations fit the instruction's fields",
    check.option_in_field(
        "conv", stride_h="stride_y", stride_w="stride_x", dilation_h_factor="dilation_y", dilation_w_factor="dilation_x"
    ),
)

_POOL = (
    check.rank4,
    check.same_quant,
    Rule(
        "window",
        "window and strides fit the instruction's fields",
        check.option_in_field(
            "pool", filter_height="kernel_height", filter_width="kernel_width", stride_h="stride_y", stride_w="stride_x"
        ),
    ),
    check.windows_meet_image,
    check.activation,
)

_PARAMETER = Rule("constant-parameter", "axes, paddings or permutation are constant", check.constant(1))
_REDUCTION = (_PARAMETER, operator_checks.reduction)

_SEARCH = (_PARAMETER, operator_checks.centred_codes, operator_checks.searched_row)

# These rules replace generic ones.
_TRUTHS = check.types(*check.CODES, TRUTH_TYPE)
_NUMBERS = check.types(*check.CODES, TRUTH_TYPE, "int32")
_ANY = (*check.CODES, TRUTH_TYPE, *NUMBER_TYPES)
_PLAIN = (check.types(*_ANY), check.quantised_or_plain)

_CODE_ARITHMETIC = (
    operator_checks.centred_codes,
    check.quantised_constants,
    check.broadcastable,
    check.activation,
)
_ARITHMETIC = (_NUMBERS, *_CODE_ARITHMETIC, check.bounded)
_SELECTION = (_NUMBERS, check.quantised_or_plain, check.same_quant, check.broadcastable, check.bounded)
_VIEW = (*_PLAIN, check.same_quant)
_RESIZE = (check.rank4, check.same_quant, check.resized)


# Rules of operators that only move codes.
MOVING: tuple[Rule, ...] = (*_PLAIN, check.same_quant, check.moves)
MOVERS = (
    "BATCH_TO_SPACE_ND",
    "BROADCAST_TO",
    "DEPTH_TO_SPACE",
    "MIRROR_PAD",
    "PACK",
    "PADV2",
    "REVERSE_V2",
    "SLICE",
    "SPACE_TO_BATCH_ND",
    "SPACE_TO_DEPTH",
    "SPLIT",
    "SPLIT_V",
    "STRIDED_SLICE",
    "TILE",
    "UNPACK",
)

# Rules of element-wise operators that OPERATORS lacks. They become lookup tables (interpolated for 16 bits).
BY_TABLE: tuple[Rule, ...] = (check.one_input, check.same_shape, operator_checks.by_table)

# Rules of operators, besides generic rules. Operators without an entry stay on the host or are element-wise.
OPERATORS: dict[str, tuple[Rule, ...]] = {
    "CONV_2D": (check.rank4, *_PRODUCT, check.kernel_in_field, _WINDOW, operator_checks.weight_axis(0), check.groups),
    "TRANSPOSE_CONV": (
        check.rank4,
        _WEIGHTS,
        Rule("constant-bias", "the bias is constant or absent", check.constant(3)),
        *_SUMS,
        check.kernel_in_field,
        operator_checks.weight_axis(0),
        check.transposed,
    ),
    "RESIZE_BILINEAR": _RESIZE,
    "RESIZE_NEAREST_NEIGHBOR": _RESIZE,
    "DEPTHWISE_CONV_2D": (
        check.rank4,
        *_PRODUCT,
        check.kernel_in_field,
        _WINDOW,
        operator_checks.weight_axis(3),
        check.depth_multiplier,
    ),
    "FULLY_CONNECTED": (*_PRODUCT, operator_checks.weight_axis(0), check.weights_format, check.fixed_numerics),
    "BATCH_MATMUL": (
        operator_checks.centred_codes,
        operator_checks.matrix_sums,
        operator_checks.matrix_scales,
        operator_checks.matrix_moves,
    ),
    "ADD": _ARITHMETIC,
    "SUB": _ARITHMETIC,
    "MUL": _ARITHMETIC,
    "SQUARED_DIFFERENCE": _CODE_ARITHMETIC,
    **dict.fromkeys(
        ("FLOOR_DIV", "FLOOR_MOD"), (check.types("int32"), check.broadcastable, check.divisor, check.bounded)
    ),
    "CAST": (_NUMBERS, check.quantised_or_plain, check.bounded),
    "MAXIMUM": _SELECTION,
    "MINIMUM": _SELECTION,
    "SELECT": _SELECTION,
    "SELECT_V2": _SELECTION,
    **dict.fromkeys(check.COMPARISONS, (_NUMBERS, check.quantised_constants, check.broadcastable, check.compared)),
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_OR"), (check.broadcastable,)),
    "LOGICAL_NOT": (),
    "CONCATENATION": (*_PLAIN, check.joined_quant, check.moves),
    "PRELU": (check.quantised_constants, operator_checks.slopes, check.broadcastable),
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    "MEAN": _REDUCTION,
    "SUM": _REDUCTION,
    "REDUCE_MAX": (check.same_quant, *_REDUCTION),
    "REDUCE_MIN": (check.same_quant, *_REDUCTION),
    "DYNAMIC_UPDATE_SLICE": (
        check.types(*_ANY, index=2),
        check.quantised_or_plain,
        check.same_quant,
        operator_checks.updated_slice,
        Rule("moves", check.moves.text, operator_checks.moves_where_constant(2)),
    ),
    "GATHER": (
        check.types(*_ANY, index=1),
        check.quantised_or_plain,
        check.same_quant,
        operator_checks.gathered_rows,
        Rule("moves", check.moves.text, operator_checks.moves_where_constant(1)),
    ),
    "ARG_MAX": _SEARCH,
    "ARG_MIN": _SEARCH,
    "SOFTMAX": (check.one_type, check.softmax_result, check.softmax_row),
    "RMS_NORM": (
        check.one_type,
        operator_checks.centred_codes,
        _WEIGHTS,
        check.row,
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        operator_checks.lstm_constants,
        operator_checks.lstm_states,
        operator_checks.lstm_parts,
        operator_checks.lstm_integers,
    ),
    "QUANTIZE": (_TRUTHS,),
    "RELU": (),
    "RELU6": (),
    "RELU_N1_TO_1": (),
    "RELU_0_TO_1": (),
    "RESHAPE": _VIEW,
    "SQUEEZE": _VIEW,
    "EXPAND_DIMS": _VIEW,
    "TRANSPOSE": (
        *_VIEW,
        _PARAMETER,
        Rule("permutation", check.moves.text, check.either(check.moves_no_element, check.moves)),
    ),
    "PAD": (
        check.same_quant,
        _PARAMETER,
        Rule(
            "paddings",
            "a load instruction or a few strided copies can add the padding of height and width",
            check.either(check.image_padding, check.moves),
        ),
    ),
    **dict.fromkeys(MOVERS, MOVING),
}
