"""Where plugins are: a folder given by the caller, folders of an environment variable, then what is installed.

A folder offers ``<extension>-gen.py``, a file with a function ``create_codegen``, and the entry points of packages that
were installed into it. Installed packages declare an entry point ``<extension>-gen`` of the group ``odc_mlir.codegen``
that names such a function. Nothing of a plugin is imported here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from odc_mlir.errors import OptionError

GROUP = "odc_mlir.codegen"
PATH_VARIABLE = "ODC_PLUGIN_PATH"
FACTORY = "create_codegen"
SUFFIX = "-gen"
_TARGET = re.compile(r"[a-z0-9][a-z0-9_]*" + SUFFIX)


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
        """Of the files that the plugin makes, without a dot."""
        return extension_of(self.target)


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
    yield f"entry points of the group {GROUP}", _entry_points(metadata.distributions(), None)


def _in_folder(folder: Path) -> Sequence[PluginSource]:
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".py" and _TARGET.fullmatch(path.stem))
    except OSError:
        return []
    # A plugin is loaded by a process that works elsewhere.
    plugins = [PluginSource(path.stem, str(path), file=os.path.abspath(path)) for path in files]
    return plugins + list(_entry_points(metadata.distributions(path=[str(folder)]), os.path.abspath(folder)))


def _entry_points(distributions: Iterable[metadata.Distribution], folder: str | None) -> Iterator[PluginSource]:
    """The entry points of our group, by name; the first of two with the same name is the one Python would import."""
    found: dict[str, PluginSource] = {}
    for distribution in distributions:
        for entry in distribution.entry_points:
            if entry.group == GROUP and _TARGET.fullmatch(entry.name):
                name = distribution.metadata["Name"]
                origin = f"{name} {distribution.version} ({entry.value})"
                place = folder or os.path.abspath(str(distribution.locate_file("")))
                found.setdefault(entry.name, PluginSource(entry.name, origin, reference=entry.value, folder=place))
    yield from (found[name] for name in sorted(found))
