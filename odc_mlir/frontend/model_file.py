"""What holds a module can be written as a model file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp

from odc_mlir.dialects.circle import CircleOp, UndefinedOp, node_of
from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.formats.kinds import MODEL_BY_NAME
from odc_mlir.formats.outputs import check_output, write_output
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.policy.readers import litert_refuses_form, litert_refuses_node
from odc_mlir.support.locations import value_name

_OTHER_READER = "write a .circle file, or with any_reader (--any-reader) a .tflite file for another reader"


class ModelFile:
    """Base of results with a ``model``: its bytes in either format, and files by the name's end.

    ``of_codes``: what a class advises where LiteRT runs an operator, though not on codes.
    """

    model: ModuleOp
    of_codes: ClassVar[str] = ""

    def to_circle(self) -> bytes:
        """The model as a Circle file."""
        return bytes(write_model(export_model(self.model)))

    def to_tflite(self, *, any_reader: bool = False) -> bytes:
        """The model as a TFLite file.

        Raises UnsupportedError for what that cannot hold and, unless for ``any_reader``, for what LiteRT does not run.
        """
        return _tflite_file(self.model, any_reader, self.of_codes)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False, *, any_reader: bool = False) -> None:
        """Write the model as a .circle or .tflite file, by the name's end; raises OptionError for any other.

        A model that this project wrote is replaced, any other file with ``overwrite`` only (else OptionError).
        A .tflite file is what :meth:`to_tflite` gives, and raises what that does.
        """
        save_module(self.model, path, overwrite=overwrite, any_reader=any_reader, of_codes=self.of_codes)


def save_module(
    module: ModuleOp,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    any_reader: bool = False,
    of_codes: str = "",
) -> None:
    """Write a module as a .circle or .tflite file, as :meth:`ModelFile.save` does."""
    check_output(path, MODEL_BY_NAME, overwrite=overwrite)
    if is_tflite(path):
        data = _tflite_file(module, any_reader, of_codes)
    else:
        data = bytes(write_model(export_model(module)))
    write_output(path, data, MODEL_BY_NAME, overwrite=overwrite)


def is_tflite(path: str | os.PathLike[str]) -> bool:
    """Whether a file of this name is to be a TFLite file."""
    return Path(path).suffix.lower() == ".tflite"


def _tflite_file(module: ModuleOp, any_reader: bool, of_codes: str) -> bytes:
    if not any_reader:
        _check_litert_runs(module, of_codes)
    return bytes(write_tflite(export_model(module)))


def _check_litert_runs(module: ModuleOp, of_codes: str) -> None:
    for op in module.walk():
        if isinstance(op, UndefinedOp):
            raise UnsupportedError(
                "nothing produces this tensor, of which LiteRT gives whatever its memory holds",
                tensor=value_name(op.results[0]),
                hint=_OTHER_READER,
            )
        if not isinstance(op, CircleOp):
            continue
        node = node_of(op)
        refused = litert_refuses_node(node)
        if (seen := refused or litert_refuses_form(node)) is not None:
            raise UnsupportedError(
                f"{seen}, so the model cannot be a .tflite file",
                op=node.spec.name,
                tensor=node.results[0].name if node.results else None,
                hint=f"{of_codes if refused else ''}{_OTHER_READER}",
            )
