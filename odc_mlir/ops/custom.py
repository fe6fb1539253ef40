"""Custom operators: ``CUSTOM`` entry of the table, entries for public custom codes, shapes and checks.

``spec_of_code("Erf", registry)`` returns the entry of one operator. Some codes are equivalent to a builtin operator and
have its rules. Codes that the application registers and unknown codes have an entry without rules. Unknown operators
can be imported and exported, but not executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

from odc_mlir.ops import get
from odc_mlir.ops.flexbuffer import decode_map
from odc_mlir.ops.infer.common import (
    WindowAxis,
    check_elements,
    open_results,
    place_window,
    positive,
    result,
    same_dim,
    shape_of,
    static_int,
    vector_length,
)
from odc_mlir.ops.registry import CustomOps
from odc_mlir.ops.spec import (
    ELEMENTWISE,
    Node,
    Operand,
    OperatorFamily,
    OpSpec,
    QuantRule,
    ResultType,
    Shape,
    real_only,
)


def custom_options(node: Node) -> Mapping[str, Any]:
    """Return the operator's own options by key. Raises ModelError if the options are not a map."""
    return decode_map(node.custom_options)


def custom_option(node: Node, name: str, default: Any) -> Any:
    """Return one option. Raises ModelError unless it has the type of ``default``."""
    value = custom_options(node).get(name, default)
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    if isinstance(default, bool) and value in (0, 1):
        return bool(value)
    if not isinstance(value, type(default)):
        raise node.error(f"the option {name} is {value!r}; it must be a {type(default).__name__}")
    return value


def registered(node: Node) -> list[ResultType]:
    """Infer declared element types. Shapes come from the registered operator's rule, if any."""
    operator = node.context.custom_ops.get(node.custom_code)
    if operator is None or operator.infer is None:
        return open_results(node)
    shapes = operator.infer(node.operands, node.results, node.custom_options)
    if len(shapes) != len(node.results):
        raise node.error(f"the registered operator infers {len(shapes)} shapes for {len(node.results)} results")
    types = []
    for declared, given in zip(node.results, shapes, strict=True):
        shape = None if given is None else tuple(None if dim is None else int(dim) for dim in given)
        if shape is not None and any(dim is not None and dim < 0 for dim in shape):
            raise node.error(
                f"the registered operator infers the shape {list(shape)}; no size may be negative", tensor=declared.name
            )
        check_elements(node, shape or (), declared.dtype)
        types.append(ResultType(declared.dtype, shape))
    return types


def builtin_node(node: Node) -> Node:
    """Return the node of the equivalent builtin operator."""
    alias = ALIASES[node.custom_code]
    options = {
        field: custom_option(node, value.name, value.default) if isinstance(value, Key) else value
        for field, value in alias.options.items()
    }
    return replace(node, spec=get(alias.operator), options=options)


def as_builtin(node: Node) -> Sequence[ResultType]:
    """Infer the results of the equivalent builtin operator."""
    builtin = builtin_node(node)
    return builtin.spec.infer_function(builtin)


def verify_as_builtin(node: Node) -> None:
    """Run the verifier of the equivalent builtin operator."""
    builtin = builtin_node(node)
    if builtin.spec.check_function is not None:
        builtin.spec.check_function(builtin)


def macs_as_builtin(node: Node) -> int:
    """Return the multiply-accumulates of the equivalent builtin operator."""
    return builtin_node(node).macs


def matrix_band_part(node: Node) -> list[ResultType]:
    """Infer the type of the input. Its last two axes are matrices."""
    shape = shape_of(node, 0, least=2)
    for index in (1, 2):
        static_int(node, index)
    return result(node, node.operand(0).dtype, shape)


def fused_batch_norm(node: Node) -> list[ResultType]:
    """Infer an output with the type of the input ``[N, H, W, C]``. All later results are ``[C]``."""
    shape = shape_of(node, 0, 4)
    if custom_option(node, "data_format", "NHWC") != "NHWC":
        raise node.error("the option data_format must be NHWC")
    channels = None if shape is None else shape[3]
    for index in range(1, 5):
        length = vector_length(node, index)
        if length != 0:  # in training mode, these operands are empty
            channels = same_dim(
                node, channels, length, f"channels of the input and the {node.spec.operand_name(index)}"
            )
    types = [ResultType(node.operand(0).dtype, shape)]
    return types + [ResultType(declared.dtype, (channels,)) for declared in node.results[1:]]


