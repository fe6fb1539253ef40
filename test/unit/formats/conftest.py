"""A small valid file as raw records, to be broken by tests, and the way to bytes that does not check anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odc_mlir.formats.circle.schema import circle_schema, tflite_schema
from odc_mlir.formats.circle.writer import Encoder

Record = dict[str, Any]


@pytest.fixture
def record() -> Record:
    """ADD of an input and a constant, with a signature and metadata."""
    return {
        "description": "a test",
        "operator_codes": [{"deprecated_builtin_code": 0, "builtin_code": 0, "version": 2}],
        "subgraphs": [
            {
                "name": "main",
                "tensors": [
                    {"name": "x", "shape": (1, 2), "shape_signature": (-1, 2)},
                    {"name": "w", "shape": (2,), "buffer": 1},
                    {"name": "y", "shape": (1, 2)},
                ],
                "inputs": (0,),
                "outputs": (2,),
                "operators": [
                    {
                        "opcode_index": 0,
                        "inputs": (0, 1),
                        "outputs": (2,),
                        "builtin_options": ("AddOptions", {"fused_activation_function": "relu6"}),
                    }
                ],
            }
        ],
        "buffers": [{}, {"data": bytes(range(8))}, {"data": b"1.14.0"}],
        "metadata": [{"name": "min_runtime_version", "buffer": 2}],
        "signature_defs": [
            {
                "signature_key": "serve",
                "inputs": [{"name": "in", "tensor_index": 0}],
                "outputs": [{"name": "out", "tensor_index": 2}],
            }
        ],
    }


@pytest.fixture
def encode() -> Callable[[Record], bytes]:
    """A Circle file from raw records."""
    return lambda record: Encoder(circle_schema()).finish(record)


@pytest.fixture
def encode_tflite() -> Callable[[Record], bytes]:
    """A TFLite file from raw records."""
    return lambda record: Encoder(tflite_schema()).finish(record)
