"""Compilation of a model by a plugin in a separate process: find and run the plugin, check and rename the output."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from odc_mlir.errors import CompileError, MemoryLimitError, OdcError, OptionError, UnsupportedError, of_system
from odc_mlir.formats.circle.reader import identify, read_model
from odc_mlir.formats.kinds import ZIP
from odc_mlir.formats.outputs import beside_or_in_cache, check_output, is_in_cache, sync_folder
from odc_mlir.formats.package import PackageFiles, is_package, read_package
from odc_mlir.formats.trust import compiled_here, record
from odc_mlir.plugins import registry
from odc_mlir.plugins.foreign import WORKER, job_of, parsed, probe, unusable
from odc_mlir.plugins.isolation import STAGE, started
from odc_mlir.plugins.registry import SUFFIX, PluginSource
from odc_mlir.plugins.request import CodegenRequest, Description, Preference, Setting
from odc_mlir.plugins.target import Chosen
from odc_mlir.process_limits import Limits

__all__ = ["Description", "Limits", "Preference", "default_output", "describe", "generate"]

OUTPUT = ZIP._replace(name="a compiled model")
"""Kind of a plugin's output. Only our own packages can be distinguished from other files."""

_log = logging.getLogger(__name__)

_MODEL_EXTENSIONS = ("circle", "tflite")


def default_output(model: str | os.PathLike[str], target: str) -> Path:
    """Return the model's path with the target's extension. Use the cache if that file is in use or read-only."""
    return beside_or_in_cache(model, Path(model).with_suffix(f".{registry.extension_of(target)}"), OUTPUT)


def describe(target: str, *, directory: str | os.PathLike[str] | None = None) -> Description:
    """Return the description of the plugin for ``target``. Raises the errors of :func:`generate`."""
    (found,) = describe_all([registry.find(target, directory)])
    return _usable(found)


def describe_all(sources: Sequence[PluginSource]) -> list[Description | OdcError]:
    """Return the description of each plugin, or an error that names the plugin."""
    found = probe(Description, sources, "odc_mlir.plugins.request:describe_plugin")
    return [_checked(item, source) for item, source in zip(found, sources, strict=True)]


def _checked(found: Description | OdcError, source: PluginSource) -> Description | OdcError:
    if isinstance(found, OdcError) or found.extension == source.extension:
        return found
    return unusable(source, f"its extension is {found.extension!r}, its target has {source.extension!r}")


def _usable(found: Description | OdcError) -> Description:
    if isinstance(found, OdcError):
        raise CompileError(found.message, stage=STAGE, passing=found.passing)
    return found