def pool_axes(node: Node, shape: Shape) -> tuple[tuple[int, int], tuple[int, int], WindowAxis, WindowAxis]:
    """Return window and stride as (height, width), and the window's axes over ``[N, H, W, C]``."""
    pairs = []
    for name in ("ksize", "strides"):
        sizes = custom_option(node, name, [1, 1, 1, 1])
        if len(sizes) != 4 or not all(isinstance(size, int) for size in sizes) or sizes[0] != 1 or sizes[3] != 1:
            raise node.error(f"the option {name} is {sizes}; it must be [1, height, width, 1]")
        pairs.append((positive(node, name, sizes[1]), positive(node, name, sizes[2])))
    padding = custom_option(node, "padding", "VALID").lower()
    if padding not in ("same", "valid"):
        raise node.error(f"the option padding is {padding!r}; allowed are SAME, VALID")
    rows, columns = place_window(node, pairs[1], padding, pairs[0], shape[1:3])
    return pairs[0], pairs[1], rows, columns


def max_pool_with_argmax(node: Node) -> list[ResultType]:
    """Infer two results ``[N, OH, OW, C]``."""
    shape = shape_of(node, 0, 4)
    place = node.results[1].dtype
    if place not in ("int32", "int64"):
        raise node.error(f"the indices are {place}; they must be int32 or int64")
    pooled: Shape | None = None
    if shape is not None:
        *_, rows, columns = pool_axes(node, shape)
        pooled = (shape[0], rows.output, columns.output, shape[3])
    return [*result(node, node.operand(0).dtype, pooled), ResultType(place, pooled)]


def detection_post_process(node: Node) -> list[ResultType]:
    """Infer boxes ``[1, n, 4]``, classes and scores ``[1, n]``, and the number of boxes ``[1]``."""
    boxes, scores, anchors = shape_of(node, 0, 3), shape_of(node, 1, 3), shape_of(node, 2, 2)
    if boxes is not None and scores is not None and anchors is not None:
        count = same_dim(node, boxes[1], scores[1], "numbers of boxes and of scores")
        same_dim(node, count, anchors[0], "numbers of boxes and of anchors")
        same_dim(node, boxes[0], 1, "the batch")
        same_dim(node, anchors[1], 4, "coordinates of an anchor")
    most = positive(node, "max_detections", custom_option(node, "max_detections", 0))
    each = positive(node, "max_classes_per_detection", custom_option(node, "max_classes_per_detection", 1))
    rows = most * each
    return [ResultType("float32", shape) for shape in ((1, rows, 4), (1, rows), (1, rows), (1,))]


_INFER = __name__
_KERNELS = "odc_mlir.runtime.kernels"

_CUSTOM = real_only("custom operators compute on the types that their model declares")
_ANY = (Operand("tensors", optional=True, variadic=True),)
ANY_VERSION = 1 << 31  # authors of custom operators choose their versions

GENERIC = OpSpec(
    name="CUSTOM",
    operands=_ANY,
    results=_ANY,
    infer=f"{_INFER}:registered",
    kernel=f"{_KERNELS}.custom:registered",
    traits=frozenset(),
    max_version=ANY_VERSION,
    quant=_CUSTOM,
    summary="operator defined by the model's author, named by its custom code",
)

SPECS = (GENERIC,)


class Key(NamedTuple):
    """Reference to the option ``name`` in a custom operator's map."""

    name: str
    default: Any


@dataclass(frozen=True)
class Alias:
    """Builtin ``operator`` and ``options`` that are equivalent to a custom operator."""

    operator: str
    options: Mapping[str, Any] = field(default_factory=dict)


ALIASES: Mapping[str, Alias] = MappingProxyType(
    {
        "AddV2": Alias("ADD", {"fused_activation_function": "none", "pot_scale_int16": True}),
        "All": Alias("REDUCE_ALL", {"keep_dims": Key("keep_dims", False)}),
        "BatchMatMulV2": Alias(
            "BATCH_MATMUL", {"adjoint_lhs": Key("adj_x", False), "adjoint_rhs": Key("adj_y", False)}
        ),
        "BroadcastTo": Alias("BROADCAST_TO"),
        "MatMul": Alias(
            "BATCH_MATMUL", {"adjoint_lhs": Key("transpose_a", False), "adjoint_rhs": Key("transpose_b", False)}
        ),
        "SplitV": Alias("SPLIT_V", {"num_splits": Key("num_split", 0)}),
    }
)


