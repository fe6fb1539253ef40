"""What recurrent kernels obey by themselves: state, order of steps, directions, plain formulas; what they refuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import odc_mlir
from helpers import recurrent
from helpers.litert import single_operator
from helpers.nodes import Session, const, node, quant, run, run_all, tensor, variable
from helpers.recurrent import Builder, Form, named_operands
from odc_mlir.errors import InputError, ModelError, OdcError, UnsupportedError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels import sequences

Array = NDArray[Any]
Made = tuple[Node, list[list[Array]]]

SEQUENCES: dict[str, Callable[..., Made]] = {
    "lstm": recurrent.sequence_lstm,
    "rnn": lambda form, seed, **options: recurrent.rnn("UNIDIRECTIONAL_SEQUENCE_RNN", form, seed, **options),
}
EVERY = [("lstm", "float32"), ("lstm", "int8"), ("lstm", "codes"), ("rnn", "float32"), ("rnn", "uint8")]


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def close(found: Array, expected: Array) -> None:
    """Equal codes; reals up to the order of sums."""
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=0 if found.dtype.kind == "i" else 2e-6)


def replaced(made: Node, changes: dict[str, TensorInfo | None]) -> Node:
    """The operator with other operands, by name."""
    names = [operand.name for operand in made.spec.operands]
    operands = list(made.operands)
    for name, info in changes.items():
        operands[names.index(name)] = info
    return dataclasses.replace(made, operands=tuple(operands))


def operand(made: Node, name: str) -> TensorInfo:
    return made.operand([operand.name for operand in made.spec.operands].index(name))


@pytest.mark.parametrize(("kind", "weights"), EVERY)
def test_steps_one_by_one(kind: str, weights: str) -> None:
    """Running a sequence in one go or in pieces gives the same, since the state goes on."""
    made, (inputs, *_) = SEQUENCES[kind](Form(weights), 1, time_major=True)
    (whole,) = Session(made)(*inputs)
    x = inputs[0]
    for pieces in ([1] * len(x), [1, len(x) - 1]):
        session = Session(made)
        session.inferred = [kind._replace(shape=None) for kind in session.inferred]
        starts = np.cumsum([0, *pieces[:-1]])
        parts = [session(x[a : a + n])[0] for a, n in zip(starts, pieces, strict=True)]
        close(np.concatenate(parts), whole)


@pytest.mark.parametrize(("kind", "weights"), EVERY)
def test_layouts(kind: str, weights: str) -> None:
    """Time first or batch first: the same sequence."""
    form = Form(weights, steps=3, batch=3)
    one, (inputs, *_) = SEQUENCES[kind](form, 2, time_major=True)
    other, _ = SEQUENCES[kind](form, 2, time_major=False)
    (expected,) = Session(one)(*inputs)
    close(Session(other)(inputs[0].swapaxes(0, 1).copy())[0], expected.swapaxes(0, 1))


@pytest.mark.parametrize(("kind", "weights"), EVERY)
def test_blocks_of_steps(kind: str, weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many steps are computed ahead cannot be seen."""
    made, (inputs, *_) = SEQUENCES[kind](Form(weights, steps=7), 3)
    (whole,) = Session(made)(*inputs)
    monkeypatch.setattr(sequences, "BLOCK_ELEMENTS", 100)
    close(Session(made)(*inputs)[0], whole)


@pytest.mark.parametrize(("kind", "weights"), EVERY)
def test_nothing_to_do(kind: str, weights: str) -> None:
    made, _ = SEQUENCES[kind](Form(weights, steps=0), 4, time_major=True)
    session = Session(made)
    before = [contents.copy() for contents in session.variables.values()]
    (found,) = session(np.zeros((0, 2, 3), made.operand(0).info.numpy))
    assert found.shape == (0, 2, 5)
    assert all((a == b).all() for a, b in zip(before, session.variables.values(), strict=True))


STATES = {"lstm": ("output_state", "cell_state"), "rnn": ("hidden_state",)}


@pytest.mark.parametrize(("kind", "weights"), [case for case in EVERY if case[1] != "codes"])
def test_state_left_out(kind: str, weights: str) -> None:
    """Without state tensors each run begins at zero."""
    made, runs = SEQUENCES[kind](Form(weights), 5)
    first = Session(made)(*runs[0])[0]
    session = Session(replaced(made, dict.fromkeys(STATES[kind])))
    for _ in range(2):
        assert (session(*runs[0])[0] == first).all()


