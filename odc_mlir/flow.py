"""Flows: commands that build a package from a model, declared in our own file format or in ONE's.

Steps with unchanged inputs are skipped. A ``flow.toml`` has a table ``[flow]`` with the model, and a table per step.
Keys are options of the command (see docs/build.md).
"""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import escape, glob
from pathlib import Path
from typing import Any, NamedTuple

from odc_mlir import targets
from odc_mlir._version import __version__
from odc_mlir.errors import OptionError, UnsupportedError, did_you_mean, parsing
from odc_mlir.formats.cache import path_digest

STATE_KEYS = ("odc_build", "steps")

CommandRunner = Callable[[str, Sequence[str]], int]


def option_words(option: str, value: str) -> list[str]:
    """Return the words that give ``value`` to ``option``, even if ``value`` starts with a hyphen."""
    return [f"{option}={value}"] if value.startswith("-") else [option, value]


@dataclass(frozen=True)
class FlowStep:
    """One command line. ``reads`` and ``writes``: input and output files or folders of the command."""

    name: str
    command: str
    arguments: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments, with ``./`` before file names that start with a hyphen."""
        files = {*self.reads, *self.writes}
        return tuple(f"./{word}" if word.startswith("-") and word in files else word for word in self.arguments)

    @property
    def text(self) -> str:
        """The command line for a shell."""
        return shlex.join([self.command, *self.words])


@dataclass(frozen=True)
class Flow:
    """Steps of a flow in order. ``notes`` name parts of the file that have no equivalent."""

    steps: tuple[FlowStep, ...]
    notes: tuple[str, ...] = ()


def key_of(step: FlowStep) -> str:
    """Return the cache key of ``step``: command line, this version, and contents of inputs."""
    parts = [__version__, step.text, *(f"{path} {path_digest(path)}" for path in step.reads)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def is_done(step: FlowStep, state: Mapping[str, Any]) -> bool:
    """Return whether ``state`` records this step with the current key and outputs."""
    entry = state.get(step.text)
    if not isinstance(entry, dict) or entry.get("key") != key_of(step):
        return False
    written = entry.get("writes")
    return isinstance(written, dict) and all(
        written.get(path) is not None and written[path] == path_digest(path) for path in step.writes
    )


def read_state(path: str) -> dict[str, Any]:
    """Read the completed steps in a state file. Return an empty mapping for a missing or unreadable file."""
    try:
        document = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return {}
    steps = document.get("steps") if isinstance(document, dict) and set(STATE_KEYS) <= document.keys() else None
    return steps if isinstance(steps, dict) else {}


def state_document(steps: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a state file."""
    return {"odc_build": __version__, "steps": dict(steps)}


def run(
    flow: Flow,
    state: dict[str, Any],
    call: CommandRunner,
    keep: Callable[[Mapping[str, Any]], None],
    *,
    force: bool = False,
) -> Iterator[tuple[FlowStep, bool]]:
    """Run the steps that are not done. Yield steps before execution, and whether the step runs.

    ``call`` runs a command and returns the exit code. ``keep`` receives the new state after each step. Raises
    OptionError if a step fails or does not write all outputs.
    """
    for step in flow.steps:
        needed = force or not is_done(step, state)
        yield step, needed
        if not needed:
            continue
        state.pop(step.text, None)
        for path in step.writes:
            if parent := os.path.dirname(path):
                os.makedirs(parent, exist_ok=True)
        code = call(step.command, step.words)
        if code != 0:
            raise OptionError(f"step {step.name!r} failed with exit code {code}", hint=step.text)
        missing = [path for path in step.writes if path_digest(path) is None]
        if missing:
            raise OptionError(f"step {step.name!r} did not write {missing[0]!r}", hint=step.text)
        state[step.text] = {"key": key_of(step), "writes": {path: path_digest(path) for path in step.writes}}
        keep(state)


class _StepCommand(NamedTuple):
    command: str
    words: tuple[str, ...]
    output: str
    suffix: str
    is_last: bool = False  # no later step reads its output
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


