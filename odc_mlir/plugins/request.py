"""What a plugin is asked for, and what a plugin is."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from odc_mlir.errors import OptionError


class Preference(enum.IntEnum):
    """What code is generated for; the numbers are those of the C interface that this one follows."""

    DEFAULT = 0
    PERFORMANCE_FIRST = 1
    MEMORY_FIRST = 2
    COMPILE_TIME_FIRST = 3

    @classmethod
    def of(cls, value: Preference | int | str) -> Preference:
        """The preference called or numbered ``value``; raises OptionError."""
        try:
            return cls[value.upper().replace("-", "_")] if isinstance(value, str) else cls(value)
        except (KeyError, ValueError):
            allowed = ", ".join(f"{item.name.lower()} ({item.value})" for item in cls)
            raise OptionError(f"unknown preference {value!r}", hint=f"use one of {allowed}") from None


Setting = str | int | bool | None


@dataclass(frozen=True, slots=True)
class CodegenRequest:
    """One file to make.

    ``model``: path of a model file or package, to be read only. ``output``: path of the file to write; it does not
    exist yet and takes its final name later. ``target``: what the caller chose of the target (``target``, ``memory``,
    ``sram_limit``; a plugin ignores what it does not know). ``shapes``: the input shapes to compile for in graph order,
    None as the model has them; no entries: all as in the model. ``options``: settings for this plugin alone.
    """

    model: str
    output: str
    preference: Preference = Preference.DEFAULT
    target: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    shapes: tuple[tuple[int, ...] | None, ...] = ()
    options: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> str:
        """One line of JSON that :meth:`from_json` reads."""
        document = {
            "model": self.model,
            "output": self.output,
            "preference": int(self.preference),
            "target": dict(self.target),
            "shapes": self.shapes,
            "options": dict(self.options),
        }
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> CodegenRequest:
        """The request that :meth:`to_json` wrote."""
        document: dict[str, Any] = json.loads(text)
        shapes = tuple(None if shape is None else tuple(shape) for shape in document.pop("shapes"))
        preference = Preference(document.pop("preference"))
        return cls(**document, shapes=shapes, preference=preference)


@runtime_checkable
class CodegenPlugin(Protocol):
    """What the function that a plugin names returns.

    ``compile`` writes ``request.output`` and returns None or 0; any other number, an exception, or a file that is
    missing or empty is a failure. These may be there too:

    * ``quantization``: the scheme that the target wants models in (``int8``, ``uint8`` …), None for float;
    * ``takes_floats``: True where it compiles float models too, although it has a scheme;
    * ``supports(model: str) -> str | None``: why a model file cannot be compiled, None where it can;
    * ``validate(output: str) -> None``: raise where the file that was made is not what it should be.
    """

    name: str
    extension: str

    def compile(self, request: CodegenRequest) -> int | None:
        """Write ``request.output``."""
