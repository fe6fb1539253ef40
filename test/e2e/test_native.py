"""Native code: the integers of the host kernels, in packages and in place, and what happens where it cannot run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.data import GoldenModel, golden_models
from helpers.interpreting import run_module
from helpers.models import model_bytes
from helpers.native import skip_unless_it_runs
from helpers.networks import RANGES, RandomNetwork
from helpers.operator_cases import CASES, inputs_of, module_of
from helpers.sessions import unary
from odc_mlir.errors import InputError, OptionError, UnsupportedError
from odc_mlir.formats import package as package_files
from odc_mlir.runtime import Session, tensorinfo
from odc_mlir.runtime.package import Package

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_cnn_int8.circle"
ZERO = [np.zeros((1, 8, 8, 1), np.int8)]

# Cases of the NPU that become native code; a kernel that is lost would be missed by nothing else.
NATIVE = {"add", "conv", "conv-uint8", "conv-stride-dilation", "depthwise-of-one-channel", "fully-connected", "softmax"}
NATIVE |= {"logistic", "relu6", "mean-[1, 2]", "max-pool-uint8", "pad-and-convolve", "quantize", "views", "depthwise"}
NATIVE |= {"mul", "add-channels", "mul-channels", "sub-from-scalar", "pad"}


@pytest.mark.parametrize("model", golden_models("zoo", "zoo-int16", "digits", quantised=True))
def test_golden_outputs(model: GoldenModel) -> None:
    package = odc_mlir.compile(model.circle, target="cpu")
    assert package.plan is not None
    assert len(package.plan.segments) == 1, package.plan.host_reasons
    for sample in model.samples():
        for found, golden in zip(odc_mlir.run(package, sample.inputs, strict=True), sample.outputs, strict=True):
            np.testing.assert_array_equal(found, golden)


@pytest.mark.parametrize(("seed", "target"), [*((seed, "cpu") for seed in range(8)), (8, "x86-64-avx2")])
def test_random_networks(seed: int, target: str) -> None:
    skip_unless_it_runs(target)
    model = RandomNetwork(seed).build(operators=3 + seed % 8)
    package = odc_mlir.compile(model, target=target)
    (given,) = package.inputs
    low, high = RANGES[given.dtype]
    random = np.random.default_rng(seed)
    for values in (random.integers(low, high + 1, given.shape), np.full(given.shape, low), np.full(given.shape, high)):
        inputs = [values.astype(given.dtype)]
        (expected,) = odc_mlir.run(model, inputs, backend="host")
        (found,) = odc_mlir.run(package, inputs, strict=True)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "names", [sorted(NATIVE), pytest.param(sorted({*CASES} - NATIVE), marks=pytest.mark.soak)], ids=["native", "others"]
)
def test_operators_alone(names: list[str]) -> None:
    native = set()
    for name in names:
        module = module_of(name)
        inputs = inputs_of(module)
        package = odc_mlir.compile(module, target="cpu")
        assert package.plan is not None
        if package.plan.segments:
            native.add(name)
        for found, expected in zip(odc_mlir.run(package, inputs, strict=True), run_module(module, inputs), strict=True):
            np.testing.assert_array_equal(found, expected, err_msg=name)
    assert native >= NATIVE & {*names}, NATIVE - native


def test_wide_borders_end_with_the_image() -> None:
    text = f"""func.func @main(%x: tensor<1x1x2x128xf32>) -> tensor<1x1x2x1xf32> {{
      %w = circle.const {[0.5] * 7 * 128} : tensor<1x1x7x128xf32>
      %n = circle.none
      %y = circle.conv_2d(%x, %w, %n) {{padding = same, stride = [1, 1]}}
        : (tensor<1x1x2x128xf32>, tensor<1x1x7x128xf32>, none) -> tensor<1x1x2x1xf32>
      func.return %y : tensor<1x1x2x1xf32>
    }}"""
    (found,) = odc_mlir.run(text.encode(), [np.ones((1, 1, 2, 128), np.float32)], backend="native")
    assert found.tolist() == [[[[128.0], [128.0]]]]


def test_the_same_model_gives_the_same_bytes() -> None:
    once, again = (dict(odc_mlir.compile(DIGITS, target="cpu").files.members) for _ in range(2))
    assert once == again


def test_backend_native_compiles_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))
    (found,) = odc_mlir.run(DIGITS, ZERO, backend="native", strict=True)
    np.testing.assert_array_equal(found, odc_mlir.run(DIGITS, ZERO)[0])


def test_code_compiled_in_place_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And compiled again where it is damaged, or for another model."""
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))
    from odc_mlir import compiler

    made = []
    compiling = compiler.compile
    monkeypatch.setattr(compiler, "compile", lambda *a, **k: made.append(a) or compiling(*a, **k))
    expected = odc_mlir.run(DIGITS, ZERO)[0]
    for times, damage in ((1, False), (1, True), (2, False)):
        np.testing.assert_array_equal(odc_mlir.run(DIGITS, ZERO, backend="native")[0], expected)
        assert len(made) == times
        (kept,) = (tmp_path / "native").glob("*.zip")
        if damage:
            data = bytearray(kept.read_bytes())
            data[len(data) // 2] ^= 1
            kept.write_bytes(data)
    odc_mlir.run(RandomNetwork(1).build(3), [_input_of(RandomNetwork(1).build(3))], backend="native")
    assert len(made) == 3


def _input_of(model: bytes) -> np.ndarray:
    (info,) = odc_mlir.runtime.api.open_executor(model).graph.input_infos()
    return np.zeros(info.static_shape, info.info.numpy)


def test_a_cache_that_cannot_be_used_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "file"))
    assert odc_mlir.run(DIGITS, ZERO, backend="native")[0].shape == (1, 10)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("native") / "digits"
    odc_mlir.compile(DIGITS, target="cpu").save(path)
    return path


