"""Operators that read or write elements at given indices."""

from __future__ import annotations

from operator import itemgetter

from odc_mlir.ops.quantization import QuantRule, joined, moved, real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.indexing"
_KERNELS = "odc_mlir.runtime.kernels.indexing"
_ONE = (Operand("output"),)
_INTS = ("int32", "int64")
_INDICES = Operand("indices", dtypes=("int16", *_INTS))
_SHAPE = Operand("shape", dtypes=_INTS)
_PURE = frozenset({Trait.PURE})
_MOVES = _PURE | {Trait.SAME_QUANT}


def _indexed(
    name: str,
    operands: tuple[Operand, ...],
    summary: str,
    *,
    options: str,
    traits: frozenset[Trait] = _MOVES,
    version: int = 1,
    quant: QuantRule | None = None,
) -> OpSpec:
    function = name.lower()
    return OpSpec(
        name,
        operands,
        _ONE,
        options,
        f"{_INFER}:{function}",
        f"{_KERNELS}:{function}",
        f"{_INFER}:verify_{function}",
        traits,
        version,
        quant or moved(),
        summary,
    )


SPECS = (
    _indexed(
        "GATHER",
        (Operand("params"), _INDICES),
        "slices by indices along an axis",
        options="GatherOptions",
        version=7,
        quant=moved(table=itemgetter("axis")),
    ),
    _indexed(
        "GATHER_ND",
        (Operand("params"), _INDICES),
        "slices at coordinates",
        options="GatherNdOptions",
        version=5,
        quant=moved(table=0),
    ),
    _indexed(
        "SCATTER_ND",
        (_INDICES, Operand("updates"), _SHAPE),
        "sum of slices into zeros at coordinates",
        options="ScatterNdOptions",
        quant=real_only("it adds to the code 0, which may not represent zero"),
        traits=_PURE,
    ),
    _indexed(
        "SPARSE_TO_DENSE",
        (_INDICES, _SHAPE, Operand("values"), Operand("default")),
        "one value, with others at coordinates",
        options="SparseToDenseOptions",
        quant=joined(2, 3),
        version=3,
    ),
    _indexed(
        "ONE_HOT",
        (_INDICES, Operand("depth", dtypes=("int32",)), Operand("on_value"), Operand("off_value")),
        "one-hot encoding along a new axis",
        options="OneHotOptions",
        quant=joined(2, 3),
    ),
    _indexed(
        "DYNAMIC_UPDATE_SLICE",
        (Operand("operand"), Operand("update"), Operand("start", dtypes=_INTS)),
        "operand with a replaced part",
        options="DynamicUpdateSliceOptions",
        quant=joined(0, 1),
        version=5,
    ),
)
