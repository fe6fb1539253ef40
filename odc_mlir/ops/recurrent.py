"""Recurrent operators: LSTM, RNN, GRU, and SVDF, whose state are its last inputs.

Names of operands contain the gate, and in bidirectional operators the direction, so that shape functions and kernels
can find them.
"""

from __future__ import annotations

from collections.abc import Iterable

from odc_mlir.ops.quantization import Bias, QuantRule, gates, real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

GATES = ("input", "forget", "cell", "output")
PEEPHOLE_GATES = ("input", "forget", "output")  # the gates that see the cell
DIRECTIONS = ("fw_", "bw_")

_KERNELS = "odc_mlir.runtime.kernels"
_INFER = "odc_mlir.ops.infer"
_MACS = "odc_mlir.ops.macs"
_STATEFUL = frozenset({Trait.STATEFUL})
_KEEPS_STATE = "its state has no recorded range"
_INPUT = Operand("input")


def _optional(*names: str) -> tuple[Operand, ...]:
    return tuple(Operand(name, optional=True) for name in names)


def _states(*names: str) -> tuple[Operand, ...]:
    """Return optional state operands; omitted state is zero in each run."""
    return tuple(Operand(name, optional=True, mutated=True) for name in names)


def _by_gate(pattern: str, gates: Iterable[str] = GATES) -> tuple[Operand, ...]:
    """Return one operand per gate; without an input gate it is coupled to the forget gate."""
    return tuple(Operand(pattern.format(gate), optional=gate == "input") for gate in gates)


def _cell(direction: str = "") -> tuple[Operand, ...]:
    """Return weights and biases of one LSTM cell."""
    return (
        *_by_gate(direction + "input_to_{}_weights"),
        *_by_gate(direction + "recurrent_to_{}_weights"),
        *_optional(*(f"{direction}cell_to_{gate}_weights" for gate in PEEPHOLE_GATES)),
        *_by_gate(direction + "{}_gate_bias"),
        *_optional(f"{direction}projection_weights", f"{direction}projection_bias"),
    )


def _full_lstm() -> tuple[Operand, ...]:
    norms = _optional(*(f"{gate}_layer_norm_coefficients" for gate in GATES))
    return (_INPUT, *_cell(), *_states("output_state", "cell_state"), *norms)


def _full_or_basic_lstm() -> tuple[Operand, ...]:
    """Return the operands of the full kernel; the basic kernel uses the first five.

    In the basic kernel these are input, previous output, weights, bias and cell state: 1 and 4 are state.
    """
    return tuple(
        Operand(operand.name, optional=index >= 5 or operand.optional, mutated=operand.mutated or index in (1, 4))
        for index, operand in enumerate(_full_lstm())
    )


def _rnn_cell(direction: str = "") -> tuple[Operand, ...]:
    weights = (f"{direction}input_weights", f"{direction}recurrent_weights", f"{direction}bias")
    return (*map(Operand, weights), *_states(f"{direction}hidden_state"))


def _matrices(operands: Iterable[Operand]) -> tuple[int, ...]:
    """Return the indices of weights that are matrices, not vectors."""
    return tuple(
        place
        for place, operand in enumerate(operands)
        if operand.name.endswith("_weights") and "cell_to_" not in operand.name
    )


def _spec(
    name: str,
    operands: tuple[Operand, ...],
    kernel: str,
    summary: str,
    *,
    infer: str = "recurrent",
    options: str,
    version: int,
    results: tuple[Operand, ...] = (Operand("output"),),
    traits: frozenset[Trait] = _STATEFUL,
    quant: QuantRule | None = None,
    macs: str = "recurrent",
) -> OpSpec:
    function = name.lower()
    return OpSpec(
        name,
        operands,
        results,
        options,
        f"{_INFER}.{infer}:{function}",
        f"{_KERNELS}.{kernel}:{function}",
        f"{_INFER}.{infer}:verify_{function}",
        traits,
        version,
        quant=quant or real_only(_KEEPS_STATE, stored=_matrices(operands)),
        summary=summary,
        macs=f"{_MACS}:{macs}",
    )


_BOTH_WAYS = (Operand("output"), *_optional("backward_output"))

SPECS = (
    _spec(
        "LSTM",
        _full_or_basic_lstm(),
        "lstm",
        "one step of an LSTM cell",
        infer="lstm",
        options="LSTMOptions",
        version=4,
        results=(Operand("output"), *_optional("cell_state_output", "concatenated", "gates")),
        macs="lstm",
    ),
    _spec(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        _full_lstm(),
        "lstm",
        "LSTM cell over a sequence",
        infer="lstm",
        options="UnidirectionalSequenceLSTMOptions",
        version=4,
        quant=gates(
            weights=tuple(range(1, 9)),
            stored=_matrices(_full_lstm()),
            biases={12 + gate: Bias(0, 1 + gate) for gate in range(4)},
            output=18,
            cell=19,
        ),
    ),
    _spec(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        (
            _INPUT,
            *_cell("fw_"),
            *_cell("bw_"),
            *_states("fw_output_state", "fw_cell_state", "bw_output_state", "bw_cell_state"),
            *_optional("aux_input"),
            *_optional(*(f"{way}aux_input_to_{gate}_weights" for way in DIRECTIONS for gate in GATES)),
        ),
        "lstm",
        "LSTM cells over a sequence in both directions",
        infer="lstm",
        options="BidirectionalSequenceLSTMOptions",
        version=3,
        results=_BOTH_WAYS,
    ),
    _spec(
        "RNN",
        (_INPUT, *_rnn_cell()),
        "rnn",
        "one step of a recurrent fully connected layer",
        options="RNNOptions",
        version=3,
    ),
    _spec(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        (_INPUT, *_rnn_cell()),
        "rnn",
        "recurrent fully connected layer over a sequence",
        options="SequenceRNNOptions",
        version=3,
    ),
    _spec(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        (
            _INPUT,
            *_rnn_cell("fw_"),
            *_rnn_cell("bw_"),
            *_optional("aux_input", "fw_aux_input_weights", "bw_aux_input_weights"),
        ),
        "rnn",
        "recurrent fully connected layers over a sequence in both directions",
        options="BidirectionalSequenceRNNOptions",
        version=3,
        results=_BOTH_WAYS,
    ),
    _spec(
        "SVDF",
        (_INPUT, Operand("weights_feature"), Operand("weights_time"), *_optional("bias"), *_states("state")),
        "svdf",
        "filters over the last inputs, factored into features and time",
        options="SVDFOptions",
        version=4,
        quant=real_only(_KEEPS_STATE, stored=(1, 2)),
    ),
    _spec(
        "GRU",
        (
            _INPUT,
            Operand("hidden_hidden"),
            *_optional("hidden_hidden_bias"),
            Operand("hidden_input"),
            *_optional("hidden_input_bias"),
            Operand("state"),
        ),
        "gru",
        "gated recurrent unit over a sequence",
        options="GRUOptions",
        version=1,
        traits=frozenset({Trait.PURE}),
        quant=real_only(_KEEPS_STATE, stored=(1, 3)),
        macs="gru",
    ),
)
