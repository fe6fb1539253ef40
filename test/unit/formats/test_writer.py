"""Writing: what is read back, what the bytes look like, and what cannot be written."""

from __future__ import annotations

import mmap
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.formats.circle import writer
from odc_mlir.formats.circle.model import (
    LEFT_OUT,
    Model,
    Operator,
    Quantization,
    Signature,
    SubGraph,
    Tensor,
    VariantSubType,
)
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.schema import SchemaField, circle_schema, default_options
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.ops.sparse import DimMetadata, Sparsity
from odc_mlir.runtime.execution.graph import build_graph

SCHEMA = circle_schema()
BUFFER_ALIGN = 16


def _model(*operators: Operator, **fields: Any) -> Model:
    """A model whose tensors 0 and 1 are inputs and the others results."""
    count = 1 + max((index for operator in operators for index in operator.outputs), default=1)
    tensors = [Tensor(f"t{index}", "float32", (2,)) for index in range(count)]
    return Model(subgraphs=[SubGraph("main", tensors, (0, 1), (count - 1,), list(operators))], **fields)


def _again(model: Model, **options: Any) -> Model:
    """The model read from what was written, which in turn gives the same bytes."""
    data = write_model(model, **options)
    again = read_model(data)
    assert write_model(again, **options) == data
    return again


# -- any model comes back ------------------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
floats = st.floats(width=32, allow_nan=False)
dims = st.lists(st.integers(0, 100), max_size=4).map(tuple)
INTEGERS = {"byte": 8, "short": 16, "int": 32, "long": 64}
NATURALS = {"ubyte": 8, "ushort": 16, "uint": 32, "ulong": 64}


def _scalar(type_name: str) -> st.SearchStrategy[Any]:
    if type_name == "bool":
        return st.booleans()
    if type_name in ("float", "double"):
        return floats
    if type_name in INTEGERS:
        return st.integers(-(1 << INTEGERS[type_name] - 1), (1 << INTEGERS[type_name] - 1) - 1)
    return st.integers(0, (1 << NATURALS[type_name]) - 1)


def _value(field: SchemaField) -> st.SearchStrategy[Any]:
    if "subgraph" in field.name:
        return st.just(field.empty if field.kind == "vector" else 0)
    if field.kind == "string":
        return names
    if field.kind == "enum":
        return st.sampled_from(sorted(SCHEMA.enums[field.type].codes))
    if field.kind == "scalar":
        return _scalar(field.type)
    if field.type == "ubyte":
        return st.binary(max_size=4)
    if field.element == "enum":
        return st.lists(st.sampled_from(sorted(SCHEMA.enums[field.type].codes)), max_size=4).map(tuple)
    return st.lists(_scalar(field.type), max_size=4).map(tuple)


@st.composite
def options(draw: st.DrawFn) -> tuple[str | None, dict[str, Any]]:
    members = [*SCHEMA.unions["BuiltinOptions"].tags, *SCHEMA.unions["BuiltinOptions2"].tags]
    table = draw(st.none() | st.sampled_from(members))
    if table is None:
        return None, {}
    return table, {field.name: draw(_value(field)) for field in SCHEMA.tables[table].live}


@st.composite
def quantisations(draw: st.DrawFn) -> Quantization:
    details = draw(
        st.none()
        | st.just(("MXQuantization", {"axis": -1}))
        | st.just(("BlockwiseQuantization", {"scales": 3, "zero_points": -1, "block_size": 32}))
        | st.just(("CustomQuantization", {"custom": b"abc"}))
    )
    arrays = [np.array(draw(st.lists(floats, max_size=3)), "<f4") for _ in range(3)]
    codes = np.array(draw(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3)), "<i8")
    return Quantization(arrays[0], codes, draw(st.integers(-1, 3)), arrays[1], arrays[2], details)


@st.composite
def sparsities(draw: st.DrawFn) -> Sparsity:
    width = draw(st.sampled_from(["<i4", "<u2", "|u1"]))
    indices = [np.array(draw(st.lists(st.integers(0, 200), max_size=3)), width) for _ in range(2)]
    dims = (DimMetadata("dense", 4), DimMetadata("sparse_csr", 0, *indices))
    return Sparsity(draw(st.lists(st.integers(0, 3), max_size=3).map(tuple)), (0,), draw(st.just(()) | st.just(dims)))


