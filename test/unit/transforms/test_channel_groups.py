"""Channels whose weights one zero point can stand for, and weights as sums of codes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.ops.spec import QuantParams, TensorInfo
from odc_mlir.transforms.partition.rules.operator_checks import (
    MOST_PARTS,
    centred,
    channel_groups,
    runs_of,
    weight_parts,
)

CHANNELS = st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255)), min_size=1, max_size=12)


@given(CHANNELS)
def test_groups_are_all_channels_and_fit_eight_bits(channels: list[tuple[int, int, int]]) -> None:
    rows = np.array([[low, high] for low, high, _ in channels], np.uint8)
    quant = QuantParams((0.5,) * len(channels), tuple(zero for *_, zero in channels))
    filters = TensorInfo("w", "uint8", rows.shape, quant, memoryview(rows.tobytes()))
    groups = channel_groups(filters, 0)
    assert sorted(channel for group in groups for channel in group) == list(range(len(channels)))
    for group in groups:
        values = centred(filters)[group]
        assert values.max() - values.min() <= 255


@given(CHANNELS, st.sampled_from(["uint8", "int8"]), st.integers(0, 1))
def test_codes_of_weights_add_up(channels: list[tuple[int, int, int]], dtype: str, axis: int) -> None:
    lowest = 0 if dtype == "uint8" else -128
    rows = (np.array([[low, high] for low, high, _ in channels]) + lowest).astype(dtype)
    rows = rows if axis == 0 else np.ascontiguousarray(rows.T)
    quant = QuantParams((0.5,) * len(channels), tuple(zero + lowest for *_, zero in channels), axis)
    filters = TensorInfo("w", dtype, rows.shape, quant, memoryview(rows.tobytes()))
    parts = weight_parts(filters, axis)
    others = (parts.others.astype(int) - parts.zero).sum(axis=0)
    found = parts.first.astype(int) - parts.zero + (others[:, None] if axis == 0 else others)
    np.testing.assert_array_equal(found, centred(filters))
    assert parts.first.dtype == parts.others.dtype == rows.dtype
    assert lowest <= parts.zero <= lowest + 255
    both_ends = {-255, 255} <= set(centred(filters).reshape(-1).tolist())
    assert parts.count == (MOST_PARTS if both_ends else 2)


@given(st.sets(st.integers(0, 30), min_size=1))
def test_runs(channels: set[int]) -> None:
    ordered = sorted(channels)
    runs = runs_of(ordered)
    assert [first + i for _, first, count in runs for i in range(count)] == ordered
    assert [ordered[at] for at, _, _ in runs] == [first for _, first, _ in runs]
    assert all(b[1] > a[1] + a[2] for a, b in pairwise(runs))
