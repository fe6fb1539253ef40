"""Table look-ups, and features of text and hashes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from odc_mlir.numerics.fingerprint import fingerprint64
from odc_mlir.ops.infer.common import check_elements, option, require_dtype
from odc_mlir.ops.lookup import is_dense
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import check_index, check_scales, computed, input_error, ints, unsupported

_SYMMETRIC = ("int4", "int8", "uint8")
_REAL = ("float32", "float16")

MOST_GRAMS = 1 << 20  # limit per sentence; the number of n-grams grows with a power of its length


def embedding_lookup(node: Node) -> Execute:
    """Gather rows of operand 1 by the ids in operand 0. A quantised table is multiplied by the scale."""
    table, out = node.operand(1), node.results[0]
    if table.dtype != out.dtype:
        return _scaled_lookup(node, table, out)

    def compute(ids: Array, rows: Array) -> Array:
        check_index(node, ids, rows.shape[0], "id")
        check_elements(node, (ids.size, *rows.shape[1:]), out.dtype)
        return rows[ids]

    return computed(node, compute)


def _scaled_lookup(node: Node, table: TensorInfo, out: TensorInfo) -> Execute:
    """Gather rows of codes as reals. uint8 codes without zero points are read as int8."""
    require_dtype(node, table, *_SYMMETRIC)
    require_dtype(node, out, *_REAL)
    dtype = out.info.numpy
    quant = table.quant
    if quant is None:
        raise node.error(f"table {table.name!r} of {table.dtype} has no scale")
    check_scales(node, table, quant.scales)
    if not quant.per_tensor and (quant.axis != 0 or table.shape is None or table.shape[0] != len(quant.scales)):
        raise unsupported(node, f"the {len(quant.scales)} scales of {table.name!r} are not one per row")
    scales, zeros = np.asarray(quant.scales, np.float32), np.asarray(quant.zero_points, np.int32)

    def compute(ids: Array, rows: Array) -> Array:
        check_index(node, ids, rows.shape[0], "id")
        check_elements(node, (ids.size, *rows.shape[1:]), out.dtype)

        def of_rows(values: Array) -> Array:
            return (values if quant.per_tensor else values[ids]).reshape(-1, *(1,) * (rows.ndim - 1))

        taken = rows[ids].astype(np.int32) - of_rows(zeros) if zeros.any() else rows[ids].view(np.int8)
        return (taken.astype(np.float32) * of_rows(scales)).astype(dtype, copy=False)

    return computed(node, compute)


def embedding_lookup_sparse(node: Node) -> Execute:
    """Sum weighted rows of operand 4 with indices that agree in all but the last entry.

    The option ``combiner`` determines the combination of neighbouring rows with the same index. Indices should be
    sorted. If an index occurs again later, more rows are added to the result, and the combiner's norm divides the sum.
    """
    table, combiner = node.operand(4), str(option(node, "combiner"))
    require_dtype(node, table, "float32")

    def compute(ids: Array, indices: Array, dense: Array, weights: Array, rows: Array) -> Array:
        sizes = ints(dense)
        if indices.shape != (ids.size, len(sizes)) or weights.shape != ids.shape or min(sizes, default=-1) < 0:
            raise input_error(
                node,
                f"{ids.size} ids, indices {list(indices.shape)}, {weights.size} weights and the dense shape "
                f"{list(sizes)} do not fit",
            )
        check_index(node, ids, rows.shape[0], "id")
        for axis, size in enumerate(sizes[:-1]):
            check_index(node, indices[:, axis], size, f"index along axis {axis}")
        check_elements(node, (*sizes[:-1], *rows.shape[1:]), "float32")
        out = np.zeros((*sizes[:-1], *rows.shape[1:]), np.float32)
        flat = out.reshape(-1, *rows.shape[1:])
        places = np.ravel_multi_index(tuple(indices[:, :-1].T), sizes[:-1]) if len(sizes) > 1 else np.zeros_like(ids)
        for place, run in itertools.groupby(range(ids.size), key=lambda i: int(places[i])):
            _combine(flat[place : place + 1], rows, ids, weights, list(run), combiner)
        return out

    return computed(node, compute)


def _combine(target: Array, rows: Array, ids: Array, weights: Array, run: list[int], combiner: str) -> None:
    """Add weighted rows to ``target [1, …]``, then divide by the combiner's norm."""
    for i in run:
        target += rows[ids[i]] * weights[i]
    used = weights[run]
    if combiner == "mean":
        target /= np.cumsum(used, dtype=np.float32)[-1]
    elif combiner == "sqrtn":
        target /= np.sqrt(np.cumsum(used * used, dtype=np.float32)[-1])


