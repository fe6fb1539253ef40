"""Placement rules. A rule checks a property of an operator and returns the offending value.

A check gets the operator as :class:`odc_mlir.ops.spec.Node` and returns None if its condition is true. Checks of an
operator run in order, so a check may rely on the conditions of earlier checks (static shapes, known types).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from odc_mlir.errors import OdcError
from odc_mlir.formats.host_reasons import MEMORY_RULE, TYPE_RULE, MemoryReason, TypeReason
from odc_mlir.isa.fields import OFFSET_BITS
from odc_mlir.isa.instructions import field_range
from odc_mlir.numerics.elementwise import COMPARED_SHIFT
from odc_mlir.ops.infer.bounds import bounds_of
from odc_mlir.ops.quant_check import check_quantisation
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo, Trait
from odc_mlir.runtime.kernels.logic import needs_scales
from odc_mlir.targets import ELEMENT_TYPES, NUMBER_TYPES, TRUTH_TYPE, Target
from odc_mlir.transforms.npu.lowering.decompositions import resize_lines, result_copies, transposed_components

CODES = ELEMENT_TYPES
_LARGEST_COMPARED, _LARGEST_NUMBER = 1 << 29, (1 << 15) - 1  # limits on scaled codes, and on constant numbers
MOST_DIMENSIONS = 6  # limit for element-wise operands
MOST_GROUPS = 64  # limit for a convolution, because each group takes separate transfers
SCALE_TOLERANCE = 1e-3  # relative tolerance of a fixed scale on 16-bit codes
COMPARISONS = ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
ACTIVATIONS = ("none", "relu", "relu6", "relu_n1_to_1")

# Operators that can compute some rows of one image alone, besides element-wise operators.
BY_ROWS = frozenset(
    ("AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR",
     "SOFTMAX")
)  # fmt: skip
SEARCHES = frozenset(("ARG_MAX", "ARG_MIN"))  # can search single rows of one image along its channels


@dataclass(frozen=True, slots=True)
class PlacementLimits:
    """Limits of the target and the options. ``sram_bytes``: the SRAM that operators may use."""

    target: Target
    sram_bytes: int
    numerics: str = "fixed"


Check = Callable[[Node, PlacementLimits], str | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """Named rule with its text, and a check that returns None or the offending value."""

    name: str
    text: str
    check: Check

    def __call__(self, node: Node, limits: PlacementLimits) -> str | None:
        return self.check(node, limits)


def rule(name: str, text: str | None = None) -> Callable[[Check], Rule]:
    """Create a rule from a check. The text of the rule is ``text`` or else the docstring of the check."""

    def made(check: Check) -> Rule:
        said = " ".join((check.__doc__ or "").split()).removesuffix(".")
        return Rule(name, text or said[:1].lower() + said[1:], check)

    return made


def activations(node: Node) -> Iterator[TensorInfo]:
    """Yield the non-constant operands, then the results."""
    yield from (t for t in node.operands if t is not None and not t.is_const)
    yield from node.results


def shape_text(info: TensorInfo) -> str:
    """Return the shape as text: ``shape [1, ?, 3]`` or ``unknown rank``."""
    if info.shape is None:
        return "unknown rank"
    return "shape [" + ", ".join("?" if d is None else str(d) for d in info.shape) + "]"


def _shape_of_first(tensors: Iterable[TensorInfo], is_bad: Callable[[TensorInfo], bool]) -> str | None:
    return next((f"{tensor.name!r} has {shape_text(tensor)}" for tensor in tensors if is_bad(tensor)), None)


# ---- every operator


@rule("stateless")
def stateless(node: Node, _: PlacementLimits) -> str | None:
    """No operand keeps a value between runs, except the operator's own state."""
    for index, tensor in enumerate(node.operands):
        if tensor is not None and tensor.is_variable and index not in node.mutated:
            return f"{tensor.name!r} keeps its value between runs"
    return None


@rule("has-input")
def has_input(node: Node, _: PlacementLimits) -> str | None:
    """At least one operand is computed at run time."""
    dynamic = [t for t in node.operands if t is not None and not t.is_const]
    return None if dynamic else "all operands are constant"


@rule("static-shape")
def static_shapes(node: Node, _: PlacementLimits) -> str | None:
    """All shapes are known at compile time."""
    return _shape_of_first(activations(node), lambda tensor: tensor.shape is None or None in tensor.shape)


@rule("not-empty")
def not_empty(node: Node, _: PlacementLimits) -> str | None:
    """No tensor is empty."""
    return _shape_of_first(activations(node), lambda tensor: 0 in tensor.static_shape)


