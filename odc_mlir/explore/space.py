"""Search space: axes of values, the target description of each point, and study files (docs/exploring.md)."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from odc_mlir import targets
from odc_mlir.errors import OptionError, TargetError, parsing
from odc_mlir.formats.quantities import bytes_of

Value = int | str
Point = dict[str, Value]

OPTIONS: Mapping[str, tuple[str, ...] | None] = {
    "memory": targets.MEMORY_MODES,
    "prefer": ("performance", "memory", "compile-time", "fewest-cycles"),
    "sram_limit": None,
    "quantize": ("uint8", "int8", "int8x4", "int16", "int16x8"),
}
"""Compiler options that can be axes, with the allowed words (None: a size in bytes)."""

MOST_POINTS = 100_000  # limit on the points of an exhaustively searched space
MOST_VALUES = 10_000  # limit on the values of an axis


@dataclass(frozen=True, slots=True)
class ParameterAxis:
    """An axis of the search space: a key and values, in the given order."""

    key: str
    values: tuple[Value, ...]


def parse_axis(text: str) -> ParameterAxis:
    """Parse an axis ``KEY=VALUES``. Raises OptionError."""
    key, equals, written = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise OptionError(f"{text!r} is not an axis", hint="write KEY=VALUES, as in array.macs_per_cycle=128,256")
    if key not in OPTIONS and "." not in key:
        hint = "name a key such as array.macs_per_cycle; odc-report compares JSON reports of odc-compile --target NAME"
        raise OptionError(f"{key!r} cannot be varied", hint=hint)
    return ParameterAxis(key, _values(key, written.strip()))


def _values(key: str, written: str) -> tuple[Value, ...]:
    if words := OPTIONS.get(key):
        found: tuple[Value, ...] = tuple(word.strip() for word in written.split(","))
        if unknown := [word for word in found if word not in words]:
            raise OptionError(f"{key} cannot be {unknown[0]!r}", hint=f"use some of {', '.join(words)}")
    elif ":" in written:
        found = tuple(_range(key, written))
    else:
        found = tuple(bytes_of(word.strip().replace("_", "")) for word in written.split(","))
    if len(set(found)) < len(found):
        raise OptionError(f"{key} has a value twice in {written!r}")
    return found


def _range(key: str, written: str) -> Iterator[int]:
    low_text, _, rest = written.partition(":")
    high_text, _, count_text = rest.partition(":")
    low, high = bytes_of(low_text.replace("_", "")), bytes_of(high_text.replace("_", ""))
    ratios = count_text.startswith("log")
    count = int(digits) if (digits := count_text.removeprefix("log")).isdecimal() else 0
    if not 2 <= count <= min(high - low + 1, MOST_VALUES) or (ratios and low < 1):
        hint = "write LOW:HIGH:N or LOW:HIGH:logN, with LOW < HIGH and N of 2 or more"
        raise OptionError(f"{key}: {written!r} is not a range", hint=hint)
    for step in range(count):
        share = step / (count - 1)
        yield round(math.exp(math.log(low) + share * math.log(high / low)) if ratios else low + share * (high - low))


def points(axes: Sequence[ParameterAxis]) -> Iterator[Point]:
    """Yield every combination of values. The last axis varies fastest."""
    for values in product(*(axis.values for axis in axes)):
        yield {axis.key: value for axis, value in zip(axes, values, strict=True)}


def size(axes: Sequence[ParameterAxis]) -> int:
    """Return the number of combinations."""
    return math.prod(len(axis.values) for axis in axes)


class Machines:
    """Builder of target descriptions: ``base`` with the keys of a point replaced."""

    def __init__(self, base: str) -> None:
        self.base = base
        shipped = base in targets.names()
        targets.load(base)  # raises an error for an invalid base
        text = (resources.files(targets) / f"{base}.toml").read_text("utf-8") if shipped else Path(base).read_text()
        with parsing("not valid TOML", TargetError, location=base):
            self._document: dict[str, Any] = tomllib.loads(text)

    def check(self, axes: Sequence[ParameterAxis]) -> None:
        """Raise OptionError for an unknown or repeated key."""
        keys = [axis.key for axis in axes]
        for key in keys:
            if keys.count(key) > 1:
                raise OptionError(f"{key} is varied twice")
            if key not in OPTIONS and not isinstance(self._at(key), int):
                known = ", ".join([*OPTIONS, *(name for name in self._numbers(self._document))])
                raise OptionError(f"{key!r} cannot be varied", hint=f"one of {known}")

    def _at(self, key: str) -> Any:
        found: Any = self._document
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return None if isinstance(found, bool) else found

    def _numbers(self, table: Mapping[str, Any], path: str = "") -> Iterator[str]:
        for key, value in table.items():
            if isinstance(value, dict):
                yield from self._numbers(value, f"{path}{key}.")
            elif isinstance(value, int) and not isinstance(value, bool) and path:
                yield path + key

    def text(self, point: Mapping[str, Value], name: str = "explored") -> str:
        """Return the target description of a point as TOML. The description may be invalid."""
        document = deepcopy(self._document)
        for key, value in point.items():
            if key not in OPTIONS:
                *path, last = key.split(".")
                table = document
                for part in path:
                    table = table[part]
                table[last] = value
        if "array.macs_per_cycle" in point:
            _fit_array(document, self._document["array"])
        document["name"] = name
        return "\n".join(toml_lines(document)) + "\n"


def _fit_array(document: dict[str, Any], base: Mapping[str, Any]) -> None:
    """Adapt array shapes to the number of multipliers. As in shipped targets, additional multipliers add pixels."""
    wanted, given = document["array"]["macs_per_cycle"], base["macs_per_cycle"]

    def fitted(shape: Sequence[int]) -> list[int]:
        pixels, rest = divmod(shape[0] * wanted, given)
        if rest or not pixels:
            raise OptionError(f"an array of {wanted} multipliers has no shape like {shape[0]}x{shape[1]} of {given}")
        return [pixels, shape[1]]

    document["array"]["shapes"] = [fitted(shape) for shape in base["shapes"]]
    document["array"]["depthwise_shape"] = fitted(base["depthwise_shape"])


def toml_lines(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the lines of TOML text for a table of numbers, strings, lists and tables."""
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{key} = {_literal(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from ("", f"[{path}{key}]", *toml_lines(value, f"{path}{key}."))


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


_LISTS = ("models", "vary", "objective", "constraint")
_TYPES: dict[str, type] = {"target": str, "sampler": str, "points": int, "seed": int, "options": dict}
_WORDS = {str: "a string", int: "a whole number", dict: "a table"}


def read_study(path: str, options: Set[str]) -> dict[str, Any]:
    """Read the settings in a study file, and resolve model paths relative to the file's folder. Raises OptionError."""
    with parsing("not valid TOML", OptionError, location=path):
        found: dict[str, Any] = tomllib.loads(Path(path).read_text())
    keys = {*_LISTS, *_TYPES}
    if unknown := sorted(found.keys() - keys):
        raise OptionError(f"a study has no key {unknown[0]!r}", location=path, hint=f"use {', '.join(sorted(keys))}")
    for key, value in found.items():
        is_texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not (is_texts if key in _LISTS else type(value) is _TYPES[key]):
            wanted = "a list of strings" if key in _LISTS else _WORDS[_TYPES[key]]
            raise OptionError(
                f"{key} has the value {value!r}, which has the wrong type; it must be {wanted}", location=path
            )
    if unknown := sorted(found.get("options", {}).keys() - options):
        raise OptionError(f"a study has no option {unknown[0]!r}", location=path)
    if found.get("sampler", "grid") not in ("grid", "random", "bayes"):
        raise OptionError(f"there is no sampler {found['sampler']!r}", location=path, hint="use grid, random or bayes")
    beside = Path(path).parent
    found["models"] = [str(beside / name) for name in found.get("models", [])]
    return found
