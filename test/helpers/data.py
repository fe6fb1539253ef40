"""The test data folder (models with golden outputs) and iterators over it.

The folder is ``$ODC_TEST_DATA`` or, when that is not set, ``shared`` beside the repository. Tests take it from the
``test_data`` fixture; parametrised tests list models with :func:`golden_models`, which also works, as one skipped
case, where the folder is missing.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[Any]

REPOSITORY = Path(__file__).resolve().parents[2]

MISSING = "no test data: set ODC_TEST_DATA to the folder that holds models/ and conformance/"


def data_folder() -> Path | None:
    """The test data folder, None where there is none."""
    named = os.environ.get("ODC_TEST_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared"
    return folder if (folder / "models").is_dir() else None


class Sample(NamedTuple):
    """One run of a model: arrays in graph input and output order."""

    inputs: list[Array]
    outputs: list[Array]


@dataclass(frozen=True)
class GoldenModel:
    """A model file with golden outputs; ``group`` is its folder below ``models``."""

    group: str
    name: str
    dtype: str  # of the first input
    folder: Path

    @property
    def circle(self) -> Path:
        return self.folder / f"{self.name}.circle"

    @property
    def tflite(self) -> Path:
        return self.folder / f"{self.name}.tflite"

    @property
    def quantised(self) -> bool:
        return self.dtype in ("int8", "uint8", "int16")

    def samples(self) -> Iterator[Sample]:
        """Every golden sample, in file order."""
        return golden_samples(self.folder / "golden" / f"{self.name}.npz")

    def __str__(self) -> str:
        return self.name


def golden_samples(path: Path) -> Iterator[Sample]:
    """The samples of a golden file.

    Two layouts: ``in_K_J``/``out_K_J`` hold tensor J of sample K; ``in_J``/``out_J`` hold all samples along a leading
    axis, which is taken off here and put back as a batch of one.
    """
    with np.load(path) as archive:
        names = set(archive.files)
        if "out_0" in names:
            inputs, outputs = _numbered(archive, names, "in"), _numbered(archive, names, "out")
            for k in range(len(outputs[0])):
                yield Sample([a[k : k + 1] for a in inputs], [a[k : k + 1] for a in outputs])
            return
        k = 0
        while f"out_{k}_0" in names:
            yield Sample(_numbered(archive, names, f"in_{k}"), _numbered(archive, names, f"out_{k}"))
            k += 1


def _numbered(archive: Any, names: set[str], prefix: str) -> list[Array]:
    """The arrays ``prefix_0``, ``prefix_1``, … as far as they go."""
    arrays: list[Array] = []
    while (name := f"{prefix}_{len(arrays)}") in names:
        arrays.append(archive[name])
    return arrays


def golden_models(*groups: str, quantised: bool | None = None) -> list[Any]:
    """Parameters for ``pytest.mark.parametrize``: the models of ``groups`` (zoo, zoo-int16, digits) with golden files.

    ``quantised`` True or False keeps only models whose input is of that kind. Where the data folder is missing the
    list holds one parameter that is skipped with the reason, so that nothing disappears silently. All tests of one
    model run in the same worker process, where they share what was compiled.
    """
    root = data_folder()
    if root is None:
        return [pytest.param(None, marks=pytest.mark.skip(reason=MISSING), id="no-test-data")]
    found = [model for group in groups for model in _models(root / "models" / group)]
    chosen = [model for model in found if quantised is None or model.quantised is quantised]
    return [pytest.param(model, id=model.name, marks=_marks(model)) for model in chosen]


def _marks(model: GoldenModel) -> list[pytest.MarkDecorator]:
    """One worker process per model; models of 100 million multiply-accumulates and more are slow."""
    marks = [pytest.mark.xdist_group(model.name)]
    if model.name.startswith("mobilenet_v2"):
        marks += [pytest.mark.slow, pytest.mark.timeout(600)]
    return marks


def _models(folder: Path) -> Iterator[GoldenModel]:
    """Models of one folder that have a golden file, in name order."""
    with (folder / "index.csv").open(newline="") as stream:
        dtypes = {row["model"]: row.get("input_dtype") for row in csv.DictReader(stream)}
    for golden in sorted((folder / "golden").glob("*.npz")):
        name = golden.stem
        dtype = dtypes.get(name) or ("int8" if name.endswith("_int8") else "float32")
        yield GoldenModel(folder.name, name, dtype, folder)
