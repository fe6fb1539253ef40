"""The NPU's driver in C beside the Python runtime: the same integers, cycles and refusals."""

from __future__ import annotations

import ctypes
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers import stateful
from helpers.compiled import Compiled
from helpers.containers import damaged, edge_cases, small_container
from helpers.data import GoldenModel, golden_models
from helpers.driver import FOLDER, SANITIZE, STRICT, Array, Driver, build, compiler, load_stub, platform, run_firmware
from helpers.models import ModelBuilder
from odc_mlir import Package
from odc_mlir.codegen.loading import read_symbols
from odc_mlir.errors import OdcError, OptionError, PackageError, UnsupportedError
from odc_mlir.firmware import emit_firmware
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.isa import container
from odc_mlir.tools import odc_package

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_cnn_int8.circle"
STORIES = Path(__file__).parents[2] / "examples" / "stories" / "stories_int8.circle"
QUANTISED = golden_models("zoo", "zoo-int16", "lstm", quantised=True)
QUICK = ("kws_ref_model", "keras_lstm_mnist_ptq")

# Values of odc_npu_status and of the register ERROR, and registers, as the header has them.
OK, VERSION, CHECKSUM, METADATA = 0, 3, 5, 8
ARGUMENT, ALIGNMENT, MEMORY, DEVICE, HARDWARE, BUSY, WAIT, FAILED = 11, 12, 13, 14, 15, 16, 17, 18
ID, DONE, ERROR, CONTROL, IRQ_CLEAR, PROGRAM_BYTES, REGION_BYTES = 0x00, 0x10, 0x14, 0x40, 0x48, 0x58, 0x68


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return platform(tmp_path_factory.mktemp("platform"))


def assert_same(
    package: Package, samples: Sequence[Sequence[Array]], folder: Path, objects: Sequence[Path], **options: Any
) -> None:
    """Firmware and the Python runtime give the same integers and cycles for all samples, one after the other."""
    found = run_firmware(package, samples, folder, objects, **options)
    assert (found.status, found.failure) == (OK, "")
    executor = package.executor()
    executor.reset()
    for sample, outputs in zip(samples, found.outputs, strict=True):
        for ours, expected in zip(outputs, executor.run(list(sample)), strict=True):
            np.testing.assert_array_equal(ours, expected)
    assert not executor.fallbacks
    assert set(found.cycles) == {package.report["cycles_total"]}


def samples_of(package: Package, count: int = 2) -> list[list[Array]]:
    """Random inputs of a package."""
    rng = np.random.default_rng(1)

    def value(spec: Any) -> Array:
        shape = [extent or 1 for extent in spec.shape]
        if spec.dtype == "float32":
            return rng.standard_normal(shape).astype(np.float32)
        least, most = (
            (0, 4) if spec.dtype in ("int32", "int64") else (np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max)
        )
        return rng.integers(least, most + 1, shape).astype(spec.dtype)

    return [[value(spec) for spec in package.inputs] for _ in range(count)]


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(
            *p.values, id=p.id, marks=[*p.marks, *([] if p.id in (*QUICK, "no-test-data") else [pytest.mark.soak])]
        )
        for p in QUANTISED
    ],
)
def test_models_give_the_same_integers(
    model: GoldenModel, compiled: Compiled, tmp_path: Path, objects: list[Path]
) -> None:
    package = odc_mlir.load_package(compiled(model.circle))
    samples = [sample.inputs for sample in islice(model.samples(), 2)]
    assert_same(package, samples, tmp_path, objects)


@pytest.mark.parametrize("interrupts", [True, False], ids=["interrupts", "polling"])
def test_waiting(interrupts: bool, compiled: Compiled, tmp_path: Path, objects: list[Path]) -> None:
    package = odc_mlir.load_package(compiled(DIGITS))
    assert_same(package, samples_of(package, 5), tmp_path, objects, interrupts=interrupts)


def test_other_hardware(compiled: Compiled, tmp_path: Path, objects: list[Path]) -> None:
    """The device is of the kind that the program was compiled for, or the driver refuses the program."""
    package = odc_mlir.load_package(compiled(DIGITS, target="npu-512", memory="sram"))
    assert_same(package, samples_of(package), tmp_path, objects, target="npu-512", memory="sram")
    (tmp_path / "flash").mkdir()
    assert run_firmware(package, samples_of(package), tmp_path / "flash", objects, target="npu-512").status == HARDWARE


