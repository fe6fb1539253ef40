"""Why operators stay on the host, by cause, and what to do about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir import targets
from odc_mlir.formats.host_reasons import MemoryReason, TypeReason
from odc_mlir.runtime.reporting.report_partition import host_groups, host_warning


def _layer(op: str, reason: str, macs: int = 0, placed: str = "host") -> dict[str, Any]:
    return {"op": op, "placed": placed, "reason": reason, "macs": macs}


def _lines(*layers: dict[str, Any], quantized: bool = False) -> list[str]:
    total = sum(layer["macs"] for layer in layers)
    return [group.line(total) for group in host_groups(layers, "npu-256", quantized=quantized)]


@pytest.mark.parametrize(
    "reason",
    [
        TypeReason("'a is b'", "int32"),
        MemoryReason(2560, 1000),
        MemoryReason(2560, 1000, ("'a of 5 bytes'", 2000, "enters")),
    ],
)
def test_a_reason_is_parsed_as_it_was_written(reason: TypeReason | MemoryReason) -> None:
    assert reason.parse(str(reason)) == reason
    assert reason.parse(f"other-rule: {reason.text}") is None


def test_a_float_model_is_told_to_be_quantised() -> None:
    layers = [_layer("ADD", "element-type: 'a' is float32"), _layer("CONV_2D", "element-type: 'b c' is float32", 10)]
    (line,) = _lines(*layers)
    assert line == (
        "1 x ADD, 1 x CONV_2D (100.0 % of the MACs): they compute float32, but npu-256 takes int8, uint8 and int16; "
        "quantise the model: --quantize int8 --calibration DATA.npz"
    )
    (line,) = _lines(*layers, quantized=True)
    assert line.endswith("the quantiser kept them real, see its verdict")
    (line,) = _lines(*layers, _layer("CONV_2D", "", 10, placed="npu"))
    assert line.endswith("often for LiteRT: then write .circle, not .tflite")


def test_types_that_no_target_runs() -> None:
    (line,) = _lines(_layer("ADD", "element-type: 'a' is int32"))
    assert f"they compute int32, which no target runs ({', '.join(targets.names())} take int8, uint8 and int16)" in line
    assert line.endswith("quantise the float model to int8 or uint8")
    (line,) = _lines(_layer("SELECT", "element-type: 'a' is bool"), _layer("CONV_2D", "", 10, placed="npu"))
    assert line.endswith("take int8, uint8 and int16)")  # the model is quantised


def test_memory_is_named() -> None:
    (line,) = _lines(_layer("ADD", "fits-sram: 2560 bytes of 1000"), _layer("MUL", "fits-sram: 3000 bytes of 1000"))
    assert line.endswith(
        "SRAM is too small: with inputs and outputs it needs 3,000 bytes, 1,000 are allowed; "
        "raise --sram-limit, leave out --allow-host (results may then stay in the tile buffer), "
        "or use a target with more"
    )


def test_what_leaves_the_npu_is_named() -> None:
    reason = "fits-sram: 5615274 bytes of 4194304; 'a b' of 5526549 bytes leaves the NPU as a whole"
    (line,) = _lines(_layer("RESIZE_BILINEAR", reason))
    assert line == (
        "1 x RESIZE_BILINEAR: SRAM is too small for 'a b', which leaves the NPU as a whole: with inputs and outputs "
        "it needs 5,615,274 bytes, 4,194,304 are allowed; let the model end in something smaller, which the NPU "
        "computes row by row (ARG_MAX instead of the scores of all classes), or allow more SRAM (--sram-limit, a "
        "target with more)"
    )
    (line,) = _lines(_layer("CONV_2D", reason.replace("leaves", "enters")))
    assert "; give the model a smaller one, or allow more SRAM" in line


def test_the_memory_that_is_said_to_be_enough_is() -> None:
    builder = ModelBuilder()
    shapes = ((1, 64, 64, 16), (1, 64, 64, 16), (1, 64, 64, 16), (1, 16))
    x, a, b, y = (builder.tensor(f"t{i}", shape, "int8", quant=(0.5, 0)) for i, shape in enumerate(shapes))
    axes = builder.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
    for source, result in ((x, a), (a, b)):
        w = builder.tensor(f"w{result}", (16, 3, 3, 16), "int8", quant=(0.5, 0), data=np.ones((16, 3, 3, 16), np.int8))
        options = {"padding": "same", "stride_w": 1, "stride_h": 1}
        builder.operator("CONV_2D", [source, w, -1], [result], options=options)
    builder.operator("MEAN", [b, axes], [y])
    model = model_bytes(builder.finish([x], [y]))
    supported = {"strategy": "supported"}
    limited = odc_mlir.compile(model, sram_limit=100_000, allow_host=True, placement=supported)
    reasons = limited.plan.host_reasons.values()
    needs = [int(reason.split()[1]) for reason in reasons if reason.startswith("fits-sram: ")]
    assert needs
    assert len(needs) == len(reasons)
    enough = odc_mlir.compile(model, sram_limit=max(needs), placement=supported)
    assert not enough.plan.host_reasons


def test_other_rules_stand_for_themselves() -> None:
    name = "a" * 500
    lines = _lines(
        _layer("QUANTIZE", "element-type: 'a' is float32"),
        _layer("TANH", f"rule: {name!r} is odd", 1),
        _layer("TANH", "rule: 'b' is odd", 1),
        _layer("ADD", "", 2, placed="npu"),
    )
    assert lines[1] == "1 x QUANTIZE: element-type: 'a' is float32"
    assert lines[0] == f"2 x TANH (50.0 % of the MACs): rule: '{'a' * 48}…{'a' * 48}' is odd"


def _product(dtype: str, quant: tuple[float, int] | None) -> bytes:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 64), dtype, quant=quant)
    weights = builder.tensor("w", (32, 64), dtype, quant=quant, data=np.ones((32, 64), np.dtype(dtype)))
    y = builder.tensor("y", (1, 32), dtype, quant=None if quant is None else (16.0, 0))
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y])
    return model_bytes(builder.finish([x], [y]))


def test_a_warning_when_most_of_the_work_stays() -> None:
    warning = host_warning(odc_mlir.compile(_product("float32", None)))
    assert warning is not None
    assert "100.0 % of the MACs stay on the host: 1 x FULLY_CONNECTED: they compute float32" in warning
    on_npu = odc_mlir.compile(_product("int8", (0.5, 0)), placement={"strategy": "supported"})
    assert host_warning(on_npu) is None
