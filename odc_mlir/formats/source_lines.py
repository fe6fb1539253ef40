"""Source lines of the tensors in an imported model, as metadata of its file.

The metadata ``odc.source_lines`` is a JSON object of lists of tensor names by ``file:line``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from odc_mlir.errors import ModelError, OdcError, parsing

NAME = "odc.source_lines"

# Endings of names that the quantiser derives from names of tensors.
_DERIVED = re.compile(r"_(re|de)?quantized(_\d+)?$")


def encode(lines: Mapping[str, str]) -> bytes:
    """Return the metadata of source lines by tensor name."""
    names: dict[str, list[str]] = {}
    for name, line in lines.items():
        names.setdefault(line, []).append(name)
    return json.dumps(names, ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes | memoryview | None) -> dict[str, str]:
    """Return source lines by tensor name. Raises ModelError for data that :func:`encode` cannot have written."""
    with parsing("cannot read the source lines", ModelError, location=NAME):
        return {str(name): line for line, names in json.loads(bytes(data or b"{}")).items() for name in names}


def line_of(lines: Mapping[str, str], name: str) -> str | None:
    """Return the source line of a tensor, or of the tensor or operator that its name is derived from."""
    name = name.partition("#")[0]
    while name and name not in lines:
        name = _DERIVED.sub("", name) if _DERIVED.search(name) else name.rpartition("/")[0]
    return lines.get(name)


@contextmanager
def located(lines: Mapping[str, str]) -> Iterator[None]:
    """Add the source line of the tensor to errors without location."""
    try:
        yield
    except OdcError as error:
        error.location = error.location or line_of(lines, error.tensor or "")
        raise
