"""Inputs and outputs that were to have codes and have none, for their layers stay real."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_nets import FloatNet

TOLD = "real numbers stay in output 'y': codes were asked for, but what reads or makes it stays float"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"io": "quantized"}, [TOLD]),
        ({"output_types": "quantized"}, [TOLD]),
        ({"output_types": {"y": "quantized"}}, [TOLD]),
        ({"io": "quantized", "output_types": "float"}, []),
        ({}, []),
    ],
)
def test_what_stays_real_though_codes_were_asked_for_is_told(options: dict[str, Any], told: list[str]) -> None:
    """LiteRT takes no 16-bit codes in the last layer."""
    net = FloatNet(1)
    hidden = net.add("FULLY_CONNECTED", net.real(1, 8), net.weights(8, 8), None)
    module = net.module(net.add("L2_NORMALIZATION", hidden, name="y"))
    samples = [[np.random.default_rng(seed).normal(size=(1, 8)).astype(np.float32)] for seed in range(12)]
    made = odc_mlir.quantize(module, scheme="int16x8", reader="litert", calibration=samples, help=False, **options)
    assert [text for text in made.verdict["findings"] if text.startswith("real numbers stay")] == told
