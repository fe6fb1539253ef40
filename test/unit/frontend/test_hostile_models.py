"""Operators and tensors that are not what their operator code makes one expect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder, add_model
from odc_mlir.dialects.circle import CircleOp, node_of, op_class, operator_names
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.formats.circle.model import Model, Quantization
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.runtime.execution.graph import build_graph


def _unary(name: str, table: str | None, options: dict[str, Any]) -> Model:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    builder.operator(name, [x], [y], options_type=table, options=default_options(table) | options)
    return builder.finish([x], [y])


@pytest.mark.parametrize(
    ("name", "table", "options"),
    [
        ("RUN_MODEL", "RunModelOptions", {"location": "other.circle"}),
        ("STABLEHLO_COMPOSITE", "StableHLOCompositeOptions", {"name": "odml.gelu"}),
    ],
)
def test_options_named_like_what_every_operation_has(name: str, table: str, options: dict[str, Any]) -> None:
    model = _unary(name, table, options)
    module = import_model(model)
    assert export_model(module).subgraphs[0].operators[0].options.items() >= options.items()


def test_an_operator_with_options_of_another() -> None:
    with pytest.raises(ModelError, match="the option location is missing; the operator has no RunModelOptions"):
        build_graph(_unary("RUN_MODEL", "SoftmaxOptions", {}))


def test_no_option_hides_a_part_of_operations() -> None:
    for name in operator_names():
        made = op_class(name).make([], [])
        assert made.name == f"circle.{made.SPEC.mnemonic}"
        assert made.location is None or not isinstance(made.location, str)


def test_element_types_are_checked_before_shapes_are_inferred() -> None:
    module = import_model(_unary("IMAG", None, {}))
    (marked,) = (op for op in module.walk() if isinstance(op, CircleOp))
    assert "allowed: complex64" in (marked.unverified or "")
    assert node_of(marked).operands[0] is not None


def test_quantisation_that_only_tflite_has() -> None:
    model = add_model()
    fields: dict[str, Any] = {"axes": (0,)}
    model.subgraphs[0].tensors[0].quantization = Quantization(
        np.array([1], np.float32), details=("MultiAxisQuantization", fields)
    )
    with pytest.raises(UnsupportedError, match=r"Circle has no quantisation of kind MultiAxisQuantization .*'a'"):
        import_model(model)
