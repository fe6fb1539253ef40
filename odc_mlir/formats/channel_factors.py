"""Factors of equalised channels, stored as metadata of a model file.

With the factors, tensors of the equalised model can be compared with the original's. There is a factor for each element
along the last axis of a tensor, or along several last axes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import ModelError, parsing

NAME = "odc.channel_factors"


def encode(factors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the metadata of factors by tensor name: a JSON object of little-endian float32 numbers in base64.

    A tensor with factors along several axes has the value [extents, factors].
    """
    packed = {name: _packed(np.asarray(array, "<f4")) for name, array in factors.items()}
    return json.dumps(packed, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def _packed(array: NDArray[Any]) -> str | list[Any]:
    text = base64.b64encode(array.tobytes()).decode()
    return text if array.ndim == 1 else [*array.shape, text]


def decode(data: bytes | memoryview) -> dict[str, NDArray[np.float32]]:
    """Return the factors by tensor name. Raises ModelError for data that :func:`encode` cannot have written."""
    with parsing("cannot read the factors of channels", ModelError, location=NAME):
        found = {str(name): _unpacked(entry) for name, entry in json.loads(bytes(data)).items()}
    if any(not np.isfinite(row).all() or (row <= 0).any() for row in found.values()):
        raise ModelError("a factor of channels is not positive and finite", location=NAME)
    return found


def _unpacked(entry: Any) -> NDArray[np.float32]:
    *shape, text = entry if isinstance(entry, list) else [entry]
    row = np.frombuffer(base64.b64decode(text, validate=True), "<f4")
    return row.reshape(shape) if shape else row