class StepOption(NamedTuple):
    """An option of a command: flag, and whether the value names a file that the command reads or writes.

    ``suffix``: suffix of files, but not of other values. ``is_prefix``: file names are the value, a dot and a number.
    """

    flag: str
    is_read: bool = False
    is_written: bool = False
    suffix: str = ""
    is_prefix: bool = False

    def is_path(self, text: str, path: str) -> bool:
        """Return whether the option value ``text``, as the path ``path``, names a file. ``npu-256`` does not."""
        if text in ("", "-") or not (self.is_read or self.is_written):
            return False
        return text.endswith(self.suffix) or (bool(Path(text).suffix) and os.path.isfile(path))


StepOptions = Callable[[str, Sequence[str]], Mapping[str, StepOption]]


def read_toml(path: str, options_of: StepOptions) -> Flow:
    """Read the flow in a TOML file. Raises OptionError for an invalid flow.

    ``options_of`` returns the options of a command and the first words, by names with hyphens.
    """
    with parsing("not a flow", OptionError, location=path):
        document = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
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
        step = _step(name, kind, options, options_of(kind.command, kind.words), source, stem, base)
        steps.append(step)
        if name == "compile":
            package = step.writes[0]
        elif not kind.is_last:
            model = step.writes[0]
    return Flow(tuple(steps))


def _step(
    name: str,
    kind: _StepCommand,
    options: Mapping[str, Any],
    known: Mapping[str, StepOption],
    source: str,
    stem: str,
    base: str,
) -> FlowStep:
    given = {key.replace("_", "-"): value for key, value in options.items()}
    for key in ("input", "output"):
        if not isinstance(given.get(key, ""), str):
            raise OptionError(f"{key!r} of step {name!r} is {given[key]!r}, not a path")
    source = os.path.join(base, given.pop("input")) if "input" in given else source
    output = os.path.join(base, given.pop("output")) if "output" in given else f"{stem}{kind.suffix}"
    words, reads, writes = [*kind.words, source, kind.output, output], [source], [output]
    for key, value in given.items():
        option = known.get(key, StepOption(f"--{key}"))
        for item in value if isinstance(value, list) else [value]:
            if item is False:
                continue
            if item is True:
                words.append(option.flag)
                continue
            if isinstance(item, dict | list):
                raise OptionError(f"{key!r} of step {name!r} has the value {item!r}, expected a string or number")
            text = str(item)
            if option.is_path(text, beside := os.path.join(base, text)):
                text = beside
                if option.is_read:
                    reads += sorted(glob(f"{escape(text)}.[0-9]*")) if option.is_prefix else [text]
                elif not option.is_prefix:
                    writes.append(text)
            words += [option.flag, text] if text in (*reads, *writes) else option_words(option.flag, text)
    return FlowStep(name, kind.command, tuple(words), tuple(reads), tuple(writes))


Options = Mapping[str, str]
_ORDER = (
    *("one-import", "one-import-tf", "one-import-tflite", "one-import-bcq", "one-import-onnx", "one-import-pytorch"),
    *("one-resize", "one-optimize", "one-quantize", "one-pack", "one-codegen", "one-profile", "one-partition"),
    "one-infer",
)
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
# Settings of tools that do not affect the result.
_SILENT = frozenset({"input_path", "output_path", "verbose", "save_intermediate", "generate_profile_data"})
_SILENT |= {"mute_warnings", "disable_validation"}
_LAYOUT = frozenset({"nchw_to_nhwc_input_shape", "nchw_to_nhwc_output_shape"})


def _is_on(key: str, value: str) -> bool:
    if value.strip().lower() not in (*_TRUE, *_FALSE, ""):
        raise OptionError(f"{key} is {value!r}", hint="use True or False")
    return value.strip().lower() in _TRUE


class _Notes:
    def __init__(self, target: str) -> None:
        self.lines: list[str] = []
        self.target = target

    def add(self, text: str) -> None:
        if text not in self.lines:
            self.lines.append(text)


def read_cfg(path: str, *, target: str = "npu-256") -> Flow:
    """Read a configuration as a flow. ``target`` replaces an unsupported backend of ``one-codegen``.

    Raises OptionError for an invalid configuration, and UnsupportedError for steps that have no equivalent.
    """
    notes = _Notes(target)
    return Flow(tuple(_of_cfg(path, notes)), tuple(notes.lines))


