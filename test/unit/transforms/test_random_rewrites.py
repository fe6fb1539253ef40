"""Random networks before and after optimising: results stay, on codes every bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers import rewrite_parts as parts
from helpers.float_nets import FloatNet
from helpers.mixed_networks import check_codes, check_real
from odc_mlir.dialects.circle import CircleOp, info_of
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle import circle_fuse_batch_norm
from odc_mlir.transforms.circle.circle_assign_layouts import CircleAssignLayoutsPass, Layouts
from odc_mlir.transforms.circle.rewrites.table import RULES
from odc_mlir.transforms.common.placement import main_function

FEW, MANY = 32, 20_000
# The ones that change results, and the one for models whose first dimension is open.
NOT_MIXED = {
    "remove_redundant_quantize",
    "remove_quantdequant",
    "remove_qdq_for_mpo",
    "remove_fakequant",
    "replace_islands_with_integers",
    "dynamic_batch_to_single_batch",
}


def _check(seed: int) -> Counter[str]:
    return check_codes(seed) if seed % 4 == 3 else check_real(seed)


def _is_right(seed: int) -> bool:
    try:
        _check(seed)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("seed", range(FEW))
def test_a_few_networks(seed: int) -> None:
    _check(seed)


def test_a_weight_that_is_a_little_off_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact: Callable[[np.ndarray, int], np.ndarray | None] = circle_fuse_batch_norm.per_channel

    def off(array: np.ndarray, channels: int) -> np.ndarray | None:
        found = exact(array, channels)
        return None if found is None else found * 1.001

    monkeypatch.setattr(circle_fuse_batch_norm, "per_channel", off)
    assert not all(_is_right(seed) for seed in range(FEW))


def test_an_interface_is_turned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What patterns left could make another turn pay, but then nobody would know the order of inputs."""
    asked: list[str] = []
    assign = CircleAssignLayoutsPass.assign

    def recorded(layouts: CircleAssignLayoutsPass, module: ModuleOp) -> Layouts:
        asked.append(layouts.interface)
        return assign(layouts, module)

    monkeypatch.setattr(CircleAssignLayoutsPass, "assign", recorded)
    n = FloatNet(1)
    x = parts.transpose(n, n.real(1, 2, 3, 4), 0, 2, 3, 1)
    made = odc_mlir.optimize(n.module(n.add("MUL", parts.conv(n, x), n.const(2.0))), io_layout="nhwc")
    (image,) = main_function(made.model).body.block.args
    assert asked == ["nhwc", "keep"]
    assert info_of(image).shape == (1, 3, 4, 2)
    assert value_name(image) == "in0"
    assert (made.channels_last_inputs, made.channels_last_outputs) == (("in0",), ())
    assert not any(isinstance(op, CircleOp) and op.SPEC.name == "TRANSPOSE" for op in made.model.walk())


@pytest.mark.parametrize("extents", [(4, 4, 4), (2, 4, 6)])
def test_readers_that_want_another_order_than_a_turned_input_get_it(extents: tuple[int, int, int]) -> None:
    n = FloatNet(1)
    x = n.real(1, *extents)
    orders = [(0, 2, 3, 1), (0, 2, 1, 3)]
    outputs = [n.add("SPACE_TO_DEPTH", parts.transpose(n, x, *order), block_size=2) for order in orders]
    made = odc_mlir.optimize(n.module(*outputs), io_layout="nhwc", verify=True)
    assert made.channels_last_inputs == ("in0",)
    assert made.difference is not None
    assert made.difference.within_tolerance


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_networks() -> None:
    applied: Counter[str] = Counter()
    for seed in range(FEW, MANY):
        applied += _check(seed)
    assert {rule.name for rule in RULES} - set(applied) == NOT_MIXED
