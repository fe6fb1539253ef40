"""Readers of calibration and evaluation samples in all supported formats (docs/quantisation.md)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import InputError, OptionError, of_extra, parsing
from odc_mlir.formats.samples import HDF5_MAGIC, NPY_MAGIC, Samples, fit, read_regular, read_samples
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import TensorInfo

Array = NDArray[Any]
Source = str | os.PathLike[str] | Samples | Iterable[Sequence[Any]]

_FORMATS = "give a .npz or HDF5 file, a folder of raw files or images, or a text file that lists raw files"
PICTURE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True, slots=True)
class Pictures:
    """Conversion of pixels 0..255 to a float input: ``(pixel - mean) * scale``, per channel or for all channels.

    Pictures are scaled to cover ``size``, [height, width] (by default the input's size), and cropped to the centre.
    """

    mean: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1 / 255,)
    size: tuple[int, int] | None = None


def read_calibration(
    source: Source, inputs: Sequence[TensorInfo], *, most: int | None = None, pictures: Pictures | None = None
) -> Samples:
    """Return at most ``most`` samples of ``source`` for a model with these ``inputs``, in a reproducible order.

    ``source`` is a path, samples, or an iterable of lists of arrays. Raises InputError for data that does not fit,
    OptionError if the format needs a missing package.
    """
    if most is not None and most < 1:
        raise OptionError(f"the largest number of samples is {most}, expected at least 1")
    if isinstance(source, (str, os.PathLike)):
        samples = _from_path(Path(source), inputs, most, pictures or Pictures())
    elif isinstance(source, Samples):
        samples = source
    else:
        samples = Samples([_checked_list(sample) for sample in _first(source, most)], "numbered")
    if most is not None and len(samples.records) > most:
        labels = None if samples.labels is None else samples.labels[:most]
        samples = Samples(samples.records[:most], samples.layout, labels)
    if not samples.records:
        where = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
        raise InputError("there is no sample", location=where)
    return samples


def _from_path(path: Path, inputs: Sequence[TensorInfo], most: int | None, pictures: Pictures) -> Samples:
    if path.is_dir():
        files = sorted((file for file in path.rglob("*") if _is_data(file, path)), key=lambda file: file.as_posix())
        if chosen := list(filter(_is_picture, files)):
            return Samples([[_picture(file, inputs, pictures)] for file in _first(chosen, most)], "numbered")
        return Samples([_raw_sample(file, inputs) for file in _first(files, most)], "numbered")
    head = read_regular(path, len(HDF5_MAGIC))
    if head == HDF5_MAGIC or head.startswith((b"PK", NPY_MAGIC)):
        return _arrays(path, inputs)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InputError(
            "the data is neither NPZ nor HDF5 nor a list of files in UTF-8", location=str(path), hint=_FORMATS
        ) from None
    files = [path.parent / line.strip() for line in lines if line.strip()]
    if files and not os.path.lexists(files[0]):
        raise InputError(
            f"the data is neither NPZ nor HDF5, and read as a list of files it names {str(files[0])!r}, which is not "
            "there",
            location=str(path),
            hint=_FORMATS,
        )
    return Samples([_raw_sample(file, inputs) for file in _first(files, most)], "numbered")


def holds_pictures(source: object) -> bool:
    """Return whether ``source`` is a folder of pictures. :class:`Pictures` applies only to such folders."""
    if not isinstance(source, (str, os.PathLike)):
        return False
    path = Path(source)
    return path.is_dir() and any(_is_picture(file) and _is_data(file, path) for file in path.rglob("*"))


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in PICTURE_SUFFIXES


def _is_data(file: Path, folder: Path) -> bool:
    return file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)


def _arrays(path: Path, inputs: Sequence[TensorInfo]) -> Samples:
    """Read an NPZ or HDF5 file. Unnumbered arrays that do not fit the inputs hold samples along axis 0."""
    shapes, names = [info.shape for info in inputs], [(info.name, info.alias) for info in inputs]
    samples = read_samples(path, shapes, names=names)
    if samples.layout != "single" or (samples.labels is None and fit(samples.records[0], shapes)):
        return samples
    return read_samples(path, shapes, names=names, sample_axis=True)


def _raw_sample(path: Path, inputs: Sequence[TensorInfo]) -> list[Array]:
    data = read_regular(path)
    shapes = [_closed_shape(info) for info in inputs]
    dtypes = [DTYPES[info.dtype].numpy for info in inputs]
    if any(dtype.kind == "O" for dtype in dtypes):
        raise InputError("raw files cannot hold strings", location=str(path), hint="use .npz or HDF5")
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True)]
    if len(data) != sum(sizes):
        parts = f" ({' + '.join(map(str, sizes))})" if len(sizes) > 1 else ""
        raise InputError(
            f"the file has {len(data)} bytes, but the model's inputs take {sum(sizes)}{parts}", location=str(path)
        )
    arrays, offset = [], 0
    for shape, dtype, size in zip(shapes, dtypes, sizes, strict=True):
        arrays.append(np.frombuffer(data, dtype, math.prod(shape), offset).reshape(shape))
        offset += size
    return arrays


def _closed_shape(info: TensorInfo) -> tuple[int, ...]:
    if info.shape is None:
        raise InputError("the input's rank is unknown, and raw files do not contain it", tensor=info.name)
    return tuple(1 if dim is None else dim for dim in info.shape)


def _picture(path: Path, inputs: Sequence[TensorInfo], pictures: Pictures) -> Array:
    shape = _closed_shape(inputs[0]) if len(inputs) == 1 else ()
    if len(shape) != 4 or shape[0] != 1 or shape[3] not in (1, 3):
        raise InputError(
            f"images are for models with one input [1, H, W, 1 or 3], not {[list(_closed_shape(i)) for i in inputs]}",
            location=str(path),
        )
    height, width = pictures.size or shape[1:3]
    pixels = _pixels(path, height, width, shape[3])
    info = inputs[0]
    if info.info.kind != "float":
        if info.dtype not in ("uint8", "int8"):
            raise InputError(f"images cannot be {info.dtype}", tensor=info.name, location=str(path))
        return pixels if info.dtype == "uint8" else np.asarray(pixels.astype(np.int16) - 128, np.int8)
    for name, values in (("mean", pictures.mean), ("scale", pictures.scale)):
        if len(values) not in (1, shape[3]):
            raise OptionError(f"{name} has {len(values)} values, expected 1 or one per channel: {shape[3]}")
    result: Array = (pixels - np.array(pictures.mean)) * np.array(pictures.scale)
    return result.astype(info.info.numpy)


def _pixels(path: Path, height: int, width: int, channels: int) -> Array:
    with of_extra("images", OptionError, "images need the package Pillow", more=", or use .npz files"):
        from PIL import Image, ImageOps
    with parsing("cannot read the picture", InputError, location=str(path)), Image.open(path) as file:
        picture = ImageOps.exif_transpose(file).convert("RGB" if channels == 3 else "L")
        fitted = ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR)
    return np.asarray(fitted, np.uint8).reshape(1, height, width, channels)


def _checked_list(sample: Any) -> list[Array]:
    if isinstance(sample, np.ndarray) or not isinstance(sample, Sequence):
        hint = "put a single array into a list"
        raise InputError(f"a sample is {type(sample).__name__}, expected a list of arrays, one per input", hint=hint)
    return [np.asarray(value) for value in sample]


def _first(items: Iterable[Any], most: int | None) -> Iterator[Any]:
    return iter(items) if most is None else islice(items, most)