def _of_cfg(path: str, notes: _Notes) -> list[FlowStep]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    with parsing("not a configuration", OptionError, location=path):
        parser.read_string(Path(path).read_text(encoding="utf-8-sig"))
    head = next((name for name in ("onecc", "one-build") if name in parser), None)
    if head is None:
        raise OptionError("the section [onecc] is missing", location=path)
    wanted = [name for name, value in parser[head].items() if name != "include" and _is_on(name, value)]
    includes = parser[head].get("include", "").split()
    for name in wanted:
        if name not in _ORDER:
            raise OptionError(f"[{head}] asks for {name!r}, which is not a step", location=path)
        if name not in parser:
            raise OptionError(f"the section [{name}] is missing", location=path)
    if target := parser.get("backend", "target", fallback=""):
        notes.add(f"[backend] asks for the target {target!r}; compiling for {notes.target}")
    if "Environment" in parser:
        notes.add("[Environment] applies to the commands of onecc and is ignored here")
    # As in ONE, an option with an empty value is absent.
    given = {name: {key: value for key, value in parser[name].items() if value.strip()} for name in wanted}
    return [_one_step(name, given[name], notes, includes) for name in _ORDER if name in wanted]


def read_workflow(path: str, *, target: str = "npu-256") -> Flow:
    """Read the workflows of a file as a flow, ordered by dependencies. Raises the errors of :func:`read_cfg`."""
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
        made.append(_one_step(command, options, notes, []))
    return made


def _one_step(name: str, options: Options, notes: _Notes, includes: list[str]) -> FlowStep:
    if name.startswith("one-import") and name not in ("one-import", "one-import-tflite"):
        hint = "convert the model to .tflite or .circle first, and remove the step"
        raise UnsupportedError(f"{name} imports from a framework, which is not supported", hint=hint)
    if name not in _MAKERS:
        raise OptionError(f"there is no step {name!r}", hint=f"steps are {', '.join(_MAKERS)}")
    return _MAKERS[name](name, options, notes, includes)


def _paths(name: str, options: Options) -> tuple[str, str]:
    for key in ("input_path", "output_path"):
        if key not in options:
            raise OptionError(f"{key} of {name} is missing")
    return options["input_path"], options["output_path"]


def _simple(command: str, *words: str) -> Callable[[str, Options, _Notes, list[str]], FlowStep]:
    def make(name: str, options: Options, notes: _Notes, includes: list[str]) -> FlowStep:
        source, output = _paths(name, options)
        return FlowStep(name, command, (*words, source, "-o", output), (source,), (output,))

    return make


def _optimize(name: str, options: Options, notes: _Notes, includes: list[str]) -> FlowStep:
    from odc_mlir.transforms.circle.rewrites.table import rules

    source, output = _paths(name, options)
    known, flags = rules(), []
    for key, value in options.items():
        rewrite = key.replace("-", "_")
        if rewrite in _SILENT or not (_is_on(key, value) if rewrite in known else value.strip().lower() in _TRUE):
            continue
        if rewrite in _LAYOUT:
            flags += [] if "--io-layout" in flags else ["--io-layout", "nhwc"]
        elif rewrite in known:
            flags.append(f"--{rewrite.replace('_', '-')}")
        elif rewrite not in ("all", "O1"):
            notes.add(f"{name}: {key} is not supported; see docs/optimizing.md")
    asked_for = "O1" in includes or any(options.get(key, "").strip().lower() in _TRUE for key in ("all", "O1"))
    if asked_for or flags in ([], ["--io-layout", "nhwc"]):
        flags.insert(0, "--O1")
    return FlowStep(name, "odc-optimize", (source, "-o", output, *flags), (source,), (output,))


