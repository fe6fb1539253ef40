"""Raw tables: columns of very different sizes are normalised before they become codes, where that helps."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import normal, only, sqnr_db
from helpers.models import ModelBuilder, dense_model
from odc_mlir.errors import OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer.models import equalized, normalized, prepare
from odc_mlir.quantizer.quantize import Quantized
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.recording import record

COUNT = 32
PLAIN = {**only("normalize"), "mixed": "off"}
RELU = {"fused_activation_function": "relu"}
UNITS = np.array([0.01, 1.0, 1000.0])
SEVERAL = 3
Made = tuple[bytes, list[list[np.ndarray]]]


def quantized(made: Made, **options: Any) -> Quantized:
    return odc_mlir.quantize(made[0], calibration=made[1], **{**PLAIN, **options})


def both(made: Made, **options: Any) -> tuple[Quantized, Quantized]:
    return quantized(made, normalize="off", **options), quantized(made, **options)


def floats(made: Quantized) -> set[str]:
    return {name for name, kind in made.verdict["scheme"].items() if kind == "float"}


@cache
def table(largest: float = 1e4, *, folded: bool = False) -> Made:
    """Two layers on six columns of up to this size with offsets, normalised by SUB and MUL or in the first layer."""
    rng, builder = np.random.default_rng(2), ModelBuilder()
    sizes = np.geomspace(1.0 / largest, largest, 6) if largest > 1 else np.ones(6)
    offsets = 3.0 * sizes * (largest > 1)
    first, second, bias = rng.normal(size=(12, 6)), rng.normal(size=(2, 12)), np.zeros(12)
    x = value = builder.tensor("x", (1, 6))
    if folded:
        first = first / sizes
        bias = -first @ offsets
    else:
        value = builder.made("centred", (1, 6), "SUB", value, builder.constant("offsets", offsets))
        value = builder.made("normal", (1, 6), "MUL", value, builder.constant("factors", 1.0 / sizes))
    y = builder.dense("y", builder.dense("hidden", value, first, bias, **RELU), second)
    samples = [[(offsets + sizes * rng.normal(size=(1, 6))).astype(np.float32)] for _ in range(COUNT)]
    return builder.file([x], [y]), samples


@pytest.mark.parametrize(
    ("scheme", "least", "folded"),
    [
        ("int8", 25.0, False),
        ("int8", 25.0, True),
        ("uint8", 25.0, True),
        ("int16x8", 38.0, False),
        ("int8_wo", 38.0, True),
    ],
)
def test_small_columns_keep_their_codes(scheme: str, least: float, folded: bool) -> None:
    file, samples = table(folded=folded)
    options = {**PLAIN, "scheme": scheme}
    if scheme.endswith("_wo"):
        options = {"scheme": scheme, "rounding": "off", "correction": "off"}
    plain, helped = (
        odc_mlir.quantize(file, calibration=samples, **options, **more) for more in ({"normalize": "off"}, {})
    )
    assert sqnr_db(file, plain, samples) < least - 10.0
    assert sqnr_db(file, helped, samples) > least
    tried = [(step["value"], step["kept"]) for step in helped.verdict["steps"] if step["step"] == "normalize"]
    assert tried == [(False, True), (True, True)]
    assert scheme.endswith("_wo") or {"x/centred", "x/scaled"} <= floats(helped)


def test_even_columns_are_left_alone_and_who_asks_for_it_gets_it_without_help() -> None:
    made = quantized(table(1.0))
    assert not any(step["step"] == "normalize" for step in made.verdict["steps"])
    assert made.verdict["choices"]["normalize"] == "off"
    file, samples = table()
    made = odc_mlir.quantize(file, calibration=samples, help=False, normalize="on")
    assert made.verdict["choices"]["normalize"] == "inputs"
    assert sqnr_db(file, made, samples) > 25.0
    why = "it normalises float inputs (--normalize inputs)"
    assert made.verdict["float_reasons"] == {"x/centred": why, "x/scaled": why}


@pytest.mark.parametrize(("ratio", "changed", "mends"), [(3.9, False, False), (15.9, True, False), (16.1, True, True)])
def test_columns_apart_by_four_bits_are_mended(ratio: float, changed: bool, mends: bool) -> None:
    rng = np.random.default_rng(0)
    values = (np.resize([-1.0, 1.0], (COUNT, 1, 1)) * [*[1.0] * 7, ratio]).astype(np.float32)
    found = normalized(prepare(import_model(read_model(dense_model(rng.normal(size=(4, 8)))))), [[x] for x in values])
    assert (found is not None, found is not None and found.mends_columns) == (changed, mends)


def test_inputs_that_are_codes_stay_codes() -> None:
    with pytest.raises(OptionError, match="inputs are normalised before they are codes"):
        quantized(table(), io="quantized", normalize="on")
    made = quantized(table(), io="quantized")
    assert made.verdict["choices"]["normalize"] == "off"
    assert [tensor.dtype for tensor in read_model(made.to_circle()).subgraphs[0].tensors[:1]] == ["int8"]


@pytest.mark.parametrize("with_samples", [True, False])
def test_weights_alone_as_codes_leave_the_normalisation_to_real_numbers(with_samples: bool) -> None:
    file, samples = table()
    made = odc_mlir.quantize(file, scheme="int8_wo", calibration=samples[: COUNT // 2] if with_samples else None)
    assert floats(made) == {"centred", "normal"}
    assert sqnr_db(file, made, samples[COUNT // 2 :]) > 36.0


def quantities(
    units: np.ndarray = UNITS, *, joined: bool = False, spread: float = 1.0, activation: str = "none", way: str = ""
) -> Made:
    """Two layers that give quantities of several units in one output; ``joined``: of several inputs of such units.

    ``spread``: sizes of what is between the layers, from one in so much to so much. ``way``: operators that make two
    outputs of four columns, or one of another shape.
    """
    rng, builder = np.random.default_rng(3), ModelBuilder()
    sizes = np.repeat(units, 2) if joined else np.ones(6)
    units = np.ones(SEVERAL) if joined else units
    between = np.geomspace(1.0 / spread, spread, 12)[:, None]
    inputs = [builder.tensor(f"x{place}", (1, 2 if joined else 6)) for place in range(SEVERAL if joined else 1)]
    value = builder.made("columns", (1, 6), "CONCATENATION", *inputs, axis=1) if joined else inputs[0]
    first, second = rng.normal(size=(12, 6)) / sizes, rng.normal(size=(len(units), 12)) * units[:, None]
    hidden = builder.dense("hidden", value, first * between, **RELU)
    y = builder.dense("y", hidden, second / between.T, 5 * units, fused_activation_function=activation)

    def slice_of(name: str, begin: int, size: int) -> int:
        ends = builder.constant(f"{name}/at", [0, begin], "int32"), builder.constant(f"{name}/size", [1, size], "int32")
        return builder.made(name, (1, size), "SLICE", y, *ends)

    outputs = [y]
    if way == "split":
        outputs = [builder.tensor(name, (1, 2)) for name in ("large", "small")]
        builder.operator("SPLIT", [builder.constant("axis", 1, "int32"), y], outputs, options={"num_splits": 2})
    elif way == "slices":
        outputs = [slice_of("large", 0, 2), slice_of("small", 2, 2)]
    elif way == "part":
        outputs = [slice_of("some", 1, 3)]
    elif way == "reshape":
        outputs = [builder.made("rows", (1, 2, 2), "RESHAPE", y, builder.constant("shape", [1, 2, 2], "int32"))]
    rows = (sizes * rng.normal(size=(COUNT, 1, 6))).astype(np.float32)
    return builder.file(inputs, outputs), [np.split(row, len(inputs), axis=1) for row in rows]


def columns_db(made: Made, found: Quantized, place: int = 0) -> float:
    """The variance of the worst element of an output over its error."""
    file, samples = made
    wanted, given = (np.concatenate([odc_mlir.run(m, s)[place] for s in samples]) for m in (file, found.model))
    return float(10 * np.log10((wanted.var(axis=0) / np.square(wanted - given).mean(axis=0)).min()))


@pytest.mark.parametrize(("scheme", "least"), [("int8", 20.0), ("int16x8", 30.0)])
def test_no_column_of_an_output_is_lost_beside_larger_ones(scheme: str, least: float) -> None:
    made = quantities()
    plain, helped = both(made, scheme=scheme)
    assert columns_db(made, plain) < 0
    assert not plain.passed
    assert any(
        "of output 'y' (" in problem and "lost in the quantised" in problem for problem in plain.verdict["problems"]
    )
    assert columns_db(made, helped) > least
    assert (helped.passed, helped.verdict["choices"]["normalize"]) == (True, "outputs")
    assert quantized(made, scheme=scheme, normalize="outputs").to_circle() == helped.to_circle()
    assert {"y/normalised": scheme, "y/scaled": "float", "y": "float"}.items() <= helped.verdict["scheme"].items()
    why = "it restores the units of normalised outputs (--normalize outputs)"
    assert helped.verdict["float_reasons"] == {"y/scaled": why, "y": why}


@pytest.mark.parametrize("way", ["split", "slices", "part", "reshape"])
def test_columns_that_are_moved_to_outputs_keep_their_units(way: str) -> None:
    file, samples = made = quantities(np.array([1000.0, 500.0, 0.01, 0.02]), way=way)
    plain, helped = both(made)
    assert (plain.passed, helped.passed, helped.verdict["choices"]["normalize"]) == (False, True, "outputs")
    assert helped.verdict["scheme"]["y/normalised"] == "int8"
    for place in range(len(odc_mlir.run(file, samples[0]))):
        assert columns_db(made, helped, place) > 20


FAR_APART = np.geomspace(1e-3, 1e3, 4)


def layers_of(*shape: int) -> Made:
    """Two layers, the last named y, that give four columns of very different sizes, in another ``shape``."""
    rng, builder = np.random.default_rng(0), ModelBuilder()
    weights = rng.normal(size=(4, 8)) * FAR_APART[:, None]
    x = builder.tensor("x", (1, 8))
    y = builder.dense("y", builder.dense("hidden", x, rng.normal(size=(8, 8))), weights)
    if shape:
        y = builder.made("moved", shape, "RESHAPE", y, builder.constant("shape", shape, "int32"))
    return builder.file([x], [y]), normal(rng, COUNT, 1, 8)


@pytest.mark.parametrize(("size", "are_logits"), [(0.4, True), (0.1, False)])
def test_logits_in_another_shape_have_no_units(size: float, are_logits: bool) -> None:
    """They differ in size by chance, those of classifiers by less than 16 times; what differs more has units."""
    rng, builder = np.random.default_rng(0), ModelBuilder()
    x, spread = builder.tensor("x", (1, 1, 8)), np.array([4.0, size, 4.0, 4.0])[:, None]
    logits = builder.dense("logits", x, rng.normal(size=(4, 8)) * spread, keep_num_dims=True)
    file = builder.file([x], [builder.made("y", (1, 4), "RESHAPE", logits, builder.constant("to", [1, 4], "int32"))])
    found = quantized((file, normal(rng, COUNT, 1, 1, 8)), normalize="outputs")
    is_unchanged = any("normalize outputs changes nothing" in finding for finding in found.verdict["findings"])
    assert (is_unchanged, found.verdict["metrics"]["top1_decided"] is not None) == (are_logits, are_logits)


@pytest.mark.parametrize(
    ("option", "value"), [("output_types", "int8"), ("parameters", (20.0, 0)), ("overrides", "float")]
)
def test_what_was_given_is_said_to_keep_outputs_as_they_are(option: str, value: Any) -> None:
    findings = quantized(layers_of(), normalize="outputs", **{option: {"y": value}}).verdict["findings"]
    assert any("outputs changes nothing" in text and "without given type" in text for text in findings)


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("mixed", ["off", "auto"])
def test_a_layer_whose_outputs_are_normalised_has_the_precision_asked_for(moved: bool, mixed: str) -> None:
    model = layers_of(*((1, 2, 2) if moved else ()))
    made = quantized(model, mixed=mixed, overrides={"y": "int16x8"}, normalize="outputs")
    kept = quantized(model, mixed=mixed, overrides={"y": "float"}, min_coverage=0.0)
    assert made.passed
    assert (made.verdict["scheme"]["y/normalised"], made.verdict["scheme"]["y"]) == ("int16x8", "float")
    assert made.verdict["choices"]["precisions"] == {"y": "int16x8"}  # which may be asked for again
    assert {kept.verdict["scheme"].get(layer, "float") for layer in ("y", "y/normalised")} == {"float"}


def test_columns_of_few_samples_have_room_for_what_others_reach() -> None:
    file, samples = quantities()
    few, unseen = samples[: COUNT // 2], samples[COUNT // 2 :]
    made = odc_mlir.quantize(file, calibration=few, help=False, normalize="outputs")
    assert sqnr_db(file, made, unseen) > 35.0
    assert columns_db((file, unseen), made) > 25.0


def test_factors_of_a_normalisation_are_left_out_of_equalising_by_weights() -> None:
    file, samples = table(folded=True)
    made = normalized(prepare(import_model(read_model(file))), samples)
    made.records = record(HostExecutor(made.graph), samples)
    evened = equalized(made, "weights", made.fitted)
    evened.records = record(HostExecutor(evened.graph), samples)
    channels = evened.fitted["x/scaled"].channels
    sizes = np.maximum(np.abs(channels.minima), np.abs(channels.maxima))
    assert sizes.max() < 16 * sizes.min()
    base = prepare(import_model(read_model(file)))
    for value in (np.nan, np.inf, 0.0, 1e38):  # samples that say nothing normalise nothing
        assert normalized(base, [[np.full_like(x, value)] for (x,) in samples]) is None


def rows_of_units(layout: str) -> Made:
    """A layer that gives quantities of several units, which ``layout`` puts along another axis than the last."""
    rng, builder, is_turned = np.random.default_rng(5), ModelBuilder(), layout == "TRANSPOSE"
    length = {"TRANSPOSE": 4, "RESHAPE": 8, "single": 1}[layout]
    x = builder.tensor("x", (1, 4, 6) if is_turned else (1, 6))
    units, by = (UNITS, [0, 2, 1]) if is_turned else (np.repeat(UNITS, length), [1, SEVERAL, length])
    weights = rng.normal(size=(len(units), 6)) * units[:, None]
    layer = builder.dense("layer", x, weights, 3 * units, keep_num_dims=is_turned)
    shape, kind = (1, SEVERAL, length), "TRANSPOSE" if is_turned else "RESHAPE"
    y = builder.made("y", shape, kind, layer, builder.constant("by", by, "int32"))
    return builder.file([x], [y]), normal(rng, COUNT, *((1, 4, 6) if is_turned else (1, 6)))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        *((rows_of_units(layout), "along axis 1 of output 'y' (") for layout in ("TRANSPOSE", "RESHAPE", "single")),
        *(
            (quantities(np.geomspace(1e-5, 1e5, columns), activation=activation), "of output 'y' (")
            for columns in (6, 20)
            for activation in ("none", "relu")
        ),
    ],
)
def test_columns_far_apart_keep_their_units_along_any_axis(made: Made, told: str) -> None:
    plain, helped = both(made)
    assert any(told in problem for problem in plain.verdict["problems"])
    assert (plain.passed, helped.passed, helped.verdict["choices"]["normalize"]) == (False, True, "outputs")
    assert columns_db(made, helped) > 20.0
    assert "top1_decided" not in {check["metric"] for check in helped.verdict["limits"]}


@pytest.mark.parametrize("answers", [[(300.0, 0.01)], [(0.0, 1e-6), (300.0, 0.01), (1e5, 1e5)]])
def test_single_columns_far_from_zero_get_their_offset_behind_the_codes(answers: list[tuple[float, float]]) -> None:
    rng, builder = np.random.default_rng(6), ModelBuilder()
    x = builder.tensor("x", (1, 6))
    found = [
        builder.dense(f"y{at}", x, size * rng.normal(size=(1, 6)), [offset])
        for at, (offset, size) in enumerate(answers)
    ]
    plain, helped = both((builder.file([x], found), normal(rng, COUNT, 1, 6)))
    assert (plain.passed, helped.passed, helped.verdict["choices"]["normalize"]) == (False, True, "outputs")
    place = answers.index((300.0, 0.01))
    assert floats(helped) == {f"y{place}", f"y{place}/scaled"}


def test_inputs_of_several_units_are_normalised_once_joined() -> None:
    made = quantities(joined=True)
    plain, helped = both(made)
    assert columns_db(made, plain) < 15
    assert columns_db(made, helped) > 20
    assert floats(helped) == {"columns", "columns/scaled", "columns/centred"}


def test_without_samples_folded_weights_tell_the_sizes_of_columns() -> None:
    file, samples = table(folded=True)
    made, plain, even = (
        odc_mlir.quantize(model, scheme="int8_wo", **options)
        for model, options in ((file, {}), (file, {"normalize": "off"}), (table(1.0)[0], {}))
    )
    told = "as if they included a normalisation of inputs"
    assert [any(told in text for text in found.verdict["findings"]) for found in (made, plain, even)] == [
        True,
        False,
        False,
    ]
    assert made.verdict["status"] != "passed"
    assert "float" not in even.verdict["scheme"].values()
    assert sqnr_db(file, plain, samples) < 20
    assert sqnr_db(file, made, samples) > 35


def with_table(way: str) -> Made:
    """Columns of several units beside rows of a table: in one unit by a factor of the model's own, cut apart for that,
    or as they are."""
    rng, builder = np.random.default_rng(7), ModelBuilder()
    row, x = builder.tensor("row", (1,), "int32"), builder.tensor("x", (1, 3))
    found = builder.made("found", (1, 4), "GATHER", builder.constant("table", rng.normal(size=(9, 4))), row, axis=0)
    first, parts = rng.normal(size=(12, 7)), [x]
    if way == "factor":
        parts = [builder.made("normal", (1, 3), "MUL", x, builder.constant("factors", 1.0 / UNITS))]
    elif way == "cut":
        size, parts = builder.constant("size", [1, 1], "int32"), []
        for place, unit in enumerate(UNITS):
            cut = builder.made(
                f"cut{place}", (1, 1), "SLICE", x, builder.constant(f"at{place}", [0, place], "int32"), size
            )
            factor = builder.constant(f"factor{place}", [1.0 / unit])
            parts.append(builder.made(f"part{place}", (1, 1), "MUL", cut, factor))
    else:
        first[:, 4:] /= UNITS
    joined = builder.made("joined", (1, 7), "CONCATENATION", found, *parts, axis=1)
    y = builder.dense("y", builder.dense("hidden", joined, first, **RELU), rng.normal(size=(1, 12)))
    rows = (UNITS * rng.normal(size=(COUNT, 1, 3))).astype(np.float32)
    return builder.file([row, x], [y]), [[rng.integers(0, 9, 1).astype(np.int32), values] for values in rows]


@pytest.mark.parametrize(("way", "real"), [("factor", {"normal"}), ("cut", {"part0", "cut2"}), ("as they are", set())])
def test_columns_beside_a_table_keep_their_codes(way: str, real: set[str]) -> None:
    file, samples = made = with_table(way)
    plain, helped = both(made)
    assert sqnr_db(file, plain, samples) < 20.0
    assert sqnr_db(file, helped, samples) > 30.0
    assert helped.verdict["choices"]["normalize"] == "inputs"
    assert floats(helped) >= real
    assert [helped.verdict["scheme"][name] for name in ("joined", "hidden", "y")] == ["int8"] * 3
