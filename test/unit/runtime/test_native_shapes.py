"""Native code for input shapes that the model leaves open."""

from __future__ import annotations

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.errors import OptionError
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.runtime.execution.units import Event
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.session import Session

WIDTH = 8


def dense(*open_shape: int) -> bytes:
    """A fully connected layer on inputs of shape ``open_shape``, with -1 for open dimensions."""
    builder, known = ModelBuilder(), tuple(abs(size) for size in open_shape)
    x = builder.tensor("x", known, signature=open_shape)
    weights = builder.constant("w", np.random.default_rng(0).normal(size=(4, WIDTH)))
    y = builder.tensor("y", (*known[:-1], 4), signature=(*open_shape[:-1], 4))
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y], options={"keep_num_dims": True})
    return builder.file([x], [y])


def sample(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(*shape, WIDTH)).astype(np.float32)


def packaged(*open_shape: int) -> tuple[bytes, PlanExecutor]:
    model = dense(*open_shape)
    executor = odc_mlir.compile(model, target="cpu").executor()
    assert isinstance(executor, PlanExecutor)
    return model, executor


@pytest.mark.parametrize(("open_shape", "shape"), [((-1, WIDTH), (3,)), ((-1, -1, WIDTH), (2, 3))])
def test_open_dimensions_are_compiled_for_the_shape_that_comes(
    open_shape: tuple[int, ...], shape: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    model, executor = packaged(*open_shape)
    value, events = sample(*shape), list[Event]()
    (expected,) = odc_mlir.run(model, [value])
    for _ in range(2):
        np.testing.assert_allclose(executor.run([value], observe=events.append)[0], expected, rtol=1e-5)
        np.testing.assert_allclose(executor.run([value])[0], expected, rtol=1e-5)
    assert [event.op for event in events] == ["SEGMENT", "SEGMENT"]
    assert not caplog.records
    with Session(model) as session:
        session.set_available_backends("native")
        np.testing.assert_allclose(session.infer([value])[0], expected, rtol=1e-5)


def test_a_few_shapes_are_compiled_and_one_line_says_that_the_host_runs_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = list[object]()

    def compiled_alike(model: bytes, *, strict: bool) -> Package:
        compiled.append(model)
        return odc_mlir.compile(model, target="npu-256")

    model, executor = packaged(-1, WIDTH)
    monkeypatch.setattr("odc_mlir.runtime.api.native_in_place", compiled_alike)
    for batch in (2, 3, 4, 5, 6, 7, 2, 6, 1):
        value = sample(batch)
        np.testing.assert_allclose(executor.run([value])[0], odc_mlir.run(model, [value])[0], rtol=1e-5)
    assert len(compiled) == 4
    closed, close = list[PlanExecutor](), PlanExecutor.close

    def close_and_count(self: PlanExecutor) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(PlanExecutor, "close", close_and_count)
    executor.close()
    assert len(closed) == 1 + 4
    assert [record.message for record in caplog.records] == [
        "segment-0.cpu: it was compiled for 'x' as float32[1, 8], the input has the shape [6, 8]; "
        "host kernels run it this time"
    ]


def test_without_a_compiler_host_kernels_run_other_shapes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(model: bytes, *, strict: bool) -> Package:
        raise OptionError("the extra is not installed")

    model, executor = packaged(-1, WIDTH)
    monkeypatch.setattr("odc_mlir.runtime.api.native_in_place", missing)
    for batch in (2, 3, 2):
        value = sample(batch)
        np.testing.assert_array_equal(executor.run([value])[0], odc_mlir.run(model, [value])[0])
    first, second = (record.message for record in caplog.records)
    assert first == "no code for inputs of [2, 8]: the extra is not installed"
    assert second.endswith("the input has the shape [2, 8]; host kernels run it this time")
