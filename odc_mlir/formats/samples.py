"""Input and output data: NPZ, NPY, HDF5 and raw files, and random inputs.

NPZ: ``in_J`` is tensor J of the only sample, or of all samples along a leading axis, with labels in ``y``.
The model's names of its inputs, from signatures or of tensors, can replace all ``in_J``.
``in_K_J`` is tensor J of sample K. Outputs are called ``out_J`` or ``out_K_J``.
NPY: the only input, of one sample or all.
HDF5: ``/value/J`` for one sample, ``/value/K/J`` for many.
Other tensors are stored under the tensors' names. In NPZ, numbered samples have the prefix ``K/``. In HDF5, the tensors
are below ``/tensor`` or ``/tensor/K``. A tensor whose name is also a folder is ``NAME/value``.
"""

from __future__ import annotations

import io
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import InputError, OdcError, OptionError, located, of_extra, of_system, parsing
from odc_mlir.formats.kinds import ARRAYS, OWN_MARK, UNKNOWN
from odc_mlir.formats.outputs import check_output, write_file
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.constants import MAX_ELEMENTS, MAX_RANK
from odc_mlir.ops.spec import Shape

_MAX_EXPANSION = 200
_EXPANSION_SLACK_BYTES = 256 << 20
_SUFFIX = ".npy"


def most_bytes(file_bytes: int) -> int:
    """Return the largest plausible amount of data in a file of this size. More data would be an attack on memory."""
    return file_bytes * _MAX_EXPANSION + _EXPANSION_SLACK_BYTES


