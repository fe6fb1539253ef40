"""Operators that move, index, find, reduce and look up, against LiteRT's reference kernels on random operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.litert import reference_all
from helpers.nodes import const, node, quant, run_all, tensor
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo

Array = NDArray[Any]
MOVED = ["float32", "int8", "uint8", "int16", "int32", "int64", "bool"]
NUMBERS = ["float32", "int8", "uint8", "int16", "int32", "int64"]
ROUNDS = range(4)
CODES = {"int8": 3, "uint8": 100, "int16": 0}


class Source:
    """Random sizes, values and operands of one element type."""

    def __init__(self, dtype: str, seed: int) -> None:
        self.dtype = dtype
        self.rng = np.random.default_rng(seed)

    def sizes(self, rank: int, low: int = 1, high: int = 4) -> tuple[int, ...]:
        return tuple(int(d) for d in self.rng.integers(low, high + 1, rank))

    def array(self, shape: Sequence[int], dtype: str = "", spread: int = 100) -> Array:
        kind = np.dtype(dtype or self.dtype)
        if kind.kind == "f":
            return self.rng.normal(size=shape).astype(kind)
        low = 0 if kind.kind in "ub" else -spread
        return self.rng.integers(low, 2 if kind.kind == "b" else spread + 1, shape).astype(kind)

    def ints(self, low: int, high: int, shape: Sequence[int] = ()) -> Array:
        return self.rng.integers(low, high, shape).astype(np.int32)


def info(x: Array, params: QuantParams | None = None) -> TensorInfo:
    return tensor(x.dtype.name, x.shape, params)


def check(made: Node, *inputs: Array, version: int = 1, resolver: str = "BUILTIN_REF") -> None:
    """Our results equal the reference's."""
    expected = reference_all(made, *inputs, version=version, resolver=resolver)
    for ours, theirs in zip(run_all(made, *inputs), expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(ours, theirs)


def mover(name: str, x: Array, *operands: TensorInfo, results: int = 1, **options: Any) -> Node:
    return node(name, [info(x), *operands], [tensor(x.dtype.name, None)] * results, **options)


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("seed", ROUNDS)
def test_repeating_and_cutting(dtype: str, seed: int) -> None:
    make = Source(dtype, seed)
    rank = seed + 1
    x = make.array(make.sizes(rank))
    check(mover("TILE", x, const(make.ints(0 if seed == 3 else 1, 4, (rank,)))), x, version=2)
    axis, count = int(make.ints(-rank, rank)), int(make.ints(1, 4))
    sizes = list(x.shape)
    sizes[axis] = count * int(make.ints(0, 3))
    whole = make.array(sizes)
    if dtype not in ("int64", "bool"):
        result = [tensor(dtype, None)] * count
        check(node("SPLIT", [const(axis), info(whole)], result, num_splits=count), whole, version=4)
    if dtype != "bool":
        parts = make.ints(0, 3, (count,))
        sizes[axis] = int(parts.sum())
        parts[0] = -1
        whole = make.array(sizes)
        check(mover("SPLIT_V", whole, const(parts), const(axis), results=count, num_splits=count), whole, version=2)
    if dtype != "int64":
        made = mover("UNPACK", x, results=x.shape[axis], num=x.shape[axis], axis=axis)
        check(made, x, version=4)
    target = (2, *x.shape)
    narrow = make.array([d if make.ints(0, 2) else 1 for d in x.shape])
    check(mover("BROADCAST_TO", narrow, const(target)), narrow, version=3)


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("seed", ROUNDS)
def test_padding_and_turning(dtype: str, seed: int) -> None:
    make = Source(dtype, seed)
    rank = seed + 1
    x = make.array(make.sizes(rank, 2))
    pads = make.ints(0, 2, (rank, 2))
    check(mover("PADV2", x, const(pads), const(make.array(()), dtype)), x, version=4)
    for mode in ("reflect", "symmetric"):
        check(mover("MIRROR_PAD", x, const(pads), mode=mode), x, version=3)
    most = np.repeat(x.shape, 2).reshape(rank, 2)
    check(mover("MIRROR_PAD", x, const(most), mode="symmetric"), x, version=3)
    first = int(make.ints(0, rank))
    check(mover("REVERSE_V2", x, const(range(first, rank))), x, version=3)
    check(mover("DILATE", x, const(make.ints(1, 4, (rank,))), const(make.array(()), dtype)), x)
    if rank > 1 and dtype in ("float32", "uint8", "int16", "int32", "int64"):
        batch, steps = (int(a) for a in make.rng.permutation(rank)[:2])
        lengths = const(make.ints(0, x.shape[steps] + 1, (x.shape[batch],)))
        check(mover("REVERSE_SEQUENCE", x, lengths, seq_dim=steps, batch_dim=batch), x)
    if dtype != "bool":  # the reference takes truth values for floats there
        check(mover("MATRIX_DIAG", x), x)
        if rank > 1:
            diagonal = make.array((*x.shape[:-2], min(x.shape[-2:])))
            check(mover("MATRIX_SET_DIAG", x, info(diagonal)), x, diagonal)


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("seed", ROUNDS)
def test_blocks_of_space(dtype: str, seed: int) -> None:
    make = Source(dtype, seed)
    spatial = 1 + seed % 2
    block = make.sizes(spatial, 1, 3)
    sizes, pads = [], []
    for size in block:
        before = int(make.ints(0, size))
        pads.append([before, -before % size])
        sizes.append(size * int(make.ints(1, 4)))
    x = make.array((2, *sizes, 3))
    check(mover("SPACE_TO_BATCH_ND", x, const(block), const(pads)), x, version=3)
    x = make.array((2 * int(np.prod(block)), *make.sizes(spatial), 3))
    crops = [[int(make.ints(0, size)), 0] for size in block]
    check(mover("BATCH_TO_SPACE_ND", x, const(block), const(crops)), x, version=3)
    if dtype != "int16":
        rows, columns, channels = make.sizes(3, 1, 3)
        size = int(make.ints(1, 4))
        x = make.array((2, rows * size, columns * size, channels))
        check(mover("SPACE_TO_DEPTH", x, block_size=size), x, version=2)
        x = make.array((2, rows, columns, channels * size * size))
        check(mover("DEPTH_TO_SPACE", x, block_size=size), x)


@pytest.mark.parametrize("dtype", [*MOVED, "float16"])
@pytest.mark.parametrize("seed", ROUNDS)
def test_gathering_and_scattering(dtype: str, seed: int) -> None:
    make = Source(dtype, seed)
    rank = seed + 1
    x = make.array(make.sizes(rank))
    kind = ["int16", "int32", "int64", "int32"][seed]
    axis = int(make.ints(0, rank))
    batch = int(make.ints(0, axis + 1))
    indices = make.ints(0, x.shape[axis], (*x.shape[:batch], *make.sizes(2))).astype(kind)
    check(mover("GATHER", x, info(indices), axis=axis, batch_dims=batch), x, indices, version=6)
    check(mover("GATHER", x, const(indices, kind), axis=axis - rank, batch_dims=batch), x, version=6)
    depth = int(make.ints(1, rank + 1))
    places = np.stack([make.ints(0, x.shape[i], (2, 3)) for i in range(depth)], -1)
    check(mover("GATHER_ND", x, info(places.astype(kind))), x, places.astype(kind), version=5)
    if dtype in ("float32", "uint8", "bool", "int8", "int32", "int64"):
        updates = make.array((2, 3, *x.shape[depth:]))
        made = node("SCATTER_ND", [info(places), info(updates), const(x.shape)], tensor(dtype, None))
        check(made, places, updates)
    if dtype not in ("float16", "bool"):
        part = make.array([int(make.ints(0, d + 1)) for d in x.shape])
        start = make.ints(-3, 5, (rank,))
        if dtype != "uint8":
            check(mover("DYNAMIC_UPDATE_SLICE", x, info(part), info(start)), x, part, start, version=5)
    if dtype in ("float32", "uint8", "int8", "int32", "int64"):
        rows = places.reshape(-1, depth)[:, : min(depth, 4)]
        values = make.array((len(rows),))
        operands = [info(rows), const(x.shape[: rows.shape[1]]), info(values), const(make.array(()), dtype)]
        check(node("SPARSE_TO_DENSE", operands, tensor(dtype, None)), rows, values, version=3)
    if dtype not in ("float16", "int16"):
        depths = make.ints(-1, 4, make.sizes(seed))
        values = [const(make.array(()), dtype) for _ in range(2)]
        operands = [info(depths), const(3), *values]
        check(node("ONE_HOT", operands, tensor(dtype, None), axis=int(make.ints(-1, seed + 1))), depths)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("seed", ROUNDS)
def test_finding(dtype: str, seed: int) -> None:
    make = Source(dtype, seed)
    rank = seed + 1
    x = make.array(make.sizes(rank), spread=2)
    axis = const(int(make.ints(-rank, rank)))
    if dtype not in ("int16", "int64"):
        for name in ("ARG_MAX", "ARG_MIN"):
            check(node(name, [info(x), axis], tensor("int64", None), output_type="int64"), x, version=2)
    k = int(make.ints(0, x.shape[-1] + 1))
    check(node("TOPK_V2", [info(x), const(k)], [tensor(dtype, None), tensor("int32", None)]), x, version=2)
    if dtype != "int16":
        check(node("WHERE", [info(x)], tensor("int64", None)), x, version=2)
    vector = make.array((20,), spread=3) if dtype != "float32" else make.ints(0, 5, (20,)).astype(np.float32)
    for kind in ("int32", "int64"):
        check(node("UNIQUE", [info(vector)], [tensor(dtype, None), tensor(kind, None)], idx_out_type=kind), vector)
    if dtype in ("float32", "int32", "int64"):
        check(node("BUCKETIZE", [info(x)], tensor("int32", None), boundaries=(-1.0, 0.0, 0.0, 1.5)), x)


def test_finding_among_numbers_that_are_none() -> None:
    nan, inf = np.nan, np.inf
    x = np.array([[nan, 1, 3], [-inf, nan, -inf], [nan, nan, nan], [2, nan, inf]], np.float32)
    for name in ("ARG_MAX", "ARG_MIN"):
        check(node(name, [info(x), const(1)], tensor("int32", None), output_type="int32"), x, version=2)
    for name in ("REDUCE_MAX", "REDUCE_MIN"):
        # The reference starts from the first of all elements, or from the end of the finite numbers.
        check(mover(name, x[::3], const([1])), x[::3])


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("seed", ROUNDS)
def test_reducing(dtype: str, seed: int) -> None:
    make = Source(dtype, seed)
    rank = seed + 1
    x = make.array(make.sizes(rank), spread=3)
    axes = const(make.ints(-rank, rank, (int(make.ints(0, 4)),)))
    names = ["SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"]
    if dtype == "bool":
        names += ["REDUCE_ANY", "REDUCE_ALL"]
    for name in names:
        if name != "SUM" or dtype not in CODES:
            check(mover(name, x, axes, keep_dims=bool(seed % 2)), x)
    if dtype in ("float32", "int32", "int64"):
        axis = const(int(make.ints(-rank, rank)))
        for exclusive in (False, True):
            for reverse in (False, True):
                check(mover("CUMSUM", x, axis, exclusive=exclusive, reverse=reverse), x)
    if dtype in ("float32", "int32"):
        ids = np.cumsum(make.ints(0, 2, (x.shape[0],)), dtype=np.int32)
        check(mover("SEGMENT_SUM", x, const(ids - ids[0])), x, resolver="BUILTIN_WITHOUT_DEFAULT_DELEGATES")
        for name in ("PROD", "MAX", "MIN", "SUM"):
            ids = make.ints(-1, 4, x.shape[: 1 + seed % rank])
            check(mover(f"UNSORTED_SEGMENT_{name}", x, info(ids), const(5)), x, ids)


@pytest.mark.parametrize("dtype", MOVED)
def test_reducing_nothing(dtype: str) -> None:
    x = np.zeros((2, 0, 3), dtype)
    for name in ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
        for axes in ([1], [0, 1, 2]):
            # The reference gives code 0 for sums of no codes, and the end of the finite numbers.
            if dtype not in CODES and not (dtype == "float32" and "_M" in name):
                check(mover(name, x, const(axes)), x)


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("function", ["add", "mul", "minimum", "maximum", "all", "any"])
def test_reducing_windows(dtype: str, function: str) -> None:
    make = Source(dtype, 7)
    x = make.array((4, 5, 6), spread=3)
    sizes = [const(v, "int64") for v in ([1, 2, 3], [2, 1, 3], [1, 2, 1])]
    start = const(make.array((), spread=2), dtype)
    check(mover("REDUCE_WINDOW", x, start, *sizes, reduce_function=function), x)


@pytest.mark.parametrize("dtype", CODES)
def test_codes(dtype: str) -> None:
    """Operators that care what codes mean."""
    make = Source(dtype, 11)
    x, zero = make.array((2, 3, 4)), CODES[dtype]
    same, other = quant(0.05, zero), quant(0.21, zero)
    axes = const([2, 0])
    for name in ("REDUCE_MAX", "REDUCE_MIN"):
        check(node(name, [info(x, same), axes], tensor(dtype, None, same)), x, version=3)
    if dtype != "uint8":
        check(node("REDUCE_PROD", [info(x, same), axes], tensor(dtype, None, other)), x, version=2)
    pads = const([[1, 0], [0, 2], [1, 1]])
    value = const(make.array(()), dtype, same)
    check(node("PADV2", [info(x, same), pads, value], tensor(dtype, None, same)), x, version=4)
    blocks = [info(x, same), const([2]), const([[1, 0]])]
    check(node("SPACE_TO_BATCH_ND", blocks, tensor(dtype, None, same)), x, version=3)
    check(node("FILL", [const([2, 2]), value], tensor(dtype, None, same)), version=3)
    if dtype == "uint8":
        check(node("SUM", [info(x, same), axes], tensor(dtype, None, other)), x, version=2)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_sums_of_signed_codes(dtype: str) -> None:
    """The reference kernel reads them as unsigned bytes, so the default kernel, which computes in floats, decides."""
    make = Source(dtype, 12)
    x, zero = make.array((3, 4, 5)), CODES[dtype]
    made = node("SUM", [info(x, quant(0.05, zero)), const([1])], tensor(dtype, None, quant(0.21, zero)), keep_dims=True)
    (expected,) = reference_all(made, x, version=2, resolver="BUILTIN_WITHOUT_DEFAULT_DELEGATES")
    (found,) = run_all(made, x)
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sigma", [None, 0.0, 0.4])
def test_selecting_boxes(seed: int, sigma: float | None) -> None:
    """Many equal scores, corners in any order, and boxes without area."""
    make = Source("float32", seed)
    count = int(make.ints(1, 25))
    boxes = make.rng.uniform(0, 3, (count, 4)).astype(np.float32)
    boxes[0, 2:] = boxes[0, :2]
    scores = (make.ints(0, 5, (count,)) / 5).astype(np.float32)
    limits = [const(make.rng.uniform(0.1, 0.8), "float32"), const(0.1, "float32")]
    operands = [info(boxes), info(scores), const(int(make.ints(0, count + 2))), *limits]
    places, number = tensor("int32", None), tensor("int32", None)
    if sigma is None:
        check(node("NON_MAX_SUPPRESSION_V4", operands, [places, number]), boxes, scores)
    else:
        results = [places, tensor("float32", None), number]
        made = node("NON_MAX_SUPPRESSION_V5", [*operands, const(sigma, "float32")], results)
        check(made, boxes, scores)


@pytest.mark.parametrize("seed", ROUNDS)
def test_looking_up(seed: int) -> None:
    make = Source("int8", seed)
    ids = make.ints(0, 6, (5,))
    single, per_row = quant(0.25), quant(make.rng.uniform(0.01, 1, 6))
    for params in (single, per_row):
        for dtype in ("int8", "uint8"):
            table = const(make.array((6, 3, 2), dtype), dtype, params)
            check(node("EMBEDDING_LOOKUP", [info(ids), table], tensor("float32", None)), ids, version=2)
        check(node("EMBEDDING_LOOKUP", [info(ids), table], tensor("float16", None)), ids, version=4)
    plain = const(make.array((6, 2), "int32"))
    check(node("EMBEDDING_LOOKUP", [info(ids), plain], tensor("int32", None)), ids)
    rows = const(make.array((6, 2), "float32"), "float32")
    indices = make.ints(0, 3, (5, 2))
    indices = indices[np.argsort(indices[:, 0])] if seed % 2 else indices
    weights = make.rng.uniform(0.1, 2, 5).astype(np.float32)
    for combiner in ("sum", "mean", "sqrtn"):
        operands = [info(ids), info(indices), const([3, 3]), info(weights), rows]
        made = node("EMBEDDING_LOOKUP_SPARSE", operands, tensor("float32", None), combiner=combiner)
        check(made, ids, indices, weights)
    keys = np.sort(make.rng.permutation(20)[:6])
    operands = [info(ids), const(keys), rows]
    check(node("HASHTABLE_LOOKUP", operands, [tensor("float32", None), tensor("uint8", None)]), ids)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 28, 29, 47, 60, 61, 124, 125, 200])