def test_outputs_of_codes_begin_at_the_zero_point() -> None:
    made, runs = recurrent.sequence_lstm(Form("codes"), 6)
    first = Session(made)(*runs[0])[0]
    assert (Session(replaced(made, {"output_state": None}))(*runs[0])[0] == first).all()
    with pytest.raises(UnsupportedError, match="cell_state is omitted"):
        run(replaced(made, {"cell_state": None}), *runs[0])


@pytest.mark.parametrize("kind", ["lstm", "rnn"])
def test_constant_state_is_where_each_run_begins(kind: str) -> None:
    made, runs = SEQUENCES[kind](Form("float32"), 7)
    session = Session(made)
    session(*runs[0])
    constants = {
        name: const(contents, "float32")
        for name, contents in zip(STATES[kind], session.variables.values(), strict=True)
    }
    second = session(*runs[1])[0]
    fixed = Session(replaced(made, constants))
    for _ in range(2):
        assert (fixed(*runs[1])[0] == second).all()


def test_state_of_another_shape() -> None:
    """Any shape of the right size holds state; what does not fit is refused."""
    made, runs = recurrent.sequence_lstm(Form("float32"), 8)
    expected = Session(made)(*runs[0])[0]
    flat = {"output_state": variable("float32", (10,)), "cell_state": variable("float32", (5, 2))}
    assert (run(replaced(made, flat), *runs[0]) == expected).all()
    with pytest.raises(ModelError, match=r"output_state has the shape \[1, 5\]; 2 x 5 elements are needed"):
        run(replaced(made, {"output_state": variable("float32", (1, 5))}), *runs[0])


@pytest.mark.parametrize("weights", ["float32", "int8", "codes"])
def test_computed_weights(weights: str) -> None:
    """Weights that come with each run do as well as constants."""
    made, runs = recurrent.sequence_lstm(Form(weights, peephole=True), 9)
    expected = Session(made)(*runs[0])[0]
    names = [o.name for o in made.spec.operands[1:18] if operand_given(made, o.name)]
    infos = [operand(made, name) for name in names]
    fed = replaced(made, {n: tensor(i.dtype, i.shape, i.quant) for n, i in zip(names, infos, strict=True)})
    assert (Session(fed)(*runs[0], *(info.array() for info in infos))[0] == expected).all()


def operand_given(made: Node, name: str) -> bool:
    index = [operand.name for operand in made.spec.operands].index(name)
    return made.optional(index) is not None


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_directions(weights: str, merge: bool) -> None:
    """The backward layer sees the sequence reversed; merged results are the two side by side."""
    made, runs = recurrent.bidirectional_lstm(Form(weights, batch=3), 10, merge_outputs=merge)
    results = run_all(made, *runs[0])
    forward, backward = np.split(results[0], 2, axis=2) if merge else results
    x = runs[0][0]
    for way, sequence, found in (("fw_", x, forward), ("bw_", x[::-1].copy(), backward[::-1])):
        names = {
            o.name[3:]: operand(made, o.name)
            for o in made.spec.operands
            if o.name.startswith(way) and operand_given(made, o.name)
        }
        single = node(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            named_operands("UNIDIRECTIONAL_SEQUENCE_LSTM", {"input": made.operand(0), **names}),
            tensor("float32", None),
            time_major=True,
            fused_activation_function="tanh",
        )
        close(run(single, sequence), found)


def test_lstm_formula() -> None:
    """A cell by the book, in float64."""
    made, runs = recurrent.full_lstm(Form("float32", peephole=True, projection=True), 11)
    values = {o.name: operand(made, o.name).array().astype(float) for o in made.spec.operands[1:18]}
    h, c = np.zeros((2, 2)), np.zeros((2, 5))
    session = Session(made)
    for (x,) in runs:

        def gate(name: str, x: Array = x, h: Array = h) -> Array:
            sums = x @ values[f"input_to_{name}_weights"].T + h @ values[f"recurrent_to_{name}_weights"].T
            return np.asarray(sums + values[f"{name}_gate_bias"])

        entry = sigmoid(gate("input") + values["cell_to_input_weights"] * c)
        forget = sigmoid(gate("forget") + values["cell_to_forget_weights"] * c)
        c = forget * c + entry * np.tanh(gate("cell"))
        output = sigmoid(gate("output") + values["cell_to_output_weights"] * c) * np.tanh(c)
        h = output @ values["projection_weights"].T + values["projection_bias"]
        np.testing.assert_allclose(session(x)[0], h, rtol=1e-5, atol=1e-6)


