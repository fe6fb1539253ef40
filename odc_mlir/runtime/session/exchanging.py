"""Calls that change the model on the device: record what it sees, quantise it, generate code from it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import InvalidStateError, SessionError
from odc_mlir.formats.atomic import write_file
from odc_mlir.formats.cache import records_path
from odc_mlir.ops.spec import Array
from odc_mlir.plugins.registry import SUFFIX
from odc_mlir.plugins.request import Preference
from odc_mlir.runtime.executor import Executor
from odc_mlir.runtime.session.core import call
from odc_mlir.runtime.session.source import model_bytes, model_digest, source_from_path
from odc_mlir.runtime.session.watching import MINMAX, WatchingCalls
from odc_mlir.runtime.units import Observer

if TYPE_CHECKING:  # what records and quantises is loaded where it is needed
    from odc_mlir.runtime.auto.recording import RunRecorder

# By the names and numbers of the C API, and by our own.
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
        **{name: name for name in ("uint8", "int8", "int16", "int16x8", "int8_wo", "int16_wo", "int4_wo")},
    }
)


class ExchangingCalls(WatchingCalls):
    """Exchanges the model of a session; see the experimental functions of onert's C API."""

    def __init__(self) -> None:
        self._scheme: str | None = None
        self._quantized_path: Path | None = None
        self._codegen_path: Path | None = None
        self.verdict: dict[str, Any] | None = None
        self._recorder: RunRecorder | None = None
        super().__init__()

    def _forget_model(self) -> None:
        if self._recorder is not None:
            self._recorder.flush()
        super()._forget_model()
        self._recorder = None
        self._digest: str | None = None

    @property
    def digest(self) -> str:
        """The SHA-256 of the model, by which records and compiled files know it."""
        if self._digest is None:
            self._digest = model_digest(self._model)
        return self._digest

    @call
    def set_quantization_type(self, quantization: str | int) -> None:
        """What quantize makes: a scheme such as ``int8``, or a name or number of the C API, such as ``U8_ASYM``."""
        known = isinstance(quantization, (str, int)) and not isinstance(quantization, bool)
        scheme = QUANTIZATION_TYPES.get(quantization) if known else None
        if scheme is None:
            names = ", ".join(name for name in QUANTIZATION_TYPES if isinstance(name, str))
            raise InvalidStateError(f"unknown quantization type {quantization!r}", hint=f"use one of {names}")
        self._scheme = scheme

    @call
    def set_quantized_model_path(self, path: str | os.PathLike[str]) -> None:
        """Where quantize writes the quantised model."""
        self._quantized_path = Path(path)

    @call
    def set_codegen_model_path(self, path: str | os.PathLike[str]) -> None:
        """Where codegen writes; the default is the model's path with the extension of the target."""
        self._codegen_path = Path(path)

    @call
    def set_odc_param_minmax_records_count(self, count: int) -> None:
        """After how many recorded runs a session that compiles on the device starts to do so."""
        if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
            raise SessionError(f"the number of records is {count!r}, allowed are integers from 1")
        self._chosen["ODC_RECORDS"] = self._settings.chosen["ODC_RECORDS"] = str(count)

    @call
    def quantize(self, *, io: str = "float", check: bool = True) -> None:
        """Quantise the model by what was recorded so far; the result is the session's model then, to be prepared.

        ``io`` "quantized" makes inputs and outputs integers, else they stay as they are. Raises OdcError and keeps the
        model when the type or path is not set, nothing was recorded, the model cannot be quantised, or, with ``check``,
        the result is not accurate enough; :attr:`verdict` says how accurate it is.
        """
        from odc_mlir.quantization.verdict import describe
        from odc_mlir.runtime.auto import build

        if self._quantized_path is None:
            raise InvalidStateError("there is no path for the quantised model", hint="call set_quantized_model_path")
        if self._scheme is None:
            raise SessionError("there is no quantization type", hint="call set_quantization_type")
        if self._recorder is not None:
            self._recorder.flush()
        with self._model_file() as path:
            samples = build.recorded_inputs(records_path(self.digest))
            quantized = build.quantize(path, self._scheme, samples=samples, io=io)
        self.verdict = quantized.verdict
        if check and not quantized.verdict["passed"]:
            raise SessionError(f"the quantised model {describe(quantized.verdict)}", hint="check=False takes it anyway")
        write_file(self._quantized_path, quantized.model)
        self._exchange(self._quantized_path)

    @call
    def codegen(self, target: str, pref: str | int = Preference.DEFAULT) -> None:
        """Let the plugin for ``target``, such as ``npu-gen``, compile the model, whose place the result takes.

        ``pref``: ``DEFAULT``, ``PERFORMANCE_FIRST``, ``MEMORY_FIRST`` or ``COMPILE_TIME_FIRST``. Raises OdcError and
        keeps the model when anything fails.
        """
        check_target(target)
        preference = Preference.of(pref)
        from odc_mlir.plugins import codegen

        output = self._codegen_path
        if output is None and self._model.path is None:
            raise InvalidStateError("the model has no path to derive another from", hint="call set_codegen_model_path")
        if output is None:
            output = codegen.default_output(self._model.path or "", target)
        with self._model_file() as path:
            made = codegen.generate(path, target, output, preference=preference)
        self._exchange(made)

    @call
    def delete_odc_minmax_file(self) -> None:
        """Delete what has been recorded of this model; raises SessionError when there is nothing."""
        from odc_mlir.quantization.records import RecordStore

        self._recorder = None
        path = records_path(self.digest)
        if not path.exists():
            raise SessionError("there are no records of this model", hint="record runs with set_execute_config")
        RecordStore.discard(path)

    odc_delete_minmax_file = delete_odc_minmax_file

    def _exchange(self, path: Path) -> None:
        """Let the file at ``path`` be the session's model."""
        self._adopt(source_from_path(path))

    @contextmanager
    def _model_file(self) -> Iterator[Path]:
        """A file of the session's model."""
        if self._model.path is not None:
            yield self._model.path
            return
        with tempfile.TemporaryDirectory(prefix="odc-model-") as folder:
            path = Path(folder, "model.circle")
            path.write_bytes(model_bytes(self._model))
            yield path

    def _run_observed(self, executor: Executor, arrays: list[Array], observe: Observer | None) -> list[Array]:
        if MINMAX not in self._execute_configs:
            return super()._run_observed(executor, arrays, observe)
        if self._recorder is None:
            self._recorder = self._new_recorder(executor)
        return self._recorder.run(executor, arrays, observe)

    def _new_recorder(self, executor: Executor) -> RunRecorder:
        from odc_mlir.runtime.auto.recording import RunRecorder

        return RunRecorder(executor.graph, self.digest, records_path(self.digest))


def check_target(target: Any) -> None:
    """Raise SessionError for what is no code generation target."""
    if not isinstance(target, str) or not target.endswith(SUFFIX) or len(target) <= len(SUFFIX):
        raise SessionError(f"the target is {target!r}, expected <extension>{SUFFIX}, such as npu{SUFFIX}")
