"""The target's say: what it runs keeps a type that it takes, and what that costs or brings is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import MODELS, squeeze_excite
from helpers.models import ModelBuilder
from odc_mlir.errors import AccuracyError
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.attention import leaked
from odc_mlir.quantizer.target import TargetRules
from odc_mlir.runtime.execution.graph import build_graph

TARGET = "npu-256"


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        *(pytest.param(name, "int8", marks=[pytest.mark.slow] * (name == "attention")) for name in MODELS),
        ("squeeze_excite", "uint8"),
    ],
)
def test_no_layer_gets_a_type_that_the_target_refuses(name: str, scheme: str) -> None:
    """Whatever accuracy asks for: with a limit that nothing keeps, all that can be tried is."""
    module, samples = MODELS[name]()
    options: dict[str, Any] = {"scheme": scheme, "calibration": samples, "target": TARGET}
    plain = odc_mlir.quantize(module, help=False, **options)
    pressed = odc_mlir.quantize(module, metric="mae", limit=0.0, ranges="minmax", equalize="none", **options)
    rules = TargetRules(TARGET)
    possible, runs = (rules.judge(made.model).taken() for made in (plain, pressed))
    assert len(possible) == len(runs)
    assert [a and not b for a, b in zip(possible, runs, strict=True)] == [False] * len(runs)
    assert pressed.verdict["coverage"]["target"]["runs_of_possible"] in (None, 1.0)


def test_what_the_host_could_do_better_is_told_and_done_when_asked() -> None:
    module, samples = squeeze_excite()
    options: dict[str, Any] = {"calibration": samples, "target": TARGET, "metric": "sqnr", "rounding": "off"}
    options |= {"ranges": "minmax", "equalize": "none", "correction": "off"}
    told = odc_mlir.quantize(module, limit=45.0, **options)
    assert not told.passed
    front = told.verdict["coverage"]["target"]["front"]
    assert [point["layers"] for point in front] == sorted(point["layers"] for point in front)
    assert front[0]["precisions"] == {}
    assert len(front) > 1
    assert all(point["time_ns"] > 0 for point in front)
    assert front[-1]["sqnr_db"] > front[0]["sqnr_db"]
    assert front[-1]["time_ns"] > front[0]["time_ns"]
    options["limit"] = front[0]["sqnr_db"] + 0.5
    with pytest.raises(AccuracyError, match=r"mixed='on' leaves \d+ layers? to the host, which keeps the limits"):
        odc_mlir.quantize(module, **options).require_passed()
    done = odc_mlir.quantize(module, mixed="on", min_coverage=0.0, **options)
    assert done.passed
    assert set(done.verdict["choices"]["precisions"].values()) == {"float"}


@pytest.mark.parametrize(("target", "scale"), [(None, 1 / 255), (TARGET, 1 / 256)])
def test_fixed_scales_are_those_that_the_target_wants(target: str | None, scale: float) -> None:
    module, samples = squeeze_excite()
    made = odc_mlir.quantize(module, scheme="uint8", calibration=samples, help=False, io="quantized", target=target)
    info = build_graph(export_model(made.model)).output_infos()[0]
    assert info.quant is not None
    assert info.quant.scale == pytest.approx(scale, rel=1e-6)
    found = made.verdict["coverage"].get("target")
    assert found is None or found["runs"] == 1.0


def test_types_that_the_target_does_not_compute_with_are_the_users_choice() -> None:
    module, samples = squeeze_excite()
    made = odc_mlir.quantize(module, scheme="int16x8", calibration=samples, help=False, target=TARGET)
    assert made.passed
    assert made.verdict["coverage"]["target"]["runs"] == 0.0


def test_a_mask_that_hides_nothing_any_more_does_not_pass() -> None:
    rng = np.random.default_rng(0)
    graphs = []
    for hidden in (-1e9, 0.0):
        builder = ModelBuilder()
        mask = np.triu(np.full((4, 4), hidden, np.float32), 1)
        x, y, z = (builder.tensor(name, (1, 4, 4)) for name in "xyz")
        builder.operator("ADD", [x, builder.tensor("mask", (4, 4), data=mask)], [y])
        builder.operator("SOFTMAX", [y], [z], options={"beta": 1.0})
        graphs.append(build_graph(builder.finish([x], [z])))
    samples = [[rng.normal(size=(1, 4, 4)).astype(np.float32)] for _ in range(3)]
    assert leaked(graphs[0], graphs[0], samples) == {"z": 0.0}
    assert leaked(graphs[0], graphs[1], samples)["z"] > 0.2
    assert leaked(graphs[1], graphs[1], samples) == {}