def test_svdf_formula() -> None:
    """Results see as many inputs as the time weights are long."""
    made, runs = recurrent.svdf(Form("float32", batch=1), 12, rank=2, memory=3, fused_activation_function="none")
    features, time, bias = (operand(made, n).array() for n in ("weights_feature", "weights_time", "bias"))
    session, seen = Session(made), [np.zeros(len(features))] * 3
    for (x,) in runs:
        seen = [*seen[1:], features @ x[0]]
        filters = (np.stack(seen, axis=1) * time).sum(axis=1)
        np.testing.assert_allclose(session(x)[0][0], filters.reshape(-1, 2).sum(axis=1) + bias, rtol=1e-4, atol=1e-5)


def test_missing_intermediates() -> None:
    """Converters drop them: hidden values then have the output's scale, unless they are projected or normalised."""
    made, runs = recurrent.sequence_lstm(Form("codes"), 13)
    bare = dataclasses.replace(made, intermediates=())
    assert (run(bare, *runs[0]) == run(made, *runs[0])).all()
    without_types = tuple(tensor("float32", (), info.quant) for info in made.intermediates if info is not None)
    assert (run(dataclasses.replace(made, intermediates=without_types), *runs[0]) == run(made, *runs[0])).all()
    for form, what in ((Form("codes", projection=True), "hidden values"), (Form("codes", norm=True), "input gate")):
        made, runs = recurrent.sequence_lstm(form, 13)
        with pytest.raises(UnsupportedError, match=f"scale of (the )?{what} is missing"):
            run(dataclasses.replace(made, intermediates=()), *runs[0])


def gru(builder: Builder, *, swapped: bool = False, biases: bool = True, result: Any = None, **options: Any) -> Node:
    """A GRU of 4 units over 3 steps of 2 batches of 5 features."""
    by_input, by_state = builder.matrix(12, 5), builder.matrix(12, 4)
    bias = [builder.vector(12, codes="", scale=0) if biases else None for _ in range(2)]
    first, second = (by_state, by_input) if swapped else (by_input, by_state)
    operands = [tensor("float32", (3, 2, 5)), first, bias[0], second, bias[1], tensor("float32", (2, 4))]
    return node("GRU", operands, tensor("float32", result), **options)


def gru_states(made: Node, x: Array, h: Array, *, swapped: bool = False) -> list[Array]:
    """All states, by loops over batches."""
    first, second = (made.const(index).astype(float) for index in (1, 3))
    biases = [info.array() if info is not None else np.zeros(12) for info in (made.operands[2], made.operands[4])]
    w, u, (bw, bu) = (second, first, biases[::-1]) if swapped else (first, second, biases)
    states = []
    for t in range(len(x)):
        h = h.copy()
        for b in range(len(h)):
            g, a = w @ x[t, b] + bw, u @ h[b] + bu
            z, r = sigmoid(g[:4] + a[:4]), sigmoid(g[4:8] + a[4:8])
            h[b] = z * h[b] + (1 - z) * np.tanh(g[8:] + r * a[8:])
        states.append(h)
    return states


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_gru(swapped: bool, biases: bool) -> None:
    builder = Builder(Form("float32"), 14)
    x, h = builder.x(3, 2, 5), builder.x(2, 4)
    made = gru(builder, swapped=swapped, biases=biases)
    states = gru_states(made, x, h.astype(float), swapped=swapped)
    np.testing.assert_allclose(run(made, x, h), states[-1][None], rtol=1e-5, atol=1e-6)
    everything = dataclasses.replace(made, options={**made.options, "return_sequences": True})
    np.testing.assert_allclose(run(everything, x, h), np.stack(states), rtol=1e-5, atol=1e-6)
    like_state = dataclasses.replace(made, results=(tensor("float32", (2, 4)),))
    np.testing.assert_allclose(run(like_state, x, h), states[-1], rtol=1e-5, atol=1e-6)


