"""Configurations (``.cfg``) and workflows (``.json``) of ONE's ``onecc``, as steps with our commands."""

from __future__ import annotations

import configparser
import json
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from odc_mlir.errors import OptionError, UnsupportedError, parsing
from odc_mlir.flow.steps import Flow, FlowStep

Options = Mapping[str, str]
_ORDER = (
    *("one-import", "one-import-tf", "one-import-tflite", "one-import-bcq", "one-import-onnx", "one-import-pytorch"),
    *("one-resize", "one-optimize", "one-quantize", "one-pack", "one-codegen", "one-profile", "one-partition"),
    "one-infer",
)
_TRUE = ("true", "1", "yes", "on")
# Settings of tools that say nothing about the result.
_SILENT = frozenset({"input_path", "output_path", "verbose", "save_intermediate", "generate_profile_data"})
_SILENT |= {"mute_warnings", "disable_validation"}
_LAYOUT = frozenset({"nchw_to_nhwc_input_shape", "nchw_to_nhwc_output_shape"})


class _Notes:
    def __init__(self, target: str) -> None:
        self.lines: list[str] = []
        self.target = target

    def add(self, text: str) -> None:
        if text not in self.lines:
            self.lines.append(text)


def read_cfg(path: str, *, target: str = "npu-256") -> Flow:
    """The flow of a configuration; ``target``: what code generation for other makers' backends is replaced by.

    Raises OptionError for what is no configuration, and UnsupportedError for steps that cannot be here.
    """
    notes = _Notes(target)
    return Flow(tuple(_of_cfg(path, notes)), tuple(notes.lines))


def _of_cfg(path: str, notes: _Notes) -> list[FlowStep]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    with parsing("not a configuration", OptionError, location=path):
        parser.read_string(Path(path).read_text(encoding="utf-8"))
    head = next((name for name in ("onecc", "one-build") if name in parser), None)
    if head is None:
        raise OptionError("the section [onecc] is missing", location=path)
    wanted = [name for name, value in parser[head].items() if value.strip().lower() in _TRUE]
    level = parser[head].get("include", "").split()
    for name in wanted:
        if name not in _ORDER:
            raise OptionError(f"[{head}] asks for {name!r}, which is not a step", location=path)
        if name not in parser:
            raise OptionError(f"the section [{name}] is missing", location=path)
    if target := parser.get("backend", "target", fallback=""):
        notes.add(f"[backend] asks for the target {target!r}; compiling for {notes.target}")
    if "Environment" in parser:
        notes.add("[Environment] applies to the commands of onecc and is ignored here")
    return [_step(name, dict(parser[name]), notes, level) for name in _ORDER if name in wanted]


def read_workflow(path: str, *, target: str = "npu-256") -> Flow:
    """The flow of a workflow file: its workflows, each after those that it names. Raises as :func:`read_cfg`."""
    with parsing("not a workflow", OptionError, location=path):
        document = json.loads(Path(path).read_bytes())
    names = document.get("workflows") if isinstance(document, dict) else None
    if not isinstance(names, list) or not names:
        raise OptionError("the list of workflows is missing", location=path)
    notes = _Notes(target)
    steps: list[FlowStep] = []
    for name in _ordered(names, document, path):
        steps += _workflow(name, document[name], path, notes)
    return Flow(tuple(steps), tuple(notes.lines))


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _ordered(names: list[Any], document: Mapping[str, Any], path: str) -> list[str]:
    """Names of workflows, each behind those that it runs after."""
    before: dict[str, list[str]] = {}
    for name in names:
        if not isinstance(name, str) or not isinstance(document.get(name), dict):
            raise OptionError(f"the workflow {name!r} is missing", location=path)
        after = document[name].get("run-after", [])
        if not _is_names(after):
            raise OptionError(f"run-after of {name!r} is {after!r}, not a list of names", location=path)
        unknown = [item for item in after if item not in names]
        if unknown:
            raise OptionError(f"{name!r} runs after {unknown[0]!r}, which is not a workflow", location=path)
        before[name] = list(after)
    found: list[str] = []
    while len(found) < len(before):
        ready = [name for name in before if name not in found and all(item in found for item in before[name])]
        if not ready:
            left = ", ".join(name for name in before if name not in found)
            raise OptionError(f"workflows depend on each other in a cycle: {left}", location=path)
        found.append(ready[0])
    return found


