"""Precision by layer: text, configuration files, and names in a graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from odc_mlir.errors import OptionError
from odc_mlir.quantizer.policy.options import (
    PrecisionChoice,
    PrecisionPlan,
    escaped,
    parse_boundary,
    parse_copies,
    parse_overrides,
    parse_parameters,
    plan_of,
    read_config,
)

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


def test_overrides() -> None:
    plan = PrecisionPlan(layers=parse_overrides("a:int16,b:0:float,"))
    assert plan.resolve(["a", "b:0", "c"]) == {"a": PrecisionChoice("int16"), "b:0": PrecisionChoice("float")}


@pytest.mark.parametrize("name", NAMES)
def test_overrides_of_names_as_exporters_write_them(name: str) -> None:
    text = f"{escaped(name, ',')}:int16,last:float"
    found = PrecisionPlan(layers=parse_overrides(text)).resolve([name, "last"])
    assert found == {name: PrecisionChoice("int16"), "last": PrecisionChoice("float")}


@pytest.mark.parametrize("name", NAMES)
def test_types_and_parameters_of_names_as_exporters_write_them(name: str) -> None:
    assert parse_boundary([f"{name}=int8"]) == {name: "int8"}
    assert parse_parameters([f"{name}=0.5:3"]) == {name: (0.5, 3)}
    assert parse_copies([f"{escaped(name, '=')}={escaped('from ' + name, '=')}"]) == {name: f"from {name}"}


@pytest.mark.parametrize("text", ["a", ":int8", "a,b:int8"])
def test_no_override(text: str) -> None:
    with pytest.raises(OptionError, match="is not an override; write NAME:PRECISION"):
        parse_overrides(text)


def test_unknown_precision() -> None:
    with pytest.raises(OptionError, match="unknown precision 'int7'; use one of uint8, int8, int8x4, int16"):
        parse_overrides("a:int7")


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
    plan = read_config(path)
    assert (plan.scheme, plan.granularity) == ("uint8", "tensor")
    found = plan.resolve(["a", "b", "c", "d;relu", "e"])
    assert found["a"] == PrecisionChoice("int16", "channel")
    assert found["b"] == found["c"] == PrecisionChoice("float")
    assert found["d;relu"] == found["e"] == PrecisionChoice("int8")
    assert plan.resolve(["a", "b", "c", "d"]) == {
        "a": found["a"],
        "b": found["b"],
        "c": found["b"],
        "d": PrecisionChoice("int8"),
    }


@pytest.mark.parametrize("names", [["a", "e"], ["d", "d;relu", "e"], ["d;relu"]])
def test_exactly_one_variant_is_there(names: list[str]) -> None:
    plan = plan_of({"layers": [{"name": "d", "dtype": "int16", "alternate": {"x": ["d;relu", "e"]}}]})
    if names == ["d", "d;relu", "e"]:
        match = "exactly one of the variants .* must be in the graph; 2 are"
    else:
        match = "exactly one of the variants .* must be in the graph; none is"
    with pytest.raises(OptionError, match=match):
        plan.resolve(names)


def test_names_are_there_and_named_once() -> None:
    layers = parse_overrides("a:int16,a:int8")
    with pytest.raises(OptionError, match="layer 'a' has a precision given twice"):
        PrecisionPlan(layers=layers).resolve(["a"])
    with pytest.raises(OptionError, match="no operator has a result 'a'"):
        PrecisionPlan(layers=layers).resolve(["b"])


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
        plan_of(content)


@pytest.mark.parametrize("text", [None, "{", "\xff"])
def test_files_that_cannot_be_read(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(OptionError, match=r"cannot read the configuration.*config\.json"):
        read_config(path)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[]")
    with pytest.raises(OptionError, match=r"must be a table \(in .*config\.json"):
        read_config(path)
