"""Where plugins are: a folder given by the caller, folders of an environment variable, then what is installed.

There are three kinds, each an entry-point group: *codegen* plugins, which compile; *devices*, which run what was
compiled; *targets*, which describe for what. A folder offers ``<extension>-gen.py``, a file with a function
``create_codegen``, and the entry points of packages that were installed into it. Our own targets are entries of the
same groups. Nothing of a plugin is imported here, but by :func:`load_entry`.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odc_mlir._version import __version__
from odc_mlir.errors import OptionError

GROUP, DEVICES, TARGETS = "odc_mlir.codegen", "odc_mlir.devices", "odc_mlir.targets"
PATH_VARIABLE = "ODC_PLUGIN_PATH"
FACTORY = "create_codegen"
SUFFIX = "-gen"
OURS = "odc-mlir"
_TARGET = re.compile(r"[a-z0-9][a-z0-9_]*" + SUFFIX)
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")

OWN_ENTRIES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        GROUP: {
            "npu-gen": "odc_mlir.plugins.npu_gen:create_codegen",
            "cpu-gen": "odc_mlir.plugins.cpu_gen:create_codegen",
        },
        DEVICES: {
            "npu": "odc_mlir.runtime.devices.simulator:open_device",
            "cpu": "odc_mlir.runtime.devices.native:open_device",
        },
        TARGETS: {
            "npu": "odc_mlir.plugins.own_targets:npu",
            "cpu": "odc_mlir.plugins.own_targets:cpu",
        },
    }
)
"""What this package declares itself, as in pyproject.toml: it is there when it is run from its sources as well."""


@dataclass(frozen=True, slots=True)
class PluginSource:
    """Where a plugin was found.

    ``file``: the Python file that holds ``create_codegen``, or None for an entry point, ``reference`` then being its
    ``module:function`` and ``folder`` where its package was installed (an editable one, its metadata alone).
    """

    target: str
    origin: str
    file: str | None = None
    reference: str | None = None
    folder: str | None = None

    @property
    def extension(self) -> str:
        """Of the files that a codegen plugin makes, without a dot."""
        return extension_of(self.target)

    @property
    def is_ours(self) -> bool:
        """Whether it is part of this package."""
        return (self.reference or "").startswith("odc_mlir.")


def extension_of(target: str) -> str:
    """``tvn-gen`` -> ``tvn``; raises OptionError for a string of another form."""
    if not _TARGET.fullmatch(target):
        raise OptionError(
            f"the codegen target is {target!r}, expected <extension>{SUFFIX}, such as npu{SUFFIX}",
            hint="letters are lower-case",
        )
    return target.removesuffix(SUFFIX)


def find(target: str, directory: str | os.PathLike[str] | None = None) -> PluginSource:
    """The first plugin for ``target``; raises OptionError that lists what was searched."""
    extension_of(target)
    searched = []
    for where, plugins in _places(directory):
        known = list(plugins)
        for plugin in known:
            if plugin.target == target:
                return plugin
        names = ", ".join(sorted({plugin.target for plugin in known}))
        searched.append(f"{where} ({names or 'no plugin'})")
    raise OptionError(
        f"there is no codegen plugin {target!r}",
        hint=f"searched: {'; '.join(searched)}; install one, or name its folder in {PATH_VARIABLE}",
    )


def available(directory: str | os.PathLike[str] | None = None) -> list[PluginSource]:
    """Every plugin that :func:`find` can find, in the order of their names."""
    found: dict[str, PluginSource] = {}
    for _, plugins in _places(directory):
        for plugin in plugins:
            found.setdefault(plugin.target, plugin)
    return [found[target] for target in sorted(found)]


def _places(directory: str | os.PathLike[str] | None) -> Iterator[tuple[str, Iterable[PluginSource]]]:
    """Each place with what it offers, in order of preference."""
    if directory is not None:
        yield f"the folder {os.fspath(directory)}", _in_folder(Path(directory))
    folders = [folder for folder in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if folder]
    if not folders:
        yield f"{PATH_VARIABLE}, which is not set", ()
    for folder in folders:
        yield f"the folder {folder} of {PATH_VARIABLE}", _in_folder(Path(folder))
    yield f"entry points of the group {GROUP}", _installed(GROUP, _TARGET)


def _in_folder(folder: Path) -> Sequence[PluginSource]:
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".py" and _TARGET.fullmatch(path.stem))
    except OSError:
        return []
    # A plugin is loaded by a process that works elsewhere.
    plugins = [PluginSource(path.stem, str(path), file=os.path.abspath(path)) for path in files]
    return plugins + list(_in_packages(folder, GROUP, _TARGET))


def entries(group: str) -> list[PluginSource]:
    """The entries of DEVICES or TARGETS, by name; one of another package comes before ours of the same name."""
    found: dict[str, PluginSource] = {}
    folders = [Path(folder) for folder in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if folder]
    for known in (*(_in_packages(folder, group, _NAME) for folder in folders), _installed(group, _NAME)):
        for entry in known:
            found.setdefault(entry.target, entry)
    return [found[name] for name in sorted(found)]


def load_entry(source: PluginSource) -> Any:
    """What the function gives that an entry of DEVICES or TARGETS names; raises OptionError, naming the entry."""
    where, _, name = (source.reference or "").partition(":")
    if source.folder is not None and source.folder not in sys.path and not source.is_ours:
        sys.path.append(source.folder)  # behind all else: it stands in for nothing
    try:
        return getattr(importlib.import_module(where), name)()
    except OptionError:
        raise
    except Exception as error:  # whatever another package does, it is its fault
        text = " ".join(str(error).split())
        raise OptionError(
            f"{source.target!r} of {source.origin} cannot be used: {type(error).__name__}: {text}"
        ) from error


Declared = tuple[tuple[str, PluginSource], ...]
"""(group, entry) of entry points, in the order in which Python would find them."""


def _in_packages(folder: Path, group: str, form: re.Pattern[str]) -> Iterator[PluginSource]:
    """What packages declare that were installed into ``folder``."""
    declared = _declared(metadata.distributions(path=[str(folder)]), os.path.abspath(folder))
    return _by_name(declared, group, form)


def _installed(group: str, form: re.Pattern[str]) -> Iterator[PluginSource]:
    """What all installed packages declare, and we ourselves."""
    found = {entry.target: entry for entry in _by_name(_declared_in(_import_folders()), group, form)}
    for name, reference in OWN_ENTRIES[group].items():
        found.setdefault(name, PluginSource(name, f"{OURS} {__version__} ({reference})", reference=reference))
    yield from (found[name] for name in sorted(found))


def _import_folders() -> tuple[tuple[str, int], ...]:
    """Where Python looks for packages, each folder with the time of its last change: what is installed comes by one."""
    return tuple((folder, _changed(folder or os.curdir)) for folder in sys.path)


def _changed(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _declared_in(_folders: tuple[tuple[str, int], ...]) -> Declared:
    """What all installed packages declare: hundreds of files, read again only when a folder has changed."""
    return _declared(metadata.distributions(), None)


def _declared(distributions: Iterable[metadata.Distribution], folder: str | None) -> Declared:
    """The entry points of our groups; ``folder``: where the packages were installed, None to ask each."""
    found = []
    for distribution in distributions:
        for entry in distribution.entry_points:
            if entry.group not in OWN_ENTRIES:
                continue
            name = distribution.metadata["Name"]
            origin = f"{name} {distribution.version} ({entry.value})"
            place = folder or os.path.abspath(str(distribution.locate_file("")))
            found.append((entry.group, PluginSource(entry.name, origin, reference=entry.value, folder=place)))
    return tuple(found)


def _by_name(declared: Declared, group: str, form: re.Pattern[str]) -> Iterator[PluginSource]:
    """The entry points of a group, by name. Of two with the same name the first one counts, which Python would import;
    but ours come after all others: a driver for an NPU takes the place of the simulator."""
    found: dict[str, PluginSource] = {}
    for known, entry in declared:
        if known != group or not form.fullmatch(entry.target):
            continue
        if entry.target not in found or found[entry.target].is_ours:
            found[entry.target] = entry
    yield from (found[name] for name in sorted(found))
