"""The session: everything that an application needs to run a model."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, overload

from odc_mlir.errors import InputCountError, InputError, OdcError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.session.core import call, deprecated
from odc_mlir.runtime.session.running import converted
from odc_mlir.runtime.session.source import source_from_package
from odc_mlir.runtime.session.states import State
from odc_mlir.runtime.session.switching import SwitchingCalls


class Session(SwitchingCalls):
    """One model, and the states between loading it and running it.

    ``model`` is a .circle or .tflite file, an nnpackage (folder, zip or :class:`~odc_mlir.Package`) or the bytes of a
    model file; without it, the session waits for load_model_from_file. ``backends`` and ``workspace`` are those of
    set_available_backends and set_workspace; ``strict`` makes every fallback an error; ``settings`` are settings that
    count more than the environment and the package's config.cfg; ``max_bytes`` bounds the activations of a run.

    The quick way: ``with Session(path) as session: outputs = session.infer([array])``. A session that compiles on the
    device does so behind that call. Threads that share a session wait for one another; give each its own to run side
    by side. Failures are :class:`~odc_mlir.OdcError`; wrong use of the session itself is a SessionError.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | bytearray | memoryview | Package | None = None,
        backends: str | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        strict: bool = False,
        settings: dict[str, str] | None = None,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__()
        self._strict = strict
        self._max_bytes = max_bytes
        self._chosen.update(settings or {})
        self._settings.chosen.update(self._chosen)
        if workspace is not None:
            self.set_workspace(workspace)
        if isinstance(model, Package):
            self._adopt(source_from_package(model))
            self._enter("load", State.MODEL_LOADED)
        elif isinstance(model, (bytes, bytearray, memoryview)):
            self.load_circle_from_buffer(model)
        elif model is not None:
            self.load_model_from_file(model)
        if backends is not None:
            self.set_available_backends(backends)

    @overload
    def infer(self, inputs_array: Sequence[Any], *, measure: Literal[False] = ...) -> list[Array]: ...

    @overload
    def infer(self, inputs_array: Sequence[Any], *, measure: Literal[True]) -> tuple[list[Array], dict[str, float]]: ...

    @call
    def infer(
        self, inputs_array: Sequence[Any], *, measure: bool = False
    ) -> list[Array] | tuple[list[Array], dict[str, float]]:
        """The outputs for the inputs, as arrays that cannot be written; prepares the session when that is left to do.

        Arrays may have another size than a static dimension says; the model is run in that size, with a warning. With
        ``measure`` also the times in milliseconds: ``prepare_time_ms`` (of the call that prepares), ``input_time_ms``,
        ``run_time_ms`` and ``output_time_ms``. Raises InputError, which is a ValueError too for a wrong number.
        """
        if not isinstance(inputs_array, (list, tuple)) or len(inputs_array) != len(self._inputs):
            raise _wrong_count(inputs_array, [port.info.name for port in self._inputs])
        metrics: dict[str, float] = {}
        start = time.perf_counter()
        arrays = [
            converted(port, value, index)
            for index, (port, value) in enumerate(zip(self._inputs, inputs_array, strict=True))
        ]
        self._follow_shapes(arrays)
        taken = time.perf_counter() - start
        if self._state is State.MODEL_LOADED:
            self._prepare()
            self._enter("prepare", State.PREPARED)
            metrics["prepare_time_ms"] = 1000 * (time.perf_counter() - start - taken)
        self._in_buffers = dict(enumerate(arrays))
        run = time.perf_counter()
        outputs = self._compute()
        delivered = time.perf_counter()
        self._deliver(outputs)
        if not measure:
            return list(self._results)
        metrics |= {"input_time_ms": 1000 * taken, "run_time_ms": 1000 * (delivered - run)}
        metrics["output_time_ms"] = 1000 * (time.perf_counter() - delivered)
        return list(self._results), metrics

    def _follow_shapes(self, arrays: Sequence[Array]) -> None:
        """Take the shapes of ``arrays`` for those of the inputs."""
        for index, (port, array) in enumerate(zip(self._inputs, arrays, strict=True)):
            shape = port.inner_shape(array.shape)
            static = port.static_shape
            if shape == static:
                self._input_shapes.pop(index, None)
            elif self._input_shapes.get(index) != shape:
                declared = port.info.shape
                if declared is not None and len(declared) != len(shape):
                    raise _misfit(port.info.name, declared, shape)
                if declared is not None and any(
                    known not in (None, dim) for known, dim in zip(declared, shape, strict=True)
                ):
                    expected = list(port.outer_shape(declared))
                    warnings.warn(
                        f"input {index} ({port.info.name!r}) has the shape {list(array.shape)}, the model says "
                        f"{expected}; it is run in the new shape",
                        stacklevel=4,
                    )
                self._input_shapes[index] = shape

    @call
    def close(self) -> None:
        """End the session: wait for a run under way, write what is being traced, and let go of the model."""
        if self._background is not None:
            self._background.join()
            self._background = None
        try:
            self._write_measurements()
        finally:
            self._stop_compiling()
            self._forget_model()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._state is not State.CLOSED:
            self.close()

    @deprecated
    def apply_tensorinfo(self, *arguments: Any) -> None:
        """Deprecated: always raises."""

    @deprecated
    def set_op_backend(self, *arguments: Any) -> None:
        """Deprecated: always raises."""

    @deprecated
    def prepare_pipeline(self, *arguments: Any) -> None:
        """Deprecated: always raises."""

    @deprecated
    def push_pipeline_input(self, *arguments: Any) -> None:
        """Deprecated: always raises."""

    @deprecated
    def pop_pipeline_output(self, *arguments: Any) -> None:
        """Deprecated: always raises."""


def _wrong_count(inputs: Any, names: Sequence[str]) -> OdcError:
    what = f"{len(inputs)} arrays were given" if isinstance(inputs, (list, tuple)) else f"got {type(inputs).__name__}"
    return InputCountError(
        f"the model has {len(names)} inputs ({', '.join(map(repr, names))}), {what}", hint="pass a list of arrays"
    )


def _misfit(name: str, declared: Sequence[int | None], shape: tuple[int, ...]) -> OdcError:
    return InputError(f"the input has rank {len(declared)}, the array {len(shape)}", tensor=name)