def test_a_saved_package_runs(saved: Path) -> None:
    (found,) = odc_mlir.run(saved, ZERO, strict=True)
    np.testing.assert_array_equal(found, odc_mlir.run(DIGITS, ZERO)[0])


def test_loading_imports_no_compiler(saved: Path) -> None:
    """It takes several times as long as loading, more so without byte code."""
    text = (
        "import sys, numpy, odc_mlir\n"
        f"odc_mlir.run({str(saved)!r}, [numpy.zeros((1, 8, 8, 1), numpy.int8)], strict=True)\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('llvmlite', 'xdsl')])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("place", [3, 20, 60, 5000, -1], ids=["magic", "length", "header", "code", "constants"])
def test_damaged_code_is_not_run(saved: Path, place: int) -> None:
    """Host kernels stand in, with the reason."""
    files = package_files.read_package(saved)
    name = next(name for name in files.members if name.endswith(".cpu"))
    data = bytearray(files.members[name])
    data[place] ^= 0x40
    damaged = Package(package_files.parse_package({**files.members, name: bytes(data)}, "damaged"))
    executor = damaged.executor()
    (found,) = executor.run(ZERO)
    np.testing.assert_array_equal(found, odc_mlir.run(DIGITS, ZERO)[0])
    assert "its digest is not the one in metadata/MANIFEST" in executor.fallbacks["segment-0"]


def test_code_for_another_machine_is_not_run(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("known_features", "running_features"):
        monkeypatch.setattr(f"odc_mlir.codegen.machine.{name}", frozenset)
    executor = odc_mlir.load_package(saved).executor()
    executor.run(ZERO)
    assert "this machine lacks" in executor.fallbacks["segment-0"]


def test_code_for_another_architecture_is_made_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless native code is asked for: then it is made for this one."""
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))
    package = odc_mlir.compile(DIGITS, target="aarch64")
    executor = package.executor()
    executor.run(ZERO)
    assert "it is for aarch64" in executor.fallbacks["segment-0"]
    odc_mlir.run(package, ZERO, backend="native", strict=True)


def test_without_llvmlite_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llvmlite", None)
    with pytest.raises(OptionError, match="native code needs the package llvmlite"):
        odc_mlir.compile(DIGITS, target="cpu")
    odc_mlir.run(DIGITS, ZERO)


def test_another_batch_runs_on_the_host(test_data: Path) -> None:
    model = test_data / "models" / "zoo" / "kws_ref_model.circle"
    shape = (3, 49, 10, 1)
    inputs = [np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)]
    executor = odc_mlir.compile(model, target="cpu").executor()
    np.testing.assert_array_equal(executor.run(inputs)[0], odc_mlir.run(model, inputs)[0])


def test_litert_numerics_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="litert numerics are not available on the backend native; use"):
        odc_mlir.run(DIGITS, ZERO, backend="native", numerics="litert")


@pytest.mark.parametrize("options", [{"placement": {"host": ["CONV_2D"]}}, {"sram_limit": 4096}])
def test_what_is_for_npus_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="is for NPUs, the target is 'cpu'"):
        odc_mlir.compile(DIGITS, target="cpu", **options)


def test_a_session_runs_natively_by_name(test_data: Path) -> None:
    """The same integers as on the host, also by the second call, which finds the code in the cache."""
    path = test_data / "models" / "digits" / "digits_cnn_int8.circle"
    values = np.random.default_rng(3).integers(-128, 128, (1, 8, 8, 1)).astype(np.int8)
    expected = odc_mlir.run(path, [values], backend="host")
    for _ in range(2):
        session = Session(path)
        session.set_available_backends("native")
        np.testing.assert_array_equal(session.infer([values])[0], expected[0])
    session = Session(path)
    session.set_available_backends("native")
    session.set_backends_per_operation("0=cpu")
    with pytest.raises(OptionError, match="single operators cannot be assigned to backends"):
        session.infer([values])


@pytest.mark.parametrize(
    "name", ["digits/digits_cnn_int8", "digits/digits_mobile", "tico/nn_pixel_shuffle", "tico/nn_groupnorm"]
)
def test_a_session_tells_the_shapes_that_native_code_gives(test_data: Path, name: str) -> None:
    """The compiled model has a graph of its own: its tensors are not where the original model has them."""
    path = test_data / "models" / f"{name}.circle"
    told: dict[str, list[tuple[int, ...]]] = {}
    given: dict[str, list[np.ndarray[Any, Any]]] = {}
    for backend in ("host", "native"):
        with Session(path) as session:
            session.set_available_backends(backend)
            session.prepare()
            told[backend] = [session.output_tensorinfo(index).shape for index in range(session.output_size())]
            info = session.input_tensorinfo(0)
            values = np.random.default_rng(5).integers(0, 16, info.shape).astype(info.dtype)
            given[backend] = session.infer([values])
    assert told["native"] == told["host"] == [array.shape for array in given["native"]]
    for found, expected in zip(given["native"], given["host"], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_repeated_runs_of_a_session_follow_the_inputs(tmp_path: Path) -> None:
    random, model = np.random.default_rng(0), DIGITS.read_bytes()
    batches = [random.integers(-128, 128, (1, 8, 8, 1)).astype(np.int8) for _ in range(3)]
    expected = [odc_mlir.run(model, [batch], backend="host")[0] for batch in batches]
    with Session(odc_mlir.compile(model, target="cpu"), strict=True, workspace=tmp_path) as session:
        found = [session.infer([batch])[0] for batch in batches]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
            assert not one.flags.writeable
        strided = np.zeros((1, 8, 8, 2), np.int8)[..., :1]
        strided[...] = batches[0]
        np.testing.assert_array_equal(session.infer([strided])[0], expected[0])
        np.testing.assert_array_equal(session.infer([batches[1].tolist()])[0], expected[1])
        for wrong in ([batches[0].astype(np.float32)], [batches[0].astype(np.int16) + 300], batches[:2]):
            with pytest.raises(InputError):
                session.infer(wrong)
        session.set_input_tensorinfo(0, tensorinfo("int8", dims=(2, 8, 8, 1)))
        np.testing.assert_array_equal(session.infer([batches[2]])[0], expected[2])
        assert session.input_tensorinfo(0).dims == [1, 8, 8, 1]
        session.infer([batches[1]])
        session.set_output(0, answer := np.empty_like(expected[1]))
        session.run()  # on the last inputs
        np.testing.assert_array_equal(answer, expected[1])
        session.set_output(0, None)
        session.set_execute_config("PROFILE")
        session.infer([batches[2]])
        assert session.save_profile().stat().st_size > 0


def test_later_runs_keep_the_outputs_that_a_caller_holds() -> None:
    """Large outputs are not copied: their memory is used again as soon as nobody holds it."""
    shape, count = (200, 200), 5
    inputs = [np.full(shape, number, np.float32) for number in range(count)]
    package = odc_mlir.compile(model_bytes(unary("NEG", shape=shape)), target="cpu")
    with Session(package, strict=True) as session:
        whole = [session.infer([given])[0] for given in inputs]
        rows = [session.infer([given])[0][1:2] for given in inputs]
        session.infer([np.full(shape, 99, np.float32)])
        for number in range(count):
            assert (whole[number] == -number).all()
            assert (rows[number] == -number).all()
        places = set()
        for given in inputs * 3:
            places.add(session.infer([given])[0].ctypes.data)
        assert len(places) <= 2