def generate(
    model: str | os.PathLike[str],
    target: str,
    output: str | os.PathLike[str] | None = None,
    *,
    preference: Preference | int | str = Preference.DEFAULT,
    target_options: Mapping[str, Setting] | None = None,
    shapes: Sequence[Sequence[int] | None] = (),
    options: Mapping[str, Setting] | None = None,
    directory: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    overwrite: bool = False,
) -> Path:
    """Compile ``model`` with the plugin for ``target``. Return the path of the new file.

    ``output`` defaults to :func:`default_output`. The plugin is searched in ``directory`` first. The file is renamed
    only after it is complete and checked. A failure therefore keeps an older file. Raises OptionError for an unknown
    plugin (with the locations searched) or, without ``overwrite``, if a file of the user exists. Raises
    UnsupportedError if the plugin rejects the model, CompileError if it fails, ends, hangs, exceeds ``limits`` or
    writes no readable file.
    """
    source = registry.find(target, directory)
    wanted = Preference.of(preference)
    original = Path(model).absolute()
    if not original.exists():
        raise OptionError("there is no model file to generate code for", location=os.fspath(model))
    final = Path(output if output is not None else default_output(model, target)).absolute()
    if final.exists() and final.samefile(original):
        raise OptionError(
            "the output would overwrite the model itself", location=str(final), hint="name another output"
        )
    check_output(final, OUTPUT, overwrite=overwrite or is_in_cache(final))
    with of_system("the output cannot be written", CompileError, location=str(final.parent)):
        # On the file system of the output, so that the result can be renamed.
        folder = Path(tempfile.mkdtemp(prefix=".odc-", dir=final.parent))
    made = folder / f"output.{source.extension}"
    request = CodegenRequest(
        str(original),
        str(made),
        wanted,
        _absolute(target_options or {}),
        tuple(None if shape is None else tuple(shape) for shape in shapes),
        dict(options or {}),
    )
    try:
        said = _run(source, request, limits or Limits())
        if said.quantization is not None and not said.takes_floats and not _has_codes(original):
            _log.warning("the model is float, and %s supports only %s; quantize it first", target, said.quantization)
        _check(source, made)
        _put_in_place(made, final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return final


def _has_codes(model: Path) -> bool:
    try:
        records = read_package(model).model if is_package(model) else model
        found = read_model(records)
    except OdcError:  # only the plugin knows the format
        return True
    return any(
        graph.tensors[index].quantization is not None and graph.tensors[index].dtype not in ("float32", "float16")
        for graph in found.subgraphs
        for operator in graph.operators
        for index in operator.outputs
        if index >= 0
    )


def _absolute(options: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return ``options`` with absolute paths, since the plugin works in another folder."""
    machine = options.get("target")
    is_file = isinstance(machine, str) and machine.endswith(".toml")
    return {**options, "target": os.path.abspath(str(machine))} if is_file else dict(options)


def _run(source: PluginSource, request: CodegenRequest, limits: Limits) -> Description:
    job = {**job_of(source), "ask": None, "request": request.to_json()}
    try:
        with started(WORKER, job, limits) as result:
            answer = result()
    except CompileError as error:
        error.location = str(source)
        raise
    failure = answer["error"]
    if failure is None:
        return _usable(_checked(parsed(Description, source, answer), source))
    if failure["kind"] == "memory":
        raise MemoryLimitError(f"the plugin failed: {failure['text']}", location=str(source), stage=STAGE)
    kind = UnsupportedError if failure["kind"] == "unsupported" else CompileError
    verb = "refuses the model" if failure["kind"] == "unsupported" else "failed"
    raise kind(f"the plugin {verb}: {failure['text']}", location=str(source), stage=STAGE)


def _check(source: PluginSource, made: Path) -> None:
    def wrong(text: str) -> CompileError:
        return CompileError(f"the plugin {text}", location=str(source), stage=STAGE)

    if made.is_symlink() or not made.is_file():
        raise wrong("made no file")
    if made.stat().st_size == 0:
        raise wrong("made an empty file")
    with made.open("rb") as file:
        is_model = identify(file.read(64)) is not None
    if source.extension in _MODEL_EXTENSIONS and not is_model:
        raise wrong(f"made a file that is no .{source.extension} model")
    try:
        if is_model:
            read_model(made)
        elif is_package(made):
            record(compiled_here(read_package(made)))
    except OdcError as error:
        raise wrong(f"made a file that cannot be read: {error}") from None


def _put_in_place(temporary: Path, final: Path) -> None:
    with of_system("the file cannot be moved into place", CompileError, location=str(final)):
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(final)
        sync_folder(final.parent)


def not_for_plugins(target: str, **options: Any) -> None:
    """Raise OptionError for the first of ``options`` that is set, because plugins support none of these options."""
    for name, value in options.items():
        if value:
            raise OptionError(f"{name} does not apply to {target!r}, a plugin", hint="omit it")


def compile_by(
    plugin: Chosen,
    model: bytes,
    prefer: str,
    memory: str,
    time_limit: float | None,
    progress: Callable[[str, int, int | None], None] | None,
) -> PackageFiles:
    """Compile a Circle file with a codegen plugin in a separate process, and return the package. Raises OdcError."""
    if progress is not None:
        progress(f"compiling with {plugin.codegen}", 0, None)
    with tempfile.TemporaryDirectory(prefix="odc-plugin-") as folder:
        file = Path(folder, "model.circle")
        file.write_bytes(model)
        made = generate(
            file,
            plugin.codegen,
            Path(folder, f"made.{plugin.codegen.removesuffix(SUFFIX)}"),
            preference="default" if prefer == "performance" else f"{prefer}-first",
            target_options={"memory": memory, **({} if plugin.machine is None else {"target": plugin.machine})},
            limits=Limits() if time_limit is None else Limits(seconds=time_limit),
        )
        if not is_package(made):
            raise UnsupportedError(
                f"{plugin.codegen} makes {made.suffix} files, which are not packages and cannot run here",
                hint="write its file with odc_mlir.plugins.codegen.generate",
            )
        files = read_package(made)
        return compiled_here(replace(files, members=dict(files.members.items()), location=f"<{plugin.codegen}>"))
