"""The binary format: a header, and a model that OpenVINO has compiled and exported for one device."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from odc_mlir.errors import PackageError
from odc_mlir.runtime.devices.base import Port

_MAGIC = b"odc-openvino 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
_LENGTH_BYTES = 4


@dataclass(frozen=True)
class Program:
    """A compiled model: OpenVINO's ``blob``, its ports in order, the machine and the facts that it depends on."""

    machine: str
    facts: tuple[str, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    blob: bytes

    def to_bytes(self) -> bytes:
        """Return the file: magic number, digest of the rest, length of the header, header, blob."""
        fields: dict[str, Any] = {"machine": self.machine, "facts": self.facts}
        fields |= {name: [asdict(port) for port in getattr(self, name)] for name in ("inputs", "outputs")}
        header = json.dumps(fields).encode()
        body = len(header).to_bytes(_LENGTH_BYTES, "little") + header + self.blob
        return _MAGIC + hashlib.sha256(body).digest() + body


def parse(data: bytes) -> Program:
    """Return the program in ``data``; raise PackageError for another format or damage."""
    if not data.startswith(_MAGIC):
        raise PackageError("this is no program for OpenVINO, or one of another version", hint="compile again")
    start = len(_MAGIC) + _DIGEST_BYTES
    body = data[start:]
    if hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        raise PackageError("the program is damaged: its digest differs", hint="compile again")
    length = int.from_bytes(body[:_LENGTH_BYTES], "little")
    try:
        fields = json.loads(body[_LENGTH_BYTES : _LENGTH_BYTES + length])
        inputs, outputs = (_ports(fields[name]) for name in ("inputs", "outputs"))
        facts = tuple(map(str, fields["facts"]))
        return Program(str(fields["machine"]), facts, inputs, outputs, body[_LENGTH_BYTES + length :])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PackageError(f"the program has a malformed header: {error}") from None


def _ports(found: Sequence[dict[str, Any]]) -> tuple[Port, ...]:
    return tuple(Port(str(port["name"]), str(port["dtype"]), tuple(map(int, port["shape"]))) for port in found)
