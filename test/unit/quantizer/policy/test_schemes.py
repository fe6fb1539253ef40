"""Schemes, and what operators fix in them."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir import ops
from odc_mlir.errors import OptionError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.quantization import QuantKind
from odc_mlir.quantizer.policy.schemes import FIXED, PRECISIONS, SCHEMES, represented_range, scheme

# Where the real results of each function lie.
BOUNDS = {
    "logistic": (0, 1),
    "tanh": (-1, 1),
    "softmax": (0, 1),
    "log_softmax": (-15.9, 0),
    "l2_normalization": (-1, 1),
}


def test_element_types() -> None:
    rows = {name: (item.activations, item.weights, item.bias, item.family) for name, item in SCHEMES.items()}
    assert rows == {
        "uint8": ("uint8", "uint8", "int32", "one"),
        "int8": ("int8", "int8", "int32", "tflite"),
        "int8x4": ("int8", "int4", "int32", "tflite"),
        "int16": ("int16", "int16", "int64", "one"),
        "int16x8": ("int16", "int8", "int64", "tflite"),
        "int8_wo": (None, "int8", None, "one"),
        "int16_wo": (None, "int16", None, "one"),
        "int4_wo": (None, "int4", None, "one"),
    }
    assert PRECISIONS == ("uint8", "int8", "int8x4", "int16", "int16x8", "float")


def test_all_tables_of_operators_are_there() -> None:
    used = {spec.quant.table for spec in ops.all_specs().values() if spec.quant.kind is QuantKind.FIXED}
    assert used == {table for table, _ in FIXED} == BOUNDS.keys()


@pytest.mark.parametrize("key", FIXED, ids=str)
def test_fixed_parameters_hold_the_results(key: tuple[str, str]) -> None:
    table, dtype = key
    for params in FIXED[key].values():
        low, high = represented_range(params, dtype)
        assert low <= BOUNDS[table][0] + 2 * params.scale
        assert high >= BOUNDS[table][1] - 2 * params.scale
        assert params.scale == float(np.float32(params.scale))
        assert DTYPES[dtype].range[0] <= params.zero_point <= DTYPES[dtype].range[1]


@pytest.mark.parametrize(
    ("name", "table", "scale", "zero"),
    [
        ("uint8", "softmax", 1 / 255, 0),
        ("int16", "softmax", 1 / 32767, 0),
        ("int8", "softmax", 1 / 256, -128),
        ("int16x8", "softmax", 1 / 32768, 0),
        ("uint8", "logistic", 1 / 256, 0),
        ("int8", "logistic", 1 / 256, -128),
        ("uint8", "tanh", 2 / 256, 128),
        ("int8", "tanh", 1 / 128, 0),
        ("int16", "tanh", 1 / 32768, 0),
        ("int8", "log_softmax", 1 / 16, 127),
        ("int8", "l2_normalization", 1 / 128, 0),
    ],
)
def test_some_fixed_parameters(name: str, table: str, scale: float, zero: int) -> None:
    found = scheme(name).fixed(table)
    assert found is not None
    assert (found.scale, found.zero_point) == (float(np.float32(scale)), zero)


def test_what_is_not_fixed() -> None:
    assert scheme("int16").fixed("log_softmax") is None
    assert scheme("int8_wo").fixed("softmax") is None


def test_options() -> None:
    assert scheme("int8").with_options(granularity="tensor").granularity == "tensor"
    assert scheme("uint8").with_options(weights="symmetric").symmetric_weights
    assert scheme("uint8").with_options() == scheme("uint8")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("int16", {"granularity": "tensor"}, "one scale per channel"),
        ("int8_wo", {"granularity": "tensor"}, "one scale per channel"),
        ("int8", {"granularity": "layer"}, "unknown granularity 'layer'.*channel, tensor"),
        ("int8", {"weights": "asymmetric"}, "only uint8 ones can be asymmetric"),
        ("uint8", {"weights": "skew"}, "unknown weight form 'skew'"),
    ],
)
def test_options_that_cannot_be(name: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        scheme(name).with_options(**options)


def test_unknown_scheme() -> None:
    with pytest.raises(OptionError, match=r"unknown quantisation scheme 'int9'.*uint8, int8"):
        scheme("int9")
