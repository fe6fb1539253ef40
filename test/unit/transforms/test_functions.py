"""Functions are recognised in the operators that compute them, however those are written, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from xdsl.ir import SSAValue

import odc_mlir
from helpers.float_nets import FloatNet
from helpers.rewrite_cases import CASES
from odc_mlir.transforms.circle.functions.recognise import count_functions, functions

Make = Callable[[FloatNet], SSAValue]


def _ints(n: FloatNet, *numbers: int) -> SSAValue:
    return n.const(numbers, "int32")


def _attention(
    n: FloatNet, *, mask: bool = False, cache: bool = False, select: bool = False, views: bool = True
) -> SSAValue:
    queries = n.add("MUL", n.real(2, 3, 4), n.real(2, 3, 4))
    keys, values = (n.add("NEG", n.real(2, 5, 4)) for _ in range(2))
    if cache:
        keys = n.add("CONCATENATION", n.real(2, 6, 4), keys, axis=1)
        values = n.add("CONCATENATION", n.real(2, 6, 4), values, axis=1)
    scores = n.add("BATCH_MATMUL", queries, keys, adjoint_rhs=True)
    scores = n.add("MUL", scores, n.const(0.5))
    length = n.array(scores).shape[-1]
    if views:
        scores = n.add("RESHAPE", scores, _ints(n, 1, 2, 3, length), new_shape=[1, 2, 3, length])
    if mask:
        scores = n.add("ADD", scores, n.weights(3, length))
    if select:
        hidden = n.const(np.eye(3, length) > 0, "bool")
        scores = n.add("SELECT_V2", hidden, n.const(-1e9), scores)
    weights = n.add("SOFTMAX", scores, beta=1.0)
    if views:
        weights = n.add("RESHAPE", weights, _ints(n, 2, 3, length), new_shape=[2, 3, length])
    made: SSAValue = n.add("BATCH_MATMUL", weights, values)
    return made


def _classifier(n: FloatNet) -> SSAValue:
    """SOFTMAX between products that are layers."""
    scores = n.add("FULLY_CONNECTED", n.real(2, 4), n.weights(3, 4), n.weights(3))
    made: SSAValue = n.add("FULLY_CONNECTED", n.add("SOFTMAX", scores, beta=1.0), n.weights(5, 3), n.weights(5))
    return made


def _logistic(n: FloatNet, factor: float | None) -> SSAValue:
    x = n.real(2, 4)
    inner = x if factor is None else n.add("MUL", x, n.const(factor))
    made: SSAValue = n.add("MUL", x, n.add("LOGISTIC", inner))
    return made


def _excite(n: FloatNet, *, own: bool = True) -> SSAValue:
    x = n.real(1, 3, 4, 8)
    mean = n.add("MEAN", x if own else n.real(1, 3, 4, 8), _ints(n, 1, 2), keep_dims=True)
    options = {"padding": "valid", "stride_w": 1, "stride_h": 1}
    gate = n.add("CONV_2D", mean, n.weights(2, 1, 1, 8), n.weights(2), fused_activation_function="relu", **options)
    gate = n.add("LOGISTIC", n.add("CONV_2D", gate, n.weights(8, 1, 1, 2), n.weights(8), **options))
    made: SSAValue = n.add("MUL", x, gate)
    return made


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (_attention, {"Attention": 1}),
        (lambda n: _attention(n, mask=True, views=False), {"Attention": 1, "Attention (mask)": 1}),
        (lambda n: _attention(n, select=True), {"Attention": 1, "Attention (mask)": 1}),
        (lambda n: _attention(n, cache=True), {"Attention": 1, "Attention (cache)": 1}),
        (_classifier, {}),
        (lambda n: _logistic(n, None), {"SiLU": 1}),
        (lambda n: _logistic(n, 1.702), {"GELU": 1}),
        (lambda n: _logistic(n, 1.5), {}),
        (_excite, {"SqueezeExcite": 1}),
        (lambda n: _excite(n, own=False), {}),
        (CASES["fuse_rope"].hits[0], {"RoPE": 1}),
        (CASES["fuse_rope"].misses[0], {}),
        (CASES["fuse_rmsnorm"].hits[0], {"RMSNorm": 1}),
        (CASES["fuse_rmsnorm"].misses[1], {"LayerNorm": 1}),
        (CASES["split_group_dimension"].hits[0], {"GroupNorm": 1}),
        (CASES["split_group_dimension"].hits[1], {"InstanceNorm": 1}),
        (CASES["split_group_dimension"].misses[0], {"LayerNorm": 1}),
        *((hit, {"InstanceNorm": 1}) for hit in CASES["fuse_instnorm"].hits),
    ],
)
def test_what_is_recognised(make: Make, expected: dict[str, int]) -> None:
    net = FloatNet(1)
    assert count_functions(net.module(make(net))) == expected


def test_the_operators_are_those_between() -> None:
    net = FloatNet(1)
    (found,) = functions(net.module(_attention(net, mask=True)))
    kinds = sorted(op.SPEC.name for op in found.operators)
    assert kinds == ["ADD", "BATCH_MATMUL", "BATCH_MATMUL", "MUL", "RESHAPE", "RESHAPE", "SOFTMAX"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tico/hf_bert", {"LayerNorm": 5, "GELU": 2, "Attention": 2}),
        ("tico/hf_vit", {"LayerNorm": 5, "GELU": 2, "Attention": 2}),
        ("tico/nn_multihead_attention", {"Attention": 1}),
        ("trained/digits_vit", {"LayerNorm": 7, "GELU": 3, "Attention": 3}),
        ("trained/chars_llama", {"RMSNorm": 5, "RoPE": 4, "SiLU": 2, "Attention": 2, "Attention (mask)": 2}),
        ("tico/hf_llama", {"RMSNorm": 5, "RoPE": 4, "SiLU": 2, "Attention": 2, "Attention (mask)": 2}),
        ("tico/nn_groupnorm", {"GroupNorm": 1, "SiLU": 1}),
    ],
)
def test_networks_of_pytorch(name: str, expected: dict[str, int], test_data: Path) -> None:
    assert count_functions(odc_mlir.load(test_data / "models" / f"{name}.circle")) == expected
