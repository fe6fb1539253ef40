"""Kinds of kernels that small models of the corpus lack, above all those with products, with inputs of one run."""

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


def product_cases(factor: int = 1) -> dict[str, Case]:
    """Every case by name; layers and vectors are ``factor`` times as wide."""
    return {**_recurrent(factor), **_convolutions(factor), **_matrices(factor), **_others(factor)}


def _recurrent(factor: int) -> dict[str, Case]:
    small = Form(features=3 * factor, cells=5 * factor, outputs=2 * factor)
    forms = {
        "float": small,
        "hybrid": replace(small, weights="int8"),
        "codes": replace(small, weights="codes"),
        "coupled": replace(small, coupled=True),
        "projected": replace(small, projection=True, peephole=True),
    }
    made: dict[str, tuple[Node, list[list[Array]]]] = {}
    for name, form in forms.items():
        made[f"sequence-lstm-{name}"] = sequence_lstm(form, 1)
    for name in ("float", "projected"):
        made[f"lstm-{name}"] = full_lstm(forms[name], 1)
    for codes in (False, True):
        made[f"basic-lstm-{'codes' if codes else 'float'}"] = basic_lstm(
            codes=codes, seed=1, features=3 * factor, outputs=4 * factor
        )
    for aux in ("", "beside", "instead"):
        made[f"bidirectional-lstm-{aux}"] = bidirectional_lstm(forms["float"], 1, aux=aux)
    for name in ("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"):
        made[name] = rnn(name, small, 1)
    for name in ("float", "hybrid", "codes"):
        made[f"svdf-{name}"] = svdf(forms[name], 1)
    cases = {name: (item, runs[0]) for name, (item, runs) in made.items()}
    units, features = 5 * factor, 3 * factor
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


def _convolutions(factor: int) -> dict[str, Case]:
    batch = 2 * factor
    x, volume = np.ones((batch, 7, 6, 4), np.float32), np.ones((batch, 5, 6, 7, 3), np.float32)
    codes, coded = np.ones(x.shape, np.int8), tensor("int8", x.shape, quant(0.1, 3))
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
                [const([batch, 5, 6, 7, 4]), _real(1, 1, 1, 4, 3), tensor("float32", volume.shape), None],
                out,
                padding="valid",
                stride_d=1,
                stride_h=1,
                stride_w=1,
            ),
            [volume],
        ),
    }


def _matrices(factor: int) -> dict[str, Case]:
    rows = 6 * factor
    out, x = tensor("float32", None), np.ones((rows, 5), np.float32)
    hybrid = const(np.ones((3, 5)), "int8", quant(0.1))
    words = const(np.full((2, 1), 5))
    binary = [tensor("float32", (5, rows)), const(np.ones(2), "float32"), words, None, const([[1, 2]])]
    coded = node("BCQ_FULLY_CONNECTED", binary, out, weights_hidden_size=5)
    width, cache = HEADS * SIZE, (1, CAPACITY, HEADS, SIZE)
    table, mask = const(np.ones((1, 1, 1, SIZE)), "float32"), np.zeros((1, 1, 1, CAPACITY), np.float32)
    attention = [tensor("float32", (1, 1, width)), *(_real(width, width) for _ in range(4)), table, table]
    attention += [tensor("float32", mask.shape), variable("float32", cache), variable("float32", cache)]
    attention += [tensor("int64", (1,))]
    token = np.ones((1, 1, width), np.float32)
    left, right = np.ones((2 * factor, 3, 5), np.float32), np.ones((2 * factor, 4, 5), np.float32)
    product = node("BATCH_MATMUL", [_info(left), _info(right)], out, adjoint_rhs=True)
    turned = node("BATCH_MATMUL", [_info(left), _info(right[:, :3])], out, adjoint_lhs=True)
    return {
        "fully-connected-hybrid": (node("FULLY_CONNECTED", [_info(x), hybrid, None], out), [x]),
        "binary-coded": (replace(coded, context=Context(binary_codes=BinaryCodes())), [x.T]),
        "attention": (node("ATTENTION", attention, out), [token, mask, np.array([CAPACITY - 2])]),
        "batch-matmul": (product, [left, right]),
        "batch-matmul-turned": (turned, [left, right[:, :3]]),
    }


def _others(factor: int) -> dict[str, Case]:
    signal = np.ones((factor, 8, 16), np.float32)
    ids = np.zeros(4 * factor, np.int32)
    spectrum = node("RFFT2D", [_info(signal), const([8, 16])], tensor("complex64", None))
    rows = node("EMBEDDING_LOOKUP", [_info(ids), _real(7, 5)], tensor("float32", None))
    noise = node("RANDOM_UNIFORM", [const([factor, 9])], tensor("float32", None), seed=3, seed2=4)
    return {"spectrum": (spectrum, [signal]), "lookup": (rows, [ids]), "random": (noise, [])}


def _real(*shape: int) -> Any:
    return const(np.ones(shape), "float32")


def _info(array: Array) -> Any:
    return tensor(array.dtype.name, array.shape)
