"""Raw tables: columns of very different sizes are normalised before they become codes, where that helps."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import only, sqnr_db
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder
from odc_mlir.errors import OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer.models import equalized, normalized, prepare
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.recording import record
from odc_mlir.support.locations import value_name

COUNT = 32
PLAIN = only("normalize", "mixed")


@cache
def table(largest: float = 1e4, *, folded: bool = False) -> tuple[bytes, list[list[np.ndarray]]]:
    """Two layers on six columns of up to this size with offsets, normalised by SUB and MUL or in the first layer."""
    rng = np.random.default_rng(2)
    sizes = np.geomspace(1.0 / largest, largest, 6) if largest > 1 else np.ones(6)
    offsets = 3.0 * sizes * (largest > 1)
    first, second = rng.normal(size=(12, 6)), rng.normal(size=(2, 12))
    builder = ModelBuilder()
    x = value = builder.tensor("x", (1, 6))

    def constant(name: str, data: Any) -> int:
        return builder.tensor(name, data.shape, data=np.asarray(data, np.float32))

    bias = np.zeros(12)
    if folded:
        first = first / sizes
        bias = -first @ offsets
    else:
        for kind, name, by in (("SUB", "centred", offsets), ("MUL", "normal", 1.0 / sizes)):
            result = builder.tensor(name, (1, 6))
            builder.operator(kind, [value, constant(f"{name}/by", by)], [result])
            value = result
    hidden, y = builder.tensor("hidden", (1, 12)), builder.tensor("y", (1, 2))
    builder.operator(
        "FULLY_CONNECTED",
        [value, constant("a", first), constant("b", bias)],
        [hidden],
        options={"fused_activation_function": "relu"},
    )
    builder.operator("FULLY_CONNECTED", [hidden, constant("c", second), -1], [y])
    samples = [[(offsets + sizes * rng.normal(size=(1, 6))).astype(np.float32)] for _ in range(COUNT)]
    return bytes(write_model(builder.finish([x], [y]))), samples


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
    options = {"scheme": scheme, "calibration": samples, "mixed": "off", **PLAIN}
    if scheme.endswith("_wo"):
        options = {"scheme": scheme, "calibration": samples, "rounding": "off", "correction": "off"}
    helped = odc_mlir.quantize(file, **options)
    plain = odc_mlir.quantize(file, **options, normalize="off")
    assert sqnr_db(file, plain, samples) < least - 10.0
    assert sqnr_db(file, helped, samples) > least
    tried = [(step["value"], step["kept"]) for step in helped.verdict["steps"] if step["step"] == "normalize"]
    assert tried == [(False, True), (True, True)]
    if not scheme.endswith("_wo"):
        assert {"x/centred": "float", "x/scaled": "float"}.items() <= helped.verdict["scheme"].items()


def test_even_columns_are_left_alone() -> None:
    file, samples = table(1.0)
    made = odc_mlir.quantize(file, calibration=samples, mixed="off", **PLAIN)
    assert not any(step["step"] == "normalize" for step in made.verdict["steps"])
    assert made.verdict["choices"]["normalize"] == "off"


def test_who_asks_for_it_gets_it_without_help() -> None:
    file, samples = table()
    made = odc_mlir.quantize(file, calibration=samples, help=False, normalize="on")
    assert made.verdict["choices"]["normalize"] == "inputs"
    assert sqnr_db(file, made, samples) > 25.0
    why = "it normalises inputs, which are real (--normalize inputs)"
    assert made.verdict["float_reasons"] == {"x/centred": why, "x/scaled": why}


def test_inputs_that_are_codes_stay_codes() -> None:
    file, samples = table()
    with pytest.raises(OptionError, match="inputs are normalised before they are codes"):
        odc_mlir.quantize(file, calibration=samples, io="quantized", normalize="on", mixed="off", **PLAIN)
    made = odc_mlir.quantize(file, calibration=samples, io="quantized", mixed="off", **PLAIN)
    assert made.verdict["choices"]["normalize"] == "off"
    assert [tensor.dtype for tensor in read_model(made.to_circle()).subgraphs[0].tensors[:1]] == ["int8"]


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 1e38])
def test_samples_that_say_nothing_normalise_nothing(value: float) -> None:
    file, samples = table()
    base = prepare(import_model(read_model(file)))
    assert normalized(base, [[np.full_like(x, value)] for (x,) in samples]) is None


@pytest.mark.parametrize("with_samples", [True, False])
def test_weights_alone_as_codes_leave_the_normalisation_to_real_numbers(with_samples: bool) -> None:
    file, samples = table()
    given = {"calibration": samples[: COUNT // 2]} if with_samples else {}
    made = odc_mlir.quantize(file, scheme="int8_wo", **given)
    assert {name for name, kind in made.verdict["scheme"].items() if kind == "float"} == {"centred", "normal"}
    assert sqnr_db(file, made, samples[COUNT // 2 :]) > 36.0


UNITS = np.array([0.01, 1.0, 1000.0])
SEVERAL = 3


def quantities(
    units: np.ndarray = UNITS, *, joined: bool = False, spread: float = 1.0, activation: str = "none"
) -> tuple[bytes, list[list[np.ndarray]]]:
    """Two layers that give quantities of several units in one output; ``joined``: of several inputs of such units.

    ``spread``: sizes of what is between the layers, from one in so much to so much.
    """
    rng = np.random.default_rng(3)
    builder = ModelBuilder()
    sizes = np.repeat(units, 2) if joined else np.ones(6)
    units = np.ones(SEVERAL) if joined else units
    between = np.geomspace(1.0 / spread, spread, 12)[:, None]

    def constant(name: str, data: Any) -> int:
        return builder.tensor(name, data.shape, data=np.asarray(data, np.float32))

    inputs = [builder.tensor(f"x{place}", (1, 2 if joined else 6)) for place in range(SEVERAL if joined else 1)]
    value = inputs[0]
    if joined:
        value = builder.tensor("columns", (1, 6))
        builder.operator("CONCATENATION", inputs, [value], options={"axis": 1})
    hidden, y = builder.tensor("hidden", (1, 12)), builder.tensor("y", (1, len(units)))
    first, second = rng.normal(size=(12, 6)) / sizes, rng.normal(size=(len(units), 12)) * units[:, None]
    relu = {"fused_activation_function": "relu"}
    builder.operator("FULLY_CONNECTED", [value, constant("a", first * between), -1], [hidden], options=relu)
    builder.operator(
        "FULLY_CONNECTED",
        [hidden, constant("b", second / between.T), constant("c", 5 * units)],
        [y],
        options={"fused_activation_function": activation},
    )
    rows = (sizes * rng.normal(size=(COUNT, 1, 6))).astype(np.float32)
    return bytes(write_model(builder.finish(inputs, [y]))), [np.split(row, len(inputs), axis=1) for row in rows]


def columns_db(file: bytes, made: Any, samples: list[list[np.ndarray]]) -> float:
    """The variance of the worst column of the output over its error."""
    expected, found = (np.concatenate([odc_mlir.run(m, s)[0] for s in samples]) for m in (file, made.model))
    return float(10 * np.log10((expected.var(axis=0) / np.square(expected - found).mean(axis=0)).min()))


@pytest.mark.parametrize(("scheme", "least"), [("int8", 20.0), ("int16x8", 30.0)])
def test_no_column_of_an_output_is_lost_beside_larger_ones(scheme: str, least: float) -> None:
    file, samples = quantities()
    options = {"scheme": scheme, "calibration": samples, "mixed": "off", **PLAIN}
    plain = odc_mlir.quantize(file, **options, normalize="off")
    assert columns_db(file, plain, samples) < 0
    assert not plain.passed
    assert any(
        "of output 'y' (" in problem and "lost in the quantised" in problem for problem in plain.verdict["problems"]
    )
    helped = odc_mlir.quantize(file, **options)
    assert columns_db(file, helped, samples) > least
    assert helped.passed
    assert helped.verdict["choices"]["normalize"] == "outputs"
    again = odc_mlir.quantize(file, **options, normalize=helped.verdict["choices"]["normalize"])
    assert again.to_circle() == helped.to_circle()
    assert {"y/normalised": scheme, "y/scaled": "float", "y": "float"}.items() <= helped.verdict["scheme"].items()
    why = "it gives columns of normalised outputs their units back (--normalize outputs)"
    assert helped.verdict["float_reasons"] == {"y/scaled": why, "y": why}


def _cut(way: str) -> tuple[bytes, list[list[np.ndarray]]]:
    """A layer whose columns, of several units, become outputs of their own, or are in another shape."""
    file, samples = quantities(np.array([1000.0, 500.0, 0.01, 0.02]))
    model = read_model(file)
    builder = ModelBuilder()
    builder.model, builder.subgraph = model, model.subgraphs[0]
    (y,), parts = builder.subgraph.outputs, [builder.tensor(name, (1, 2)) for name in ("large", "small")]

    def constant(name: str, *numbers: int) -> int:
        return builder.tensor(name, (len(numbers),), "int32", data=np.array(numbers, np.int32))

    if way == "split":
        axis = builder.tensor("axis", (), "int32", data=np.array(1, np.int32))
        builder.operator("SPLIT", [axis, y], parts, options={"num_splits": 2})
    elif way == "slices":
        for place, part in enumerate(parts):
            ends = [constant(f"{name}{place}", *at) for name, at in (("at", (0, 2 * place)), ("size", (1, 2)))]
            builder.operator("SLICE", [y, *ends], [part])
    elif way == "part":
        del parts[0]
        parts = [builder.tensor("some", (1, 3))]
        builder.operator("SLICE", [y, constant("at", 0, 1), constant("size", 1, 3)], parts)
    else:
        parts = [builder.tensor("rows", (1, 2, 2))]
        builder.operator("RESHAPE", [y, constant("shape", 1, 2, 2)], parts)
    return bytes(write_model(builder.finish(builder.subgraph.inputs, parts))), samples


@pytest.mark.parametrize("way", ["split", "slices", "part", "reshape"])
def test_columns_that_are_moved_to_outputs_keep_their_units(way: str) -> None:
    file, samples = _cut(way)
    options = {"calibration": samples, "mixed": "off", **PLAIN}
    plain = odc_mlir.quantize(file, **options, normalize="off")
    helped = odc_mlir.quantize(file, **options)
    assert not plain.passed
    assert helped.passed
    assert helped.verdict["choices"]["normalize"] == "outputs"
    assert helped.verdict["scheme"]["y/normalised"] == "int8"
    for place in range(len(odc_mlir.run(file, samples[0]))):
        wanted, found = (
            np.concatenate([odc_mlir.run(m, s)[place].reshape(1, -1) for s in samples]) for m in (file, helped.model)
        )
        assert (10 * np.log10(wanted.var(axis=0) / np.square(wanted - found).mean(axis=0))).min() > 20


@pytest.mark.parametrize(("size", "are_logits"), [(0.4, True), (0.1, False)])
def test_logits_in_another_shape_have_no_units(size: float, are_logits: bool) -> None:
    """They differ in size by chance, those of classifiers by less than 16 times; what differs more has units."""
    rng = np.random.default_rng(0)
    net = FloatNet(0)
    x = net.real(1, 1, 8)
    spread = np.array([4.0, size, 4.0, 4.0])[:, None]
    logits = net.add("FULLY_CONNECTED", x, net.const(rng.normal(size=(4, 8)) * spread), None, keep_num_dims=True)
    module = net.module(net.add("RESHAPE", logits, net.const(np.array([1, 4]), "int32"), new_shape=None))
    samples = [[rng.normal(size=(1, 1, 8)).astype(np.float32)] for _ in range(COUNT)]
    model = import_model(export_model(module))
    found = odc_mlir.quantize(model, calibration=samples, mixed="off", normalize="outputs", **PLAIN)
    is_unchanged = any("normalize outputs changes nothing" in finding for finding in found.verdict["findings"])
    assert (is_unchanged, found.verdict["metrics"]["top1_decided"] is not None) == (are_logits, are_logits)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"output_types": {"last": "int8"}}, "beside types that are given for outputs these stay as they are"),
        ({"parameters": {"last": (20.0, 0)}}, "no layer but 'last', whose parameters are given, that may have codes"),
        ({"overrides": {"last": "float"}}, "no layer that may have codes gives outputs such columns"),
    ],
)
def test_what_was_given_is_said_to_keep_outputs_as_they_are(options: dict[str, Any], why: str) -> None:
    rng, net = np.random.default_rng(0), FloatNet(0)
    weights = net.const(rng.normal(size=(4, 8)) * np.geomspace(1e-3, 1e3, 4)[:, None])
    hidden = net.add("FULLY_CONNECTED", net.real(1, 8), net.const(rng.normal(size=(8, 8))), None)
    model = import_model(export_model(net.module(net.add("FULLY_CONNECTED", hidden, weights, None, name="last"))))
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT)]
    found = odc_mlir.quantize(model, calibration=samples, mixed="off", normalize="outputs", **options, **PLAIN)
    assert any("changes nothing" in text and why in text for text in found.verdict["findings"])


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("mixed", ["off", "auto"])
def test_a_layer_whose_outputs_are_normalised_has_the_precision_asked_for(moved: bool, mixed: str) -> None:
    """It is the layer that has it, not what gives columns their units under its name."""
    rng, net = np.random.default_rng(0), FloatNet(0)
    weights = rng.normal(size=(4, 8)) * np.geomspace(1e-3, 1e3, 4)[:, None]
    hidden = net.add("FULLY_CONNECTED", net.real(1, 8), net.const(rng.normal(size=(8, 8))), None)
    y = net.add("FULLY_CONNECTED", hidden, net.const(weights), None)
    name = value_name(y)
    if moved:
        y = net.add("RESHAPE", y, net.const(np.array([1, 2, 2]), "int32"), new_shape=None)
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT)]
    model, options = import_model(export_model(net.module(y))), {"calibration": samples, "mixed": mixed, **PLAIN}
    made = odc_mlir.quantize(model, overrides={name: "int16x8"}, normalize="outputs", **options)
    kept = odc_mlir.quantize(model, overrides={name: "float"}, min_coverage=0.0, **options)
    inner = f"{name}/normalised"
    assert made.passed
    assert (made.verdict["scheme"][inner], made.verdict["scheme"][name]) == ("int16x8", "float")
    assert made.verdict["choices"]["precisions"] == {name: "int16x8"}  # which may be asked for again
    assert {kept.verdict["scheme"].get(layer, "float") for layer in (name, inner)} == {"float"}


def test_columns_of_few_samples_have_room_for_what_others_reach() -> None:
    file, samples = quantities()
    few, unseen = samples[: COUNT // 2], samples[COUNT // 2 :]
    made = odc_mlir.quantize(file, calibration=few, help=False, normalize="outputs")
    assert sqnr_db(file, made, unseen) > 35.0
    assert columns_db(file, made, unseen) > 25.0


@pytest.mark.parametrize("columns", [6, 20])
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_columns_far_apart_keep_their_units_however_many_they_are(columns: int, activation: str) -> None:
    file, samples = quantities(np.geomspace(1e-5, 1e5, columns), activation=activation)
    options = {"calibration": samples, "mixed": "off", **PLAIN}
    plain = odc_mlir.quantize(file, **options, normalize="off")
    assert not plain.passed
    assert any("of output 'y' (" in problem for problem in plain.verdict["problems"])
    helped = odc_mlir.quantize(file, **options)
    assert helped.passed
    assert helped.verdict["choices"]["normalize"] == "outputs"
    assert columns_db(file, helped, samples) > 20.0
    assert "top1_decided" not in {check["metric"] for check in helped.verdict["limits"]}


@pytest.mark.parametrize(("scheme", "least"), [("int8", 18.0), ("int16x8", 30.0)])
def test_what_is_lost_in_several_places_is_mended_at_once(scheme: str, least: float) -> None:
    """To mend one of them shows nothing beside what the others lose."""
    file, samples = quantities(np.geomspace(1e-3, 1e3, 4), spread=1e4)
    options = {"scheme": scheme, "calibration": samples, "mixed": "off", **PLAIN}
    made = odc_mlir.quantize(file, **(options | {"equalize": "auto"}))
    steps = [(step["step"], step["value"], step["kept"]) for step in made.verdict["steps"]]
    assert ("normalize outputs", True, False) in steps
    assert ("normalize and equalize", "weights", True) in steps
    assert made.passed
    assert columns_db(file, made, samples) > least


def test_factors_of_a_normalisation_are_left_out_of_equalising_by_weights() -> None:
    """They say what columns are divided by, and nothing of what is left of these."""
    file, samples = table(folded=True)
    base = prepare(import_model(read_model(file)))
    made = normalized(base, samples)
    assert made is not None
    made.records = record(HostExecutor(made.graph), samples)
    evened = equalized(made, "weights", made.fitted)
    assert evened is not None
    evened.records = record(HostExecutor(evened.graph), samples)
    channels = evened.fitted["x/scaled"].channels
    assert channels is not None
    sizes = np.maximum(np.abs(channels.minima), np.abs(channels.maxima))
    assert sizes.max() < 16 * sizes.min()


def rows_of_units(layout: str) -> tuple[bytes, list[list[np.ndarray]]]:
    """A layer that gives quantities of several units, which ``layout`` puts along another axis than the last."""
    rng = np.random.default_rng(5)
    builder = ModelBuilder()
    length = {"TRANSPOSE": 4, "RESHAPE": 8, "single": 1}[layout]
    x = builder.tensor("x", (1, 4, 6) if layout == "TRANSPOSE" else (1, 6))
    y = builder.tensor("y", (1, SEVERAL, length))
    if layout == "TRANSPOSE":
        weights, units, shape, by = rng.normal(size=(SEVERAL, 6)), UNITS, (1, 4, SEVERAL), [0, 2, 1]
    else:
        weights, units = rng.normal(size=(SEVERAL * length, 6)), np.repeat(UNITS, length)
        shape, by = (1, SEVERAL * length), [1, SEVERAL, length]
    w = builder.tensor("w", weights.shape, data=(weights * units[:, None]).astype(np.float32))
    b = builder.tensor("b", units.shape, data=(3 * units).astype(np.float32))
    options = {"keep_num_dims": layout == "TRANSPOSE"}
    builder.operator("FULLY_CONNECTED", [x, w, b], [layer := builder.tensor("layer", shape)], options=options)
    kind = "TRANSPOSE" if layout == "TRANSPOSE" else "RESHAPE"
    builder.operator(kind, [layer, builder.tensor("by", (3,), "int32", data=np.array(by, np.int32))], [y])
    rows = rng.normal(size=(COUNT, *((1, 4, 6) if layout == "TRANSPOSE" else (1, 6)))).astype(np.float32)
    return bytes(write_model(builder.finish([x], [y]))), [[row] for row in rows]


@pytest.mark.parametrize("layout", ["TRANSPOSE", "RESHAPE", "single"])
def test_columns_along_another_axis_keep_their_units(layout: str) -> None:
    file, samples = rows_of_units(layout)
    options = {"calibration": samples, "mixed": "off", **PLAIN}
    plain = odc_mlir.quantize(file, **options, normalize="off")
    assert not plain.passed
    assert any("along axis 1 of output 'y' (" in problem for problem in plain.verdict["problems"])
    helped = odc_mlir.quantize(file, **options)
    assert helped.passed
    assert helped.verdict["choices"]["normalize"] == "outputs"
    expected, found = (np.concatenate([odc_mlir.run(m, s)[0] for s in samples]) for m in (file, helped.model))
    quality = expected.var(axis=(0, 2)) / np.square(expected - found).mean(axis=(0, 2))
    assert 10 * np.log10(quality.min()) > 20.0


def singles(*answers: tuple[float, float]) -> tuple[bytes, list[list[np.ndarray]]]:
    """Outputs of one column each: where it lies, and how much it varies."""
    rng = np.random.default_rng(6)
    builder = ModelBuilder()
    x, found = builder.tensor("x", (1, 6)), []
    for at, (offset, size) in enumerate(answers):
        w = builder.tensor(f"w{at}", (1, 6), data=(size * rng.normal(size=(1, 6))).astype(np.float32))
        b = builder.tensor(f"b{at}", (1,), data=np.array([offset], np.float32))
        found.append(builder.tensor(f"y{at}", (1, 1)))
        builder.operator("FULLY_CONNECTED", [x, w, b], found[-1:])
    rows = rng.normal(size=(COUNT, 1, 6)).astype(np.float32)
    return bytes(write_model(builder.finish([x], found))), [[row] for row in rows]


@pytest.mark.parametrize("answers", [[(300.0, 0.01)], [(0.0, 1e-6), (300.0, 0.01), (1e5, 1e5)]])
def test_single_columns_far_from_zero_get_their_offset_behind_the_codes(answers: list[tuple[float, float]]) -> None:
    file, samples = singles(*answers)
    options = {"calibration": samples, "mixed": "off", **PLAIN}
    assert not odc_mlir.quantize(file, **options, normalize="off").passed
    helped = odc_mlir.quantize(file, **options)
    assert helped.passed
    assert helped.verdict["choices"]["normalize"] == "outputs"
    floats = {name for name, kind in helped.verdict["scheme"].items() if kind == "float"}
    place = answers.index((300.0, 0.01))
    assert floats == {f"y{place}", f"y{place}/scaled"}


@pytest.mark.parametrize(("precision", "normalize"), [("int16x8", "outputs"), ("float", "off")])
def test_a_layer_whose_precision_is_asked_for_keeps_its_units_only_in_float(precision: str, normalize: str) -> None:
    file, samples = quantities()
    made = odc_mlir.quantize(file, calibration=samples, mixed="off", overrides={"y": precision}, **PLAIN)
    assert made.verdict["scheme"]["y/normalised" if normalize == "outputs" else "y"] == precision
    assert made.verdict["choices"]["normalize"] == normalize


def test_inputs_of_several_units_are_normalised_once_joined() -> None:
    file, samples = quantities(joined=True)
    options = {"calibration": samples, "mixed": "off", **PLAIN}
    plain = odc_mlir.quantize(file, **options, normalize="off")
    helped = odc_mlir.quantize(file, **options)
    assert columns_db(file, plain, samples) < 15
    assert columns_db(file, helped, samples) > 20
    floats = {name for name, kind in helped.verdict["scheme"].items() if kind == "float"}
    assert floats == {"columns", "columns/scaled", "columns/centred"}


def test_without_samples_folded_weights_tell_the_sizes_of_columns() -> None:
    file, samples = table(folded=True)
    made = odc_mlir.quantize(file, scheme="int8_wo")
    assert made.verdict["status"] != "passed"
    assert any("as if a normalisation of raw columns was folded" in text for text in made.verdict["findings"])
    plain = odc_mlir.quantize(file, scheme="int8_wo", normalize="off")
    assert not any("folded" in text for text in plain.verdict["findings"])
    assert sqnr_db(file, plain, samples) < 20
    assert sqnr_db(file, made, samples) > 35


def test_without_samples_weights_of_even_columns_tell_nothing() -> None:
    file, _ = table(1.0)
    made = odc_mlir.quantize(file, scheme="int8_wo")
    assert not any("folded" in text for text in made.verdict["findings"])
    assert "float" not in made.verdict["scheme"].values()


def with_table(way: str) -> tuple[bytes, list[list[np.ndarray]]]:
    """Columns of several units beside rows of a table: in one unit by a factor of the model's own, cut apart for that,
    or as they are."""
    rng = np.random.default_rng(7)
    builder = ModelBuilder()

    def constant(name: str, data: Any, dtype: str = "float32") -> int:
        array = np.asarray(data, np.float32 if dtype == "float32" else np.int32)
        return builder.tensor(name, array.shape, dtype, data=array)

    row, x = builder.tensor("row", (1,), "int32"), builder.tensor("x", (1, 3))
    found = builder.tensor("found", (1, 4))
    builder.operator("GATHER", [constant("table", rng.normal(size=(9, 4))), row], [found], options={"axis": 0})
    first, parts = rng.normal(size=(12, 7)), [x]
    if way == "factor":
        parts = [builder.tensor("normal", (1, 3))]
        builder.operator("MUL", [x, constant("factors", 1.0 / UNITS)], parts)
    elif way == "cut":
        parts = [builder.tensor(f"part{place}", (1, 1)) for place in range(3)]
        for place, (part, unit) in enumerate(zip(parts, UNITS, strict=True)):
            cut = builder.tensor(f"cut{place}", (1, 1))
            ends = [constant(f"at{place}", [0, place], "int32"), constant(f"size{place}", [1, 1], "int32")]
            builder.operator("SLICE", [x, *ends], [cut])
            builder.operator("MUL", [cut, constant(f"factor{place}", [1.0 / unit])], [part])
    else:
        first[:, 4:] /= UNITS
    joined, hidden, y = (builder.tensor(name, (1, size)) for name, size in (("joined", 7), ("hidden", 12), ("y", 1)))
    builder.operator("CONCATENATION", [found, *parts], [joined], options={"axis": 1})
    relu = {"fused_activation_function": "relu"}
    builder.operator("FULLY_CONNECTED", [joined, constant("a", first), -1], [hidden], options=relu)
    builder.operator("FULLY_CONNECTED", [hidden, constant("b", rng.normal(size=(1, 12))), -1], [y])
    rows = (UNITS * rng.normal(size=(COUNT, 1, 3))).astype(np.float32)
    samples = [[rng.integers(0, 9, 1).astype(np.int32), values] for values in rows]
    return bytes(write_model(builder.finish([row, x], [y]))), samples


@pytest.mark.parametrize(("way", "real"), [("factor", {"normal"}), ("cut", {"part0", "cut2"}), ("as they are", set())])
def test_columns_beside_a_table_keep_their_codes(way: str, real: set[str]) -> None:
    file, samples = with_table(way)
    options = {"calibration": samples, "mixed": "off", **PLAIN}
    plain = odc_mlir.quantize(file, **options, normalize="off")
    helped = odc_mlir.quantize(file, **options)
    assert sqnr_db(file, plain, samples) < 20.0
    assert sqnr_db(file, helped, samples) > 30.0
    assert helped.verdict["choices"]["normalize"] == "inputs"
    precisions = helped.verdict["scheme"]
    assert {name for name in precisions if precisions[name] == "float"} >= real
    assert [precisions[name] for name in ("joined", "hidden", "y")] == ["int8"] * 3
