"""Dialects, passes and formats of other packages, found by the entry points ``xdsl.universe`` that xDSL defines.

A format is a translation target of xDSL: a form of output that ``--emit`` names. Other packages are imported only to
list names, or to find a name that neither this package nor xDSL has. A separate process imports a package first.
Packages that fail there only cause a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple

from odc_mlir.errors import OdcError
from odc_mlir.plugins.registry import UNIVERSES, entries

_log = logging.getLogger(__name__)


class Addition(NamedTuple):
    """A dialect, pass or format of another ``package``. ``load`` imports it."""

    package: str
    load: Callable[[], Any]


def describe_universe(_universe: object, _question: object) -> dict[str, Any]:
    """Return nothing: only the import matters."""
    return {}


@cache
def _universes() -> tuple[tuple[str, str, Any], ...]:
    """Return (package, module of the package, universe) of foreign packages."""
    found = []
    for source in entries(UNIVERSES):
        package, module = source.origin.partition(" ")[0], _root((source.reference or "").partition(":")[0])
        if package == "xdsl":
            continue
        from odc_mlir.plugins.foreign import load_probed

        try:
            found.append((package, module, load_probed(source, f"{__name__}:describe_universe")))
        except OdcError as error:
            _log.warning("the dialects, passes and formats of package %s are left out: %s", package, error.message)
    return tuple(found)


def additions(kind: Literal["dialects", "passes", "targets"]) -> dict[str, Addition]:
    """Return all additions of a kind by name. If two packages add the same name, the first package has precedence."""
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
