"""The table of placement rules of the NPU.

Each rule looks at one thing and says what it saw when that thing is in the way. ``npu-mark-supported`` asks
:func:`verdict` for every operator; compile reports and the generated documentation read the same table. Rules see
operators as :class:`odc_mlir.ops.spec.Node`, so the table needs no IR.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from odc_mlir import ops
from odc_mlir.ops.quantization import QuantKind
from odc_mlir.ops.spec import Node, OpSpec, Trait
from odc_mlir.transforms.partition.plans.plans import PATTERNS
from odc_mlir.transforms.partition.rules import checks as check
from odc_mlir.transforms.partition.rules import matrix_checks, operator_checks
from odc_mlir.transforms.partition.rules.checks import PlacementLimits


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its text, and a check that returns None or the offending value."""

    name: str
    text: str
    check: check.Check


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reason`` is empty for an operator that the NPU can run."""

    supported: bool
    reason: str = ""


def rules_of(spec: OpSpec) -> tuple[Rule, ...] | None:
    """The rules of an operator beside :data:`GENERIC`, None for one that has no NPU form."""
    if spec.name in OPERATORS:
        return OPERATORS[spec.name]
    return BY_TABLE if works_by_table(spec) else None


def works_by_table(spec: OpSpec) -> bool:
    """Return whether a lookup table can replace an operator: element-wise, pure, quantised."""
    makes_numbers = not any(result.dtypes for result in spec.results)
    quantisable = spec.quant.kind not in (QuantKind.NONE, QuantKind.FLOAT)
    return quantisable and makes_numbers and {Trait.PURE, Trait.ELEMENTWISE} <= spec.traits


def verdict(node: Node, limits: PlacementLimits) -> Verdict:
    """Check all rules for ``node``; return the first violation and the offending value."""
    rules = rules_of(node.spec)
    if rules is None:
        return Verdict(False, f"operator: {node.spec.name} has no NPU form")
    for rule in (*GENERIC, *rules, *GENERIC_LAST):
        if seen := rule.check(node, limits):
            return Verdict(False, f"{rule.name}: {seen}")
    return Verdict(True)


def rules_text() -> Iterator[str]:
    """Yield the table and the pattern groups as text; an operator without a line has no NPU form."""
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


def _lines(rules: Sequence[Rule]) -> Iterator[str]:
    return (f"  {rule.name}: {rule.text}" for rule in rules)


GENERIC: tuple[Rule, ...] = (
    Rule("stateless", "no operand keeps a value between runs, except the operator's own state", check.stateless),
    Rule("has-input", "at least one operand is computed at run time", check.has_input),
    Rule("static-shape", "all shapes are known at compile time", check.static_shapes),
    Rule("not-empty", "no tensor is empty", check.not_empty),
    Rule(
        "element-type",
        f"computed tensors are {', '.join(check.CODES)}; indices {', '.join(check.NUMBERS)}",
        check.codes,
    ),
    Rule("quantised", "quantised results have one positive scale and a zero point within the type", check.quantised),
    Rule(
        "fits-sram",
        "operands and results fit in the SRAM together; for a single image, the rows needed for one result row",
        check.fits_sram,
    ),
)

# Rules of every operator that are asked last, for what is left.
GENERIC_LAST: tuple[Rule, ...] = (
    Rule("understood", "every scale and zero point is one that the operator uses", check.understood),
)

_ACTIVATION = Rule("activation", f"the fused activation is one of {', '.join(check.ACTIVATIONS)}", check.activation)
_RANK4 = Rule("rank-4", "input and result are [N, H, W, C]", check.rank4)
_SAME_TYPE = Rule("same-type", "quantised operands and results have the same element type", check.same_type)
_SAME_QUANT = Rule("same-quantisation", "operands and results have the same scale and zero point", check.same_quant)
_BROADCAST = Rule("broadcast", f"operands have at most {check.MOST_DIMENSIONS} dimensions", check.broadcastable)

_WEIGHTS = Rule("constant-weights", "weights are constant", check.constant(1))
_CENTRED = Rule("centred", "16-bit tensors have zero point 0", operator_checks.centred_codes)
_SUMS = (
    Rule("one-type", "input and result have one element type", check.one_type),
    _CENTRED,
    Rule(
        "weights",
        "weights have the input's type (int8: or int4, int16: or 8 bits), positive scales and nearly equal zero points",
        operator_checks.weights,
    ),
    Rule(
        "bias",
        "the bias fits int32 in units of input times weights, and has one value per result channel",
        operator_checks.bias,
    ),
    Rule("sums", "sums of 16-bit products fit an accumulator and are scaled by less than 127", operator_checks.sums),
    Rule("channels", "channels fit the instruction", check.channels),
    _ACTIVATION,
)
_PRODUCT = (_WEIGHTS, Rule("constant-bias", "the bias is constant or absent", check.constant(2)), *_SUMS)

_WINDOW = Rule(
    "stride-dilation",
    "strides and dilations fit the instruction",
    check.option_in_field(
        "conv", stride_h="stride_y", stride_w="stride_x", dilation_h_factor="dilation_y", dilation_w_factor="dilation_x"
    ),
)
_KERNEL = Rule("kernel", "the kernel fits the instruction", check.kernel_in_field)

_POOL = (
    _RANK4,
    _SAME_QUANT,
    Rule(
        "window",
        "window and strides fit the instruction",
        check.option_in_field(
            "pool", filter_height="kernel_height", filter_width="kernel_width", stride_h="stride_y", stride_w="stride_x"
        ),
    ),
    Rule("image", "the window fits the image", check.windows_meet_image),
    _ACTIVATION,
)

_REDUCTION = (
    _SAME_TYPE,
    Rule("constant-axes", "axes are constant", check.constant(1)),
    Rule("axes", "the reduced dimensions form an image that fits the instruction", operator_checks.reduction),
)

_SEARCH = (
    Rule("constant-axis", "the axis is constant", check.constant(1)),
    _CENTRED,
    Rule("searched-row", "the searched row fits the instruction and the tile buffer", operator_checks.searched_row),
)

_ARITHMETIC = (
    _SAME_TYPE,
    _CENTRED,
    Rule("constant-scale", "constant operands have one scale", check.quantised_constants),
    _BROADCAST,
    _ACTIVATION,
)
_SELECTION = (_SAME_QUANT, _BROADCAST)
_VIEW = (_SAME_TYPE, _SAME_QUANT)
_RESIZE = (
    _RANK4,
    _SAME_QUANT,
    Rule(
        "positions", "positions follow from integers with a constant step and are interpolated exactly", check.resized
    ),
)

_MOVES = Rule("moves", "the data movement takes few strided copies", check.moves)

# Rules of operators that only move codes.
MOVING: tuple[Rule, ...] = (_SAME_QUANT, _MOVES)
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

# Rules of every element-wise operator without an entry of its own: a table of 256 codes says what it does.
BY_TABLE: tuple[Rule, ...] = (
    Rule("one-input", "one operand is computed at run time, the others are constants of one element", check.one_input),
    Rule("same-shape", "the result has the input's shape", check.same_shape),
    Rule(
        "table",
        "the function is a table (for 16 bits an interpolated one) or takes few steps",
        operator_checks.by_table,
    ),
)

# What each operator needs beyond the generic rules; one without an entry that is not element-wise stays on the host.
OPERATORS: dict[str, tuple[Rule, ...]] = {
    "CONV_2D": (
        _RANK4,
        *_PRODUCT,
        _KERNEL,
        _WINDOW,
        Rule("weight-scales", "several weight scales lie along axis 0", operator_checks.weight_axis(0)),
        Rule("groups", f"at most {check.MOST_GROUPS} groups, or one per input channel", check.groups),
    ),
    "TRANSPOSE_CONV": (
        _RANK4,
        _WEIGHTS,
        Rule("constant-bias", "the bias is constant or absent", check.constant(3)),
        *_SUMS,
        _KERNEL,
        Rule("weight-scales", "several weight scales lie along axis 0", operator_checks.weight_axis(0)),
        Rule("polyphase", "every polyphase component of the result has a kernel tap", check.transposed),
    ),
    "RESIZE_BILINEAR": _RESIZE,
    "RESIZE_NEAREST_NEIGHBOR": _RESIZE,
    "DEPTHWISE_CONV_2D": (
        _RANK4,
        *_PRODUCT,
        _KERNEL,
        _WINDOW,
        Rule("weight-scales", "several weight scales lie along axis 3", operator_checks.weight_axis(3)),
        Rule("depth-multiplier", "result channels per input channel fit the instruction", check.depth_multiplier),
    ),
    "FULLY_CONNECTED": (
        *_PRODUCT,
        Rule("weight-scales", "several weight scales lie along axis 0", operator_checks.weight_axis(0)),
        Rule("weights-format", "weights are stored row by row", check.weights_format),
        Rule("numerics", "requantisation is by fixed-point multipliers", check.fixed_numerics),
    ),
    "BATCH_MATMUL": (
        _CENTRED,
        Rule(
            "matrix-sums",
            "sums of 16-bit products fit an accumulator and are scaled by less than 127",
            matrix_checks.sums,
        ),
        Rule(
            "matrix-scales",
            "operands have one scale; a single constant right matrix may have one per column",
            matrix_checks.scales,
        ),
        Rule("matrices", "transposing and repeating matrices takes few strided copies", matrix_checks.moves),
    ),
    "ADD": _ARITHMETIC,
    "SUB": _ARITHMETIC,
    "MUL": _ARITHMETIC,
    "SQUARED_DIFFERENCE": _ARITHMETIC,
    "MAXIMUM": _SELECTION,
    "MINIMUM": _SELECTION,
    "SELECT": _SELECTION,  # its condition is not a code, so one that is computed is refused as such
    "SELECT_V2": _SELECTION,
    "CONCATENATION": (
        Rule(
            "joined-quantisation",
            "scales and zero points agree, except for uint8, which is requantised",
            check.joined_quant,
        ),
        _MOVES,
    ),
    "PRELU": (
        _SAME_TYPE,
        Rule("constant-scale", "constant operands have one scale", check.quantised_constants),
        Rule("slopes", "16-bit tensors have zero point 0, or the function is a table", operator_checks.slopes),
        _BROADCAST,
    ),
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    "MEAN": _REDUCTION,
    "SUM": _REDUCTION,
    "REDUCE_MAX": (_SAME_QUANT, *_REDUCTION),
    "REDUCE_MIN": (_SAME_QUANT, *_REDUCTION),
    "DYNAMIC_UPDATE_SLICE": (
        _SAME_QUANT,
        Rule(
            "position",
            "the position is constant, or an int32 position of one slice along one axis",
            operator_checks.updated_slice,
        ),
        Rule("moves", _MOVES.text, operator_checks.moves_where_constant(2)),
    ),
    "GATHER": (
        _SAME_TYPE,
        _SAME_QUANT,
        Rule(
            "rows",
            f"indices are constant, or rows fit the instruction, of at most {operator_checks.MOST_TABLES} tables",
            operator_checks.gathered_rows,
        ),
        Rule("moves", _MOVES.text, operator_checks.moves_where_constant(1)),
    ),
    "ARG_MAX": _SEARCH,
    "ARG_MIN": _SEARCH,
    "SOFTMAX": (
        _SAME_TYPE,
        Rule(
            "softmax-result",
            "the result has scale 1/256 and the smallest code as zero point (int16: 1/32768 and 0)",
            check.softmax_result,
        ),
        Rule("softmax-row", "a row fits the instruction and the tile buffer", check.softmax_row),
    ),
    "RMS_NORM": (
        Rule("one-type", "input and result have one element type", check.one_type),
        _CENTRED,
        Rule("constant-weights", "gamma is constant", check.constant(1)),
        Rule("row", "a row fits the tile buffer twice", check.row),
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        Rule("constant-weights", "weights and biases are constant", operator_checks.lstm_constants),
        Rule("states", "output state and cell state are variables", operator_checks.lstm_states),
        Rule("cell", "there are no peepholes, projection or layer normalisation", operator_checks.lstm_parts),
        Rule("integers", "input, weights and output are int8, the cell state is int16", operator_checks.lstm_integers),
    ),
    "QUANTIZE": (),
    "RELU": (),
    "RELU6": (),
    "RELU_N1_TO_1": (),
    "RELU_0_TO_1": (),
    "RESHAPE": _VIEW,
    "SQUEEZE": _VIEW,
    "EXPAND_DIMS": _VIEW,
    "TRANSPOSE": (
        *_VIEW,
        Rule("constant-permutation", "the permutation is constant", check.constant(1)),
        Rule("permutation", _MOVES.text, check.either(check.moves_no_element, check.moves)),
    ),
    "PAD": (
        _SAME_QUANT,
        Rule("constant-paddings", "paddings are constant", check.constant(1)),
        Rule(
            "paddings",
            "height and width are padded by what an instruction can add, or with few strided copies",
            check.either(check.image_padding, check.moves),
        ),
    ),
    **dict.fromkeys(MOVERS, MOVING),
}
