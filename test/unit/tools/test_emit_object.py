"""Object code for firmware: for any processor, declared by a header, called from C's side."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from odc_mlir import compiler
from odc_mlir.codegen.loading import LoadedObject, read_symbols
from odc_mlir.codegen.machine import import_llvm, resolve, target_machine
from odc_mlir.tools import odc_compile

_FOR = ["--emit", "object", "-o", "digits.o", "--triple"]
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_cnn_int8.circle"


def number(header: str, name: str) -> int:
    found = re.search(rf"#define {name} (\d+)", header)
    assert found, name
    return int(found[1])


def aligned(size: int) -> np.ndarray:
    raw = np.zeros(size + 64, np.uint8)
    first = -raw.ctypes.data % 64
    return raw[first : first + size]


def test_the_object_computes_what_the_header_says(tmp_path: Path) -> None:
    code, header = tmp_path / "digits.o", tmp_path / "digits.h"
    arguments = [str(DIGITS), "--emit", "object", "--target", "cpu", "-o", str(code), "--header", str(header)]
    assert odc_compile.main(arguments) == 0
    text = header.read_text()
    loaded = LoadedObject(code.read_bytes(), "digits_run")
    source, result, arena = (aligned(number(text, f"DIGITS_{name}_BYTES")) for name in ("INPUT0", "OUTPUT0", "ARENA"))
    random = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 1)).astype(np.int8)
    source[: random.size] = random.reshape(-1).view(np.uint8)
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(*loaded.addresses)
    assert call(source.ctypes.data, result.ctypes.data, arena.ctypes.data) == 0
    (expected,) = odc_mlir.run(DIGITS, [random])
    count = number(text, "DIGITS_OUTPUT0_ELEMENTS")
    np.testing.assert_array_equal(result[:count].view(np.int8), expected.reshape(-1))
    declared = "int32_t digits_run(const int8_t *input0, int8_t *output0, void *arena);"
    assert f'#ifdef __cplusplus\nextern "C"\n#endif\n{declared}\n' in text
    assert odc_compile.main(arguments) == 0, "what we wrote may be replaced"


def test_a_float_model_is_quantised_first(test_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = test_data / "models" / "digits" / "digits_cnn.circle"
    code, header = tmp_path / "digits.o", tmp_path / "digits.h"
    arguments = [str(model), "--emit", "object", "--quantize", "int8", "--io", "quantized"]
    arguments += ["--calibration", "random", "-o", str(code), "--header", str(header)]
    assert odc_compile.main(arguments) == 0
    assert "digits_run(const int8_t *input0, int8_t *output0, void *arena);" in header.read_text()
    assert "digits_cnn: int8, " in capsys.readouterr().out


def test_the_header_tells_how_states_start_and_go_on(test_data: Path) -> None:
    lstm = test_data / "models" / "lstm" / "keras_lstm_mnist_ptq.circle"
    _, header = compiler.compile_object(str(lstm), name="lstm")
    states = re.findall(r"a state: start elements with (-?\d+), copy (output\d) to it after", header)
    assert states == [("-1", "output1"), ("0", "output2")]
    assert header.count("a state") == 2


def test_functions_of_a_file_with_dots_in_its_name(tmp_path: Path) -> None:
    code, header = tmp_path / "digits.q8.o", tmp_path / "digits.q8.h"
    arguments = [str(DIGITS), "--emit", "object", "--target", "cpu", "-o", str(code), "--header", str(header)]
    assert odc_compile.main(arguments) == 0
    assert "int32_t digits_q8_run(" in header.read_text()


@pytest.mark.parametrize(
    ("triple", "cpu", "needed"),
    [
        ("aarch64-linux-gnu", "", ()),
        ("thumbv7em-none-eabi", "cortex-m4", ()),
        ("thumbv6m-none-eabi", "cortex-m0", ("__aeabi_lasr", "__aeabi_llsl", "__aeabi_lmul", "__clzsi2")),
        ("riscv32-unknown-elf", "", ("__muldi3", "__mulsi3")),
    ],
)
def test_other_processors(
    triple: str, cpu: str, needed: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, header = tmp_path / "digits.o", tmp_path / "digits.h"
    arguments = [str(DIGITS), "--emit", "object", "--triple", triple, "--cpu", cpu, "-o", str(code)]
    assert odc_compile.main([*arguments, "--header", str(header)]) == 0
    symbols = read_symbols(code.read_bytes())
    assert symbols is not None
    assert symbols.undefined == needed, "no memset, no memcpy"
    assert symbols.defined == ("digits_run",)
    said = "It calls no function of libraries." if not needed else f"library: {', '.join(needed)}."
    assert said in header.read_text()
    out = capsys.readouterr().out
    assert said in out
    assert f"{triple.partition('-')[0]}-" in out
    assert f"({cpu or 'any processor'})" in out


@cache
def sections_for(triple: str, cpu: str) -> dict[bytes, bytes]:
    code, _ = compiler.compile_object(DIGITS, name="digits", triple=triple, cpu=cpu)
    return {section.name(): section.data() for section in import_llvm().ObjectFileRef.from_data(code).sections()}


def test_the_triple_chooses_how_floats_are_passed() -> None:
    in_float_registers = b"\x1c\x01"  # attribute 28, ABI_VFP_args, which linkers compare
    soft, hard = (sections_for(f"thumbv7em-none-{abi}", "cortex-m4")[b".ARM.attributes"] for abi in ("eabi", "eabihf"))
    assert in_float_registers not in soft
    assert in_float_registers in hard


def test_scheduling_for_a_cortex_m_spills_no_registers() -> None:
    """A plain schedule, as for an unknown processor, keeps few values alive."""
    plain, scheduled = (len(sections_for("thumbv7em-none-eabi", cpu)[b".text"]) for cpu in ("", "cortex-m4"))
    assert scheduled < 1.05 * plain


def test_vectors_of_mve_make_code_small() -> None:
    vectors, scalars = (
        len(sections_for(triple, cpu)[b".text"])
        for triple, cpu in (("thumbv8.1m.main-none-eabi", "cortex-m55"), ("thumbv7em-none-eabi", "cortex-m4"))
    )
    assert vectors < 0.7 * scalars, "no weight is moved by itself"


def test_objects_of_two_models_are_linked_together() -> None:
    llvm, machine = import_llvm(), resolve("cpu")
    library = llvm.JITLibraryBuilder()
    for name in ("one", "two"):
        code, _ = compiler.compile_object(str(DIGITS), name=name)
        library.add_object_img(code).export_symbol(f"{name}_run")
    linked = library.link(llvm.create_lljit_compiler(target_machine(machine)), "both")  # nothing else is there
    assert linked["one_run"] != linked["two_run"]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--emit", "object", "--triple", "z80-none", "-o", "digits.o"], 1, "LLVM knows no target 'z80-none'"),
        (["--emit", "object", "-o", "1.o"], 1, "'1' is not a name in C"),
        (
            _FOR + ["thumbv7em-none-eabi", "--cpu", "bogus"],
            1,
            "LLVM knows no processor 'bogus' for thumbv7em-none-eabi",
        ),
        (_FOR + ["aarch64_be-none-elf"], 1, "is big-endian"),
        (_FOR + ["x86_64-unknown-linux-gnu", "--cpu", "i386"], 1, "LLVM knows no processor 'i386' for x86_64"),
        (["--emit", "object"], 2, "needs -o FILE.o"),
        (["--emit", "object", "--cpu", "cortex-m4", "-o", "a.o"], 1, "add --triple thumbv7em-none-eabi"),
        (["--emit", "object", "--cpu", "znver4", "-o", "a.o"], 1, "add --triple with the triple of its architecture"),
        (["--emit", "object", "--target", "cortex-m33", "-o", "a.o"], 1, "--triple thumbv8m.main-none-eabi --cpu"),
        (["--target", "cortex-m4", "-o", "out"], 1, "--emit object --triple thumbv7em-none-eabi --cpu cortex-m4"),
        (["--target", "thumbv7em-none-eabi", "-o", "out"], 1, "--emit object --triple thumbv7em-none-eabi -o FILE.o"),
        (["--emit", "object", "--target", "aarch64-linux-gnu", "-o", "a.o"], 1, "use --triple aarch64-linux-gnu"),
        (["--target", "aarch64-dotprot", "-o", "out"], 1, "unknown target 'aarch64-dotprot'; did you mean"),
        (["--emit", "c", "-o", "a.c"], 2, "invalid choice: 'c' (choose from"),
        (["--emit", "nothing", "-o", "a.c"], 1, "--emit takes only object"),
        (
            ["--triple", "aarch64", "-o", "package"],
            2,
            "a package has no use for --triple; leave it out, or add --emit object",
        ),
        (_FOR + ["aarch64", "--strict"], 2, "--emit object has no use for --strict; leave it out, or leave out --emit"),
        (["--stage", "circle", "--no-cache"], 2, "--stage has no use for --no-cache; leave it out, or"),
    ],
)
def test_refusals(
    arguments: list[str],
    status: int,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert odc_compile.main([str(DIGITS), *arguments]) == status
    assert text in capsys.readouterr().err
