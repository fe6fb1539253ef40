"""Firmware on emulated boards gives the golden answers. Skipped without toolchains and emulators."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.data import MISSING, data_folder
from odc_mlir.errors import UnsupportedError

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits" / "digits_cnn_int8.circle"
FLOAT_DIGITS = EXAMPLES / "on_device" / "digits_cnn.circle"
GOLDEN = [
    *(f"digits/{name}" for name in ("digits_cnn_int8", "digits_cnn", "digits_mobile")),
    *(f"zoo/{name}" for name in ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "str_ww_ref_model")),
    "zoo/vww_96_int8",
]
BOARDS = ["mps3-an547", "mps2-an386", "virt"]


@pytest.fixture(scope="module")
def firmware() -> ModuleType:
    spec = importlib.util.spec_from_file_location("firmware", EXAMPLES / "firmware" / "firmware.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["firmware"] = module  # where dataclasses look up annotations
    spec.loader.exec_module(module)
    return module


def with_tools(board: Any) -> Any:
    missing = [tool for tool in (board.compiler[0], board.emulator[0]) if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}; examples/firmware/run installs them")
    return board


@pytest.mark.soak
def test_states_are_named_where_the_example_cannot_keep_them(
    firmware: ModuleType, test_data: Path, tmp_path: Path
) -> None:
    model = test_data / "models" / "lstm" / "keras_lstm_mnist_ptq.circle"
    said = "keeps the states tfl.pseudo_qconst, tfl.pseudo_qconst1; this example handles one input and output"
    with pytest.raises(UnsupportedError, match=said):
        firmware.build(model, firmware.read_samples(DIGITS, None, 1), firmware.BOARDS["virt"], tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("model", GOLDEN)
def test_boards_print_golden_answers(firmware: ModuleType, model: str, board: str, tmp_path: Path) -> None:
    chosen = with_tools(firmware.BOARDS[board])
    if (root := data_folder()) is None:
        pytest.skip(MISSING)
    path = root / "models" / f"{model}.circle"
    samples = firmware.read_samples(path, path.parent / "golden", 4)
    answers = firmware.boot(firmware.build(path, samples, chosen, tmp_path), chosen)
    assert [answer.differing for answer in answers] == [0] * 4
    if samples[0][1].dtype == np.int8:
        shown = [" ".join(str(value) for value in expected.ravel()[:12]) for _, expected in samples]
        assert [answer.values.removesuffix(" ...") for answer in answers] == shown


@pytest.mark.soak
@pytest.mark.parametrize(
    ("board", "triple", "cpu", "changes"),
    [
        ("mps2-an386", "thumbv7em-none-eabihf", "cortex-m4", {"softfp": "hard"}),
        ("mps3-an547", "thumbv8.1m.main-none-eabihf", "cortex-m55", {"softfp": "hard"}),
        ("mps2-an386", "thumbv7m-none-eabi", "cortex-m3", {"softfp": "soft", "cortex-m4": "cortex-m3"}),
        ("virt", "riscv32-unknown-elf", "sifive-e76", {"imac": "imafc", "ilp32": "ilp32f", "sifive-e31": "rv32"}),
    ],
)
def test_other_float_abis_link_and_run(
    firmware: ModuleType, board: str, triple: str, cpu: str, changes: dict[str, str], tmp_path: Path
) -> None:
    usual = with_tools(firmware.BOARDS[board])
    words = {kind: " ".join(getattr(usual, kind)) for kind in ("compiler", "emulator")}
    for old, new in changes.items():
        words = {kind: text.replace(old, new) for kind, text in words.items()}
    chosen = replace(usual, triple=triple, cpu=cpu, **{kind: tuple(text.split()) for kind, text in words.items()})
    samples = firmware.read_samples(FLOAT_DIGITS, None, 1)
    (answer,) = firmware.boot(firmware.build(FLOAT_DIGITS, samples, chosen, tmp_path), chosen)
    assert answer.differing == 0


@pytest.mark.soak
@pytest.mark.parametrize("board", BOARDS)
def test_boards_count_wrong_answers(firmware: ModuleType, board: str, tmp_path: Path) -> None:
    chosen = with_tools(firmware.BOARDS[board])
    (given, expected), other = firmware.read_samples(DIGITS, None, 2)
    wrong = expected.copy()
    wrong[0, 3:5] ^= 1
    answers = firmware.boot(firmware.build(DIGITS, [(given, wrong), other], chosen, tmp_path), chosen)
    assert [answer.differing for answer in answers] == [2, 0]
