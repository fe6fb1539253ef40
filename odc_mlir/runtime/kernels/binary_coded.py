"""BCQ_FULLY_CONNECTED and BCQ_GATHER. The run chooses the interpretation of bits, as no public document defines it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from odc_mlir.numerics.blocks import decode_weights
from odc_mlir.ops.binary_coded import WORD_BITS, count_rows, gathered_hidden
from odc_mlir.ops.infer.common import check_elements, option
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import check_index, fetch, input_error, real_clamp, unsupported
from odc_mlir.runtime.kernels.sequences import Operands, require_float, when_known

Values = Mapping[str, Array]


def _decoded(node: Node, values: Values, prefix: str, hidden: int | None) -> Array:
    reading = node.context.binary_codes
    if reading is None:
        error = unsupported(node, "bit order and sign of binary-coded weights are not published")
        error.hint = "choose an interpretation: odc_mlir.run(..., binary_codes=BinaryCodes(...))"
        raise error
    scales, words, clusters = (values[f"{prefix}_{part}"] for part in ("scales", "binary", "clusters"))
    rows, stored = count_rows(node, clusters)
    columns = words.shape[1] * WORD_BITS if hidden is None else hidden
    if words.shape[0] != stored or scales.size != stored or columns > words.shape[1] * WORD_BITS:
        raise input_error(
            node, f"{scales.size} scales and words {list(words.shape)} do not hold {stored} rows of {columns} signs"
        )
    check_elements(node, (stored, words.shape[1] * WORD_BITS), "float32")
    return decode_weights(
        scales, words, clusters, columns, lowest_first=reading.lowest_first, one_is_plus=reading.one_is_plus
    )


def bcq_fully_connected(node: Node) -> Execute:
    """Multiply weights ``[O, H]`` by ``x [H, B]``, add the bias ``[O]`` and apply the activation."""
    require_float(node, "input", "weights_scales", "bias")
    hidden, x_of, clamp = int(option(node, "weights_hidden_size")), fetch(node, 0), real_clamp(node)
    bias_of = fetch(node, 3) if node.optional(3) is not None else None
    names = [f"weights_{part}" for part in ("scales", "binary", "clusters")]
    weights_of = when_known(node, names, lambda values: _decoded(node, values, "weights", hidden))

    def execute(operands: Operands) -> list[Array]:
        x, weights = x_of(operands), weights_of(operands)
        if x.ndim != 2 or x.shape[0] != weights.shape[1]:
            raise input_error(node, f"the input {list(x.shape)} must have {weights.shape[1]} rows")
        check_elements(node, (len(weights), x.shape[1]), "float32")
        y = np.asarray(weights @ x, np.float32)
        if bias_of is not None:
            y += bias_of(operands)[:, None]
        return [clamp(y) if clamp else y]

    return execute


def bcq_gather(node: Node) -> Execute:
    """Gather rows (axis 0) or columns (axis 1) of the table ``[O, H]``."""
    require_float(node, "input_scales")
    axis, indices_of = int(option(node, "axis")), fetch(node, 2)
    words = node.operand(1).static_shape[1]
    names = [f"input_{part}" for part in ("scales", "binary", "clusters")]
    table_of = when_known(node, names, lambda values: _decoded(node, values, "input", gathered_hidden(node, words)))

    def execute(operands: Operands) -> list[Array]:
        table, indices = table_of(operands), indices_of(operands)
        check_index(node, indices, table.shape[axis], "index")
        check_elements(node, (*indices.shape, table.shape[1 - axis % 2]), "float32")
        return [np.take(table, indices, axis=axis)]

    return execute
