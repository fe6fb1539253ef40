"""Sessions: buffers, shapes, types, backends, signatures, background runs, errors."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder, add_model, host_plan, model_bytes
from odc_mlir.errors import (
    InputCountError,
    InputError,
    InsufficientOutputError,
    InvalidStateError,
    ModelError,
    OdcError,
    OptionError,
    PackageError,
    SessionError,
    UnexpectedNullError,
    UnsupportedError,
)
from odc_mlir.formats.circle.model import Model, Signature
from odc_mlir.formats.manifest import Manifest, format_config
from odc_mlir.formats.package import PackageFiles, build_package, write_package
from odc_mlir.runtime import Session, State, tensorinfo
from odc_mlir.runtime.package import Package

Array = np.ndarray[Any, Any]


def values(*numbers: float) -> Array:
    return np.array([numbers], np.float32)


A, B = values(1, 2, 3, 4), values(10, 20, 30, 40)
SUM = values(12, 24, 36, 48)  # 2a + b


def add_session(**options: Any) -> Session:
    return Session(model_bytes(add_model()), **options)


def unary(name: str = "ABS", shape: tuple[int, ...] | None = (1, 4), **tensor: Any) -> Model:
    builder = ModelBuilder()
    x, y = builder.tensor("x", shape, **tensor), builder.tensor("y", shape, **tensor)
    builder.operator(name, [x], [y])
    return builder.finish([x], [y])


def quantised() -> Model:
    """y = x, max-pooled over one element: codes stay as they are."""
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 2, 2, 1), "int8", quant=(0.5, -1)) for name in "xy")
    options = {"padding": "valid", "stride_w": 1, "stride_h": 1, "filter_width": 1, "filter_height": 1}
    builder.operator("MAX_POOL_2D", [x], [y], options=options)
    return builder.finish([x], [y])


# The quick way.


def test_infer() -> None:
    with add_session() as session:
        (out,) = session.infer([A, B])
        np.testing.assert_array_equal(out, SUM)
        assert not out.flags.writeable
        (again,) = session.infer([B, A])
        np.testing.assert_array_equal(out, SUM)  # what was given before does not change
        np.testing.assert_array_equal(again, 2 * B + A)
    assert session.state is State.CLOSED


def test_infer_converts_what_loses_nothing() -> None:
    (out,) = add_session().infer([A.astype(np.float64), B.astype(np.int32)])
    np.testing.assert_array_equal(out, SUM)
    with pytest.raises(InputError, match=r"input 0 must be an array of int8, not float64.*; convert it"):
        Session(model_bytes(quantised())).infer([np.zeros((1, 2, 2, 1))])


def test_metrics() -> None:
    session = add_session()
    _, first = session.infer([A, B], measure=True)
    _, second = session.infer([A, B], measure=True)
    common = {"input_time_ms", "run_time_ms", "output_time_ms"}
    assert set(first) == {"prepare_time_ms", *common}
    assert set(second) == common
    assert all(value >= 0 for value in first.values())


@pytest.mark.parametrize("inputs", [[A], [A, A, A], A, "ab"])
def test_a_wrong_number_of_inputs_is_a_value_error(inputs: Any) -> None:
    with pytest.raises(ValueError, match=r"the model has 2 inputs \('a', 'b'\)") as caught:
        add_session().infer(inputs)
    assert isinstance(caught.value, InputCountError)


def test_infer_fills_unknown_dimensions() -> None:
    session = Session(model_bytes(add_model((1, 4), signature=(-1, 4))))
    assert session.input_tensorinfo(0).dims == (-1, 4)
    two = np.concatenate([A, A])
    np.testing.assert_array_equal(session.infer([two, two])[0], 3 * two)
    assert session.output_tensorinfo(0).dims == (2, 4)
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)
    assert session.output_tensorinfo(0).dims == (1, 4)


def test_infer_warns_where_a_static_dimension_differs() -> None:
    session = add_session()
    two = np.concatenate([A, A])
    with pytest.warns(UserWarning, match=r"input \d .* has the shape \[2, 4\], the model says \[1, 4\]") as seen:
        (out,) = session.infer([two, two])
    assert len(seen) == 2
    assert seen[0].filename == __file__
    np.testing.assert_array_equal(out, 3 * two)
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)  # and back, without a warning
    with pytest.raises(InputError, match="rank 2, the array 1"):
        session.infer([A[0], B[0]])


# Loading.


def test_loading_from_everything(tmp_path: Path) -> None:
    model = add_model()
    file, folder, packed = tmp_path / "model", tmp_path / "package", tmp_path / "package.zip"
    file.write_bytes(model_bytes(model))
    package = Package(build_package(model_bytes(model), host_plan(model), {}))
    package.save(folder)
    package.save(packed)
    for source in (file, str(file), folder, packed, package, model_bytes(model), memoryview(model_bytes(model))):
        with Session(source) as session:
            np.testing.assert_array_equal(session.infer([A, B])[0], SUM)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("nothing.circle", ModelError, "nothing.circle"),
        ("x" * 1024, SessionError, "longer than 1023 bytes"),
        (b"", SessionError, "no bytes"),
        (b"garbage, not a model", ModelError, "no Circle or TFLite model"),
        (7, SessionError, "path must be text, not int"),
    ],
)
def test_what_cannot_be_loaded(source: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    session = Session()
    load = session.load_circle_from_buffer if isinstance(source, bytes) else session.load_model_from_file
    with pytest.raises(error, match=message):
        load(source)
    assert session.state is State.INITIALIZED
    session.load_circle_from_buffer(model_bytes(add_model()))
    assert session.state is State.MODEL_LOADED


def test_packages_of_the_corpus(test_data: Path) -> None:
    folder = test_data / "nnpackage"
    for path in sorted((folder / "v1.0.0").iterdir()) + sorted((folder / "v1.1.0").iterdir()):
        if path.name == "add_invalid_manifest":
            with pytest.raises(PackageError, match="MANIFEST is not valid JSON"):
                Session(path)
        else:
            with Session(path) as session:
                session.prepare()


def test_settings_of_the_package_count_for_its_session_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BACKENDS", raising=False)
    save_package(tmp_path / "p", {"BACKENDS": '"host"', "INTERNAL_OUTPUT_ALLOC": "true", "WORKSPACE_DIR": "there"})
    session = Session(tmp_path / "p")
    assert session.get_config("BACKENDS") == "host"
    assert session.workspace == "there"
    assert add_session().get_config("BACKENDS") == ""
    session.prepare()
    session.set_inputs(2, [A, B])
    session.run()
    np.testing.assert_array_equal(session.get_output(0), SUM)
    monkeypatch.setenv("BACKENDS", "cpu")
    assert Session(tmp_path / "p").get_config("BACKENDS") == "cpu"
    assert Session(tmp_path / "p", settings={"BACKENDS": "litert"}).get_config("BACKENDS") == "litert"
    assert Session(tmp_path / "p", "builtin").get_config("BACKENDS") == "builtin"


def save_package(path: Path, config: dict[str, str]) -> None:
    manifest = Manifest(("model.circle",), ("circle",), ("config.cfg",))
    members = {
        "metadata/MANIFEST": manifest.to_json(),
        "metadata/config.cfg": format_config(config),
        "model.circle": model_bytes(add_model()),
    }
    write_package(PackageFiles(members, manifest, config, None, "test"), path)


@pytest.mark.parametrize("text", ["0", "OFF", "off", "False", "n", "No"])
def test_switches_that_are_off(text: str, tmp_path: Path) -> None:
    save_package(tmp_path / "p", {"INTERNAL_OUTPUT_ALLOC": text})
    session = Session(tmp_path / "p")
    session.prepare()
    session.set_inputs(2, [A, B])
    session.run()
    with pytest.raises(SessionError, match="has no buffer"):
        session.get_output(0)


def test_set_and_get_config() -> None:
    session = add_session()
    session.set_config("NUM_THREADS", "1")
    with pytest.raises(OptionError, match=r"NUM_THREADS cannot be '8' here.*; use -1 or 1"):
        session.set_config("NUM_THREADS", "8")
    with pytest.raises(SessionError, match=r"'BACKENDS' cannot be set.*; it must be one of GRAPH_DOT_DUMP"):
        session.set_config("BACKENDS", "cpu")
    with pytest.raises(SessionError, match=r"'NUM_THREADS' cannot be read.*; it must be one of BACKENDS, EXECUTOR"):
        session.get_config("NUM_THREADS")
    with pytest.raises(OptionError, match="must be text, not int"):
        session.set_config("ENABLE_LOG", 1)  # type: ignore[arg-type]
    assert session.get_config("EXECUTOR") == "Linear"


def test_version() -> None:
    assert Session().query_info_u32("VERSION") == Session().query_info_u32() < 1 << 32
    with pytest.raises(OptionError, match="use one of VERSION"):
        Session().query_info_u32(1)


# What goes in and out.


def test_descriptions() -> None:
    session = Session(model_bytes(quantised()))
    info = session.input_tensorinfo(0)
    assert (info.name, info.dtype, info.rank, info.dims, info.scale, info.zero_point) == (
        "x",
        "int8",
        4,
        (1, 2, 2, 1),
        0.5,
        -1,
    )
    assert session.get_inputs_tensorinfo() == [info]
    assert [item.name for item in session.get_outputs_tensorinfo()] == ["y"]
    assert (session.input_size(), session.output_size()) == (1, 1)


@pytest.mark.parametrize("index", [-1, 2, "a", None, True, 0.0])
def test_an_index_out_of_range(index: Any) -> None:
    with pytest.raises(SessionError, match="there is no input"):
        add_session().input_tensorinfo(index)


def test_names() -> None:
    model = add_model()
    model.subgraphs[0].tensors[1].name = "a"  # two of one name: the first counts
    session = Session(model_bytes(model))
    assert session.input_tensorindex("a") == 0
    assert session.output_tensorindex("out") == 0
    with pytest.raises(SessionError, match=r"no input called 'c'.*; the model has 'a', 'a'"):
        session.input_tensorindex("c")


def test_buffers() -> None:
    session = add_session()
    session.prepare()
    first, out = A.copy(), np.zeros((1, 4), np.float32)
    session.set_input(0, first)
    session.set_input(1, B.tobytes())  # bytes will do
    session.set_output(0, out)
    session.run()
    np.testing.assert_array_equal(out, SUM)
    np.testing.assert_array_equal(session.get_output(0), SUM)
    first[:] = 0  # kept, not copied
    session.run()
    np.testing.assert_array_equal(out, B)
    session.set_input(1, None)
    with pytest.raises(InputError, match=r"input 1 has no buffer.*; set one with set_input") as caught:
        session.run()
    assert caught.value.tensor is None or caught.value.tensor == "b"
    assert session.state is State.FINISHED_RUN


def test_output_buffers_may_be_larger_and_flat() -> None:
    session = add_session()
    session.prepare()
    session.set_inputs(2, [A, B])
    out = np.full(6, -1, np.float32)
    session.set_output(0, out)
    session.run()
    np.testing.assert_array_equal(out, [*SUM[0], -1, -1])
    assert session.get_output(0).shape == (1, 4)


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (np.zeros((1, 4), np.int8), "must be an array of float32, not int8"),
        (np.zeros((1, 8), np.float32)[:, ::2], "contiguous array that can be written"),
        (b"0123456789012345", "contiguous array that can be written"),
    ],
)
def test_buffers_that_cannot_take_an_output(buffer: Any, message: str) -> None:
    session = add_session()
    session.prepare()
    with pytest.raises(InputError, match=message):
        session.set_output(0, buffer)


def test_buffers_that_are_too_small() -> None:
    session = add_session()
    session.prepare()
    session.set_inputs(2, [A, B])
    session.set_output(0, np.zeros(3, np.float32))
    with pytest.raises(SessionError, match="holds 3 elements, the output has 4") as caught:
        session.run()
    assert type(caught.value) is SessionError
    session.set_output(0, None)
    session.set_input(0, values(1, 2, 3))
    with pytest.raises(InputError, match=r"3 elements, \[1, 4\] needs 4"):
        session.run()
    with pytest.raises(InputError, match="must be an array of float32, not list"):
        session.set_input(0, [1, 2, 3, 4])


def test_a_buffer_too_small_for_what_only_the_run_can_tell() -> None:
    session = Session(model_bytes(add_model((1, 4), signature=(-1, 4))))
    session.prepare()
    two = np.concatenate([A, A])
    session.set_inputs(2, [two, two])
    session.set_output(0, np.zeros(4, np.float32))
    with pytest.raises(InsufficientOutputError, match="holds 4 elements, the output has 8"):
        session.run()


def test_set_inputs_fills_up_with_zeros() -> None:
    session = add_session()
    session.set_prepare_config("ENABLE_INTERNAL_OUTPUT_ALLOC")
    session.prepare()
    session.set_inputs(2, [A.astype(np.float64)])
    session.run()
    np.testing.assert_array_equal(session.get_output(0), 2 * A)
    dynamic = Session(model_bytes(add_model((1, 4), signature=(-1, 4))))
    dynamic.prepare()
    with pytest.raises(InputError, match="input 1 is left out, but its shape is not known"):
        dynamic.set_inputs(2, [A])


def test_get_output_needs_a_buffer_or_the_option() -> None:
    session = add_session()
    session.prepare()
    session.set_inputs(2, [A, B])
    session.run()
    with pytest.raises(SessionError, match=r"has no buffer.*set_prepare_config\('ENABLE_INTERNAL_OUTPUT_ALLOC'\)"):
        session.get_output(0)
    session = add_session()
    session.set_prepare_config(1)
    session.reset_prepare_config()
    session.set_prepare_config("PROFILE")
    with pytest.raises(OptionError, match="unknown prepare config 2"):
        session.set_prepare_config(2)


# Shapes.


@pytest.mark.parametrize("before_prepare", [True, False])
def test_new_input_shapes(before_prepare: bool) -> None:
    session = add_session()
    session.set_prepare_config("ENABLE_INTERNAL_OUTPUT_ALLOC")
    shape = tensorinfo("int8", dims=(3, 4))  # the element type does not matter
    if not before_prepare:
        session.prepare()
    session.set_input_tensorinfo(0, shape)
    session.set_input_tensorinfo(1, shape)
    assert session.input_tensorinfo(0).dims == (3, 4)
    if before_prepare:
        session.prepare()
    assert session.output_tensorinfo(0).dims == ((3, 4) if before_prepare else (1, 4))
    session.set_inputs(2, [np.ones((3, 4), np.float32)])
    session.run()
    assert session.get_output(0).shape == session.output_tensorinfo(0).dims == (3, 4)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (tensorinfo(rank=7, dims=[1] * 7), "rank is 7, allowed are 0 to 6"),
        (tensorinfo(rank=-1), "rank is -1"),
        (tensorinfo(rank=2, dims=[1]), "rank is 2, but dims has 1 entries"),
        (tensorinfo(dims=[1, 0]), "a dimension is 0"),
        (tensorinfo(dims=[1, -4]), "a dimension is -4"),
        (tensorinfo(dims=[1, 4.0]), "a dimension is 4.0"),  # type: ignore[list-item]
        (tensorinfo(dims=[4]), "the input has rank 2, the shape given has 1"),
        ((1, 4), "a tensorinfo is needed, not tuple"),
    ],
)
def test_shapes_that_cannot_be(info: Any, message: str) -> None:
    session = add_session()
    with pytest.raises(SessionError, match=message):
        session.set_input_tensorinfo(0, info)
    assert session.input_tensorinfo(0).dims == (1, 4)


def test_of_dims_longer_than_the_rank_the_first_count() -> None:
    session = add_session()
    session.set_input_tensorinfo(0, tensorinfo(rank=2, dims=[2, 4, 0, 0, 0, 0]))
    assert session.input_tensorinfo(0).dims == (2, 4)


def test_prepare_can_be_repeated_after_a_failure() -> None:
    session = add_session()
    session.set_input_tensorinfo(0, tensorinfo(dims=(2, 3)))
    with pytest.raises(OdcError):
        session.prepare()
    assert session.state is State.MODEL_LOADED
    session.set_input_tensorinfo(0, tensorinfo(dims=(1, 4)))
    session.prepare()
    assert session.state is State.PREPARED


# Layouts and types.


def test_layouts() -> None:
    model = model_bytes(unary(shape=(1, 2, 3, 4)))
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 2, 3)
    session = Session(model)
    session.set_prepare_config("ENABLE_INTERNAL_OUTPUT_ALLOC")
    session.set_input_layout(0, "CHANNELS_FIRST")
    assert session.input_tensorinfo(0).dims == (1, 4, 2, 3)
    session.prepare()
    session.set_input(0, x)
    session.run()
    np.testing.assert_array_equal(session.get_output(0), x.transpose(0, 2, 3, 1))
    session = Session(model)
    session.set_input_layout(0, 2)
    session.set_output_layout(0, "NCHW")
    np.testing.assert_array_equal(session.infer([x])[0], x)
    with pytest.raises(SessionError, match=r"unknown layout 'NCWH'.*; use one of NONE, NHWC, NCHW"):
        Session(model).set_input_layout(0, "NCWH")


def test_integers_by_default_and_real_values_on_request() -> None:
    codes = np.array([-128, -1, 3, 127], np.int8).reshape(1, 2, 2, 1)
    session = Session(model_bytes(quantised()))
    np.testing.assert_array_equal(session.infer([codes])[0], codes)
    session = Session(model_bytes(quantised()))
    session.set_input_type(0, "float32")
    session.set_output_type(0, "float32")
    assert session.input_tensorinfo(0).dtype == "float32"
    assert session.input_tensorinfo(0).scale is None
    reals = np.array([-100.0, 0.0, 2.2, 64.0], np.float32).reshape(1, 2, 2, 1)
    np.testing.assert_array_equal(session.infer([reals])[0].ravel(), [-63.5, 0.0, 2.0, 64.0])


def test_types_that_cannot_be_asked_for() -> None:
    with pytest.raises(SessionError, match="the type cannot be 'int8'; only float32"):
        Session(model_bytes(quantised())).set_input_type(0, "int8")
    with pytest.raises(SessionError, match="a tensor of int32 has no float32 values"):
        Session(model_bytes(unary(dtype="int32"))).set_input_type(0, "float32")


# Backends.


def test_backends() -> None:
    session = add_session(backends="gpu_cl;cpu")  # what is not here is passed over
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)
    session = add_session(backends="gpu_cl;trix")
    with pytest.raises(
        SessionError, match=r"none of the backends 'gpu_cl', 'trix' is known here.*; use one of cpu, host"
    ):
        session.prepare()
    session.set_available_backends("npu")
    with pytest.raises(SessionError, match="can run it: the model is not compiled"):
        session.prepare()
    session.set_available_backends("host")
    session.prepare()


@pytest.mark.parametrize(
    ("backends", "message"), [("x" * 32, "longer than 31 bytes"), (["cpu"], "must be text such as 'npu;cpu'")]
)
def test_lists_of_backends_that_cannot_be(backends: Any, message: str) -> None:
    with pytest.raises(SessionError, match=message):
        add_session().set_available_backends(backends)


@pytest.mark.parametrize("text", ["0", "a=cpu", "0=", "=cpu", "0:cpu"])
def test_assignments_that_cannot_be_read(text: str) -> None:
    with pytest.raises(SessionError, match="is not of the form <operator index>=<backend>"):
        add_session().set_backends_per_operation(text)


def test_backends_per_operation() -> None:
    session = add_session()
    session.set_backends_per_operation("0=cpu;1=host;99=cpu")  # an operator that is not there is passed over
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)
    session = add_session()
    session.set_backends_per_operation("1=npu")
    with pytest.raises(UnsupportedError, match=r"operator 1 cannot run on 'npu': the model is run by host.*op ADD"):
        session.prepare()
    session = add_session(settings={"OP_BACKEND_Add": "trix"})
    with pytest.raises(UnsupportedError, match="operator 0 cannot run on 'trix': there is no such backend"):
        session.prepare()
    session = add_session(settings={"OP_BACKEND_Add": "npu", "OP_BACKEND_MAP": "0=cpu;1=cpu"})  # by index wins
    session.prepare()


# Signatures.


def test_signatures() -> None:
    model = add_model()
    other = unary("NEG").subgraphs[0]
    model.subgraphs.append(other)
    model.signatures.append(Signature("negate", 1, {"x": 0}, {"y": 1}))
    session = Session(model_bytes(model))
    with pytest.raises(SessionError, match=r"no signature 'train'.*; it has 'serve', 'negate'"):
        session.configure_signature("train")
    session.configure_signature("negate")
    assert session.input_size() == 1
    with pytest.raises(SessionError, match="the layout must be set before configure_signature"):
        session.set_input_layout(0, "NHWC")
    with pytest.raises(SessionError, match="the type must be set before configure_signature"):
        session.set_output_type(0, "float32")
    np.testing.assert_array_equal(session.infer([A])[0], -A)
    session.set_signature_run("serve")
    with pytest.raises(InputError, match="input 0 has no buffer"):  # buffers of the other one are gone
        session.run()
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)
    with pytest.raises(SessionError, match="no signature 'train'"):
        session.set_signature_run("train")
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)


# In the background.


def test_run_async() -> None:
    session = add_session()
    session.prepare()
    out = np.zeros((1, 4), np.float32)
    session.set_inputs(2, [A, B])
    session.set_output(0, out)
    for _ in range(3):
        session.run_async()
        assert session.state is State.RUNNING
        with pytest.raises(InvalidStateError, match="run is not allowed in the state 'running'"):
            session.run()
        session.wait()
        np.testing.assert_array_equal(out, SUM)
    with pytest.raises(SessionError, match="wait is not allowed in the state 'finished run'") as caught:
        session.wait()
    assert type(caught.value) is SessionError


def failing_custom(started: threading.Event | None = None) -> Session:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1,)), builder.tensor("y", (1,))
    builder.operator("CUSTOM", [x], [y], custom_code="Mine")
    session = Session(model_bytes(builder.finish([x], [y])))

    def evaluate(inputs: Any, outputs: Any, options: Any) -> Any:
        if started is not None:
            started.set()
            time.sleep(0.05)
            return inputs
        raise RuntimeError("no luck")

    session.register_custom_op_info("Mine", evaluate)
    session.prepare()
    session.set_input(0, np.ones(1, np.float32))
    return session


def test_what_fails_in_the_background_is_raised_by_wait() -> None:
    session = failing_custom()
    session.run_async()
    with pytest.raises(OdcError, match="no luck") as caught:
        session.wait()
    assert session.state is State.PREPARED
    assert session.last_error_message == str(caught.value) == session.get_last_error_message()


def test_wrong_buffers_are_reported_at_once() -> None:
    session = add_session()
    session.prepare()
    with pytest.raises(InputError, match="input 0 has no buffer"):
        session.run_async()
    assert session.state is State.PREPARED


def test_close_waits_for_a_run() -> None:
    started = threading.Event()
    session = failing_custom(started)
    session.run_async()
    assert started.wait(5)
    session.close()
    assert session.state is State.CLOSED
    with pytest.raises(UnexpectedNullError, match="wait was called on a session that is closed"):
        session.wait()


def test_custom_operators_belong_to_their_session() -> None:
    session = failing_custom()
    with pytest.raises(OptionError, match="registered already"):
        session.register_custom_op_info("Mine", lambda *arguments: arguments)
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1,)), builder.tensor("y", (1,))
    builder.operator("CUSTOM", [x], [y], custom_code="Mine")
    with pytest.raises(OdcError, match="Mine"):
        Session(model_bytes(builder.finish([x], [y]))).prepare()


def test_threads_that_share_a_session_wait_for_one_another() -> None:
    session = add_session()
    session.infer([A, B])
    wrong: list[Any] = []

    def work(scale: int) -> None:
        for _ in range(50):
            (out,) = session.infer([scale * A, scale * B])
            if not np.array_equal(out, scale * SUM):
                wrong.append(out)

    threads = [threading.Thread(target=work, args=(scale,)) for scale in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Errors and measurements.


def test_the_last_error_stays() -> None:
    session = add_session()
    assert session.last_error_message == ""
    with pytest.raises(SessionError) as caught:
        session.input_tensorinfo(5)
    assert caught.value.stage == "input_tensorinfo"
    session.prepare()
    assert session.last_error_message == str(caught.value)


def test_memory_errors_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    from odc_mlir.errors import OutOfMemoryError

    session = add_session()

    def fail(*arguments: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(session, "_prepare", fail)
    with pytest.raises(OutOfMemoryError, match="not enough memory"):
        session.prepare()
    assert session.state is State.MODEL_LOADED


def test_profile_and_trace(tmp_path: Path) -> None:
    session = add_session(workspace=tmp_path)
    session.prepare()
    session.set_execute_config("PROFILE")
    session.set_execute_config(1)
    session.set_inputs(2, [A, B])
    session.run()
    session.run()
    profile = json.loads(session.save_profile(tmp_path / "mine.json").read_text())
    assert profile["runs"] == 2
    assert [unit["op"] for unit in profile["units"]] == ["ADD", "ADD"]
    session.reset_execute_config()
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 4
    (tmp_path / "trace.json").unlink()
    session.run()
    session.close()
    assert not (tmp_path / "trace.json").exists()  # watching had been switched off


def test_an_empty_workspace_takes_no_files() -> None:
    session = add_session(workspace="")
    session.prepare()
    with pytest.raises(SessionError, match="TRACE writes to the workspace, which is empty"):
        session.set_execute_config("TRACE")
    session.set_execute_config("PROFILE")
    with pytest.raises(SessionError, match="the workspace is empty"):
        session.save_profile()


def test_the_workspace_can_be_set_only_at_first() -> None:
    session = Session()
    session.set_workspace(os.curdir)
    with pytest.raises(UnexpectedNullError):
        session.set_workspace(None)  # type: ignore[arg-type]
