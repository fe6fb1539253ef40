"""Element types of Circle tensors.

Names are the schema's ``TensorType`` names in lower case. ``storage`` is the numpy dtype in kernels. Kernels get
four-bit types as one element per byte, bfloat16 as float32, and block formats as raw bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. ``bits`` is the size of an element in a file, or 0 without fixed size."""

    name: str
    storage: str
    bits: int
    kind: str  # float | int | uint | bool | complex | string | handle | block

    @property
    def numpy(self) -> np.dtype:
        return np.dtype(self.storage)

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest code of an integer type. Truths are 0 and 1."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        if self.kind == "uint":
            return 0, (1 << self.bits) - 1
        if self.kind == "bool":
            return 0, 1
        raise ValueError(f"{self.name} is not an integer type")


_ROWS = (
    ("float32", "<f4", 32, "float"),
    ("float16", "<f2", 16, "float"),
    ("bfloat16", "<f4", 16, "float"),
    ("float64", "<f8", 64, "float"),
    ("int4", "i1", 4, "int"),
    ("int8", "i1", 8, "int"),
    ("int16", "<i2", 16, "int"),
    ("int32", "<i4", 32, "int"),
    ("int64", "<i8", 64, "int"),
    ("uint4", "u1", 4, "uint"),
    ("uint8", "u1", 8, "uint"),
    ("uint16", "<u2", 16, "uint"),
    ("uint32", "<u4", 32, "uint"),
    ("uint64", "<u8", 64, "uint"),
    ("bool", "?", 8, "bool"),
    ("complex64", "<c8", 64, "complex"),
    ("complex128", "<c16", 128, "complex"),
    ("string", "O", 0, "string"),
    ("resource", "O", 0, "handle"),
    ("variant", "O", 0, "handle"),
    ("ggml_q4_0", "u1", 0, "block"),
    ("ggml_q4_1", "u1", 0, "block"),
    ("ggml_q8_0", "u1", 0, "block"),
    ("ggml_q8_1", "u1", 0, "block"),
    ("mxfp4", "u1", 0, "block"),
    ("mxint8", "u1", 0, "block"),
)

DTYPES: dict[str, DType] = {row[0]: DType(*row) for row in _ROWS}

CODE_DTYPES = ("int8", "uint8", "int16")
"""Element types of quantised activations. Weights may be narrower."""
