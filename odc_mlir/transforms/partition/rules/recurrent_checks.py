"""The checks behind the placement rules of LSTM cells; see :mod:`odc_mlir.transforms.partition.rules.checks`."""

from __future__ import annotations

from odc_mlir.errors import OdcError
from odc_mlir.ops.infer.named import constants, named
from odc_mlir.ops.spec import Node
from odc_mlir.runtime.kernels.lstm_integer import integer_lstm
from odc_mlir.transforms.partition.rules.checks import PlacementLimits


def lstm_parts(node: Node, _: PlacementLimits) -> str | None:
    """An LSTM cell of gates, cell state and output only."""
    parts = ("cell_to_", "projection_", "_layer_norm_coefficients")
    for index, tensor in enumerate(node.operands):
        name = node.spec.operand_name(index)
        if tensor is not None and any(part in name for part in parts):
            return f"{tensor.name!r} is the operand {name}"
    return None


def lstm_constants(node: Node, _: PlacementLimits) -> str | None:
    """All that an LSTM cell reads beside its input and its state is constant."""
    for index, tensor in enumerate(node.operands):
        if index and tensor is not None and not tensor.is_const and index not in node.mutated:
            return f"{tensor.name!r} is computed at run time"
    return None


def lstm_states(node: Node, _: PlacementLimits) -> str | None:
    """Both states of an LSTM cell are variables, so that the next run begins with what this one leaves."""
    for name in ("output_state", "cell_state"):
        state = named(node, name)
        if state is None:
            return f"the {name} is left out"
        if not state.is_variable:
            return f"{state.name!r} is not a variable"
    return None


def lstm_integers(node: Node, _: PlacementLimits) -> str | None:
    """The host's kernel can prepare an LSTM cell on codes."""
    x = node.operand(0)
    if x.dtype != "int8":
        return f"{x.name!r} is {x.dtype}, the cell's input must be int8"
    try:
        integer_lstm(node, constants(node))
    except OdcError as error:
        return error.message
    return None