def types(*allowed: str, index: int | None = None) -> Rule:
    """Return the rule that computed tensors have ``allowed`` types. ``index``: operand with computed indices."""

    def check(node: Node, _: PlacementLimits) -> str | None:
        for given, declared in ((node.operands, node.spec.operands), (node.results, node.spec.results)):
            for place, tensor in enumerate(given):
                if tensor is not None and (given is node.results or not tensor.is_const):
                    is_index = given is node.results or place == index
                    kinds = _declared_types(declared[min(place, len(declared) - 1)].dtypes, is_index=is_index)
                    if tensor.dtype not in (kinds or allowed):
                        return TypeReason(repr(tensor.name), tensor.dtype).text
        return None

    return Rule(TYPE_RULE, f"computed tensors are {', '.join(allowed)}", check)


def _declared_types(dtypes: tuple[str, ...], *, is_index: bool) -> tuple[str, ...]:
    """Return the supported types of a truth or of a plain integer, by declared types, or none for other tensors."""
    if "int32" in dtypes and "int8" not in dtypes:
        return NUMBER_TYPES if is_index else CODES
    return (TRUTH_TYPE,) if dtypes == (TRUTH_TYPE,) else ()


@rule("quantised")
def quantised(node: Node, _: PlacementLimits) -> str | None:
    """Codes have one positive scale and a zero point within the type."""
    coded = (t for t in activations(node) if t.dtype in CODES)
    return next(filter(None, map(quant_fault, coded)), None)


@rule("quantised")
def quantised_or_plain(node: Node, limits: PlacementLimits) -> str | None:
    """Tensors have one positive scale and a zero point within the type, or all have none."""
    return None if all(tensor.quant is None for tensor in activations(node)) else quantised(node, limits)


def quant_fault(tensor: TensorInfo) -> str | None:
    """Return the value if a tensor lacks a single positive scale and a zero point within the type."""
    if (quant := tensor.quant) is None or not quant.per_tensor:
        return f"{tensor.name!r} has {quant_text(quant)}"
    if not 0 < quant.scale < math.inf:
        return f"{tensor.name!r} has scale {quant.scale}"
    return zero_fault(tensor)


def zero_fault(tensor: TensorInfo) -> str | None:
    """Return the value if a zero point of a quantised tensor is outside of the type."""
    low, high = tensor.info.range
    outside = (zero for zero in tensor.quant.zero_points if not low <= zero <= high) if tensor.quant else ()
    return next((f"{tensor.name!r} has zero point {zero}" for zero in outside), None)


@rule("understood")
def understood(node: Node, _: PlacementLimits) -> str | None:
    """The operator supports the scales and zero points of its tensors."""
    try:
        check_quantisation(node)
    except OdcError as error:
        return error.message
    return None


@rule(MEMORY_RULE)
def fits_sram(node: Node, limits: PlacementLimits) -> str | None:
    """Operands and results fit in SRAM together (of a single image: the rows for one result row)."""
    span, dimensions = _rows_read(node), (3, 4) if node.spec.name in SEARCHES else (4,)
    needed = 0
    for tensor in activations(node):
        shape = tensor.static_shape
        rows = 1 if tensor in node.results else span
        part = min(1.0, rows / shape[1]) if span and len(shape) in dimensions else 1
        needed += int(math.prod(shape) * part) * tensor.info.numpy.itemsize
    allowed = min(limits.sram_bytes, 1 << OFFSET_BITS)
    return MemoryReason(needed, allowed).text if needed > allowed else None


def _rows_read(node: Node) -> int:
    """Return the number of operand rows that one result row needs, or 0 if all rows are computed together."""
    if any(tensor.static_shape[:1] != (1,) for tensor in activations(node) if len(tensor.static_shape) == 4):
        return 0
    if node.spec.name in SEARCHES:
        image = len(node.operand(0).static_shape) == 4 and node.operand(1).is_const
        return int(image and node.const(1).reshape(-1).tolist() in ([3], [-1]))
    if node.spec.name not in BY_ROWS and Trait.ELEMENTWISE not in node.spec.traits:
        return 0
    kernel = 2 if node.spec.name == "RESIZE_BILINEAR" else node.options.get("filter_height", 1)
    if node.spec.name in ("CONV_2D", "DEPTHWISE_CONV_2D") and node.operands[1] is not None:
        kernel = node.operands[1].static_shape[1]
    return int((kernel - 1) * node.options.get("dilation_h_factor", 1) + 1)


# ---- shared by several operators


