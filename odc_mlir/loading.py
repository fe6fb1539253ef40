"""Loader of models as modules from model files, IR text or PyTorch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from odc_mlir.errors import ModelError, OptionError, located
from odc_mlir.formats.circle.reader import identify, read_model
from odc_mlir.formats.package import ModelSource, is_program
from odc_mlir.frontend import import_circle
from odc_mlir.frontend.export_circle import ModelFile, export_model
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.package import Package, model_of
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.text import module_text
from odc_mlir.transforms.common.tensor_names import tell_apart
from odc_mlir.universe import make_context

# Beginning of a line of IR text: a value, an operation, an alias or a comment.
_IR = re.compile(rb"^\s*(%\S+|[a-z_]\w*\.[a-z]\w*|\"[a-z_]\w*\.[a-z]\w*\"\s*\(|module|[#!]\w+\s*=|//)", re.MULTILINE)


def load(model: Any) -> ModuleOp:
    """Load a model file, IR text, a package or a PyTorch program (``.pt2``), by its content. Raises OdcError.

    A ``torch.export.ExportedProgram`` is converted. A module, and the module in a result of ``quantize`` or
    ``optimize``, is returned unchanged. Anything else is an OptionError.

    PyTorch evaluates expressions in programs. Therefore load only trusted programs. Only files with this suffix are
    read as programs. Tensors with no name, or with a name already used in the function, get new names.
    """
    if isinstance(model, ModuleOp | ModelFile):
        return model if isinstance(model, ModuleOp) else model.model
    if not isinstance(model, str | os.PathLike | bytes | bytearray | memoryview | Package):
        return _from_object(model)
    if not isinstance(model, Package) and is_program(model):
        from odc_mlir.frontend.torch.importer import read_program

        if isinstance(model, bytes | bytearray | memoryview) or not os.fspath(model).endswith(".pt2"):
            raise ModelError(
                "this is a PyTorch program, which can contain code",
                hint="if you trust it, name the file .pt2, or give torch.export.load's result to from_torch",
                location="" if isinstance(model, bytes | bytearray | memoryview) else os.fspath(model),
            )
        return _imported(read_program(os.fspath(model)))
    source: ModelSource = model_of(model)
    data = _head_or_bytes(source)
    if identify(data) is not None or not _is_text(data):
        return import_circle.import_model(read_model(source))
    name = "<text>" if isinstance(source, bytes | bytearray | memoryview) else os.fspath(source)
    with typed_errors("parse"):
        try:
            module = import_circle.load_module(make_context(), data if name == "<text>" else name, name)
        except ModelError as error:
            if name.endswith(".mlir") or _IR.match(data):
                raise
            hint = "give a .circle or .tflite file, an nnpackage, or IR text"
            raise ModelError("this text is not a model", location=name, hint=hint) from error
        tell_apart(module)
    return module


import_model = load
"""Another name of :func:`load`."""


def load_ipython_extension(shell: Any) -> None:
    """Display modules as IR without the bytes of large constants, for ``%load_ext odc_mlir.loading`` in a notebook."""
    from html import escape

    def show(module: ModuleOp) -> str:
        return f"<pre>{escape(module_text(module, constants='elide'))}</pre>"

    shell.display_formatter.formatters["text/html"].for_type(ModuleOp, show)


def copied(model: Any) -> ModuleOp:
    """Return a module that the caller may change: a copy of a module, or a newly loaded one (see :func:`load`)."""
    if not isinstance(model, ModuleOp | ModelFile):
        return load(model)
    module = clone_module(load(model))
    tell_apart(module)
    return module


def from_torch(
    module: Any, example_inputs: Any = None, dynamic_shapes: Any = None, via: str = "export", check: bool | None = None
) -> ModuleOp:
    """Convert a PyTorch module, exported in evaluation mode, or a ``torch.export.ExportedProgram``. Return the module.

    ``example_inputs`` is a tuple of tensors, or a dict by argument, ``dynamic_shapes`` as in ``torch.export.export``.
    Tuples by signature, ``{"decode": (…), "prefill": (…)}``, give a model with these and one set of weights. ``check``
    (default: of signatures) compares outputs for the example inputs with PyTorch's. Weights are not copied: train a
    copy of the module afterwards. ``via="tico"`` converts with Samsung's TICO. Raises OptionError if PyTorch or TICO is
    not installed, ModelError if the module cannot be exported or outputs differ, and UnsupportedError with all
    operators that cannot be converted.
    """
    from odc_mlir.formats.circle.connect import join_signatures
    from odc_mlir.frontend.torch import importer

    if via not in ("export", "tico"):
        raise OptionError(f"via is {via!r}, allowed: 'export', 'tico'")
    given = [*example_inputs.values()] if isinstance(example_inputs, Mapping) else []
    if given and all(isinstance(inputs, tuple | list) for inputs in given):
        shapes = dynamic_shapes or {}
        if not (isinstance(shapes, Mapping) and shapes.keys() <= example_inputs.keys()):
            raise OptionError(f"dynamic_shapes must be by signature; the signatures are {[*example_inputs]}")
        models = {}
        for key, inputs in example_inputs.items():
            with located(f"signature {key!r}"):
                models[key] = export_model(from_torch(module, inputs, shapes.get(key), via, check is not False))
        return import_circle.import_model(join_signatures(models))
    program = importer.exported(module, example_inputs, dynamic_shapes)
    made = _imported(program) if via == "export" else load(importer.convert_with_tico(program))
    if check:
        _compare(build_graph(export_model(made), states=True), *importer.answers(program))
    return made


def _compare(graph: Graph, inputs: list[Any], answers: list[Any]) -> None:
    """Raise ModelError if an output differs from PyTorch's by more than 1e-4 of its range, which includes 0."""
    from odc_mlir.runtime.execution.executor import HostExecutor  # only this needs kernels

    for info, found, wanted in zip(graph.output_infos(), HostExecutor(graph).run(inputs), answers, strict=True):
        allowed = 1e-4 * np.ptp(np.append(wanted[np.isfinite(wanted)].astype(np.float64), 0.0))
        if not np.allclose(found, wanted, 0.0, allowed, equal_nan=True):
            raise ModelError("the output differs from PyTorch's", tensor=info.name, hint="report this, or check=False")


def _from_object(model: Any) -> ModuleOp:
    """Convert an exported program. Class names tell, because this module works without PyTorch. Raises OptionError."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(model).__mro__}
    if "torch.export.exported_program.ExportedProgram" in kinds:
        return _imported(model)
    hint = "give a file, its bytes or a module"
    if "torch.nn.modules.module.Module" in kinds:
        hint = "convert it: odc_mlir.from_torch(module, example_inputs)"
    raise OptionError(f"an object of type {type(model).__name__} is not a model", hint=hint)


def _imported(program: Any) -> ModuleOp:
    from odc_mlir.frontend.torch.importer import decomposed, import_program

    module = import_program(decomposed(program))
    tell_apart(module)
    return module


def _head_or_bytes(source: ModelSource) -> bytes:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    with suppress(OSError), open(source, "rb") as file:
        return file.read(4096)
    return b""


def _is_text(data: bytes) -> bool:
    """Return whether ``data`` can be IR text: it is not empty, and all control characters are white space."""
    return bool(data) and not any(byte < 32 and byte not in b"\t\n\r\f" for byte in data[:4096])