@st.composite
def tensors(draw: st.DrawFn, buffers: int) -> Tensor:
    shape = draw(st.none() | dims)
    signature = draw(st.none() | st.just(tuple(-1 for _ in shape or ())))
    return Tensor(
        name=draw(names),
        dtype=draw(st.sampled_from(sorted(SCHEMA.enums["TensorType"].codes))),
        shape=shape,
        shape_signature=signature,
        buffer=draw(st.integers(0, buffers - 1)),
        quantization=draw(st.none() | quantisations()),
        sparsity=draw(st.none() | sparsities()),
        has_rank=draw(st.booleans()),
        variant_tensors=draw(st.just(()) | st.just((VariantSubType("int8", None), VariantSubType("bool", (1,), True)))),
    )


@st.composite
def subgraphs(draw: st.DrawFn, buffers: int) -> SubGraph:
    inputs = tuple(range(draw(st.integers(0, 3))))
    count, operators = len(inputs), []
    for _ in range(draw(st.integers(0, 3))):
        results = draw(st.integers(0, 2))
        table, values = draw(options())
        operators.append(
            Operator(
                name=draw(
                    st.sampled_from(sorted(SCHEMA.operators.codes.keys() - {"PLACEHOLDER_FOR_GREATER_OP_CODES"}))
                ),
                version=draw(st.integers(1, 9)),
                custom_code=draw(names),
                inputs=draw(st.lists(st.integers(LEFT_OUT, count - 1), max_size=3).map(tuple)),
                outputs=tuple(range(count, count + results)),
                options_type=table,
                options=values,
                custom_options=memoryview(draw(st.binary(max_size=5))),
                mutating_variable_inputs=draw(st.lists(st.booleans(), max_size=2).map(tuple)),
                intermediates=draw(st.lists(st.integers(LEFT_OUT, count - 1), max_size=2).map(tuple)),
                debug_metadata_index=draw(st.integers(-1, 3)),
            )
        )
        count += results
    made = [draw(tensors(buffers)) for _ in range(count)]
    for tensor in made:  # a constant must not be computed, so none of these is one
        tensor.shape = tensor.shape and tuple(max(dim, 1) for dim in tensor.shape)
    outputs = tuple(draw(st.permutations(range(count))))
    return SubGraph(draw(st.none() | names), made, inputs, outputs, operators, draw(st.integers(-1, 3)))


@st.composite
def models(draw: st.DrawFn) -> Model:
    buffers = [memoryview(data) for data in draw(st.lists(st.binary(max_size=40), min_size=1, max_size=4))]
    graphs = draw(st.lists(subgraphs(len(buffers)), min_size=1, max_size=2))
    sizes = [len(graph.tensors) for graph in graphs]
    signatures = [
        Signature(draw(names), index, *(dict.fromkeys(draw(st.sets(names, max_size=2)), size - 1) for _ in range(2)))
        for index, size in enumerate(sizes)
        if size
    ]
    for signature in signatures:  # the order of a set is no fact about a model
        signature.inputs = dict(sorted(signature.inputs.items()))
        signature.outputs = dict(sorted(signature.outputs.items()))
    buffer_index = st.integers(0, len(buffers) - 1)
    return Model(
        version=draw(st.integers(0, 9)),
        description=draw(st.none() | names),
        subgraphs=graphs,
        buffers=buffers,
        metadata=draw(st.lists(st.tuples(names, buffer_index), max_size=2)),
        signatures=signatures,
        metadata_buffer=draw(st.lists(buffer_index, max_size=2).map(tuple)),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models())
def test_any_model_comes_back(model: Model) -> None:
    assert _again(model) == model


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models())
def test_any_model_comes_back_with_buffers_outside(model: Model) -> None:
    assert _again(model, inline_limit_bytes=0) == model


