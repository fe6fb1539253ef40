"""Element-wise operators on unsigned codes."""

from __future__ import annotations

from xdsl.ir import SSAValue

from odc_mlir.transforms.native.kernels.helpers import LANES, SUMS
from odc_mlir.transforms.native.kernels.registry import Helpers, kernel
from odc_mlir.transforms.native.loops import BYTES, INDEX, WORDS, Loops, i32

# Numbers of an addition in its table: of either operand, then of the result.
OPERAND_FIELDS = ("zero", "q", "round", "half", "shift")
RESULT_FIELDS = ("q", "round", "half", "shift", "zero", "low", "high")


@kernel(a=BYTES, b=BYTES, table=WORDS, output=BYTES, count=INDEX)
def add_codes(w: Loops, helpers: Helpers, *, left: int) -> None:
    """``requantize(scale((a - zero) << left) + scale((b - zero) << left))``; see numerics.elementwise."""
    numbers = [
        w.broadcast(w.load(w["table"], w.constant(i)), LANES)
        for i in range(2 * len(OPERAND_FIELDS) + len(RESULT_FIELDS))
    ]
    size = len(OPERAND_FIELDS)

    def chunk(index: SSAValue) -> None:
        parts = []
        for name, (zero, *scaling) in (("a", numbers[:size]), ("b", numbers[size : 2 * size])):
            codes = w.widen_unsigned(w.load_lanes(w[name], index, LANES), SUMS)
            parts.append(w.call(helpers["scale"], w.shift_left(w.sub(codes, zero), left), *scaling))
        result = w.call(helpers["requantize"], w.add(parts[0], parts[1]), *numbers[2 * size :])
        w.store_lanes(result, w["output"], index)

    w.each(0, w["count"], LANES, chunk)


@kernel(input=BYTES, table=BYTES, output=BYTES, count=INDEX)
def look_up(w: Loops, helpers: Helpers) -> None:
    """``table[code]`` for every code: any function of one code."""

    def element(index: SSAValue) -> None:
        code = w.to_index(w.widen_unsigned(w.load(w["input"], index), i32))
        w.store(w.load(w["table"], code), w["output"], index)

    w.each(0, w["count"], 1, element)
