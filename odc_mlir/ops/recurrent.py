"""Recurrent operators: LSTM, RNN, GRU and SVDF.

Names of operands contain the gate, and in bidirectional operators the direction. Shape functions and kernels look them
up by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from odc_mlir.ops.spec import PURE, STATEFUL, Bias, OperatorFamily, QuantRule, gates, real_only

GATES = ("input", "forget", "cell", "output")
PEEPHOLE_GATES = ("input", "forget", "output")  # gates that read the cell state
DIRECTIONS = ("fw_", "bw_")

_KEEPS_STATE = "its state has no recorded range"


def _optional(*names: str) -> str:
    return " ".join(f"{name}?" for name in names)


def _states(*names: str) -> str:
    """Return optional state operands. An omitted state is zero at the start of each run."""
    return " ".join(f"{name}*?" for name in names)


def _by_gate(pattern: str) -> str:
    """Return one operand per gate. Without operands, the input gate is coupled to the forget gate."""
    return " ".join(pattern.format(gate) + "?" * (gate == "input") for gate in GATES)


def _cell(direction: str = "") -> str:
    return " ".join(
        (
            _by_gate(direction + "input_to_{}_weights"),
            _by_gate(direction + "recurrent_to_{}_weights"),
            _optional(*(f"{direction}cell_to_{gate}_weights" for gate in PEEPHOLE_GATES)),
            _by_gate(direction + "{}_gate_bias"),
            _optional(f"{direction}projection_weights", f"{direction}projection_bias"),
        )
    )


def _full_or_basic_lstm() -> str:
    """Return the operands of the full kernel. The basic kernel has the first five, with states 1 and 4."""
    words = [word.rstrip("?") + "?" if index >= 5 else word for index, word in enumerate(_FULL_LSTM.split())]
    words[1], words[4] = f"{words[1]}*", f"{words[4]}*"
    return " ".join(words)


def _rnn_cell(direction: str = "") -> str:
    return f"{direction}input_weights {direction}recurrent_weights {direction}bias {direction}hidden_state*?"


def _matrices(operands: Iterable[str]) -> tuple[int, ...]:
    names = [word.rstrip("?*") for word in operands]
    return tuple(i for i, name in enumerate(names) if name.endswith("_weights") and "cell_to_" not in name)


_FULL_LSTM = f"input {_cell()} {_states('output_state', 'cell_state')} " + _optional(
    *(f"{gate}_layer_norm_coefficients" for gate in GATES)
)
_BOTH_LSTM = " ".join(
    (
        "input",
        *map(_cell, DIRECTIONS),
        _states("fw_output_state", "fw_cell_state", "bw_output_state", "bw_cell_state"),
        "aux_input?",
        _optional(*(f"{way}aux_input_to_{gate}_weights" for way in DIRECTIONS for gate in GATES)),
    )
)
_RNN = f"input {_rnn_cell()}"
_BOTH_RNN = f"input {_rnn_cell('fw_')} {_rnn_cell('bw_')} aux_input? fw_aux_input_weights? bw_aux_input_weights?"

_recurrent = OperatorFamily(
    "odc_mlir.ops.infer.recurrent", "rnn", version=3, traits=STATEFUL, verify="shapes", macs="recurrent"
)
_lstm = replace(_recurrent, kernels="lstm", verify="own")


def _kept(operands: str) -> QuantRule:
    return real_only(_KEEPS_STATE, stored=_matrices(operands.split()))


SPECS = (
    _lstm(
        "LSTM",
        _full_or_basic_lstm(),
        "one step of an LSTM cell",
        gives="output cell_state_output? concatenated? gates?",
        options="LSTMOptions",
        version=4,
        quant=_kept(_full_or_basic_lstm()),
        macs="lstm",
    ),
    _lstm(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        _FULL_LSTM,
        "LSTM cell over a sequence",
        options="UnidirectionalSequenceLSTMOptions",
        version=4,
        quant=gates(
            weights=tuple(range(1, 9)),
            stored=_matrices(_FULL_LSTM.split()),
            biases={12 + gate: Bias(0, 1 + gate) for gate in range(4)},
            output=18,
            cell=19,
        ),
        verify="check_cell",
    ),
    _lstm(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        _BOTH_LSTM,
        "LSTM cells over a sequence in both directions",
        gives="output backward_output?",
        options="BidirectionalSequenceLSTMOptions",
        quant=_kept(_BOTH_LSTM),
    ),
    _recurrent("RNN", _RNN, "one step of a recurrent fully connected layer", options="RNNOptions", quant=_kept(_RNN)),
    _recurrent(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        _RNN,
        "recurrent fully connected layer over a sequence",
        options="SequenceRNNOptions",
        quant=_kept(_RNN),
    ),
    _recurrent(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        _BOTH_RNN,
        "recurrent fully connected layers over a sequence in both directions",
        gives="output backward_output?",
        options="BidirectionalSequenceRNNOptions",
        quant=_kept(_BOTH_RNN),
        verify="own",
    ),
    _recurrent(
        "SVDF",
        "input weights_feature weights_time bias? state*?",
        "filters over the latest inputs, as products of a feature filter and a time filter",
        options="SVDFOptions",
        version=4,
        quant=real_only(_KEEPS_STATE, stored=(1, 2)),
        kernels="svdf",
        verify="own",
    ),
    _recurrent(
        "GRU",
        "input hidden_hidden hidden_hidden_bias? hidden_input hidden_input_bias? state",
        "gated recurrent unit over a sequence",
        options="GRUOptions",
        version=1,
        traits=PURE,
        quant=real_only(_KEEPS_STATE, stored=(1, 3)),
        kernels="gru",
        macs="gru",
    ),
)
