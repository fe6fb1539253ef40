"""Reductions: over axes, along an axis, over segments and over windows."""

from __future__ import annotations

from odc_mlir.ops.quantization import NONE, OWN, QuantRule, moved
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_NUMBERS = ("float32", "int8", "uint8", "int16", "int32", "int64")
_INFER = "odc_mlir.ops.infer.reduction"
_KERNELS = "odc_mlir.runtime.kernels"
_PURE = frozenset({Trait.PURE})
_MOVES = _PURE | {Trait.SAME_QUANT}
_X = Operand("input")
_ONE = (Operand("output"),)
_IDS = Operand("segment_ids", dtypes=("int32", "int64"))


def _reduce(
    name: str,
    summary: str,
    *,
    dtypes: tuple[str, ...] = (),
    traits: frozenset[Trait] = _PURE,
    version: int = 3,
    quant: QuantRule = OWN,
    kernel: str = "",
) -> OpSpec:
    return OpSpec(
        name,
        (Operand("input", dtypes=dtypes), Operand("axes", dtypes=("int32", "int64"))),
        (Operand("output", dtypes=dtypes),),
        "ReducerOptions",
        "odc_mlir.ops.infer.common:reduce",
        f"{_KERNELS}.reduction:{kernel or name.lower()}",
        f"{_INFER}:verify_reduce",
        traits,
        version,
        quant,
        summary,
    )


def _segments(name: str, operands: tuple[Operand, ...], options: str, summary: str, shared: str) -> OpSpec:
    return OpSpec(
        name,
        operands,
        _ONE,
        options,
        f"{_INFER}:{shared}",
        f"{_KERNELS}.segments:{name.lower()}",
        f"{_INFER}:verify_{shared}",
        _PURE,
        summary=summary,
    )


def _unsorted(kind: str, summary: str) -> OpSpec:
    return _segments(
        f"UNSORTED_SEGMENT_{kind.upper()}",
        (_X, _IDS, Operand("num_segments", dtypes=("int32", "int64"))),
        f"UnsortedSegment{kind.title()}Options",
        summary,
        "unsorted_segment",
    )


_INTS64 = ("int32", "int64")

SPECS = (
    _reduce("MEAN", "mean over some axes", dtypes=_NUMBERS),
    _reduce("SUM", "sum over some axes", kernel="reduce_sum"),
    _reduce("REDUCE_PROD", "product over some axes"),
    _reduce("REDUCE_MAX", "largest element over some axes", traits=_MOVES, quant=moved()),
    _reduce("REDUCE_MIN", "smallest element over some axes", traits=_MOVES, quant=moved()),
    _reduce("REDUCE_ANY", "logical or over some axes", dtypes=("bool",), quant=NONE),
    _reduce("REDUCE_ALL", "logical and over some axes", dtypes=("bool",), quant=NONE),
    OpSpec(
        "CUMSUM",
        (_X, Operand("axis", dtypes=_INTS64)),
        _ONE,
        "CumsumOptions",
        f"{_INFER}:cumsum",
        f"{_KERNELS}.reduction:cumsum",
        f"{_INFER}:verify_cumsum",
        summary="running sum along an axis",
    ),
    _segments(
        "SEGMENT_SUM",
        (_X, _IDS),
        "SegmentSumOptions",
        "sums of consecutive slices with equal segment ids",
        "segment_sum",
    ),
    _unsorted("prod", "products of slices with equal segment ids"),
    _unsorted("max", "maxima of slices with equal segment ids"),
    _unsorted("min", "minima of slices with equal segment ids"),
    _unsorted("sum", "sums of slices with equal segment ids"),
    _segments(
        "REDUCE_WINDOW",
        (
            _X,
            Operand("init"),
            Operand("window", dtypes=_INTS64),
            Operand("strides", dtypes=_INTS64),
            Operand("dilations", dtypes=_INTS64),
        ),
        "ReduceWindowOptions",
        "reduction of every window to one element",
        "reduce_window",
    ),
)