def hashtable_lookup(node: Node) -> Execute:
    """Look up operand 0 among the ascending keys in operand 1. Return values (zeros for unknown keys) and hits."""

    def compute(lookup: Array, keys: Array, values: Array) -> list[Array]:
        if not keys.size or keys.shape != values.shape[:1] or (np.diff(keys.astype(np.int64)) < 0).any():
            raise input_error(
                node, f"{keys.size} keys for {values.shape[:1]} values must be at least one and ascending"
            )
        check_elements(node, (lookup.size, *values.shape[1:]), node.operand(2).dtype)
        places = np.minimum(np.searchsorted(keys, lookup), keys.size - 1)
        hits = keys[places] == lookup
        found = values[places]
        found[~hits] = b"" if values.dtype == object else 0
        return [found, hits.astype(np.uint8)]

    return computed(node, compute, several=True)


def lsh_projection(node: Node) -> Execute:
    """Compute bits: 1 if the weighted sum of the hashes of the input's rows is positive.

    Entries of operand 0 seed the hashes. A dense projection has one bit per entry. A sparse projection has a number per
    row of operand 0: the row's bits, with the row's index in higher bits.
    """
    dense, info = is_dense(node), node.operand(1)
    if info.info.kind in ("string", "handle", "block") or info.info.bits < 8:
        raise unsupported(node, f"element type {info.dtype} is not supported")

    def compute(seeds: Array, x: Array, weight: Array | None = None) -> Array:
        if not x.ndim or not x.shape[0]:
            raise input_error(node, f"the input {list(x.shape)} has no rows")
        rows = np.ascontiguousarray(x).reshape(x.shape[0], -1).view(np.uint8)
        weights = np.ones(x.shape[0]) if weight is None else weight.astype(np.float64)
        if weights.shape != x.shape[:1]:
            raise input_error(node, f"there are {weights.size} weights for {x.shape[0]} rows")
        bits = np.array([_sign(seed, rows, weights) for seed in seeds.reshape(-1)], np.int64).reshape(seeds.shape)
        if dense:
            return bits.reshape(-1).astype(np.int32)
        powers = np.int64(1) << np.arange(seeds.shape[1], dtype=np.int64)[::-1]
        offsets = np.arange(seeds.shape[0], dtype=np.int64) << np.int64(seeds.shape[1])
        return np.asarray((bits * powers).sum(axis=1) + offsets, np.int32)

    return computed(node, compute)


def _sign(seed: np.float32, rows: Array, weights: Array) -> bool:
    prefix = np.frombuffer(np.float32(seed).tobytes(), np.uint8)
    keys = np.concatenate([np.broadcast_to(prefix, (rows.shape[0], prefix.size)), rows], axis=1)
    numbers = fingerprint64(keys).view(np.int64).astype(np.float64)
    return bool(np.cumsum(numbers * weights)[-1] > 0)


def skip_gram(node: Node) -> Execute:
    """List all n-grams of ``ngram_size`` words (optionally fewer) with at most ``max_skip_size`` words per gap."""
    size, skips = int(option(node, "ngram_size")), int(option(node, "max_skip_size"))
    shorter = bool(option(node, "include_all_ngrams"))

    def compute(x: Array) -> Array:
        if x.size < 1:
            raise input_error(node, "the input has no string; it must have one")
        sentence = x.reshape(-1)[0]
        words = (sentence if isinstance(sentence, bytes) else str(sentence).encode()).split()
        grams = (
            list(itertools.islice(_grams(words, size, skips, shorter), MOST_GRAMS + 1)) if len(words) >= size else []
        )
        if len(grams) > MOST_GRAMS:
            raise input_error(node, f"the {len(words)} words give more than {MOST_GRAMS} results")
        out = np.empty(len(grams), object)
        out[:] = grams
        return out

    return computed(node, compute)


def _grams(words: list[bytes], size: int, skips: int, shorter: bool) -> Iterator[bytes]:
    """Yield n-grams of joined words. Longer n-grams come before prefixes of these n-grams."""

    def continued(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) < size:
            first = chosen[-1] + 1 if chosen else 0
            last = min(first + skips + 1, len(words)) if chosen else len(words)
            for following in range(first, last):
                yield from continued((*chosen, following))
        if chosen and (shorter or len(chosen) == size):
            yield chosen

    for chosen in continued(()):
        yield b" ".join(words[i] for i in chosen)
