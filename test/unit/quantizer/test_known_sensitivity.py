"""What is known beforehand of layers that need more bits: patterns, files of errors, pairs of layers to equalise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.float_models import rescaled_mobilenet
from helpers.models import ModelBuilder, model_bytes
from odc_mlir import loading
from odc_mlir.errors import OptionError
from odc_mlir.formats import one
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.models import layers_of, prepare
from odc_mlir.quantizer.quantize import quantize

NORM, SOFTMAX = ["sq", "v", "ve", "r"], ["s", "e"]


def _normalised(square: str) -> bytes:
    """A layer, a normalisation, and a softmax, both made of operators."""
    builder, random = ModelBuilder(), np.random.default_rng(0)

    def make(name: str, operator: str, *operands: int, narrow: bool = False, **options: Any) -> int:
        made = builder.tensor(name, (1, 4, 1 if narrow else 8))
        builder.operator(operator, list(operands), [made], options=options)
        return made

    axis = builder.tensor("axis", (1,), "int32", data=np.array([-1], np.int32))
    x = builder.tensor("x", (1, 4, 8))
    w = builder.tensor("w", (8, 8), data=random.normal(size=(8, 8)).astype(np.float32))
    epsilon = builder.tensor("eps", (), data=np.array(1e-5, np.float32))
    gamma = builder.tensor("g", (8,), data=np.linspace(0.5, 2, 8, dtype=np.float32))
    h = make("h", "FULLY_CONNECTED", x, w, -1, keep_num_dims=True)
    mean = make("m", "MEAN", h, axis, narrow=True, keep_dims=True)
    d = make("d", "SUB", h, mean)
    sq = make("sq", "MUL", d, d) if square == "MUL" else make("sq", square, h, mean)
    variance = make("v", "MEAN", sq, axis, narrow=True, keep_dims=True)
    root = make("r", "RSQRT", make("ve", "ADD", variance, epsilon, narrow=True), narrow=True)
    z = make("z", "MUL", make("y", "MUL", d, root), gamma)
    most = make("mx", "REDUCE_MAX", z, axis, narrow=True, keep_dims=True)
    e = make("e", "EXP", make("s", "SUB", z, most))
    out = make("o", "DIV", e, make("t", "SUM", e, axis, narrow=True, keep_dims=True))
    return bytes(model_bytes(builder.finish([x], [out])))


SAMPLES = [[np.random.default_rng(k).normal(size=(1, 4, 8)).astype(np.float32)] for k in range(12)]


@pytest.mark.parametrize("square", ["MUL", "SQUARED_DIFFERENCE"])
def test_patterns_name_what_needs_more_bits(square: str) -> None:
    graph = prepare(loading.load(_normalised(square))).graph
    assert layers_of(graph, "layernorm") == NORM
    assert layers_of(graph, "softmax") == SOFTMAX


@pytest.mark.parametrize(("scheme", "wide"), [("int8", "int16x8"), ("uint8", "int16")])
def test_layers_of_patterns_are_wide(scheme: str, wide: str) -> None:
    rng = np.random.default_rng(5)
    many = [[rng.normal(size=(1, 4, 8)).astype(np.float32)] for _ in range(48)]  # few are judged by chance
    made = quantize(_normalised("MUL"), calibration=many, help=False, patterns="LayerNorm,softmax", scheme=scheme)
    assert made.verdict["choices"]["precisions"] == dict.fromkeys(sorted([*NORM, *SOFTMAX]), wide)
    plain = quantize(_normalised("MUL"), calibration=many, help=False, scheme=scheme)
    assert made.verdict["scheme"]["sq"] != plain.verdict["scheme"]["sq"] == scheme
    assert made.verdict["metrics"]["sqnr_db"] > plain.verdict["metrics"]["sqnr_db"]


def test_overrides_win_over_patterns() -> None:
    made = quantize(_normalised("MUL"), calibration=SAMPLES, help=False, patterns=["layernorm"], overrides="v:float")
    assert made.verdict["choices"]["precisions"]["v"] == "float"


def _mobile() -> tuple[bytes, list[list[np.ndarray]]]:
    module, samples = rescaled_mobilenet()
    model = export_model(module)
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return bytes(write_model(model)), samples


PLAIN = {"equalize": "none", "ranges": "minmax", "rounding": "off", "correction": "off"}


def test_a_pattern_that_is_not_there_is_said() -> None:
    file, samples = _mobile()
    made = quantize(file, calibration=samples, help=False, patterns="layernorm")
    assert "the pattern layernorm is nowhere in the optimised model" in made.verdict["findings"]


def test_errors_that_are_known_say_where_to_look(tmp_path: Path) -> None:
    """Nothing but the layer that the file knows is taken for what makes noise."""
    path = tmp_path / "e.json"
    path.write_text(json.dumps(one.document("m", "mpeir", {"h": 0.5, "nothing": 1.0})))
    chosen: dict[str, Any] = {"calibration": SAMPLES, "mixed": "on", "limit": 0.001, "visq_file": str(path), **PLAIN}
    made = quantize(_normalised("MUL"), **chosen)
    tried = [set(point["precisions"]) for point in made.verdict["front"]]
    known = [names for names in tried if names <= {"h"}]
    # Codes of 16 bits in all layers are told of, however they are found.
    assert known
    assert all(len(names) > len(tried) for names in tried if names not in known)
    measured = quantize(_normalised("MUL"), **{**chosen, "visq_file": None})
    assert any(len(point["precisions"]) > 1 for point in measured.verdict["front"])
    path.write_text(json.dumps(one.document("m", "mpeir", {"nothing": 1.0})))
    with pytest.raises(OptionError, match="the errors are of no layer of the optimised model"):
        quantize(_normalised("MUL"), **chosen)


def test_what_was_equalised_can_be_written_and_done_again(tmp_path: Path) -> None:
    file, samples = _mobile()
    chosen: dict[str, Any] = {"calibration": samples, "help": False}
    made = quantize(file, equalize="weights", **chosen)
    assert made.equalization
    assert all(entry["type"] == "ScaleOnly" and entry["act_scale"] for entry in made.equalization)
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(made.equalization))
    again = quantize(file, equalize=str(path), **chosen)
    assert again.verdict["metrics"]["sqnr_db"] == pytest.approx(made.verdict["metrics"]["sqnr_db"], abs=0.1)
    assert [entry["front"] for entry in again.equalization] == [entry["front"] for entry in made.equalization]
    for before, after in zip(made.equalization, again.equalization, strict=True):
        np.testing.assert_allclose(after["act_scale"], before["act_scale"])
    assert quantize(file, equalize="none", **chosen).equalization == []


def test_a_file_of_pairs_is_equalised(tmp_path: Path) -> None:
    file, samples = _mobile()
    path = tmp_path / "pairs.json"
    front, back = "block0/expand", "block0/depthwise"
    path.write_text(json.dumps([{"front": front, "back": back, "type": "ScaleOnly"}]))
    plain = quantize(file, calibration=samples, help=False)
    made = quantize(file, calibration=samples, help=False, equalize=str(path))
    isolated = [
        {layer["name"]: layer["isolated"]["sqnr_db"] for layer in found.verdict["layers"]} for found in (plain, made)
    ]
    assert made.verdict["choices"]["equalize"] == str(path)
    assert isolated[1][front] > isolated[0][front] + 2
    assert isolated[1]["block1/project"] == pytest.approx(isolated[0]["block1/project"], abs=0.5), "it is not named"
    path.write_text(json.dumps([{"front": front, "back": "block1/expand", "type": "ScaleOnly"}]))
    with pytest.raises(OptionError, match=f"not a pair of layers that can be equalised.* '{front}' and '{back}'"):
        quantize(file, calibration=samples, help=False, equalize=str(path))


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"patterns": "batchnorm"}, "unknown pattern 'batchnorm'; use layernorm or softmax"),
        ({"patterns": "softmax", "scheme": "int16"}, "scheme 'int16' has no wider scheme for patterns"),
        ({"visq_file": "e.json", "mixed": "off"}, "which is off; omit mixed"),
        ({"equalize": "never"}, "unknown equalize 'never'"),
        ({"equalize": "no_such.json"}, "cannot read the patterns"),
    ],
)
def test_what_is_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        quantize(_normalised("MUL"), calibration=SAMPLES, **{"help": False, **chosen})
