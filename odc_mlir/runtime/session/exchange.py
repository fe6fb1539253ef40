"""Quantisation and compilation of a session's model on request, where the result becomes the session's model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odc_mlir.errors import InvalidStateError, SessionError
from odc_mlir.formats.cache import records_path
from odc_mlir.formats.kinds import MODEL
from odc_mlir.formats.outputs import write_output
from odc_mlir.plugins.registry import SUFFIX
from odc_mlir.plugins.request import Preference
from odc_mlir.quantizer.policy.schemes import SCHEMES
from odc_mlir.runtime.session.loader import Loader

# Schemes by names and numbers of the C API, and by our names.
QUANTIZATION_TYPES: Mapping[str | int, str] = MappingProxyType(
    {
        "U8_ASYM": "uint8",
        "I16_SYM": "int16",
        "WO_I8_SYM": "int8_wo",
        "WO_I16_SYM": "int16_wo",
        1: "uint8",
        2: "int16",
        3: "int8_wo",
        4: "int16_wo",
        **{name: name for name in SCHEMES},
    }
)


class Exchange:
    """Scheme and output paths of the next result; ``verdict`` is the accuracy verdict of the last quantised model."""

    def __init__(self) -> None:
        self.scheme: str | None = None
        self.quantized_path: Path | None = None
        self.codegen_path: Path | None = None
        self.verdict: dict[str, Any] | None = None

    def set_scheme(self, quantization: str | int) -> None:
        """Set the scheme of :meth:`quantize`; raise InvalidStateError for an unknown one."""
        known = isinstance(quantization, (str, int)) and not isinstance(quantization, bool)
        scheme = QUANTIZATION_TYPES.get(quantization) if known else None
        if scheme is None:
            names = ", ".join(name for name in QUANTIZATION_TYPES if isinstance(name, str))
            raise InvalidStateError(f"unknown quantization type {quantization!r}", hint=f"use one of {names}")
        self.scheme = scheme

    def quantize(self, loader: Loader, *, io: str, check: bool) -> Path:
        """Quantise the model with its records, and return the file; raise OdcError."""
        from odc_mlir.quantizer.policy.verdict import FAILED, describe
        from odc_mlir.runtime.auto import build

        if self.quantized_path is None:
            raise InvalidStateError("there is no path for the quantised model", hint="call set_quantized_model_path")
        if self.scheme is None:
            raise SessionError("the quantization type is not set", hint="call set_quantization_type")
        with loader.file() as path:
            samples = build.recorded_inputs(records_path(loader.digest), loader.known_input_shapes)
            quantized = build.quantize(path, self.scheme, samples=samples, io=io)
        self.verdict = quantized.verdict
        if check and quantized.verdict["status"] == FAILED:
            raise SessionError(
                f"the quantised model {describe(quantized.verdict)}", hint="pass check=False to use it anyway"
            )
        write_output(self.quantized_path, quantized.model, MODEL)
        return self.quantized_path

    def codegen(self, loader: Loader, target: str, preference: Preference) -> Path:
        """Compile the model with the plugin for ``target``, and return the file; raise OdcError."""
        from odc_mlir.plugins import codegen

        source, output = loader.source, self.codegen_path
        if output is None and source.path is None:
            raise InvalidStateError("the model has no path to derive another from", hint="call set_codegen_model_path")
        if output is None:
            output = codegen.default_output(source.path or "", target)
        with loader.file() as path:
            return codegen.generate(path, target, output, preference=preference)


def check_target(target: Any, error: type[SessionError] = SessionError) -> None:
    """Raise ``error`` unless ``target`` has the form of a codegen target."""
    if not isinstance(target, str) or not target.endswith(SUFFIX) or len(target) <= len(SUFFIX):
        raise error(f"the target is {target!r}, expected <extension>{SUFFIX}, such as npu{SUFFIX}")