def test_hashing(length: int) -> None:
    """Keys of every length class of the hash: each has four bytes more than a row."""
    make = Source("int8", length)
    x, seeds = make.array((3, length)), const(make.array((4, 8), "float32"), "float32")
    weights = make.array((3,), "float32")
    for kind in ("sparse", "dense"):
        check(node("LSH_PROJECTION", [seeds, info(x)], tensor("int32", None), type=kind), x)
        weighted = node("LSH_PROJECTION", [seeds, info(x), info(weights)], tensor("int32", None), type=kind)
        check(weighted, x, weights)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("activation", ["none", "relu6"])
def test_pooling_and_volumes(padding: str, activation: str) -> None:
    make = Source("float32", 5)
    shared = {"padding": padding, "fused_activation_function": activation}
    x = make.array((2, 7, 6, 3))
    window = {"filter_height": 3, "filter_width": 2, "stride_h": 2, "stride_w": 1}
    check(mover("L2_POOL_2D", x, **shared, **window), x)
    steps = {"stride_d": 1, "stride_h": 2, "stride_w": 2, "dilation_d_factor": 2, "dilation_w_factor": 2}
    x, weights, bias = make.array((2, 5, 6, 7, 2)), make.array((2, 3, 2, 2, 4)), make.array((4,))
    constants = [const(weights, "float32"), const(bias, "float32")]
    check(mover("CONV_3D", x, *constants, **shared, **steps), x)
    sizes = [5, 3, 4] if padding == "same" else [3, 2, 3]
    x = make.array((2, *sizes, 4))
    operands = [const([2, 5, 6, 7, 2]), constants[0], info(x), const(bias[:2], "float32")]
    check(node("CONV_3D_TRANSPOSE", operands, tensor("float32", None), **shared, **steps), x)
