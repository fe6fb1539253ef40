"""Resized images on the simulator: what an instruction gives, costs and refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.npu import run
from odc_mlir import targets
from odc_mlir.errors import SimulationError
from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.codec import make
from odc_mlir.numerics.resize import nearest_resizer, resize_bilinear
from odc_mlir.simulator import Result

VECTOR = targets.load("npu-256").vector
SHAPE, SIZE = (3, 4, 2), (6, 8)
FIELDS: dict[str, Any] = {
    "kind": "bilinear", "type": "i8", "in_stride_x": 2, "in_stride_y": 8, "in_width": 4, "in_height": 3,
    "start_x": -256, "start_y": -256, "step_x": 512, "step_y": 512, "out_width": 8, "out_height": 6, "channels": 2,
    "output": 512, "out_stride_x": 2, "out_stride_y": 16,
}  # fmt: skip
HALVES = {"start_x": 1 << 22, "start_y": 1 << 22, "step_x": 1 << 23, "step_y": 1 << 23}  # of pixels, in 2^-24


def simulated(x: np.ndarray, **changes: Any) -> Result:
    item = x.dtype.itemsize
    strides = {name: item * FIELDS[name] for name in FIELDS if "stride" in name}
    text = [
        f"load source=inputs:0 size0={x.nbytes} size1=1 size2=1 post=0",
        format_instruction(make("resize", **FIELDS | strides | changes, waits=[0], posts=[1])),
        f"store target=outputs:0 source=512 size0={6 * 8 * 2 * item} size1=1 size2=1 wait=1",
        "halt",
    ]
    dtype = str(x.dtype)
    return run("\n".join(text), [x], inputs=[(dtype, x.shape)], outputs=[(dtype, (1, *SIZE, 2))])


@pytest.mark.parametrize(("dtype", "code"), [("int8", "i8"), ("int16", "i16")])
@pytest.mark.parametrize("kind", ["nearest", "bilinear"])
def test_twice_the_size(kind: str, dtype: str, code: str) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(3).integers(limits.min, limits.max + 1, SHAPE).astype(dtype)
    x[0] = np.where(np.arange(8).reshape(x[0].shape) % 3, limits.min, limits.max)
    result = simulated(x, kind=kind, type=code, **(HALVES if kind == "nearest" else {}))
    nearest = nearest_resizer((1, *x.shape), SIZE, False, True)
    expected = nearest(x[None]) if kind == "nearest" else resize_bilinear(x[None], SIZE, False, True)
    np.testing.assert_array_equal(result.outputs[0], expected)
    assert result.trace is not None
    event = next(event for event in result.trace.events if event.index == 1)
    turns = 3 if kind == "bilinear" else 1
    assert event.ended - event.started == VECTOR.start_cycles + turns * expected.size / VECTOR.requant_lanes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": 0}, "computes nothing: a size is 0"),
        ({"type": "i32"}, "field type is i32, allowed: u8, i8, i16"),
        ({"kind": "nearest", "type": "i32"}, "field type is i32, allowed: u8, i8, i16"),
        ({"in_stride_x": 1}, "in_stride_x is 1, a pixel has 2 bytes"),
        ({"in_height": 4}, "parts of which were never written"),
        ({"output": 8}, "which it reads itself"),
    ],
)
def test_what_goes_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        simulated(np.zeros(SHAPE, np.int8), **changes)
