"""Small cases of operators, grown along one axis until their tensors are large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from helpers.data import data_folder
from helpers.float_edges import GROUPS, case, real
from helpers.nodes import Array, Session, const, node, quant, tensor
from helpers.product_cases import product_cases
from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.execution.graph import build_graph

Case = tuple[Node, list[Array]]

_SMALL = 60_000  # elements of a case that is worth growing
_REAL = np.linspace(0, 1, 96, dtype=np.float32).reshape(2, 4, 6, 2)
_INTS = np.arange(96, dtype=np.int32).reshape(4, 24)
_CODES = np.arange(-48, 48, dtype=np.int8).reshape(_REAL.shape)
_IDS = np.arange(4, dtype=np.int32)


def _others() -> Iterator[Case]:
    """Yield operators that neither the corpus nor other tests' cases have alone in a model."""
    complex64, places = _REAL.astype(np.complex64), _IDS[:, None].copy()
    for made in (
        *(case(name, complex64, results=("float32",)) for name in ("REAL", "IMAG", "COMPLEX_ABS")),
        *(case(name, _INTS, _INTS, results=("int32",)) for name in ("BITWISE_XOR", "RIGHT_SHIFT")),
        *(case(name, _INTS > 9, _INTS > 5, results=("bool",)) for name in ("LOGICAL_AND", "LOGICAL_OR")),
        *(case(name, const([3, 5])) for name in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")),
        *(case(f"UNSORTED_SEGMENT_{kind}", _REAL[0], _IDS, const(4)) for kind in ("SUM", "PROD", "MAX", "MIN")),
        case("BITCAST", _REAL, results=("int32",)),
        case("BUCKETIZE", _REAL, results=("int32",), boundaries=(0.2, 0.7)),
        case("BROADCAST_TO", _REAL[:, :1].copy(), const(_REAL.shape)),
        case("DILATE", _REAL, const([1, 2, 1, 1]), real(0.0)),
        case("DYNAMIC_UPDATE_SLICE", _REAL, _REAL[:, :1, :2].copy(), const([0, 1, 2, 0])),
        case("FAKE_QUANT", _REAL, min=-1.0, max=1.0, num_bits=8),
        case("FILL", const([3, 5]), real(2.0)),
        case("LOCAL_RESPONSE_NORMALIZATION", _REAL, radius=2, bias=1.0, alpha=0.5, beta=0.5),
        case("MATRIX_SET_DIAG", _REAL, _REAL[:, :, :2, 0].copy()),
        case("MULTINOMIAL", _REAL[0, 0], const(3), results=("int64",), seed=1, seed2=2),
        case("REDUCE_ALL", _REAL > 0.5, const([1]), results=("bool",)),
        case("REDUCE_WINDOW", _REAL, real(0.0), *(const([1, 2, 2, 1]), const([1] * 4), const([1] * 4)),
             reduce_function="add"),
        case("RMS_NORM", _REAL, real([1, 2]), epsilon=1e-5),
        case("SCATTER_ND", places, _REAL[0], const([4, 6, 2])),
        case("SPARSE_TO_DENSE", places, const([4]), _IDS.astype(np.float32), real(0.0)),
    ):  # fmt: skip
        yield made.made, list(made.inputs)


def _codes() -> Iterator[Case]:
    """Yield operators on codes, taps far from each other among them."""
    x, wide, y = (tensor(dtype, shape, quant(0.1)) for dtype, shape in
                  (("int8", _CODES.shape), ("int16", _CODES.shape), ("int8", None)))  # fmt: skip
    weights, taps = (const(np.ones(shape), "int8", quant(0.1)) for shape in ((3, 3, 3, 2), (1, 3, 3, 2)))
    places = {"padding": "same", "stride_h": 2, "stride_w": 2}
    yield node("TRANSPOSE_CONV", [const([2, 8, 12, 3]), weights, x], y, **places), [_CODES]
    yield node("REDUCE_PROD", [x, const([3])], y), [_CODES]
    factors = _CODES[0], _CODES[1].reshape(4, 2, 6)
    yield node("BATCH_MATMUL", [replace(x, shape=factor.shape) for factor in factors], y), list(factors)
    far = {"padding": "same", "stride_h": 1, "stride_w": 1, "dilation_h_factor": 50, "dilation_w_factor": 50}
    result, values = tensor("int16", None, quant(0.1)), _CODES.astype(np.int16)
    yield node("CONV_2D", [wide, weights, None], result, **far), [values]
    yield node("DEPTHWISE_CONV_2D", [wide, taps, None], result, depth_multiplier=1, **far), [values]


def _corpus() -> Iterator[Case]:
    """Yield models of one operator in the conformance corpus."""
    root = data_folder()
    for data in sorted((root / "conformance" / "data").glob("*.npz")) if root else ():
        try:
            graph = build_graph(read_model(data.parents[1] / "models" / f"{data.stem}.circle"))
        except OdcError:
            continue
        if len(graph.nodes) == 1:
            with np.load(data) as arrays:
                names = [name for name in arrays if name.startswith("in_")][: len(graph.inputs)]
                given = {index: arrays[name] for index, name in zip(graph.inputs, names, strict=True)}
            (item,) = graph.nodes
            yield item.node, [given[index] for index in item.inputs if index in given]


@cache
def cases() -> dict[str, list[Case]]:
    """Small cases of each operator."""
    found: dict[str, list[Case]] = {}
    edges = ((edge.made, list(edge.inputs)) for group in GROUPS for edge in group())
    for made, inputs in (*_others(), *_codes(), *product_cases().values(), *_corpus(), *edges):
        if sum(array.size for array in inputs) <= _SMALL:
            found.setdefault(made.spec.name, []).append((made, inputs))
    return found


def grown_cases(name: str, target: int) -> dict[str, Case]:
    """Return a case with tensors of about ``target`` bytes for each choice of element types of an operator."""
    found: dict[str, Case] = {}
    for made, inputs in cases().get(name, ()):
        dtypes = " ".join(info.dtype for info in (*made.operands, *made.results) if info is not None)
        if dtypes not in found and (large := _grown(made, inputs, target)) is not None:
            found[dtypes] = large
    return found


def given(made: Node, inputs: list[Array]) -> Node:
    """The operator for inputs of other shapes."""
    arrays = iter(inputs)
    operands = [
        info if info is None or info.is_const or info.is_variable else replace(info, shape=next(arrays).shape)
        for info in made.operands
    ]
    return replace(made, operands=tuple(operands), results=tuple(replace(info, shape=None) for info in made.results))


def _grow(made: Node, inputs: list[Array], axis: int, factor: int, *, sizes: bool) -> Case:
    """Repeat the inputs of highest rank ``factor`` times along an axis; ``sizes``: also multiply constant sizes."""
    rank = max((array.ndim for array in inputs), default=1)
    full = [array.shape[axis] for array in inputs if array.ndim == rank]
    arrays, grown, operands = iter(inputs), [], list[TensorInfo | None]()
    for info in made.operands:
        if info is not None and not info.is_const and not info.is_variable:
            array = next(arrays)
            if array.ndim == rank and array.shape[axis] == max(full):
                array = np.tile(array, [factor if i == axis else 1 for i in range(rank)])
            grown.append(array)
            info = replace(info, shape=array.shape)
        elif info is not None and info.is_variable and info.shape:
            info = replace(info, shape=(info.shape[0] * factor, *info.shape[1:]))  # one state for each of a batch
        elif info is not None and info.is_const and info.dtype in ("int32", "int64") and sizes:
            values = info.array().copy()
            if values.ndim == 1 and values.size in (rank, 2):
                values[axis if values.size > axis else 0] *= factor
                info = const(values, info.dtype)
        operands.append(info)
    results = tuple(replace(result, shape=None) for result in made.results)
    return replace(made, operands=tuple(operands), results=results), grown


def _size(made: Node, inputs: list[Array]) -> int:
    """Return the bytes of inputs, states and results of a run."""
    session = Session(made)
    return sum(array.nbytes for array in (*inputs, *session.variables.values(), *session(*inputs)))


def _grown(made: Node, inputs: list[Array], target: int) -> Case | None:
    """Return the case with tensors of about ``target`` bytes, or None if it grows along no axis."""
    for sizes in (False, True):
        for axis in range(max((array.ndim for array in inputs), default=1)):
            try:
                one, two, three = (_size(*_grow(made, inputs, axis, factor, sizes=sizes)) for factor in (1, 2, 3))
                if 1.5 * one < two < 2.5 * one and three < 4 * one:
                    return _grow(made, inputs, axis, math.ceil(target / (two - one)), sizes=sizes)
            except OdcError:
                continue
    return None
