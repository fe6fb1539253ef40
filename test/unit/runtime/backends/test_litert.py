"""The litert backend: what LiteRT is given, what stays with us, and what happens when it refuses."""

from __future__ import annotations

import builtins
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.data import GoldenModel, golden_models
from helpers.models import ModelBuilder, add_model, model_bytes
from odc_mlir.errors import AllocationError, OptionError, UnsupportedError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_tflite
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.backends import LitertExecutor
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.execution.units import Event

pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")

A = np.arange(4, dtype=np.float32).reshape(1, 4)
B = np.full((1, 4), 10, np.float32)


def _executor(model: Model, **options: Any) -> LitertExecutor:
    return LitertExecutor(build_graph(model), **options)


def _mixed(kept: str = "INSTANCE_NORM") -> Model:
    """``s = a + a``, then an operator that LiteRT lacks, then ``t = n + s``, ``out = t * t``."""
    builder = ModelBuilder()
    a, s, n, t, out = (builder.tensor(name, (1, 2, 2, 3)) for name in ("a", "s", "n", "t", "out"))
    builder.operator("ADD", [a, a], [s])
    if kept == "INSTANCE_NORM":
        ones = builder.tensor("ones", (3,), data=np.ones(3, np.float32))
        builder.operator("INSTANCE_NORM", [s, ones, ones], [n], options={"epsilon": 1e-3})
    else:
        builder.operator(kept, [s], [n])
    builder.operator("ADD", [n, s], [t])
    builder.operator("MUL", [t, t], [out])
    return builder.finish([a], [out])


def test_a_whole_model_is_one_part() -> None:
    executor = _executor(add_model(), strict=True)
    assert len(executor.units) == len(executor.parts) == 1
    for _ in range(2):
        np.testing.assert_array_equal(executor.run([A, B])[0], 2 * A + B)
    assert executor.fallbacks == {}


def test_what_litert_lacks_stays_between_the_parts() -> None:
    model = _mixed()
    executor = _executor(model)
    assert [unit.operators for unit in executor.parts] == [(0,), (2, 3)]
    assert len(executor.units) == 3
    inputs = [np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 2, 2, 3)]
    expected = HostExecutor(build_graph(model)).run(inputs)
    np.testing.assert_allclose(executor.run(inputs)[0], expected[0], rtol=1e-6)
    with pytest.raises(
        UnsupportedError, match=r"LiteRT does not support this operator \(op INSTANCE_NORM, tensor 'n'\)"
    ):
        _executor(model, strict=True)


def test_what_litert_refuses_when_asked_stays_with_us(caplog: pytest.LogCaptureFixture) -> None:
    """Its comparison of int8 values wants int8 alone; a mixed model shows which operators are probed one by one."""
    builder = ModelBuilder()
    a, s, n = (builder.tensor(name, (1, 4), "int16") for name in ("a", "s", "n"))
    out = builder.tensor("out", (1, 4), "int16")
    builder.operator("ADD", [a, a], [s])
    builder.operator("MUL", [s, s], [n])
    builder.operator("ADD", [n, s], [out])
    model = builder.finish([a], [out])
    with caplog.at_level(logging.INFO, logger="odc_mlir"):
        executor = _executor(model)
    refused = [record.getMessage() for record in caplog.records if "stays with our kernels" in record.getMessage()]
    assert len(executor.units) - len(executor.parts) == len({text.split()[0] for text in refused})
    values = [np.array([[1, 2, 3, 4]], np.int16)]
    np.testing.assert_array_equal(executor.run(values)[0], HostExecutor(build_graph(model)).run(values)[0])


def test_state_and_control_flow_stay_with_us() -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4))
    state = builder.tensor("state", (1, 4), variable=True)
    out = builder.tensor("out", (1, 4))
    builder.operator("ADD", [x, state], [out])
    assert _executor(builder.finish([x], [out])).parts == ()


def test_weights_that_litert_misreads_stay_with_us() -> None:
    """It takes the codes of uint8 weights of a float layer for int8 ones, and says nothing."""
    builder = ModelBuilder()
    x, out = builder.tensor("x", (1, 4)), builder.tensor("out", (1, 2))
    weights = builder.tensor("w", (2, 4), "uint8", quant=(0.1, 0), data=np.full((2, 4), 200, np.uint8))
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [out])
    model = builder.finish([x], [out])
    assert _executor(model).parts == ()


def test_open_dimensions_are_resized_and_sizes_kept() -> None:
    executor = _executor(add_model((1, 4), signature=(-1, 4)))
    for batch in (1, 3, 3, 2):
        ones = np.ones((batch, 4), np.float32)
        np.testing.assert_array_equal(executor.run([ones, ones])[0], 3 * ones)
    assert executor.fallbacks == {}


def test_static_dimensions_on_request() -> None:
    wide = np.ones((1, 6), np.float32)
    assert _executor(add_model(), resize=True).run([wide, wide])[0].shape == (1, 6)