def _workflow(name: str, entry: Mapping[str, Any], path: str, notes: _Notes) -> list[FlowStep]:
    has_steps, reference = "steps" in entry, entry.get("cfg-reference")
    if has_steps == (reference is not None):
        raise OptionError(f"workflow {name!r} must have either steps or a cfg-reference", location=path)
    if reference is not None:
        if not isinstance(reference, dict) or not isinstance(reference.get("path"), str):
            raise OptionError(f"the cfg-reference of {name!r} has no path", location=path)
        file = str(reference["path"])
        return _of_cfg(file if os.path.exists(file) else os.path.join(os.path.dirname(path), file), notes)
    if not _is_names(entry["steps"]):
        raise OptionError(f"steps of workflow {name!r} are {entry['steps']!r}, not a list of names", location=path)
    made = []
    for label in entry["steps"]:
        step = entry.get(label)
        command = step.get("one-cmd") if isinstance(step, dict) else None
        if not isinstance(step, dict) or not isinstance(command, str):
            raise OptionError(f"step {label!r} of workflow {name!r} has no one-cmd", location=path)
        given = step.get("commands", {})
        if not isinstance(given, dict):
            raise OptionError(f"commands of step {label!r} are {given!r}, not a table", location=path)
        options = {str(key): str(value) for key, value in given.items()}
        made.append(_step(command, options, notes, []))
    return made


def _step(name: str, options: Options, notes: _Notes, level: list[str]) -> FlowStep:
    if name.startswith("one-import") and name not in ("one-import", "one-import-tflite"):
        raise UnsupportedError(
            f"{name} imports from a framework, which is not supported",
            hint="convert the model to .tflite or .circle first, and remove the step",
        )
    if name not in _MAKERS:
        raise OptionError(f"there is no step {name!r}", hint=f"steps are {', '.join(_MAKERS)}")
    return _MAKERS[name](name, options, notes, level)


def _paths(name: str, options: Options) -> tuple[str, str]:
    for key in ("input_path", "output_path"):
        if key not in options:
            raise OptionError(f"{key} of {name} is missing")
    return options["input_path"], options["output_path"]


def _simple(command: str, *words: str) -> Callable[[str, Options, _Notes, list[str]], FlowStep]:
    def make(name: str, options: Options, notes: _Notes, level: list[str]) -> FlowStep:
        source, output = _paths(name, options)
        return FlowStep(name, command, (*words, source, "-o", output), (source,), (output,))

    return make


def _optimize(name: str, options: Options, notes: _Notes, level: list[str]) -> FlowStep:
    from odc_mlir.transforms.circle.rewrites.table import rules

    source, output = _paths(name, options)
    known, flags = rules(), []
    for key, value in options.items():
        rewrite = key.replace("-", "_")
        if rewrite in _SILENT or value.strip().lower() not in _TRUE:
            continue
        if rewrite in _LAYOUT:
            flags += [] if "--io-layout" in flags else ["--io-layout", "nhwc"]
        elif rewrite in known:
            flags.append(f"--{rewrite}")
        elif rewrite not in ("all", "O1"):
            notes.add(f"{name}: {key} is not supported; see docs/optimizing.md")
    asked_for = "O1" in level or any(options.get(key, "").strip().lower() in _TRUE for key in ("all", "O1"))
    if asked_for or not any(flag[2:] in known for flag in flags):
        flags.insert(0, "--O1")
    return FlowStep(name, "odc-optimize", (source, "-o", output, *flags), (source,), (output,))


_SCHEMES = {"uint8": "uint8", "int16": "int16"}
_QUANTIZE = frozenset(
    {"input_data", "input_data_format", "quantized_dtype", "granularity", "input_type", "output_type", "quant_config"}
)
_RANGES = {"percentile": "percentile", "moving_average": "moving-average"}


