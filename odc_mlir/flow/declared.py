"""``flow.toml``: a model and a table for each step.

::

    [flow]
    model = "model.tflite"
    folder = "out"

    [optimize]
    [quantize]
    scheme = "int8"
    calibration = "samples.npz"
    [compile]
    target = "npu-256"
    [profile]

Keys of a table are the options of the command, with ``_`` or ``-``: ``true`` is a flag, a list repeats the option.
``input`` and ``output`` change what a step reads and writes. Paths are relative to the file's folder.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from odc_mlir.errors import OptionError, parsing
from odc_mlir.flow.steps import Flow, FlowStep, option_words


class _StepCommand(NamedTuple):
    """How a step is run: the command, words before the input, the option of the output, and its default name."""

    command: str
    words: tuple[str, ...]
    output: str
    suffix: str
    is_last: bool = False  # what it writes is read by no later step
    reads_package: bool = False


_STEPS = {
    "import": _StepCommand("odc-opt", ("-q", "-t", "circle"), "-o", ".circle"),
    "resize": _StepCommand("odc-circle", ("resize",), "-o", ".resized.circle"),
    "optimize": _StepCommand("odc-optimize", (), "-o", ".opt.circle"),
    "quantize": _StepCommand("odc-quantize", (), "-o", ".quantized.circle"),
    "compile": _StepCommand("odc-compile", (), "-o", ".package", is_last=True),
    "profile": _StepCommand("odc-run", (), "--profile", ".profile.json", is_last=True, reads_package=True),
    "package": _StepCommand("odc-package", ("pack",), "-o", ".nnpackage.zip", is_last=True),
}
_FILES = frozenset(
    {"calibration", "evaluation", "records", "partition", "load", "config", "parameters", "target", "mixed"}
)
_WRITTEN = frozenset(
    {"report-json", "report-html", "save-records", "save-equalization", "save-precisions", "dump", "trace", "header"}
)


def read_toml(path: str) -> Flow:
    """The flow in a TOML file; raises OptionError for what it cannot be."""
    with parsing("not a flow", OptionError, location=path):
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    head = document.pop("flow", None)
    if not isinstance(head, dict) or not isinstance(head.get("model"), str):
        raise OptionError("the table [flow] with a key model is missing", location=path)
    unknown = [*(key for key in head if key not in ("model", "folder")), *(k for k in document if k not in _STEPS)]
    if unknown:
        raise OptionError(f"{unknown[0]!r} is unknown", location=path, hint=f"steps are {', '.join(_STEPS)}")
    if not document:
        raise OptionError("the flow has no step", location=path, hint=f"steps are {', '.join(_STEPS)}")
    base = os.path.dirname(path)
    folder = os.path.join(base, str(head.get("folder", "out")))
    model = os.path.join(base, head["model"])
    stem = os.path.join(folder, Path(model).stem)
    package: str | None = None
    steps = []
    for name, kind in _STEPS.items():
        if name not in document:
            continue
        options = document[name]
        if not isinstance(options, dict):
            raise OptionError(f"{name!r} is not a table", location=path)
        source = package if kind.reads_package and package is not None else model
        step = _step(name, kind, options, source, stem, base)
        steps.append(step)
        if name == "compile":
            package = step.writes[0]
        elif not kind.is_last:
            model = step.writes[0]
    return Flow(tuple(steps))


def _step(name: str, kind: _StepCommand, options: Mapping[str, Any], source: str, stem: str, base: str) -> FlowStep:
    given = {key.replace("_", "-"): value for key, value in options.items()}
    for key in ("input", "output"):
        if not isinstance(given.get(key, ""), str):
            raise OptionError(f"{key!r} of step {name!r} is {given[key]!r}, not a path")
    source = os.path.join(base, given.pop("input")) if "input" in given else source
    output = os.path.join(base, given.pop("output")) if "output" in given else f"{stem}{kind.suffix}"
    words, reads, writes = [*kind.words, source, kind.output, output], [source], [output]
    for key, value in given.items():
        for item in value if isinstance(value, list) else [value]:
            if item is False:
                continue
            if item is True:
                words.append(f"--{key}")
                continue
            if isinstance(item, dict | list):
                raise OptionError(f"{key!r} of step {name!r} has the value {item!r}, expected a string or number")
            text = str(item)
            beside = os.path.join(base, text)
            if key in _FILES and os.path.exists(beside):
                reads.append(text := beside)
            elif key in _WRITTEN:
                writes.append(text := beside)
            words += [f"--{key}", text] if text in (*reads, *writes) else option_words(f"--{key}", text)
    return FlowStep(name, kind.command, tuple(words), tuple(reads), tuple(writes))
