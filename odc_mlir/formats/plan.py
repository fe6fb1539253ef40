"""``plan.json``: which operators of a package's model run on the host and which in a compiled segment.

A plan holds no graph and no constants: operators and tensors are indices into the first subgraph of ``model``. What is
checked here needs only the text; :func:`odc_mlir.runtime.execution.plan.check_plan` compares a plan with its model.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from odc_mlir.errors import PackageError, parsing
from odc_mlir.formats.states import others

SCHEMA_VERSION = 1
DEFAULT_EXTENSION = "npu"
_EXTENSION = re.compile(r"[a-z0-9][a-z0-9_]*")

_LARGEST_INDEX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class HostStep:
    """Run ``operators`` (indices of the first subgraph) in this order by host kernels."""

    operators: tuple[int, ...]
    kind: Literal["host"] = "host"


@dataclass(frozen=True, slots=True)
class SegmentStep:
    """Run the binary ``file`` (beside the plan) in place of ``operators``.

    ``inputs`` and ``outputs`` are the model's tensors bound to the binary's inputs and outputs, in its order.
    ``states`` are positions of an input and an output each, which stay on the device from run to run.
    """

    file: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[int, ...]
    states: tuple[tuple[int, int], ...] = ()
    kind: Literal["segment"] = "segment"

    @property
    def passed(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Tensors that pass in and out in each run: inputs and outputs that are no states on the device."""
        return others(self.inputs, (i for i, _ in self.states)), others(self.outputs, (o for _, o in self.states))

    @property
    def name(self) -> str:
        """Return the display name: the file's name without its suffix."""
        return self.file.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps of one inference, and target and options of the package.

    ``target`` is the target's name; ``options`` hold the compile options that decide the result (``prefer``,
    ``quantize``, ``sram_limit_bytes`` ...); ``host_reasons`` say why an operator stays on the host. ``partition`` is
    for reports: the placement chosen and others with their estimated times, the costs of the target's host, and defects
    of the compiler that kept operators from the NPU.
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
        """Return the suffix of the segments' files, without a dot, which selects the device."""
        return next((step.file.rpartition(".")[2] for step in self.segments), DEFAULT_EXTENSION)

    @property
    def segments(self) -> tuple[SegmentStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, SegmentStep))

    def to_json(self) -> bytes:
        """UTF-8 text of the plan; equal plans give equal bytes."""
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
    """JSON with a line for each key and, in a list of objects, for each object."""

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
    """The plan that ``data`` holds; raises PackageError, naming the key, for anything that is not exactly a plan."""
    with parsing("not valid JSON", PackageError, location=location):
        document = json.loads(data, object_pairs_hook=lambda pairs: _unique_keys(pairs, location))
    return _PlanReader(location).plan(document)


def is_member_name(name: str) -> bool:
    """True for a plain file name: no folder, nothing hidden, no character that a file system or a zip may dislike."""
    allowed = all(c.isascii() and (c.isalnum() or c in "-_.") for c in name)
    return allowed and 0 < len(name) <= 128 and not name.startswith(".")


