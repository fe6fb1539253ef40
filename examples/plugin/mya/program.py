"""The accelerator's own files: a magic, a JSON header with a list of steps, and the matrices behind it.

A step reads and writes numbered registers, each a whole tensor. ``{"do": "matrix", "in": [0], "out": 1, "data": 0}``.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import PackageError, parsing

MAGIC = b"MYA1"
Reals = NDArray[np.float32]


@dataclass(frozen=True)
class Register:
    """An input or output of the program."""

    number: int
    name: str
    shape: tuple[int, ...]


@dataclass
class Program:
    """``steps`` in order, and the constant ``data`` that they name by position."""

    inputs: list[Register] = field(default_factory=list)
    outputs: list[Register] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    data: list[Reals] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """The file; the same program gives the same bytes."""
        header = {
            "inputs": [asdict(item) for item in self.inputs],
            "outputs": [asdict(item) for item in self.outputs],
            "steps": self.steps,
            "data": [item.shape for item in self.data],
        }
        text = json.dumps(header, sort_keys=True).encode()
        return b"".join(
            (MAGIC, struct.pack("<I", len(text)), text, *(item.astype("<f4").tobytes() for item in self.data))
        )


def parse(data: bytes) -> Program:
    """The program in a file; raises PackageError where it is none."""
    if data[:4] != MAGIC:
        raise PackageError("it is no program of mya", hint="compile the model again")
    with parsing("the program of mya is malformed", PackageError, hint="compile the model again"):
        (length,) = struct.unpack_from("<I", data, 4)
        header = json.loads(data[8 : 8 + length])
        place, constants = 8 + length, []
        for shape in header["data"]:
            count = int(np.prod(shape, dtype=np.int64))
            constants.append(np.frombuffer(data, "<f4", count, place).reshape(shape))
            place += 4 * count
        if place != len(data):
            raise ValueError(f"{len(data) - place} bytes too many")
        ports = [
            [Register(item["number"], item["name"], tuple(item["shape"])) for item in header[key]]
            for key in ("inputs", "outputs")
        ]
        return Program(ports[0], ports[1], header["steps"], constants)