# Values of one-quantize's keys that need no option, and our options for the other values.
_SCHEMES = ("uint8", "int16")
_VALUES = {
    "input_dtype": ("float32",),
    "input_model_dtype": ("float32",),
    "quantized_dtype": _SCHEMES,
    "granularity": ("layer", "channel"),
    "mode": ("percentile", "moving_average"),
    "input_type": (*_SCHEMES, "float32"),
    "output_type": (*_SCHEMES, "float32"),
}
_FILES = {"input_data": "--calibration", "test_data": "--evaluation", "quant_config": "--mixed"}
_RANGE_OPTIONS = {
    "percentile": {"min_percentile": "low", "max_percentile": "high"},
    "moving_average": {"moving_avg_batch": "batch", "moving_avg_const": "constant"},
}
_NOT_HERE = frozenset(
    {"tensor_name", "scale", "zero_point", "src_tensor_name", "dst_tensor_name", "ampq_qerror_ratio"}
    | {"force_quantparam", "copy_quantparam", "fake_quantize", "requantize", "TF-style_maxpool", "evaluate_result"}
    | {"ampq", "ampq_algorithm", "ampq_bisection_visq", "bisection_type", "u8_layernorm_with_s16_variance"}
    | {"u8_softmax_with_s16_sub_exp", "print_mae", "print_mape", "print_mpeir", "print_mse"}
    | {"print_top1_match", "print_top5_match"}
)


def _quantize(name: str, options: Options, notes: _Notes, includes: list[str]) -> FlowStep:
    source, output = _paths(name, options)
    numbers = {key for names in _RANGE_OPTIONS.values() for key in names}
    known = {*_VALUES, *_FILES, *numbers, *_NOT_HERE, *_SILENT, "input_data_format"}
    for key, value in options.items():
        if key not in known:
            raise OptionError(f"{name} has no key {key!r}", hint=did_you_mean(key, known).strip() or None)
        if value not in (allowed := _VALUES.get(key, (value,))):
            raise OptionError(f"{key} of {name} is {value!r}", hint=f"use one of {', '.join(allowed)}")
        if key in _NOT_HERE and value.strip().lower() not in _FALSE:
            notes.add(f"{name}: {key} is not supported; see odc-quantize --help")
    dtype = options.get("quantized_dtype", "uint8")
    words = [source, "-o", output, "--scheme", dtype, "--no-help", "--allow-accuracy-loss"]
    reads = [source]
    per_channel = options.get("granularity", "layer" if dtype == "uint8" else "channel") == "channel"
    words += ["--granularity", "channel" if per_channel else "tensor", "--io", "quantized"]
    for key, flag in (("input_type", "--input-type"), ("output_type", "--output-type")):
        if key in options and options[key] != dtype:
            words += [flag, "float" if options[key] == "float32" else options[key]]
    for key, flag in _FILES.items():
        if key in options:
            words += [flag, options[key]]
            reads.append(options[key])
    if "input_data" not in options:
        words += ["--calibration", "random"]
    mode = options.get("mode", "percentile")
    chosen = {new: options[key] for key, new in _RANGE_OPTIONS[mode].items() if key in options}
    if chosen or "mode" in options:
        words += ["--ranges", mode.replace("_", "-")]
    for new, value in chosen.items():
        words += ["--range-option", f"{new}={value}"]
    return FlowStep(name, "odc-quantize", tuple(words), tuple(reads), (output,))


def _resize(name: str, options: Options, notes: _Notes, includes: list[str]) -> FlowStep:
    source, output = _paths(name, options)
    words = ("resize", source, "-o", output, "--shapes", options.get("input_shapes", ""))
    return FlowStep(name, "odc-circle", words, (source,), (output,))


def _command_paths(name: str, options: Options) -> tuple[str, str | None]:
    """Return the input and the output of code generation, from the command line ``-o OUT IN`` or option keys."""
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
        raise OptionError(f"{name} has no input file")
    return source, output


def _codegen(name: str, options: Options, notes: _Notes, includes: list[str]) -> FlowStep:
    source, output = _command_paths(name, options)
    if output is None:
        raise OptionError(f"{name} has no output file")
    backend = options.get("backend", "")
    target = backend if backend in (*targets.names(), "cpu") else notes.target
    if backend and target != backend:
        notes.add(f"{name}: backend {backend!r} is not supported; compiling for {target}")
    return FlowStep(name, "odc-compile", (source, "-o", output, "--target", target), (source,), (output,))


def _run(name: str, options: Options, notes: _Notes, includes: list[str]) -> FlowStep:
    source, _ = _command_paths(name, options)
    return FlowStep(name, "odc-run", (source,), (source,), ())


def _partition(name: str, options: Options, notes: _Notes, includes: list[str]) -> FlowStep:
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
