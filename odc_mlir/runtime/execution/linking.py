"""Models that run other models: finding the file that RUN_MODEL names.

A location is relative to the folder of the model that names it and stays inside that folder, so that a model from
elsewhere cannot make the runtime read any other file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model

MAX_CHAIN = 16  # models that run one another in a row

_SUFFIXES = (".circle", ".tflite")


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """Where a model lies: ``chain`` are the files through which one came to it, itself the last; empty for bytes.

    With ``siblings`` these are members of the package that has those files.
    """

    chain: tuple[PurePath, ...] = ()
    siblings: Mapping[str, bytes] | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(model: Model) -> ModelLocation:
        """The site of a model that nothing runs but the user."""
        if model.path is None:
            return ModelLocation()
        if model.siblings is not None:
            return ModelLocation((PurePosixPath(model.path),), model.siblings)
        return ModelLocation((Path(model.path).resolve(),))

    def target(self, location: str) -> ModelLocation:
        """The site of the model at ``location``; raises ModelError for one that must not be opened."""
        if not self.chain:
            raise UnsupportedError(
                f"the model {location!r} is relative to this model's folder, which is unknown",
                hint="run the model from its file, not from bytes",
            )
        if ";" in location:
            raise UnsupportedError(f"the list of model files {location!r} is for accelerators; one file is supported")
        if PurePosixPath(location).suffix.lower() not in _SUFFIXES:
            raise UnsupportedError(
                f"the model {location!r} has an unsupported format; supported are {', '.join(_SUFFIXES)}"
            )
        if "\\" in location or ".." in PurePosixPath(location).parts or PurePosixPath(location).is_absolute():
            raise ModelError(f"the location {location!r} leads out of the model's folder")
        path = self._resolved(location)
        if path in self.chain:
            raise ModelError(f"the model {location!r} runs itself: {' -> '.join(p.name for p in (*self.chain, path))}")
        if len(self.chain) >= MAX_CHAIN:
            raise ModelError(f"more than {MAX_CHAIN} models run one another")
        return ModelLocation((*self.chain, path), self.siblings)

    def _resolved(self, location: str) -> PurePath:
        folder = self.chain[-1].parent
        if self.siblings is not None:
            return folder / location
        path = Path(folder / location).resolve()
        if folder not in path.parents:
            raise ModelError(f"the location {location!r} leads out of the model's folder")
        return path


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


def read_linked(site: ModelLocation) -> Model:
    """The model at ``site``; raises ModelError."""
    path = site.chain[-1]
    if site.siblings is None:
        return read_model(str(path))
    try:
        return read_model(site.siblings[path.as_posix()])
    except KeyError:
        raise ModelError(f"the package has no model {path.as_posix()!r}") from None


def linked_files(model: Model) -> dict[str, bytes]:
    """The models that RUN_MODEL operators of ``model``, and of those in turn, name: by location beside ``model``.

    Raises ModelError for what cannot be opened.
    """
    found: dict[str, bytes] = {}
    _collect(model, ModelLocation.of(model), found)
    return found


def _collect(model: Model, site: ModelLocation, found: dict[str, bytes]) -> None:
    for operator in (operator for graph in model.subgraphs for operator in graph.operators):
        location = operator.options.get("location") if operator.name == "RUN_MODEL" else None
        if not location:
            continue
        target = site.target(location)
        name = target.chain[-1].relative_to(target.chain[0].parent).as_posix()
        if name not in found:
            linked = read_linked(target)
            found[name] = _bytes_at(target)
            _collect(linked, target, found)


def _bytes_at(site: ModelLocation) -> bytes:
    path = site.chain[-1]
    return Path(path).read_bytes() if site.siblings is None else site.siblings[path.as_posix()]
