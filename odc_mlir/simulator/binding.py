"""Inputs into their regions before a run, outputs out of them after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import InputError, SimulationError
from odc_mlir.isa.container import TensorRecord
from odc_mlir.simulator.memories import Memories
from odc_mlir.simulator.program import Program


def bind(program: Program, memories: Memories, inputs: Sequence[NDArray[Any]]) -> None:
    """Copy ``inputs`` into their regions; raises InputError where number, dtype or shape is not the program's."""
    records = program.inputs
    if len(inputs) != len(records):
        raise InputError(f"the program's inputs: {len(inputs)} given, expected {len(records)}")
    for record, value in zip(records, inputs, strict=True):
        array = np.asarray(value)
        if array.dtype != np.dtype(record.dtype) or array.shape != record.shape:
            raise InputError(
                f"input is {array.dtype.name} {list(array.shape)}, expected {record.dtype} {list(record.shape)}",
                tensor=record.name,
            )
        data, written = _bytes_of(memories, record)
        data[...] = np.frombuffer(array.astype(array.dtype.newbyteorder("<")).tobytes(), np.uint8)
        written[...] = True


def outputs(program: Program, memories: Memories) -> tuple[NDArray[Any], ...]:
    """The outputs, copied out of their regions; raises SimulationError for one that is not all written."""
    arrays = []
    for record in program.outputs:
        data, written = _bytes_of(memories, record)
        if not written.all():
            raise SimulationError("parts of an output were never written", tensor=record.name)
        dtype = np.dtype(record.dtype)
        codes = np.frombuffer(data.tobytes(), dtype.newbyteorder("<"))
        arrays.append(codes.astype(dtype).reshape(record.shape))
    return tuple(arrays)


def _bytes_of(memories: Memories, record: TensorRecord) -> tuple[NDArray[Any], NDArray[Any]]:
    """The bytes of an input or output, and which of them hold something."""
    space = memories.regions[record.region]
    if space.data is None or space.written is None:
        raise ValueError("a timing-only run has no contents")
    place = slice(record.offset, record.offset + record.bytes)
    return space.data[place], space.written[place]
