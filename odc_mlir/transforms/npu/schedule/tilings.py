"""Tilings are searched once: for the partition, for the plan of a segment, and for every run that asks for the same.

What a search finds follows from the geometry, from what a layer may use of the tile buffer, and from the target. A run
keeps it by these; where the context says so they are also kept in the cache for later runs, by the text of the
target, the version of the compiler and the sources that searches consist of.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, astuple
from functools import cache
from importlib import resources
from typing import Any

from xdsl.context import Context

from odc_mlir._version import __version__
from odc_mlir.dialects.npu_tiling import Outer
from odc_mlir.errors import CompileError
from odc_mlir.formats.private import Memo
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.geometry import WindowGeometry
from odc_mlir.transforms.npu.schedule.window_search import Room, TilingChoice, too_large, window_choices
from odc_mlir.transforms.npu.schedule.window_tiling import WindowTiling

KIND = "tilings"
_SOURCES = ("odc_mlir.transforms.npu.schedule", "odc_mlir.dialects", "odc_mlir.isa")


class Tilings:
    """Tilings of one target, searched once; ``quick``: only few sizes of tiles are tried."""

    def __init__(self, target: Target, memo: Memo | None = None, *, quick: bool = False) -> None:
        self.target, self.quick = target, quick
        self._memo = Memo() if memo is None else memo
        self._found: dict[tuple[WindowGeometry, Room, bool], tuple[TilingChoice, ...]] = {}

    def choices(self, window: WindowGeometry, room: Room, *, weighted: bool) -> tuple[TilingChoice, ...]:
        """Return the tilings of a window; see :func:`window_choices`."""
        key = (window, room, weighted)
        if key not in self._found:
            self._found[key] = self._looked_up(*key)
        if not self._found[key]:
            raise too_large(window, self.target)
        return self._found[key]

    def _looked_up(self, window: WindowGeometry, room: Room, weighted: bool) -> tuple[TilingChoice, ...]:
        """Return the tilings of an earlier run, or search now; nothing if none fits."""
        key = ",".join(str(int(value)) for value in (*astuple(window), *room, weighted))
        if (known := _decoded(self._memo.get(key))) is not None:
            return known
        try:
            found = window_choices(window, self.target, room, weighted=weighted)
        except CompileError:
            found = ()
        self._memo.put(key, [[c.cycles, c.program_bytes, c.lead, c.tiling and asdict(c.tiling)] for c in found])
        return found

    def save(self) -> None:
        """Save the tilings for later runs."""
        self._memo.save()


def _decoded(kept: Any) -> tuple[TilingChoice, ...] | None:
    """Return the tilings of a cache entry, or None for a damaged one."""
    try:
        return tuple(TilingChoice(fields and _tiling(fields), *estimates) for *estimates, fields in kept)
    except (KeyError, TypeError, ValueError):
        return None


def _tiling(fields: dict[str, Any]) -> WindowTiling:
    return WindowTiling(**{**fields, "outer": Outer(fields["outer"])})


def tilings_of(context: Context, target: Target, *, quick: bool = False) -> Tilings:
    """Return the tilings of ``context`` for ``target``; all passes of a context share them."""
    held: Tilings | None = getattr(context, "tilings", None)
    if held is not None and (held.target, held.quick) == (target, quick):
        return held
    kept = getattr(context, "remember", False)
    memo = Memo.open(KIND, f"{target.canonical}\0{__version__}\0{sources_digest()}") if kept else None
    made = Tilings(target, memo, quick=quick)
    if hasattr(context, "tilings"):
        context.tilings = made
    return made


@cache
def sources_digest() -> str:
    """Return a digest of all sources that decide about tilings, because versions are not always increased."""
    digest = hashlib.sha256()
    for package in _SOURCES:
        for file in sorted(resources.files(package).iterdir(), key=lambda item: item.name):
            if file.name.endswith(".py"):
                digest.update(f"{package}/{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()
