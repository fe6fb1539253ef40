"""The schema as data: lookups, option defaults, and the TFLite differences against an independent binding."""

from __future__ import annotations

import math
from typing import Any

import pytest

from odc_mlir.errors import ModelError
from odc_mlir.formats.circle.schema import (
    Schema,
    SchemaField,
    Table,
    circle_schema,
    default_options,
    options_fields,
    schema_of,
    tflite_schema,
)
from odc_mlir.ops.dtypes import DTYPES

# Fields that TFLite's binding calls otherwise.
RENAMED = {"adjoint_lhs": "AdjX", "adjoint_rhs": "AdjY"}


def test_element_types_are_those_of_the_dtype_table() -> None:
    assert set(circle_schema().enums["TensorType"].codes) == set(DTYPES)


@pytest.mark.parametrize(("identifier", "name"), [(b"CIR0", "circle"), (b"TFL3", "tflite")])
def test_identifier_decides(identifier: bytes, name: str) -> None:
    schema = schema_of(identifier)
    assert schema is not None
    assert schema.name == name


def test_other_identifiers_are_unknown() -> None:
    assert schema_of(b"CTR0") is None


@pytest.mark.parametrize(("schema", "code"), [(circle_schema(), -1), (tflite_schema(), 20)], ids=["circle", "tflite"])
def test_uint4_differs(schema: Schema, code: int) -> None:
    assert schema.enums["TensorType"].codes["uint4"] == code


def test_quantisation_details_differ() -> None:
    assert circle_schema().unions["QuantizationDetails"].tables[2] == "MXQuantization"
    assert tflite_schema().unions["QuantizationDetails"].tables[2] == "BlockwiseQuantization"
    assert tflite_schema().unions["QuantizationDetails"].tables[3] == "MultiAxisQuantization"


def test_tflite_has_no_circle_operator() -> None:
    assert min(tflite_schema().operators.names) == 0
    assert circle_schema().operators.codes["INSTANCE_NORM"] == -2
    assert circle_schema().unions["BuiltinOptions"].tags["InstanceNormOptions"] == 254


def test_default_options_are_complete_and_fresh() -> None:
    first = default_options("Conv2DOptions")
    assert first == {
        "padding": "same",
        "stride_w": 0,
        "stride_h": 0,
        "fused_activation_function": "none",
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
        "quantized_bias_type": "float32",
    }
    first["padding"] = "valid"
    assert default_options("Conv2DOptions")["padding"] == "same"


def test_absent_vectors_strings_and_bytes_have_empty_defaults() -> None:
    assert default_options("ReshapeOptions") == {"new_shape": ()}
    assert default_options("VarHandleOptions") == {"container": "", "shared_name": ""}
    assert default_options("StablehloCustomCallOptions")["custom_attributes"] == b""
    assert default_options(None) == {}


def test_deprecated_fields_are_no_options() -> None:
    assert [field.name for field in options_fields("ResizeBilinearOptions")] == ["align_corners", "half_pixel_centers"]


def test_unknown_table() -> None:
    with pytest.raises(ModelError, match="'Conv9DOptions' is not a table of the Circle schema"):
        default_options("Conv9DOptions")


def test_enum_errors_list_what_is_allowed() -> None:
    padding = circle_schema().enums["Padding"]
    with pytest.raises(ModelError, match=r"2 is not a value of Padding; allowed: same \(0\), valid \(1\)"):
        padding.name_of(2)
    with pytest.raises(ModelError, match=r"'full' is not a value of Padding; allowed: same \(0\), valid \(1\)"):
        padding.code_of("full")


class _Recorder:
    """Stands for a flatbuffers builder and keeps the arguments of the one call made."""

    def __init__(self) -> None:
        self.arguments: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            self.arguments = arguments

        return call


@pytest.fixture(scope="module")
def binding() -> Any:
    """TFLite's generated Python binding, newest release."""
    return pytest.importorskip("ai_edge_litert.schema_py_generated")


def test_tflite_fields_agree_with_the_binding(binding: Any) -> None:
    differences = []
    for table in _tflite_tables(binding):
        for field in table.live:
            builder = _Recorder()
            getattr(binding, table.name + "Add" + _camel(field.name))(builder, 0)
            slot, _, default = builder.arguments
            if slot != field.slot or not _same_default(field, default):
                differences.append(f"{table.name}.{field.name}: slot {slot}, default {default}")
    assert not differences


def test_the_binding_has_no_further_fields(binding: Any) -> None:
    slots = {}
    for table in _tflite_tables(binding):
        builder = _Recorder()
        getattr(binding, table.name + "Start")(builder)
        slots[table.name] = (builder.arguments[0], table.slot_count)
    assert {name: pair for name, pair in slots.items() if pair[0] != pair[1]} == {}


@pytest.mark.parametrize("name", ["TensorType", "BuiltinOperator", "FullyConnectedOptionsWeightsFormat", "Padding"])
def test_tflite_enums_agree_with_the_binding(binding: Any, name: str) -> None:
    theirs = {key.upper(): value for key, value in vars(getattr(binding, name)).items() if not key.startswith("_")}
    assert {key.upper(): value for key, value in tflite_schema().enums[name].codes.items()} == theirs


@pytest.mark.parametrize("name", ["QuantizationDetails", "BuiltinOptions", "BuiltinOptions2", "SparseIndexVector"])
def test_tflite_unions_agree_with_the_binding(binding: Any, name: str) -> None:
    theirs = {key: value for key, value in vars(getattr(binding, name)).items() if not key.startswith("_")}
    assert {"NONE": 0, **tflite_schema().unions[name].tags} == theirs


def test_only_unreachable_tables_are_missing_in_the_binding(binding: Any) -> None:
    missing = tflite_schema().tables.keys() - {table.name for table in _tflite_tables(binding)}
    removed = (
        circle_schema().unions["BuiltinOptions"].tags.keys() - tflite_schema().unions["BuiltinOptions"].tags.keys()
    )
    assert missing == removed | {"MXQuantization"}


def _tflite_tables(binding: Any) -> list[Table]:
    return [table for table in tflite_schema().tables.values() if hasattr(binding, table.name + "Start")]


def _camel(name: str) -> str:
    return RENAMED.get(name) or "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _same_default(field: SchemaField, theirs: Any) -> bool:
    ours = field.default
    if field.kind == "enum":
        ours = tflite_schema().enums[field.type].codes[ours]
    return math.isclose(float(ours or 0), float(theirs), rel_tol=1e-6)