@rule("activation", f"the fused activation is one of {', '.join(ACTIVATIONS)}")
def activation(node: Node, _: PlacementLimits) -> str | None:
    """The fused activation is a clamp."""
    fused = node.options.get("fused_activation_function", "none")
    return None if fused in ACTIVATIONS else f"fused activation {fused}"


@rule("rank-4")
def rank4(node: Node, _: PlacementLimits) -> str | None:
    """Input and result are [N, H, W, C]."""
    return _shape_of_first((next(activations(node)), *node.results), lambda tensor: len(tensor.static_shape) != 4)


@rule("one-type")
def one_type(node: Node, _: PlacementLimits) -> str | None:
    """Input and result have one element type."""
    first, *others = activations(node)
    found = (f"{tensor.name!r} is {tensor.dtype}" for tensor in others if tensor.dtype != first.dtype)
    return next((f"{first.name!r} is {first.dtype}, {other}" for other in found), None)


_OPERAND_BITS = 30  # of numbers that arithmetic takes exactly


@rule("bounds")
def bounded(node: Node, _: PlacementLimits) -> str | None:
    """Operands without scale have values of at most 30 bits, and results of 16 bits and of the result's type."""
    result, function = node.results[0], node.spec.bounds_function
    if result.quant is not None or result.dtype == TRUTH_TYPE:
        return None
    for tensor in node.operands:
        if tensor is not None and tensor.dtype in NUMBER_TYPES:
            low, high = bounds_of(tensor)
            if not -1 << _OPERAND_BITS - 1 <= low <= high < 1 << _OPERAND_BITS - 1:
                return f"values of {tensor.name!r} from {low} to {high} exceed {_OPERAND_BITS} bits"
    (least, most), found = result.info.range, None if function is None else function(node)
    low, high = found or result.info.range
    if max(least, -1 << 15) <= low <= high <= min(most, (1 << 15) - 1):
        return None
    return f"values of {result.name!r} from {low} to {high} exceed {'16 bits' if most >> 15 else result.dtype}"


@rule("divisor")
def divisor(node: Node, _: PlacementLimits) -> str | None:
    """The divisor is one positive constant, and quotients have 16 bits and a single exact rounding."""
    tensor = node.operand(1)
    if not tensor.is_const or math.prod(tensor.static_shape) != 1 or (value := int(tensor.array().flat[0])) < 1:
        return f"{tensor.name!r} is not a positive constant"
    low, high = bounds_of(node.operand(0))
    fits, exact = -1 << 15 <= low // value <= high // value < 1 << 15, (2 * max(-low, high) + value) * value < 1 << 31
    return None if fits and exact else f"values from {low} to {high} are divided by {value}"


def quant_text(quant: QuantParams | None) -> str:
    """Return a scale and zero point as text, or the reason why there is no single pair."""
    if quant is None:
        return "no scale"
    if not quant.per_tensor:
        return f"{len(quant.scales)} scales"
    return f"scale {quant.scale:g} and zero point {quant.zero_point}"


@rule("same-quantisation")
def same_quant(node: Node, _: PlacementLimits) -> str | None:
    """Operands and results have the same scale and zero point."""
    coded = [t for t in (*node.operands, *node.results) if t is not None and t.dtype in CODES]
    for tensor in coded[1:]:
        if (first := coded[0]).quant is not tensor.quant and not (first.quant and first.quant.agrees(tensor.quant)):
            return f"{tensor.name!r} has {quant_text(tensor.quant)}, {first.name!r} has {quant_text(first.quant)}"
    return None


@rule("joined-quantisation")
def joined_quant(node: Node, limits: PlacementLimits) -> str | None:
    """Operands and result have the same scale and zero point (uint8 operands may differ)."""
    operands = [t for t in node.operands if t is not None]
    usable = all(t.dtype == "uint8" and quant_fault(t) is None for t in operands)
    return None if usable and node.results[0].dtype == "uint8" else same_quant(node, limits)


def constant(index: int) -> Check:
    """Check that operand ``index`` is constant or absent."""

    def check(node: Node, _: PlacementLimits) -> str | None:
        tensor = node.optional(index)
        return None if tensor is None or tensor.is_const else f"{tensor.name!r} is computed at run time"

    return check


def option_in_field(instruction: str, **fields: str) -> Check:
    """Check that each option is at least 1 and fits the instruction field given for it."""

    def check(node: Node, _: PlacementLimits) -> str | None:
        for option, field in fields.items():
            value, highest = node.options[option], field_range(instruction, field)[1]
            if not 1 <= value <= highest:
                return f"{option} is {value}, allowed 1 to {highest}"
        return None

    return check