def _unique_keys(pairs: list[tuple[str, Any]], location: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise PackageError(f"the key {key!r} is given twice", location=location)
        result[key] = value
    return result


class _PlanReader:
    """Turns parsed JSON into records; ``path`` arguments name the place in errors, such as ``steps[2].file``."""

    def __init__(self, location: str) -> None:
        self.location = location

    def error(self, message: str) -> PackageError:
        return PackageError(message, location=self.location)

    def plan(self, document: Any) -> Plan:
        if isinstance(document, dict):
            version = document.get("schema_version")
            if type(version) is int and version > SCHEMA_VERSION:
                raise PackageError(
                    f"plan schema version {version} is newer than {SCHEMA_VERSION}, the newest known here",
                    location=self.location,
                    hint="use the odc-mlir version that made the package, or compile the model again",
                )
        readers: dict[str, Callable[[Any, str], Any]] = {
            "schema_version": self.version,
            "model": self.model_path,
            "inputs": self.indices,
            "outputs": self.indices,
            "steps": self.steps,
        }
        optional: dict[str, Callable[[Any, str], Any]] = {
            "target": self.text_or_none,
            "memory": self.text_or_none,
            "compiler_version": self.text,
            "options": self.options,
            "host_reasons": self.reasons,
            "partition": self.partition,
        }
        values = self.record(document, "", readers, optional)
        del values["schema_version"]
        plan = Plan(**values)
        files = [step.file for step in plan.segments]
        if len(set(files)) != len(files):
            raise self.error("two segment steps name the same file")
        if len({name.rpartition(".")[2] for name in files}) > 1:
            raise self.error("segments are of several kinds, but one device runs only one kind")
        return plan

    def record(
        self,
        value: Any,
        path: str,
        required: Mapping[str, Callable[[Any, str], Any]],
        optional: Mapping[str, Callable[[Any, str], Any]] = MappingProxyType({}),
    ) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(f"{path.rstrip('.') or 'the plan'} must be an object, not {_kind(value)}")
        for key in value:
            if key not in required and key not in optional:
                raise self.error(f"unknown key {path + key!r}")
        for key in required:
            if key not in value:
                raise self.error(f"missing key {path + key!r}")
        readers = {**required, **optional}
        return {key: readers[key](item, path + key) for key, item in value.items()}

    def version(self, value: Any, path: str) -> int:
        if type(value) is not int or value != SCHEMA_VERSION:
            raise self.error(f"{path} is {value!r}, expected {SCHEMA_VERSION}")
        return value

    def text(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise self.error(f"{path} must be a string, not {_kind(value)}")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.error(f"{path} holds a lone surrogate, which is not valid text") from None
        return value

    def text_or_none(self, value: Any, path: str) -> str | None:
        return None if value is None else self.text(value, path)

    def model_path(self, value: Any, path: str) -> str:
        name = self.text(value, path)
        if not all(map(is_member_name, name.split("/"))):
            raise self.error(f"{path} is {name!r}, which is not a path in the package")
        return name

    def segment_file(self, value: Any, path: str) -> str:
        name = self.text(value, path)
        if not is_member_name(name):
            raise self.error(f"{path} is {name!r}, which is not a plain file name")
        if not _EXTENSION.fullmatch(name.rpartition(".")[2] if "." in name else ""):
            raise self.error(f"{path} is {name!r}, expected a name with an extension, such as .npu or .cpu")
        return name

    def index(self, value: Any, path: str) -> int:
        if type(value) is not int or not 0 <= value <= _LARGEST_INDEX:
            raise self.error(f"{path} is {value!r}, expected an index")
        return value

    def indices(self, value: Any, path: str) -> tuple[int, ...]:
        return tuple(self.index(item, f"{path}[{i}]") for i, item in enumerate(self.list_of(value, path)))

    def operators(self, value: Any, path: str) -> tuple[int, ...]:
        indices = self.indices(value, path)
        if not indices or len(set(indices)) != len(indices):
            raise self.error(f"{path} must name at least one operator, and none twice")
        return indices

    def list_of(self, value: Any, path: str) -> Sequence[Any]:
        if not isinstance(value, list):
            raise self.error(f"{path} must be a list, not {_kind(value)}")
        return value

    def steps(self, value: Any, path: str) -> tuple[HostStep | SegmentStep, ...]:
        return tuple(self.step(item, f"{path}[{i}]") for i, item in enumerate(self.list_of(value, path)))

    def step(self, value: Any, path: str) -> HostStep | SegmentStep:
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind == "host":
            values = self.record(
                value, path + ".", {"kind": self.text, "subgraph": self.first_subgraph, "operators": self.operators}
            )
            return HostStep(values["operators"])
        if kind == "segment":
            return SegmentStep(
                **self.record(
                    value,
                    path + ".",
                    {
                        "kind": self.text,
                        "file": self.segment_file,
                        "inputs": self.indices,
                        "outputs": self.indices,
                        "operators": self.operators,
                    },
                    {"states": self.states},
                )
            )
        raise self.error(f"{path}.kind is {kind!r}, expected 'host' or 'segment'")

    def states(self, value: Any, path: str) -> tuple[tuple[int, int], ...]:
        pairs = [self.indices(item, f"{path}[{i}]") for i, item in enumerate(self.list_of(value, path))]
        for i, pair in enumerate(pairs):
            if len(pair) != 2:
                raise self.error(f"{path}[{i}] must be the positions of an input and an output")
        return tuple((pair[0], pair[1]) for pair in pairs)

    def first_subgraph(self, value: Any, path: str) -> int:
        if self.index(value, path) != 0:
            raise self.error(f"{path} is {value!r}; only the first subgraph can be planned")
        return 0

    def options(self, value: Any, path: str) -> dict[str, str | int | None]:
        if not isinstance(value, dict):
            raise self.error(f"{path} must be an object, not {_kind(value)}")
        for key, item in value.items():
            self.text(key, path)
            if isinstance(item, str):
                self.text(item, f"{path}.{key}")
            elif item is not None and type(item) is not int:
                raise self.error(f"{path}.{key} must be a string, an integer or null, not {_kind(item)}")
        return value

    def partition(self, value: Any, path: str) -> dict[str, Any]:
        """JSON objects and lists of text and numbers, for display only."""
        if not isinstance(value, dict):
            raise self.error(f"{path} must be an object, not {_kind(value)}")
        for key, item in value.items():
            self.record_value(item, f"{path}.{key}", 3)
        return value

    def record_value(self, value: Any, path: str, depth: int) -> None:
        if isinstance(value, str):
            self.text(value, path)
        elif depth and isinstance(value, list):
            for index, item in enumerate(value):
                self.record_value(item, f"{path}[{index}]", depth - 1)
        elif depth and isinstance(value, dict):
            for key, item in value.items():
                self.record_value(item, f"{path}.{key}", depth - 1)
        elif type(value) is not int and not (type(value) is float and math.isfinite(value)):
            raise self.error(f"{path} must be a string or a number, not {_kind(value)}")

    def reasons(self, value: Any, path: str) -> dict[int, str]:
        if not isinstance(value, dict):
            raise self.error(f"{path} must be an object, not {_kind(value)}")
        for key in value:
            if not (key.isascii() and key.isdecimal() and len(key) <= 10 and str(int(key)) == key):
                raise self.error(f"{path} has the key {key!r}, expected an operator index")
        return {int(key): self.text(item, f"{path}.{key}") for key, item in value.items()}


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
