"""Dialects, passes and formats of other packages, found by the entry points ``xdsl.universe`` that xDSL defines.

A format is a translation target of xDSL: a form of output that ``--emit`` names. Other packages are imported only to
list names, or to find a name that neither this package nor xDSL has. Packages that fail to import only cause a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple

from odc_mlir.errors import bounded

_log = logging.getLogger(__name__)

GROUP = "xdsl.universe"
_KNOWN = ("xdsl", "odc-mlir")


class Addition(NamedTuple):
    """A dialect, pass or format of another ``package``; ``load`` imports it."""

    package: str
    load: Callable[[], Any]


@cache
def _universes() -> tuple[tuple[str, str, Any], ...]:
    """Return (package, its module, universe) of other packages."""
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        package = entry.name if entry.dist is None else entry.dist.name
        if package in _KNOWN:
            continue
        try:
            found.append((package, _root(entry.module), entry.load()))
        except (Exception, SystemExit) as error:
            text = bounded(f"{type(error).__name__}: {error}")
            _log.warning("the dialects, passes and formats of package %s are left out: %s", package, text)
    return tuple(found)


def additions(kind: Literal["dialects", "passes", "targets"]) -> dict[str, Addition]:
    """Return all additions of a kind by name; if two packages add the same name, the first one takes precedence."""
    found: dict[str, Addition] = {}
    for package, _, universe in _universes():
        for name, load in getattr(universe, f"all_{kind}", {}).items():
            found.setdefault(name, Addition(package, load))
    return found


def owners(kind: Literal["dialects", "passes", "targets"], name: str) -> list[str]:
    """Return the other packages that add a dialect, pass or format with this name."""
    return [package for package, _, universe in _universes() if name in getattr(universe, f"all_{kind}", {})]


def owner_of(kind: type) -> str | None:
    """Return the package that defines a class, None if it is ours or xDSL's."""
    root = _root(kind.__module__)
    if root in ("xdsl", "odc_mlir"):
        return None
    return next((package for package, module, _ in _universes() if module == root), root)


def _root(module: str) -> str:
    return module.partition(".")[0]