def beyond_fields(mnemonic: str, **values: tuple[str, int]) -> str | None:
    """Return the first value that exceeds a field of an instruction. ``values``: noun and value by field."""
    for field, (what, value) in values.items():
        if value > (highest := field_range(mnemonic, field)[1]):
            return f"{value} {what}, at most {highest}"
    return None


# ---- convolutions and matrix products


@rule("kernel")
def kernel_in_field(node: Node, _: PlacementLimits) -> str | None:
    """Kernel height and width fit the instruction's fields."""
    height, width = node.operand(1).static_shape[1:3]
    highest = field_range("conv", "kernel_height")[1]
    return None if max(height, width) <= highest else f"kernel {height}x{width}, at most {highest}x{highest}"


@rule("channels")
def channels(node: Node, _: PlacementLimits) -> str | None:
    """The numbers of channels fit the instruction's fields."""
    shape = node.operand(1).static_shape
    return beyond_fields("conv", channels=("channels", max(shape[0], shape[-1])))


@rule("groups", f"at most {MOST_GROUPS} groups, or one per input channel")
def groups(node: Node, _: PlacementLimits) -> str | None:
    """Few groups, each of which becomes a convolution, or one group per input channel (a depthwise convolution)."""
    total, taken = node.operand(0).static_shape[3], node.operand(1).static_shape[3]
    count = total // taken
    if taken in (total, 1) or count <= MOST_GROUPS:
        return None
    return f"{count} groups of {taken} input channels, at most {MOST_GROUPS}"


@rule("polyphase")
def transposed(node: Node, _: PlacementLimits) -> str | None:
    """Every polyphase component of the result has a kernel tap."""
    found = transposed_components(node)
    return found if isinstance(found, str) else None


@rule("positions")
def resized(node: Node, _: PlacementLimits) -> str | None:
    """Sampling positions have a constant step, and fixed-point arithmetic interpolates them exactly."""
    found = resize_lines(node)
    return found if isinstance(found, str) else None


@rule("depth-multiplier")
def depth_multiplier(node: Node, _: PlacementLimits) -> str | None:
    """The number of result channels per input channel fits the instruction's field."""
    count = node.operand(0).static_shape[3]
    results = node.results[0].static_shape[3]
    highest = field_range("conv", "multiplier")[1]
    if results % count == 0 and results // count <= highest:
        return None
    return f"{results} result channels of {count} input channels, at most {highest} of each"


@rule("weights-format")
def weights_format(node: Node, _: PlacementLimits) -> str | None:
    """Weights are stored row by row."""
    seen = node.options.get("weights_format", "default")
    return None if seen == "default" else f"weights format {seen}"


@rule("numerics")
def fixed_numerics(_: Node, limits: PlacementLimits) -> str | None:
    """Results are requantised by fixed-point multipliers."""
    return None if limits.numerics == "fixed" else f"numerics {limits.numerics}"


# ---- the rest


@rule("broadcast", f"operands have at most {MOST_DIMENSIONS} dimensions")
def broadcastable(node: Node, _: PlacementLimits) -> str | None:
    """Operands have few enough dimensions to loop over."""
    return _shape_of_first(node.results, lambda tensor: len(tensor.static_shape) > MOST_DIMENSIONS)


@rule("constant-scale")
def quantised_constants(node: Node, _: PlacementLimits) -> str | None:
    """Constant operands have one positive scale and a zero point within the type."""
    constants = (t for t in node.operands if t is not None and t.is_const and t.dtype in CODES)
    return next(filter(None, map(quant_fault, constants)), None)


@rule("compared")
def compared(node: Node, _: PlacementLimits) -> str | None:
    """Differences at the common scale have at most 30 bits. Numbers are compared with numbers of 16 bits."""
    pair = node.operand(0), node.operand(1)
    if pair[0].dtype == "int32" and not any(max(map(abs, bounds_of(info))) < _LARGEST_NUMBER for info in pair):
        return f"{pair[0].name!r} and {pair[1].name!r} are int32"
    for tensor in pair if needs_scales(node) else ():
        assert tensor.quant is not None, "asked of quantised operands"
        reach = max(abs(end - tensor.quant.zero_point) for end in tensor.info.range)
        if (reach << COMPARED_SHIFT) * tensor.quant.scale >= _LARGEST_COMPARED:
            return f"{tensor.name!r} has {quant_text(tensor.quant)}"
    return None


@rule("image")
def windows_meet_image(node: Node, _: PlacementLimits) -> str | None:
    """The window fits the image."""
    height, width = node.operand(0).static_shape[1:3]
    options = node.options
    taps = (options["filter_height"], options["filter_width"])
    if options["padding"] == "same" or (taps[0] <= height and taps[1] <= width):
        return None
    return f"window {taps[0]}x{taps[1]} on an image of {height}x{width}"


