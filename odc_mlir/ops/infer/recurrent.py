"""Shapes and checks of LSTM, RNN, SVDF and GRU operators."""

from __future__ import annotations

from odc_mlir.ops.infer.common import compatible, named, option, position, result, same_dim, shape_of, shape_text
from odc_mlir.ops.recurrent import GATES, PEEPHOLE_GATES
from odc_mlir.ops.spec import Node, ResultType, Shape

BASIC_OPERANDS = 5
BASIC_RESULTS = 4


def is_basic(node: Node) -> bool:
    """Return whether the operator is the basic LSTM kernel, with one matrix for all gates."""
    kind = option(node, "kernel_type")
    if kind not in ("full", "basic"):
        raise node.error(f"kernel_type is {kind!r}; allowed are full, basic")
    return bool(kind == "basic")


def gates_of(node: Node, direction: str = "") -> tuple[str, ...]:
    """Return the gates of a cell: all four, or three if the cell has no weights of the input gate."""
    return GATES if named(node, f"{direction}input_to_input_weights") else GATES[1:]


def _check(node: Node, name: str, *sizes: int | None) -> None:
    index = position(node, name)
    if node.optional(index) is None:
        return
    shape = shape_of(node, index, len(sizes))
    if not compatible(shape, sizes):
        raise node.error(f"{name} has the shape {shape_text(shape)}, expected {shape_text(sizes)}")


def _matrix(node: Node, name: str) -> Shape:
    index = position(node, name)
    shape = shape_of(node, index, (1, 2))
    if shape is None:
        return (None, None)
    return shape if len(shape) == 2 else (shape[0], shape[0])


def _cell(node: Node, features: int | None, direction: str = "") -> int | None:
    """Check the shapes of one cell's weights and biases. Return the number of outputs."""
    cells, inputs = _matrix(node, f"{direction}input_to_output_weights")
    inputs = same_dim(node, inputs, features, "columns of input weights and features")
    rows, outputs = _matrix(node, f"{direction}recurrent_to_output_weights")
    cells = same_dim(node, cells, rows, "rows of input and recurrent weights")
    for gate in GATES:
        _check(node, f"{direction}input_to_{gate}_weights", cells, inputs)
        recurrent = named(node, f"{direction}recurrent_to_{gate}_weights")
        diagonal = recurrent is not None and recurrent.shape is not None and len(recurrent.shape) == 1
        _check(node, f"{direction}recurrent_to_{gate}_weights", cells, *(() if diagonal else (outputs,)))
        _check(node, f"{direction}cell_to_{gate}_weights", cells)
        _check(node, f"{direction}{gate}_gate_bias", cells)
        _check(node, f"{direction}{gate}_layer_norm_coefficients", cells)
    _check(node, f"{direction}projection_weights", outputs, cells)
    _check(node, f"{direction}projection_bias", outputs)
    if named(node, f"{direction}projection_weights") is None:
        outputs = same_dim(node, outputs, cells, "without projection, outputs and cells")
    return outputs


def unidirectional_sequence_lstm(node: Node) -> list[ResultType]:
    """Infer ``[T, N, O]`` from ``x [T, N, I]`` (or ``[N, T, I]``)."""
    x = shape_of(node, 0, 3)
    outputs = _cell(node, None if x is None else x[2])
    return result(node, node.operand(0).dtype, (*(x or (None, None, None))[:2], outputs))


def lstm(node: Node) -> list[ResultType]:
    """Infer ``[N, O]`` from ``x [N, I]``. The basic kernel also returns state and intermediate values."""
    if is_basic(node):
        return _basic_lstm(node)
    x = shape_of(node, 0, 2)
    outputs = _cell(node, None if x is None else x[1])
    return result(node, node.operand(0).dtype, (x[0] if x else None, outputs))


def _basic_lstm(node: Node) -> list[ResultType]:
    x, last, weights = shape_of(node, 0, 2), shape_of(node, 1, 2), shape_of(node, 2, 2)
    bias, state = shape_of(node, 3, 1), shape_of(node, 4, 2)
    batch, features = x or (None, None)
    outputs: int | None = None
    for shape, what in ((last, "the last output"), (state, "the cell state")):
        if shape is not None:
            batch = same_dim(node, batch, shape[0], f"batches of the input and {what}")
            outputs = same_dim(node, outputs, shape[1], f"features of the last output and {what}")
    total = None if features is None or outputs is None else features + outputs
    rows = None if outputs is None else 4 * outputs
    if weights is not None:
        rows = same_dim(node, rows, weights[0], "four times the outputs and rows of the weights")
        total = same_dim(node, total, weights[1], "inputs and outputs and columns of the weights")
    if bias is not None:
        rows = same_dim(node, rows, bias[0], "rows of weights and bias")
    sizes, infos = (outputs, outputs, total, rows), (node.operand(1), node.operand(4), node.operand(0), node.results[3])
    return [type for size, info in zip(sizes, infos, strict=True) for type in result(node, info.dtype, (batch, size))]


def both_ways(node: Node, x: Shape | None, forward: int | None, backward: int | None) -> list[ResultType]:
    """Infer the results of a bidirectional operator: a joint result, or a result for each direction."""
    dtype, outer = node.operand(0).dtype, (x or (None, None))[:2]
    if option(node, "merge_outputs"):
        together = None if forward is None or backward is None else forward + backward
        return result(node, dtype, (*outer, together))
    return [*result(node, dtype, (*outer, forward)), *result(node, dtype, (*outer, backward))]


