"""Operators with inner products that small models of the corpus lack, each with inputs of one run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from helpers.nodes import Array, const, node, quant, tensor, variable
from helpers.recurrent import Form, basic_lstm, bidirectional_lstm, full_lstm, rnn, sequence_lstm, svdf
from odc_mlir.ops.context import BinaryCodes, Context
from odc_mlir.ops.spec import Node

Case = tuple[Node, list[Array]]

HEADS, SIZE, CAPACITY = 3, 4, 32


def product_cases() -> dict[str, Case]:
    """Every case by name."""
    return {**_recurrent(), **_convolutions(), **_matrices()}


def _recurrent() -> dict[str, Case]:
    forms = {
        "float": Form(),
        "hybrid": Form(weights="int8"),
        "codes": Form(weights="codes"),
        "coupled": Form(coupled=True),
        "projected": Form(projection=True, peephole=True),
    }
    made: dict[str, tuple[Node, list[list[Array]]]] = {}
    for name, form in forms.items():
        made[f"sequence-lstm-{name}"] = sequence_lstm(form, 1)
    for name in ("float", "projected"):
        made[f"lstm-{name}"] = full_lstm(forms[name], 1)
    for codes in (False, True):
        made[f"basic-lstm-{'codes' if codes else 'float'}"] = basic_lstm(codes=codes, seed=1)
    for aux in ("", "beside", "instead"):
        made[f"bidirectional-lstm-{aux}"] = bidirectional_lstm(forms["float"], 1, aux=aux)
    for name in ("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"):
        made[name] = rnn(name, Form(), 1)
    for name in ("float", "hybrid", "codes"):
        made[f"svdf-{name}"] = svdf(forms[name], 1)
    cases = {name: (item, runs[0]) for name, (item, runs) in made.items()}
    units, features = 5, 3
    operands = [
        tensor("float32", (4, 2, features)),
        _real(3 * units, units),
        None,
        _real(3 * units, features),
        None,
        tensor("float32", (2, units)),
    ]
    inputs = [np.ones((4, 2, features), np.float32), np.ones((2, units), np.float32)]
    cases["gru"] = node("GRU", operands, tensor("float32", None), return_sequences=True), inputs
    return cases


def _convolutions() -> dict[str, Case]:
    x, volume = np.ones((2, 7, 6, 4), np.float32), np.ones((2, 5, 6, 7, 3), np.float32)
    codes, coded = np.ones((2, 7, 6, 4), np.int8), tensor("int8", (2, 7, 6, 4), quant(0.1, 3))
    out = tensor("float32", None)
    steps = {"padding": "same", "stride_w": 2, "stride_h": 1}
    weights = const(np.ones((8, 3, 2, 4)), "int8", quant([0.1] * 8))
    volumes = {"padding": "same", "stride_d": 1, "stride_h": 2, "stride_w": 1}
    int8 = tensor("int8", None, quant(0.2))
    return {
        "conv": (node("CONV_2D", [tensor("float32", x.shape), _real(8, 3, 2, 4), None], out, **steps), [x]),
        "conv-grouped": (node("CONV_2D", [tensor("float32", x.shape), _real(8, 3, 2, 2), None], out, **steps), [x]),
        "conv-hybrid": (node("CONV_2D", [tensor("float32", x.shape), weights, None], out, **steps), [x]),
        "conv-codes": (node("CONV_2D", [coded, weights, None], int8, **steps), [codes]),
        "conv-3d": (
            node("CONV_3D", [tensor("float32", volume.shape), _real(1, 2, 2, 3, 4), None], out, **volumes),
            [volume],
        ),
        "conv-3d-transpose": (
            node(
                "CONV_3D_TRANSPOSE",
                [const([2, 5, 6, 7, 4]), _real(1, 1, 1, 4, 3), tensor("float32", volume.shape), None],
                out,
                padding="valid",
                stride_d=1,
                stride_h=1,
                stride_w=1,
            ),
            [volume],
        ),
    }


def _matrices() -> dict[str, Case]:
    out, x = tensor("float32", None), np.ones((6, 5), np.float32)
    hybrid = const(np.ones((3, 5)), "int8", quant(0.1))
    words = const(np.full((2, 1), 5))
    binary = [tensor("float32", (5, 6)), const(np.ones(2), "float32"), words, None, const([[1, 2]])]
    coded = node("BCQ_FULLY_CONNECTED", binary, out, weights_hidden_size=5)
    width, cache = HEADS * SIZE, (1, CAPACITY, HEADS, SIZE)
    table, mask = const(np.ones((1, 1, 1, SIZE)), "float32"), np.zeros((1, 1, 1, CAPACITY), np.float32)
    attention = [tensor("float32", (1, 1, width)), *(_real(width, width) for _ in range(4)), table, table]
    attention += [tensor("float32", mask.shape), variable("float32", cache), variable("float32", cache)]
    attention += [tensor("int64", (1,))]
    token = np.ones((1, 1, width), np.float32)
    left, right = np.ones((2, 3, 5), np.float32), np.ones((2, 4, 5), np.float32)
    product = node("BATCH_MATMUL", [_info(left), _info(right)], out, adjoint_rhs=True)
    turned = node("BATCH_MATMUL", [_info(left), _info(right[:, :3])], out, adjoint_lhs=True)
    return {
        "fully-connected-hybrid": (node("FULLY_CONNECTED", [_info(x), hybrid, None], out), [x]),
        "binary-coded": (replace(coded, context=Context(binary_codes=BinaryCodes())), [x.T]),
        "attention": (node("ATTENTION", attention, out), [token, mask, np.array([CAPACITY - 2])]),
        "batch-matmul": (product, [left, right]),
        "batch-matmul-turned": (turned, [left, right[:, :3]]),
    }


def _real(*shape: int) -> Any:
    return const(np.ones(shape), "float32")


def _info(array: Array) -> Any:
    return tensor(array.dtype.name, array.shape)