# Models with operators on the processor: what is placed there, and how many objects come of it.
MIXED = {
    "several segments": ("zoo/kws_ref_model", {"host": ["AVERAGE_POOL_2D", "SOFTMAX"]}, 2),
    "a view alone": ("zoo/kws_ref_model", {"host": ["RESHAPE"]}, 0),
    "16 bits": ("tico/ptq_mlp_int16", {}, 2),
    "variables on the processor": ("lstm/keras_lstm_mnist_ptq", {"host": ["UNIDIRECTIONAL_SEQUENCE_LSTM"]}, 1),
}


@pytest.mark.parametrize("case", MIXED)
def test_mixed_models_give_the_same_integers(case: str, test_data: Path, tmp_path: Path, objects: list[Path]) -> None:
    name, placement, count = MIXED[case]
    package = odc_mlir.compile(test_data / "models" / f"{name}.circle", placement=placement)
    assert package.plan is not None
    assert any(step.kind == "host" for step in package.plan.steps)
    assert_same(package, samples_of(package), tmp_path, objects)
    assert len(list(tmp_path.glob("net_host*.o"))) == count


def test_constants_are_outputs(tmp_path: Path, objects: list[Path]) -> None:
    builder, quant = ModelBuilder(), (0.1, 0)
    x, y = (builder.tensor(name, (1, 64, 64, 8), "int8", quant=quant) for name in "xy")
    builder.operator("ADD", [x, x], [y])
    constant = builder.tensor("constant", (1, 4), "int8", quant=quant, data=np.array([[1, -2, 3, 4]], np.int8))
    view = builder.tensor("view", (4,), "int8", quant=quant)
    builder.operator("RESHAPE", [constant, builder.constant("shape", [4], "int32")], [view])
    package = odc_mlir.compile(builder.file([x], [y, constant, view]), placement={"strategy": "supported"})
    assert_same(package, samples_of(package), tmp_path, objects)


@pytest.mark.soak
def test_a_mixed_language_model(compiled: Compiled, tmp_path: Path, objects: list[Path]) -> None:
    package = odc_mlir.load_package(compiled(STORIES))
    assert_same(package, samples_of(package, 4), tmp_path, objects)


@pytest.mark.parametrize("make", [stateful.lstm, stateful.ring])
def test_states_go_on_from_run_to_run(make: Callable[[], Model], tmp_path: Path, objects: list[Path]) -> None:
    package = odc_mlir.compile(bytes(write_model(make())))
    samples = samples_of(package, 5)
    assert_same(package, samples, tmp_path, objects)
    first, again = (package.executor().run(samples[0]) for _ in range(2))
    assert any((a != b).any() for a, b in zip(first, again, strict=True)), "the states matter"


# --- containers ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that parses containers, with sanitizers if the compiler has them."""
    sources = [FOLDER / "odc_npu.c", FOLDER / "check_containers.c"]
    path = tmp_path_factory.mktemp("checker") / "check"
    try:
        return build(path, sources, *STRICT, *SANITIZE)
    except AssertionError as error:
        if "sanitize" not in str(error) and "asan" not in str(error):
            raise
        pytest.skip("the C compiler has no address sanitizer")


