"""``odc-doctor``: report the installation and the cache, and clean the cache."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from odc_mlir._version import __version__
from odc_mlir.errors import CacheError, OdcError, OptionError
from odc_mlir.formats.cache import DEFAULT_LIMIT_MB, FOLDERS, LIMIT_VARIABLE, cache_folder
from odc_mlir.formats.kinds import json_kind
from odc_mlir.formats.quantities import counted
from odc_mlir.tools.common import EXIT_USER, base_parser, tool
from odc_mlir.tools.files import add_json, add_overwrite, add_switch

FACTS = json_kind("findings of odc-doctor")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-doctor``."""
    parser = base_parser(
        "odc-doctor",
        "Show what is installed, which targets and plugins exist, and what the cache holds.",
        epilog="Exit code 1 if something required is missing or broken.",
    )
    add_json(parser, FACTS, "the findings")
    text = "empty the cache, or only remove these kinds of entries (listed under cache)"
    parser.add_argument("--clean", metavar="KIND", nargs="*", help=text)
    add_switch(parser, "--prune", "remove leftovers of unfinished work, and entries beyond the cache's size limit")
    add_overwrite(parser)
    return parser


def _body(arguments: argparse.Namespace) -> int | None:
    if arguments.clean is not None or arguments.prune:
        _clean(arguments)
        return None

    findings = list(diagnose())
    problems = sum(finding.status == "problem" for finding in findings)
    if arguments.json:
        arguments.files.write_json("json", lambda: findings)
    else:
        width = max(len(finding.name) for finding in findings)
        for area, members in groupby(findings, lambda finding: finding.area):
            print(f"{area}:")
            for finding in members:
                mark = {"good": " ", "note": "-", "problem": "!"}[finding.status]
                hint = f" ({finding.hint})" if finding.hint else ""
                print(f" {mark} {finding.name:<{width}}  {finding.text}{hint}")
        print(counted(problems, "problem"))
    return EXIT_USER if problems else None


def _clean(arguments: argparse.Namespace) -> None:
    removed = prune_cache() if arguments.clean is None else clean_cache(frozenset(arguments.clean) or None)
    lines = [f"removed {one.kind}: {counted(one.entries, 'item')}, {counted(one.nbytes, 'byte')}" for one in removed]
    nothing = "there is nothing to remove" if arguments.clean is None else "the cache is empty"
    arguments.files.show(removed, lines or [nothing])


_DISTRIBUTION = "odc-mlir"

Status = Literal["good", "note", "problem"]


@dataclass(frozen=True, slots=True)
class SystemFact:
    """A finding about the installation. ``hint`` is the remedy for a problem."""

    area: str
    name: str
    text: str
    status: Status = "good"
    hint: str = ""


def diagnose() -> Iterator[SystemFact]:
    """Yield findings about everything that can be wrong with an installation. Never raises."""
    from concurrent.futures import ThreadPoolExecutor

    yield SystemFact("versions", "odc-mlir", __version__)
    yield SystemFact("versions", "python", f"{platform.python_version()} ({sys.executable})")
    yield SystemFact("versions", "system", platform.platform())
    yield from _libraries()
    yield from _metadata()
    with ThreadPoolExecutor() as pool:  # plugins that hang reach their deadlines together
        parts = [pool.submit(list, part) for part in (_targets(), _plugins(), _devices())]
    for part in parts:
        yield from part.result()
    yield from _cache()


def _libraries() -> Iterator[SystemFact]:
    from importlib import metadata

    try:
        declared = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield SystemFact(
            "libraries", _DISTRIBUTION, "not installed, run from its sources", "note", "pip install it to get commands"
        )
        return
    for text in declared:
        requirement, _, marker = text.partition(";")
        name = re.match(r"[\w.-]*", requirement.strip())[0]  # type: ignore[index]  # may be empty
        extra = marker.partition("extra ==")[2].strip().strip("'\"")
        if name == _DISTRIBUTION or extra in ("test", "dev"):
            continue
        try:
            yield SystemFact("libraries", name, str(metadata.version(name)))
        except metadata.PackageNotFoundError:
            if extra:
                hint = f"pip install '{_DISTRIBUTION}[{extra}]'"
                yield SystemFact("libraries", name, f"not installed (extra {extra})", "note", hint)
            else:
                yield SystemFact("libraries", name, "missing", "problem", f"pip install {requirement.strip()!r}")
        except Exception as error:  # the exception depends on the malformed line
            text = f"its metadata cannot be read: {type(error).__name__}: {error}"
            yield SystemFact("libraries", name, text, "problem", f"pip install --force-reinstall {name}")


def _targets() -> Iterator[SystemFact]:
    from odc_mlir import targets
    from odc_mlir.plugins.target import TargetFacts, described

    for name in targets.names():
        try:
            target = targets.load(name)
        except OdcError as error:
            yield SystemFact("targets", name, str(error), "problem", "reinstall odc-mlir")
        else:
            yield SystemFact("targets", name, f"version {target.version}, {target.clock_hz / 1e6:g} MHz")
    for source, found in described():
        if isinstance(found, TargetFacts):
            text = f"{found.summary}; takes {', '.join(found.schemes)}; compiled by {found.codegen}"
            yield SystemFact("targets", found.name, f"{text}; machines {', '.join(found.machines) or 'none'}")
        else:
            yield SystemFact("targets", source.target, found.message, "problem", f"look at {source.origin}")


