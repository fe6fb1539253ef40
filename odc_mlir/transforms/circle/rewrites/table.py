"""Table of the named rewrites of Circle models, for the pass ``circle-optimize``, the command and the docs.

Names are as in ONE's ``circle2circle`` if it has an equivalent, with ``_`` for ``-``. Level ``O1`` has the rewrites
that preserve results: codes bit for bit, and floats except for the order of sums and the rounding of folded constants.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import OptionError
from odc_mlir.formats.quantities import listed

if TYPE_CHECKING:
    from xdsl.pattern_rewriter import RewritePattern

O1 = "O1"
ON_REQUEST = "on request"


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """Named rewrite.

    ``summary``: description in lists. ``pattern``: ``module:class`` in ``transforms.circle`` for modules named
    ``circle_…``, else in ``rewrites``. "" means that the pass ``circle-optimize`` performs the rewrite. ``arguments``:
    values of the pattern's fields. ``level``: ``O1`` or ``on request``. ``undoes``: rewrites with the opposite effect.
    The combination would never end. ``is_early``: whether to apply the rewrite also before the choice of dimension
    orders, to allow more orders. ``is_late``: whether to apply the rewrite last, to fused layers.
    """

    name: str
    summary: str
    pattern: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    level: str = O1
    undoes: frozenset[str] = frozenset()
    is_early: bool = False
    is_late: bool = False

    def make(self) -> RewritePattern:
        """Create the pattern of a rule that has one."""
        module, _, name = self.pattern.partition(":")
        room = "circle" if module.startswith("circle_") else "circle.rewrites"
        kind = getattr(importlib.import_module(f"odc_mlir.transforms.{room}.{module}"), name)
        made: RewritePattern = kind(**self.arguments)
        return made


def _fold(name: str, *operators: str) -> RewriteRule:
    return RewriteRule(
        name,
        f"evaluate {', '.join(operators)} of constants",
        "circle_fold_constants:FoldConstants",
        {"names": frozenset(operators), "decode": True},
        is_early=True,  # quantised and half-precision weights are decoded before other patterns match
    )


def _drop(name: str, *operators: str, level: str = O1) -> RewriteRule:
    text = f"remove {listed(operators)} without effect"
    return RewriteRule(name, text, "canonical:DropIdentity", {"names": frozenset(operators)}, level)


def _fuse_behind(name: str, operators: Sequence[str], layer: str) -> RewriteRule:
    return RewriteRule(
        name,
        f"fold {listed(operators)} of a constant into the {layer} before them",
        "circle_fuse_batch_norm:FuseBehind",
        {"names": frozenset(operators), "layers": frozenset({layer})},
    )


def _substitute(name: str, operator: str) -> RewriteRule:
    return RewriteRule(
        name,
        f"{operator} that keeps the order of elements becomes RESHAPE",
        "operators:ToReshape",
        {"names": frozenset({operator})},
    )


def _resolve(name: str, code: str, operator: str) -> RewriteRule:
    return RewriteRule(
        name,
        f"custom operator {code} becomes {operator}",
        "circle_resolve_customs:ResolveCustom",
        {"codes": frozenset({code})},
    )


def _on_request(
    name: str, summary: str, pattern: str, arguments: Mapping[str, Any] | None = None, undoes: Iterable[str] = ()
) -> RewriteRule:
    return RewriteRule(name, summary, pattern, arguments or {}, ON_REQUEST, frozenset(undoes))


_SUMS, _PRODUCTS = ("ADD", "SUB"), ("MUL", "DIV")

LAYOUTS = "convert_nchw_to_nhwc"
ONE_SAMPLE = "dynamic_batch_to_single_batch"

RULES: tuple[RewriteRule, ...] = (
    RewriteRule(LAYOUTS, "choose dimension orders with the fewest TRANSPOSEs (circle-assign-layouts)"),
    _resolve("resolve_customop_add", "AddV2", "ADD"),
    _resolve("resolve_customop_batchmatmul", "BatchMatMulV2", "BATCH_MATMUL"),
    _resolve("resolve_customop_matmul", "MatMul", "BATCH_MATMUL"),
    _resolve("resolve_customop_splitv", "SplitV", "SPLIT_V"),
    _resolve("resolve_customop_transpose_conv", "Convolution2DTransposeBias", "TRANSPOSE_CONV"),
    _fold("fold_add_v2", "ADD"),
    _fold("fold_mul", "MUL"),
    _fold("fold_cast", "CAST"),
    _fold("fold_gather", "GATHER"),
    _fold("fold_reshape", "RESHAPE"),
    _fold("fold_squeeze", "SQUEEZE"),
    _fold("fold_shape", "SHAPE"),
    _fold("fold_dequantize", "DEQUANTIZE"),
    _fold("fold_densify", "DENSIFY"),
    _fold("fold_sparse_to_dense", "SPARSE_TO_DENSE"),
    _fold("fold_dwconv", "DEPTHWISE_CONV_2D"),
    _fold("fold_fully_connected", "FULLY_CONNECTED"),
    _fuse_behind("fuse_add_with_conv", _SUMS, "CONV_2D"),
    _fuse_behind("fuse_mul_with_conv", _PRODUCTS, "CONV_2D"),
    _fuse_behind("fuse_add_with_tconv", _SUMS, "TRANSPOSE_CONV"),
    RewriteRule(
        "fuse_slice_with_tconv", "fold SLICE of rows and columns into TRANSPOSE_CONV", "layers:CutTransposedConvolution"
    ),
    _fuse_behind("fuse_add_with_fully_connected", _SUMS, "FULLY_CONNECTED"),
    _fuse_behind("fuse_mul_with_fullyconnected", _PRODUCTS, "FULLY_CONNECTED"),
    _fuse_behind("fuse_batchnorm_with_conv", (*_PRODUCTS, *_SUMS), "CONV_2D"),
    _fuse_behind("fuse_batchnorm_with_dwconv", (*_PRODUCTS, *_SUMS), "DEPTHWISE_CONV_2D"),
    _fuse_behind("fuse_batchnorm_with_tconv", (*_PRODUCTS, *_SUMS), "TRANSPOSE_CONV"),
    _drop("remove_unnecessary_add", "ADD", "SUB"),
    _drop("remove_unnecessary_cast", "CAST"),
    _drop("remove_unnecessary_reshape", "RESHAPE", "SQUEEZE", "EXPAND_DIMS"),
    _drop("remove_unnecessary_transpose", "TRANSPOSE"),
    _drop("remove_unnecessary_slice", "SLICE"),
    _drop("remove_unnecessary_strided_slice", "STRIDED_SLICE"),
    _drop("remove_unnecessary_split", "SPLIT", "SPLIT_V"),
    _drop("remove_unnecessary_mul", "MUL", level=ON_REQUEST),
    _drop("remove_unnecessary_div", "DIV", level=ON_REQUEST),
    RewriteRule("remove_redundant_reshape", "merge consecutive RESHAPE, SQUEEZE, EXPAND_DIMS", "canonical:MergeViews"),
    RewriteRule("remove_redundant_transpose", "merge two consecutive TRANSPOSEs", "canonical:MergeTransposes"),
    RewriteRule(
        "substitute_transpose_to_reshape",
        "TRANSPOSE that moves only dimensions of extent 1 becomes RESHAPE",
        "canonical:TransposeToReshape",
    ),
    RewriteRule(
        "forward_reshape_to_unaryop",
        "move RESHAPE behind an element-wise function, where it may merge with another RESHAPE",
        "operators:ReshapeLater",
    ),
    RewriteRule("fuse_mean_with_mean", "merge two consecutive MEANs", "operators:MeanOfMean"),
    RewriteRule("split_mean_axes", "split MEAN along non-adjacent axes into several MEANs", "operators:MeanOfRuns"),
    RewriteRule("fuse_transpose_with_mean", "fold TRANSPOSE into the axes of MEAN", "operators:MeanOfTranspose"),
    RewriteRule(
        "fuse_transpose_with_fully_connected",
        "remove TRANSPOSE before RESHAPE and FULLY_CONNECTED, and reorder the weights",
        "circle_simplify:OrderOfRows",
    ),
    RewriteRule("fuse_mul_with_div", "(a / x) * b becomes (a * b) / x", "operators:ProductOfQuotient"),
    RewriteRule(
        "transform_min_max_to_relu6",
        "MINIMUM and MAXIMUM become a clamp",
        "circle_fuse_patterns:Clamp",
        {"names": frozenset({"MAXIMUM", "MINIMUM"})},
    ),
    RewriteRule(
        "transform_min_relu_to_relu6",
        "MINIMUM and RELU become a clamp",
        "circle_fuse_patterns:Clamp",
        {"names": frozenset({"RELU"})},
    ),
    RewriteRule(
        "transform_sqrt_div_to_rsqrt_mul",
        "x / sqrt(y) becomes x * rsqrt(y) if x is not 1",
        "circle_fuse_patterns:RsqrtProduct",
    ),
    RewriteRule("fuse_rsqrt", "1 / sqrt(y) becomes rsqrt(y)", "circle_fuse_patterns:Rsqrt"),
    RewriteRule("fuse_prelu", "fuse operators into PRELU", "circle_fuse_patterns:Prelu"),
    RewriteRule("fuse_gelu", "fuse operators into GELU", "circle_fuse_patterns:Gelu"),
    RewriteRule("fuse_hardswish", "fuse operators into HARD_SWISH", "circle_fuse_patterns:Swish"),
    RewriteRule("fuse_leakyrelu", "fuse operators into LEAKY_RELU", "circle_fuse_patterns:LeakyRelu"),
    RewriteRule(
        "split_group_dimension",
        "group normalisation gets a dimension of groups, so that images need no TRANSPOSE",
        "norms:GroupsAsDimension",
        is_early=True,
    ),
    RewriteRule(
        "fuse_depth_to_space",
        "TRANSPOSE that moves channels to pixels becomes DEPTH_TO_SPACE",
        "layers:DepthToSpace",
        is_early=True,
    ),
    RewriteRule(
        "fuse_channel_shuffle",
        "fold channel shuffles into the weights of the layers around them",
        "circle_fuse_channel_shuffle:FuseChannelShuffle",
        is_late=True,
    ),
    RewriteRule(
        "fuse_activation_function",
        "fuse activations into the operators before them",
        "circle_fuse_activation:FuseActivation",
        {"names": frozenset({"RELU", "RELU6", "RELU_N1_TO_1"})},
    ),
    RewriteRule(
        "fuse_horizontal_fc_layers",
        "if two FULLY_CONNECTED read the same input and their results are added, merge them",
        "layers:SumOfLayers",
    ),
    _substitute("substitute_expand_dims_to_reshape", "EXPAND_DIMS"),
    _substitute("substitute_squeeze_to_reshape", "SQUEEZE"),
    _substitute("substitute_pack_to_reshape", "PACK"),
    _substitute("substitute_strided_slice_to_reshape", "STRIDED_SLICE"),
    RewriteRule("substitute_splitv_to_split", "SPLIT_V into equal parts becomes SPLIT", "operators:EqualParts"),
    RewriteRule(
        "substitute_padv2_to_pad",
        "PADV2 before MAX_POOL_2D becomes PAD if its input is non-negative",
        "operators:PadV2ToPad",
    ),
    RewriteRule(
        "replace_non_const_fc_with_batch_matmul",
        "FULLY_CONNECTED with non-constant weights becomes BATCH_MATMUL",
        "operators:ComputedWeights",
    ),
    _on_request(
        "fuse_add_to_fullyconnected_bias",
        "fold ADD before FULLY_CONNECTED into the bias of FULLY_CONNECTED",
        "circle_fuse_batch_norm:FuseBefore",
        {"names": frozenset({"FULLY_CONNECTED"}), "affine": frozenset(_SUMS)},
    ),
    _on_request(
        "fuse_mul_to_fullyconnected_weights",
        "fold MUL before FULLY_CONNECTED into its weights. They may become harder to quantise",
        "circle_fuse_batch_norm:FuseBefore",
        {"names": frozenset({"FULLY_CONNECTED"}), "affine": frozenset(_PRODUCTS)},
    ),
    _on_request(ONE_SAMPLE, "set the dynamic batch dimension of inputs to 1", ""),
    _on_request("fuse_instnorm", "fuse operators into INSTANCE_NORM", "norms:InstanceNorm"),
    _on_request("fuse_rmsnorm", "fuse operators into RMS_NORM", "norms:RmsNorm"),
    _on_request("fuse_mul_with_rmsnorm", "fold MUL into RMS_NORM's gamma", "norms:ScaleOfRmsNorm"),
    _on_request("fuse_lstm", "fuse unrolled steps into UNIDIRECTIONAL_SEQUENCE_LSTM", "sequences:SequenceLstm"),
    _on_request("fuse_gru", "fuse unrolled steps into GRU", "sequences:SequenceGru"),
    _on_request("fuse_rope", "fuse operators into ROPE", "sequences:Rotary"),
    _on_request(
        "fuse_preactivation_batchnorm",
        "if RELU and CONV_2D follow MUL and ADD, fold MUL and ADD into the surrounding layers",
        "layers:PreActivation",
    ),
    _on_request("replace_sub_with_add", "x - c becomes x + (-c)", "operators:DifferenceToSum"),
    _on_request(
        "replace_cw_mul_add_with_depthwise_conv",
        "channel-wise MUL and ADD become one 1x1 DEPTHWISE_CONV_2D",
        "layers:ChannelsToDepthwise",
    ),
    _on_request(
        "expand_broadcast_const", "expand broadcast constants to the size of the result", "operators:WriteOutBroadcast"
    ),
    _on_request("decompose_hardswish", "decompose HARD_SWISH", "operators:HardSwishParts", undoes=["fuse_hardswish"]),
    _on_request("decompose_softmax", "decompose SOFTMAX", "operators:SoftmaxParts"),
    _on_request("remove_redundant_quantize", "merge two consecutive QUANTIZEs", "operators:QuantizeAgain"),
    _on_request("remove_quantdequant", "remove QUANTIZE with the DEQUANTIZE after it", "operators:BackToReal"),
    _on_request("remove_qdq_for_mpo", "keep the last of consecutive QUANTIZE-DEQUANTIZE pairs", "operators:LastPair"),
    _on_request(
        "replace_islands_with_integers",
        "operators between DEQUANTIZE and QUANTIZE compute on codes. Unary functions change by at most one code",
        "operators:IntegerOperator",
    ),
    _on_request("remove_fakequant", "remove FAKE_QUANT", "operators:DropFakeQuant"),
    _on_request(
        "remove_gather_guard", "remove the handling of negative indices before GATHER", "operators:GatherGuard"
    ),
)


def rules() -> Mapping[str, RewriteRule]:
    """Return all rewrites by name."""
    return {rule.name: rule for rule in RULES}


def select(level: str | None, more: Iterable[str] = (), without: Iterable[str] = ()) -> list[RewriteRule]:
    """Return the rewrites of ``level`` (or no level) and ``more`` except ``without``, in table order.

    Rewrites of the level that one of ``more`` undoes are omitted. Raises OptionError for an unknown name or level, and
    for rewrites in ``more`` that undo each other.
    """
    known = rules()
    added, dropped = frozenset(more), frozenset(without)
    for name in sorted(added | dropped):
        if name not in known:
            raise OptionError(f"unknown rewrite {name!r}", hint="odc-optimize --help lists them")
    if level not in (None, O1):
        raise OptionError(f"unknown level {level!r}", hint=f"use {O1}")
    wanted = added - dropped
    undone = {name: rule.name for rule in RULES if rule.name in wanted for name in rule.undoes}
    for name in sorted(wanted & set(undone)):
        raise OptionError(f"{undone[name]} undoes {name}", hint="name one of them")
    chosen = {rule.name for rule in RULES if level is not None and rule.level == level} | added
    return [rule for rule in RULES if rule.name in chosen - dropped - set(undone)]
