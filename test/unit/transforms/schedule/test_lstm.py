"""LSTM cells on the NPU: blocks of time, groups of units, weights that stay and weights that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.ir import SSAValue

from helpers.npu_layers import Body, check, make_module, small_target, tensor_type
from odc_mlir import targets
from odc_mlir.dialects import npu
from odc_mlir.errors import CompileError
from odc_mlir.transforms.npu.schedule.lstm_stream import plan_lstm
from odc_mlir.transforms.partition.plans.costs import segment_cycles
from odc_mlir.transforms.partition.plans.plans import OperatorCost


def lstm(body: Body, x: SSAValue, units: int, *, gates: int = 4, time_major: bool = False, clip: int = 0) -> npu.LstmOp:
    """A cell with random weights over ``x``; its states are constants."""
    first, second, features = npu.shape_of(x)
    batch = second if time_major else first
    rows = gates * units
    reach = [int(np.log2(count) / 2) for count in (features, units)]

    def scales(depth: int) -> list[npu.ScaleAttr]:
        return [npu.ScaleAttr.of(int(body.random.integers(1 << 30, (1 << 31) - 1)), -depth) for _ in range(gates)]

    made = npu.LstmOp(
        [x, body.constant((batch, units), zero=-3), body.constant((batch, units), "int16")],
        tensor_type((first, second, units), zero=-3),
        time_major=time_major,
        input_weights=body.codes(rows * features, "int8"),
        bias=npu.ChannelsAttr.of(body.random.integers(-5000, 5000, rows)),
        input_scales=scales(reach[0]),
        recurrent_weights=body.codes(rows * units, "int8"),
        hidden_zero=-3,
        recurrent_scales=scales(reach[1]),
        cell_exponent=-11,
        clip=clip,
        out_scale=npu.ScaleAttr.of(1 << 30, -22),
        out_zero=-3,
    )
    body.add(made)
    return made


def module_of(shape: tuple[int, int, int], units: int, *, target: str = "npu-256", memory: str = "flash", **kind: Any):  # type: ignore[no-untyped-def]
    return make_module(lambda b: lstm(b, b.block.args[0], units, **kind).results, shape, target=target, memory=memory)


@pytest.mark.parametrize("memory", ["flash", "sram"])
@pytest.mark.parametrize(
    ("shape", "units", "kind"),
    [
        ((1, 1, 1), 1, {}),
        ((1, 5, 3), 4, {"clip": 900}),
        ((1, 9, 6), 7, {"gates": 3}),
        ((3, 4, 5), 6, {}),
        ((4, 3, 5), 6, {"time_major": True}),
        ((1, 60, 40), 33, {}),  # blocks of time
    ],
)
def test_cells(shape: tuple[int, int, int], units: int, kind: dict[str, Any], memory: str) -> None:
    check(module_of(shape, units, memory=memory, **kind))


@pytest.mark.parametrize(
    ("shape", "units", "local"),
    [
        ((1, 4, 20), 24, {"weight_bytes": 2048}),  # neither weights stay
        ((2, 7, 30), 8, {"weight_bytes": 2048, "tile_bytes": 2048}),
        ((1, 3, 10), 40, {"param_entries": 64, "accumulators": 64}),
        ((1, 40, 8), 8, {"tile_bytes": 2048}),
    ],
)
def test_small_memories(shape: tuple[int, int, int], units: int, local: dict[str, int], tmp_path: Path) -> None:
    check(module_of(shape, units, target=small_target(tmp_path, **local)))


def test_weights_that_fit_are_loaded_once(tmp_path: Path) -> None:
    """They pass the SRAM port once, where a slot for part of them makes that once a step."""
    shape, weights = (1, 50, 16), 4 * 16 * 16
    stays, streams = (
        check(module_of(shape, 16, memory="sram", target=target)).to_dict()["ports"]["sram"]["read_bytes"]
        for target in ("npu-256", small_target(tmp_path, weight_bytes=1024))
    )
    assert streams - stays >= 45 * weights


@pytest.mark.parametrize(
    ("shape", "units", "local", "message"),
    [
        ((1, 2, 8), 200, {"tile_bytes": 1024}, "a time step of the cell takes 2912 bytes of the tile buffer"),
        ((1, 2, 600), 8, {"weight_bytes": 1024}, "600 inputs of the cell are too many for the weight buffer"),
        ((1, 2, 8), 300, {"weight_bytes": 1024}, "300 units and a batch of 1 are too many"),
        ((40, 2, 8), 8, {"accumulators": 64}, "8 units and a batch of 40 are too many"),
    ],
)
def test_what_does_not_fit_is_refused(
    shape: tuple[int, int, int], units: int, local: dict[str, int], message: str, tmp_path: Path
) -> None:
    target = targets.load(small_target(tmp_path, **local))
    (op,) = (op for op in module_of(shape, units).walk() if isinstance(op, npu.LstmOp))
    with pytest.raises(CompileError, match=message):
        plan_lstm(op, target, target.local.tile_bytes)


@pytest.mark.parametrize(
    ("shape", "units", "gates"), [((1, 24, 51), 40, 4), ((2, 15, 29), 58, 3), ((1, 6, 67), 127, 4), ((1, 40, 9), 5, 3)]
)
def test_the_estimate_is_near_the_cycles(shape: tuple[int, int, int], units: int, gates: int) -> None:
    """Weights that stay, and weights that are read again in every step."""
    target, module = targets.load("npu-256"), module_of(shape, units, memory="sram", gates=gates)
    (op,) = (op for op in module.walk() if isinstance(op, npu.LstmOp))
    plan = plan_lstm(op, target, target.local.tile_bytes)
    estimate = segment_cycles(target, "sram")([OperatorCost(plan.cycles, plan.program_bytes)])
    assert estimate == pytest.approx(check(module).cycles, rel=0.1)
