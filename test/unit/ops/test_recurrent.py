"""Shapes of recurrent operators' results, and what their verifiers refuse."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from helpers import recurrent
from helpers.nodes import const, node, tensor
from helpers.recurrent import Form
from odc_mlir import ops
from odc_mlir.errors import ModelError
from odc_mlir.ops.check import check_node
from odc_mlir.ops.spec import Node, Shape, TensorInfo


def shapes(made: Node) -> list[Shape | None]:
    return [found.shape for found in made.spec.infer_function(made)]


def with_operands(made: Node, changes: dict[str, TensorInfo | None], **options: Any) -> Node:
    names = [operand.name for operand in made.spec.operands]
    operands = list(made.operands)
    for name, info in changes.items():
        operands[names.index(name)] = info
    return dataclasses.replace(made, operands=tuple(operands), options={**made.options, **options})


def vague(made: Node, shape: Shape | None) -> Node:
    """The operator with operands of which only this is known."""
    operands = tuple(info and dataclasses.replace(info, shape=shape, data=None) for info in made.operands)
    return dataclasses.replace(made, operands=operands)


F = Form("float32")
PROJECTED = Form("float32", projection=True)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (recurrent.sequence_lstm(F, 0)[0], [(2, 4, 5)]),
        (recurrent.sequence_lstm(PROJECTED, 0, time_major=True)[0], [(4, 2, 2)]),
        (recurrent.sequence_lstm(Form(diagonal=True), 0)[0], [(2, 4, 5)]),
        (recurrent.full_lstm(PROJECTED, 0)[0], [(2, 2)]),
        (recurrent.basic_lstm(codes=True, seed=0)[0], [(2, 4), (2, 4), (2, 7), (2, 16)]),
        (recurrent.bidirectional_lstm(PROJECTED, 0)[0], [(4, 2, 2), (4, 2, 2)]),
        (recurrent.bidirectional_lstm(F, 0, merge_outputs=True)[0], [(4, 2, 10)]),
        (recurrent.rnn("RNN", F, 0)[0], [(2, 5)]),
        (recurrent.rnn("UNIDIRECTIONAL_SEQUENCE_RNN", F, 0)[0], [(2, 4, 5)]),
        (recurrent.rnn("BIDIRECTIONAL_SEQUENCE_RNN", F, 0, aux="beside")[0], [(2, 4, 5), (2, 4, 5)]),
        (recurrent.svdf(F, 0, rank=3)[0], [(2, 5)]),
    ],
    ids=lambda value: value.spec.name if isinstance(value, Node) else "",
)
def test_shapes(made: Node, expected: list[Shape]) -> None:
    assert shapes(made) == expected
    check_node(made)
    # Whatever is not known stays unknown, and is no reason to refuse.
    for found, wanted in zip(shapes(vague(made, None)), expected, strict=True):
        assert found == (None,) * len(wanted)


@pytest.mark.parametrize(
    ("declared", "sequences", "expected"),
    [(None, False, (1, 2, 4)), (None, True, (3, 2, 4)), ((2, 4), True, (2, 4)), ((1, 2, 4), False, (1, 2, 4))],
)
def test_gru_shapes(declared: Shape | None, sequences: bool, expected: Shape) -> None:
    made = gru(result=tensor("float32", declared), return_sequences=sequences)
    assert shapes(made) == [expected]


def gru(result: TensorInfo | None = None, **options: Any) -> Node:
    operands = [tensor("float32", s) for s in ((3, 2, 5), (12, 5), (12,), (12, 4), (12,), (2, 4))]
    return node("GRU", operands, result or tensor("float32", None), **options)


def test_unknown_sizes_in_the_middle() -> None:
    made, _ = recurrent.sequence_lstm(F, 0)
    assert shapes(with_operands(made, {"input": tensor("float32", (None, None, 3))})) == [(None, None, 5)]
    merged, _ = recurrent.bidirectional_lstm(F, 0, merge_outputs=True)
    open_weights = {"bw_recurrent_to_output_weights": tensor("float32", None)}
    assert shapes(with_operands(merged, open_weights)) == [(4, 2, 10)]


def matrix(*shape: int) -> TensorInfo:
    return tensor("float32", shape)


UNI, _ = recurrent.sequence_lstm(Form(peephole=True, projection=True, norm=True), 0)
BOTH, _ = recurrent.bidirectional_lstm(F, 0, aux="beside")
RNN, _ = recurrent.rnn("RNN", F, 0)
BOTH_RNN, _ = recurrent.rnn("BIDIRECTIONAL_SEQUENCE_RNN", F, 0, aux="beside")
SVDF, _ = recurrent.svdf(F, 0, rank=2)
BASIC, _ = recurrent.basic_lstm(codes=False, seed=0)
FULL, _ = recurrent.full_lstm(F, 0)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (with_operands(UNI, {"input": matrix(4, 3)}), "its rank must be 3"),
        (with_operands(UNI, {"input": matrix(2, 4, 9)}), "columns of input weights and features: 3 and 9"),
        (with_operands(UNI, {"recurrent_to_output_weights": matrix(6, 2)}), "rows of input and recurrent weights"),
        (
            with_operands(UNI, {"input_to_cell_weights": matrix(5, 4)}),
            r"input_to_cell_weights has the shape \[5, 4\], expected \[5, 3\]",
        ),
        (with_operands(UNI, {"cell_to_input_weights": matrix(4)}), r"cell_to_input_weights has the shape \[4\]"),
        (with_operands(UNI, {"forget_gate_bias": matrix(1, 5)}), "its rank must be 1"),
        (with_operands(UNI, {"projection_weights": matrix(5, 2)}), r"projection_weights has the shape \[5, 2\]"),
        (with_operands(UNI, {"projection_bias": matrix(5)}), r"projection_bias has the shape \[5\]"),
        (with_operands(UNI, {"cell_layer_norm_coefficients": matrix(4)}), "cell_layer_norm_coefficients has"),
        (
            with_operands(UNI, {"projection_weights": None, "projection_bias": None}),
            "without projection, outputs and cells: 2 and 5",
        ),
        (with_operands(UNI, {"projection_weights": None}), "projection_bias is given, projection_weights is omitted"),
        (with_operands(UNI, {"recurrent_to_input_weights": None}), "recurrent_to_input_weights is omitted"),
        (with_operands(UNI, {"input_gate_bias": None}), "input_gate_bias is omitted; the input gate needs it"),
        (
            with_operands(UNI, {"cell_to_output_weights": None}),
            "cell_to_output_weights is omitted; they must be given",
        ),
        (with_operands(UNI, {"forget_layer_norm_coefficients": None}), "forget_layer_norm_coefficients is omitted"),
        (with_operands(UNI, {}, cell_clip=-1.0), "cell_clip is -1.0; it must not be negative"),
        (with_operands(UNI, {}, proj_clip=float("nan")), "proj_clip is nan"),
        (with_operands(FULL, {}, kernel_type="odd"), "kernel_type is 'odd'; allowed are full, basic"),
        (with_operands(FULL, {}, kernel_type="basic"), "the basic kernel takes 5 operands and gives 4 results, found"),
        (dataclasses.replace(FULL, results=FULL.results * 2), "the full kernel has 1 result, found 2"),
        (dataclasses.replace(BASIC, operands=(matrix(3, 3), *BASIC.operands[1:])), "batches of the input and the last"),
        (dataclasses.replace(BASIC, operands=(matrix(2, 4), *BASIC.operands[1:])), "columns of the weights: 8 and 7"),
        (dataclasses.replace(BASIC, operands=(*BASIC.operands[:4], matrix(2, 5))), "last output and the cell state"),
        (
            dataclasses.replace(BASIC, operands=(*BASIC.operands[:3], matrix(9), BASIC.operands[4])),
            "rows of weights and bias: 16 and 9",
        ),
        (with_operands(BOTH, {"aux_input": matrix(4, 3, 3)}), "dimension 1 of the input and the auxiliary input"),
        (with_operands(BOTH, {"aux_input": None}), "aux_input is omitted; its weights are given"),
        (with_operands(BOTH, {"bw_aux_input_to_cell_weights": None}), "bw_aux_input_to_cell_weights is omitted"),
        (with_operands(BOTH, {"fw_aux_input_to_cell_weights": matrix(5, 9)}), r"expected \[5, 3\]"),
        (with_operands(RNN, {"recurrent_weights": matrix(5, 6)}), "units of input_weights and recurrent_weights"),
        (with_operands(RNN, {"bias": matrix(6)}), "units of input_weights and bias"),
        (with_operands(RNN, {"input_weights": matrix(5, 4)}), "columns of input_weights and features"),
        (with_operands(BOTH_RNN, {"aux_input": None}), "aux_input is omitted; its weights are given"),
        (with_operands(BOTH_RNN, {"bw_aux_input_weights": None}), "given for one direction only"),
        (with_operands(BOTH_RNN, {"fw_aux_input_weights": matrix(6, 3)}), "rows of fw_aux_input_weights and units"),
        (with_operands(BOTH_RNN, {"fw_aux_input_weights": matrix(5, 4)}), "columns of fw_aux_input_weights"),
        (with_operands(SVDF, {}, rank=3), "rank is 3; it must be positive and divide the 10 filters"),
        (with_operands(SVDF, {}, rank=0), "rank is 0"),
        (with_operands(SVDF, {"weights_time": matrix(10, 0)}), "it must have columns"),
        (with_operands(SVDF, {"weights_time": matrix(9, 3)}), "rows of weights_feature and weights_time"),
        (with_operands(SVDF, {"bias": matrix(4)}), "units and biases: 5 and 4"),
        (dataclasses.replace(gru(), operands=(matrix(3, 1, 5), *gru().operands[1:])), "batches of input and state"),
        (dataclasses.replace(gru(), operands=(matrix(3, 2, 6), *gru().operands[1:])), "hidden_hidden and features"),
        (
            dataclasses.replace(gru(), operands=(*gru().operands[:3], matrix(11, 4), *gru().operands[4:])),
            "hidden_input has 11 rows; three gates of 4 are needed",
        ),
        (
            dataclasses.replace(gru(), operands=(*gru().operands[:4], matrix(9), gru().operands[5])),
            "hidden_input has 9 rows",
        ),
    ],
)
def test_refused(made: Node, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        check_node(made, result_types=False)


def test_state_may_have_any_size_until_it_runs() -> None:
    """Models whose state does not fit can be imported and looked at."""
    made = with_operands(UNI, {"cell_state": matrix(1, 5), "output_state": const([[0.0]], "float32")})
    check_node(made)


def test_states_are_mutated() -> None:
    names = {name: [made.spec.operand_name(i) for i in made.mutated] for name, made in (("uni", UNI), ("both", BOTH))}
    assert names["uni"] == ["output_state", "cell_state"]
    assert names["both"] == ["fw_output_state", "fw_cell_state", "bw_output_state", "bw_cell_state"]
    assert [made.mutated for made in (RNN, SVDF)] == [(4,), (4,)]
    assert {1, 4} <= set(BASIC.mutated)
    assert gru().mutated == ()


@pytest.mark.parametrize(
    ("name", "operands", "results"),
    [
        ("LSTM", 24, 4),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", 24, 1),
        ("BIDIRECTIONAL_SEQUENCE_LSTM", 48, 2),
        ("RNN", 5, 1),
        ("UNIDIRECTIONAL_SEQUENCE_RNN", 5, 1),
        ("BIDIRECTIONAL_SEQUENCE_RNN", 12, 2),
        ("SVDF", 5, 1),
        ("GRU", 6, 1),
    ],
)
def test_counts(name: str, operands: int, results: int) -> None:
    """Files count operands: one too few in the table would move all that follow."""
    spec = ops.get(name)
    assert (len(spec.operands), len(spec.results)) == (operands, results)
    assert len({operand.name for operand in spec.operands}) == operands