# -- bytes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1 << 20, 0], ids=["inline", "outside"])
def test_buffers_are_aligned(limit: int) -> None:
    model = _model(buffers=[memoryview(b""), memoryview(b"a" * 17), memoryview(b"b" * 16)])
    data = write_model(model, inline_limit_bytes=limit)
    assert data.index(b"a" * 17) % BUFFER_ALIGN == 0
    assert data.index(b"b" * 16) % BUFFER_ALIGN == 0


@pytest.mark.parametrize("limit", [10_000, 9_999], ids=["inline", "outside"])
def test_limit_of_inline_buffers(limit: int) -> None:
    model = _model(buffers=[memoryview(b""), memoryview(bytes(10_000))])
    data = write_model(model, inline_limit_bytes=limit)
    assert data.endswith(bytes(10_000)) is (limit < 10_000)


def test_shared_buffers_are_stored_once() -> None:
    data = memoryview(b"0123456789" * 100)
    shared = _model(buffers=[memoryview(b""), data, data, data[:]])
    assert len(write_model(shared)) < 2 * len(data)
    assert _again(shared) == shared
    assert len({id(buffer) for buffer in _again(shared).buffers[1:]}) == 1


def test_equal_bytes_are_stored_once_whoever_made_them() -> None:
    model = _model()
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = Quantization(details=("CustomQuantization", {"custom": bytes(bytearray(b"abc" * 100))}))
    assert write_model(model).count(b"abc" * 100) == 1
    assert _again(model) == model


def test_equal_numbers_are_stored_once() -> None:
    """Zero points of many channels, in particular; what only looks alike has its own vector."""
    scales = [np.linspace(1, 2, 64, dtype=np.float32) + part for part in range(3)]
    model = _model(Operator("ADD", inputs=(0, 1), outputs=(2,)))
    for tensor, scale in zip(model.subgraphs[0].tensors, scales, strict=True):
        tensor.shape, tensor.quantization = (64,), Quantization(scale, np.full(64, 77, np.int64))
    data = write_model(model)
    assert data.count(np.full(64, 77, np.int64).tobytes()) == 1
    assert all(data.count(scale.tobytes()) == 1 for scale in scales)
    assert _again(model) == model


def test_operator_codes_are_stored_once() -> None:
    data = write_model(_model(*(Operator("ADD", inputs=(0, 1), outputs=(index,)) for index in range(2, 40))))
    fewer = write_model(_model(*(Operator("ADD", inputs=(0, 1), outputs=(index,)) for index in range(2, 39))))
    assert len(data) - len(fewer) < 120


@pytest.mark.parametrize(("name", "narrow", "wide"), [("GRU", -5, -5), ("ADD", 0, 0), ("GELU", 127, 150)])
def test_operator_code_fields(name: str, narrow: int, wide: int) -> None:
    from odc_mlir.formats.circle.reader import Decoder

    data = write_model(_model(Operator(name, inputs=(0, 1), outputs=(2,))))
    (code,) = Decoder(memoryview(data), SCHEMA).root()["operator_codes"]
    assert (code["deprecated_builtin_code"], code["builtin_code"]) == (narrow, wide)


def test_tflite_becomes_circle(record: dict[str, Any], encode_tflite: Callable[[dict[str, Any]], bytes]) -> None:
    record["version"] = 3
    record["subgraphs"][0]["tensors"][1]["type"] = "uint4"
    record["subgraphs"][0]["tensors"][1]["quantization"] = {
        "details": ("BlockwiseQuantization", {"scales": 0, "zero_points": -1, "block_size": 32})
    }
    model = read_model(encode_tflite(record))
    again = _again(model)
    assert (model.schema, model.version) == ("tflite", 3)
    model.schema, model.version = "circle", 0
    assert again == model


# -- what cannot be written ----------------------------------------------------------------------------------------


def test_what_our_schema_lacks() -> None:
    with pytest.raises(UnsupportedError, match=r"our schema lacks part of it: a; b; c; d; \.\.\.$"):
        write_model(_model(unknown=["a", "b", "c", "d", "e"]))