@rule("softmax-result")
def softmax_result(node: Node, _: PlacementLimits) -> str | None:
    """The scale is 1/256 and the zero point the smallest code (int16: scale 1/32768, zero point 0)."""
    result, quant = node.results[0], node.results[0].quant
    if result.dtype == "int16":
        if quant is not None and abs(quant.scale * (1 << 15) - 1) < SCALE_TOLERANCE and not quant.zero_point:
            return None
        return f"{result.name!r} has {quant_text(quant)}, expected {quant_text(QuantParams((2.0**-15,), (0,)))}"
    expected = QuantParams((1 / 256,), (result.info.range[0],))
    if quant is not None and (quant.scales, quant.zero_points) == (expected.scales, expected.zero_points):
        return None
    return f"{result.name!r} has {quant_text(quant)}, expected {quant_text(expected)}"


@rule("softmax-row")
def softmax_row(node: Node, limits: PlacementLimits) -> str | None:
    """A row fits the tile buffer, and the row length fits the instruction's field."""
    columns = node.operand(0).static_shape[-1] if node.operand(0).static_shape else 0
    item = node.operand(0).info.numpy.itemsize
    highest = min(field_range("softmax", "columns")[1], limits.target.local.tile_bytes // (2 * item))
    return None if 1 <= columns <= highest else f"rows of {columns} elements, allowed 1 to {highest}"


@rule("row")
def row(node: Node, limits: PlacementLimits) -> str | None:
    """Two rows fit the tile buffer."""
    columns, highest = node.operand(0).static_shape[-1], limits.target.local.tile_bytes // 4
    return None if columns <= highest else f"rows of {columns} elements, at most {highest}"


def padding(node: Node, _: PlacementLimits | None = None) -> str | None:
    """Check that only height and width are padded, by amounts that a load can add."""
    amounts = [[int(v) for v in row] for row in node.const(1).reshape(-1, 2)]
    highest = field_range("load", "pad_before1")[1]
    if any(v < 0 or v > highest for row in amounts for v in row):
        return f"paddings {amounts}, each at most {highest}"
    if any(amounts[0]) or any(amounts[3]):
        return f"paddings {amounts} of batch or channels"
    return None


@rule("moves")
def moves(node: Node, _: PlacementLimits) -> str | None:
    """A few strided copies perform the data movement."""
    found = result_copies(node)
    return found if isinstance(found, str) else None


def either(first: Check, second: Check) -> Check:
    """Check that one of two checks passes. Otherwise return the offending value of the second check."""

    def check(node: Node, limits: PlacementLimits) -> str | None:
        return first(node, limits) and second(node, limits)

    return check


def image_padding(node: Node, _: PlacementLimits | None = None) -> str | None:
    """Check that a load can add the padding of an image."""
    source = node.operand(0)
    if len(source.static_shape) != 4:
        return f"{source.name!r} has {shape_text(source)}"
    if source.dtype == "int16" and source.quant is not None and source.quant.zero_point:
        return f"{source.name!r} has zero point {source.quant.zero_point}"  # a load pads with bytes that are all equal
    return padding(node)


def moves_no_element(node: Node, _: PlacementLimits | None = None) -> str | None:
    """Check that a transposition keeps the order of all dimensions other than 1, so that no byte moves."""
    shape = node.operand(0).static_shape
    order = [int(p) for p in node.const(1).reshape(-1) if shape[int(p)] != 1]
    return None if order == sorted(order) else f"permutation {[int(p) for p in node.const(1).reshape(-1)]}"


@rule("one-input")
def one_input(node: Node, _: PlacementLimits) -> str | None:
    """One operand is computed at run time, and all other operands are constants with one element."""
    dynamic = [t for t in node.operands if t is not None and not t.is_const]
    if len(dynamic) != 1:
        return f"{len(dynamic)} operands are computed at run time, a table takes one"
    for tensor in node.operands:
        if tensor is not None and tensor.is_const and math.prod(tensor.static_shape) != 1:
            return f"constant {tensor.name!r} has {shape_text(tensor)}"
    return None


@rule("same-shape")
def same_shape(node: Node, _: PlacementLimits) -> str | None:
    """The result has the input's shape."""
    source, result = next(activations(node)), node.results[0]
    if source.static_shape == result.static_shape:
        return None
    return f"{source.name!r} has {shape_text(source)}, {result.name!r} {shape_text(result)}"
