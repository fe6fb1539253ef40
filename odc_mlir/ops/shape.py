"""Operators that move elements without computing."""

from __future__ import annotations

from odc_mlir.ops.quantization import NONE, QuantRule, joined, moved
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.shape"
_KERNELS = "odc_mlir.runtime.kernels.shape"
_X = Operand("input")
_RESULT = (Operand("output"),)
_INTS = ("int32", "int64")
_MOVES = frozenset({Trait.PURE, Trait.SAME_QUANT})
_VIEW = _MOVES | {Trait.VIEW}


def _ints(name: str, *, optional: bool = False) -> Operand:
    return Operand(name, optional=optional, dtypes=_INTS)


def _mover(
    name: str,
    operands: tuple[Operand, ...],
    summary: str,
    *,
    options: str | None,
    infer: str = "",
    traits: frozenset[Trait] = _MOVES,
    version: int = 1,
    quant: QuantRule | None = None,
) -> OpSpec:
    function = name.lower()
    return OpSpec(
        name,
        operands,
        _RESULT,
        options,
        f"{_INFER}:{infer or function}",
        f"{_KERNELS}:{infer or function}",
        f"{_INFER}:verify_{function}",
        traits,
        version,
        quant or moved(),
        summary,
    )


SPECS = (
    _mover("RESHAPE", (_X, _ints("shape", optional=True)), "change of shape", options="ReshapeOptions", traits=_VIEW),
    _mover("SQUEEZE", (_X,), "removal of axes of size 1", options="SqueezeOptions", traits=_VIEW, version=2),
    _mover(
        "EXPAND_DIMS", (_X, _ints("axis")), "insertion of an axis of size 1", options="ExpandDimsOptions", traits=_VIEW
    ),
    OpSpec(
        "SHAPE",
        (_X,),
        (Operand("output", dtypes=_INTS),),
        "ShapeOptions",
        f"{_INFER}:shape",
        f"{_KERNELS}:shape",
        f"{_INFER}:verify_shape",
        quant=NONE,
        summary="sizes of the operand",
    ),
    _mover(
        "STRIDED_SLICE",
        (_X, _ints("begin"), _ints("end"), _ints("strides")),
        "every n-th element of a range along each axis",
        options="StridedSliceOptions",
        infer="strided",
        version=8,
    ),
    _mover(
        "SLICE",
        (_X, _ints("begin"), _ints("size")),
        "range along each axis",
        options="SliceOptions",
        infer="slice_",
        version=6,
    ),
    _mover(
        "PACK",
        (Operand("values", variadic=True),),
        "stacking of operands along a new axis",
        options="PackOptions",
        version=4,
        quant=joined(),
    ),
    _mover(
        "CONCATENATION",
        (Operand("values", variadic=True),),
        "concatenation along an axis",
        options="ConcatenationOptions",
        version=4,
        quant=joined(),
    ),
    _mover(
        "PAD",
        (_X, Operand("paddings", dtypes=(*_INTS, "int8", "int16"))),
        "padding with zeros",
        options="PadOptions",
        version=5,
    ),
    _mover("TRANSPOSE", (_X, _ints("permutation")), "permutation of axes", options="TransposeOptions", version=6),
)
