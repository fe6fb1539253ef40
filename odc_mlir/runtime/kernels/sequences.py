"""Helpers of recurrent kernels: steps of a sequence, state, and products with weights of several kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from odc_mlir.numerics.hybrid import HybridMatrix, quantize_rows
from odc_mlir.numerics.pieces import parts
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.infer.common import check_elements, named, option, position
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import (
    Fetch,
    fetch,
    fused_activation,
    input_error,
    real_clamp,
    scale_of,
    signed_codes,
    unsupported,
)

Function = Callable[[Array], Array]
Operands = Sequence[Array | None]
Prepared = TypeVar("Prepared")

CODES = ("int8", "uint8")
BLOCK_ELEMENTS = 1 << 20  # limit on gates per part of the batch, and on precomputed input contributions


class Cell(Protocol):
    """A prepared recurrent cell with ``state`` arrays ``[N, ·]``. The first array is the output."""

    def inputs(self, x: Array, aux: Array | None = None) -> Array:
        """Return the contributions ``[n, ·]`` of inputs ``[n, I]`` (and auxiliary inputs) of many steps."""

    def step(self, inputs: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the new state from :meth:`inputs` of a step and the old state."""


class RealCell(Cell, Protocol):
    """A float32 cell. It adds sums in TFLite's order: bias, input, auxiliary input, then the state."""

    _bias: Array
    _inputs: Function
    _aux: Function | None

    def inputs(self, x: Array, aux: Array | None = None) -> Array:
        sums = self._bias + self._inputs(x)
        if self._aux is not None and aux is not None:
            sums += self._aux(aux)
        return sums


