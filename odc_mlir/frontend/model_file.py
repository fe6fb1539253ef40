"""What holds a module can be written as a model file."""

from __future__ import annotations

import os
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.formats.kinds import MODEL_BY_NAME
from odc_mlir.formats.outputs import check_output, write_output
from odc_mlir.frontend.export_circle import export_model


class ModelFile:
    """Base of results with a ``model``: its bytes in either format, and files by the name's end."""

    model: ModuleOp

    def to_circle(self) -> bytes:
        """The model as a Circle file."""
        return bytes(write_model(export_model(self.model)))

    def to_tflite(self) -> bytes:
        """The model as a TFLite file; raises UnsupportedError for what that cannot hold."""
        return bytes(write_tflite(export_model(self.model)))

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the model as a .circle or .tflite file, by the name's end; raises OptionError for any other.

        A model that this project wrote is replaced, any other file with ``overwrite`` only (else OptionError).
        """
        save_module(self.model, path, overwrite=overwrite)


def save_module(module: ModuleOp, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a module as a .circle or .tflite file, as :meth:`ModelFile.save` does."""
    check_output(path, MODEL_BY_NAME, overwrite=overwrite)
    model = export_model(module)
    data = write_tflite(model) if Path(path).suffix.lower() == ".tflite" else write_model(model)
    write_output(path, bytes(data), MODEL_BY_NAME, overwrite=overwrite)
