"""Interface of codegen plugins: the protocol, and the request for one file."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from odc_mlir.errors import CompileError, OptionError


class Preference(enum.IntEnum):
    """Goal of code generation, with the numbers of the nnfw C API."""

    DEFAULT = 0
    PERFORMANCE_FIRST = 1
    MEMORY_FIRST = 2
    COMPILE_TIME_FIRST = 3

    @classmethod
    def of(cls, value: Preference | int | str) -> Preference:
        """Return the preference with the name or number ``value``. Raises OptionError."""
        try:
            return cls[value.upper().replace("-", "_")] if isinstance(value, str) else cls(value)
        except (KeyError, ValueError):
            allowed = ", ".join(f"{item.name.lower()} ({item.value})" for item in cls)
            raise OptionError(f"unknown preference {value!r}", hint=f"use one of {allowed}") from None


Setting = str | int | bool | None


@dataclass(frozen=True, slots=True)
class CodegenRequest:
    """Request for one file.

    ``model``: path of a model file or package, read-only. ``output``: path of the file to write. It does not exist yet
    and gets the final name later. ``target``: options of the target (``target``, ``memory``, ``sram_limit``). A plugin
    ignores unknown options. ``shapes``: input shapes to compile for, in graph order. None keeps the model's shape, and
    an empty tuple keeps all. ``options``: settings for this plugin alone.
    """

    model: str
    output: str
    preference: Preference = Preference.DEFAULT
    target: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    shapes: tuple[tuple[int, ...] | None, ...] = ()
    options: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> str:
        """Return the request as one line of JSON."""
        tables = {"target": dict(self.target), "options": dict(self.options)}
        return json.dumps({name: getattr(self, name) for name in self.__slots__} | tables)

    @classmethod
    def from_json(cls, text: str) -> CodegenRequest:
        """Return the request that :meth:`to_json` wrote."""
        document: dict[str, Any] = json.loads(text)
        shapes = tuple(None if shape is None else tuple(shape) for shape in document.pop("shapes"))
        preference = Preference(document.pop("preference"))
        return cls(**document, shapes=shapes, preference=preference)


@runtime_checkable
class CodegenPlugin(Protocol):
    """Result of a plugin's factory function.

    ``compile`` writes ``request.output`` and returns None or 0. Any other number, an exception, or a missing or empty
    file is a failure. Optional members:

    * ``quantization``: the quantisation scheme of models for the target (``int8``, ``uint8`` …), None for float;
    * ``takes_floats``: True if it has a scheme but compiles float models too;
    * ``supports(model: str) -> str | None``: the reason why a model file cannot be compiled, None if it can;
    * ``validate(output: str) -> None``: raise an exception for an invalid output file.
    """

    name: str
    extension: str

    def compile(self, request: CodegenRequest) -> int | None:
        """Write ``request.output``."""


@dataclass(frozen=True, slots=True)
class Description:
    """Description of a codegen plugin: the scheme of models (None for float), and whether it takes float models."""

    name: str
    extension: str
    quantization: str | None
    takes_floats: bool


def describe_plugin(plugin: object, _question: object = None) -> dict[str, Any]:
    """Return the fields of a plugin's Description. Raises CompileError if ``plugin`` is not a plugin."""
    if not isinstance(plugin, CodegenPlugin):
        raise CompileError(f"{type(plugin).__name__} lacks name, extension or compile")
    scheme = getattr(plugin, "quantization", None)
    return {
        "name": str(plugin.name),
        "extension": str(plugin.extension).removeprefix("."),
        "quantization": None if scheme is None else str(scheme),
        "takes_floats": scheme is None or bool(getattr(plugin, "takes_floats", False)),
    }