def test_gru_far_out() -> None:
    """Gates saturate without overflow."""
    builder = Builder(Form("float32"), 15)
    x = builder.x(3, 2, 5) * 1000
    found = run(gru(builder), x, builder.x(2, 4))
    assert np.isfinite(found).all()


def changed(form: Form, names: dict[str, TensorInfo | None], **options: Any) -> tuple[Node, list[Array]]:
    made, runs = recurrent.sequence_lstm(form, 16, **options)
    return replaced(made, names), runs[0]


def weights(dtype: str, shape: tuple[int, ...] = (5, 3), params: Any = None) -> TensorInfo:
    return const(np.ones(shape), dtype, params)


REFUSED: list[tuple[str, tuple[Node, list[Array]], type[OdcError], str]] = [
    (
        "mixed weights",
        changed(Form("float32"), {"input_to_cell_weights": weights("int8", params=quant(0.1))}),
        UnsupportedError,
        "all float32 matrices",
    ),
    (
        "wide weights",
        changed(
            Form("float32"),
            {f"input_to_{g}_weights": weights("int16", params=quant(0.1)) for g in recurrent.GATES},
        ),
        UnsupportedError,
        "all int8 or all uint8",
    ),
    (
        "no scale",
        changed(Form("int8"), {"input_to_cell_weights": weights("int8")}),
        ModelError,
        "have 0 scales",
    ),
    (
        "scales per row",
        changed(Form("int8"), {"input_to_cell_weights": weights("int8", params=quant([0.1] * 5))}),
        ModelError,
        "have 5 scales; one is allowed",
    ),
    (
        "peephole of another type",
        changed(Form("int8", peephole=True), {"cell_to_input_weights": weights("int16", (5,), quant(1.0))}),
        UnsupportedError,
        "is int16; float32, int8 and uint8",
    ),
    (
        "input of another type",
        changed(Form("float32"), {"input": tensor("int16", (2, 4, 3), quant(0.1))}),
        UnsupportedError,
        "an input of int16",
    ),
    (
        "integer state of a real cell",
        changed(Form("float32"), {"cell_state": variable("int16", (2, 5), quant(0.1))}),
        UnsupportedError,
        "cell_state is int16; float32",
    ),
    (
        "uneven cell scale",
        changed(Form("codes"), {"cell_state": variable("int16", (2, 5), quant(3e-4))}),
        UnsupportedError,
        r"must have a power of two from 2\^-15 to 2\^-9",
    ),
    (
        "real cell of codes",
        changed(Form("codes"), {"cell_state": variable("float32", (2, 5))}),
        UnsupportedError,
        "cell_state is float32; it must be int16",
    ),
    (
        "wide output state",
        changed(Form("codes"), {"output_state": variable("int16", (2, 5), quant(0.1))}),
        UnsupportedError,
        "output_state is int16; it must be int8",
    ),
    (
        "real weights of codes",
        changed(Form("codes"), {"recurrent_to_cell_weights": weights("float32", (5, 5))}),
        UnsupportedError,
        "is float32 with zero point 0; it must be int8",
    ),
    (
        "uneven weights of codes",
        changed(Form("codes"), {"recurrent_to_cell_weights": weights("int8", (5, 5), quant(0.1, 3))}),
        UnsupportedError,
        "is int8 with zero point 3; it must be int8 with 0",
    ),
    (
        "diagonal of codes",
        changed(
            Form("codes"), {f"recurrent_to_{g}_weights": weights("int8", (5,), quant(0.1)) for g in recurrent.GATES}
        ),
        UnsupportedError,
        "is diagonal; integer cells need a matrix",
    ),
    (
        "real bias of codes",
        changed(Form("codes"), {"cell_gate_bias": weights("float32", (5,))}),
        UnsupportedError,
        "cell_gate_bias is float32; it must be int32",
    ),
]