def statuses(checker: Path, containers: Sequence[bytes], folder: Path) -> list[int]:
    """Return the driver's status for each container."""
    path = folder / "containers"
    path.write_bytes(b"".join(struct.pack("<I", len(data)) + data for data in containers))
    done = subprocess.run([checker, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = [int(line) for line in done.stdout.split()]
    assert len(found) == len(containers)
    return found


def accepted(data: bytes) -> bool:
    try:
        container.read(data)
    except PackageError:
        return False
    return True


def assert_readers_agree(checker: Path, containers: Sequence[bytes], folder: Path) -> list[int]:
    """The readers in Python and in C accept the same containers; return the statuses of the one in C."""
    found = statuses(checker, containers, folder)
    pairs = zip(containers, found, strict=True)
    assert not [(i, status) for i, (data, status) in enumerate(pairs) if accepted(data) != (status == OK)]
    return found


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("source", ["small", "model"])
def test_damaged_containers(count: int, source: str, checker: Path, compiled: Compiled, tmp_path: Path) -> None:
    """Both readers accept or refuse a container, and the one in C reads nothing outside of it."""
    whole = small_container() if source == "small" else next(compiled(DIGITS).rglob("*.npu")).read_bytes()
    rng = random.Random(count)
    containers = [whole, *(damaged(whole, rng) for _ in range(count))]
    found = assert_readers_agree(checker, containers, tmp_path)
    assert found[0] == OK
    assert count // 10 < found.count(OK) < count, "there are both"
    assert len(set(found)) > 6, "refusals of many kinds"


def test_containers_at_the_limits(checker: Path, tmp_path: Path) -> None:
    found = assert_readers_agree(checker, edge_cases(small_container()), tmp_path)
    assert 100 < found.count(OK) < len(found) - 1000


def test_every_length_of_a_container_is_refused(checker: Path, tmp_path: Path) -> None:
    data = small_container()
    assert OK not in statuses(checker, [data[:size] for size in range(len(data))], tmp_path)
    assert statuses(checker, [data, data + b"\0"], tmp_path) == [OK, 1]


def _with(**metadata: Any) -> bytes:
    contents = container.read(small_container())
    return container.write(replace(contents, metadata=dict(contents.metadata) | metadata))


def _repaired(data: bytes, at: int, value: bytes) -> bytes:
    """Change bytes of the header, and its checksum with them."""
    changed = data[:at] + value + data[at + len(value) :]
    table = changed[64 : 64 + 32 * changed[16]]
    return changed[:60] + struct.pack("<I", container.header_checksum(changed[:64], table)) + changed[64:]


def test_kinds_of_refusals(checker: Path, tmp_path: Path) -> None:
    whole = small_container()
    nested: Any = []
    for _ in range(30):  # the metadata and this list are two more
        nested = [nested]
    cases = {
        _with(extra=nested): OK,
        _with(extra=[nested]): METADATA,
        _repaired(whole, 4, b"\2"): VERSION,
        _repaired(whole, 5, b"\7"): OK,  # a newer minor version
        _repaired(whole, 18, b"\2"): VERSION,
        whole[:-1] + bytes([whole[-1] ^ 1]): CHECKSUM,
        _repaired(whole, 8, b"\0\0\0\0"): METADATA,  # not the short form of the digest
        _repaired(whole, 12, b"\1"): METADATA,  # the memory mode is another
    }
    assert statuses(checker, list(cases), tmp_path) == list(cases.values())
    assert [accepted(data) for data in cases] == [status == OK for status in cases.values()]


# --- the device -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = [*STRICT, "-shared", "-fPIC"]
    return build(tmp_path_factory.mktemp("library") / "libodc_npu.so", [FOLDER / "odc_npu.c"], *flags)


@pytest.fixture
def driver(library: Path, tmp_path: Path) -> Iterator[Driver]:
    made = Driver(library, load_stub().Stub(tmp_path / "npu", size=1 << 20))
    yield made
    made.close()


def loaded(driver: Driver, data: bytes) -> None:
    """Parse and bind a program, with image and memory where the device sees them."""
    assert driver.lib.odc_npu_open(ctypes.byref(driver.device)) == OK
    image = driver.place(data)
    assert driver.lib.odc_npu_parse(driver.program, ctypes.c_void_p(image), ctypes.c_size_t(len(data))) == OK
    size = driver.lib.odc_npu_memory_bytes(driver.program)
    memory = driver.place(bytes(size))
    assert driver.lib.odc_npu_bind(driver.program, ctypes.c_void_p(memory), ctypes.c_size_t(size)) == OK


def run(driver: Driver, inputs: Sequence[bytes], output_bytes: int) -> tuple[int, bytes]:
    """Run the program of the driver; return its status and its only output."""
    given = (ctypes.c_char_p * len(inputs))(*inputs)
    made = ctypes.create_string_buffer(output_bytes)
    results = (ctypes.c_void_p * 1)(ctypes.addressof(made))
    return driver.lib.odc_npu_run(ctypes.byref(driver.device), driver.program, given, results), made.raw


@pytest.fixture
def digits(compiled: Compiled) -> bytes:
    return next(compiled(DIGITS).rglob("*.npu")).read_bytes()


def test_the_driver_runs_a_program_again_and_again(driver: Driver, digits: bytes, compiled: Compiled) -> None:
    loaded(driver, digits)
    package = odc_mlir.load_package(compiled(DIGITS))
    for count, (value,) in enumerate(samples_of(package, 3), 1):
        (expected,) = odc_mlir.run(package, [value])
        assert run(driver, [value.tobytes()], expected.nbytes) == (OK, expected.tobytes())
        assert driver.register(DONE) == driver.register(CONTROL) == driver.register(IRQ_CLEAR) == count
        assert driver.lib.odc_npu_cycles(ctypes.byref(driver.device)) == package.report["cycles_total"]
        assert driver.lib.odc_npu_error(ctypes.byref(driver.device)) == 0
        assert driver.lib.odc_npu_halt(ctypes.byref(driver.device)) == 0


def test_refusals_of_the_driver(driver: Driver, digits: bytes) -> None:
    lib, device, program = driver.lib, ctypes.byref(driver.device), driver.program
    loaded(driver, digits)
    tensor = ctypes.create_string_buffer(256)
    assert [lib.odc_npu_input(program, index, tensor) for index in (0, 1)] == [OK, ARGUMENT]
    assert [lib.odc_npu_output(program, index, tensor) for index in (0, 1)] == [OK, ARGUMENT]
    size = lib.odc_npu_memory_bytes(program)
    assert lib.odc_npu_bind(program, ctypes.c_void_p(driver.start + 4096), ctypes.c_size_t(size - 1)) == MEMORY
    assert lib.odc_npu_bind(program, ctypes.c_void_p(driver.start + 4160), ctypes.c_size_t(size)) == OK
    assert lib.odc_npu_start(device, program) == ALIGNMENT
    assert lib.odc_npu_parse(program, ctypes.c_char_p(digits), ctypes.c_size_t(len(digits))) == OK
    assert run(driver, [bytes(64)], 10)[0] == MEMORY, "it is not bound"
    assert lib.odc_npu_start(device, program) == MEMORY
    driver.set_register(ID, 1)
    assert lib.odc_npu_open(device) == DEVICE


def test_a_device_that_is_busy(driver: Driver, digits: bytes) -> None:
    lib, device = driver.lib, ctypes.byref(driver.device)
    loaded(driver, digits)
    assert lib.odc_npu_start(device, driver.program) == OK
    assert lib.odc_npu_poll(device) == BUSY
    assert lib.odc_npu_start(device, driver.program) == BUSY
    assert run(driver, [bytes(64)], 10)[0] == BUSY
    assert driver.stub.step()
    assert lib.odc_npu_poll(device) == OK
    driver.device.wait = type(driver.device.wait)(lambda _: 1)
    assert lib.odc_npu_start(device, driver.program) == OK
    assert lib.odc_npu_wait(device) == WAIT
    assert lib.odc_npu_open(device) == OK, "the device has not begun: the request is taken back"
    assert not driver.stub.step()


def _damaged_code(data: bytes) -> bytes:
    contents = container.read(data)
    return container.write(replace(contents, code=b"\x3f" + bytes(contents.code)[1:]))


@pytest.mark.parametrize(
    ("damage", "registers", "error"),
    [
        pytest.param(_damaged_code, {}, 2, id="malformed code"),
        pytest.param(lambda data: data, {REGION_BYTES + 0x10: 32}, 3, id="an arena that is too small"),
        pytest.param(lambda data: data, {PROGRAM_BYTES: 1 << 30}, 1, id="a program outside of memory"),
        pytest.param(lambda data: data, {REGION_BYTES - 8: 4097}, 1, id="constants at an odd address"),
    ],
)
def test_jobs_that_fail(
    damage: Callable[[bytes], bytes], registers: Mapping[int, int], error: int, driver: Driver, digits: bytes
) -> None:
    """A driver's mistakes end a job with an error, and the next job runs."""
    lib, device = driver.lib, ctypes.byref(driver.device)
    loaded(driver, damage(digits))
    assert lib.odc_npu_start(device, driver.program) == OK
    for offset, value in registers.items():
        driver.set_register(offset, value)
    assert lib.odc_npu_wait(device) == FAILED
    assert lib.odc_npu_error(device) == driver.register(ERROR) == error
    assert driver.stub.failure
    loaded(driver, digits)
    assert run(driver, [bytes(64)], 10)[0] == OK
    assert lib.odc_npu_error(device) == 0


def test_the_driver_needs_memcpy_only(tmp_path: Path) -> None:
    """It compiles for bare metal without a C library, and as strict C99."""
    path = tmp_path / "odc_npu.o"
    build(path, [FOLDER / "odc_npu.c"], *STRICT, "-ffreestanding", "-nostdlib", "-c", "-O0")
    symbols = read_symbols(path.read_bytes())
    assert symbols is None or set(symbols.undefined) <= {"memcpy", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}


# --- the generator --------------------------------------------------------------------------------------------------


def test_the_command_writes_firmware(compiled: Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "digits-m4"
    arguments = ["firmware", str(compiled(DIGITS)), "-o", str(folder), "--triple", "thumbv7em-none-eabi"]
    assert odc_package.main(arguments) == 0
    names = {"digits_m4.h", "digits_m4.c", "digits_m4_programs.c", "main.c"}
    assert {path.name for path in folder.iterdir()} == names | {"odc_npu.h", "odc_npu.c", "host.h", "host.c"}
    for source in folder.glob("*.c"):
        command = [*compiler(), "-std=c99", "-c", str(source), "-o", str(tmp_path / "any.o")]
        subprocess.run(command, check=True, capture_output=True)
    assert "#define DIGITS_M4_INPUT0_BYTES 64\n" in (folder / "digits_m4.h").read_text()
    assert "digits_m4_programs.c" in capsys.readouterr().out
    assert odc_package.main(arguments) == 1, "it may have been edited"
    assert "is in the way" in capsys.readouterr().err
    assert odc_package.main([*arguments, "--overwrite"]) == 0


def test_firmware_has_no_name_of_a_file_beside_it(
    compiled: Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert odc_package.main(["firmware", str(compiled(DIGITS)), "-o", str(tmp_path / "host")]) == 1
    assert "would be called host, as its file host.h; rename the folder" in capsys.readouterr().err


def test_firmware_without_host_operators_needs_no_code_generator(
    compiled: Compiled, tmp_path: Path, objects: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = odc_mlir.load_package(compiled(DIGITS))
    monkeypatch.setitem(sys.modules, "llvmlite", None)  # as if it were not installed
    assert "for the NPU npu-256, constants in flash, and any processor." in str(
        emit_firmware(package, name="net")["net.h"]
    )
    assert_same(package, samples_of(package), tmp_path, objects)
    with pytest.raises(OdcError, match=r"native code needs the package llvmlite; pip install 'odc-mlir\[native\]'"):
        emit_firmware(package, name="net", triple="thumbv8m.main-none-eabi")


def _with_atan2() -> bytes:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4), "float32")
    y = builder.tensor("y", (1, 4), "float32")
    builder.operator("ATAN2", [x, x], [y])
    z = builder.tensor("z", (1, 4), "int8", quant=(0.1, 0))
    builder.operator("QUANTIZE", [y], [z])
    w = builder.tensor("w", (1, 4), "int8", quant=(0.1, 0))
    builder.operator("RELU", [z], [w])
    return builder.file([x], [w])


def test_refusals_of_the_generator(compiled: Compiled) -> None:
    package = odc_mlir.load_package(compiled(DIGITS))
    with pytest.raises(OptionError, match="'1' is not a name in C"):
        emit_firmware(package, name="1")
    with pytest.raises(PackageError, match="no segment for an NPU"):
        emit_firmware(odc_mlir.compile(DIGITS, target="cpu"), name="net")
    mixed = odc_mlir.compile(_with_atan2(), placement={"strategy": "supported"})
    assert mixed.plan is not None
    assert mixed.plan.segments
    with pytest.raises(UnsupportedError, match=r"ATAN2 'y' \(there is no native kernel"):
        emit_firmware(mixed, name="net")
