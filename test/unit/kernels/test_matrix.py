"""BATCH_MATMUL against LiteRT, scalar code and numpy.

Left out: float times int8 with two or more batch dimensions on the left, where the reference takes wrong scales.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers import scalar
from helpers.litert import reference
from helpers.nodes import const, infer, node, quant, run, tensor
from odc_mlir.errors import InputError, ModelError, OdcError, UnsupportedError
from odc_mlir.ops.spec import Node, QuantParams

Array = NDArray[Any]
Shape = tuple[int, ...]

KINDS = {
    "float32": ("float32", "float32", "float32"),
    "hybrid": ("float32", "int8", "float32"),
    "asymmetric": ("float32", "int8", "float32"),
    "per column": ("float32", "int8", "float32"),
    "int8": ("int8", "int8", "int8"),
    "sums": ("int8", "int8", "int32"),
    "int16": ("int16", "int16", "int16"),
    "int16x8": ("int16", "int8", "int16"),
}
FLAT: list[tuple[Shape, Shape]] = [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 1))]
DEEP: list[tuple[Shape, Shape]] = [
    ((2, 1, 3, 4), (3, 4, 5)),
    ((2, 3, 3, 4), (1, 1, 4, 5)),
    ((2, 3, 1, 4), (2, 3, 4, 2)),
]
FLAGS = (False, True)


class Case:
    """An operator with random operands; ``flip_*`` store the matrices transposed."""

    def __init__(self, kind: str, a: Shape, b: Shape, *, flip_a: bool = False, flip_b: bool = False) -> None:
        self.rng = np.random.default_rng(len(kind) + len(a) + 2 * len(b))
        dtypes = KINDS[kind]
        columns, b = b[-1], turned(b) if flip_b else b
        self.values = self.array(dtypes[0], turned(a) if flip_a else a), self.array(dtypes[1], b)
        self.quants = self.quant(kind, dtypes[0], 0.02), self.quant(kind, dtypes[1], 0.03), self.result(dtypes[2])
        if kind == "per column":
            axis = len(b) - (2 if flip_b else 1)
            self.quants = None, quant(self.rng.uniform(0.01, 0.05, columns), 0, axis), None
        infos = [tensor(d, v.shape, q) for d, v, q in zip(dtypes[:2], self.values, self.quants[:2], strict=True)]
        options = {"adjoint_lhs": flip_a, "adjoint_rhs": flip_b, "asymmetric_quantize_inputs": kind == "asymmetric"}
        self.made = node("BATCH_MATMUL", infos, tensor(dtypes[2], None, self.quants[2]), **options)
        constant = const(self.values[1], dtypes[1], self.quants[1])
        self.fixed = node("BATCH_MATMUL", [infos[0], constant], self.made.results[0], **options)

    def array(self, dtype: str, shape: Shape) -> Array:
        if dtype == "float32":
            return self.rng.normal(size=shape).astype(np.float32)
        limits = np.iinfo(dtype)
        return self.rng.integers(limits.min, limits.max + 1, shape).astype(dtype)

    def quant(self, kind: str, dtype: str, scale: float) -> QuantParams | None:
        zero = int(self.rng.integers(-20, 20)) if kind == "int8" else 0
        return None if dtype == "float32" else quant(scale, zero)

    def result(self, dtype: str) -> QuantParams | None:
        return {"int8": quant(0.6, -9), "int16": quant(3.0)}.get(dtype)


def turned(shape: Shape) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2])


@pytest.mark.parametrize(("flip_a", "flip_b"), list(itertools.product(FLAGS, repeat=2)))
@pytest.mark.parametrize("kind", KINDS)
def test_as_litert(kind: str, flip_a: bool, flip_b: bool) -> None:
    hybrid = KINDS[kind] == KINDS["hybrid"]
    for a, b in FLAT if hybrid else FLAT + DEEP:
        if kind == "per column" and b[-1] == 1:
            continue
        case = Case(kind, a, b, flip_a=flip_a, flip_b=flip_b)
        expected = reference(case.made, *case.values, version=4)
        for found in (run(case.made, *case.values), run(case.fixed, case.values[0])):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 if found.dtype == np.float32 else 0)


@pytest.mark.parametrize("kind", ["int8", "int16", "sums"])
def test_as_scalar(kind: str) -> None:
    case = Case(kind, (2, 3), (3, 2))
    (a, b), found = case.values, run(case.made, *case.values)
    zeros = [0 if q is None or kind == "sums" else q.zero_point for q in case.quants]
    for row, column in itertools.product(range(2), range(2)):
        total = sum((int(a[row, k]) - zeros[0]) * (int(b[k, column]) - zeros[1]) for k in range(3))
        if kind != "sums":
            scales = [np.float32(q.scale) for q in case.quants if q is not None]
            factor = scalar.quantize_multiplier(float(np.float32(scales[0] * scales[1])) / float(scales[2]))
            scaled = (scalar.multiply if kind == "int8" else scalar.multiply64)(total, *factor)
            low, high = (-128, 127) if kind == "int8" else (-32768, 32767)
            total = scalar.clamp(scaled + zeros[2], low, high)
        assert found[row, column] == total


@given(st.integers(1, 4), st.integers(0, 9), st.integers(1, 4), st.lists(st.sampled_from([1, 2]), max_size=4))
def test_sums_are_exact(rows: int, inner: int, columns: int, batch: list[int]) -> None:
    """Also of many batch dimensions and of nothing."""
    rng = np.random.default_rng(rows + inner)
    a = rng.integers(-128, 128, (*batch, rows, inner)).astype(np.int8)
    b = rng.integers(-128, 128, (*[1] * len(batch), inner, columns)).astype(np.int8)
    made = node("BATCH_MATMUL", [tensor("int8", a.shape), tensor("int8", b.shape)], tensor("int32", None))
    assert (run(made, a, b) == a.astype(np.int64) @ b.astype(np.int64)).all()


@pytest.mark.parametrize("kind", ["hybrid", "asymmetric", "per column"])
@pytest.mark.parametrize(("a", "b"), DEEP)
def test_hybrid_products_are_close(kind: str, a: Shape, b: Shape) -> None:
    case = Case(kind, a, b)
    scales = case.quants[1]
    assert scales is not None
    real = case.values[0] @ (case.values[1].astype(np.float32) * np.asarray(scales.scales, np.float32))
    np.testing.assert_allclose(run(case.made, *case.values), real, atol=0.12)


def test_shapes() -> None:
    def shape(a: Any, b: Any, **options: bool) -> Any:
        return infer("BATCH_MATMUL", [tensor("float32", a), tensor("float32", b)], **options)

    assert shape((2, 1, 3, 4), (5, 4, 6)) == (2, 5, 3, 6)
    assert shape((4, 3), (6, 4), adjoint_lhs=True, adjoint_rhs=True) == (3, 6)
    assert shape((None, 3, 4), (1, 4, None)) == (None, 3, None)
    assert shape(None, (4, 5)) is None
    for a, b, message in (((3,), (3, 4), "rank must be at least 2"), ((3, 4), (5, 6), "4 and 5 must be equal")):
        with pytest.raises(ModelError, match=message):
            shape(a, b)
    with pytest.raises(ModelError, match="cannot be broadcast"):
        shape((2, 3, 4), (3, 4, 5))


def product(a: Any, b: Any, y: Any) -> Node:
    return node("BATCH_MATMUL", [tensor(*a), tensor(*b)], tensor(*y))


A, B = (2, 3), (3, 4)


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (product(("uint8", A), ("int16", B), ("uint8", None)), UnsupportedError, "products of uint8 and int16 as"),
        (product(("uint8", A), ("uint8", B), ("uint8", None)), ModelError, "has no scale"),
        (product(("float32", A), ("int8", B), ("float32", None)), ModelError, "has no scale"),
        (product(("float32", A), ("int8", B, quant(-1.0)), ("float32", None)), ModelError, "must be positive"),
        (
            product(("float32", A), ("int8", B, quant([0.1] * 3, 0, 0)), ("float32", None)),
            UnsupportedError,
            "along axis 0 are not one per column",
        ),
        (
            product(
                ("int8", A, quant(0.1)), ("int8", B, quant([0.1] * 4, [0, 0, 0, 500], 1)), ("int8", None, quant(0.1))
            ),
            ModelError,
            "a zero point of 'x' is outside int8's -128 to 127",
        ),
        (product(("int8", A), ("float32", B), ("float32", None)), ModelError, "the left operand is int8"),
    ],
)
def test_refused(made: Node, error: type[OdcError], message: str) -> None:
    with pytest.raises(error, match=message):
        run(made, *(np.zeros(info.static_shape, info.info.numpy) for info in made.operands if info))


def test_inputs_that_do_not_fit() -> None:
    kernel = product(("float32", None), ("float32", None), ("float32", None)).spec.kernel_function
    execute = kernel(product(("float32", None), ("float32", None), ("float32", None)))
    for a, b, message in (
        ((3,), (3, 4), "are not matrices"),
        ((2, 3), (2, 3), "cannot be multiplied"),
        ((2, 2, 3), (3, 3, 3), "cannot be multiplied"),
    ):
        with pytest.raises(InputError, match=message):
            execute([np.zeros(a, np.float32), np.zeros(b, np.float32)])