@pytest.mark.parametrize(("case", "error", "message"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(case: tuple[Node, list[Array]], error: type[OdcError], message: str) -> None:
    made, inputs = case
    x = inputs[0].astype(made.operand(0).info.numpy)
    with pytest.raises(error, match=message):
        run(made, x)


def test_refused_otherwise() -> None:
    made, runs = recurrent.sequence_lstm(Form("codes"), 17)
    wide = dataclasses.replace(made, intermediates=made.intermediates * 2 + made.intermediates[:2])
    with pytest.raises(UnsupportedError, match="8-bit sums of gates"):
        run(wide, *runs[0])
    uneven = (*made.intermediates[:4], tensor("int8", (1,), quant([0.1, 0.2])))
    with pytest.raises(ModelError, match="has 2 scales"):
        run(dataclasses.replace(made, intermediates=uneven), *runs[0])
    other = dataclasses.replace(made, results=(tensor("int16", None, quant(0.1)),))
    with pytest.raises(UnsupportedError, match="with a result of int16"):
        other.spec.kernel_function(other)
    basic, inputs = recurrent.basic_lstm(codes=True, seed=1)
    for index, info, message in (
        (0, tensor("uint8", (2, 3), quant(1 / 64, 128)), "must have 1/128 and 128"),
        (4, tensor("int16", (2, 4), quant(2.0**-12)), r"must have 2\^-11 and 0"),
        (1, tensor("int8", (2, 4), quant(1 / 128)), "tensors of uint8, int8"),
    ):
        operands = [info if place == index else old for place, old in enumerate(basic.operands)]
        with pytest.raises(UnsupportedError, match=message):
            run_all(dataclasses.replace(basic, operands=tuple(operands)), *inputs[0])


def test_svdf_refused() -> None:
    made, runs = recurrent.svdf(Form("codes"), 18)
    for change, message in (
        ({"state": variable("float32", (2, 30))}, "state is float32; with an int8 input it must be int16"),
        ({"state": variable("int16", (2, 30), quant(1e-3, 5))}, "must have the zero point 0"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            run(replaced(made, change), *runs[0])
    plain = dataclasses.replace(made, options={**made.options, "fused_activation_function": "tanh"})
    with pytest.raises(UnsupportedError, match="'tanh' is not supported on quantised values"):
        run(plain, *runs[0])
    with pytest.raises(ModelError, match="state is omitted"):
        run(replaced(made, {"state": None}), *runs[0])


def fails(made: Node, *inputs: Array) -> str:
    """The message of a run that fails after preparation, as with shapes that only the run knows."""
    kernel = made.spec.kernel_function(made)
    with pytest.raises(InputError) as caught:
        kernel([*inputs, *(None for _ in range(len(made.operands) - len(inputs)))])
    return str(caught.value)


def test_inputs_that_do_not_fit() -> None:
    form, x = Form("float32"), np.zeros((2, 4, 7), np.float32)
    for kind in SEQUENCES:
        made, _ = SEQUENCES[kind](form, 19)
        assert "the input has 7 features, the weights 3" in fails(made, x)
        assert "its rank must be 3" in fails(made, x[0])
    for made, _ in (recurrent.full_lstm(form, 19), recurrent.rnn("RNN", form, 19)):
        assert "its rank must be 2" in fails(made, x)
    assert "it must be [*, 3]" in fails(recurrent.svdf(form, 19)[0], x[0])
    assert "the weights need 3 columns" in fails(recurrent.basic_lstm(codes=False, seed=1)[0], x[0], *[x[0, :, :4]] * 4)
    both, _ = recurrent.bidirectional_lstm(form, 19, aux="instead")
    operands: list[Array | None] = [None] * len(both.operands)
    operands[0], operands[39] = x[..., :3], x[:1, :, :3]
    with pytest.raises(InputError, match="auxiliary input"):
        both.spec.kernel_function(both)(operands)
    assert "do not fit together" in fails(gru(Builder(form, 1)), x, *[None] * 4, x[0])  # type: ignore[list-item]


def test_hidden_values_with_a_zero_point_of_their_own_on_the_npu() -> None:
    """Converters record other parameters for the hidden values of bidirectional layers than for the output."""
    made, runs = recurrent.sequence_lstm(Form("codes"), 1)
    *gates, hidden = made.intermediates
    assert hidden is not None
    made = dataclasses.replace(made, intermediates=(*gates, dataclasses.replace(hidden, quant=quant(0.007, -4))))
    model = write_model(single_operator(made, [*runs[0], *[None] * (len(made.operands) - 1)]))
    package = odc_mlir.compile(model)
    assert package.report["host_op_count"] == 0
    found, wanted = (odc_mlir.run(package, runs[0], backend=backend)[0] for backend in ("npu", "host"))
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(found)) > 5
