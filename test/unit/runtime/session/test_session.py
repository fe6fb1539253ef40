"""Sessions: the quick way, loading, what goes in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.data import REPOSITORY
from helpers.models import add_model, host_plan, model_bytes
from helpers.sessions import SUM, A, B, add_session, quantised, save_package, values
from odc_mlir.errors import (
    InputCountError,
    InputError,
    InsufficientOutputError,
    ModelError,
    OdcError,
    OptionError,
    PackageError,
    SessionError,
)
from odc_mlir.formats.package import build_package, pack, write_package
from odc_mlir.runtime import Session, State
from odc_mlir.runtime.auto.settings import Level, Phase
from odc_mlir.runtime.package import Package
from odc_mlir.support.text import parse_module
from odc_mlir.universe import make_context

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
    (out,) = add_session().infer([A.astype(np.float64), B.astype(np.int32).tolist()])
    np.testing.assert_array_equal(out, SUM)
    with pytest.raises(InputError, match=r"input 0 must be an array of int8, not float64.*; it takes codes: round"):
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
    assert session.input_tensorinfo(0).dims == [-1, 4]
    two = np.concatenate([A, A])
    np.testing.assert_array_equal(session.infer([two, two])[0], 3 * two)
    assert session.output_tensorinfo(0).dims == [2, 4]
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)
    assert session.output_tensorinfo(0).dims == [1, 4]


def test_infer_warns_where_a_static_dimension_differs() -> None:
    session = add_session()
    two = np.concatenate([A, A])
    with pytest.warns(UserWarning, match=r"input \d .* has the shape \[2, 4\], the model says \[1, 4\]") as seen:
        (out,) = session.infer([two, two])
    assert len(seen) == 2
    assert seen[0].filename == __file__
    np.testing.assert_array_equal(out, 3 * two)
    np.testing.assert_array_equal(session.infer([A, B])[0], SUM)  # and back, without a warning
    with pytest.raises(InputError, match=r"2 dimensions, the array 1 .*; add the batch dimension: array\[None\]"):
        session.infer([A[0], B[0]])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_infer_warns_of_integers_for_real_inputs(dtype: str) -> None:
    session = add_session()
    pixels = np.arange(4, dtype=dtype).reshape(1, 4)
    message = rf"input 1 .* takes float32, the array has {dtype}, used unscaled; scale pixels"
    with pytest.warns(UserWarning, match=message) as seen:
        (out,) = session.infer([A, pixels])
    assert [item.filename for item in seen] == [__file__]
    np.testing.assert_array_equal(out, session.infer([A, pixels.tolist()])[0])  # lists say nothing of a type


DIGITS = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"


def test_infer_by_name() -> None:
    with Session(DIGITS) as session:
        image = np.zeros((1, 8, 8, 1), np.int8)
        by_name = session.infer({session.input_tensorinfo(0).name: image})
        np.testing.assert_array_equal(by_name[0], session.infer([image])[0])
        with pytest.raises(InputError, match=r"the model has 1 input .*, got 'picture'"):
            session.infer({"picture": image})


def test_infer_warns_of_pixels_for_codes_and_of_other_layouts() -> None:
    with Session(DIGITS) as session:
        pixels = np.full((1, 8, 8, 1), 100, np.uint8)
        with pytest.warns(UserWarning, match="takes int8, the array has uint8, used unscaled; scale pixels"):
            session.infer([pixels])
        with pytest.raises(InputError, match=r"holds 200, outside int8's .*; scale pixels or decode codes"):
            session.infer([2 * pixels])
        session.infer([pixels.astype(np.int64)])  # integers are codes
        with pytest.warns(UserWarning, match="channels come first: use transpose"), pytest.raises(OdcError):
            session.infer([pixels.transpose(0, 3, 1, 2).astype(np.int8)])


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


def test_a_module_in_memory_is_a_model() -> None:
    module = odc_mlir.load(model_bytes(add_model()))
    for source in (module, odc_mlir.optimize(module)):
        with Session(source) as session:
            np.testing.assert_array_equal(session.infer([A, B])[0], SUM)
    with pytest.raises(OptionError, match="type list is not a model"):
        Session([module])


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
    for wrong in ("0", "-2", "65", "two", "1.5", "٣"):
        with pytest.raises(OptionError, match=rf"NUM_THREADS cannot be '{wrong}'.*; use a number from 1 to 64"):
            session.set_config("NUM_THREADS", wrong)
    with pytest.raises(OptionError, match=r"NUM_THREADS cannot be empty.*; use a number from 1 to 64"):
        session.set_config("NUM_THREADS", "")
    with pytest.raises(SessionError, match=r"'BACKENDS' cannot be set.*; it must be one of GRAPH_DOT_DUMP"):
        session.set_config("BACKENDS", "cpu")
    with pytest.raises(SessionError, match=r"'NUM_THREADS' cannot be read.*; it must be one of BACKENDS, EXECUTOR"):
        session.get_config("NUM_THREADS")
    with pytest.raises(OptionError, match="must be text, not int"):
        session.set_config("ENABLE_LOG", 1)  # type: ignore[arg-type]
    assert session.get_config("EXECUTOR") == "Linear"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ODC_CACHE_DIR": "cache"}, "ODC_CACHE_DIR is 'cache', expected an absolute path"),
        ({"ODC_RECORDS": "0"}, "ODC_RECORDS is '0', expected a whole number above 0"),
        ({"ODC_WATCH_PERCENT": "101"}, "ODC_WATCH_PERCENT is '101', expected a number from 0 to 100"),
        ({"ODC_TARGET": "npu-7"}, "npu-7"),
        ({"ODC_TRIGER": "idle"}, "there is no setting 'ODC_TRIGER'.*; did you mean 'ODC_TRIGGER'\\?"),
        (
            {"OnDeviceCompilaton": "1"},
            "there is no setting 'OnDeviceCompilaton'.*; did you mean 'OnDeviceCompilation'\\?",
        ),
        ({"num_thread": "2"}, "there is no setting 'num_thread'.*; did you mean 'NUM_THREADS'\\?"),
        ({"FOO": "1"}, "there is no setting 'FOO'.*; there are BACKENDS, "),
        ({"ODC_RECORDS": 5}, "the setting 'ODC_RECORDS' is 5, expected text"),
        ({"OnDeviceCompilation": True}, "the setting 'OnDeviceCompilation' is True, expected text"),
        ({"NUM_THREADS": ""}, "NUM_THREADS cannot be empty.*; use a number from 1 to 64"),
        ({"NUM_THREADS": "0"}, "NUM_THREADS cannot be '0'.*; use a number from 1 to 64"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OdcError, match=message):
        Session(settings=settings)


def test_an_environment_that_cannot_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", "cache")
    session = add_session()
    session.prepare()
    with pytest.raises(OptionError, match="ODC_CACHE_DIR is 'cache'"):
        session.set_execute_config("DUMP_MINMAX")
    with pytest.raises(OptionError, match="ODC_CACHE_DIR is 'cache'"):
        add_session(settings={"MINMAX_DUMP": "1"}).prepare()
    with pytest.raises(OptionError, match="ODC_CACHE_DIR is 'cache'"):
        Session(settings={"OnDeviceCompilation": "1"})
    save_package(tmp_path / "p", {"OnDeviceCompilation": "1"})
    with pytest.raises(OptionError, match="ODC_CACHE_DIR is 'cache'"):
        Session(tmp_path / "p")
    monkeypatch.setenv("OnDeviceCompilation", "1")
    with pytest.raises(OptionError, match="ODC_CACHE_DIR is 'cache'"):
        Session()


@pytest.mark.parametrize(
    ("key", "value"), [("BACKENDS", "bogus"), ("BACKENDS", "npu"), ("OP_BACKEND_MAP", "x"), ("OP_BACKEND_Add", "bogus")]
)
def test_backends_that_a_package_sets_wrongly_stop_nothing(
    key: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(key, raising=False)
    save_package(tmp_path / "p", {key: value, "MINMAX_DUMP": "0"})
    session = Session(tmp_path / "p")
    assert np.array_equal(session.infer([A, B])[0], SUM)
    (note,) = session.odc_status.notes
    assert note.startswith(f"the package's config.cfg chooses {key} '{value}', which is ignored: ")
    with pytest.raises(OdcError):
        Session(tmp_path / "p", settings={key: value}).prepare()
    monkeypatch.setenv(key, value)
    with pytest.raises(OdcError):
        Session(tmp_path / "p").prepare()


def test_settings_of_a_package_that_do_not_count_are_noted(tmp_path: Path) -> None:
    save_package(tmp_path / "p", {"OnDeviceCompilaton": "1", "ODC_TARGT": "cpu"})
    notes = Session(tmp_path / "p").odc_status.notes
    assert ["OnDeviceCompilaton" in notes[0], "ODC_TARGT" in notes[1]] == [True, True]
    assert all(note.endswith("which is no setting of ours") for note in notes)
    (tmp_path / "m.circle").write_bytes(model_bytes(add_model()))
    write_package(pack([tmp_path / "m.circle"]), tmp_path / "q")
    (tmp_path / "q" / "metadata" / "config.cfg").write_text("OnDeviceCompilation=1\n")
    (note,) = Session(tmp_path / "q").odc_status.notes
    assert note.startswith("metadata/config.cfg does not count, as the manifest does not list it")


def test_status_of_a_compiled_package_with_an_open_batch(tmp_path: Path) -> None:
    tensor = "tensor<?x8x!quant.uniform<i8:f32, 0.5>>"
    body = f"%0 = circle.relu(%x) : ({tensor}) -> {tensor} func.return %0 : {tensor}"
    module = parse_module(make_context(), f"func.func @main(%x: {tensor}) -> {tensor} {{ {body} }}")
    odc_mlir.compile(module, placement={"strategy": "supported"}).save(tmp_path / "p")
    session = Session(tmp_path / "p")
    found = [session.odc_status]
    for batch in (1, 2, 1):
        session.infer([np.ones((batch, 8), np.int8)])
        found.append(session.odc_status)
    assert [status.serving for status in found] == [Level.COMPILED, Level.COMPILED, Level.ORIGINAL, Level.COMPILED]
    assert {status.phase for status in found} == {Phase.ACTIVE}
    assert [len(status.fallbacks) for status in found] == [0, 0, 1, 0]
    assert "the input has the shape [2, 8]" in found[2].fallbacks[0].reason
    assert Session(tmp_path / "p", backends="cpu").odc_status.serving == Level.ORIGINAL


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
        [1, 2, 2, 1],
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
    model.subgraphs[0].tensors[1].name = "a"  # two of one name: the first keeps it
    session = Session(model_bytes(model))
    assert session.input_tensorindex("a") == 0
    assert session.input_tensorindex("a#1") == 1
    assert session.output_tensorindex("out") == 0
    with pytest.raises(SessionError, match=r"no input called 'c'.*; the model has 'a', 'a#1'"):
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
        (np.zeros((1, 8), np.float32)[:, ::2], "contiguous, writable array"),
        (b"0123456789012345", "contiguous, writable array"),
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
    with pytest.raises(InputError, match="input 1 is omitted, but its shape is unknown"):
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
