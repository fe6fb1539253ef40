"""Models that run other models: finding the file that RUN_MODEL names.

A location is relative to the folder of the model that names it and stays inside that folder, so that a model from
elsewhere cannot make the runtime read any other file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model

MAX_CHAIN = 16  # models that run one another in a row

_SUFFIXES = (".circle", ".tflite")


@dataclass(frozen=True, slots=True)
class Site:
    """Where a model lies: ``chain`` are the files through which one came to it, itself the last; empty for bytes."""

    chain: tuple[Path, ...] = ()

    @staticmethod
    def of(model: Model) -> Site:
        """The site of a model that nothing runs but the user."""
        return Site() if model.path is None else Site((Path(model.path).resolve(),))

    def target(self, location: str) -> Site:
        """The site of the model at ``location``; raises ModelError for one that must not be opened."""
        if not self.chain:
            raise UnsupportedError(
                f"the model {location!r} is relative to this one's folder, which is not known",
                hint="run the model from its file, not from bytes",
            )
        if ";" in location:
            raise UnsupportedError(f"the list of model files {location!r} is for accelerators; one file is supported")
        if PurePosixPath(location).suffix.lower() not in _SUFFIXES:
            raise UnsupportedError(f"the model {location!r} is of another kind; supported are {', '.join(_SUFFIXES)}")
        parts = PurePosixPath(location).parts
        folder = self.chain[-1].parent
        path = (folder / location).resolve()
        if "\\" in location or ".." in parts or PurePosixPath(location).is_absolute() or folder not in path.parents:
            raise ModelError(f"the location {location!r} leads out of the model's folder")
        if path in self.chain:
            raise ModelError(f"the model {location!r} runs itself: {' -> '.join(p.name for p in (*self.chain, path))}")
        if len(self.chain) >= MAX_CHAIN:
            raise ModelError(f"more than {MAX_CHAIN} models run one another")
        return Site((*self.chain, path))


def entry_of(model: Model, options: Mapping[str, Any]) -> int:
    """The subgraph that RUN_MODEL's options choose: a signature's, the first one without; raises ModelError."""
    key = options["signature"]
    if not key:
        return 0
    for signature in model.signatures:
        if signature.key == key:
            return signature.subgraph
    known = ", ".join(repr(signature.key) for signature in model.signatures) or "none"
    raise ModelError(f"the model {options['location']!r} has no signature {key!r}; it has {known}")


def read_linked(site: Site) -> Model:
    """The model at ``site``; raises ModelError."""
    return read_model(site.chain[-1])