def _reshaping(to: tuple[int, ...]) -> Model:
    """Open batch, reshaped to a fixed shape: only one batch fits."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4), signature=(-1, 4))
    shape = builder.tensor("shape", (len(to),), "int32", data=np.array(to, np.int32))
    s, out = builder.tensor("s", (1, 4), signature=(-1, 4)), builder.tensor("out", to)
    builder.operator("ADD", [x, x], [s])
    builder.operator("RESHAPE", [s, shape], [out])
    return builder.finish([x], [out])


def test_a_refusal_in_a_run_is_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels take over for that run only; with strict it is an error."""
    executor, strict = _executor(_reshaping((2, 4))), _executor(_reshaping((2, 4)), strict=True)
    ones = np.ones((2, 4), np.float32)
    for candidate in (executor, strict):
        np.testing.assert_array_equal(candidate.run([ones])[0], 2 * ones)

    def refuses(self: object) -> None:
        raise RuntimeError("no more\nof this")

    with monkeypatch.context() as patch:
        patch.setattr(type(executor.parts[0]._interpreter), "invoke", refuses)
        np.testing.assert_array_equal(executor.run([ones])[0], 2 * ones)
        assert executor.fallbacks == {"out": "no more"}
        assert "rejected by LiteRT: no more; our kernels run it this time" in caplog.text
        with pytest.raises(UnsupportedError, match="rejected by LiteRT: no more"):
            strict.run([ones])


def test_memory_inside_a_part_counts() -> None:
    builder = ModelBuilder()
    tensors = [builder.tensor(f"t{i}", (1, 64)) for i in range(4)]
    for source, target in pairwise(tensors):
        builder.operator("ADD", [source, source], [target])
    model = builder.finish([tensors[0]], [tensors[-1]])
    (part,) = _executor(model).parts
    shaped = HostExecutor(build_graph(model)).prepare()
    assert shaped.peak_bytes == 2 * 64 * 4
    assert part.inner_bytes(shaped) == 2 * 64 * 4, "t1 and t2 live together, t3 is counted outside"
    with pytest.raises(AllocationError, match="more than the limit"):
        _executor(model, max_bytes=3 * 64 * 4).run([np.ones((1, 64), np.float32)])


def test_events_of_parts_and_operators() -> None:
    events: list[Event] = []
    inputs = [np.ones((1, 2, 2, 3), np.float32)]
    _executor(_mixed()).run(inputs, observe=events.append)
    assert [(e.name, e.op, e.kind) for e in events] == [
        ("s", "LITERT", "host"),
        ("n", "INSTANCE_NORM", "host"),
        ("out", "LITERT", "host"),
    ]


def test_all_tensors_on_request() -> None:
    _, tensors = odc_mlir.run(model_bytes(add_model()), [A, B], backend="litert", tensors=["sum"])
    np.testing.assert_array_equal(tensors["sum"], A + B)


def test_reference_kernels_show_all_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared tensor by tensor comes from them; what they do not take comes from the others."""
    from ai_edge_litert import interpreter

    asked: list[str] = []
    real, refused = interpreter.Interpreter, ""

    def made(**options: Any) -> Any:
        asked.append(options["experimental_op_resolver_type"].name)
        if asked[-1] == refused:
            raise RuntimeError("no such kernel")
        return real(**options)

    def ran() -> list[str]:
        asked.clear()
        executor = open_executor(model_bytes(add_model()), backend="litert", all_tensors=True, strict=True)
        np.testing.assert_array_equal(executor.run([A, B])[0], 2 * A + B)
        return list(asked)

    monkeypatch.setattr(interpreter, "Interpreter", made)
    assert ran() == ["BUILTIN_REF"]
    refused = "BUILTIN_REF"
    assert ran() == ["BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"]


def test_packages_and_signatures(tmp_path: Path) -> None:
    package = odc_mlir.compile(model_bytes(add_model()))
    np.testing.assert_array_equal(odc_mlir.run(package, [A, B], backend="litert")[0], 2 * A + B)
    assert package.executor("litert") is package.executor("litert")


def test_auto_never_chooses_it() -> None:
    assert not isinstance(open_executor(model_bytes(add_model())), LitertExecutor)


def test_it_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("ai_edge_litert"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OptionError, match=r"needs the package ai-edge-litert; pip install 'odc-mlir\[litert\]'"):
        odc_mlir.run(model_bytes(add_model()), [A, B], backend="litert")


def _litert_itself(data: bytes, inputs: list[Array]) -> list[Array]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=data,
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@pytest.mark.parametrize("golden", golden_models("zoo", "digits", "zoo-int16"))
def test_real_models_are_what_litert_makes_of_them(golden: GoldenModel) -> None:
    executor = open_executor(golden.circle, backend="litert", strict=True)
    assert len(executor.units) == 1
    data = golden.tflite.read_bytes() if golden.tflite.exists() else write_tflite(read_model(golden.circle))
    sample = next(golden.samples())
    for found, expected in zip(executor.run(sample.inputs), _litert_itself(data, sample.inputs), strict=True):
        np.testing.assert_array_equal(found, expected)
