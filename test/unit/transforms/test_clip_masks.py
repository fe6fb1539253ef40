"""Masks before SOFTMAX: clipping them changes no bit of a float model, and integers keep the scores beside them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.float_nets import Array, FloatNet, assign, quantised_results, run_pass
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.transforms.circle.circle_clip_masks import mask_of

HUGE = [-3.4028235e38, -np.inf, -1e9, -65504.0, -10000.0]


def _run(module: ModuleOp, inputs: list[Array]) -> Array:
    (result,) = HostExecutor(build_graph(export_model(module))).run(inputs)
    return result


def _causal(count: int, number: float) -> Array:
    return np.where(np.tri(count, dtype=bool), np.float32(0), np.float32(number)).astype(np.float32)


@given(
    st.integers(0, 999),
    st.sampled_from(HUGE),
    st.floats(1e-3, 900),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.booleans(),
    st.booleans(),
)
def test_float_results_keep_every_bit(
    seed: int, number: float, size: float, beta: float, select: bool, added: bool
) -> None:
    net = FloatNet(seed)
    scores = net.real(2, 5, 5, low=-size, high=size)
    with np.errstate(all="ignore"):
        if select and added:
            shown = net.input(np.broadcast_to(np.tri(5, dtype=bool), (2, 5, 5)))
            total = net.add("ADD", scores, net.add("SELECT_V2", shown, net.const(0.0), net.const(number)))
        elif select:
            shown = net.input(np.broadcast_to(np.tri(5, dtype=bool), (2, 5, 5)))
            total = net.add("SELECT_V2", shown, scores, net.const(number))
        else:
            total = net.add("ADD", scores, net.const(_causal(5, number)))
        module = net.module(net.add("SOFTMAX", total, beta=beta))
    before = _run(module, net.inputs)
    run_pass(module, "circle-clip-masks")
    mask = mask_of(next(op for op in module.walk() if isinstance(op, CircleOp) and op.SPEC.name == "SOFTMAX"))
    assert mask is not None
    assert mask.numbers.min() == mask.limit
    np.testing.assert_array_equal(_run(module, net.inputs), before)


def _attention(net: FloatNet, number: float, *, select: bool) -> SSAValue:
    queries, keys = net.real(1, 2, 8, 16, low=-2, high=2), net.real(1, 2, 8, 16, low=-2, high=2)
    scores = net.add("BATCH_MATMUL", queries, keys, adjoint_rhs=True)
    scaled = net.add("MUL", scores, net.const(0.25))
    if select:
        shown = net.const(np.broadcast_to(np.tri(8, dtype=bool), (1, 2, 8, 8)), "bool")
        masked = net.add("SELECT_V2", shown, scaled, net.const(number))
    else:
        masked = net.add("ADD", scaled, net.const(_causal(8, number)))
    return net.add("SOFTMAX", masked, beta=1.0)


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16x8"])
@pytest.mark.parametrize("select", [False, True])
def test_hidden_positions_get_no_attention_in_integers(scheme: str, select: bool) -> None:
    net = FloatNet(5)
    shares = _attention(net, -3.4028235e38, select=select)
    expected = net.array(shares)
    clipped = FloatNet(5)  # the ranges are those of the clipped network, as they are recorded after the pass
    module = clipped.module(_attention(clipped, -2048.0, select=select))
    found = quantised_results(assign(module, scheme), net.inputs)[0]
    # Reference kernels of 16 bits take the exponential of -10 for everything below, which is two steps of the result.
    assert found[..., ~np.tri(8, dtype=bool)].max() <= (2 / 32768 if scheme == "int16x8" else 0)
    assert np.abs(found - expected).max() < (0.002 if scheme == "int16x8" else 0.05)
