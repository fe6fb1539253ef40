"""Custom operators: the table's ``CUSTOM`` entry, and entries for codes with a public definition.

``spec_of_code("Erf", registry)`` returns the entry of one operator. Some codes are equivalent to a builtin operator and
use its rules. Codes registered by the application and unknown codes have an entry without rules; unknown operators can
be imported and exported, but not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from odc_mlir.ops.quantization import QuantRule, real_only
from odc_mlir.ops.registry import CustomOps
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.custom"
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
    """An option in the custom operator's map under ``name``."""

    name: str
    default: Any


@dataclass(frozen=True)
class Alias:
    """A custom operator that is equivalent to the builtin ``operator`` with these options."""

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


def _known(code: str, operands: str, results: str, kernel: str, summary: str, **fields: Any) -> OpSpec:
    """Return the entry of a custom operator; names ending in ``?`` are optional."""
    module, _, function = kernel.partition(":")
    rules = f"odc_mlir.ops.infer.{module}" if module == "mediapipe" else _INFER
    return OpSpec(
        name=_label(code),
        operands=tuple(Operand(name.rstrip("?"), optional=name.endswith("?")) for name in operands.split()),
        results=tuple(Operand(name.rstrip("?"), optional=name.endswith("?")) for name in results.split()),
        infer=f"{rules}:{function}",
        kernel=f"{_KERNELS}.{kernel}",
        max_version=ANY_VERSION,
        quant=_CUSTOM,
        summary=summary,
        **fields,
    )


def _label(code: str) -> str:
    """Return the name of the operator in messages."""
    return f"CUSTOM({code})"


KNOWN: Mapping[str, OpSpec] = MappingProxyType(
    {
        "Convolution2DTransposeBias": _known(
            "Convolution2DTransposeBias",
            "input filter bias",
            "output",
            "mediapipe:convolution_2d_transpose_bias",
            "MediaPipe's transposed convolution with bias, equivalent to TRANSPOSE_CONV",
            verify="odc_mlir.ops.infer.mediapipe:verify_convolution_2d_transpose_bias",
            macs="odc_mlir.ops.infer.mediapipe:transposed_macs",
        ),
        "Erf": _known(
            "Erf",
            "input",
            "output",
            "custom:erf",
            "error function",
            traits=frozenset({Trait.PURE, Trait.ELEMENTWISE}),
        ),
        "FusedBatchNormV3": _known(
            "FusedBatchNormV3",
            "input scale offset mean variance",
            "output batch_mean? batch_variance? reserve_1? reserve_2? reserve_3?",
            "custom:fused_batch_norm",
            "normalisation of channels by given statistics, or in training by those of the batch",
        ),
        "Landmarks2TransformMatrix": _known(
            "Landmarks2TransformMatrix",
            "landmarks",
            "matrix",
            "mediapipe:landmarks_2_transform_matrix",
            "MediaPipe's matrix from a crop around landmarks to the image",
            verify="odc_mlir.ops.infer.mediapipe:verify_landmarks_2_transform_matrix",
        ),
        "MatrixBandPart": _known(
            "MatrixBandPart",
            "input lower upper",
            "output",
            "custom:matrix_band_part",
            "matrices with zeros outside a band around their diagonals",
        ),
        "MaxPoolWithArgmax": _known(
            "MaxPoolWithArgmax",
            "input",
            "output argmax",
            "custom:max_pool_with_argmax",
            "maximum of each window and its flat index in the input",
        ),
        "MaxPoolingWithArgmax2D": _known(
            "MaxPoolingWithArgmax2D",
            "input",
            "output argmax",
            "mediapipe:max_pooling_with_argmax_2d",
            "MediaPipe's maximum of each window and its index in the window",
            verify="odc_mlir.ops.infer.mediapipe:verify_max_pooling_with_argmax_2d",
        ),
        "MaxUnpooling2D": _known(
            "MaxUnpooling2D",
            "input argmax",
            "output",
            "mediapipe:max_unpooling_2d",
            "MediaPipe's unpooling: each value at its index in the window, zeros elsewhere",
            verify="odc_mlir.ops.infer.mediapipe:verify_max_unpooling_2d",
        ),
        "StatelessRandomUniform": _known(
            "StatelessRandomUniform",
            "shape seed",
            "output",
            "random:stateless_random_uniform",
            "uniform random numbers from 0 to 1, determined by two seeds",
        ),
        "TransformLandmarks": _known(
            "TransformLandmarks",
            "landmarks matrix",
            "output",
            "mediapipe:transform_landmarks",
            "MediaPipe's landmarks transformed by a matrix",
            verify="odc_mlir.ops.infer.mediapipe:verify_transform_landmarks",
        ),
        "TransformTensorBilinear": _known(
            "TransformTensorBilinear",
            "input matrix",
            "output",
            "mediapipe:transform_tensor_bilinear",
            "MediaPipe's crop of an image by a matrix, zero outside the image",
            verify="odc_mlir.ops.infer.mediapipe:verify_transform_tensor_bilinear",
        ),
        "TFLite_Detection_PostProcess": _known(
            "TFLite_Detection_PostProcess",
            "boxes scores anchors",
            "boxes classes scores count",
            "detection:detection_post_process",
            "decoding and non-maximum suppression of boxes",
        ),
    }
)


@cache
def known_spec(code: str) -> OpSpec | None:
    """Return the entry of a custom operator with a public definition, None for other codes."""
    alias = ALIASES.get(code)
    if alias is None:
        return KNOWN.get(code)
    from odc_mlir.ops import get

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
    """Return ``rule`` without axes that depend on builtin options, which a custom operator lacks."""
    return replace(
        rule,
        stored=MappingProxyType({place: None if callable(axis) else axis for place, axis in rule.stored.items()}),
    )


def spec_of_code(code: str, registry: CustomOps) -> OpSpec:
    """Return the entry of the custom operator ``code``, preferably the application's registration."""
    known = known_spec(code) if registry.get(code) is None else None
    return replace(GENERIC, name=_label(code)) if known is None else known
