"""Equalising: the same function, even ranges, and what ruined a model is undone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers.data import golden_models
from helpers.equivalence import assert_equivalent, random_inputs, results_of, transformed
from helpers.models import ModelBuilder
from odc_mlir.errors import ModelError, OptionError
from odc_mlir.formats.channel_factors import decode, encode
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.reporting.metrics import Tolerance, compare
from odc_mlir.support.text import module_text
from odc_mlir.transforms.circle.rewrites.equalizing import channel_factors, least_factors
from odc_mlir.transforms.common.placement import operators
from odc_mlir.transforms.common.rewriting import WeightedLayer

FOLD = "circle-fuse-batch-norm,circle-fuse-activation"
EQUALIZE = "circle-equalize-channels"


def chain(seed: int) -> ModuleOp:
    """A convolution, a depthwise one and a fully connected layer with channels of very different scales."""
    random = np.random.default_rng(seed)
    builder = ModelBuilder()

    def layer(name: str, x: int, shape: tuple[int, ...], axis: int, result: tuple[int, ...], **options: Any) -> int:
        scales = np.exp2(random.integers(-8, 8, shape[axis])).reshape(
            [-1 if i == axis else 1 for i in range(len(shape))]
        )
        weights = (random.standard_normal(shape) * scales).astype(np.float32)
        bias = (random.standard_normal(shape[axis]) * scales.reshape(-1)).astype(np.float32)
        w = builder.tensor(f"{name}/w", shape, data=weights)
        b = builder.tensor(f"{name}/b", bias.shape, data=bias)
        y = builder.tensor(name, result)
        kind = {"conv": "CONV_2D", "dw": "DEPTHWISE_CONV_2D", "fc": "FULLY_CONNECTED"}[name]
        builder.operator(kind, [x, w, b], [y], options=options)
        return y

    step = {"stride_h": 1, "stride_w": 1, "padding": "same"}
    x = builder.tensor("x", (1, 4, 4, 2))
    y = layer("conv", x, (3, 3, 3, 2), 0, (1, 4, 4, 3), fused_activation_function="relu", **step)
    y = layer("dw", y, (1, 3, 3, 6), 3, (1, 4, 4, 6), depth_multiplier=2, fused_activation_function="relu", **step)
    pooled = builder.tensor("pool", (1, 2, 2, 6))
    window = {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "valid"}
    builder.operator("MAX_POOL_2D", [y], [pooled], options=window)
    y = layer("fc", pooled, (5, 24), 0, (1, 5))
    return import_model(builder.finish([x], [y]))


def spread(module: ModuleOp, names: tuple[str, ...]) -> dict[str, float]:
    """Largest by smallest range of the result channels of layers."""
    found = {}
    for op in operators(module):
        layer = WeightedLayer.of(op)
        weights = None if layer is None else layer.real_weights()
        if layer is not None and weights is not None and layer.name in names:
            ranges = np.abs(weights).max(axis=tuple(i for i in range(weights.ndim) if i != layer.axis))
            found[layer.name] = float(ranges.max() / ranges.min())
    return found


@given(st.integers(0, 2**32 - 1))
def test_the_function_stays(seed: int) -> None:
    before = chain(seed)
    inputs = random_inputs(before, seed)
    scale = max(float(np.abs(array).max()) for array in results_of(before, inputs))
    assert_equivalent(before, transformed(before, EQUALIZE), inputs, rtol=1e-4, atol=1e-5 * scale)


@given(st.integers(0, 2**32 - 1))
def test_powers_of_two_keep_every_bit(seed: int) -> None:
    before = chain(seed)
    after = transformed(before, f"{EQUALIZE}{{powers-of-two=true}}")
    assert_equivalent(before, after, random_inputs(before, seed), rtol=0, atol=0)


def test_ranges_become_even() -> None:
    before = chain(3)
    layers = ("conv", "dw")
    ahead, behind = spread(before, layers), spread(transformed(before, EQUALIZE), layers)
    assert all(ahead[name] > 30 for name in layers)
    assert all(behind[name] < 0.2 * ahead[name] for name in layers)


def test_a_second_time_changes_nothing() -> None:
    once = transformed(chain(4), EQUALIZE)
    assert str(transformed(once, f"{EQUALIZE}{{tolerance=0.01}}")) == str(once)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=8))
def test_factors_even_out(ranges: list[tuple[float, float]]) -> None:
    front, back = (np.array(column) for column in zip(*ranges, strict=True))
    factors = channel_factors(front, back)
    np.testing.assert_allclose(front / factors, back * factors)


@pytest.mark.parametrize(("front", "back"), [(0.0, 1.0), (1.0, 0.0), (1e-9, 1.0)])
def test_what_is_nothing_keeps_its_scale(front: float, back: float) -> None:
    assert channel_factors(np.array([front, 4.0]), np.array([back, 1.0])).tolist() == [1.0, 2.0]


def test_what_the_other_layer_makes_up_for_is_balanced() -> None:
    front, back = np.array([1e-9, 4.0, 1e5]), np.array([1e9, 1.0, 1e-5])
    np.testing.assert_allclose(front / channel_factors(front, back), [1.0, 2.0, 1.0])


def test_biases_never_outgrow_the_largest() -> None:
    bias = np.array([4.0, -1.0, 0.0])
    least = least_factors(bias)
    assert least.tolist() == [1.0, 0.25, 0.0]
    assert np.abs(bias[:2] / least[:2]).max() == 4.0
    assert not least_factors(np.zeros(2)).any()


@pytest.mark.parametrize(
    "model", [m for m in golden_models("digits") if "digits_mobile" in m.id or m.id == "no-test-data"]
)
def test_channel_scales_are_restored(model: Any) -> None:
    """One of the two models has channels scaled by up to 32 in both directions; afterwards neither has."""
    folded = transformed(odc_mlir.load(model.circle), FOLD)
    after = transformed(folded, EQUALIZE)
    sample = next(model.samples())
    assert_equivalent(folded, after, sample.inputs)
    names = tuple(layer.name for op in operators(after) if (layer := WeightedLayer.of(op)) is not None)
    assert max(spread(after, names).values()) < 4
    if model.name.endswith("hard"):
        assert max(spread(folded, names).values()) > 1000


def test_a_comparison_takes_the_factors_back(tmp_path: Path) -> None:
    """Also after the model was written, printed and read again; without the record, tensors differ."""
    module = chain(3)
    equalised = transformed(transformed(module, EQUALIZE), EQUALIZE + "{powers_of_two=true}")
    path = tmp_path / "equalised.circle"
    path.write_bytes(write_model(export_model(equalised)))
    text = tmp_path / "equalised.mlir"
    text.write_text(module_text(odc_mlir.load(path)))
    original = write_model(export_model(module))
    records = [random_inputs(module, seed) for seed in range(2)]
    for other in (path, text):
        executors = [open_executor(model, all_tensors=True) for model in (original, other)]
        found = compare(executors[0], executors[1], records, Tolerance(1e-4, 1e-4))
        assert {"conv", "dw", "pool"} <= {tensor.name for tensor in found.tensors}
        assert found.first_diverging is None
        executors[1].graph.metadata = {}
        bare = compare(executors[0], executors[1], records, Tolerance(1e-4, 1e-4))
        assert {t.name for t in bare.tensors if t.diverges} == {"conv", "dw", "pool"}


def test_damaged_factors() -> None:
    rows = {"a": np.array([0.5, 2.0], np.float32)}
    assert decode(encode(rows))["a"].tolist() == [0.5, 2.0]
    for data in (
        b"",
        b"[1]",
        b'{"a": 3}',
        b'{"a": "AAA"}',
        encode({"a": np.array([0.0])}),
        encode({"a": np.array([np.nan])}),
    ):
        with pytest.raises(ModelError, match="factor"):
            decode(data)


def _pairs(tmp_path: Path, *entries: Any) -> str:
    (tmp_path / "p.json").write_text(json.dumps(list(entries)))
    return f'{EQUALIZE}{{patterns="{tmp_path / "p.json"}"}}'


def test_patterns_name_the_pairs(tmp_path: Path) -> None:
    before = chain(3)
    entry = {"front": "dw", "back": "fc", "type": "ScaleOnly"}
    one, every = transformed(before, _pairs(tmp_path, entry)), transformed(before, EQUALIZE)
    ahead = spread(before, ("conv", "dw"))
    assert spread(one, ("conv",)) == {"conv": ahead["conv"]}, "a pair that is not named"
    assert spread(one, ("dw",))["dw"] < ahead["dw"]
    assert str(one) != str(every)
    assert_equivalent(before, one, random_inputs(before, 3), rtol=1e-3, atol=1e-2)


def _weights(module: ModuleOp, name: str) -> np.ndarray:
    layers = (layer for op in operators(module) if (layer := WeightedLayer.of(op)) is not None)
    found = next(layer for layer in layers if layer.name == name).real_weights()
    assert found is not None
    return found


def test_patterns_tell_the_factors(tmp_path: Path) -> None:
    """Channels of the first layer are divided by them, and come back in the second; 0 stands for nothing."""
    before = chain(3)
    scale = [2.0, 0.5, 0.0]
    entry = {"front": "conv", "back": "dw", "type": "ScaleOnly", "act_scale": scale}
    after = transformed(before, _pairs(tmp_path, entry))
    first, second = (_weights(module, "conv") for module in (before, after))
    np.testing.assert_allclose(first, second * np.array([2.0, 0.5, 1.0])[:, None, None, None], rtol=1e-6)
    assert_equivalent(before, after, random_inputs(before, 3), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot read the patterns"),
        ("{}", "patterns must be a JSON list"),
        ("[1]", "a pattern must name two layers, front and back"),
        ('[{"front": "conv", "back": "dw"}]', "the type of pattern 'conv' is None, not 'ScaleOnly'"),
        ('[{"front": "conv", "back": "fc", "type": "ScaleOnly"}]', "'conv' and 'fc' are not a pair .* 'conv' and 'dw'"),
        (
            '[{"front": "conv", "back": "dw", "type": "ScaleOnly", "act_scale": [1]}]',
            "has 1 numbers, the layer 3 channels",
        ),
        ('[{"front": "conv", "back": "dw", "type": "ScaleOnly", "act_scale": [1, -1, 1]}]', "not a list of numbers"),
        ('[{"front": "conv", "back": "dw", "type": "ScaleOnly", "act_scale": "a"}]', "not a list of numbers"),
        ('[{"front": "conv", "back": "dw", "type": "ScaleOnly", "act_scale": [1e-45, 1, 1]}]', "exceed float32"),
    ],
)
def test_patterns_that_are_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(OptionError, match=message):
        transformed(chain(3), f'{EQUALIZE}{{patterns="{tmp_path / "p.json"}"}}')