def test_multi_axis_quantisation() -> None:
    model = _model()
    model.subgraphs[0].tensors[0].quantization = Quantization(details=("MultiAxisQuantization", {}))
    with pytest.raises(UnsupportedError, match=r"Circle has no MultiAxisQuantization \(tensor 't0'\)"):
        write_model(model)


def test_unknown_operator() -> None:
    with pytest.raises(
        UnsupportedError, match=r"subgraphs\[0\].operators\[0\]: Circle has no such operator \(op CONV_9D\)"
    ):
        write_model(_model(Operator("CONV_9D", inputs=(0,), outputs=(2,))))


def test_tflite_files_ask_for_kernels_that_litert_has() -> None:
    """The oldest version of this operator that it registers is the second; what is newer stays so."""
    model = _model(Operator("BROADCAST_TO", inputs=(0, 1), outputs=(2,), options_type="BroadcastToOptions"))
    for asked, written in ((1, 2), (2, 2), (3, 3)):
        model.subgraphs[0].operators[0].version = asked
        assert read_model(write_tflite(model)).subgraphs[0].operators[0].version == written
        assert read_model(write_model(model)).subgraphs[0].operators[0].version == asked


@pytest.mark.parametrize(
    ("dtype", "sums", "options"),
    [
        ("float32", "float32", {}),
        ("int8", "int32", {}),
        ("uint8", "int32", {}),
        ("int16", "int64", {}),
        ("int16", "int32", {"quantized_bias_type": "int32"}),
    ],
)
@pytest.mark.parametrize("inputs", [(0, 1), (0, 1, LEFT_OUT)])
def test_tflite_files_have_every_bias(dtype: str, sums: str, options: dict[str, Any], inputs: tuple[int, ...]) -> None:
    """LiteRT has no CONV_2D without one: zeros, in the units of sums."""
    options = {**default_options("Conv2DOptions"), **options}
    model = _model(Operator("CONV_2D", inputs=inputs, outputs=(2,), options_type="Conv2DOptions", options=options))
    graph = model.subgraphs[0]
    graph.tensors[1].shape = (3, 1, 1, 2)
    if dtype != "float32":
        graph.tensors[0].quantization = Quantization(np.float32([0.5]), np.int64([3 if dtype == "uint8" else 0]))
        graph.tensors[1].quantization = Quantization(np.float32([1, 2, 3]), np.zeros(3, np.int64))
    graph.tensors[0].dtype = graph.tensors[2].dtype = dtype
    graph.tensors[1].dtype = "int8" if dtype == "int16" else dtype
    written = read_model(write_tflite(model))
    assert written.subgraphs[0].operators[0].inputs == (0, 1, 3)
    bias = written.subgraphs[0].tensors[3]
    assert (bias.dtype, bias.shape) == (sums, (3,))
    np.testing.assert_array_equal(np.frombuffer(written.buffers[bias.buffer], sums), np.zeros(3))
    params = bias.quant_params()
    assert (params and params.scales) == (None if dtype == "float32" else (0.5, 1.0, 1.5))
    assert read_model(write_model(model)).subgraphs[0].operators[0].inputs == inputs
    assert len(graph.tensors) == 3


def test_tflite_files_count_operands_of_other_convolutions() -> None:
    model = _model(Operator("DEPTHWISE_CONV_2D", inputs=(0, 1, LEFT_OUT), outputs=(2,)))
    assert read_model(write_tflite(model)).subgraphs[0].operators[0].inputs == (0, 1)
    assert read_model(write_model(model)).subgraphs[0].operators[0].inputs == (0, 1, LEFT_OUT)


def test_tflite_files() -> None:
    model = _model(Operator("ADD", inputs=(0, 1), outputs=(2,), options_type="AddOptions"), version=0)
    model.subgraphs[0].tensors[0].dtype = "uint4"
    data = write_tflite(model)
    assert data[4:8] == b"TFL3"
    again = read_model(data)
    assert (again.schema, again.version) == ("tflite", 3)
    assert again.subgraphs == read_model(write_model(model)).subgraphs, "codes differ, names do not"


