"""Which layers get another precision than the rest: from text, from a JSON file, and by the names in a graph.

The file's format is that of ONE's quantiser::

    {"default_quantization_dtype": "uint8", "default_granularity": "channel",
     "layers": [{"name": "conv1", "dtype": "int16", "granularity": "channel"},
                {"names": ["a", "b"], "dtype": "float"},
                {"name": "c", "dtype": "int16", "alternate": {"fused": ["c;relu"]}}]}

Names are those of results. A layer with ``alternate`` stands under one of several names, of which exactly one variant
must be in the graph as a whole. ``dtype`` is the name of a scheme, or ``float`` for what is not to be quantised.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odc_mlir.errors import OptionError, parsing
from odc_mlir.quantizer.policy.names import escaped, pieces
from odc_mlir.quantizer.policy.schemes import GRANULARITIES, PRECISIONS

_FIELDS = ("default_quantization_dtype", "default_granularity", "layers")
_LAYER_FIELDS = ("name", "names", "dtype", "granularity", "alternate")


@dataclass(frozen=True, slots=True)
class PrecisionChoice:
    """Precision of one layer, and the granularity of its weights (None: the model's)."""

    precision: str
    granularity: str | None = None


@dataclass(frozen=True, slots=True)
class PrecisionEntry:
    """One entry: names under each of its variants, the one that it is written with first."""

    variants: tuple[tuple[str, ...], ...]
    choice: PrecisionChoice


@dataclass(frozen=True, slots=True)
class PrecisionPlan:
    """Everything that was asked for; ``scheme`` and ``granularity`` are None where nothing was."""

    scheme: str | None = None
    granularity: str | None = None
    layers: tuple[PrecisionEntry, ...] = field(default=())

    def resolve(self, names: Sequence[str]) -> dict[str, PrecisionChoice]:
        """The choice for each name that has one; raises OptionError for what is not in ``names``, and for doubles."""
        known, found = set(names), dict[str, PrecisionChoice]()
        for layer in self.layers:
            for name in _variant(layer, known):
                if name in found:
                    raise OptionError(f"layer {name!r} has a precision given twice", hint="name it once")
                found[name] = layer.choice
        return found


def _variant(layer: PrecisionEntry, known: set[str]) -> tuple[str, ...]:
    """The names of the one variant that is there."""
    there = [variant for variant in layer.variants if known.issuperset(variant)]
    if len(there) == 1:
        return there[0]
    if len(layer.variants) == 1:
        missing = next(name for name in layer.variants[0] if name not in known)
        raise OptionError(f"no operator has a result {missing!r}", hint="odc-dump lists the names of a model")
    what = "none is" if not there else f"{len(there)} are"
    variants = " or ".join(", ".join(variant) for variant in layer.variants)
    raise OptionError(f"exactly one of the variants of a layer ({variants}) must be in the graph; {what}")


def parse_overrides(text: str) -> tuple[PrecisionEntry, ...]:
    """``name:precision,name:precision`` as layers; a name may contain colons, and ``\\,``. Raises OptionError."""
    layers = []
    for entry in filter(None, pieces(text, ",")):
        name, colon, precision = entry.rpartition(":")
        if not colon or not name:
            raise OptionError(
                f"{entry!r} is not an override",
                hint="write NAME:PRECISION, separated by commas; a name has \\, for its own",
            )
        layers.append(PrecisionEntry(((name,),), PrecisionChoice(_known("precision", precision, PRECISIONS))))
    return tuple(layers)


def overrides_text(precisions: Mapping[str, str]) -> str:
    """Precisions by layer as :func:`parse_overrides` reads them."""
    return ",".join(f"{escaped(name, ',')}:{precision}" for name, precision in precisions.items())


def read_config(path: str | os.PathLike[str]) -> PrecisionPlan:
    """The plan in a JSON file; raises OptionError, naming the file, for one that cannot be read or understood."""
    try:
        with parsing("cannot read the configuration", OptionError), open(path, encoding="utf-8") as file:
            content = json.load(file)
        return plan_of(content)
    except OptionError as error:
        error.location = os.fspath(path)
        raise


def plan_of(content: Any) -> PrecisionPlan:
    """The plan that the content of a JSON file says."""
    fields = _table(content, "the configuration", _FIELDS)
    default, granularity = fields.get("default_quantization_dtype"), fields.get("default_granularity")
    layers = fields.get("layers", [])
    if not isinstance(layers, list):
        raise OptionError(f"layers is {layers!r}, must be a list")
    return PrecisionPlan(
        None if default is None else _known("default_quantization_dtype", default, PRECISIONS[:-1]),
        None if granularity is None else _granularity(granularity),
        tuple(map(_layer, layers)),
    )


def _layer(content: Any) -> PrecisionEntry:
    fields = _table(content, "a layer", _LAYER_FIELDS)
    if ("name" in fields) == ("names" in fields):
        raise OptionError(f"a layer has either name or names, found {', '.join(fields) or 'neither'}")
    names = _names([fields["name"]] if "name" in fields else fields["names"])
    if "dtype" not in fields:
        raise OptionError(f"layer {names[0]!r} has no dtype", hint=f"use one of {', '.join(PRECISIONS)}")
    granularity = fields.get("granularity")
    alternates = fields.get("alternate", {})
    if not isinstance(alternates, dict):
        raise OptionError(f"alternate of layer {names[0]!r} is {alternates!r}, must map tags to lists of names")
    return PrecisionEntry(
        (names, *map(_names, alternates.values())),
        PrecisionChoice(
            _known("dtype", fields["dtype"], PRECISIONS), None if granularity is None else _granularity(granularity)
        ),
    )


def _names(content: Any) -> tuple[str, ...]:
    if not isinstance(content, list) or not content or not all(isinstance(name, str) for name in content):
        raise OptionError(f"names of a layer are {content!r}, must be a list of strings")
    return tuple(content)


def _granularity(value: Any) -> str:
    """ONE calls one scale per tensor ``layer``."""
    return _known("granularity", "tensor" if value == "layer" else value, GRANULARITIES)


def _known(what: str, value: Any, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise OptionError(f"unknown {what} {value!r}", hint=f"use one of {', '.join(allowed)}")
    return str(value)


def _table(content: Any, what: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise OptionError(f"{what} is {content!r}, must be a table")
    if unknown := sorted(content.keys() - set(allowed)):
        raise OptionError(f"{what} has an unknown field {unknown[0]!r}", hint=f"allowed are {', '.join(allowed)}")
    return content