def aux_features(node: Node, x: Shape | None) -> int | None:
    """Return the number of features of the auxiliary input. Raises ModelError if it does not match ``x``."""
    if named(node, "aux_input") is None:
        return None
    aux = shape_of(node, position(node, "aux_input"), 3)
    if aux is None:
        return None
    for axis in (0, 1) if x is not None else ():
        same_dim(node, aux[axis], (x or aux)[axis], f"dimension {axis} of the input and the auxiliary input")
    return aux[2]


def bidirectional_sequence_lstm(node: Node) -> list[ResultType]:
    """Infer one result per direction, or one for both, from ``x [T, N, I]`` (or ``[N, T, I]``)."""
    x = shape_of(node, 0, 3)
    features, aux = None if x is None else x[2], aux_features(node, x)
    outputs = []
    for direction in ("fw_", "bw_"):
        outputs.append(_cell(node, features, direction))
        cells = _matrix(node, f"{direction}input_to_output_weights")[0]
        for gate in GATES:
            _check(node, f"{direction}aux_input_to_{gate}_weights", cells, aux)
    return both_ways(node, x, *outputs)


def _all_or_none(node: Node, names: list[str]) -> bool:
    given = [name for name in names if named(node, name) is not None]
    if given and len(given) < len(names):
        missing = next(name for name in names if name not in given)
        raise node.error(f"{given[0]} is given, {missing} is omitted; they must be given together")
    return bool(given)


def check_cell(node: Node, direction: str = "") -> None:
    """Raise ModelError for an incomplete cell or a negative clip."""
    for name in ("cell_clip", "proj_clip"):
        if not option(node, name) >= 0:
            raise node.error(f"{name} is {option(node, name)}; it must not be negative")
    gates = gates_of(node, direction)
    _all_or_none(node, [f"{direction}input_to_input_weights", f"{direction}recurrent_to_input_weights"])
    _all_or_none(node, [f"{direction}cell_to_{gate}_weights" for gate in PEEPHOLE_GATES if gate in gates])
    _all_or_none(node, [f"{gate}_layer_norm_coefficients" for gate in gates])
    if "input" in gates and named(node, f"{direction}input_gate_bias") is None:
        raise node.error(f"{direction}input_gate_bias is omitted; the input gate needs it")
    if named(node, f"{direction}projection_bias") and named(node, f"{direction}projection_weights") is None:
        raise node.error(f"{direction}projection_bias is given, {direction}projection_weights is omitted")


def verify_lstm(node: Node) -> None:
    """Check the operands of either kernel."""
    if not is_basic(node):
        if len(node.results) != 1:
            raise node.error(f"the full kernel has 1 result, found {len(node.results)}")
        check_cell(node)
    elif len(node.operands) != BASIC_OPERANDS or len(node.results) != BASIC_RESULTS:
        raise node.error(
            f"the basic kernel takes {BASIC_OPERANDS} operands and gives {BASIC_RESULTS} results, "
            f"found {len(node.operands)} and {len(node.results)}"
        )


def verify_bidirectional_sequence_lstm(node: Node) -> None:
    """Check both cells and the weights of the auxiliary input."""
    wanted = []
    for direction in ("fw_", "bw_"):
        check_cell(node, direction)
        wanted += [f"{direction}aux_input_to_{gate}_weights" for gate in gates_of(node, direction)]
    if _all_or_none(node, wanted) and named(node, "aux_input") is None:
        raise node.error("aux_input is omitted; its weights are given")


def _named_shape(node: Node, name: str, rank: int) -> Shape:
    index = position(node, name)
    shape = None if node.optional(index) is None else shape_of(node, index, rank)
    return (None,) * rank if shape is None else shape


def _units(node: Node, features: int | None, direction: str = "") -> int | None:
    """Check weights ``[U, I]``, ``[U, U]`` and bias ``[U]`` of one layer. Return ``U``."""
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
    """Infer one result per direction, or one for both, from ``x [T, N, I]`` (or ``[N, T, I]``)."""
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

    If the declared result has the rank of the state, it has the shape of the state.
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

    ``hidden_hidden`` multiplies the input despite the name. It multiplies the state only if the sizes require this.
    """
    x, state = shape_of(node, 0, 3), shape_of(node, position(node, "state"), 2)
    columns = _named_shape(node, "hidden_hidden", 2)[1]
    if x is not None and state is not None and columns not in (None, x[2]) and columns == state[1]:
        return "hidden_hidden", "hidden_input"
    return "hidden_input", "hidden_hidden"


def verify_bidirectional_sequence_rnn(node: Node) -> None:
    """Check that weights for the auxiliary input exist in both directions or none."""
    given = [named(node, f"{direction}aux_input_weights") is not None for direction in ("fw_", "bw_")]
    if given[0] != given[1]:
        raise node.error("weights of the auxiliary input are given for one direction only")
    if given[0] and named(node, "aux_input") is None:
        raise node.error("aux_input is omitted; its weights are given")


def verify_svdf(node: Node) -> None:
    """Check that the memory has columns."""
    memory = _named_shape(node, "weights_time", 2)[1]
    if memory == 0:
        raise node.error(f"weights_time has the shape {shape_text(node.operand(2).shape)}; it must have columns")
