"""Channel shuffles go into the weights of layers: results stay, and no TRANSPOSE is left."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers.channel_shuffles import conv, image, moved_at_random, parted, shuffle, shuffle_net, transpose
from helpers.float_nets import FloatNet, run_pass
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.optimizer import count_operators
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle import circle_fuse_channel_shuffle as fusing
from odc_mlir.transforms.common.placement import main_function

PASS = "circle-fuse-channel-shuffle"


def _run(module: ModuleOp, net: FloatNet) -> list[np.ndarray]:
    return HostExecutor(build_graph(export_model(module))).run(net.inputs)


def _same(net: FloatNet, module: ModuleOp) -> tuple[Counter[str], Counter[str]]:
    """Operators before and after the pass, which keeps results."""
    before, old = count_operators(module), _run(module, net)
    run_pass(module, PASS)
    for a, b in zip(old, _run(module, net), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5 * float(np.abs(a).max(initial=0.1)))
    return before, count_operators(module)


@pytest.mark.parametrize("groups", [2, 4])
def test_a_stage_has_none_left(groups: int) -> None:
    n = FloatNet(2)
    before, after = _same(n, n.module(shuffle_net(n, units=4, groups=groups)))
    assert (before["TRANSPOSE"], after["TRANSPOSE"], after["RESHAPE"]) == (5, 0, 0)


def test_channels_first_around_convolutions_channels_last() -> None:
    n = FloatNet(3)
    x = conv(n, transpose(n, image(n, c=4), 0, 1, 2, 3), outputs=32)
    kept, read = parted(n, shuffle(n, transpose(n, x, 0, 3, 1, 2), 2, axis=1), 16, 16, axis=1)
    ends = [conv(n, transpose(n, value, 0, 2, 3, 1)) for value in (kept, read)]
    made = odc_mlir.optimize(n.module(*ends), verify=True)
    assert made.rewrites["fuse_channel_shuffle"] == 1
    assert "TRANSPOSE" not in made.after
    assert made.difference is not None
    assert made.difference.within_tolerance


@pytest.mark.parametrize("seed", range(60))
def test_channels_moved_at_random(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "_SHUFFLED", 10**6)  # whatever it costs
    n = FloatNet(seed)
    ends = moved_at_random(n)
    _, after = _same(n, n.module(*ends))
    assert after["TRANSPOSE"] == 0


def test_what_costs_more_stays() -> None:
    n = FloatNet(4)
    before, after = _same(n, n.module(n.add("NEG", shuffle(n, n.real(1, 4, 4, 64), 2))))
    assert after == before


def test_weights_that_two_layers_share_are_ordered_for_each() -> None:
    n = FloatNet(5)
    options = {"padding": "same", "stride_w": 1, "stride_h": 1, "fused_activation_function": "none"}
    weights, bias = n.weights(32, 1, 1, 32), n.weights(32)
    first = n.add("CONV_2D", n.real(1, 4, 4, 32), weights, bias, **options)
    second = n.add("CONV_2D", shuffle(n, first, 2), weights, bias, **options)
    module = n.module(n.add("RELU", second))
    _, after = _same(n, module)
    assert after["TRANSPOSE"] == 0


def test_outputs_keep_their_names() -> None:
    n = FloatNet(6)
    there = conv(n, image(n, c=4), outputs=32)
    ends = [shuffle(n, there, 2), shuffle(n, shuffle(n, n.real(1, 2, 2, 6), 2), 3)]
    names = [n.name(end) for end in ends]
    module = n.module(*ends)
    _, after = _same(n, module)
    returned = main_function(module).body.block.last_op
    assert returned is not None
    assert [value_name(value) for value in returned.operands] == names
    assert after["TRANSPOSE"] == 0
