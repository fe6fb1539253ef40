"""Small NPU programs for tests: from assembly text to containers, and containers with deliberate damage."""

from __future__ import annotations

import binascii
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir import targets
from odc_mlir.isa import container
from odc_mlir.isa.assembly import assemble
from odc_mlir.isa.codec import encode
from odc_mlir.isa.compact import write_code
from odc_mlir.isa.container import Container, MapEntry, TensorRecord
from odc_mlir.isa.fields import Region
from odc_mlir.simulator import Program, Result, load, simulate
from odc_mlir.simulator.program import TARGET_DESCRIPTION
from odc_mlir.targets import MemoryMode, Target

IDENTITY = (1 << 30, 1)  # multiplier and exponent of a scale of 1


def tensors(region: Region, *shapes: Sequence[int] | tuple[str, Sequence[int]]) -> tuple[TensorRecord, ...]:
    """Records of tensors one behind the other in ``region``; a shape alone is int8."""
    records, offset = [], 0
    for number, shape in enumerate(shapes):
        dtype, dims = shape if len(shape) == 2 and isinstance(shape[0], str) else ("int8", shape)
        name = f"{region.name.lower()}{number}"
        record = TensorRecord(name, dtype, tuple(dims), 0.5, -3, int(region), offset)
        offset += -(-record.bytes // container.ALIGNMENT) * container.ALIGNMENT
        records.append(record)
    return tuple(records)


def pack(
    text: str,
    *,
    target: str | Target = "npu-256",
    memory: MemoryMode = "flash",
    constants: bytes = b"",
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    arena: int = 0,
    operators: tuple[MapEntry, ...] = (),
    compact: bool = False,
) -> bytes:
    """A container with ``text``, plain or ``compact``; a target that is not shipped is described in the metadata."""
    npu = targets.load(target) if isinstance(target, str) else target
    metadata: dict[str, Any] = {"target": npu.name, "target_version": npu.version, "memory": memory}
    if npu.name not in targets.names():
        metadata[TARGET_DESCRIPTION] = npu.canonical
    instructions = assemble(text)
    return container.write(
        Container(
            code=write_code(instructions, npu.fetch.loop_buffer_bytes) if compact else encode(instructions),
            constants=constants,
            inputs=tensors(Region.INPUTS, *inputs),
            outputs=tensors(Region.OUTPUTS, *outputs),
            operators=operators,
            target_digest=npu.digest(memory),
            arena_bytes=arena,
            metadata=metadata,
        )
    )


def program(text: str, **options: Any) -> Program:
    """The loaded program; options as for :func:`pack`."""
    return load(pack(text, **options))


def run(text: str, values: Sequence[NDArray[Any]] = (), *, model: str = "parity", **options: Any) -> Result:
    """Load and simulate, with a trace."""
    return simulate(program(text, **options), values, memory_model=model, trace=True)


def records(
    biases: Sequence[int], multipliers: Sequence[int] | None = None, exponents: Sequence[int] | None = None
) -> bytes:
    """Per-channel records as ``param`` loads them; without multipliers, of scale 1."""
    multipliers = [IDENTITY[0]] * len(biases) if multipliers is None else multipliers
    exponents = [IDENTITY[1]] * len(biases) if exponents is None else exponents
    return b"".join(struct.pack("<iib", *row) for row in zip(biases, multipliers, exponents, strict=True))


def weight_bytes(weights: NDArray[Any], group: int) -> bytes:
    """Filter ``[O, kh, kw, I]`` in the weight buffer's order for an array shape with ``group`` channels."""
    parts = [weights[first : first + group] for first in range(0, len(weights), group)]
    return b"".join(np.ascontiguousarray(part.transpose(1, 2, 3, 0)).tobytes() for part in parts)


def repair_checksums(data: bytes) -> bytes:
    """``data`` with every checksum that its own section table names made right again, as far as it can be parsed."""
    fixed = bytearray(data)
    if len(fixed) < 64:
        return bytes(fixed)
    count = int.from_bytes(fixed[16:18], "little")
    end = 64 + 32 * count
    for row in range(64, min(end, len(fixed) - 31), 32):
        offset, size = struct.unpack_from("<QQ", fixed, row + 8)
        struct.pack_into("<I", fixed, row + 24, binascii.crc32(fixed[offset : offset + size]))
    table = bytes(fixed[64:end])
    struct.pack_into("<I", fixed, 60, container.header_checksum(bytes(fixed[:64]), table))
    return bytes(fixed)


def codes(rng: np.random.Generator, *shape: int, dtype: str = "int8") -> NDArray[Any]:
    """Random codes of the whole range."""
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
