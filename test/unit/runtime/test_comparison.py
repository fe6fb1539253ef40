"""Comparing two runs: what is matched with what, in which values, and in which order."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.models import ModelBuilder, add_model
from odc_mlir.errors import ModelError, OptionError
from odc_mlir.formats.circle.model import Model
from odc_mlir.runtime.execution.executor import Capture, HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.reporting.metrics import Tolerance, compare

A = np.arange(4, dtype=np.float32).reshape(1, 4)
B = np.full((1, 4), 10, np.float32)
EXACT = Tolerance(0, 0)


def _executor(model: Model) -> HostExecutor:
    return HostExecutor(build_graph(model))


def _model(first: str = "ADD", names: tuple[str, str, str] = ("sum", "twice", "out")) -> Model:
    """``sum = a + b`` (or another operator), ``twice = sum + sum``, ``out = twice + a``."""
    builder = ModelBuilder()
    a, b, total, twice, out = (builder.tensor(name, (1, 4)) for name in ("a", "b", *names))
    builder.operator(first, [a, b], [total])
    builder.operator("ADD", [total, total], [twice])
    builder.operator("ADD", [twice, a], [out])
    return builder.finish([a, b], [out])


def _quantised(scale: float = 0.5, zero_point: int = 3, hidden: tuple[float, int] = (1.0, 0)) -> Model:
    builder = ModelBuilder()
    a, b = (builder.tensor(n, (1, 4), "int8", quant=(scale, zero_point)) for n in "ab")
    total = builder.tensor("sum", (1, 4), "int8", quant=hidden)
    out = builder.tensor("out", (1, 4), "int8", quant=(1.0, -5))
    builder.operator("ADD", [a, b], [total])
    builder.operator("ADD", [total, a], [out])
    return builder.finish([a, b], [out])


def test_the_same_agrees_with_itself() -> None:
    found = compare(_executor(_model()), _executor(_model()), [[A, B], [B, A]], EXACT)
    assert found.first_diverging is None
    assert [(t.name, t.op, t.kind, t.diverges) for t in found.tensors] == [
        ("sum", "ADD", "intermediate", False),
        ("twice", "ADD", "intermediate", False),
        ("out", "ADD", "output", False),
    ]
    assert found.records == 2
    assert found.outputs[0].errors is not None
    assert found.outputs[0].errors.elements == 8


def test_the_first_that_diverges_is_named() -> None:
    found = compare(_executor(_model("ADD")), _executor(_model("SUB")), [[A, B]], EXACT)
    assert [t.diverges for t in found.tensors] == [True, True, True]
    assert found.first_diverging is found.tensors[0]
    assert found.tensors[0].errors is not None
    assert found.tensors[0].errors.max_abs == 20


def test_tensors_are_matched_by_name_and_outputs_by_position() -> None:
    found = compare(_executor(_model()), _executor(_model(names=("other", "twice", "result"))), [[A, B]], EXACT)
    assert [t.name for t in found.tensors] == ["twice", "out"]
    assert found.first_diverging is None


def test_tensors_of_one_name_are_told_apart() -> None:
    names = ("same", "same", "out")
    found = compare(_executor(_model(names=names)), _executor(_model(names=names)), [[A, B]], EXACT)
    assert [t.name for t in found.tensors] == ["same", "same#3", "out"]
    assert found.first_diverging is None


def test_codes_of_one_quantisation_are_compared_as_codes() -> None:
    inputs = [np.array([[1, 2, 3, 40]], np.int8), np.array([[5, 6, 7, 8]], np.int8)]
    found = compare(_executor(_quantised()), _executor(_quantised(hidden=(2.0, 0))), [inputs], EXACT)
    hidden, out = found.tensors
    assert (hidden.unit, out.unit) == ("value", "code")
    assert hidden.reference_type == hidden.other_type == "int8[1, 4]"
    assert out.errors is not None
    assert out.errors.max_abs in (0, 1, 2), "steps of the output"


@pytest.mark.parametrize("given", ["reals", "codes"])
def test_a_float_model_beside_its_quantised_form(given: str) -> None:
    """Inputs are converted for each side; values are compared as reals, within half a step of each quantisation."""
    codes = [np.array([[1, 3, 5, 7]], np.int8), np.array([[7, 5, 3, 13]], np.int8)]
    reals = [(0.5 * (c.astype(np.float32) - 3)).astype(np.float32) for c in codes]
    record = reals if given == "reals" else codes
    found = compare(_executor(add_model()), _executor(_quantised()), [record], Tolerance(1.0, 0.0))
    assert [(t.name, t.unit, t.diverges) for t in found.tensors] == [("sum", "value", False), ("out", "value", False)]
    assert (found.tensors[0].reference_type, found.tensors[0].other_type) == ("float32[1, 4]", "int8[1, 4]")
    swapped = compare(_executor(_quantised()), _executor(add_model()), [record], Tolerance(1.0, 0.0))
    assert swapped.first_diverging is None


def test_two_quantisations_of_inputs() -> None:
    """The record is in the reference's codes."""
    codes = [np.array([[1, 3, 5, 7]], np.int8), np.array([[7, 5, 3, 13]], np.int8)]
    found = compare(_executor(_quantised()), _executor(_quantised(0.25, -7)), [codes], EXACT)
    assert found.first_diverging is None


def test_different_shapes_diverge() -> None:
    builder = ModelBuilder()
    a, b, out = builder.tensor("a", (1, 4)), builder.tensor("b", (1, 4)), builder.tensor("out", (4,))
    total = builder.tensor("sum", (1, 4))
    shape = builder.tensor("shape", (1,), "int32", data=np.array([4], np.int32))
    builder.operator("ADD", [a, b], [total])
    builder.operator("RESHAPE", [total, shape], [out])
    found = compare(_executor(add_model()), _executor(builder.finish([a, b], [out])), [[A, B]])
    assert found.first_diverging is found.outputs[0]
    assert found.outputs[0].misfit == "the shapes differ"
    assert (found.outputs[0].reference_type, found.outputs[0].other_type) == ("float32[1, 4]", "float32[4]")


def test_models_of_different_form_cannot_be_compared() -> None:
    builder = ModelBuilder()
    a, out = builder.tensor("a", (1, 4)), builder.tensor("out", (1, 4))
    builder.operator("ADD", [a, a], [out])
    with pytest.raises(ModelError, match="has 2 inputs, the other 1"):
        compare(_executor(add_model()), _executor(builder.finish([a], [out])), [[A, B]])


def test_capture_of_anything_with_a_name() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    w = builder.tensor("w", (1, 4), data=B)
    builder.operator("ADD", [x, w], [y])
    executor = _executor(builder.finish([x], [y]))
    capture = Capture(executor, ["y", "w", "x"])
    executor.run([A], watch=capture)
    np.testing.assert_array_equal(capture.values["x"], A)
    np.testing.assert_array_equal(capture.values["w"], B)
    np.testing.assert_array_equal(capture.values["y"], A + B)
    capture.values["w"][...] = 0
    np.testing.assert_array_equal(executor.run([A])[0], A + B)


def test_capture_of_what_is_not_there() -> None:
    executor = _executor(_model())
    with pytest.raises(OptionError, match=r"no tensor 'twic'; close to it are 'twice'"):
        Capture(executor, ["twic"])
    with pytest.raises(OptionError, match="odc-dump lists"):
        Capture(executor, ["?"])
