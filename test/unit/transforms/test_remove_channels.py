"""Channels are taken out of networks on codes, and no bit of any output changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.channel_nets import channel_net
from helpers.float_nets import FloatNet, assign, run_pass
from odc_mlir.dialects.circle import CircleOp, tensor_facts
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.numerics.quantize import dequantize_codes
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.transforms.circle.circle_remove_channels import FunctionIntervals
from odc_mlir.transforms.circle.rewrites.channels import channels_of
from odc_mlir.transforms.common.placement import main_function, operators

_NETWORKS = 48
_FAR = 1e6  # what no code stands for


def executor(module: ModuleOp, numerics: str = "fixed") -> HostExecutor:
    """What runs a module, by either way to requantise."""
    return HostExecutor(build_graph(export_model(module)), context=Context(numerics=numerics))


def samples(module: ModuleOp, seed: int) -> Iterator[list[Array]]:
    """Inputs whose codes are the smallest, the largest, one of both everywhere, and any."""
    rng = np.random.default_rng(seed)
    draws: tuple[Callable[[tuple[int, ...]], Array], ...] = (
        lambda shape: np.full(shape, -_FAR),
        lambda shape: np.full(shape, _FAR),
        lambda shape: rng.choice([-_FAR, _FAR], shape),
        lambda shape: rng.uniform(-1, 1, shape),
        lambda shape: rng.uniform(-0.1, 0.1, shape),
    )
    shapes = [info.static_shape for info in executor(module).graph.input_infos()]
    for draw in draws:
        yield [draw(shape).astype(np.float32) for shape in shapes]


def code_bounds(value: SSAValue, intervals: FunctionIntervals) -> tuple[Array, Array]:
    """The smallest and the largest real number of each channel of an output."""
    assert isinstance(value.owner, CircleOp)
    codes = value.owner.operands[0]
    assert value.owner.SPEC.name == "DEQUANTIZE"
    quant = tensor_facts(codes.type).quant
    assert quant is not None
    found = intervals(codes)
    low, high = (dequantize_codes(end, quant.scale, quant.zero_point) for end in (found.low, found.high))
    return low, high


def channels(module: ModuleOp) -> int:
    """Channels of all results."""
    return sum(channels_of(op.results[0]) or 0 for op in operators(module))


def test_outputs_keep_every_bit() -> None:
    removed = 0
    for seed in range(_NETWORKS):
        module = channel_net(seed)
        narrow = module.clone()
        run_pass(narrow, "circle-remove-channels")
        removed += channels(module) - channels(narrow)
        for numerics in ("fixed", "litert"):
            before, after = executor(module, numerics), executor(narrow, numerics)
            for given in samples(module, seed):
                for old, new in zip(before.run(given), after.run(given), strict=True):
                    np.testing.assert_array_equal(new, old, err_msg=f"network {seed}, {numerics}")
    assert removed > _NETWORKS  # nets without any do not count


def test_every_code_is_within_its_bounds() -> None:
    constant = 0
    for seed in range(_NETWORKS):
        module = channel_net(seed, all_values=True)
        function = main_function(module)
        intervals = FunctionIntervals.of_function(function)
        block = function.body.block
        assert block.last_op is not None
        bounds = [code_bounds(value, intervals) for value in block.last_op.operands]
        constant += sum(int((low == high).sum()) for low, high in bounds)
        for numerics in ("fixed", "litert"):
            run = executor(module, numerics)
            for given in samples(module, seed):
                for array, (low, high) in zip(run.run(given), bounds, strict=True):
                    inside = (array >= low) & (array <= high)
                    assert inside.all(), f"network {seed}, {numerics}"
    assert constant > _NETWORKS


@pytest.mark.parametrize(("quiet", "left"), [(1, 32), (2, 30), (31, 1), (32, 1)])
def test_enough_channels_go_or_none(quiet: int, left: int) -> None:
    net = FloatNet()
    x = net.real(1, 3, 3, 4)
    for _ in range(2):
        weights = net.rng.normal(0, 1, (32, 1, 1, net.array(x).shape[3]))
        weights[:quiet] = 0
        options = {"padding": "same", "stride_h": 1, "stride_w": 1, "fused_activation_function": "relu"}
        x = net.add("CONV_2D", x, net.const(weights), net.const(np.where(np.arange(32) < quiet, -1, 1)), **options)
    module = assign(net.module(x), "int8")
    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "circle-remove-channels")
    first, last = (op.results[0] for op in operators(module) if op.SPEC.name == "CONV_2D")
    assert (channels_of(first), channels_of(last)) == (left, 32)


def test_an_ablation_keeps_all() -> None:
    module = channel_net(3)
    whole, narrow = module.clone(), module.clone()
    run_pass(whole, "circle-remove-channels", share=0)
    run_pass(narrow, "circle-remove-channels")
    assert str(whole) == str(module) != str(narrow)


@pytest.mark.parametrize("seed", range(3))
def test_once_is_enough(seed: int) -> None:
    module = channel_net(seed)
    run_pass(module, "circle-remove-channels")
    again = module.clone()
    run_pass(again, "circle-remove-channels")
    assert str(again) == str(module)
