"""Operators that repeat, split, reverse and space out their operand without computing."""

from __future__ import annotations

from odc_mlir.ops.quantization import QuantRule, joined, moved
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.layout"
_KERNELS = "odc_mlir.runtime.kernels.layout"
_X = Operand("input")
_ONE = (Operand("output"),)
_SEVERAL = (Operand("outputs", variadic=True),)
_INTS = ("int32", "int64")
_MOVES = frozenset({Trait.PURE, Trait.SAME_QUANT})


def _ints(name: str) -> Operand:
    return Operand(name, dtypes=_INTS)


def _mover(
    name: str,
    operands: tuple[Operand, ...],
    summary: str,
    *,
    options: str,
    results: tuple[Operand, ...] = _ONE,
    version: int = 1,
    quant: QuantRule | None = None,
) -> OpSpec:
    function = name.lower()
    return OpSpec(
        name,
        operands,
        results,
        options,
        f"{_INFER}:{function}",
        f"{_KERNELS}:{function}",
        f"{_INFER}:verify_{function}",
        _MOVES,
        version,
        quant or moved(),
        summary,
    )


SPECS = (
    _mover("TILE", (_X, _ints("multiples")), "repetition along each axis", options="TileOptions", version=3),
    _mover(
        "SPLIT",
        (_ints("axis"), _X),
        "split into equal parts along an axis",
        options="SplitOptions",
        quant=moved(1),
        results=_SEVERAL,
        version=5,
    ),
    _mover(
        "SPLIT_V",
        (_X, _ints("sizes"), _ints("axis")),
        "split into parts of given sizes along an axis",
        options="SplitVOptions",
        results=_SEVERAL,
        version=3,
    ),
    _mover(
        "UNPACK", (_X,), "slices along an axis, which is removed", options="UnpackOptions", results=_SEVERAL, version=5
    ),
    _mover(
        "PADV2",
        (_X, Operand("paddings", dtypes=(*_INTS, "int8", "int16")), Operand("value", optional=True)),
        "padding with one value",
        options="PadV2Options",
        quant=joined(0, 2),
        version=5,
    ),
    _mover(
        "MIRROR_PAD",
        (_X, _ints("paddings")),
        "padding with mirrored elements",
        options="MirrorPadOptions",
        version=4,
    ),
    _mover("REVERSE_V2", (_X, _ints("axes")), "reversal along some axes", options="ReverseV2Options", version=4),
    _mover(
        "REVERSE_SEQUENCE",
        (_X, _ints("lengths")),
        "reversal of the first elements of each batch entry",
        options="ReverseSequenceOptions",
    ),
    _mover(
        "SPACE_TO_BATCH_ND",
        (_X, _ints("block_shape"), _ints("paddings")),
        "padding, then blocks of space to batch entries",
        options="SpaceToBatchNDOptions",
        version=4,
    ),
    _mover(
        "BATCH_TO_SPACE_ND",
        (_X, _ints("block_shape"), _ints("crops")),
        "batch entries to blocks of space, then cropping",
        options="BatchToSpaceNDOptions",
        version=4,
    ),
    _mover("SPACE_TO_DEPTH", (_X,), "blocks of pixels to channels", options="SpaceToDepthOptions", version=3),
    _mover("DEPTH_TO_SPACE", (_X,), "channels to blocks of pixels", options="DepthToSpaceOptions", version=3),
    _mover(
        "DILATE",
        (_X, _ints("dilations"), Operand("padding_value")),
        "insertion of one value between elements",
        options="DilateOptions",
        quant=joined(0, 2),
    ),
    _mover("MATRIX_DIAG", (_X,), "matrices with the operand on their diagonal", options="MatrixDiagOptions"),
    _mover(
        "MATRIX_SET_DIAG",
        (_X, Operand("diagonal")),
        "matrices with a given diagonal",
        options="MatrixSetDiagOptions",
        quant=joined(0, 1),
    ),
    _mover(
        "BROADCAST_TO",
        (_X, _ints("shape")),
        "broadcast to a shape",
        options="BroadcastToOptions",
        version=4,
    ),
)
