"""Every model we have: through IR and back it means the same, and its text reads back to itself."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, UnknownLoc
from xdsl.dialects.func import Func
from xdsl.parser import Parser
from xdsl.printer import Printer

from helpers.data import MISSING, data_folder
from helpers.meaning import meaning_of, shared_buffers
from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.support.text import module_text, parse_module
from odc_mlir.universe import make_context

FOLDERS = ("models/digits", "models/zoo", "models/zoo-int16", "conformance/models", "conformance/models_tflite")
SUFFIXES = (".circle", ".tflite")
QUICK = (
    "digits_cnn_int8.circle",
    "kws_ref_model.tflite",
    "Part_While_001.circle",
    "UnidirectionalSequenceLSTM_003.tflite",
)


def _params(*, only_quick: bool = False) -> list[Any]:
    """Every model file as a test parameter, the slow many marked so; one that is skipped where there are none."""
    folder = data_folder()
    if folder is None:
        return [pytest.param(None, marks=pytest.mark.skip(reason=MISSING), id="no-test-data")]
    files = [path for name in FOLDERS for path in sorted((folder / name).iterdir()) if path.suffix in SUFFIXES]
    return [
        pytest.param(path, id=path.name, marks=[] if path.name in QUICK else [pytest.mark.slow])
        for path in files
        if path.name in QUICK or not only_quick
    ]


@pytest.mark.parametrize("path", _params())
def test_a_file_means_the_same_after_a_round_trip(path: Path) -> None:
    model = read_model(path)
    exported = export_model(import_model(model, refine=False, verify=False))
    assert meaning_of(exported) == meaning_of(model)
    assert shared_buffers(exported) >= shared_buffers(model)
    written = write_model(exported)
    assert meaning_of(read_model(written)) == meaning_of(model)
    assert write_model(export_model(import_model(read_model(written), refine=False, verify=False))) == written


@pytest.mark.parametrize("path", _params())
def test_operations_have_known_locations_and_their_text_reads_back_to_itself(path: Path) -> None:
    module = import_model(read_model(path))
    assert not [op.name for op in module.walk() if isinstance(op.location, UnknownLoc)]
    arguments = [a for op in module.walk() for r in op.regions for b in r.blocks for a in b.args]
    assert not any(isinstance(argument.location, UnknownLoc) for argument in arguments)
    written = write_model(export_model(module))
    for generic in (False, True):
        text = module_text(module, generic=generic)
        again = parse_module(make_context(), text)
        again.verify()
        assert module.is_structurally_equivalent(again)
        assert module_text(again, generic=generic) == text
        assert write_model(export_model(again)) == written


@pytest.mark.parametrize("path", _params(only_quick=True))
def test_stock_xdsl_reads_elided_generic_text(path: Path) -> None:
    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    text = module_text(import_model(read_model(path)), generic=True, constants="elide")
    module = Parser(context, text).parse_module()
    printed = io.StringIO()
    Printer(printed, print_generic_format=True).print_op(module)
    assert "circle." in printed.getvalue()


def test_elided_text_verifies_and_says_what_is_missing(test_data: Path) -> None:
    module = import_model(read_model(test_data / "models" / "digits" / "digits_cnn_int8.circle"))
    again = parse_module(make_context(), module_text(module, constants="elide"))
    again.verify()
    assert module.is_structurally_equivalent(again)  # equal by digest
    with pytest.raises(OdcError, match="not in this text"):
        export_model(again)
    with pytest.raises(OdcError, match="not in this text"):
        module_text(again, constants="keep")
    assert module_text(again, constants="known") == module_text(again, constants="elide")
