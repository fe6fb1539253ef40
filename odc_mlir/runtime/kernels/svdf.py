"""SVDF on float32 activations, with float32 or 8-bit weights, and on codes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from odc_mlir.numerics.matmul import Matrix, integer_matrix
from odc_mlir.numerics.pieces import parts
from odc_mlir.numerics.svdf import feature_codes, result_codes, svdf_params
from odc_mlir.ops.infer.common import check_elements, named, option, required
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels import common, sequences

Values = Mapping[str, Array]

_WEIGHTS = ("weights_feature", "weights_time", "bias")
_INTEGER_TYPES = {
    "weights_feature": "int8",
    "weights_time": "int16",
    "bias": "int32",
    "state": "int16",
    "output": "int8",
}
_LARGEST_INPUT = 1 << 8  # largest magnitude of an 8-bit code minus its zero point


def svdf(node: Node) -> Execute:
    """Filter ``x [N, I]`` to ``[N, F / rank]``. The memory ``[N, F * M]`` drops the oldest column."""
    if node.operand(0).dtype == "int8":
        return _integer_svdf(node)
    sequences.require_float(node, "input", "bias", "state")
    features, time, rank = node.operand(1), node.operand(2), int(option(node, "rank"))
    activation, remember = sequences.real_activation(node), _Memory(node)

    def prepare(values: Values) -> tuple[sequences.Function, Array, Array | None]:
        weights = sequences.real_vector(node, time, values["weights_time"])
        return sequences.product(node, [features], [values["weights_feature"]]), weights, values.get("bias")

    weights_of = sequences.when_known(node, _WEIGHTS, prepare)

    def execute(operands: sequences.Operands) -> list[Array]:
        sums_of, weights, bias = weights_of(operands)
        memory = remember(operands, sums_of)

        def filtered(memory: Array) -> Array:
            sums = np.einsum("nfm,fm->nf", memory, weights)
            units = sums.reshape(len(sums), sums.shape[1] // rank, rank).sum(axis=2)
            return activation(units if bias is None else units + bias)

        return [_by_rows(filtered, memory, rank, "float32")]

    return execute


def _integer_svdf(node: Node) -> Execute:
    for name, dtype in _INTEGER_TYPES.items():
        info = node.results[0] if name == "output" else named(node, name)
        if info is not None and info.dtype != dtype:
            raise common.unsupported(node, f"{name} is {info.dtype}; with an int8 input it must be {dtype}")
    if common.fused_activation(node) != "relu":
        raise common.unsupported(
            node, f"the activation {common.fused_activation(node)!r} is not supported on quantised values; relu is"
        )
    x, state, out = node.operand(0), required(node, "state"), node.results[0]
    quants = [common.scale_of(node, info) for info in (x, node.operand(1), state, node.operand(2), out)]
    if any(zero for _, zero in quants[1:4]):
        raise common.unsupported(node, "weights and memory must have the zero point 0")
    (x_scale, x_zero), (f_scale, _), (s_scale, _), (t_scale, _), (y_scale, y_zero) = quants
    if (bias := named(node, "bias")) is not None:
        common.require_units_of_sums(node, bias, s_scale, t_scale)
    params = svdf_params((x_scale, f_scale, s_scale, t_scale, y_scale), x_zero, y_zero)
    rank, remember = int(option(node, "rank")), _Memory(node)

    def prepare(values: Values) -> tuple[Matrix, Array, Array | None]:
        features = integer_matrix(values["weights_feature"].T, _LARGEST_INPUT)
        return features, values["weights_time"], values.get("bias")

    weights_of = sequences.when_known(node, _WEIGHTS, prepare)

    def execute(operands: sequences.Operands) -> list[Array]:
        features, time, bias = weights_of(operands)
        memory = remember(operands, lambda x: feature_codes(x, features, params))
        return [_by_rows(lambda rows: result_codes(rows, time, bias, rank, params), memory, rank, "int8")]

    return execute


def _by_rows(compute: sequences.Function, memory: Array, rank: int, dtype: str) -> Array:
    """Return ``compute(memory)``, ``[N, F / rank]``, computed for some rows of ``memory [N, F, M]`` at a time."""
    result = np.empty((len(memory), memory.shape[1] // rank), dtype)
    for rows, *_ in parts(memory.shape, (1, 2)):
        result[rows] = compute(memory[rows])
    return result


class _Memory:
    """The latest feature sums of each filter, the newest at the end."""

    def __init__(self, node: Node) -> None:
        self._node, self._x_of = node, common.fetch(node, 0)
        self._filters, self._length = node.operand(2).static_shape

    def __call__(self, operands: sequences.Operands, sums_of: sequences.Function) -> Array:
        """Append the sums for this run's input to the memory and return it, ``[N, F, M]``."""
        x = self._x_of(operands)
        columns = self._node.operand(1).static_shape[1]
        if x.ndim != 2 or x.shape[1] != columns:
            raise common.input_error(self._node, f"the input has the shape {list(x.shape)}; it must be [*, {columns}]")
        size = self._filters * self._length
        check_elements(self._node, (len(x), size), "float32")
        whole, contents = sequences.state_of(self._node, "state", operands, len(x), size)
        memory = np.roll(contents.reshape(len(x), self._filters, self._length), -1, axis=2)
        for rows, *_ in parts(memory.shape, (1, 2)):
            memory[rows, :, -1] = sums_of(x[rows])
        sequences.keep(whole, memory)
        return memory
