"""Element-wise operators on unsigned codes."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from odc_mlir.transforms.native.kernels.helpers import CODES, LANES, SUMS
from odc_mlir.transforms.native.kernels.mathematics import small_integers
from odc_mlir.transforms.native.kernels.pairs import each_pair
from odc_mlir.transforms.native.kernels.registry import Helpers, kernel
from odc_mlir.transforms.native.lowering.loops import BYTES, INDEX, REALS, WORDS, Loops, f32, i32, lanes

# Numbers in the table of a sum or product: of either operand, then of the result.
OPERAND_FIELDS = ("zero", "q", "round", "half", "shift")
RESULT_FIELDS = ("q", "round", "half", "shift", "zero", "low", "high")


SUM, DIFFERENCE, PRODUCT = range(3)


@kernel(a=BYTES, b=BYTES, table=WORDS, output=BYTES, rows=INDEX, columns=INDEX)
def combine_codes(w: Loops, helpers: Helpers, *, operation: int, left: int, a: int, b: int) -> None:
    """Sums, differences and products of codes; operands are read as in ``binary_reals``. See numerics.elementwise.

    Of sums both parts are scaled, ``(code - zero) << left``, and then requantised; of products the product is.
    """
    size = len(OPERAND_FIELDS)
    numbers = [w.broadcast(w.load(w["table"], w.constant(i)), LANES) for i in range(2 * size + len(RESULT_FIELDS))]

    def part(codes: SSAValue, fields: Sequence[SSAValue]) -> SSAValue:
        zero, *scaling = fields
        centred = w.sub(w.widen_unsigned(codes, SUMS), zero)
        return centred if operation == PRODUCT else w.call(helpers["scale"], w.shift_left(centred, left), *scaling)

    def chunk(place: SSAValue, operands: Sequence[SSAValue]) -> None:
        first, second = part(operands[0], numbers[:size]), part(operands[1], numbers[size : 2 * size])
        whole = {SUM: w.add, DIFFERENCE: w.sub, PRODUCT: w.mul}[operation](first, second)
        w.store_lanes(w.call(helpers["requantize"], whole, *numbers[2 * size :]), w["output"], place)

    each_pair(w, a, b, chunk)


@kernel(input=BYTES, table=BYTES, output=BYTES, count=INDEX)
def look_up(w: Loops, helpers: Helpers) -> None:
    """``table[code]`` for every code: any function of one code."""

    def element(index: SSAValue) -> None:
        code = w.to_index(w.widen_unsigned(w.load(w["input"], index), i32))
        w.store(w.load(w["table"], code), w["output"], index)

    w.each(0, w["count"], 1, element)


@kernel(input=BYTES, table=REALS, output=REALS, count=INDEX)
def look_up_reals(w: Loops, helpers: Helpers) -> None:
    """``table[code]`` for every code, where results are reals."""

    def element(index: SSAValue) -> None:
        code = w.to_index(w.widen_unsigned(w.load(w["input"], index), i32))
        w.store(w.load(w["table"], code), w["output"], index)

    w.each(0, w["count"], 1, element)


@kernel(input=REALS, output=BYTES, count=INDEX, scale=f32, least=f32, most=f32, zero=i32)
def quantize_reals(w: Loops, helpers: Helpers) -> None:
    """Codes of reals: a division, rounded with halves away from zero, plus the zero point; see numerics.quantize.

    ``least`` and ``most`` are the ends of the range less the zero point. What is not a number gives the lowest code.
    """
    real = lanes(LANES, f32)
    scale, least, most = (w.broadcast(w[name], LANES) for name in ("scale", "least", "most"))
    zero = w.broadcast(w["zero"], LANES)

    def function(name: str, *operands: SSAValue) -> SSAValue:
        return w.intrinsic(f"llvm.{name}.v{LANES}f32", operands, real)

    def chunk(index: SSAValue) -> None:
        ratio = w.emit(arith.DivfOp(w.load_lanes(w["input"], index, LANES), scale))
        value = w.emit(arith.MinnumfOp(w.emit(arith.MaxnumfOp(ratio, least)), most))
        whole = function("trunc", value)
        rest = function("fabs", w.emit(arith.SubfOp(value, whole)))
        # 1 where the rest is half and more: twice the rest is exact, half more than it would not be
        up = function("trunc", w.emit(arith.AddfOp(rest, rest)))
        rounded = w.emit(arith.AddfOp(whole, function("copysign", up, value)))
        codes = small_integers(w, rounded)
        w.store_lanes(w.narrow(w.add(codes, zero), CODES), w["output"], index)

    w.each(0, w["count"], LANES, chunk)