@pytest.mark.parametrize(
    ("operator", "change", "message"),
    [
        ("INSTANCE_NORM", {}, "TFLite has no such operator"),
        ("ADD", {"dtype": "mxfp4"}, "'mxfp4' is not a value of TensorType"),
        ("ADD", {"compression": "huffman"}, "'compression_type' is not a field of Tensor"),
        ("ADD", {"quantization": Quantization(details=("MXQuantization", {}))}, "TFLite has no MXQuantization"),
    ],
)
def test_what_tflite_files_cannot_hold(operator: str, change: dict[str, Any], message: str) -> None:
    model = _model(Operator(operator, inputs=(0, 1), outputs=(2,)))
    for name, value in change.items():
        setattr(model.subgraphs[0].tensors[0], name, value)
    with pytest.raises(OdcError, match=message):
        write_tflite(model)


def test_inconsistent_records() -> None:
    with pytest.raises(ModelError, match=r"subgraphs\[0\].operators\[0\].inputs\[0\]: 9 is not an index of a tensor"):
        write_model(_model(Operator("ADD", inputs=(9,), outputs=(2,))))


BAD_OPTIONS = [
    ({"padding": "full"}, r"padding: 'full' is not a value of Padding; allowed: same \(0\), valid \(1\)"),
    ({"stride_w": 1 << 31}, r"stride_w: 2147483648 cannot be stored"),
    ({"stride_w": 1.5}, r"stride_w: 1.5 cannot be stored"),
    ({"stride": 1}, r"'stride' is not a field of Conv2DOptions"),
]


@pytest.mark.parametrize(("change", "message"), BAD_OPTIONS)
def test_options_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    options = default_options("Conv2DOptions") | change
    operator = Operator("CONV_2D", inputs=(0, 1), outputs=(2,), options_type="Conv2DOptions", options=options)
    with pytest.raises(ModelError, match=r"subgraphs\[0\].operators\[0\].builtin_options.*" + message):
        write_model(_model(operator))


def test_options_table_that_does_not_exist() -> None:
    operator = Operator("CONV_2D", inputs=(0, 1), outputs=(2,), options_type="Conv9DOptions")
    with pytest.raises(ModelError, match="builtin_options: 'Conv9DOptions' is not a member of BuiltinOptions"):
        write_model(_model(operator))


def test_sparse_indices_of_another_width() -> None:
    model = _model()
    level = DimMetadata("sparse_csr", 0, np.array([1], "<i8"))
    model.subgraphs[0].tensors[0].sparsity = Sparsity((0,), (), (level,))
    with pytest.raises(ModelError, match=r"sparse indices are int64; allowed: <i4, <u2, \|u1"):
        write_model(model)


def test_models_above_two_gigabytes_are_written_without_a_copy(tmp_path: Path) -> None:
    """The weights lie in a file full of zeros that takes no room on the disk, and so does what is written."""
    size = (1 << 31) + (64 << 20)
    zeros = tmp_path / "zeros"
    with zeros.open("wb") as file:
        file.truncate(size)
    with zeros.open("rb") as file:
        weights = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    tensors = [Tensor("x", "uint8", (1,)), Tensor("w", "uint8", (size >> 20, 1 << 20), buffer=1)]
    model = Model(subgraphs=[SubGraph("main", tensors, (0,), (0,), [])], buffers=[memoryview(b""), weights])

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    chunks = writer._chunks(model, writer.INLINE_LIMIT_BYTES, circle_schema())
    copies = sum(len(chunk) for chunk in chunks if not isinstance(chunk, memoryview) or chunk.obj != weights.obj)
    assert copies < 1 << 16
    with (tmp_path / "large.circle").open("wb") as file:
        for chunk in chunks:
            if len(chunk) < size:
                file.write(chunk)
            else:
                file.seek(size, os.SEEK_CUR)
        file.truncate()
    read = read_model(tmp_path / "large.circle")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10  # KiB
    assert len(read.buffers[1]) == size
    assert read.subgraphs[0].tensors[1].shape == tensors[1].shape
    assert build_graph(read).tensors[1].is_const
