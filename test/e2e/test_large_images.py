"""Images that are larger than the SRAM, as networks for segmentation end in: computed row by row, never kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from helpers.networks import RANGES
from odc_mlir.formats.plan import SegmentStep
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.reporting.report_partition import host_groups
from odc_mlir.simulator.program import load
from odc_mlir.simulator.run import simulate

SMALL, LARGE, CLASSES = 9, 33, 21
SCORES = LARGE * LARGE * CLASSES
LIMIT = 16_000  # bytes of SRAM
BETWEEN = {
    "": (),
    "softmax": ("SOFTMAX",),
    "element-wise": ("LOGISTIC", "MAXIMUM"),
    "another scale": ("QUANTIZE", "GELU"),
}  # operators from the resized scores to what is made of them


def segmentation(
    dtype: str, between: tuple[str, ...] = (), last: str = "ARG_MAX", output: str = "int32", large: int = LARGE
) -> bytes:
    """Scores of classes, enlarged, and for each pixel the class of one of them; without ``last`` the scores."""
    builder, low = ModelBuilder(), RANGES[dtype][0]
    quant, image = (0.1, low + 131), (1, large, large, CLASSES)
    x = builder.tensor("x", (1, SMALL, SMALL, CLASSES), dtype, quant=quant)
    size = builder.tensor("size", (2,), "int32", data=np.array([large, large], np.int32))
    scores = builder.tensor("scores", image, dtype, quant=quant)
    builder.operator("RESIZE_BILINEAR", [x, size], [scores], options={"align_corners": True})
    for name in between:
        fixed = {"SOFTMAX": (1 / 256, low), "LOGISTIC": (1 / 256, low), "QUANTIZE": (0.11, low + 120)}
        if name == "MAXIMUM":
            least = np.arange(CLASSES).astype(dtype)
            others = [builder.tensor("least", (CLASSES,), dtype, quant=quant, data=least)]
        else:
            others = []
        quant = fixed.get(name, quant)
        result = builder.tensor(name.lower(), image, dtype, quant=quant)
        builder.operator(name, [scores, *others], [result], options={"beta": 1.0} if name == "SOFTMAX" else {})
        scores = result
    if not last:
        return model_bytes(builder.finish([x], [scores]))
    axis = builder.tensor("axis", (1,), "int32", data=np.array([3], np.int32))
    y = builder.tensor("classes", image[:3], output)
    builder.operator(last, [scores, axis], [y], options={"output_type": output})
    return model_bytes(builder.finish([x], [y]))


def codes(package: Package) -> np.ndarray[Any, Any]:
    (given,) = package.inputs
    low, high = RANGES[given.dtype]
    return np.random.default_rng(0).integers(low, high + 1, given.shape).astype(given.dtype)


@pytest.mark.parametrize(
    ("dtype", "between", "last", "output", "memory"),
    [
        ("int8", "", "ARG_MAX", "int32", "flash"),
        ("uint8", "", "ARG_MAX", "int64", "sram"),
        ("int8", "softmax", "ARG_MAX", "int32", "sram"),
        ("uint8", "element-wise", "ARG_MIN", "int32", "flash"),
        ("int8", "another scale", "ARG_MAX", "int64", "flash"),
    ],
)
def test_scores_are_never_all_there(dtype: str, between: str, last: str, output: str, memory: str) -> None:
    limit = LIMIT if output == "int64" else LIMIT - 4 * LARGE * LARGE
    assert limit < SCORES
    model = segmentation(dtype, BETWEEN[between], last, output)
    options = {"memory": memory, "prefer": "compile-time", "placement": {"strategy": "supported"}}
    package = odc_mlir.compile(model, sram_limit=limit, **options)
    assert package.plan is not None
    assert not package.plan.host_reasons
    assert package.report["sram_peak_bytes"] <= limit
    given = [codes(package)]
    (expected,) = odc_mlir.run(model, given, backend="host")
    (found,) = odc_mlir.run(package, given, backend="npu", strict=True)
    assert len(np.unique(expected)) > 2
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == output


def test_stripes_take_the_same_cycles_stepped() -> None:
    model = segmentation("int8")
    package = odc_mlir.compile(model, sram_limit=LIMIT // 2, placement={"strategy": "supported"})
    assert package.plan is not None
    (segment,) = [step for step in package.plan.steps if isinstance(step, SegmentStep)]
    loaded = load(package.files.segment(segment.file))
    fast, stepped = (simulate(loaded, [codes(package)], mode=mode) for mode in ("fast", "stepped"))
    assert stepped.counters.cycles == fast.counters.cycles
    np.testing.assert_array_equal(stepped.outputs[0], fast.outputs[0])


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_scores_larger_than_the_sram(dtype: str) -> None:
    """5.5 MB of them."""
    size, model = 513, segmentation(dtype, large=513)
    package = odc_mlir.compile(model)
    assert package.plan is not None
    assert not package.plan.host_reasons
    assert package.report["sram_peak_bytes"] < size * size * CLASSES
    given = [codes(package)]
    (expected,) = odc_mlir.run(model, given, backend="host")
    (found,) = odc_mlir.run(package, given, backend="npu", strict=True)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("between", "culprit"), [((), "scores"), (("SOFTMAX",), "softmax")])
def test_scores_that_leave_the_npu_have_to_fit(
    between: tuple[str, ...], culprit: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but the SRAM can hold an output: the reason says which one it is, and what helps."""
    package = odc_mlir.compile(segmentation("int8", between, "", large=513))
    assert package.plan is not None
    assert "--sram-limit" not in caplog.text, "no limit is as large"
    assert ("the SRAM of npu-256 has 4194304 bytes" in caplog.text) == bool(between)
    reason = package.plan.host_reasons[len(between)]
    assert reason.endswith(f"; {culprit!r} of {513 * 513 * CLASSES} bytes leaves the NPU as a whole")
    lines = [group.line(0) for group in host_groups(package.report["layers"], "npu-256", quantized=False)]
    (line,) = [line for line in lines if repr(culprit) in line]
    assert "SRAM is too small for" in line
    assert "ARG_MAX" in line
    assert "a target with more" in line