def _label(code: str) -> str:
    return f"CUSTOM({code})"


_custom = OperatorFamily(__name__, "custom", options=None, version=ANY_VERSION, verify=None, quant=_CUSTOM)
_mediapipe = replace(_custom, module="odc_mlir.ops.infer.mediapipe", kernels="mediapipe", verify="verify_float32")

_KNOWN = {
    "Convolution2DTransposeBias": partial(
        _mediapipe,
        takes="input filter bias",
        summary="MediaPipe's transposed convolution with bias, equivalent to TRANSPOSE_CONV",
        function="convolution_2d_transpose_bias",
        macs="infer.mediapipe:transposed_macs",
    ),
    "Erf": partial(
        _custom, takes="input", summary="error function", function="erf", infer="infer.common:unary", traits=ELEMENTWISE
    ),
    "FusedBatchNormV3": partial(
        _custom,
        takes="input scale offset mean variance",
        summary="normalisation of channels by given statistics, or in training by those of the batch",
        function="fused_batch_norm",
        gives="output batch_mean? batch_variance? reserve_1? reserve_2? reserve_3?",
    ),
    "Landmarks2TransformMatrix": partial(
        _mediapipe,
        takes="landmarks",
        summary="MediaPipe's matrix from a crop around landmarks to the image",
        function="landmarks_2_transform_matrix",
        gives="matrix",
    ),
    "MatrixBandPart": partial(
        _custom,
        takes="input lower upper",
        summary="matrices with zeros outside a band around their diagonals",
        function="matrix_band_part",
    ),
    "MaxPoolWithArgmax": partial(
        _custom,
        takes="input",
        summary="maximum of each window and its flat index in the input",
        function="max_pool_with_argmax",
        gives="output argmax",
    ),
    "MaxPoolingWithArgmax2D": partial(
        _mediapipe,
        takes="input",
        summary="MediaPipe's maximum of each window and its index in the window",
        function="max_pooling_with_argmax_2d",
        gives="output argmax",
    ),
    "MaxUnpooling2D": partial(
        _mediapipe,
        takes="input argmax",
        summary="MediaPipe's unpooling: each value at its index in the window, zeros elsewhere",
        function="max_unpooling_2d",
    ),
    "StatelessRandomUniform": partial(
        _custom,
        takes="shape seed",
        summary="uniform random numbers from 0 to 1, determined by two seeds",
        function="stateless_random_uniform",
        infer="infer.common:shaped",
        kernels="random",
    ),
    "TransformLandmarks": partial(
        _mediapipe,
        takes="landmarks matrix",
        summary="MediaPipe's landmarks transformed by a matrix",
        function="transform_landmarks",
    ),
    "TransformTensorBilinear": partial(
        _mediapipe,
        takes="input matrix",
        summary="MediaPipe's crop of an image by a matrix, zero outside the image",
        function="transform_tensor_bilinear",
    ),
    "TFLite_Detection_PostProcess": partial(
        _custom,
        takes="boxes scores anchors",
        summary="decoding and non-maximum suppression of boxes",
        function="detection_post_process",
        gives="boxes classes scores count",
        kernels="detection",
    ),
}
KNOWN: Mapping[str, OpSpec] = MappingProxyType({code: known(_label(code)) for code, known in _KNOWN.items()})


@cache
def known_spec(code: str) -> OpSpec | None:
    """Return the entry of a custom operator with a public definition, or None for other codes."""
    alias = ALIASES.get(code)
    if alias is None:
        return KNOWN.get(code)
    builtin = get(alias.operator)
    return replace(
        builtin,
        name=_label(code),
        options=None,
        infer=f"{_INFER}:as_builtin",
        kernel=f"{_KERNELS}.custom:as_builtin",
        verify=f"{_INFER}:verify_as_builtin",
        macs=f"{_INFER}:macs_as_builtin" if builtin.macs else "",
        max_version=ANY_VERSION,
        quant=_without_options(builtin.quant),
    )


def _without_options(rule: QuantRule) -> QuantRule:
    return replace(
        rule, stored=MappingProxyType({place: None if callable(axis) else axis for place, axis in rule.stored.items()})
    )


def spec_of_code(code: str, registry: CustomOps) -> OpSpec:
    """Return the entry of the custom operator ``code``. Registrations of the application take precedence."""
    known = known_spec(code) if registry.get(code) is None else None
    return replace(GENERIC, name=_label(code)) if known is None else known
