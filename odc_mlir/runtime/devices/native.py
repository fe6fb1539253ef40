"""Device for this machine: segments of object code, called in this process."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from odc_mlir import processors
from odc_mlir.codegen.loading import LoadedObject
from odc_mlir.codegen.machine import (
    BROKEN,
    EXTRA,
    HINT,
    has_code_generator,
    known_features,
    why_not_here,
    why_not_known_here,
)
from odc_mlir.errors import InputError, OptionError, PackageError, parsing
from odc_mlir.formats.native_segment import NativeSegment, Port, check_whole, parse_native_segment, read_stamps
from odc_mlir.formats.plan import Plan
from odc_mlir.ops.spec import Array, numpy_dtype
from odc_mlir.runtime.devices.base import DeviceResult
from odc_mlir.runtime.execution.team import Team
from odc_mlir.runtime.execution.units import DirectRun, Step, Values

_LARGE_BYTES = 1 << 16  # size from which the system's new memory costs more than a copy
_UNUSED = 2  # references to memory that nobody holds: of its aligned part in the pool, and of an argument
_NOT_ALLOWED = "an input or a computed index is outside the tensor that it indexes"


class NativeProgram:
    """A loaded segment with memory. Only one run is possible at a time."""

    def __init__(self, segment: NativeSegment) -> None:
        self.inputs, self.outputs = segment.inputs, segment.outputs
        names = (segment.entry, segment.part_entry) if segment.part_entry else (segment.entry,)
        self._object = LoadedObject(segment.code, *names)
        with parsing("there is no memory for the segment", PackageError):
            buffers = [_buffer(_port_bytes(port), segment) for port in (*segment.inputs, *segment.outputs)]
            constants, arena = (_buffer(size, segment) for size in (len(segment.constants), segment.arena_bytes))
        constants[: len(segment.constants)] = np.frombuffer(segment.constants, np.uint8)
        memory = [*buffers, arena, constants]
        self._memory = memory  # keeps the buffers at the addresses below
        self._segment = segment
        self._addresses = tuple(ctypes.c_void_p(part.ctypes.data) for part in memory)
        # Without declared parameters, ctypes does not convert the pointers in each call.
        function = ctypes.CFUNCTYPE(ctypes.c_int32)(self._object.addresses[0])
        self._compute: Callable[[], int] = partial(function, *self._addresses)
        views = [
            part[: _port_bytes(port)].view(numpy_dtype(port.dtype)).reshape(port.shape)
            for port, part in zip((*segment.inputs, *segment.outputs), buffers, strict=True)
        ]
        self._ins, self._outs = views[: len(segment.inputs)], views[len(segment.inputs) :]
        addresses = self._addresses[len(views) - len(self._outs) :]
        found = [
            _LargeOutput(view, segment, address) if view.nbytes >= _LARGE_BYTES else None
            for view, address in zip(self._outs, addresses, strict=False)
        ]
        self._large = [item for item in found if item is not None]
        self._results: list[Callable[[], Array]] = [
            view.copy if item is None else item.take for view, item in zip(self._outs, found, strict=True)
        ]

    def divide(self, team: Team) -> None:
        """Use the threads of ``team`` in further runs, if any layer is large enough."""
        if self._segment.part_entry:
            self._compute = _Parts(self._segment, self._object.addresses[1], self._addresses, team)

    def run(self, inputs: Sequence[Array], *, trace: bool = False) -> DeviceResult:
        """Execute once, without counters."""
        values = dict(enumerate(inputs))
        places = range(len(inputs), len(inputs) + len(self._outs))
        self.step(range(len(inputs)), places)(values)
        return DeviceResult(tuple(values[place] for place in places))

    def step(self, reads: Sequence[int], writes: Sequence[int]) -> Step:
        """Return the step that runs the segment on the values of a run."""
        run, dtypes = self.direct(range(len(reads)), range(len(writes))), [view.dtype for view in self._ins]

        def step(values: Values) -> None:
            given = [values[index] for index in reads]
            # Some kernels return numbers, not arrays.
            found = run(given) or run([np.asarray(*pair) for pair in zip(given, dtypes, strict=True)])
            values.update(zip(writes, found or (), strict=True))

        return step

    def direct(self, reads: Sequence[int], writes: Sequence[int]) -> DirectRun:
        """Return the function that runs the segment on the inputs ``reads`` and returns the outputs ``writes``."""
        # Loops over pairs and several outputs take longer than the rest of a call.
        compute, large, array = self._compute, self._large, np.ndarray
        ins = [(k, self._ins[place], self._ins[place].dtype, self._ins[place].shape) for k, place in enumerate(reads)]
        outs = [self._results[place] for place in writes]
        only = outs[0] if len(outs) == 1 else None

        def run(inputs: Sequence[Array]) -> list[Array] | None:
            if len(inputs) != len(ins):
                return None
            for place, target, dtype, shape in ins:
                value = inputs[place]
                if type(value) is not array or value.dtype != dtype or value.shape != shape:
                    return None
                target[...] = value  # np.copyto takes twice the time for small arrays
            if large:
                for item in large:
                    item.renew()
            if compute():
                raise InputError(_NOT_ALLOWED)
            return [give() for give in outs] if only is None else [only()]

        return run


class _LargeOutput:
    """Memory of a large output, which the caller receives without a copy. Memory that nobody holds is used again."""

    def __init__(self, view: Array, segment: NativeSegment, address: ctypes.c_void_p) -> None:
        self._view, self._segment, self._address = view, segment, address
        self._pool: list[Array] = []
        self._next = view

    def renew(self) -> None:
        """Let the segment write to memory that no caller holds."""
        found = next((raw for raw in self._pool if sys.getrefcount(raw.base) <= _UNUSED), None)
        if found is None:
            found = _buffer(self._view.nbytes, self._segment)
            self._pool = [*self._pool[-1:], found]
        self._next, self._address.value = found, found.ctypes.data

    def take(self) -> Array:
        """Return the output of the last run."""
        return self._next[: self._view.nbytes].view(self._view.dtype).reshape(self._view.shape)


class _Parts:
    """A segment's function for several threads, with scratch memory for the threads."""

    def __init__(self, segment: NativeSegment, address: int, addresses: Sequence[ctypes.c_void_p], team: Team) -> None:
        pointers = [ctypes.c_void_p] * (len(addresses) + 2)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *pointers, ctypes.c_int64, ctypes.c_int64)(address)
        with parsing("there is no memory for the segment's threads", PackageError):
            self._scratch = _buffer(segment.scratch_bytes * team.size, segment)
            barrier = _buffer(8, segment)
        self._barrier = barrier[:8].view(np.uint64)
        self._arguments = (
            *addresses,
            ctypes.c_void_p(self._scratch.ctypes.data),
            ctypes.c_void_p(self._barrier.ctypes.data),
        )
        self._team = team

    def __call__(self) -> int:
        self._barrier[0] = 0
        return self._team.run(self._part, self._break)

    def _part(self, number: int) -> int:
        status: int = self._function(*self._arguments, number, self._team.size)
        return status

    def _break(self) -> None:
        self._barrier[0] = BROKEN


