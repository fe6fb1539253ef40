"""Options, their texts, and the schemes that they apply to."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import odc_mlir
from odc_mlir.errors import OptionError
from odc_mlir.quantizer.policy import options as parsing
from odc_mlir.quantizer.policy.declarations import BY_SCHEME, OPTIONS, RANGE_MODES, SCHEME_NAMES
from odc_mlir.quantizer.policy.options import PrecisionChoice, PrecisionPlan, escaped, make_options, parse_overrides
from odc_mlir.quantizer.policy.ranges import MODES
from odc_mlir.quantizer.policy.schemes import SCHEMES

NO, BOTH, YES = (False,), (False, True), (True,)
ASKED = {"ranges": "percentile", "equalize": "weights", "rounding": "on", "correction": "off", "headroom": 0.5}
EQUALIZATIONS = ("none", "weights", "activations", "activations:0.8")


@pytest.mark.parametrize(
    ("given", "equalizations", "rounding", "correction", "headroom", "searches"),
    [
        ({}, EQUALIZATIONS, BOTH, BOTH, 0.0, True),
        ({"scheme": "int16"}, EQUALIZATIONS, BOTH, BOTH, 1.0, True),
        ({"help": False}, ("none",), NO, NO, 0.0, False),
        ({"help": False, **ASKED, "mixed": "on"}, ("weights",), YES, NO, 0.5, True),
        ({"help": True, **ASKED, "mixed": "on"}, ("weights",), YES, NO, 0.5, True),
    ],
)
def test_help_tries_what_is_left_open_and_what_is_asked_for_is_done(
    given: dict[str, Any], equalizations: tuple, rounding: tuple, correction: tuple, headroom: float, searches: bool
) -> None:
    options = make_options(**given)
    assert (options.scheme, options.ranges) == (given.get("scheme", "int8"), given.get("ranges", "auto"))
    assert options.equalizations == equalizations
    assert (options.switched(options.rounding), options.switched(options.correction)) == (rounding, correction)
    assert (options.chosen_headroom, options.searches_precisions) == (headroom, searches)


def test_a_configuration_names_scheme_and_layers(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"default_quantization_dtype": "uint8", "layers": [{"name": "a", "dtype": "int16"}]}))
    for options in (make_options(config=path), make_options(mixed=str(path))):
        assert options.scheme == "uint8"
        assert options.plan.resolve(["a"])["a"].precision == "int16"
    assert make_options(mixed=path).mixed == "off"
    assert make_options(config=path, scheme="uint8").scheme == "uint8"
    with pytest.raises(OptionError, match=r"the scheme is int8, and .* has uint8 for all other layers; omit"):
        make_options(config=path, scheme="int8")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"scheme": "int3"}, "unknown quantisation scheme 'int3'"),
        ({"io": "int8"}, "unknown io 'int8'; use one of float, quantized"),
        ({"ranges": "most"}, "unknown ranges 'most'; use one of auto, minmax"),
        ({"equalize": "yes"}, "unknown equalize 'yes'"),
        ({"rounding": "yes"}, "unknown rounding 'yes'; use one of auto, on, off"),
        ({"range_options": {"high": 99.0}}, "options for ranges need a mode"),
        ({"max_drop": -1.0}, "max_drop is -1.0, expected a number of at least 0"),
        ({"max_seconds": float("nan")}, "max_seconds is nan"),
        ({"mixed": {"layers": []}, "config": {"layers": []}}, "given twice"),
        ({"overrides": 3}, "overrides are 3"),
        ({"overrides": "a"}, "is not an override; write NAME:PRECISION"),
        ({"overrides": ":int8"}, "is not an override; write NAME:PRECISION"),
        ({"overrides": "a,b:int8"}, "is not an override; write NAME:PRECISION"),
        ({"overrides": "a:int7"}, "unknown precision 'int7'; use one of uint8, int8, int8x4, int16"),
        (
            {"scheme": "int16", "granularity": "tensor"},
            "has one scale per channel; granularity 'tensor' is not possible",
        ),
        ({"scheme": "int8_wo", "granularity": "tensor"}, "one scale per channel"),
        ({"granularity": "layer"}, "unknown granularity 'layer'.*channel, tensor"),
        ({"weights": "asymmetric"}, "only uint8 ones can be asymmetric"),
        ({"scheme": "uint8", "weights": "skew"}, "unknown weight form 'skew'"),
        ({"rangs": "minmax"}, r"unknown option 'rangs'; did you mean 'ranges'\?"),
    ],
)
def test_refusals(given: dict[str, Any], text: str) -> None:
    assert make_options(granularity="tensor").definition.granularity == "tensor"
    with pytest.raises(OptionError, match=text):
        make_options(**given)


@pytest.mark.parametrize(
    ("target", "weights", "symmetric"),
    [(None, None, False), ("npu-256", None, True), ("npu-256", "asymmetric", False), (None, "symmetric", True)],
)
def test_an_npu_gets_uint8_weights_of_one_zero_point(target: str | None, weights: str | None, symmetric: bool) -> None:
    options = make_options(scheme="uint8", weights=weights, target=target)
    assert options.definition.symmetric_weights == symmetric


# A value of each option that asks for something, for the schemes that it does not apply to.
ASKING: dict[str, Any] = {
    "io": "quantized",
    "input_types": ["int8"],
    "output_types": ["x=int16"],
    "parameters": ["x=0.5:0"],
    "copied_parameters": ["x=y"],
    "ranges": "percentile",
    "range_options": {"high": 99.0},
    "headroom": 0.5,
    "output_room": "on",
    "scales": "fitted",
    "equalize": "missing.json",
    "overrides": "x:float",
    "mixed": "on",
    "visq_file": "missing.json",
    "patterns": "softmax",
}


RESTRICTED = {
    name: parsing.SCHEMES_OF[declared.applies_to]
    for name, declared in OPTIONS.items()
    if declared.applies_to != BY_SCHEME and set(parsing.SCHEMES_OF[declared.applies_to]) != set(SCHEMES)
}


def test_every_option_says_which_schemes_it_applies_to() -> None:
    by_scheme = [name for name, declared in OPTIONS.items() if declared.applies_to == BY_SCHEME]
    assert by_scheme == ["scheme", "granularity", "weights"]
    assert ASKING.keys() == RESTRICTED.keys()
    assert (tuple(SCHEMES), tuple(MODES)) == (SCHEME_NAMES, RANGE_MODES)


def test_the_public_signature_has_every_option() -> None:
    taken = inspect.signature(odc_mlir.quantize).parameters
    assert OPTIONS.keys() <= taken.keys()
    assert (taken["scheme"].default, taken["scheme"].annotation) == ("int8", "str")
    assert all(f"``{name}`` (" in (odc_mlir.quantize.__doc__ or "") for name in OPTIONS)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_options_are_refused_by_schemes_they_do_not_apply_to(scheme: str) -> None:
    for option, schemes in RESTRICTED.items():
        more = {"ranges": "percentile"} if option == "range_options" else {}
        given = {"scheme": scheme, option: ASKING[option], **more}
        if scheme in schemes:
            assert make_options(**given).scheme == scheme
        else:
            with pytest.raises(OptionError, match=f"scheme '{scheme}' .*; omit .*, or use one of"):
                make_options(**given)
    # Values that ask for nothing fit all schemes.
    assert make_options(scheme=scheme, io="float", ranges="auto", equalize="none", mixed="off", parameters=[])
    widest = 65535 if "16" in scheme else 255
    if scheme in RESTRICTED["headroom"]:  # which leaves values a step between two codes
        assert make_options(scheme=scheme, headroom=widest).headroom == widest
        with pytest.raises(OptionError, match=f"headroom is .*from 0 to {widest}"):
            make_options(scheme=scheme, headroom=1e30)


NAMES = [
    "layer1/relu",
    "StatefulPartitionedCall:0",
    "model.0.conv",
    "a b",
    "a=b",
    "a,b",
    "a:int8",
    "relu;add",
    "a\\b",
    "'a'",
]


@pytest.mark.parametrize("name", NAMES)
def test_overrides_types_and_parameters_of_names_as_exporters_write_them(name: str) -> None:
    text = f"{escaped(name, ',')}:int16,last:float"
    found = PrecisionPlan(layers=parse_overrides(text)).resolve([name, "last"])
    assert found == {name: PrecisionChoice("int16"), "last": PrecisionChoice("float")}
    assert parsing.parse_boundary([f"{name}=int8"]) == {name: "int8"}
    assert parsing.parse_parameters([f"{name}=0.5:3"]) == {name: (0.5, 3)}
    copied = [f"{escaped(name, '=')}={escaped('from ' + name, '=')}"]
    assert parsing.parse_copies(copied) == {name: f"from {name}"}


def test_a_configuration(tmp_path: Path) -> None:
    content = {
        "default_quantization_dtype": "uint8",
        "default_granularity": "layer",
        "layers": [
            {"name": "a", "dtype": "int16", "granularity": "channel"},
            {"names": ["b", "c"], "dtype": "float"},
            {"name": "d", "dtype": "int8", "alternate": {"fused": ["d;relu", "e"]}},
        ],
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    plan = parsing.read_config(path)
    assert (plan.scheme, plan.granularity) == ("uint8", "tensor")
    wide, real, plain = PrecisionChoice("int16", "channel"), PrecisionChoice("float"), PrecisionChoice("int8")
    found = plan.resolve(["a", "b", "c", "d;relu", "e"])
    assert found == {"a": wide, "b": real, "c": real, "d;relu": plain, "e": plain}
    for given in ("a:int16,b:0:float,", {"a": "int16", "b:0": "float"}):
        overrides = make_options(overrides=given).plan.resolve(["a", "b:0", "c"])
        assert overrides == {"a": PrecisionChoice("int16"), "b:0": real}
    assert plan.resolve(["a", "b", "c", "d"]) == {"a": wide, "b": real, "c": real, "d": plain}


@pytest.mark.parametrize(
    ("content", "names", "message"),
    [
        ("a:int16,a:int8", ["a"], "layer 'a' has a precision given twice"),
        ("a:int16,a:int8", ["b"], "no operator has a result 'a'"),
        ("variants", ["a", "e"], "exactly one of the variants .* must be in the graph; none is"),
        ("variants", ["d", "d;relu", "e"], "exactly one of the variants .* must be in the graph; 2 are"),
        ("variants", ["d;relu"], "exactly one of the variants .* must be in the graph; none is"),
    ],
)
def test_layers_are_there_and_named_once(content: str, names: list[str], message: str) -> None:
    variants = {"layers": [{"name": "d", "dtype": "int16", "alternate": {"x": ["d;relu", "e"]}}]}
    plan = parsing.plan_of(variants) if content == "variants" else PrecisionPlan(layers=parse_overrides(content))
    with pytest.raises(OptionError, match=message):
        plan.resolve(names)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "the configuration is .*, must be a table"),
        ({"layer": []}, "unknown field 'layer'; allowed are default_quantization_dtype"),
        ({"layers": {}}, "layers is .*, must be a list"),
        ({"layers": [{"dtype": "int8"}]}, "a layer has either name or names"),
        ({"layers": [{"name": "a", "names": ["b"], "dtype": "int8"}]}, "a layer has either name or names"),
        ({"layers": [{"name": "a"}]}, "layer 'a' has no dtype"),
        ({"layers": [{"names": [], "dtype": "int8"}]}, "must be a list of strings"),
        ({"layers": [{"names": [1], "dtype": "int8"}]}, "must be a list of strings"),
        ({"layers": [{"name": "a", "dtype": "int9"}]}, "unknown dtype 'int9'"),
        ({"layers": [{"name": "a", "dtype": "int8", "granularity": "row"}]}, "unknown granularity 'row'"),
        ({"layers": [{"name": "a", "dtype": "int8", "alternate": ["b"]}]}, "must map tags to lists"),
        ({"default_quantization_dtype": "float"}, "unknown default_quantization_dtype 'float'"),
        ({"default_granularity": 3}, "unknown granularity 3"),
    ],
)
def test_configurations_that_say_nothing(content: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parsing.plan_of(content)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"cannot read the configuration.*config\.json"),
        ("{", r"cannot read the configuration.*config\.json"),
        ("\xff", r"cannot read the configuration.*config\.json"),
        ("[]", r"must be a table \(in .*config\.json"),
    ],
)
def test_errors_name_the_file(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(OptionError, match=message):
        parsing.read_config(path)
