"""Anything that holds a model as a module: Circle and TFLite files and MLIR text, told apart by content."""

from __future__ import annotations

import os
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from odc_mlir.errors import ModelError
from odc_mlir.formats.circle.reader import identify, read_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.support.diagnostics import verify_module
from odc_mlir.support.sources import Positions
from odc_mlir.support.text import parse_module

_HEAD_BYTES = 8


def load_module(
    context: Context,
    source: str | os.PathLike[str] | bytes,
    name: str = "<input>",
    *,
    first_line: int = 1,
    verify: bool = True,
    positions: Positions | None = None,
) -> ModuleOp:
    """The module in a file, or in its bytes.

    ``positions`` gets the places of a text's operations.

    ``name`` and ``first_line`` say where bytes come from, for errors. Raises ModelError for content that is not a
    model, and whatever reading, importing and verifying one raises.
    """
    if not isinstance(source, bytes):
        path = Path(source)
        try:
            with path.open("rb") as file:
                if identify(file.read(_HEAD_BYTES)) is not None:
                    return import_model(read_model(path), verify=verify)
                file.seek(0)
                source, name = file.read(), str(path)
        except OSError as error:
            raise ModelError(f"cannot read the model: {error.strerror}", location=str(path)) from error
    if identify(source[:_HEAD_BYTES]) is not None:
        return import_model(read_model(source), verify=verify)
    return _parse_text(context, source, name, first_line, verify, positions or Positions())


def _parse_text(
    context: Context, source: bytes, name: str, first_line: int, verify: bool, positions: Positions
) -> ModuleOp:
    try:
        text = source.decode()
    except UnicodeDecodeError as error:
        raise ModelError("neither a Circle nor a TFLite file nor MLIR text", location=name) from error
    module = parse_module(context, "\n" * (first_line - 1) + text, name, positions)
    if verify:
        verify_module(module, positions)
    return module
