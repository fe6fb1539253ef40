"""Codes for every kind of constant that was trained: what they stand for is computed, here and in LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import odc_mlir
from helpers import unrolled
from helpers.float_nets import FloatNet, run_pass
from odc_mlir.dialects.circle import ConstOp
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.numerics.fixed import round_half_away
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

Array = NDArray[Any]
Weights = Callable[..., SSAValue]
I32 = "int32"
# The axis along which scales lie, of each constant that is rounded; None: one scale.
Axes = tuple[int | None, ...]
NET_SEED = 3


def _ids(net: FloatNet, *shape: int, below: int, dtype: str = I32) -> SSAValue:
    return net.input(net.rng.integers(0, below, shape).astype(dtype))


def _lstm(net: FloatNet, weights: Weights) -> SSAValue:
    size, inputs = 24, 20
    gates = [weights(size, inputs) for _ in range(4)] + [weights(size, size) for _ in range(4)]
    biases = [net.weights(size) for _ in range(4)]
    state = [net.variable(1, size, name=name) for name in ("h", "c")]
    operands = [net.real(1, 5, inputs), *gates, None, None, None, *biases, None, None, *state, None, None, None, None]
    made: SSAValue = net.add("UNIDIRECTIONAL_SEQUENCE_LSTM", *operands, fused_activation_function="tanh")
    return made


def _gru(net: FloatNet, weights: Weights) -> SSAValue:
    size, inputs = 16, 12
    hidden, taken = weights(3 * size, size), weights(3 * size, inputs)
    made: SSAValue = net.add(
        "GRU", net.real(4, 1, inputs), hidden, net.weights(3 * size), taken, net.weights(3 * size), net.real(1, size)
    )
    return made


def _rnn(net: FloatNet, weights: Weights) -> SSAValue:
    state = net.variable(1, 24, name="h")
    made: SSAValue = net.add(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        net.real(1, 5, 20),
        weights(24, 20),
        weights(24, 24),
        net.weights(24),
        state,
        fused_activation_function="tanh",
    )
    return made


def _svdf(net: FloatNet, weights: Weights) -> SSAValue:
    state = net.variable(1, 480, name="state")
    features, times = weights(16, 40), weights(16, 30)
    made: SSAValue = net.add("SVDF", net.real(1, 40), features, times, net.weights(16), state, rank=1)
    return made


def _transpose_conv(net: FloatNet, weights: Weights) -> SSAValue:
    shape, kernel = net.const([1, 8, 8, 3], I32), weights(3, 2, 2, 4)
    options = {"padding": "same", "stride_h": 2, "stride_w": 2}
    made: SSAValue = net.add("TRANSPOSE_CONV", shape, kernel, net.real(1, 4, 4, 4), net.weights(3), **options)
    return made


def _depthwise(net: FloatNet, weights: Weights) -> SSAValue:
    options = {"padding": "same", "stride_h": 1, "stride_w": 1, "depth_multiplier": 2}
    made: SSAValue = net.add("DEPTHWISE_CONV_2D", net.real(1, 6, 5, 4), weights(1, 3, 3, 8), net.weights(8), **options)
    return made


def _conv(net: FloatNet, weights: Weights) -> SSAValue:
    options = {"padding": "same", "stride_h": 1, "stride_w": 1}
    made: SSAValue = net.add("CONV_2D", net.real(1, 6, 5, 4), weights(3, 3, 3, 4), net.weights(3), **options)
    return made


CASES: dict[str, tuple[Callable[[FloatNet, Weights], SSAValue], Axes]] = {
    "CONV_2D": (_conv, (0,)),
    "DEPTHWISE_CONV_2D": (_depthwise, (3,)),
    "TRANSPOSE_CONV": (_transpose_conv, (0,)),
    "FULLY_CONNECTED": (lambda net, w: net.add("FULLY_CONNECTED", net.real(5, 16), w(7, 16), net.weights(7)), (0,)),
    "BATCH_MATMUL": (lambda net, w: net.add("BATCH_MATMUL", net.real(2, 4, 16), w(2, 16, 12)), (2,)),
    "BATCH_MATMUL, adjoint": (
        lambda net, w: net.add("BATCH_MATMUL", net.real(2, 4, 16), w(2, 12, 16), adjoint_rhs=True),
        (1,),
    ),
    "GATHER": (lambda net, w: net.add("GATHER", w(30, 16), _ids(net, 2, 4, below=30), axis=0), (0,)),
    "GATHER, int64": (lambda net, w: net.add("GATHER", w(30, 16), _ids(net, 4, below=30, dtype="int64"), axis=0), (0,)),
    "GATHER, odd rows": (lambda net, w: net.add("GATHER", w(30, 15), _ids(net, 4, below=30), axis=0), (0,)),
    "GATHER, columns": (lambda net, w: net.add("GATHER", w(30, 16), _ids(net, 4, below=16), axis=1), (None,)),
    "GATHER_ND": (lambda net, w: net.add("GATHER_ND", w(30, 16), _ids(net, 4, 1, below=30)), (None,)),
    "EMBEDDING_LOOKUP": (lambda net, w: net.add("EMBEDDING_LOOKUP", _ids(net, 6, below=30), w(30, 16)), (0,)),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (_lstm, (0,) * 8),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (_rnn, (0,) * 2),
    "SVDF": (_svdf, (0,) * 2),
    "GRU": (_gru, (0,) * 2),
}
LITERT_LACKS = {"GRU"}
# Where the axis of scales is another one in some types of codes.
LOOKUPS: dict[str, dict[str, int | None]] = {
    "GATHER": {"int16": None},
    "GATHER, int64": {"int16": None},
    "GATHER, odd rows": {"int16": None},
    "EMBEDDING_LOOKUP": {"int16": None},
    "GATHER, columns": {"int4": 1},
    "GATHER_ND": {"int4": 0},
}


def _module(name: str, rounded: str = "") -> tuple[ModuleOp, list[Array], list[Array]]:
    """A network of one operator; its inputs; the constants that are weights, ``rounded`` to codes of a type or not."""
    make, axes = CASES[name]
    net, constants = FloatNet(NET_SEED), list[Array]()

    def weights(*shape: int) -> SSAValue:
        array = net.rng.normal(0, 0.3, shape).astype(np.float32)
        axis = axes[len(constants)]
        if name in LOOKUPS:
            axis = LOOKUPS[name].get(rounded, axis)
        constants.append(_rounded(array, axis, rounded) if rounded else array)
        return net.const(constants[-1])

    return net.module(make(net, weights)), net.inputs, constants


def _rounded(array: Array, axis: int | None, dtype: str) -> Array:
    """What codes with one scale for each index of ``axis`` stand for."""
    most = {"int4": 7, "int8": 127, "int16": 32767}[dtype]
    others = tuple(i for i in range(array.ndim) if i != axis)
    scales = (np.abs(array.astype(np.float64)).max(axis=others, keepdims=True) / most).astype(np.float32)
    found: Array = (round_half_away(array / scales.astype(np.float64)) * scales).astype(np.float32)
    return found


def _host(model: Model, inputs: list[Array]) -> Array:
    return np.asarray(HostExecutor(build_graph(model)).run(list(inputs))[0])


@pytest.mark.parametrize("dtype", ["int8", "int4", "int16"])
@pytest.mark.parametrize("name", CASES)
def test_codes_stand_for_rounded_weights(name: str, dtype: str) -> None:
    module, inputs, constants = _module(name)
    before = len(write_model(export_model(module)))
    real = _host(export_model(module), inputs)
    run_pass(module, "quant-weights-only", dtype=dtype)
    model = export_model(module)
    left = [op for op in module.walk() if isinstance(op, ConstOp) and len(op.blob.data) >= constants[0].nbytes]
    assert not left
    found, expected = _host(model, inputs), _host(export_model(_module(name, dtype)[0]), inputs)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert not np.array_equal(found, real)
    if sum(array.nbytes for array in constants) > 4096:
        assert len(write_model(model)) < before


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("name", sorted(CASES.keys() - LITERT_LACKS))
def test_litert_computes_the_same(name: str, dtype: str) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    module, inputs, _ = _module(name)
    run_pass(module, "quant-weights-only", dtype=dtype)
    model = export_model(module)
    theirs: Any = litert.Interpreter(
        model_content=bytes(write_tflite(model)), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    theirs.allocate_tensors()
    for detail, value in zip(theirs.get_input_details(), inputs, strict=True):
        theirs.set_tensor(detail["index"], value)
    theirs.invoke()
    found = theirs.get_tensor(theirs.get_output_details()[0]["index"])
    np.testing.assert_allclose(found, _host(model, inputs), rtol=0, atol=3e-6)


@pytest.mark.parametrize("make", [unrolled.lstm, unrolled.gru])
def test_steps_share_their_weights(make: Callable[..., SSAValue]) -> None:
    net = FloatNet(5)
    module = net.module(make(net, steps=4, ends="last"))
    run_pass(module, "quant-weights-only")
    coded = [op.result for op in module.walk() if isinstance(op, ConstOp) and "quant.uniform" in str(op.result.type)]
    assert len(coded) == 2
    assert all(value.has_one_use() for value in coded)


def test_a_table_is_never_real_as_a_whole() -> None:
    net = FloatNet(6)
    ids = net.input(net.rng.integers(0, 400, (1, 6)).astype(np.int32))
    found = net.add("GATHER", net.weights(400, 32), ids, axis=0)
    columns = net.add("GATHER", net.weights(32, 400), ids, axis=1, name="columns")
    scores = net.add("FULLY_CONNECTED", found, net.weights(10, 32), net.weights(10), name="scores", keep_num_dims=True)
    module = net.module(scores, columns)
    samples = [[net.rng.integers(0, 400, (1, 6)).astype(np.int32)] for _ in range(16)]
    made = odc_mlir.quantize(module, scheme="int8_wo", calibration=samples)
    assert made.passed, made
    graph = build_graph(export_model(made.model))
    assert not [t for t in graph.tensors if t.dtype == "float32" and t.shape in ((400, 32), (32, 400))]
    assert len(made.to_circle()) < len(write_model(export_model(module))) / 3
    assert made.verdict["scheme"]["columns"] == made.verdict["scheme"]["scores"] == "int8_wo"
    (weights,) = [count["weights"] for name, count in made.verdict["coverage"]["precisions"].items() if name != "float"]
    assert weights == 2 * 400 * 32 + 10 * 32


@pytest.mark.parametrize(
    ("width", "is_tied", "weights", "dtype"),
    [
        (8, False, "int8", "i16"),
        (8, True, "int8", "i8"),
        (16, False, "int8", "i8"),
        (3, False, "int4", "i16"),
        (12, False, "int4", "i4"),
        (2, True, "int8", "i8"),
    ],
)
def test_short_rows_of_a_table_have_wide_codes(width: int, is_tied: bool, weights: str, dtype: str) -> None:
    """A scale for each row would take more bytes than the codes; a layer that reads the table as well keeps it one."""
    net = FloatNet(8)
    table = net.weights(60 if width > 3 else 300, width)
    found = net.add("GATHER", table, _ids(net, 6, below=60), axis=0)
    if is_tied:
        found = net.add("FULLY_CONNECTED", found, table)
    module = net.module(found)
    expected = _host(export_model(module), net.inputs)
    run_pass(module, "quant-weights-only", dtype=weights)
    tables = [op for op in module.walk() if isinstance(op, ConstOp) and len(op.blob.data) >= 60 * width // 2]
    (coded,) = tables
    assert f"!quant.uniform<{dtype}:" in str(coded.result.type)
    error = np.abs(_host(export_model(module), net.inputs) - expected).max()
    assert (error < 1e-4) == (dtype == "i16")
