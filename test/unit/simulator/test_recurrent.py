"""LSTM gates on the simulator equal numerics, and cost what the formula says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.npu import records, run
from odc_mlir import targets
from odc_mlir.errors import SimulationError
from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.codec import make
from odc_mlir.numerics import lstm
from odc_mlir.numerics.fixed import multiply, requantize
from odc_mlir.numerics.gates import saturate16
from odc_mlir.simulator import Result

VECTOR = targets.load("npu-256").vector
UNITS, CELL, HIDDEN = 5, 256, 512
GATES = ("input_gate", "forget_gate", "cell_gate", "output_gate")
SCALES = dict(zip(GATES, [(1 << 30, -3), (1_200_000_000, -4), (1_900_000_000, -2), (1_500_000_000, -3)], strict=True))


def fields(coupled: bool, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"accumulators": 0, "units": UNITS, "input": 0, "cell": CELL, "hidden": HIDDEN}
    found |= {"coupled": int(coupled), "cell_exponent": -11, "clip": 0, "out_zero": -3}
    for name, (multiplier, exponent) in (SCALES | {"out": (1 << 30, -22)}).items():
        found |= {f"{name}_multiplier": multiplier, f"{name}_exponent": exponent}
    return found | changes


def simulated(values: dict[str, Any], sums: np.ndarray, added: np.ndarray, cell: np.ndarray) -> Result:
    """A convolution with weights of 1 makes ``sums`` accumulators, biases and all; then one step of a cell."""
    count = sums.size
    text = "\n".join(
        [
            f"load source=inputs:0 size0={added.nbytes} size1=1 size2=1",
            f"load source=inputs:128 target={CELL} size0={cell.nbytes} size1=1 size2=1",
            "fill target=1024 bytes=1 type=i8 post=0",
            f"param source=constants:0 count={count}",
            f"wload source=constants:1024 coded_bytes={count} coding=raw bytes={count} post=1",
            "conv init=bias in_type=i8 weight_type=i8 out_type=i8 shape=3 multiplier=1 input=1024 in_stride_x=1"
            f" in_stride_y=1 in_channels=1 out_width=1 out_height=1 channels={count} kernel_height=1 kernel_width=1"
            " stride_y=1 stride_x=1 dilation_y=1 dilation_x=1 wait=0,1 post=2",
            format_instruction(make("gates", **values, waits=[2], posts=[3])),
            f"store target=outputs:0 source={CELL} size0={cell.nbytes} size1=1 size2=1 wait=3",
            f"store target=outputs:128 source={HIDDEN} size0={UNITS} size1=1 size2=1",
            "halt",
        ]
    )
    constants = records(sums.reshape(-1).astype(int).tolist()).ljust(1024, b"\0") + bytes(count)
    return run(
        text,
        [added, cell],
        constants=constants,
        inputs=[("int16", added.shape), ("int16", cell.shape)],
        outputs=[("int16", cell.shape), ("int8", (UNITS,))],
    )


@pytest.mark.parametrize(("coupled", "clip"), [(False, 0), (True, 0), (False, 700)])
def test_a_step(coupled: bool, clip: int) -> None:
    random = np.random.default_rng(5)
    names = GATES[1:] if coupled else GATES
    sums = random.integers(-(1 << 16), 1 << 16, (len(names), UNITS))
    added = random.integers(-(1 << 15), 1 << 15, (len(names), UNITS)).astype(np.int16)
    cell = random.integers(-3000, 3000, UNITS).astype(np.int16)
    result = simulated(fields(coupled, clip=clip), sums, added, cell)
    arguments = {
        name: saturate16(multiply(own.astype(np.int32), *SCALES[name]).astype(np.int64) + part).astype(np.int16)
        for name, own, part in zip(names, sums, added, strict=True)
    }
    new = lstm.next_cell(arguments.get("input_gate"), arguments["forget_gate"], arguments["cell_gate"], cell, -11, clip)
    products = lstm.hidden_products(arguments["output_gate"], new, -11)
    assert (result.outputs[0] == new).all()
    assert (result.outputs[1] == requantize(products, 1 << 30, -22, -3, -128, 127, "int8")).all()
    assert clip == 0 or abs(result.outputs[0]).max() == clip
    assert result.trace is not None
    event = next(event for event in result.trace.events if event.index == 6)
    functions = len(names) + 1
    assert event.ended - event.started == (
        VECTOR.softmax_start_cycles + 2 * functions * UNITS / VECTOR.softmax_elements_per_cycle
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"units": 0}, "computes nothing: units is 0"),
        ({"cell_exponent": -8}, "cell_exponent is -8, allowed: -15..-9"),
        ({"clip": 1 << 15}, "clip is 32768, no cell state is as large"),
        ({"forget_gate_exponent": 40}, "field forget_gate_exponent is 40, allowed: -31..31"),
        ({"hidden": CELL}, "which it reads itself"),
        ({"units": 6}, "parts of which were never written"),
    ],
)
def test_what_goes_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    shape = (len(GATES), UNITS)
    with pytest.raises(SimulationError, match=message):
        simulated(fields(False, **changes), np.zeros(shape), np.zeros(shape, np.int16), np.zeros(UNITS, np.int16))
