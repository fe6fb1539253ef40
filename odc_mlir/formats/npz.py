"""NPZ files that may be anything: sizes are bounded before arrays are made, and nothing is unpickled."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import InputError, OdcError, parsing

_MAX_EXPANSION = 200
_EXPANSION_SLACK_BYTES = 256 << 20
_SUFFIX = ".npy"


def most_bytes(file_bytes: int) -> int:
    """How many bytes of data are believed to be in a file of this size; more than that is meant to exhaust memory."""
    return file_bytes * _MAX_EXPANSION + _EXPANSION_SLACK_BYTES


def read_npz(
    path: str | os.PathLike[str],
    wanted: Callable[[str], bool] = lambda name: True,
    *,
    what: str = "the NPZ data",
    kind: type[OdcError] = InputError,
    hint: str | None = None,
) -> dict[str, NDArray[Any]]:
    """The arrays whose names are ``wanted``, in the file's order; raises ``kind``, naming ``what`` and the file."""
    location = os.fspath(path)
    arrays: dict[str, NDArray[Any]] = {}
    with parsing(f"cannot read {what}", kind, location=location, hint=hint), zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if wanted(info.filename.removesuffix(_SUFFIX))]
        claimed, limit = sum(info.file_size for info in members), most_bytes(os.path.getsize(path))
        if claimed > limit:
            raise kind(
                f"cannot read {what}: its arrays claim {claimed} bytes, more than the {limit} that a file of this size "
                "may hold",
                location=location,
            )
        for info in members:
            name = info.filename.removesuffix(_SUFFIX)
            if name in arrays:
                raise kind(f"cannot read {what}: the array {name!r} is given twice", location=location)
            with archive.open(info) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    return arrays
