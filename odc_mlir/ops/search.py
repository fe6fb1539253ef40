"""Search operators: largest and smallest elements, coordinates, distinct values, boxes, buckets."""

from __future__ import annotations

from odc_mlir.ops.quantization import OWN, QuantRule, moved, real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.search"
_KERNELS = "odc_mlir.runtime.kernels.search"
_X = Operand("input")
_INTS = ("int32", "int64")
_PLACES = Operand("indices", dtypes=("int16", *_INTS))
_COUNT = Operand("count", dtypes=("int32",))


def _search(
    name: str,
    operands: tuple[Operand, ...],
    results: tuple[Operand, ...],
    summary: str,
    *,
    options: str,
    function: str = "",
    version: int = 1,
    quant: QuantRule = OWN,
) -> OpSpec:
    shared = function or name.lower()
    return OpSpec(
        name,
        operands,
        results,
        options,
        f"{_INFER}:{shared}",
        f"{_KERNELS}:{name.lower()}",
        f"{_INFER}:verify_{shared}",
        frozenset({Trait.PURE}),
        version,
        quant,
        summary,
    )


_BOXES = (
    Operand("boxes"),
    Operand("scores"),
    Operand("max_output_size", dtypes=("int32",)),
    Operand("iou_threshold"),
    Operand("score_threshold"),
)
_BOXES_STAY = real_only("boxes are compared as real values")
_AXIS = Operand("axis", dtypes=_INTS)
_PLACE = (Operand("output", dtypes=_INTS),)

SPECS = (
    _search(
        "ARG_MAX",
        (_X, _AXIS),
        _PLACE,
        "index of the largest element along an axis",
        options="ArgMaxOptions",
        function="place",
        version=3,
    ),
    _search(
        "ARG_MIN",
        (_X, _AXIS),
        _PLACE,
        "index of the smallest element along an axis",
        options="ArgMinOptions",
        function="place",
        version=3,
    ),
    _search(
        "TOPK_V2",
        (_X, Operand("k", dtypes=("int16", *_INTS))),
        (Operand("values"), _PLACES),
        "largest elements of each row in descending order, and their indices",
        options="TopKV2Options",
        version=3,
        quant=moved(),
    ),
    _search(
        "WHERE",
        (Operand("condition"),),
        (Operand("output", dtypes=("int64",)),),
        "coordinates of nonzero elements",
        options="WhereOptions",
        quant=real_only("it tells real zero from everything else"),
        version=2,
    ),
    _search(
        "UNIQUE",
        (_X,),
        (Operand("values"), Operand("indices", dtypes=_INTS)),
        "distinct values in order of appearance, and each element's index among them",
        options="UniqueOptions",
        version=2,
        quant=moved(),
    ),
    _search(
        "NON_MAX_SUPPRESSION_V4",
        _BOXES,
        (Operand("selected", dtypes=("int32",)), _COUNT),
        "non-maximum suppression of boxes",
        options="NonMaxSuppressionV4Options",
        quant=_BOXES_STAY,
    ),
    _search(
        "NON_MAX_SUPPRESSION_V5",
        (*_BOXES, Operand("soft_nms_sigma")),
        (Operand("selected", dtypes=("int32",)), Operand("selected_scores"), _COUNT),
        "soft non-maximum suppression of boxes",
        options="NonMaxSuppressionV5Options",
        quant=_BOXES_STAY,
    ),
    _search(
        "BUCKETIZE",
        (_X,),
        (Operand("output", dtypes=("int32",)),),
        "number of boundaries up to each element",
        options="BucketizeOptions",
        quant=real_only("it compares with real boundaries"),
    ),
)