def _devices() -> Iterator[SystemFact]:
    from odc_mlir.plugins import registry
    from odc_mlir.plugins.registry import DEVICES
    from odc_mlir.runtime.auto.aim import AUTO, aim_at
    from odc_mlir.runtime.devices import DeviceFacts, ask_devices

    sources = registry.entries(DEVICES)
    for source, facts in zip(sources, ask_devices(sources), strict=True):
        if isinstance(facts, DeviceFacts):
            present = ", ".join(facts.attached) or ("simulated" if facts.simulated else "no hardware reported")
            yield SystemFact("devices", source.target, f"{facts.name}, from {source.origin}, {present}")
        else:
            yield SystemFact("devices", source.target, facts.message, "problem", f"look at {source.origin}")
    try:
        yield SystemFact("devices", "auto", aim_at(AUTO).name)
    except OdcError as error:
        yield SystemFact("devices", "auto", error.message, "note", error.hint or "")


def _plugins() -> Iterator[SystemFact]:
    from odc_mlir.plugins import codegen, registry

    sources = registry.available()
    for source, described in zip(sources, codegen.describe_all(sources), strict=True):
        if isinstance(described, OdcError):
            yield SystemFact("plugins", source.target, described.message, "problem", f"look at {source.origin}")
        else:
            wants = f"wants {described.quantization} models" if described.quantization else "takes float models"
            yield SystemFact("plugins", source.target, f"{described.name}, from {source.origin}, {wants}")


def _metadata() -> Iterator[SystemFact]:
    """Yield packages with unreadable metadata. If the metadata mentions our groups, the package is a broken plugin."""
    from odc_mlir.plugins.registry import ignored_entries, unreadable_metadata

    for entry, reason in ignored_entries():
        where = f"entry of {entry.group} of {entry.origin}"
        yield SystemFact("packages", where, f"ignored: {reason}", "problem", "rename the entry in its package")
    for folder, reason, concerns_us in unreadable_metadata():
        status: Status = "problem" if concerns_us else "note"
        yield SystemFact("packages", folder.stem, reason, status, f"reinstall it, or delete {folder}")


def _cache() -> Iterator[SystemFact]:
    from odc_mlir.formats.private import check_root

    try:
        folder = cache_folder()
    except OptionError as error:
        yield SystemFact("cache", "folder", str(error), "problem")
        return
    yield SystemFact("cache", "folder", str(folder))
    for usage in cache_usage():
        yield SystemFact("cache", usage.kind, f"{counted(usage.entries, 'item')}, {counted(usage.nbytes, 'byte')}")
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        if existing == folder:
            check_root(folder)
    except CacheError as error:
        yield SystemFact("cache", "access", error.message, "problem", error.hint or "")
        return
    if not os.access(existing, os.W_OK):
        text = f"{existing} cannot be written"
        yield SystemFact("cache", "access", text, "problem", "set ODC_CACHE_DIR to a writable folder")
    else:
        yield SystemFact("cache", "free", f"{shutil.disk_usage(existing).free / 1e9:,.1f} GB")


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """Number and size of the entries of one kind in the cache."""

    kind: str
    entries: int
    nbytes: int


def cache_usage() -> list[CacheUsage]:
    """Return the usage of the cache by kind. Raises OptionError if no folder can hold the cache."""
    return [_usage(folder) for folder in _kinds(cache_folder())]


def clean_cache(kinds: frozenset[str] | None = None) -> list[CacheUsage]:
    """Remove all entries, or entries of some ``kinds``. Return the removed usage. Raises OptionError."""
    folders = {folder.name: folder for folder in _kinds(cache_folder())}
    unknown = sorted((kinds or frozenset()) - folders.keys())
    if unknown:
        known = ", ".join(folders) or "nothing"
        raise OptionError(f"the cache has no {unknown[0]!r}", location=str(cache_folder()), hint=f"it has {known}")
    removed = []
    for name, folder in folders.items():
        if kinds is None or name in kinds:
            removed.append(_usage(folder))
            shutil.rmtree(folder)
    return removed


def prune_cache() -> list[CacheUsage]:
    """Remove leftovers and entries beyond the limit. Return the removed usage. Raises OptionError."""
    from odc_mlir.runtime.auto.artefacts import prune

    text = os.environ.get(LIMIT_VARIABLE) or str(DEFAULT_LIMIT_MB)
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise OptionError(f"{LIMIT_VARIABLE} is {text!r}, expected a whole number above 0")
    root = cache_folder()
    removed: dict[str, CacheUsage] = {}
    for entry in prune(root, int(text) << 20):
        kind = entry.path.relative_to(root).parts[0]
        known = removed.get(kind, CacheUsage(kind, 0, 0))
        removed[kind] = CacheUsage(kind, known.entries + 1, known.nbytes + entry.nbytes)
    return list(removed.values())


def _kinds(root: Path) -> list[Path]:
    """Return our folders in the cache folder, which may also hold files of the user."""
    return [root / name for name in FOLDERS if (root / name).is_dir() and not (root / name).is_symlink()]


def _usage(folder: Path) -> CacheUsage:
    nbytes = 0
    for inner, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):  # another process cleans at the same time
                nbytes += (Path(inner) / name).lstat().st_size
    return CacheUsage(folder.name, sum(1 for _ in folder.iterdir()), nbytes)


main = tool(build_parser, _body)