def _port_bytes(port: Port) -> int:
    return math.prod(port.shape) * numpy_dtype(port.dtype).itemsize


def _buffer(size: int, segment: NativeSegment) -> Array:
    """Return zeroed, aligned bytes, followed by slack that kernels may access."""
    raw = np.zeros(size + segment.slack_bytes + segment.alignment_bytes, np.uint8)
    first = -raw.ctypes.data % segment.alignment_bytes
    return raw[first : first + size + segment.slack_bytes]


class NativeDevice:
    """Device for ``.cpu`` files with the features of this machine."""

    name = "native"
    simulated = False
    runs_code = True

    def attached(self) -> Sequence[str]:
        """Return this processor if the code generator is installed."""
        return (processors.HERE,) if has_code_generator() else ()

    def examine(self, data: bytes, plan: Plan, machine: str | None) -> str | None:
        """Check architecture, features of the processor and the checksum."""
        target, triple, features = read_stamps(data)
        if (reason := why_not_known_here(triple.partition("-")[0], features)) is not None:
            return f"it was compiled for {target}: {reason}"
        if machine not in (None, processors.HERE, target):
            return f"it was compiled for {target}, not for {machine}"
        if not has_code_generator():
            return f"the package {EXTRA}, which loads it, is not installed; {HINT}"
        check_whole(data)
        return None

    def load(self, data: bytes) -> NativeProgram:
        """Check and load a segment. Raises PackageError if it is damaged or for another machine."""
        segment = parse_native_segment(data)
        if not has_code_generator():
            raise OptionError(f"native code needs the package {EXTRA}", hint=HINT)
        wanted = segment.triple.partition("-")[0], segment.features
        reason = why_not_known_here(*wanted)
        if reason is not None or known_features() is None:
            # LLVM knows more features, but asking it takes longer than the rest of loading.
            reason = why_not_here(*wanted)
        if reason is not None:
            raise PackageError(f"it was compiled for {segment.target}: {reason}", hint="compile the model here")
        return NativeProgram(segment)
