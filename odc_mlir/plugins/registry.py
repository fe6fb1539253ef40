"""Discovery of plugins: codegen plugins (compilers), devices (drivers) and targets (descriptions of hardware).

Each kind is an entry-point group. A folder may also hold ``<extension>-gen.py``, a file with a function
``create_codegen``. This module reads metadata and imports nothing.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from odc_mlir._version import __version__
from odc_mlir.errors import OptionError

GROUP, DEVICES, TARGETS = "odc_mlir.codegen", "odc_mlir.devices", "odc_mlir.targets"
UNIVERSES = "xdsl.universe"  # xDSL's own group
PATH_VARIABLE = "ODC_PLUGIN_PATH"
FACTORY = "create_codegen"
SUFFIX = "-gen"
OURS = "odc-mlir"
_TARGET = re.compile(r"[a-z0-9][a-z0-9_]*" + SUFFIX)
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")
_ANY_NAME = re.compile(".*", re.DOTALL)
_METADATA_FILES = ("entry_points.txt", "METADATA", "PKG-INFO")
_MAX_METADATA_BYTES = 4 << 20

OWN_ENTRIES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        GROUP: {"npu-gen": "odc_mlir.plugins.own:NpuCodegen", "cpu-gen": "odc_mlir.plugins.own:CpuCodegen"},
        DEVICES: {
            "npu": "odc_mlir.runtime.devices.simulator:SimulatorDevice",
            "cpu": "odc_mlir.runtime.devices.native:NativeDevice",
        },
        TARGETS: {"npu": "odc_mlir.plugins.own:npu", "cpu": "odc_mlir.plugins.own:cpu"},
        UNIVERSES: {},
    }
)
"""Our own plugins, by group and name."""
_FORMS = MappingProxyType({GROUP: _TARGET, DEVICES: _NAME, TARGETS: _NAME, UNIVERSES: _ANY_NAME})


@dataclass(frozen=True, slots=True)
class PluginSource:
    """Location of a plugin. ``target`` is the name in ``group``.

    ``file``: the Python file with ``create_codegen``, or None for an entry point. For an entry point, ``reference`` is
        ``module:function`` and ``folder`` the folder of the package (if editable, of the metadata).
    """

    target: str
    origin: str
    file: str | None = None
    reference: str | None = None
    folder: str | None = None
    group: str = GROUP

    @property
    def extension(self) -> str:
        """The file extension of a codegen plugin's output, with no dot."""
        return extension_of(self.target)

    @property
    def is_ours(self) -> bool:
        """True if the plugin is part of this package."""
        return self.file is None and self.folder is None

    def __str__(self) -> str:
        return f"{self.target} from {self.origin}"


def extension_of(target: str) -> str:
    """Return ``tvn`` for ``tvn-gen``. Raises OptionError if the suffix ``-gen`` is missing."""
    if not _TARGET.fullmatch(target):
        raise OptionError(
            f"the codegen target is {target!r}, expected <extension>{SUFFIX}, such as npu{SUFFIX}",
            hint="letters are lower-case",
        )
    return target.removesuffix(SUFFIX)


def find(target: str, directory: str | os.PathLike[str] | None = None) -> PluginSource:
    """Return the first codegen plugin for ``target``. Raises an OptionError that lists the searched locations."""
    extension_of(target)
    searched = []
    for where, plugins in _places(directory):
        known = list(plugins)
        for plugin in known:
            if plugin.target == target:
                return plugin
        names = ", ".join(sorted({plugin.target for plugin in known}))
        searched.append(f"{where} ({names or 'no plugin'})")
    hint = f"searched: {'; '.join(searched)}; install one, or name its folder in {PATH_VARIABLE}"
    raise OptionError(f"there is no codegen plugin {target!r}", hint=hint)


def available(directory: str | os.PathLike[str] | None = None) -> list[PluginSource]:
    """Return every plugin that :func:`find` can find, sorted by name."""
    found: dict[str, PluginSource] = {}
    for _, plugins in _places(directory):
        for plugin in plugins:
            found.setdefault(plugin.target, plugin)
    return [found[target] for target in sorted(found)]


def entries(group: str) -> list[PluginSource]:
    """Return the entries of DEVICES, TARGETS or UNIVERSES, sorted by name.

    A device of another package replaces our device of the same name, as a driver replaces a simulator. Targets do not.
    """
    form = _FORMS[group]
    others = [entry for folder in _variable_folders() for entry in _in_packages(folder, group, form)]
    others += _installed(group, form)
    known = [*others, *own_entries(group)] if group == DEVICES else [*own_entries(group), *others]
    found: dict[str, PluginSource] = {}
    for entry in known:  # universes of several packages may have the same name
        found.setdefault(str(entry) if group == UNIVERSES else entry.target, entry)
    return [found[name] for name in sorted(found)]


