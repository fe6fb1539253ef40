from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from odc_mlir.errors import OptionError
from odc_mlir.quantizer.policy.options import APPLICABLE, Options, make_options
from odc_mlir.quantizer.policy.schemes import SCHEMES


def test_help_tries_what_is_left_open() -> None:
    options = make_options()
    assert options.scheme == "int8"
    assert options.equalizations == ("none", "weights", "activations", "activations:0.8")
    assert options.switched(options.rounding) == (False, True)
    assert options.searches_precisions


def test_without_help_nothing_is_tried() -> None:
    options = make_options(help=False)
    assert (options.equalizations, options.chosen_headroom) == (("none",), 0.0)
    assert options.switched(options.correction) == (False,)
    assert not options.searches_precisions


def test_what_is_asked_for_is_done_with_and_without_help() -> None:
    for help in (True, False):
        options = make_options(
            help=help, ranges="mse", equalize="weights", rounding="on", correction="off", mixed="on", headroom=0.5
        )
        assert (options.ranges, options.equalizations) == ("mse", ("weights",))
        assert (options.switched(options.rounding), options.switched(options.correction)) == ((True,), (False,))
        assert options.searches_precisions
        assert options.chosen_headroom == 0.5


def test_sixteen_bits_have_headroom() -> None:
    options = make_options(scheme="int16")
    assert options.chosen_headroom == 1.0


def test_overrides_as_text_and_as_a_mapping() -> None:
    text = make_options(overrides="a:int16x8,b:float").plan.resolve(["a", "b"])
    mapping = make_options(overrides={"a": "int16x8", "b": "float"}).plan.resolve(["a", "b"])
    assert text == mapping
    assert {name: choice.precision for name, choice in text.items()} == {"a": "int16x8", "b": "float"}


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
        ({"scheme": "int8_wo", "overrides": "a:float"}, "touches weights only"),
        ({"normalize": "on", "io": "quantized"}, "normalised before they are codes"),
        ({"max_drop": -1.0}, "max_drop is -1.0, expected a number of at least 0"),
        ({"max_seconds": float("nan")}, "max_seconds is nan"),
        ({"mixed": {"layers": []}, "config": {"layers": []}}, "given twice"),
        ({"overrides": 3}, "overrides are 3"),
        ({"scheme": "int16", "granularity": "tensor"}, "granularity 'tensor' is not possible"),
    ],
)
def test_refusals(given: dict[str, Any], text: str) -> None:
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
    "ranges": "entropy",
    "range_options": {"high": 99.0},
    "headroom": 0.5,
    "output_room": "on",
    "scales": "fitted",
    "equalize": "missing.json",
    "layers": "x:float",
    "mixed": "on",
    "visq_file": "missing.json",
    "patterns": "softmax",
}
RESTRICTED = {name: applies for name, applies in APPLICABLE.items() if set(applies.schemes) != set(SCHEMES)}


def _asking(option: str, scheme: str) -> dict[str, Any]:
    more = {"ranges": "percentile"} if option == "range_options" else {}
    return {"scheme": scheme, "overrides" if option == "layers" else option: ASKING[option], **more}


def test_every_option_says_which_schemes_it_applies_to() -> None:
    checked_by_schemes = {"scheme", "granularity", "weights"}
    assert {*APPLICABLE, *checked_by_schemes} == {item.name.replace("plan", "layers") for item in fields(Options)}
    assert ASKING.keys() == RESTRICTED.keys()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("option", RESTRICTED)
def test_options_are_refused_by_schemes_they_do_not_apply_to(option: str, scheme: str) -> None:
    if scheme in APPLICABLE[option].schemes:
        assert make_options(**_asking(option, scheme)).scheme == scheme
    else:
        with pytest.raises(OptionError, match=f"scheme '{scheme}' .*; omit .*, or use one of"):
            make_options(**_asking(option, scheme))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_values_that_ask_for_nothing_fit_all_schemes(scheme: str) -> None:
    assert make_options(scheme=scheme, io="float", ranges="auto", equalize="none", mixed="off", parameters=[])


@pytest.mark.parametrize(("scheme", "widest"), [("int8", 255), ("uint8", 255), ("int16x8", 65535)])
def test_headroom_leaves_values_a_step_between_two_codes(scheme: str, widest: int) -> None:
    assert make_options(scheme=scheme, headroom=widest).headroom == widest
    with pytest.raises(OptionError, match=f"headroom is .*from 0 to {widest}"):
        make_options(scheme=scheme, headroom=1e30)