def through_time(
    cell: Cell, given: Sequence[Array], state: tuple[Array, ...], out: Array, *, backward: bool = False
) -> tuple[Array, ...]:
    """Run ``cell`` over inputs ``given [T, N, ·]``, write outputs to ``out [T, N, O]`` and return the last state."""
    steps, batch = given[0].shape[:2]
    if not batch:
        return state
    width = cell.inputs(*(x[:0].reshape(0, x.shape[2]) for x in given)).shape[1]
    # At least two rows, as numpy sums a single row in another order.
    places = list(parts((batch, width), (1,), BLOCK_ELEMENTS, (2, 1)))
    if len(places) > 1:
        ends = [
            through_time(
                cell, [x[:, rows] for x in given], tuple(x[rows] for x in state), out[:, rows], backward=backward
            )
            for rows, _ in places
        ]
        return tuple(np.concatenate(arrays) for arrays in zip(*ends, strict=True))
    block = max(1, BLOCK_ELEMENTS // max(1, batch * width))
    order = range(steps)[::-1] if backward else range(steps)
    for start in range(0, steps, block):
        times = order[start : start + block]
        sums = cell.inputs(*(x[times].reshape(-1, x.shape[2]) for x in given))
        for time, inputs in zip(times, sums.reshape(len(times), batch, width), strict=True):
            state = cell.step(inputs, state)
            out[time] = state[0]
    return state


class RecurrentLayer:
    """A cell of an operator. ``states``: name, elements per sequence and value if omitted, of each state tensor."""

    def __init__(
        self,
        node: Node,
        cell_of: Callable[[Operands], Cell],
        features: int,
        outputs: int,
        states: Sequence[tuple[str, int, Array | None]],
    ) -> None:
        self._node, self._cell_of, self._features, self._outputs = node, cell_of, features, outputs
        self._states = states
        for name, size, _ in states:
            require_state(node, name, size)

    def run(self, operands: Operands, x: Array, *, aux: Array | None = None, backward: bool = False) -> Array:
        """Return results ``[T, N, O]`` for ``x [T, N, I]`` and update the state."""
        node, shape = self._node, (*x.shape[:2], self._outputs)
        if x.shape[2] != self._features:
            raise input_error(node, f"the input has {x.shape[2]} features, the weights {self._features}")
        check_elements(node, shape, node.results[0].dtype)
        out = np.empty(shape, node.results[0].info.numpy)
        states = [state_of(node, name, operands, x.shape[1], size, zero) for name, size, zero in self._states]
        contents = tuple(part for _, part in states)
        given = [x] if aux is None else [x, aux]
        found = through_time(self._cell_of(operands), given, contents, out, backward=backward)
        for (whole, _), new in zip(states, found, strict=True):
            keep(whole, new)
        return out


def one_step(node: Node, layer: RecurrentLayer) -> Execute:
    """Return the kernel of one step for ``x [N, I]``. The result is ``[N, O]``."""
    x_of = fetch(node, 0)

    def execute(operands: Operands) -> list[Array]:
        x = x_of(operands)
        if x.ndim != 2:
            raise input_error(node, f"the input has the shape {list(x.shape)}; its rank must be 2")
        return [layer.run(operands, x[None])[0]]

    return execute


def over_time(node: Node, layer: RecurrentLayer) -> Execute:
    """Return the kernel that runs a cell over ``x [T, N, I]`` (or ``[N, T, I]``). The result is ``[T, N, O]``."""
    x_of = fetch(node, 0)

    def execute(operands: Operands) -> list[Array]:
        out = layer.run(operands, time_first(node, x_of(operands)))
        return [np.ascontiguousarray(time_first(node, out))]

    return execute


def both_ways(node: Node, forward: RecurrentLayer, backward: RecurrentLayer, aux_weights: str) -> Execute:
    """Return the kernel that runs one layer forward and one backward. Results are concatenated or separate.

    An auxiliary input with separate weights is added in the two layers. Otherwise it is the backward layer's input.
    """
    x_of, merge, beside = fetch(node, 0), bool(option(node, "merge_outputs")), named(node, aux_weights) is not None
    aux_of = None if named(node, "aux_input") is None else fetch(node, position(node, "aux_input"))

    def execute(operands: Operands) -> list[Array]:
        x = time_first(node, x_of(operands))
        aux = None if aux_of is None else time_first(node, aux_of(operands), name="auxiliary input")
        if aux is not None and aux.shape[:2] != x.shape[:2]:
            raise input_error(node, f"the input {list(x.shape)} and the auxiliary input {list(aux.shape)} do not fit")
        more = aux if beside else None
        source = x if beside or aux is None else aux
        outs = [forward.run(operands, x, aux=more), backward.run(operands, source, aux=more, backward=True)]
        results = [np.concatenate(outs, axis=2)] if merge else outs
        return [np.ascontiguousarray(time_first(node, result)) for result in results]

    return execute


def time_first(node: Node, x: Array, *, name: str = "input") -> Array:
    """Return ``x`` as ``[T, N, I]``, transposed if ``time_major`` is false."""
    if x.ndim != 3:
        raise input_error(node, f"the {name} has the shape {list(x.shape)}; its rank must be 3")
    return x if option(node, "time_major") else x.swapaxes(0, 1)


def zero_of(info: TensorInfo) -> Array:
    """Return real zero as an element of the tensor ``info``: 0, or the zero point."""
    return initial_contents(TensorInfo(info.name, info.dtype, (), info.quant))


def require_state(node: Node, name: str, size: int) -> None:
    """Raise ModelError if a state tensor of static shape does not have ``size`` elements per sequence of the input."""
    x, info = node.operand(0).shape, named(node, name)
    batch = x[int(option(node, "time_major"))] if x is not None and len(x) == 3 else None
    if batch is None or info is None or info.shape is None or None in info.shape:
        return
    if math.prod(info.static_shape) != batch * size:
        shape = list(info.static_shape)
        raise node.error(f"{name} has the shape {shape}; {batch} x {size} elements are needed")


def state_of(
    node: Node, name: str, operands: Operands, batch: int, size: int, zero: Array | None = None
) -> tuple[Array, Array]:
    """Return a state tensor and the contents as a read-only ``[batch, size]``.

    An omitted state is ``zero`` (default: 0.0, float32). Raises InputError for tensors of other sizes.
    """
    index = position(node, name)
    info = node.optional(index)
    if info is None:
        contents = np.full((batch, size), np.float32(0) if zero is None else zero)
        return np.empty_like(contents), contents
    given = operands[index] if index < len(operands) else None
    whole = info.array().copy() if given is None else given
    if whole.size != batch * size:
        raise input_error(node, f"{name} has the shape {list(whole.shape)}; {batch} x {size} elements are needed")
    return whole, whole.reshape(batch, size).copy()


def keep(whole: Array, contents: Array) -> None:
    """Write new contents to a state tensor."""
    whole[...] = contents.reshape(whole.shape)


def when_known(
    node: Node, names: Sequence[str], prepare: Callable[[Mapping[str, Array]], Prepared]
) -> Callable[[Operands], Prepared]:
    """Return a function that calls ``prepare`` on the operands ``names``, only once if all are constant."""
    places = {name: position(node, name) for name in names}
    places = {name: index for name, index in places.items() if node.optional(index) is not None}
    fetches: dict[str, Fetch] = {name: fetch(node, index) for name, index in places.items()}
    if all(node.operand(index).is_const for index in places.values()):
        ready = prepare({name: source(()) for name, source in fetches.items()})
        return lambda _: ready
    return lambda operands: prepare({name: source(operands) for name, source in fetches.items()})


def product(node: Node, infos: Sequence[TensorInfo], values: Sequence[Array]) -> Function:
    """Return the function ``x [n, K] @ W.T`` in float32. ``W`` stacks float32 or 8-bit matrices ``[·, K]``.

    Each 8-bit matrix has one scale, and rows of ``x`` are quantised dynamically. A vector is read as a diagonal matrix.
    """
    dtypes = {info.dtype for info in infos}
    if dtypes == {"float32"}:
        matrix = np.concatenate([np.diag(v) if v.ndim == 1 else v for v in values]).T
        return lambda x: np.asarray(x @ matrix, np.float32)
    if len(dtypes) > 1 or not dtypes <= set(CODES) or any(v.ndim != 2 for v in values):
        names = ", ".join(f"{info.name!r} is {info.dtype}" for info in infos)
        raise unsupported(node, f"{names}; weights must be all float32 matrices, or all int8 or all uint8 ones")
    scales = [np.full(len(v), weight_scale(node, info), np.float32) for info, v in zip(infos, values, strict=True)]
    codes = np.concatenate([signed_codes(node, info, v) for info, v in zip(infos, values, strict=True)])
    weights = HybridMatrix(codes, np.concatenate(scales))
    asymmetric = bool(option(node, "asymmetric_quantize_inputs"))
    return lambda x: weights.product(quantize_rows(x, asymmetric=asymmetric))


def require_float(node: Node, *names: str) -> None:
    """Raise UnsupportedError if a present operand with one of these names is not float32."""
    for name in names:
        info = named(node, name)
        if info is not None and info.dtype != "float32":
            raise unsupported(node, f"{name} is {info.dtype}; float32 is supported")


def weight_scale(node: Node, info: TensorInfo) -> float:
    """Return the scale of quantised weights. Raises ModelError if the number of scales is not one."""
    quant = info.quant
    if quant is None or not quant.per_tensor:
        raise node.error(f"weights {info.name!r} have {len(quant.scales) if quant else 0} scales; one is allowed here")
    return scale_of(node, info)[0]


def real_vector(node: Node, info: TensorInfo, values: Array) -> Array:
    """Return a float32 vector. Codes are dequantised."""
    if info.dtype == "float32":
        return values
    if info.dtype not in CODES:
        raise unsupported(node, f"{info.name!r} is {info.dtype}; float32, int8 and uint8 are supported")
    return np.float32(weight_scale(node, info)) * signed_codes(node, info, values).astype(np.float32)


def real_activation(node: Node) -> Function:
    """Return the fused activation as a function that does not modify the argument."""
    if fused_activation(node) == "sign_bit":
        return lambda x: np.signbit(x).astype(np.float32)
    clamp = real_clamp(node, finite=False)
    return (lambda x: x) if clamp is None else (lambda x: clamp(x.copy()))