def own_entries(group: str) -> list[PluginSource]:
    """Return our own plugins of ``group``."""
    return [
        PluginSource(name, f"{OURS} {__version__} ({reference})", reference=reference, group=group)
        for name, reference in OWN_ENTRIES[group].items()
    ]


def unreadable_metadata() -> Iterator[tuple[Path, str, bool]]:
    """Yield the metadata folders that Python cannot parse, the reason, and whether the folders mention our groups."""
    from importlib import metadata  # slow to import

    for folder in (*_variable_folders(), *sys.path):
        for info in map(Path, _metadata_folders(folder or os.curdir)):
            concerns_us = False
            try:
                texts = [_read(info / name) or b"" for name in _METADATA_FILES]
                concerns_us = b"odc_mlir." in texts[0]
                found = metadata.Distribution.at(info)
                if not (found.entry_points is not None and found.metadata["Name"] and found.version):
                    yield info, "it has no name or no version", concerns_us
            except Exception as error:  # its type depends on the malformed line
                yield info, f"its metadata cannot be parsed ({type(error).__name__}: {error})", concerns_us


def ignored_entries() -> Iterator[tuple[PluginSource, str]]:
    """Yield entries of other packages that no search returns, with the reason: a malformed name, or a name of ours."""
    for folder in (*_variable_folders(), *sys.path):
        for group, own in OWN_ENTRIES.items():
            for entry in _in_packages(folder or os.curdir, group, _ANY_NAME):
                if not _FORMS[group].fullmatch(entry.target):
                    expected = f"<extension>{SUFFIX}" if group == GROUP else "a name"
                    yield (
                        entry,
                        f"its name is {entry.target!r}, expected {expected} of lower-case letters, digits and _",
                    )
                elif entry.target in own and group != DEVICES:
                    yield entry, f"{entry.target!r} is a name of {OURS}"


def _variable_folders() -> list[str]:
    return [folder for folder in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if folder]


def _places(directory: str | os.PathLike[str] | None) -> Iterator[tuple[str, Iterable[PluginSource]]]:
    if directory is not None:
        yield f"the folder {os.fspath(directory)}", _in_folder(Path(directory))
    folders = _variable_folders()
    if not folders:
        yield f"{PATH_VARIABLE}, which is not set", ()
    for folder in folders:
        yield f"the folder {folder} of {PATH_VARIABLE}", _in_folder(Path(folder))
    yield f"entry points of the group {GROUP}", [*own_entries(GROUP), *_installed(GROUP, _TARGET)]


def _in_folder(folder: Path) -> list[PluginSource]:
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".py" and _TARGET.fullmatch(path.stem))
    except OSError:
        return []
    # Paths are absolute, because a process in another folder loads the plugin.
    plugins = [PluginSource(path.stem, str(path), file=os.path.abspath(path)) for path in files]
    return plugins + _in_packages(str(folder), GROUP, _TARGET)


def _installed(group: str, form: re.Pattern[str]) -> list[PluginSource]:
    return [entry for folder in sys.path for entry in _in_packages(folder or os.curdir, group, form)]


def _in_packages(folder: str, group: str, form: re.Pattern[str]) -> list[PluginSource]:
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return []
    declared = _declared_in(os.path.abspath(folder), changed)
    return [entry for entry in declared if entry.group == group and form.fullmatch(entry.target)]


@lru_cache(maxsize=64)
def _declared_in(folder: str, _changed: int) -> tuple[PluginSource, ...]:
    """Return entries of our groups in ``folder``. They are cached until a change, for folders with many files."""
    return tuple(entry for info in _metadata_folders(folder) for entry in _declared(folder, info))


def _metadata_folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as found:
            return sorted(entry.path for entry in found if entry.name.endswith((".dist-info", ".egg-info")))
    except OSError:
        return []


def _declared(folder: str, info: str) -> Iterator[PluginSource]:
    """Yield entries of our groups in one metadata folder. Other lines are skipped."""
    name, _, version = os.path.basename(info).rpartition(".")[0].partition("-")
    name = name.replace("_", "-").lower()
    try:
        data = _read(os.path.join(info, _METADATA_FILES[0])) or b""
    except (OSError, ValueError):
        return
    if name == OURS or not any(group.encode() in data for group in OWN_ENTRIES):
        return
    group = ""
    for line in map(str.strip, data.decode(errors="replace").splitlines()):
        if line.startswith("["):
            group = line.strip("[]").strip()
        elif group in OWN_ENTRIES and not line.startswith("#") and "=" in line:
            target, _, reference = map(str.strip, line.partition("="))
            origin = f"{name} {version} ({reference})"
            yield PluginSource(target, origin, reference=reference, folder=folder, group=group)


def _read(path: str | Path) -> bytes | None:
    """Return the content of a metadata file, or None if missing. Raises ValueError unless it is regular and small."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_METADATA_BYTES:
        raise ValueError(f"{os.path.basename(path)} is no regular file of at most {_MAX_METADATA_BYTES} bytes")
    with open(path, "rb") as file:
        return file.read(_MAX_METADATA_BYTES)