def read_npz(
    path: str | os.PathLike[str],
    wanted: Callable[[str], bool] = lambda name: True,
    *,
    what: str = "the NPZ data",
    kind: type[OdcError] = InputError,
    hint: str | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays with ``wanted`` names in the file's order. Raises ``kind`` with ``what`` and the file."""
    arrays: dict[str, NDArray[Any]] = {}
    with (
        located(os.fspath(path)),
        parsing(f"cannot read {what}", kind, hint=hint),
        zipfile.ZipFile(path) as archive,
    ):
        members = [info for info in archive.infolist() if wanted(info.filename.removesuffix(_SUFFIX))]
        claimed, limit = sum(info.file_size for info in members), most_bytes(os.path.getsize(path))
        if claimed > limit:
            raise kind(
                f"cannot read {what}: its arrays claim {claimed} bytes, more than the {limit} that a file of this size "
                "may hold"
            )
        for info in members:
            name = info.filename.removesuffix(_SUFFIX)
            if name in arrays:
                raise kind(f"cannot read {what}: the array {name!r} is given twice")
            with archive.open(info) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    return arrays


Array = NDArray[Any]
Layout = Literal["single", "axis", "numbered"]

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
NPY_MAGIC = b"\x93NUMPY"
_NAMES_SHOWN = 8
_INTEGERS = 100  # upper bound of random integers
_HDF5_SUFFIXES = (".h5", ".hdf5")
_INPUT = re.compile(r"in_(?:(\d{1,9})_)?(\d{1,9})")
_LIKE_INPUT = re.compile(r"in(put)?[-_]*\d.*", re.IGNORECASE)  # probably misspelt inputs


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of a file. ``records[k][j]`` is input j of sample k. Outputs are written in the same ``layout``."""

    records: list[list[Array]]
    layout: Layout
    labels: Array | None = None


def is_finite(sample: Sequence[Array]) -> bool:
    """Return whether a sample is free of NaN and infinity. Ranges and errors are undefined for these."""
    return all(value.dtype.kind != "f" or bool(np.isfinite(value).all()) for value in sample)


def read_samples(
    path: str | os.PathLike[str],
    shapes: Sequence[Shape | None],
    *,
    names: Sequence[Sequence[str]] = (),
    sample_axis: bool | None = None,
) -> Samples:
    """Return the samples in an NPZ or HDF5 file for inputs of these ``shapes`` (None: unknown) and ``names``.

    Each input has as many names as the others; of equal names, a later one counts.

    If ``sample_axis``, arrays ``in_J`` have a leading sample axis, and a missing batch dimension is added. None: they
    have it if only entries along this axis fit ``shapes``. An unknown first dimension is the batch, with one entry,
    except for inputs of rank 1. Raises InputError.
    """
    with located(str(path)):
        places = {name: j for kind in zip(*names, strict=True) for j, name in enumerate(kind) if name}
        groups, labels = _read_arrays(Path(path), places)
        if -1 not in groups and groups:
            records = [_record(groups.get(k, {}), f"in_{k}_", len(shapes), path) for k in range(max(groups) + 1)]
            return Samples(records, "numbered", labels)
        if len(groups) > 1:
            raise InputError("the file holds both numbered samples and arrays of one sample")
        whole = _record(groups.get(-1, {}), "in_", len(shapes), path)
        if not (_only_parts_fit(whole, shapes) if sample_axis is None else sample_axis):
            return Samples([whole], "single", labels)
        if not whole:
            raise InputError("the file holds no sample")
        return Samples(_split(whole, shapes), "axis", labels)


def fit(record: Sequence[Array], shapes: Sequence[Shape | None]) -> bool:
    """Return whether every array has the shape of its input, as far as the shape is known."""
    return all(
        shape is None
        or (array.ndim == len(shape) and all(dim in (None, size) for dim, size in zip(shape, array.shape, strict=True)))
        for array, shape in zip(record, shapes, strict=True)
    )


def _record(found: Mapping[int, Array], prefix: str, inputs: int, path: str | os.PathLike[str]) -> list[Array]:
    for j in range(inputs):
        if j not in found:
            hint = f"the file has {', '.join(_names(path)) or 'no arrays'}"
            raise InputError(f"the array {prefix}{j} is missing; the model has {counted(inputs, 'input')}", hint=hint)
    for j in found:
        if j >= inputs:
            raise InputError(f"the array {prefix}{j} is one too many; the model has {counted(inputs, 'input')}")
    return [found[j] for j in range(inputs)]


def _names(path: str | os.PathLike[str]) -> list[str]:
    if not zipfile.is_zipfile(path):
        return ["others"]
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    return names if len(names) <= _NAMES_SHOWN else [*names[:_NAMES_SHOWN], f"{len(names) - _NAMES_SHOWN} more"]


def _only_parts_fit(whole: list[Array], shapes: Sequence[Shape | None]) -> bool:
    lengths = {array.shape[:1] for array in whole}
    single = [(1, *shape[1:]) if shape and len(shape) > 1 and shape[0] is None else shape for shape in shapes]
    if fit(whole, single) or len(lengths) != 1 or lengths & {(), (0,)}:
        return False
    return fit(_split(whole, shapes)[0], shapes)


def _split(whole: list[Array], shapes: Sequence[Shape | None]) -> list[list[Array]]:
    counts = {len(array) if array.ndim else 0 for array in whole}
    if len(counts) > 1 or 0 in counts:
        raise InputError("the arrays do not hold the same number of samples, at least one")

    def sample(array: Array, shape: Shape | None, k: int) -> Array:
        return array[k : k + 1] if shape is not None and len(shape) == array.ndim else array[k]

    (count,) = counts
    return [[sample(array, shape, k) for array, shape in zip(whole, shapes, strict=True)] for k in range(count)]


def _read_arrays(path: Path, places: Mapping[str, int]) -> tuple[dict[int, dict[int, Array]], Array | None]:
    head = read_regular(path, len(HDF5_MAGIC))
    if head == HDF5_MAGIC:
        return _read_hdf5(path), None
    if head.startswith(NPY_MAGIC):
        return {-1: {0: _read_npy(path)}}, None
    if not head.startswith(b"PK"):
        raise InputError("the data is neither NPZ, NPY nor HDF5")
    groups: dict[int, dict[int, Array]] = {}
    arrays = read_npz(path, lambda name: name in places or _is_taken(name))
    if not any(map(_INPUT.fullmatch, arrays)):
        groups = {-1: {places[name]: array for name, array in arrays.items() if name in places}}
        arrays = {name: array for name, array in arrays.items() if name not in places}  # an input can be called y
    for name, array in arrays.items():
        if match := _INPUT.fullmatch(name):
            group, j = groups.setdefault(int(match[1] or -1), {}), int(match[2])
            if j in group:
                raise InputError(f"the array {name!r} occurs twice, with other zeros in its name")
            group[j] = array
    return groups, arrays.get("y")


def _is_taken(name: str) -> bool:
    if name == "y" or _INPUT.fullmatch(name):
        return True
    if _LIKE_INPUT.fullmatch(name):
        hint = "inputs are in_0, in_1, … or have the model's names, or are in_K_J for input J of sample K"
        raise InputError(f"the array {name!r} looks like an input, and is none", hint=hint)
    return False


def _read_npy(path: Path) -> Array:
    """Return the array of an NPY file. The mapping detects a file that is too short."""
    with parsing("cannot read the NPY data", InputError):
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))


def _read_hdf5(path: Path) -> dict[int, dict[int, Array]]:
    h5py = _h5py()
    groups: dict[int, dict[int, Array]] = {}
    with parsing("cannot read the HDF5 data", InputError), h5py.File(path, "r") as file:
        left = most = most_bytes(path.stat().st_size)
        for name, item in file["value"].items():
            whole = isinstance(item, h5py.Dataset)
            for tensor, data in [(name, item)] if whole else item.items():
                # Unwritten chunks need no space in a file.
                if (left := left - data.nbytes) < 0:
                    raise InputError(
                        f"the data claim to be larger than {most} bytes, the most that a file of this size holds"
                    )
                groups.setdefault(-1 if whole else int(name), {})[int(tensor)] = np.asarray(data[()])
    return groups


def is_npy(path: str | os.PathLike[str]) -> bool:
    """Return whether the readable file ``path`` holds a single array."""
    with open(path, "rb") as file:
        return file.read(len(NPY_MAGIC)) == NPY_MAGIC


def read_labels(path: str | os.PathLike[str]) -> Array:
    """Return the labels: array ``y`` of an NPZ file, or an NPY file. Raises InputError."""
    with located(str(path)):
        groups, labels = _read_arrays(Path(path), {})
        if is_npy(path):
            labels = groups[-1][0]
        if labels is None:
            raise InputError("the file has no labels (an array y)")
        return labels


def write_outputs(
    path: str | os.PathLike[str],
    outputs: Sequence[Sequence[Array]],
    layout: Layout,
    tensors: Sequence[Mapping[str, Array]] = (),
    *,
    overwrite: bool = False,
) -> None:
    """Write ``outputs[k][j]``, output j of sample k, in the format of the suffix (.npz, .h5, .hdf5) and ``layout``.

    ``tensors[k]`` has further tensors of sample k by name. Raises OptionError for another suffix, or for a tensor with
    the name of an output, and OdcError if the file cannot be written.
    """
    check_output(path, ARRAYS, overwrite=overwrite)
    suffix = Path(path).suffix.lower()
    if suffix in _HDF5_SUFFIXES:
        write_file(path, _hdf5_bytes(outputs, layout, tensors))
    else:
        named = [{str(j): array for j, array in enumerate(record)} for record in outputs]
        arrays = {f"out_{name}": array for name, array in _named(named, layout, "{0}_{1}").items()}
        others = _named(tensors, layout, "{0}/{1}")
        for name in arrays.keys() & others.keys():
            raise OptionError(f"the tensor {name!r} has the name of an output in the file", hint="write an HDF5 file")
        write_file(path, _npz_bytes({**arrays, **others}))


def _named(records: Sequence[Mapping[str, Array]], layout: Layout, numbered: str) -> dict[str, Array]:
    if layout == "axis":
        names = records[0] if records else {}
        return {name: _joined([_plain(record[name]) for record in records]) for name in names}
    pattern, kept = (numbered, records) if layout == "numbered" else ("{1}", records[:1])
    return {pattern.format(k, name): _plain(array) for k, record in enumerate(kept) for name, array in record.items()}


def _npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Write arrays like ``numpy.savez``, but with any names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
        archive.comment = OWN_MARK.encode()
    return buffer.getvalue()


def _joined(arrays: list[Array]) -> Array:
    if all(array.ndim and array.shape[0] == 1 for array in arrays) and len({array.shape for array in arrays}) == 1:
        return np.concatenate(arrays)
    try:
        return np.stack(arrays)
    except ValueError:
        raise InputError(
            "the outputs of the samples differ in shape, so they cannot be written as one array",
            hint="number the samples in the input file (in_K_J)",
        ) from None


def _plain(array: Array) -> Array:
    """Convert strings to bytes of fixed size. Both formats store such bytes without pickling."""
    return array.astype(np.bytes_) if array.dtype == object else array


def _hdf5_bytes(outputs: Sequence[Sequence[Array]], layout: Layout, tensors: Sequence[Mapping[str, Array]]) -> bytes:
    h5py = _h5py()
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["generator"] = OWN_MARK
        for k, record in enumerate(outputs):
            folder = "value" if layout == "single" else f"value/{k}"
            for j, array in enumerate(record):
                file.create_dataset(f"{folder}/{j}", data=_plain(array))
        for k, named in enumerate(tensors):
            folder = "tensor" if layout == "single" else f"tensor/{k}"
            for name, array in zip(_hdf5_paths(tuple(named)), named.values(), strict=True):
                file.create_dataset(f"{folder}/{name}", data=_plain(array))
    return buffer.getvalue()


def _hdf5_paths(names: Sequence[str]) -> list[str]:
    plain = ["/".join(filter(None, name.split("/"))) for name in names]
    taken = {name[:end] for name in plain for end in range(len(name)) if name[end] == "/"}
    occupied = taken.union(plain)
    places = []
    for name in plain:
        place = name
        if name in taken:
            place = f"{name}/value"
            while place in occupied:
                place += "_"
        places.append(place)
    times = Counter(places)
    for name, place in zip(names, places, strict=True):
        if not place or times[place] > 1:
            raise OptionError(f"the tensor {name!r} has no unique name in HDF5", hint="write an .npz file")
    return places


def _h5py() -> Any:
    with of_extra("hdf5", OptionError, "HDF5 files need the package h5py", more=", or use .npz files"):
        import h5py
    return h5py


def read_regular(path: Path, most: int = -1) -> bytes:
    """Return the first ``most`` bytes of a file, by default all. Raises InputError."""
    with of_system("cannot read the data", InputError, location=str(path)):
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise InputError("this is not a regular file", location=str(path), hint="give an .npz, .npy or .h5 file")
        with path.open("rb") as file:
            return file.read(most)


def read_raw(prefix: str, tensors: Sequence[tuple[np.dtype[Any], tuple[int, ...]]]) -> list[Array]:
    """Return arrays of these dtypes and shapes from ``prefix.0``, ``prefix.1`` ...

    Raises InputError if sizes differ.
    """
    arrays = []
    for index, (dtype, shape) in enumerate(tensors):
        path = Path(f"{prefix}.{index}")
        data = read_regular(path)
        expected = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if len(data) != expected:
            raise InputError(f"the file has {len(data)} bytes, the input {expected}", location=str(path))
        arrays.append(np.frombuffer(data, dtype).reshape(shape))
    return arrays


def write_raw(prefix: str, arrays: Sequence[Array], *, overwrite: bool = False) -> None:
    """Write the bytes of the arrays to ``prefix.0``, ``prefix.1`` ...

    Raw files cannot be recognised as ours: unless ``overwrite``, raises OptionError if a file exists.
    """
    for index in range(len(arrays)):
        check_output(f"{prefix}.{index}", UNKNOWN, overwrite=overwrite)
    for index, array in enumerate(arrays):
        write_file(f"{prefix}.{index}", np.ascontiguousarray(array).tobytes())


def random_inputs(
    tensors: Sequence[tuple[np.dtype[Any], tuple[int, ...]]], seed: int, limits: Sequence[int | None] = ()
) -> list[Array]:
    """Return reproducible data: normal floats (deviation 2), similar 8- and 16-bit codes, other integers 0..99.

    ``limits`` are exclusive upper bounds of integers by tensor, None or absent for no bound.
    """
    random = np.random.default_rng(seed)
    return [
        _random(random, dtype, shape, limit) for (dtype, shape), limit in zip_longest(tensors, limits[: len(tensors)])
    ]


def _random(random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], limit: int | None) -> Array:
    if len(shape) > MAX_RANK or math.prod(shape) > MAX_ELEMENTS:
        hint = f"the rank may be {MAX_RANK}, and memory must hold it"
        raise InputError(f"an input of rank {len(shape)} and {math.prod(shape):.3g} elements is too large", hint=hint)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu" and (dtype.itemsize > 2 or limit is not None):
        return random.integers(0, max(limit, 1) if limit is not None else _INTEGERS, shape).astype(dtype)
    normal = random.normal(0.0, 2.0, shape)
    if dtype.kind in "iu":
        # -5..5 covers the whole range of codes.
        limits = np.iinfo(dtype)
        codes = (normal + 5.0) / 10.0 * (int(limits.max) - int(limits.min)) + int(limits.min)
        return np.clip(codes, limits.min, limits.max).astype(dtype)
    if dtype.kind in "fc":
        return normal.astype(dtype)
    raise InputError(f"cannot generate random data of type {dtype.name}", hint="load some from a file")
