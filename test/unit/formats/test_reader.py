"""Reading: what the records say, and one test for every reason to refuse a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.formats.circle import reader
from odc_mlir.formats.circle.reader import identify, read_model
from odc_mlir.formats.circle.schema import tflite_schema

Record = dict[str, Any]
Encode = Callable[[Record], bytes]


def test_everything_arrives(record: Record, encode: Encode) -> None:
    model = read_model(encode(record))
    assert (model.schema, model.version, model.description, model.unknown) == ("circle", 0, "a test", [])
    assert [bytes(buffer) for buffer in model.buffers] == [b"", bytes(range(8)), b"1.14.0"]
    assert model.metadata == [("min_runtime_version", 2)]
    signature = model.signatures[0]
    assert (signature.key, signature.inputs, signature.outputs) == ("serve", {"in": 0}, {"out": 2})
    subgraph = model.subgraphs[0]
    assert [tensor.name for tensor in subgraph.tensors] == ["x", "w", "y"]
    assert [tensor.effective_shape for tensor in subgraph.tensors] == [(None, 2), (2,), (1, 2)]
    operator = subgraph.operators[0]
    assert (operator.name, operator.version, operator.inputs, operator.outputs) == ("ADD", 2, (0, 1), (2,))
    assert operator.options_type == "AddOptions"
    assert operator.options == {"fused_activation_function": "relu6", "pot_scale_int16": True}


def test_buffers_are_views_of_the_source(record: Record, encode: Encode) -> None:
    data = encode(record)
    model = read_model(data)
    assert model.buffers[1].obj is data
    assert model.buffers[1].readonly


def test_a_writable_source_gives_read_only_views(record: Record, encode: Encode) -> None:
    assert read_model(bytearray(encode(record))).buffers[1].readonly


def test_file_and_bytes_give_the_same(record: Record, encode: Encode, tmp_path: Path) -> None:
    path = tmp_path / "model.circle"
    path.write_bytes(encode(record))
    assert read_model(path) == read_model(str(path)) == read_model(encode(record))


def test_large_files_are_mapped(
    record: Record, encode: Encode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.circle"
    path.write_bytes(encode(record))
    monkeypatch.setattr(reader, "MAP_BYTES", 1)
    assert read_model(path) == read_model(encode(record))


def test_the_extension_does_not_matter(record: Record, encode_tflite: Encode, tmp_path: Path) -> None:
    path = tmp_path / "model.circle"
    path.write_bytes(encode_tflite(record))
    assert read_model(path).schema == "tflite"


@pytest.mark.parametrize(("head", "kind"), [(b"....CIR0", "circle"), (b"....TFL3", "tflite"), (b"PK\3\4....", None)])
def test_identify(head: bytes, kind: str | None) -> None:
    assert identify(head) == kind


def test_operator_without_options(record: Record, encode: Encode) -> None:
    del record["subgraphs"][0]["operators"][0]["builtin_options"]
    operator = read_model(encode(record)).subgraphs[0].operators[0]
    assert (operator.options_type, operator.options) == (None, {})


def test_options_of_the_second_union(record: Record, encode: Encode) -> None:
    operator = record["subgraphs"][0]["operators"][0]
    del operator["builtin_options"]
    operator["builtin_options_2"] = ("StablehloTransposeOptions", {"permutation": (1, 0)})
    assert read_model(encode(record)).subgraphs[0].operators[0].options == {"permutation": (1, 0)}


def test_missing_buffers_mean_one_empty_buffer(record: Record, encode: Encode) -> None:
    record["buffers"] = record["metadata"] = None
    record["subgraphs"][0]["tensors"][1].update(shape=(0,), buffer=0)
    model = read_model(encode(record))
    assert [len(buffer) for buffer in model.buffers] == [0]


# -- operator codes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("narrow", "wide", "name"),
    [(3, 3, "CONV_2D"), (3, 0, "CONV_2D"), (-5, -5, "GRU"), (-5, 0, "GRU"), (127, 150, "GELU"), (3, 150, "CONV_2D")],
)
def test_circle_operator_code(record: Record, encode: Encode, narrow: int, wide: int, name: str) -> None:
    record["operator_codes"] = [{"deprecated_builtin_code": narrow, "builtin_code": wide}]
    assert read_model(encode(record)).subgraphs[0].operators[0].name == name


@pytest.mark.parametrize(
    ("narrow", "wide", "name"), [(3, 3, "CONV_2D"), (3, 0, "CONV_2D"), (0, 3, "CONV_2D"), (127, 150, "GELU")]
)
def test_tflite_operator_code(record: Record, encode_tflite: Encode, narrow: int, wide: int, name: str) -> None:
    record["operator_codes"] = [{"deprecated_builtin_code": narrow, "builtin_code": wide}]
    assert read_model(encode_tflite(record)).subgraphs[0].operators[0].name == name


def test_contradicting_operator_code(record: Record, encode: Encode) -> None:
    record["operator_codes"] = [{"deprecated_builtin_code": 127, "builtin_code": 3}]
    with pytest.raises(
        ModelError, match=r"operator_codes\[0\]: builtin_code 3 contradicts deprecated_builtin_code 127"
    ):
        read_model(encode(record))


def test_code_that_never_existed(record: Record, encode: Encode) -> None:
    record["operator_codes"] = [{"deprecated_builtin_code": -1, "builtin_code": -1}]
    with pytest.raises(ModelError, match=r"builtin code -1 is not an operator of the circle schema"):
        read_model(encode(record))


# -- what a newer schema defines -----------------------------------------------------------------------------------


def test_new_operator_is_kept(record: Record, encode: Encode) -> None:
    record["operator_codes"] = [{"deprecated_builtin_code": 127, "builtin_code": 999}]
    model = read_model(encode(record))
    assert model.subgraphs[0].operators[0].name == "BUILTIN_999"
    assert model.unknown == ["operator with builtin code 999"]


def test_new_options_table_is_kept(record: Record, encode: Encode, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(record)
    monkeypatch.delitem(reader.circle_schema().unions["BuiltinOptions"].tables, 11)  # type: ignore[arg-type]
    model = read_model(data)
    assert model.subgraphs[0].operators[0].options_type == "UNKNOWN_11"
    assert model.unknown == ["member with tag 11 of BuiltinOptions"]


def test_new_field_is_noticed(record: Record, encode_tflite: Encode) -> None:
    record["subgraphs"][0]["operators"][0]["builtin_options"] = ("FullyConnectedOptions", {"quant_spec": b"abc"})
    # The same table under the Circle schema, where slot 5 means nothing.
    data = encode_tflite(record).replace(b"TFL3", b"CIR0")
    assert read_model(data).unknown == ["field in slot 5 of FullyConnectedOptions"]


def test_fields_that_only_tflite_has_are_noticed(record: Record, encode_tflite: Encode) -> None:
    record["subgraphs"][0]["operators"][0]["builtin_options"] = ("FullyConnectedOptions", {"quant_spec": b"abc"})
    record["subgraphs"][0]["tensors"][0]["external_buffer"] = 3
    record["external_buffers"] = [{"id": 3}]
    model = read_model(encode_tflite(record))
    assert "quant_spec" not in model.subgraphs[0].operators[0].options
    assert sorted(model.unknown) == [
        "external_buffer of Tensor",
        "external_buffers of Model",
        "quant_spec of FullyConnectedOptions",
    ]


def test_compression_without_a_definition_is_noticed(record: Record, encode: Encode) -> None:
    record["subgraphs"][0]["tensors"][1]["compression_type"] = "huffman"
    model = read_model(encode(record))
    assert model.subgraphs[0].tensors[1].compression == "huffman"
    assert model.unknown == ["huffman compression of tensor 'w'"]


def test_two_bit_constants_become_four_bit_ones(record: Record, encode_tflite: Encode) -> None:
    tensor = record["subgraphs"][0]["tensors"][1]
    tensor["type"], tensor["shape"] = "int2", [2, 3]
    record["buffers"][tensor["buffer"]] = {"data": bytes([0b11_00_10_01, 0b01_01])}  # 1, -2, 0, -1, 1, 1
    model = read_model(encode_tflite(record))
    found = model.subgraphs[0].tensors[1]
    assert found.dtype == "int4"
    assert bytes(model.buffers[found.buffer]) == bytes([0xE1, 0xF0, 0x11])


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_element_types_that_circle_lacks(record: Record, encode_tflite: Encode, name: str) -> None:
    record["subgraphs"][0]["tensors"][1]["type"] = name
    with pytest.raises(
        UnsupportedError, match=rf"tensors\[1\].type: element type {name} has no equal in Circle"
    ) as caught:
        read_model(encode_tflite(record))
    assert caught.value.tensor == "w"


# -- what is stored behind the flatbuffer --------------------------------------------------------------------------


def _with_tail(record: Record, encode: Encode, offset_shift: int = 0, size: int = 8) -> bytes:
    record["buffers"][1] = {"offset": 1 << 40, "size": size}
    end = len(encode(record))
    record["buffers"][1]["offset"] = end + offset_shift
    return encode(record) + bytes(range(8))


def test_large_model(record: Record, encode: Encode) -> None:
    assert bytes(read_model(_with_tail(record, encode)).buffers[1]) == bytes(range(8))


@pytest.mark.parametrize(("shift", "size"), [(1, 8), (0, 9), (0, (1 << 64) - 1), (1 << 40, 8)])
def test_large_model_beyond_the_end(record: Record, encode: Encode, shift: int, size: int) -> None:
    with pytest.raises(ModelError, match=r"buffers\[1\]: bytes \d+ to \d+ lie outside the file"):
        read_model(_with_tail(record, encode, shift, size))


def test_unfinished_large_model(record: Record, encode: Encode) -> None:
    record["buffers"][1] = {"offset": 1, "size": 1}
    with pytest.raises(ModelError, match=r"buffers\[1\]: offset 1 marks a file whose writer did not finish it"):
        read_model(encode(record))


def test_large_custom_options(record: Record, encode: Encode) -> None:
    operator = record["subgraphs"][0]["operators"][0]
    operator.update(large_custom_options_offset=1 << 40, large_custom_options_size=3)
    operator["large_custom_options_offset"] = len(encode(record))
    assert bytes(read_model(encode(record) + b"abc").subgraphs[0].operators[0].custom_options) == b"abc"


# -- malformed models ----------------------------------------------------------------------------------------------


def _change(record: Record, path: str, value: Any) -> None:
    """Set the field at a path such as ``subgraphs.0.inputs``."""
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    target: Any = record
    for step in steps:
        target = target[step]
    target[last] = value


REFUSED = [
    ("subgraphs", [], r"^subgraphs: the model has none"),
    ("subgraphs.0.inputs", (3,), r"subgraphs\[0\].inputs\[0\]: 3 is not an index of a tensor; allowed: 0 to 2"),
    ("subgraphs.0.inputs", (-1,), r"subgraphs\[0\].inputs\[0\]: -1 is not an index of a tensor"),
    ("subgraphs.0.outputs", (2, 9), r"subgraphs\[0\].outputs\[1\]: 9 is not an index of a tensor"),
    ("subgraphs.0.operators.0.opcode_index", 1, r"operators\[0\].opcode_index: 1 is not an index of an operator code"),
    ("subgraphs.0.operators.0.inputs", (0, -2), r"operators\[0\].inputs\[1\]: -2 is not an index of a tensor.*op ADD"),
    (
        "subgraphs.0.operators.0.inputs",
        (0, 3),
        r"operators\[0\].inputs\[1\]: 3 is not an index of a tensor; allowed: -1 to",
    ),
    ("subgraphs.0.operators.0.outputs", (-1,), r"operators\[0\].outputs\[0\]: -1 is not an index of a tensor"),
    (
        "subgraphs.0.operators.0.intermediates",
        (7,),
        r"operators\[0\].intermediates\[0\]: 7 is not an index of a tensor",
    ),
    ("subgraphs.0.operators.0.outputs", (0,), r"tensor 0 is computed although it has a value already.*tensor 'x'"),
    ("subgraphs.0.operators.0.inputs", (2,), r"tensor 2 is used before it has a value.*op ADD, tensor 'y'"),
    (
        "subgraphs.0.tensors.1.buffer",
        3,
        r"tensors\[1\].buffer: 3 is not an index of a buffer; allowed: 0 to 2.*tensor 'w'",
    ),
    ("subgraphs.0.tensors.0.shape", (1, -2), r"tensors\[0\].shape: \[1, -2\] has a negative dimension"),
    ("subgraphs.0.tensors.0.shape_signature", (-5, 2), r"shape_signature: \[-5, 2\] has a negative dimension"),
    (
        "subgraphs.0.tensors.2.shape",
        (2**31 - 1,) * 3,
        r"tensors\[2\].shape: .* more elements than are supported, at most",
    ),
    (
        "subgraphs.0.tensors.2.shape",
        (0, 2**31 - 1, 2**31 - 1),
        r"tensors\[2\].shape: .* more elements than are supported, at most",
    ),
    ("subgraphs.0.tensors.2.shape", (1,) * 33, r"tensors\[2\].shape: the rank is 33; at most 32 is supported"),
    ("subgraphs.0.tensors.0.shape_signature", (-1,), r"\[-1\] has another rank than the shape \[1, 2\].*tensor 'x'"),
    ("subgraphs.0.tensors.1.is_variable", True, r"tensors\[1\].buffer: a variable starts at zero.*tensor 'w'"),
    ("metadata.0.buffer", 3, r"metadata\[0\].buffer: 3 is not an index of a buffer"),
    ("metadata_buffer", (0, -1), r"metadata_buffer\[1\]: -1 is not an index of a buffer"),
    ("signature_defs.0.subgraph_index", 1, r"signature_defs\[0\].subgraph_index: 1 is not an index of a subgraph"),
    ("signature_defs.0.inputs.0.tensor_index", 3, r"signature_defs\[0\].inputs\[0\]: 3 is not an index of a tensor"),
    (
        "signature_defs.0.outputs.0.tensor_index",
        2**32 - 1,
        r"signature_defs\[0\].outputs\[0\]: 4294967295 is not an index",
    ),
    ("signature_defs.0.inputs", [{"name": "a"}, {"name": "a"}], r"inputs: the signature gives one name twice"),
    ("subgraphs.0.operators.0.builtin_options", ("IfOptions", {"else_subgraph_index": 1}), r"else_subgraph_index"),
    (
        "subgraphs.0.operators.0.builtin_options",
        ("CallOptions", {"subgraph": 7}),
        r"subgraph\[0\]: 7 is not an index of a",
    ),
    (
        "subgraphs.0.operators.0.builtin_options_2",
        ("DilateOptions", {}),
        r"two tables of options, AddOptions and Dilate",
    ),
]


@pytest.mark.parametrize(("path", "value", "message"), REFUSED)
def test_refused(record: Record, encode: Encode, path: str, value: Any, message: str) -> None:
    assert read_model(encode(record)).unknown == []
    _change(record, path, value)
    with pytest.raises(ModelError) as caught:
        read_model(encode(record))
    assert caught.match(message)


def test_two_operators_compute_one_tensor(record: Record, encode: Encode) -> None:
    subgraph = record["subgraphs"][0]
    subgraph["operators"] = subgraph["operators"] * 2
    with pytest.raises(ModelError, match=r"operators\[1\]: tensor 2 is computed although it has a value already"):
        read_model(encode(record))


def test_a_dangling_output_is_read(record: Record, encode: Encode) -> None:
    record["subgraphs"][0]["operators"] = []
    assert read_model(encode(record)).subgraphs[0].outputs == (2,)


def test_invalid_utf8(record: Record, encode: Encode) -> None:
    record["subgraphs"][0]["tensors"][1]["name"] = "weight"
    data = encode(record).replace(b"weight", b"w\xff\xfeght")
    with pytest.raises(ModelError, match=r"subgraphs\[0\].tensors\[1\].name: the string at byte \d+ is not UTF-8"):
        read_model(data)


def test_unknown_enum_value(record: Record, encode: Encode, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(record)
    monkeypatch.delitem(reader.circle_schema().enums["ActivationFunctionType"].names, 3)  # type: ignore[arg-type]
    with pytest.raises(
        ModelError, match=r"builtin_options.fused_activation_function: 3 is not a value of ActivationFunc"
    ):
        read_model(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it has only 0 bytes"),
        (b"CIR0", "it has only 4 bytes"),
        (b"PK\3\4\0\0\0\0\0\0", "its bytes 4 to 7 are .*; export models of other formats, such as ONNX, again: to TF"),
        (b"\x08\0\0\0CIR0", "it points to byte 8, but the file has 8: truncated or corrupt"),
        (b"\0\0\0\0CIR0\0\0\0\0", "the offset at byte 0 points to itself"),
    ],
)
def test_no_model(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_model(data)


# -- files that cannot be opened -----------------------------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: No such file") as caught:
        read_model(tmp_path / "none.circle")
    assert caught.value.location == str(tmp_path / "none.circle")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the model file cannot be read: Is a directory"):
        read_model(tmp_path)


def test_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="this is not a regular file"):
        read_model(tmp_path / "pipe")


def test_name_that_no_file_can_have() -> None:
    with pytest.raises(ModelError, match="the model file cannot be read"):
        read_model("a\0b")


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.circle"
    path.write_bytes(b"\x08\0\0\0CIR0")
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert str(caught.value).endswith(f"(in {path})")


def test_tflite_schema_is_a_separate_binding() -> None:
    assert "compression_type" not in tflite_schema().tables["Tensor"].by_name
