"""Networks on which each rewrite of the table applies, and ones that are nearly such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import SSAValue

from helpers import unrolled
from helpers.channel_shuffles import shuffle, shuffle_net, shuffled_beside
from helpers.float_nets import FloatNet
from helpers.rewrite_parts import (
    Cases,
    across_groups,
    behind,
    both,
    centred,
    conv,
    custom,
    cut,
    dense,
    depthwise,
    folding,
    gelu,
    grouped,
    guarded,
    half_precision,
    hard_swish,
    image,
    instance,
    instance_apart,
    ints,
    leaky,
    mean,
    media_pipe,
    neutral,
    padded,
    pool,
    pre_activated,
    prelu,
    relu,
    reshape,
    resolving,
    rms,
    rotary,
    scattered,
    shuffled,
    strided,
    sum_of_layers,
    tokens,
    transpose,
    transposed,
    twice,
)

# What these change is what they are for; their lit cases show the operators.
CHANGE_RESULTS = frozenset(
    {
        "remove_redundant_quantize",
        "remove_quantdequant",
        "remove_qdq_for_mpo",
        "remove_fakequant",
        "replace_islands_with_integers",
    }
)


def _flattened_twice(n: FloatNet) -> Sequence[SSAValue]:
    turned = transpose(n, n.real(1, 3, 2, 4), 0, 3, 1, 2)
    return dense(n, reshape(n, turned, 1, 24)), relu(n, turned)


CASES: Mapping[str, Cases] = {
    "convert_nchw_to_nhwc": Cases(
        [lambda n: transpose(n, n.add("RELU", transpose(n, image(n), 0, 3, 1, 2)), 0, 2, 3, 1)],
        [lambda n: n.add("SOFTMAX", transpose(n, image(n), 0, 3, 1, 2), beta=1.0)],
    ),
    "fold_add_v2": folding(
        lambda n: n.add("MUL", n.real(2), n.add("ADD", n.weights(2), n.const(1.0))),
        lambda n: n.add("MUL", n.real(2), n.add("ADD", n.real(2), n.const(1.0))),
    ),
    "fold_mul": folding(
        lambda n: n.add("ADD", n.real(2), n.add("MUL", n.weights(2), n.const(3.0))),
        lambda n: n.add("ADD", n.real(2), n.add("MUL", n.real(2), n.const(3.0))),
    ),
    "fold_cast": folding(
        lambda n: n.add("ADD", n.real(2), n.add("CAST", ints(n, 3, 4), out_data_type="float32", in_data_type="int32")),
        lambda n: n.add("CAST", n.input(np.array([1, 2], np.int32)), in_data_type="int32", out_data_type="float32"),
    ),
    "fold_gather": folding(
        lambda n: n.add("ADD", n.real(2, 3), n.add("GATHER", n.weights(4, 3), ints(n, 1, 3), axis=0)),
        lambda n: relu(n, n.add("GATHER", n.real(4, 3), ints(n, 1, 3), axis=0)),
    ),
    "fold_reshape": folding(
        lambda n: n.add("ADD", n.real(2, 2), reshape(n, n.weights(4), 2, 2)),
        lambda n: relu(n, reshape(n, n.real(4), 2, 2)),
    ),
    "fold_squeeze": folding(
        lambda n: n.add("ADD", n.real(2), n.add("SQUEEZE", n.weights(1, 2), squeeze_dims=[0])),
        lambda n: relu(n, n.add("SQUEEZE", n.real(1, 2), squeeze_dims=[0])),
    ),
    "fold_shape": folding(
        lambda n: n.add("RESHAPE", n.real(4), n.add("SHAPE", n.real(2, 2), dtypes=["int32"], out_type="int32")),
        lambda n: relu(n, n.real(2, 2)),
    ),
    "fold_dequantize": folding(half_precision, lambda n: n.add("DEQUANTIZE", n.input(np.ones((2, 3), np.float16)))),
    "fold_densify": folding(
        lambda n: n.add("ADD", n.real(3, 3), n.add("DENSIFY", n.diagonal(1.0, 2.0, 3.0))),
        lambda n: n.add("ADD", n.real(3, 3), n.weights(3, 3)),
    ),
    "fold_sparse_to_dense": folding(
        lambda n: scattered(n, n.weights(2)),
        lambda n: scattered(n, n.real(2)),
    ),
    "fold_dwconv": folding(
        lambda n: n.add("ADD", n.real(1, 3, 3, 2), depthwise(n, n.weights(1, 3, 3, 2))),
        lambda n: relu(n, depthwise(n, n.real(1, 3, 3, 2))),
    ),
    "fold_fully_connected": folding(
        lambda n: n.add("ADD", n.real(2, 3), dense(n, n.weights(2, 4))),
        lambda n: relu(n, dense(n, n.real(2, 4))),
    ),
    "fuse_add_with_conv": both(behind(conv, "ADD"), behind(conv, "SUB")),
    "fuse_mul_with_conv": both(behind(conv, "MUL"), behind(conv, "DIV")),
    "fuse_add_with_tconv": behind(transposed, "ADD"),
    "fuse_add_with_fully_connected": behind(dense, "ADD", flat=True),
    "fuse_mul_with_fullyconnected": behind(dense, "MUL", flat=True),
    "fuse_batchnorm_with_conv": both(behind(conv, "MUL"), behind(conv, "ADD")),
    "fuse_batchnorm_with_dwconv": both(behind(depthwise, "MUL"), behind(depthwise, "ADD")),
    "fuse_batchnorm_with_tconv": both(behind(transposed, "MUL"), behind(transposed, "ADD")),
    "remove_unnecessary_add": neutral("ADD", 0.0),
    "remove_unnecessary_mul": neutral("MUL", 1.0),
    "remove_unnecessary_div": neutral("DIV", 1.0),
    "remove_unnecessary_cast": Cases(
        [lambda n: relu(n, n.add("CAST", n.real(2), in_data_type="float32", out_data_type="float32"))],
        [lambda n: n.add("CAST", n.input(np.array([1], np.int32)), in_data_type="int32", out_data_type="float32")],
    ),
    "remove_unnecessary_reshape": Cases(
        [lambda n: relu(n, reshape(n, n.real(2, 3), 2, 3))],
        [lambda n: relu(n, reshape(n, n.real(2, 3), 3, 2))],
    ),
    "remove_unnecessary_transpose": Cases(
        [lambda n: relu(n, transpose(n, n.real(2, 3), 0, 1))],
        [lambda n: relu(n, transpose(n, n.real(2, 3), 1, 0))],
    ),
    "remove_unnecessary_slice": Cases(
        [lambda n: relu(n, n.add("SLICE", n.real(2, 3), ints(n, 0, 0), ints(n, 2, 3)))],
        [lambda n: relu(n, n.add("SLICE", n.real(2, 3), ints(n, 0, 1), ints(n, 2, 2)))],
    ),
    "remove_unnecessary_strided_slice": Cases(
        [lambda n: relu(n, n.add("STRIDED_SLICE", n.real(4), ints(n, 0), ints(n, 4), ints(n, 1)))],
        [lambda n: relu(n, n.add("STRIDED_SLICE", n.real(4), ints(n, -1), ints(n, -5), ints(n, -1)))],
    ),
    "remove_unnecessary_split": Cases(
        [lambda n: relu(n, n.add("SPLIT", n.const(1, "int32"), n.real(2, 4), num_splits=1))],
        [lambda n: n.add("ADD", *n.add("SPLIT", n.const(1, "int32"), n.real(2, 4), count=2, num_splits=2))],
    ),
    "remove_redundant_reshape": Cases(
        [lambda n: reshape(n, reshape(n, n.real(2, 6), 3, 4), 12)],
        [lambda n: reshape(n, relu(n, reshape(n, n.real(2, 6), 3, 4)), 12)],
    ),
    "remove_redundant_transpose": Cases(
        [lambda n: transpose(n, transpose(n, image(n), 0, 3, 1, 2), 0, 1, 3, 2)],
        [lambda n: transpose(n, relu(n, transpose(n, image(n), 0, 3, 1, 2)), 0, 1, 3, 2)],
    ),
    "substitute_transpose_to_reshape": Cases(
        [lambda n: transpose(n, n.real(1, 2, 1, 3), 0, 2, 1, 3)],
        [lambda n: transpose(n, n.real(1, 2, 3), 0, 2, 1)],
    ),
    "fuse_slice_with_tconv": Cases(
        [
            lambda n: cut(n, 0, 0, size=(6, 8)),  # one column too many behind
            lambda n: cut(n, 1, 1, size=(5, 7)),  # one before and one behind
            lambda n: cut(n, 0, 0, size=(6, 8), padding="same"),
        ],
        [
            lambda n: cut(n, 1, 1, size=(6, 8)),
            lambda n: cut(n, 0, 0, size=(5, 7)),
            lambda n: cut(n, 2, 2, size=(3, 5)),  # a row of pixels less would give that size, too
            lambda n: cut(n, 1, 1, size=(4, 6), padding="same"),
            lambda n: n.add("SLICE", conv(n, image(n)), ints(n, 0, 0, 0, 0), ints(n, 1, 3, 5, 2)),
        ],
    ),
    "fuse_rsqrt": Cases(
        [lambda n: n.add("DIV", n.const(1.0), n.add("SQRT", n.real(3, low=1.0, high=2.0)))],
        [
            lambda n: n.add("DIV", n.const(1.0), n.add("EXP", n.real(3))),
            lambda n: n.add("DIV", n.real(3), n.add("SQRT", n.real(3, low=1.0, high=2.0))),
        ],
    ),
    "forward_reshape_to_unaryop": Cases(
        [
            lambda n: reshape(n, n.add("NEG", reshape(n, n.real(2, 6), 3, 4)), 12),
            lambda n: n.add("GELU", reshape(n, n.real(2, 6), 12), approximate=True),
        ],
        [
            lambda n: n.add("SOFTMAX", reshape(n, n.real(2, 6), 3, 4), beta=1.0),
            lambda n: n.add("NEG", n.real(2, 6)),
            lambda n: twice(n, reshape(n, n.real(2, 6), 3, 4)),
        ],
    ),
    "fuse_mean_with_mean": Cases(
        [
            lambda n: mean(n, mean(n, image(n), 1), 1),
            lambda n: mean(n, mean(n, image(n), 2, keep=True), 1, keep=True),
            lambda n: mean(n, mean(n, image(n), 0, 2), -1),
        ],
        [
            lambda n: mean(n, mean(n, image(n), 2, keep=True), 1),
            lambda n: mean(n, mean(n, image(n), 3, keep=True), 1, keep=True),
        ],
    ),
    "fuse_transpose_with_mean": Cases(
        [lambda n: mean(n, transpose(n, image(n), 0, 3, 1, 2), 2, 3)],
        [
            lambda n: mean(n, transpose(n, image(n), 0, 3, 1, 2), 3),
            lambda n: mean(n, transpose(n, image(n), 0, 3, 1, 2), 2, 3, keep=True),
        ],
    ),
    "fuse_mul_with_div": Cases(
        [lambda n: n.add("MUL", n.add("DIV", n.weights(3), n.real(3, low=1.0, high=2.0)), n.const(2.0))],
        [lambda n: n.add("MUL", n.add("DIV", n.real(3), n.real(3, low=1.0, high=2.0)), n.const(2.0))],
    ),
    "transform_min_max_to_relu6": Cases(
        [lambda n: n.add("MAXIMUM", n.add("MINIMUM", n.real(9, low=-9, high=9), n.const(6.0)), n.const(0.0))],
        [
            lambda n: n.add("MAXIMUM", n.add("MINIMUM", n.real(9, low=-9, high=9), n.const(6.5)), n.const(-0.5)),
            lambda n: n.add("RELU", n.add("MINIMUM", n.real(9, low=-9, high=9), n.const(6.0))),
        ],
    ),
    "transform_min_relu_to_relu6": Cases(
        [lambda n: n.add("RELU", n.add("MINIMUM", n.real(9, low=-9, high=9), n.const(6.0)))],
        [lambda n: n.add("RELU", n.add("MINIMUM", n.real(9, low=-9, high=9), n.const(5.0)))],
    ),
    "transform_sqrt_div_to_rsqrt_mul": Cases(
        [lambda n: n.add("DIV", n.real(3), n.add("SQRT", n.real(3, low=1.0, high=2.0)))],
        [
            lambda n: n.add("DIV", n.add("SQRT", n.real(3, low=1.0, high=2.0)), n.real(3, low=1.0, high=2.0)),
            lambda n: n.add("DIV", n.const(1.0), n.add("SQRT", n.real(3, low=1.0, high=2.0))),
        ],
    ),
    "fuse_prelu": Cases([lambda n: prelu(n, 0.2)], [lambda n: n.add("ADD", n.add("RELU", n.real(3)), n.real(3))]),
    "fuse_gelu": Cases([lambda n: gelu(n, 0.044715)], [lambda n: gelu(n, 0.05)]),
    "fuse_activation_function": Cases(
        [lambda n: n.add("RELU6", conv(n, image(n)))],
        [lambda n: n.add("TANH", conv(n, image(n)))],
    ),
    "fuse_horizontal_fc_layers": Cases(
        [lambda n: sum_of_layers(n, shared=True)], [lambda n: sum_of_layers(n, shared=False)]
    ),
    "substitute_expand_dims_to_reshape": Cases(
        [lambda n: n.add("EXPAND_DIMS", n.real(2, 3), n.const(1, "int32"))],
        [lambda n: n.add("SQUEEZE", n.real(2, 1), squeeze_dims=[1])],
    ),
    "substitute_squeeze_to_reshape": Cases(
        [lambda n: n.add("SQUEEZE", n.real(2, 1), squeeze_dims=[1])],
        [lambda n: n.add("EXPAND_DIMS", n.real(2, 3), n.const(1, "int32"))],
    ),
    "substitute_pack_to_reshape": Cases(
        [lambda n: n.add("PACK", n.real(2, 3), axis=1, values_count=1)],
        [lambda n: n.add("PACK", n.real(2, 3), n.real(2, 3), axis=1, values_count=2)],
    ),
    "substitute_strided_slice_to_reshape": Cases(
        [lambda n: strided(n, n.real(1, 4), 1)],
        [
            lambda n: strided(n, n.real(1, 4), 2),
            lambda n: n.add("STRIDED_SLICE", n.real(4), ints(n, -1), ints(n, -5), ints(n, -1)),
        ],
    ),
    "substitute_splitv_to_split": Cases(
        [lambda n: n.add("SPLIT_V", n.real(2, 4), ints(n, 2, 2), n.const(1, "int32"), count=2, num_splits=2)],
        [lambda n: n.add("SPLIT_V", n.real(2, 4), ints(n, 1, 3), n.const(1, "int32"), count=2, num_splits=2)],
    ),
    "substitute_padv2_to_pad": Cases(
        [lambda n: pool(n, padded(n, n.add("RELU", image(n)), -3.0e38))],
        [
            lambda n: pool(n, padded(n, image(n), -3.0e38)),
            lambda n: pool(n, padded(n, n.add("RELU", image(n)), 0.5)),
            lambda n: pool(n, padded(n, n.add("RELU", image(n)), -3.0e38, rows=2), 2),
            lambda n: n.add("TANH", padded(n, n.add("RELU", image(n)), -1.0)),
        ],
    ),
    "fuse_add_to_fullyconnected_bias": Cases(
        [lambda n: dense(n, n.add("ADD", n.real(2, 4), n.weights(4)))],
        [
            lambda n: dense(n, n.add("MUL", n.real(2, 4), n.weights(4))),
            lambda n: dense(n, n.add("ADD", n.real(2, 4), n.weights(2, 4))),
        ],
    ),
    "fuse_mul_to_fullyconnected_weights": Cases(
        [lambda n: dense(n, n.add("MUL", n.real(2, 4), n.weights(4)))],
        [lambda n: dense(n, n.add("ADD", n.real(2, 4), n.weights(4)))],
    ),
    "fuse_rmsnorm": Cases(
        [rms, lambda n: rms(n, gamma=False)],
        [lambda n: rms(n, axis=1), lambda n: centred(n, n.real(2, 3, 4), -1)],
    ),
    "fuse_instnorm": Cases(
        [
            lambda n: instance(n, 1, 2),
            lambda n: instance(n, 2, 1, divided=True),
            lambda n: instance(n, 1, 2, gamma=1),
            instance_apart,
            lambda n: centred(n, image(n), 1, 2),
        ],
        [
            lambda n: instance(n, 1),
            lambda n: instance(n, 1, 2, 3),
            lambda n: centred(n, n.real(2, 3, 4), 1, 2),
            lambda n: rms(n),
        ],
    ),
    "fuse_depth_to_space": Cases(
        [
            lambda n: shuffled(n, conv(n, image(n, h=2, w=3), outputs=8), 2),
            lambda n: shuffled(n, n.real(1, 2, 3, 9), 3),
            lambda n: shuffled(n, conv(n, n.real(2, 2, 3, 3), outputs=8), 2, first=True),
        ],
        [
            lambda n: shuffled(n, n.real(1, 2, 3, 8), 2),
            lambda n: shuffled(n, n.real(1, 2, 3, 8), 2, first=True),
            lambda n: shuffled(n, conv(n, image(n, h=2, w=3), outputs=8), 2, swapped=True),
            lambda n: shuffled(n, conv(n, image(n, h=2, w=3), outputs=8), 2, twice=True),
        ],
    ),
    "fuse_transpose_with_fully_connected": Cases(
        [
            lambda n: dense(n, reshape(n, transpose(n, n.real(1, 3, 2, 4), 0, 3, 1, 2), 1, 24)),
            lambda n: dense(n, reshape(n, transpose(n, n.real(2, 3, 2, 4), 0, 2, 3, 1), 2, 24)),
            lambda n: dense(n, reshape(n, transpose(n, n.real(2, 3, 2, 4), 0, 1, 3, 2), 6, 8)),
            lambda n: dense(n, reshape(n, transpose(n, n.real(3, 2, 4), 2, 0, 1), 1, 24)),
        ],
        [
            lambda n: dense(n, reshape(n, transpose(n, n.real(2, 3, 2, 4), 0, 3, 1, 2), 4, 12)),
            lambda n: dense(n, reshape(n, transpose(n, n.real(2, 3, 4), 1, 0, 2), 3, 8)),
            lambda n: dense(n, reshape(n, transpose(n, n.real(2, 3, 4), 1, 0, 2), 6, 4)),
            lambda n: n.add(
                "FULLY_CONNECTED", reshape(n, transpose(n, n.real(1, 3, 4), 0, 2, 1), 1, 12), n.real(5, 12), None
            ),
            _flattened_twice,
        ],
    ),
    "fuse_channel_shuffle": Cases(
        [
            shuffle_net,
            lambda n: relu(n, shuffle(n, conv(n, image(n), outputs=32), 4)),
            lambda n: conv(n, depthwise(n, relu(n, shuffle(n, n.real(1, 4, 4, 32), 2)))),
            lambda n: relu(n, shuffle(n, shuffle(n, n.real(1, 2, 2, 6), 2), 3)),
            lambda n: relu(n, shuffle(n, shuffle(n, n.real(1, 6, 2, 2), 2, axis=1), 3, axis=1)),
        ],
        [
            lambda n: relu(n, shuffle(n, n.real(1, 4, 4, 32), 2)),
            shuffled_beside,
            lambda n: reshape(n, transpose(n, reshape(n, n.real(1, 4, 4, 32), 1, 4, 2, 64), 0, 2, 1, 3), 1, 4, 4, 32),
        ],
    ),
    "split_group_dimension": Cases(
        [
            lambda n: grouped(n, 2),
            lambda n: grouped(n, 4, batch=2),
            lambda n: grouped(n, 1),
            lambda n: grouped(n, 2, batch=3, rows=False),
        ],
        [tokens, lambda n: centred(n, n.real(4, 6), -1), across_groups],
    ),
    "split_mean_axes": Cases(
        [
            lambda n: mean(n, image(n), 1, 3, keep=True),
            lambda n: mean(n, n.real(2, 3, 2, 3, 2), 4, 0, 2, keep=True),
        ],
        [lambda n: mean(n, image(n), 2, 1, keep=True), lambda n: mean(n, image(n), 1, 3)],
    ),
    "fuse_lstm": Cases(
        [
            unrolled.lstm,
            lambda n: unrolled.lstm(n, batch=2, ends="last"),
            lambda n: unrolled.lstm(n, steps=2),
        ],
        [
            lambda n: unrolled.lstm(n, steps=1),
            lambda n: unrolled.lstm(n, ends="cell"),
            lambda n: unrolled.lstm(n, offset=0.5),
            lambda n: unrolled.lstm(n, skipped=2),
            unrolled.gru,
        ],
    ),
    "fuse_gru": Cases(
        [
            unrolled.gru,
            lambda n: unrolled.gru(n, batch=2, ends="last"),
            lambda n: unrolled.gru(n, steps=2),
        ],
        [
            lambda n: unrolled.gru(n, steps=1),
            lambda n: unrolled.gru(n, offset=0.5),
            lambda n: unrolled.gru(n, swapped=True),
            unrolled.lstm,
        ],
    ),
    "fuse_rope": Cases(
        [rotary, lambda n: rotary(n, split=True), lambda n: rotary(n, tables=4)],
        [lambda n: rotary(n, high_first=False), lambda n: rotary(n, tables=1)],
    ),
    "fuse_preactivation_batchnorm": Cases(
        [pre_activated, lambda n: pre_activated(n, reader="ADD")],
        [lambda n: pre_activated(n, sign=-1.0), lambda n: pre_activated(n, reader="MUL")],
    ),
    "fuse_hardswish": Cases([lambda n: hard_swish(n, 6.0)], [lambda n: hard_swish(n, 5.9)]),
    "fuse_leakyrelu": Cases([lambda n: leaky(n, 0.1)], [lambda n: leaky(n, 1.5), lambda n: leaky(n, -0.1)]),
    "fuse_mul_with_rmsnorm": Cases(
        [lambda n: n.add("MUL", n.add("RMS_NORM", n.real(1, 2, 4), n.weights(4), epsilon=1e-5), n.weights(4))],
        [lambda n: n.add("MUL", n.add("RMS_NORM", n.real(1, 2, 4), n.weights(4), epsilon=1e-5), n.weights(1, 2, 4))],
    ),
    "replace_sub_with_add": Cases(
        [lambda n: n.add("SUB", n.real(2, 4), n.weights(4), fused_activation_function="relu")],
        [lambda n: n.add("SUB", n.weights(4), n.real(2, 4))],
    ),
    "replace_non_const_fc_with_batch_matmul": Cases(
        [lambda n: n.add("FULLY_CONNECTED", n.real(2, 4), n.real(3, 4), n.weights(3))],
        [lambda n: dense(n, n.real(2, 4))],
    ),
    "replace_cw_mul_add_with_depthwise_conv": Cases(
        [lambda n: n.add("MUL", image(n), n.weights(3), fused_activation_function="relu6")],
        [
            lambda n: n.add("MUL", image(n), n.weights(4, 5, 3)),
            lambda n: n.add("MUL", n.real(2, 3), n.weights(3)),
        ],
    ),
    "expand_broadcast_const": Cases(
        [lambda n: n.add("ADD", n.real(2, 3), n.weights(3))], [lambda n: n.add("ADD", n.real(2, 3), n.weights(2, 3))]
    ),
    "decompose_hardswish": Cases(
        [lambda n: n.add("HARD_SWISH", n.real(9, low=-5, high=5))], [lambda n: relu(n, n.real(2))]
    ),
    "decompose_softmax": Cases(
        [lambda n: n.add("SOFTMAX", n.real(2, 3), beta=1.0), lambda n: n.add("SOFTMAX", n.real(2, 3), beta=0.5)],
        [lambda n: n.add("LOG_SOFTMAX", n.real(2, 3))],
    ),
    "resolve_customop_add": resolving(lambda n: custom(n, "AddV2", n.real(2, 3), n.weights(3), T=1)),
    "resolve_customop_batchmatmul": resolving(
        lambda n: custom(n, "BatchMatMulV2", n.real(2, 3, 4), n.real(2, 5, 4), adj_x=False, adj_y=True)
    ),
    "resolve_customop_matmul": resolving(
        lambda n: custom(n, "MatMul", n.real(3, 2), n.weights(3, 4), transpose_a=True, transpose_b=False)
    ),
    "resolve_customop_splitv": resolving(
        lambda n: custom(n, "SplitV", n.real(2, 5), ints(n, 2, 3), n.const(1, "int32"), count=2, num_split=2)
    ),
    "resolve_customop_transpose_conv": Cases(
        [lambda n: media_pipe(n, 1), lambda n: media_pipe(n, 2)],
        [lambda n: custom(n, "Erf", n.real(1, 3, 4, 3))],
    ),
    "remove_gather_guard": Cases([lambda n: guarded(n, 4)], [lambda n: guarded(n, 5)]),
}
