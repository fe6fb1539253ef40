"""Plans (``plan.json``): which operators of a package's model run on the host, and which in a segment.

A plan holds no graph and no constants: operators and tensors are indices into the first subgraph of ``model``. This
module checks the text of a plan. :func:`odc_mlir.runtime.execution.plan.check_plan` compares it with the model.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from odc_mlir.errors import PackageError, located, parsing
from odc_mlir.formats.states import others

SCHEMA_VERSION = 1
DEFAULT_EXTENSION = "npu"
_EXTENSION = re.compile(r"[a-z0-9][a-z0-9_]*")

_LARGEST_INDEX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class HostStep:
    """Execution of ``operators`` (indices of the first subgraph) by host kernels, in this order."""

    operators: tuple[int, ...]
    kind: Literal["host"] = "host"


@dataclass(frozen=True, slots=True)
class SegmentStep:
    """Execution of the binary ``file`` (in the plan's folder) instead of ``operators``.

    ``inputs`` and ``outputs`` are the model's tensors for the binary's inputs and outputs, in the binary's order.
    ``states`` are pairs of an input's and an output's index that stay on the device between runs.
    """

    file: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[int, ...]
    states: tuple[tuple[int, int], ...] = ()
    kind: Literal["segment"] = "segment"

    @property
    def passed(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Tensors that every run transfers: inputs and outputs except states on the device."""
        return others(self.inputs, (i for i, _ in self.states)), others(self.outputs, (o for _, o in self.states))

    @property
    def name(self) -> str:
        """Name for display: the file's name without suffix."""
        return self.file.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps of one inference, with target and options of the package.

    ``options``: compile options that affect the result.
    ``host_reasons``: reasons why operators run on the host.
    ``partition``: data for reports: compared placements, host costs of the target, and defects of the compiler.
    """

    model: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[HostStep | SegmentStep, ...]
    target: str | None = None
    memory: str | None = None
    compiler_version: str = ""
    options: Mapping[str, str | int | None] = field(default_factory=lambda: MappingProxyType({}))
    host_reasons: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    partition: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def extension(self) -> str:
        """Suffix of the segments' files, without a dot. It selects the device."""
        return next((step.file.rpartition(".")[2] for step in self.segments), DEFAULT_EXTENSION)

    @property
    def segments(self) -> tuple[SegmentStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, SegmentStep))

    def to_json(self) -> bytes:
        """Return the plan as UTF-8 text. Equal plans give equal bytes."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "compiler_version": self.compiler_version,
            "model": self.model,
            "target": self.target,
            "memory": self.memory,
            "options": dict(sorted(self.options.items())),
            "inputs": self.inputs,
            "outputs": self.outputs,
            "steps": [_step_document(step) for step in self.steps],
            "host_reasons": {str(index): self.host_reasons[index] for index in sorted(self.host_reasons)},
        }
        if self.partition:
            document["partition"] = self.partition
        return (_pretty(document) + "\n").encode()


def _pretty(document: Mapping[str, Any]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, list) and value:
            return "[\n  " + ",\n  ".join(map(text, value)) + "\n ]"
        return json.dumps(value, ensure_ascii=False)

    return "{\n " + ",\n ".join(f"{json.dumps(key)}: {text(value)}" for key, value in document.items()) + "\n}"


def _step_document(step: HostStep | SegmentStep) -> dict[str, Any]:
    if isinstance(step, HostStep):
        return {"kind": step.kind, "subgraph": 0, "operators": step.operators}
    return {
        "kind": step.kind,
        "file": step.file,
        "inputs": step.inputs,
        "outputs": step.outputs,
        "operators": step.operators,
        **({"states": step.states} if step.states else {}),
    }


def parse_plan(data: bytes, location: str = "plan.json") -> Plan:
    """Return the plan in ``data``. Raises PackageError, with the key, for a malformed plan."""
    with located(location):
        with parsing("not valid JSON", PackageError):
            document = json.loads(data, object_pairs_hook=_unique_keys)
        return _plan(document)


def is_member_name(name: str) -> bool:
    """Return whether this is a plain file name: no folder, not hidden, no characters that zips may reject."""
    allowed = all(c.isascii() and (c.isalnum() or c in "-_.") for c in name)
    return allowed and 0 < len(name) <= 128 and not name.startswith(".")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise PackageError(f"the key {twice!r} is given twice")
    return result


# Readers convert parsed JSON to records. ``path`` is the location for errors, such as ``steps[2].file``.
Reader = Callable[[Any, str], Any]


def _plan(document: Any) -> Plan:
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is int and version > SCHEMA_VERSION:
        raise PackageError(
            f"plan schema version {version} is newer than {SCHEMA_VERSION}, the newest known here",
            hint="use the odc-mlir version that wrote the package, or compile the model again",
        )
    required: dict[str, Reader] = {
        "schema_version": _version,
        "model": _model_path,
        "inputs": _indices,
        "outputs": _indices,
        "steps": _steps,
    }
    optional: dict[str, Reader] = {
        "target": _text_or_none,
        "memory": _text_or_none,
        "compiler_version": _text,
        "options": _options,
        "host_reasons": _reasons,
        "partition": _partition,
    }
    values = _record(document, "", required, optional)
    del values["schema_version"]
    plan = Plan(**values)
    files = [step.file for step in plan.segments]
    if len(set(files)) != len(files):
        raise PackageError("two segment steps name the same file")
    if len({name.rpartition(".")[2] for name in files}) > 1:
        raise PackageError("segments are of several kinds, but one device runs only one kind")
    return plan


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PackageError(f"{path} must be an object, not {_kind(value)}")
    return value


def _partition(value: Any, path: str) -> dict[str, Any]:
    found = _object(value, path)
    with parsing(f"{path} holds what JSON cannot express", PackageError):  # NaN, infinity, unpaired surrogates
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    return found


def _record(
    value: Any, path: str, required: Mapping[str, Reader], optional: Mapping[str, Reader] = MappingProxyType({})
) -> dict[str, Any]:
    for key in _object(value, path.rstrip(".") or "the plan"):
        if key not in required and key not in optional:
            raise PackageError(f"unknown key {path + key!r}")
    for key in required:
        if key not in value:
            raise PackageError(f"missing key {path + key!r}")
    readers = {**required, **optional}
    return {key: readers[key](item, path + key) for key, item in value.items()}


def _version(value: Any, path: str) -> int:
    if type(value) is not int or value != SCHEMA_VERSION:
        raise PackageError(f"{path} is {value!r}, expected {SCHEMA_VERSION}")
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise PackageError(f"{path} must be a string, not {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PackageError(f"{path} holds a lone surrogate, which is not valid text") from None
    return value


def _text_or_none(value: Any, path: str) -> str | None:
    return None if value is None else _text(value, path)


def _model_path(value: Any, path: str) -> str:
    name = _text(value, path)
    if not all(map(is_member_name, name.split("/"))):
        raise PackageError(f"{path} is {name!r}, which is not a path in the package")
    return name


def _segment_file(value: Any, path: str) -> str:
    name = _text(value, path)
    if not is_member_name(name):
        raise PackageError(f"{path} is {name!r}, which is not a plain file name")
    if not _EXTENSION.fullmatch(name.rpartition(".")[2] if "." in name else ""):
        raise PackageError(f"{path} is {name!r}, expected a name with an extension, such as .npu or .cpu")
    return name


def _index(value: Any, path: str) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST_INDEX:
        raise PackageError(f"{path} is {value!r}, expected an index")
    return value


def _first_subgraph(value: Any, path: str) -> int:
    if _index(value, path) != 0:
        raise PackageError(f"{path} is {value!r}; only the first subgraph can be planned")
    return 0


def _list(value: Any, path: str, reader: Reader) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise PackageError(f"{path} must be a list, not {_kind(value)}")
    return tuple(reader(item, f"{path}[{i}]") for i, item in enumerate(value))


def _indices(value: Any, path: str) -> tuple[int, ...]:
    return _list(value, path, _index)


def _operators(value: Any, path: str) -> tuple[int, ...]:
    indices = _indices(value, path)
    if not indices or len(set(indices)) != len(indices):
        raise PackageError(f"{path} must name at least one operator, and none twice")
    return indices


def _steps(value: Any, path: str) -> tuple[HostStep | SegmentStep, ...]:
    return _list(value, path, _step)


_HOST_STEP: Mapping[str, Reader] = {"kind": _text, "subgraph": _first_subgraph, "operators": _operators}
_SEGMENT_STEP: Mapping[str, Reader] = {
    "kind": _text,
    "file": _segment_file,
    "inputs": _indices,
    "outputs": _indices,
    "operators": _operators,
}


def _step(value: Any, path: str) -> HostStep | SegmentStep:
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "host":
        return HostStep(_record(value, path + ".", _HOST_STEP)["operators"])
    if kind == "segment":
        return SegmentStep(**_record(value, path + ".", _SEGMENT_STEP, {"states": _states}))
    raise PackageError(f"{path}.kind is {kind!r}, expected 'host' or 'segment'")


def _states(value: Any, path: str) -> tuple[tuple[int, int], ...]:
    return _list(value, path, _state)


def _state(value: Any, path: str) -> tuple[int, ...]:
    pair = _indices(value, path)
    if len(pair) != 2:
        raise PackageError(f"{path} must be the positions of an input and an output")
    return pair


def _options(value: Any, path: str) -> dict[str, str | int | None]:
    for key, item in _object(value, path).items():
        _text(key, path)
        if isinstance(item, str):
            _text(item, f"{path}.{key}")
        elif item is not None and type(item) is not int:
            raise PackageError(f"{path}.{key} must be a string, an integer or null, not {_kind(item)}")
    return dict(value)


def _reasons(value: Any, path: str) -> dict[int, str]:
    for key in _object(value, path):
        if not (key.isascii() and key.isdecimal() and len(key) <= 10 and str(int(key)) == key):
            raise PackageError(f"{path} has the key {key!r}, expected an operator index")
    return {int(key): _text(item, f"{path}.{key}") for key, item in value.items()}


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