def _quantize(name: str, options: Options, notes: _Notes, level: list[str]) -> FlowStep:
    source, output = _paths(name, options)
    dtype = options.get("quantized_dtype", "uint8")
    if dtype not in _SCHEMES:
        raise UnsupportedError(f"quantized_dtype of {name} is {dtype!r}", hint=f"use one of {', '.join(_SCHEMES)}")
    words = [source, "-o", output, "--scheme", _SCHEMES[dtype], "--no-help", "--allow-accuracy-loss"]
    reads = [source]
    per_channel = options.get("granularity", "layer" if dtype == "uint8" else "channel") == "channel"
    words += ["--granularity", "channel" if per_channel else "tensor"]
    words += ["--io", "quantized"]
    for key, flag in (("input_type", "--input-type"), ("output_type", "--output-type")):
        if key in options and options[key] != dtype:
            words += [flag, "float" if options[key] == "float32" else options[key]]
    for key, flag in (("input_data", "--calibration"), ("quant_config", "--mixed")):
        if key in options:
            words += [flag, options[key]]
            reads.append(options[key])
    if options.get("mode") in _RANGES:
        words += ["--ranges", _RANGES[options["mode"]]]
    for key in options:
        if key not in _QUANTIZE | _SILENT | {"mode"}:
            notes.add(f"{name}: {key} is not supported; see odc-quantize --help")
    return FlowStep(name, "odc-quantize", tuple(words), tuple(reads), (output,))


def _resize(name: str, options: Options, notes: _Notes, level: list[str]) -> FlowStep:
    source, output = _paths(name, options)
    words = ("resize", source, "-o", output, "--shapes", options.get("input_shapes", ""))
    return FlowStep(name, "odc-circle", words, (source,), (output,))


def _command_paths(name: str, options: Options) -> tuple[str, str | None]:
    """What a backend's own command line reads and writes: ``-o OUT IN``, or the keys of a target."""
    with parsing(f"the command of {name} cannot be split into words", OptionError):
        words = shlex.split(options.get("command", ""))
    output = options.get("o") or options.get("output") or options.get("output_path")
    source = options.get("input") or options.get("input_path")
    rest = []
    position = 0
    while position < len(words):
        if words[position] in ("-o", "--output") and position + 1 < len(words):
            output, position = words[position + 1], position + 2
            continue
        rest.append(words[position])
        position += 1
    source = source or next((word for word in reversed(rest) if not word.startswith("-")), None)
    if source is None:
        raise OptionError(f"{name} does not say which file it reads")
    return source, output


def _codegen(name: str, options: Options, notes: _Notes, level: list[str]) -> FlowStep:
    source, output = _command_paths(name, options)
    if output is None:
        raise OptionError(f"{name} does not say which file it writes")
    backend = options.get("backend", "")
    target = backend if backend in _targets() else notes.target
    if target != backend:
        notes.add(f"{name}: backend {backend or 'of the target'!r} is not supported; compiling for {target}")
    return FlowStep(name, "odc-compile", (source, "-o", output, "--target", target), (source,), (output,))


def _targets() -> tuple[str, ...]:
    from odc_mlir import targets

    return (*targets.names(), "cpu")


def _run(name: str, options: Options, notes: _Notes, level: list[str]) -> FlowStep:
    source, _ = _command_paths(name, options)
    return FlowStep(name, "odc-run", (source,), (source,), ())


def _partition(name: str, options: Options, notes: _Notes, level: list[str]) -> FlowStep:
    source, part = options.get("input_file") or options.get("input_path"), options.get("part_file")
    if source is None or part is None:
        raise OptionError(f"input_file and part_file of {name} are missing")
    output = options.get("work_path") or f"{Path(source).stem}.parts"
    words = ("partition", source, "--part-file", part, "-o", output)
    return FlowStep(name, "odc-circle", words, (source, part), (output,))


_IMPORT = _simple("odc-opt", "-q", "-t", "circle")
_MAKERS: Mapping[str, Callable[[str, Options, _Notes, list[str]], FlowStep]] = {
    "one-import": _IMPORT,
    "one-import-tflite": _IMPORT,
    "one-resize": _resize,
    "one-optimize": _optimize,
    "one-quantize": _quantize,
    "one-pack": _simple("odc-package", "pack"),
    "one-codegen": _codegen,
    "one-profile": _run,
    "one-infer": _run,
    "one-partition": _partition,
}
