"""Shapes and checks of RNN operators, SVDF and GRU."""

from __future__ import annotations

from odc_mlir.ops.infer.common import named, option, position, result, same_dim, shape_of, shape_text
from odc_mlir.ops.infer.lstm import aux_features, both_ways
from odc_mlir.ops.spec import Node, ResultType, Shape


def _named_shape(node: Node, name: str, rank: int) -> Shape:
    """Return the shape of an operand, of unknown sizes if it is omitted or its rank is unknown."""
    index = position(node, name)
    shape = None if node.optional(index) is None else shape_of(node, index, rank)
    return (None,) * rank if shape is None else shape


def _units(node: Node, features: int | None, direction: str = "") -> int | None:
    """Check one layer's weights ``[U, I]`` and ``[U, U]`` and bias ``[U]`` and return ``U``."""
    units, inputs = _named_shape(node, f"{direction}input_weights", 2)
    same_dim(node, inputs, features, f"columns of {direction}input_weights and features")
    for size in _named_shape(node, f"{direction}recurrent_weights", 2):
        units = same_dim(node, units, size, f"units of {direction}input_weights and {direction}recurrent_weights")
    (bias,) = _named_shape(node, f"{direction}bias", 1)
    return same_dim(node, units, bias, f"units of {direction}input_weights and {direction}bias")


def rnn(node: Node) -> list[ResultType]:
    """Infer ``[N, U]`` from ``x [N, I]``."""
    batch, features = shape_of(node, 0, 2) or (None, None)
    return result(node, node.operand(0).dtype, (batch, _units(node, features)))


def unidirectional_sequence_rnn(node: Node) -> list[ResultType]:
    """Infer ``[T, N, U]`` from ``x [T, N, I]`` (or ``[N, T, I]``)."""
    *outer, features = shape_of(node, 0, 3) or (None, None, None)
    return result(node, node.operand(0).dtype, (*outer, _units(node, features)))


def bidirectional_sequence_rnn(node: Node) -> list[ResultType]:
    """Infer one result per direction from ``x [T, N, I]`` (or ``[N, T, I]``), or one with both."""
    x = shape_of(node, 0, 3)
    aux, units = aux_features(node, x), []
    for direction in ("fw_", "bw_"):
        units.append(_units(node, None if x is None else x[2], direction))
        rows, columns = _named_shape(node, f"{direction}aux_input_weights", 2)
        same_dim(node, rows, units[-1], f"rows of {direction}aux_input_weights and units")
        same_dim(node, columns, aux, f"columns of {direction}aux_input_weights and auxiliary features")
    return both_ways(node, x, *units)


def svdf(node: Node) -> list[ResultType]:
    """Infer ``[N, F / rank]`` from ``x [N, I]`` and filters ``[F, I]`` and ``[F, M]``."""
    batch, features = shape_of(node, 0, 2) or (None, None)
    filters, inputs = shape_of(node, 1, 2) or (None, None)
    same_dim(node, inputs, features, "columns of weights_feature and features")
    rows, memory = shape_of(node, 2, 2) or (None, None)
    filters = same_dim(node, filters, rows, "rows of weights_feature and weights_time")
    rank = int(option(node, "rank"))
    if rank < 1 or (filters is not None and filters % rank):
        raise node.error(f"rank is {rank}; it must be positive and divide the {filters} filters")
    units = None if filters is None else filters // rank
    (bias,) = _named_shape(node, "bias", 1)
    return result(node, node.operand(0).dtype, (batch, same_dim(node, units, bias, "units and biases")))


def gru(node: Node) -> list[ResultType]:
    """Infer the last state ``[1, N, n]`` or all states ``[T, N, n]`` from ``x [T, N, I]``.

    A result declared with the state's rank has the state's shape.
    """
    x, state = shape_of(node, 0, 3), shape_of(node, position(node, "state"), 2)
    steps, batch, features = x or (None, None, None)
    states, units = state or (None, None)
    batch = same_dim(node, batch, states, "batches of input and state")
    by_state, by_input = gru_matrices(node)
    for name, columns in ((by_input, features), (by_state, units)):
        rows, found = _named_shape(node, name, 2)
        same_dim(node, found, columns, f"columns of {name} and {'features' if name == by_input else 'state'}")
        for size in (rows, *_named_shape(node, f"{name}_bias", 1)):
            if size is not None and units is not None and size != 3 * units:
                raise node.error(f"{name} has {size} rows; three gates of {units} are needed")
    dtype, declared = node.operand(0).dtype, node.results[0].shape
    if declared is not None and len(declared) == 2:
        return result(node, dtype, (batch, units))
    return result(node, dtype, (steps if option(node, "return_sequences") else 1, batch, units))


def gru_matrices(node: Node) -> tuple[str, str]:
    """Return the names of the matrices that multiply the state and the input.

    Despite its name, ``hidden_hidden`` multiplies the input, unless only the reverse matches the sizes.
    """
    x, state = shape_of(node, 0, 3), shape_of(node, position(node, "state"), 2)
    columns = _named_shape(node, "hidden_hidden", 2)[1]
    if x is not None and state is not None and columns not in (None, x[2]) and columns == state[1]:
        return "hidden_hidden", "hidden_input"
    return "hidden_input", "hidden_hidden"


def verify_bidirectional_sequence_rnn(node: Node) -> None:
    """Check that weights of the auxiliary input are given with it, for both directions."""
    given = [named(node, f"{direction}aux_input_weights") is not None for direction in ("fw_", "bw_")]
    if given[0] != given[1]:
        raise node.error("weights of the auxiliary input are given for one direction only")
    if given[0] and named(node, "aux_input") is None:
        raise node.error("aux_input is left out; its weights are given")


def verify_svdf(node: Node) -> None:
    """Check that the memory has columns."""
    memory = _named_shape(node, "weights_time", 2)[1]
    if memory == 0:
        raise node.error(f"weights_time has the shape {shape_text(node.operand(2).shape)}; it must have columns")
