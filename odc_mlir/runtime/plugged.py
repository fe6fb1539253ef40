"""Packages compiled by codegen plugins, for the Python interface."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from odc_mlir import targets
from odc_mlir.errors import OptionError, UnsupportedError
from odc_mlir.formats.package import PackageFiles, is_package, read_package
from odc_mlir.plugins.codegen import generate
from odc_mlir.plugins.registry import SUFFIX
from odc_mlir.plugins.target import Chosen, choose
from odc_mlir.process_limits import Limits


def plugin_for(target: str) -> Chosen | None:
    """Return the plugin for ``target``, None if we compile in this process; raise OptionError."""
    if target in targets.names() or target.endswith(".toml"):
        return None
    return choose(target)


def not_for_plugins(target: str, **options: Any) -> None:
    """Raise OptionError for the first of ``options`` that is set: plugins know none of them."""
    for name, value in options.items():
        if value:
            raise OptionError(f"{name} does not apply to {target!r}, a plugin", hint="omit it")


def compile_by(plugin: Chosen, model: bytes, *, prefer: str, memory: str, time_limit: float | None) -> PackageFiles:
    """Compile a Circle file with a codegen plugin, in a process of its own, and return the package; raise OdcError."""
    with TemporaryDirectory(prefix="odc-plugin-") as folder:
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
                hint="let it write its file with odc_mlir.plugins.codegen.generate",
            )
        files = read_package(made)
        return replace(files, members=dict(files.members.items()), location=f"<{plugin.codegen}>")
