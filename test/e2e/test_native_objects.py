"""Objects for firmware: how much room their code takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from odc_mlir import compiler
from odc_mlir.codegen.machine import import_llvm

CODE_BYTES = 20 << 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ad01_int8", "pretrainedResnet_quant", "vww_96_int8", "kws_ref_model"])
def test_layers_share_their_code(name: str, test_data: Path) -> None:
    """A kernel is a function; its copies in every layer would take several times as much."""
    code, _ = compiler.compile_object(
        test_data / "models" / "zoo" / f"{name}.circle", name="model", triple="thumbv7em-none-eabi", cpu="cortex-m4"
    )
    llvm = import_llvm()
    sections = llvm.ObjectFileRef.from_data(code).sections()
    assert sum(section.size() for section in sections if section.is_text()) <= CODE_BYTES
