"""States of a model: pairs of an output and an input, to which the next run passes the output's value.

A model file lists them in the metadata ``odc.states`` as JSON: names of ``output`` and ``input``, and the bytes of the
``initial`` state in base64 (absent: real zero).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from odc_mlir.errors import ModelError, OptionError, did_you_mean, parsing
from odc_mlir.ops.check import type_text
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.spec import ResultType, TensorInfo

NAME = "odc.states"
MODULE_ATTRIBUTE = NAME
"""Attribute of modules with the same list, by index, as an array of dictionaries."""

Tensor = TypeVar("Tensor")


@dataclass(frozen=True, slots=True)
class StatePair:
    """A state: the output that updates it, the input that reads it, and the initial bytes.

    If ``initial`` is missing, the state starts at real zero, the zero point of quantised tensors.
    """

    output: str
    input: str
    initial: bytes | None = None

    def __str__(self) -> str:
        return f"{self.output}={self.input}"


States = Mapping[str, str] | Iterable[str | StatePair]
"""Pairs as users write them: a mapping from outputs to inputs, or texts OUT=IN."""


def pairs_of(states: States) -> tuple[StatePair, ...]:
    """Return ``states`` as pairs. Raises OptionError for a text that is not ``OUT=IN``."""
    if isinstance(states, Mapping):
        return tuple(StatePair(output, name) for output, name in states.items())
    return tuple(item if isinstance(item, StatePair) else parse_pair(item) for item in states)


def parse_pair(text: str) -> StatePair:
    """Parse ``OUT=IN``. Raises OptionError."""
    output, _, name = text.partition("=")
    if not output or not name or "=" in name:
        raise OptionError(
            f"the state {text!r} is not OUT=IN, an output and the input that it becomes in the next run",
            hint="write --state OUT=IN; in Python names may have a =: states={'OUT': 'IN'}",
        )
    return StatePair(output, name)


def encode(pairs: Sequence[StatePair]) -> bytes:
    """Return the metadata of ``pairs``."""
    entries = [
        {"output": pair.output, "input": pair.input}
        | ({} if pair.initial is None else {"initial": base64.b64encode(pair.initial).decode()})
        for pair in pairs
    ]
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes | memoryview) -> tuple[StatePair, ...]:
    """Return the pairs in a model's metadata. Raises ModelError for data that :func:`encode` cannot have written."""
    with parsing("cannot read the states of the model", ModelError, location=NAME):
        return tuple(_pair(**entry) for entry in json.loads(bytes(data)))


def _pair(output: str, input: str, initial: str | None = None) -> StatePair:
    if not isinstance(output, str) or not isinstance(input, str):
        raise ModelError("names of a state's tensors must be text", location=NAME)
    return StatePair(output, input, None if initial is None else base64.b64decode(initial, validate=True))


def positions(
    pairs: Sequence[StatePair], inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]
) -> tuple[tuple[int, int], ...]:
    """Return the indices of the output and the input of each pair, checked against a model.

    Raises OptionError like :func:`places_of`, and for tensors of different types.
    """
    found = places_of(pairs, [info.name for info in inputs], [info.name for info in outputs])
    for pair, (place, source) in zip(pairs, found, strict=True):
        check_types(pair, outputs[place], inputs[source])
    return found


def places_of(pairs: Sequence[StatePair], inputs: Sequence[str], outputs: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return the indices of the output and the input of each pair among these names.

    If several outputs have the same name, the last outputs are used, one output per pair. Raises OptionError for
    unknown names and for an input in two pairs.
    """
    found: list[tuple[int, int]] = []
    for pair in pairs:
        places, sources = (
            _indices_of(pair, pair.output, outputs, "output"),
            _indices_of(pair, pair.input, inputs, "input"),
        )
        free = [place for place in places if place not in {place for place, _ in found}]
        if sources[-1] in {source for _, source in found}:
            raise OptionError(f"two states have the input {pair.input!r}", hint="give each its own", tensor=pair.input)
        found.append(((free or places)[-1], sources[-1]))
    return tuple(found)


def _indices_of(pair: StatePair, name: str, names: Sequence[str], what: str) -> list[int]:
    if name not in names:
        near = did_you_mean(name, names)
        raise OptionError(
            f"the state {pair} names no {what} of the model", tensor=name, hint=f"{near}it has {', '.join(names)}"
        )
    return [place for place, known in enumerate(names) if known == name]


def check_types(pair: StatePair, output: TensorInfo, input: TensorInfo) -> None:
    """Raise OptionError if static types of the tensors differ, or if the initial value has a different size."""
    types = [type_text(ResultType(info.dtype, info.shape)) for info in (output, input)]
    if types[0] != types[1] or "?" in types[0] or "..." in types[0]:
        raise OptionError(
            f"the state needs an output and an input of one static type; output {output.name!r} is {types[0]}, "
            f"input {input.name!r} is {types[1]}",
            hint="export the model with equal types, or leave this state to the application",
            tensor=pair.output,
        )
    if output.quant != input.quant:
        raise OptionError(
            f"the state needs one scale and zero point; output {output.name!r} has {_quant_text(output)}, "
            f"input {input.name!r} has {_quant_text(input)}",
            hint=f"quantise the model with --state {pair}, which gives both the same",
            tensor=pair.output,
        )
    size = output.info.numpy.itemsize
    for extent in output.static_shape:
        size *= extent
    if pair.initial is not None and len(pair.initial) != size:
        raise ModelError(f"the initial state has {len(pair.initial)} bytes, {types[0]} needs {size}", tensor=pair.input)


def _quant_text(info: TensorInfo) -> str:
    if info.quant is None:
        return "none"
    if not info.quant.per_tensor:
        return f"{len(info.quant.scales)} scales"
    return f"scale {info.quant.scale:g} and zero point {info.quant.zero_point}"


def others(items: Sequence[Tensor], taken: Iterable[int]) -> tuple[Tensor, ...]:
    """Return ``items`` except items at the indices ``taken``, which belong to states."""
    hidden = set(taken)
    return tuple(item for position, item in enumerate(items) if position not in hidden)


def initial_bytes(pair: StatePair, info: TensorInfo) -> bytes:
    """Return the contents of a state before the first run. ``info`` describes its input."""
    if pair.initial is not None:
        return pair.initial
    value: Any = initial_contents(info)
    return bytes(value.tobytes())
