"""Operators built by hand: a node of the operator table, its results' shapes inferred, and one run of its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir import ops
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.custom import ALIASES, KNOWN
from odc_mlir.ops.spec import Execute, Node, QuantParams, Shape, TensorInfo, numpy_dtype

Array = NDArray[Any]
Scales = float | Sequence[float]


def quant(scale: Scales, zero: int | Sequence[int] = 0, axis: int = 0) -> QuantParams:
    """Quantisation with scales rounded to float32, as files hold them."""
    scales = tuple(float(np.float32(s)) for s in np.atleast_1d(scale))
    zeros = np.broadcast_to(np.atleast_1d(zero), len(scales))
    return QuantParams(scales, tuple(int(z) for z in zeros), axis)


def tensor(dtype: str, shape: Shape | None, params: QuantParams | None = None, name: str = "x") -> TensorInfo:
    """A tensor that is computed at run time."""
    return TensorInfo(name, dtype, shape, params)


def const(values: Any, dtype: str = "int32", params: QuantParams | None = None, name: str = "c") -> TensorInfo:
    """A constant of a type that numpy has."""
    array = np.ascontiguousarray(values, numpy_dtype(dtype))
    shape = np.shape(values)
    return TensorInfo(name, dtype, shape, params, memoryview(array.tobytes()))


def node(
    name: str, operands: Sequence[TensorInfo | None], result: TensorInfo | Sequence[TensorInfo], **options: Any
) -> Node:
    """An operator with the schema's option defaults and one result or several."""
    spec = ops.get(name)
    results = (result,) if isinstance(result, TensorInfo) else tuple(result)
    return Node(spec, tuple(operands), results, {**default_options(spec.options), **options}, "y")


def infer(name: str, operands: Sequence[TensorInfo | None], dtype: str | None = None, **options: Any) -> Shape | None:
    """Shape of the one result; ``dtype`` is the declared element type, the first operand's unless given."""
    first = next(o for o in operands if o is not None)
    made = node(name, operands, tensor(dtype or first.dtype, None), **options)
    (found,) = made.spec.infer_function(made)
    assert found.dtype == made.results[0].dtype
    return found.shape


def run(made: Node, *inputs: Array) -> Array:
    """The one result of :func:`run_all`."""
    (found,) = run_all(made, *inputs)
    return found


def run_all(made: Node, *inputs: Array) -> list[Array]:
    """Results of the first run; ``inputs`` are the operands that are neither constant nor variable, in order."""
    return Session(made)(*inputs)


class Session:
    """An operator that is run again and again: verified and inferred once, its variables live as long as this."""

    def __init__(self, made: Node) -> None:
        verify = made.spec.verify_function
        if verify is not None:
            verify(made)
        self.made, self.inferred = made, made.spec.infer_function(made)
        self.kernel: Execute | None = None
        self.variables = {
            index: initial_contents(info)
            for index, info in enumerate(made.operands)
            if info is not None and info.is_variable
        }

    def __call__(self, *inputs: Array) -> list[Array]:
        """Results for ``inputs``, of the inferred types; they share no memory with the variables."""
        operands = bind(self.made, inputs)
        for index, contents in self.variables.items():
            operands[index] = contents if index in self.made.mutated else contents.copy()
        with np.errstate(all="ignore"):  # as executors do
            if self.kernel is None:
                self.kernel = self.made.spec.kernel_function(self.made)
            found = list(self.kernel(operands))
        for kind, array in zip(self.inferred, found, strict=True):
            assert array.dtype == numpy_dtype(kind.dtype)
            assert not any(np.may_share_memory(array, contents) for contents in self.variables.values())
            if kind.shape is not None:
                assert len(array.shape) == len(kind.shape)
                assert all(i is None or i == f for i, f in zip(kind.shape, array.shape, strict=True))
        return found


def bind(made: Node, inputs: Sequence[Array]) -> list[Array | None]:
    """Operands of a run: ``inputs`` in the places that are neither constant nor variable."""
    remaining = iter(inputs)
    return [None if o is None or o.is_const or o.is_variable else next(remaining) for o in made.operands]


def variable(dtype: str, shape: Shape, params: QuantParams | None = None, name: str = "state") -> TensorInfo:
    """A tensor that keeps state from run to run."""
    return TensorInfo(name, dtype, shape, params, is_variable=True)


def known_codes() -> tuple[str, ...]:
    """The custom codes whose meaning is public."""
    return tuple(sorted((*ALIASES, *KNOWN)))
