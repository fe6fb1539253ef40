"""Table look-ups, and features of text and hashes."""

from __future__ import annotations

from odc_mlir.ops.quantization import QuantRule, moved, real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.lookup"
_KERNELS = "odc_mlir.runtime.kernels.lookup"
_ONE = (Operand("output"),)
_REAL = real_only("its arithmetic is defined for real values")
_PURE = frozenset({Trait.PURE})


def _lookup(
    name: str,
    operands: tuple[Operand, ...],
    summary: str,
    *,
    options: str | None = None,
    results: tuple[Operand, ...] = _ONE,
    version: int = 1,
    quant: QuantRule = _REAL,
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
        _PURE,
        version,
        quant,
        summary,
    )


def _ints(name: str) -> Operand:
    return Operand(name, dtypes=("int32", "int64"))


SPECS = (
    _lookup(
        "EMBEDDING_LOOKUP",
        (_ints("ids"), Operand("table")),
        "rows of a table, dequantised if the result is float",
        version=4,
        quant=moved(1, table=0),
    ),
    _lookup(
        "EMBEDDING_LOOKUP_SPARSE",
        (
            _ints("ids"),
            _ints("indices"),
            _ints("dense_shape"),
            Operand("weights", dtypes=("float32",)),
            Operand("table"),
        ),
        "weighted sums or means of rows of a table",
        options="EmbeddingLookupSparseOptions",
    ),
    _lookup(
        "HASHTABLE_LOOKUP",
        (_ints("lookup"), _ints("keys"), Operand("values")),
        "values of keys, zeros for missing keys, and hits",
        results=(Operand("output"), Operand("hits", dtypes=("uint8",))),
        quant=moved(2),
    ),
    _lookup(
        "LSH_PROJECTION",
        (
            Operand("hash", dtypes=("float32",)),
            Operand("input"),
            Operand("weight", optional=True, dtypes=("float32",)),
        ),
        "signs of weighted sums of hashes of the input's rows",
        options="LSHProjectionOptions",
        results=(Operand("output", dtypes=("int32",)),),
    ),
    _lookup(
        "SKIP_GRAM",
        (Operand("input", dtypes=("string",)),),
        "choices of a few words of a sentence in order, with few skipped words",
        options="SkipGramOptions",
        results=(Operand("output", dtypes=("string",)),),
    ),
)
