"""StepBatches: what they show is what watchers see, and nothing lives longer than it has to."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from helpers.models import ModelBuilder, add_model
from odc_mlir.errors import InputError
from odc_mlir.formats.circle.model import Model
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.execution.units import Values

X = np.arange(8, dtype=np.float32)


def _chain(length: int = 5) -> Model:
    """Tensors 0 to ``length``, each the double of the one before."""
    builder = ModelBuilder()
    found = [builder.tensor(f"t{k}", (8,)) for k in range(length + 1)]
    for before, behind in pairwise(found):
        builder.operator("ADD", [before, before], [behind])
    builder.operator("NEG", [found[1]], [builder.tensor("unused", (8,))])
    return builder.finish([found[0]], [found[-1]])


@pytest.mark.parametrize("size", [1, 64, 1 << 20])
def test_all_is_shown_once_and_released(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odc_mlir.runtime.execution.executor._BATCH_BYTES", size)
    executor = HostExecutor(build_graph(_chain()))
    one_by_one: dict[int, Array] = {}
    executor.run([X], watch=lambda index, value: one_by_one.__setitem__(index, value.copy()))
    shown: list[tuple[int, Array]] = []
    most = []

    def together(indices: tuple[int, ...], values: Values) -> None:
        shown.extend((index, values[index].copy()) for index in indices)
        most.append(len(values))

    (result,) = executor.run([X], watch_together=together)
    assert [index for index, _ in shown] == list(one_by_one)
    for index, value in shown:
        assert np.array_equal(value, one_by_one[index])
    assert np.array_equal(result, X * 32)
    assert len(most) == {1: 7, 64: 4, 1 << 20: 1}[size]
    assert max(most) == {1: 3, 64: 4, 1 << 20: 7}[size]


def test_where_a_run_cannot_show_many_the_other_watcher_sees_them() -> None:
    executor = HostExecutor(build_graph(add_model()))
    inputs = [np.ones((1, 4), np.float32)] * 2
    seen: list[int] = []
    groups: list[tuple[int, ...]] = []

    def run(**options: object) -> tuple[list[int], list[tuple[int, ...]]]:
        seen.clear(), groups.clear()
        executor.run(inputs, watch=lambda i, _: seen.append(i), watch_together=lambda g, _: groups.append(g), **options)
        return seen, groups

    assert run() == ([], [(0, 1, 2, 3)])
    assert run(observe=lambda _: None) == ([0, 1, 2, 3], [])


def test_a_failing_operator_is_named() -> None:
    builder = ModelBuilder()
    x, index, y = builder.tensor("x", (4,)), builder.tensor("index", (1,), "int32"), builder.tensor("y", (1,))
    builder.operator("GATHER", [x, index], [y])
    executor = HostExecutor(build_graph(builder.finish([x, index], [y])))
    groups: list[tuple[int, ...]] = []
    with pytest.raises(InputError, match="GATHER"):
        executor.run([X[:4], np.array([9], np.int32)], watch_together=lambda group, _: groups.append(group))
    assert not groups
