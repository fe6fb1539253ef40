"""By what the channels of tensors were divided to spread their ranges: metadata of a model file.

A model whose channels were rescaled computes what the original does; tensors between two layers hold other numbers.
With these factors, one for each element of a tensor's last axis, they can be compared with the original's.
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
    """The metadata of factors by tensor name: a JSON object of little-endian float32 numbers in base64."""
    packed = {name: base64.b64encode(np.asarray(row, "<f4").tobytes()).decode() for name, row in factors.items()}
    return json.dumps(packed, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def decode(data: bytes | memoryview) -> dict[str, NDArray[np.float32]]:
    """Factors by tensor name; raises ModelError for what :func:`encode` does not write."""
    with parsing("cannot read the factors of channels", ModelError, location=NAME):
        packed = json.loads(bytes(data))
        found = {
            str(name): np.frombuffer(base64.b64decode(text, validate=True), "<f4") for name, text in packed.items()
        }
    if any(not np.isfinite(row).all() or (row <= 0).any() for row in found.values()):
        raise ModelError("a factor of channels is not positive and finite", location=NAME)
    return found
