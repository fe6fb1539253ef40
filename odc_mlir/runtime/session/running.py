"""Calls that run a prepared session: buffers in and out, synchronously or in a thread, watched or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from threading import Thread
from typing import Any

import numpy as np

from odc_mlir.errors import InputError, InsufficientOutputError, OdcError, SessionError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.executor import Executor
from odc_mlir.runtime.session.core import call
from odc_mlir.runtime.session.loading import LoadingCalls, as_read_only
from odc_mlir.runtime.session.states import State
from odc_mlir.runtime.session.tensors import Port, port_at

_INTERNAL = "ENABLE_INTERNAL_OUTPUT_ALLOC"


class _Background:
    """One run in a thread of its own."""

    def __init__(self, run: Any, before: State) -> None:
        self.before = before
        self.error: BaseException | None = None
        self.outputs: list[Array] = []
        self._run = run
        self._thread = Thread(target=self._work, name="odc-session-run", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.outputs = self._run()
        except BaseException as error:  # kept for wait, where the caller is
            self.error = error

    def join(self) -> None:
        self._thread.join()


class RunningCalls(LoadingCalls):
    """Runs what :class:`LoadingCalls` has prepared."""

    def __init__(self) -> None:
        super().__init__()
        self._background: _Background | None = None

    def _forget_model(self) -> None:
        super()._forget_model()
        self._forget_buffers()

    def _forget_buffers(self) -> None:
        self._in_buffers: dict[int, Array] = {}
        self._out_buffers: dict[int, Array] = {}
        self._results: list[Array] = []

    @call
    def set_signature_run(self, name: str) -> None:
        """Run another signature from now on; buffers and options of the one before are lost."""
        before = (self._inputs, self._outputs, self._signature, self._input_shapes, self._output_shapes)
        try:
            self._choose_signature(name)
            self._prepare()
        except OdcError:
            self._inputs, self._outputs, self._signature, self._input_shapes, self._output_shapes = before
            raise
        self._forget_buffers()

    @call
    def set_input(self, index: int, buffer: Any) -> None:
        """The array or bytes that the next runs read for an input; the size is checked when one starts.

        It is kept, not copied: what it holds then counts. None takes it away.
        """
        port = port_at(self._inputs, index, "input")
        if buffer is None:
            self._in_buffers.pop(int(index), None)
        else:
            self._in_buffers[int(index)] = port.check(buffer, f"buffer of input {index}")

    @call
    def set_inputs(self, size: int, inputs_array: Sequence[Any] = ()) -> None:
        """Arrays for the first ``size`` inputs, converted to the model's element types; zeros for those left out."""
        for index in range(size):
            port = port_at(self._inputs, index, "input")
            if index < len(inputs_array):
                self._in_buffers[index] = converted(port, inputs_array[index], index)
                continue
            shape = self._input_shapes.get(index, port.static_shape)
            if shape is None:
                raise InputError(f"input {index} is left out, but its shape is not known", tensor=port.info.name)
            self._in_buffers[index] = np.zeros([dim or 0 for dim in port.outer_shape(shape)], port.numpy)

    @call
    def set_output(self, index: int, buffer: Any) -> None:
        """The array that runs write an output to; it may be larger. None: take it away."""
        port = port_at(self._outputs, index, "output")
        if buffer is None:
            self._out_buffers.pop(int(index), None)
            return
        if not isinstance(buffer, np.ndarray) or not buffer.flags.writeable or not buffer.flags.c_contiguous:
            raise InputError(
                f"the buffer of output {index} must be a contiguous array that can be written", tensor=port.info.name
            )
        self._out_buffers[int(index)] = port.check(buffer, f"buffer of output {index}")

    @call
    def run(self) -> None:
        """Run the model on the inputs set; outputs go to the buffers set."""
        self._deliver(self._compute())

    @call
    def run_async(self) -> None:
        """Start a run in a thread; until wait, buffers must stay as they are."""
        self._check_output_buffers()
        self._gather()  # so that wrong buffers are reported here
        self._background = _Background(self._compute, self._state)

    @call
    def wait(self) -> None:
        """Wait for the end of run_async and raise what it raised."""
        background, self._background = self._background, None
        if background is None:
            raise SessionError("nothing is running")
        background.join()
        self._state = background.before
        if background.error is not None:
            raise background.error
        self._deliver(background.outputs)

    @call
    def get_output(self, index: int) -> Array:
        """An output of the last run, which cannot be written; needs ENABLE_INTERNAL_OUTPUT_ALLOC or a buffer."""
        port = port_at(self._outputs, index, "output")
        if index not in self._out_buffers and _INTERNAL not in self._prepare_configs:
            raise SessionError(
                "the output has no buffer",
                tensor=port.info.name,
                hint=f"set one with set_output, or set_prepare_config({_INTERNAL!r}) before prepare",
            )
        return self._results[index]

    def _compute(self) -> list[Array]:
        """The outputs of one run, as the user knows them; raises OdcError."""
        self._check_output_buffers()
        return self._execute()

    def _execute(self) -> list[Array]:
        """One run by the executor in force."""
        executor = self._executor
        if executor is None:
            raise SessionError("the session is not prepared")
        outputs = self._run_executor(executor, self._gather())
        return [port.give(value) for port, value in zip(self._outputs, outputs, strict=True)]

    def _run_executor(self, executor: Executor, arrays: list[Array]) -> list[Array]:
        return executor.run(arrays)

    def _gather(self) -> list[Array]:
        """The inputs of a run, as the executor in force takes them; raises InputError."""
        arrays = []
        for index, port in enumerate(self._inputs):
            buffer = self._in_buffers.get(index)
            if buffer is None:
                raise InputError(f"input {index} has no buffer", tensor=port.info.name, hint="set one with set_input")
            arrays.append(port.take(buffer, self._input_shapes.get(index, port.static_shape)))
        return arrays

    def _check_output_buffers(self) -> None:
        """Raises SessionError for a buffer that is too small for what is known to come."""
        for index, buffer in self._out_buffers.items():
            shape = self._known_output_shapes[index]
            if shape is not None and None not in shape and not self._input_shapes:
                _check_room(self._outputs[index], buffer, math.prod(dim or 0 for dim in shape), SessionError)

    def _deliver(self, outputs: list[Array]) -> None:
        """Keep the outputs of a run, and copy them to where the user wants them."""
        for index, buffer in self._out_buffers.items():
            value = outputs[index]
            _check_room(self._outputs[index], buffer, value.size, InsufficientOutputError)
            place = buffer.reshape(-1)[: value.size].reshape(value.shape)
            place[...] = value
            outputs[index] = place
        self._results = [as_read_only(value) for value in outputs]
        self._output_shapes = [
            port.inner_shape(value.shape) for port, value in zip(self._outputs, outputs, strict=True)
        ]


def _check_room(port: Port, buffer: Array, needed: int, error: type[SessionError]) -> None:
    if buffer.size < needed:
        raise error(f"the buffer holds {buffer.size} elements, the output has {needed}", tensor=port.info.name)


def converted(port: Port, value: Any, index: int) -> Array:
    """``value`` as an array of the port's element type; raises InputError where that would lose what it says."""
    if isinstance(value, np.ndarray) and value.dtype == port.numpy:
        return value
    array = np.asarray(value)
    if port.dtype == "string" or not np.can_cast(array.dtype, port.numpy, "same_kind"):
        return port.check(array, f"input {index}")
    return array.astype(port.numpy)
