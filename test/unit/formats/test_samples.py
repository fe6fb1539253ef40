"""Sample files: the layouts that are read, the ones that are written, and what is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odc_mlir.errors import InputError, OptionError
from odc_mlir.formats.samples import (
    Samples,
    random_inputs,
    read_labels,
    read_raw,
    read_samples,
    write_outputs,
    write_raw,
)

A = np.arange(6, dtype=np.float32).reshape(1, 6)
B = np.arange(3, dtype=np.int8)


def _npz(path: Path, **arrays: Any) -> Path:
    np.savez(path / "in.npz", **arrays)
    return path / "in.npz"


def _same(found: Samples, *records: list[np.ndarray]) -> None:
    assert len(found.records) == len(records)
    for ours, expected in zip(found.records, records, strict=True):
        assert len(ours) == len(expected)
        for a, b in zip(ours, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_one_sample(tmp_path: Path) -> None:
    found = read_samples(_npz(tmp_path, in_0=A, in_1=B, other=B), [(None, None), (None,)])
    _same(found, [A, B])
    assert (found.layout, found.labels) == ("single", None)


@pytest.mark.parametrize(
    ("first", "second"), [("x", "input_1"), ("one", "two"), ("x", "two"), ("in_0", "in_1"), ("one", "y")]
)
def test_arrays_with_the_names_of_inputs(first: str, second: str, tmp_path: Path) -> None:
    names = [("x", "one"), ("y" if second == "y" else "input_1", "two")]
    path = _npz(tmp_path, **{second: B, first: A})
    found = read_samples(path, [(None, None), (None,)], names=names)
    _same(found, [A, B])
    assert (found.layout, found.labels) == ("single", None)


def test_numbered_arrays_come_before_names(tmp_path: Path) -> None:
    path = _npz(tmp_path, in_0=A, x=B, y=B)
    found = read_samples(path, [(None, None)], names=[("x", "")])
    _same(found, [A])
    assert found.labels is not None
    with pytest.raises(InputError, match="in_0 is missing"):
        read_samples(_npz(tmp_path, other=A), [(None, None)], names=[("x", "")])


def test_numbered_samples(tmp_path: Path) -> None:
    found = read_samples(_npz(tmp_path, in_0_0=A, in_0_1=B, in_1_0=A + 1, in_1_1=B), [(None, None), (None,)])
    _same(found, [A, B], [A + 1, B])
    assert found.layout == "numbered"


def test_arrays_hold_several_samples_if_only_their_parts_fit(tmp_path: Path) -> None:
    """An array [2, 3] is one sample of an input [2, 3], and two of [1, 3], [3] or an open batch, [None, 3]."""
    two = A.reshape(2, 3)
    for shape, parts in (
        ((2, 3), [two]),
        ((None, 3), [two[:1], two[1:]]),
        ((1, 3), [two[:1], two[1:]]),
        ((3,), list(two)),
    ):
        found = read_samples(_npz(tmp_path, in_0=two), [shape])
        _same(found, *([part] for part in parts))
        assert found.layout == ("single" if len(parts) == 1 else "axis")
    # Without a common axis of samples, or with parts that do not fit either, the arrays are one sample.
    for arrays, shapes in (
        ([two, B], [(1, 3), None]),
        ([two], [(1, 4)]),
        ([B], [(None,)]),
        ([two, two[:1]], [(1, 3), (1, 3)]),
    ):
        found = read_samples(_npz(tmp_path, **{f"in_{j}": array for j, array in enumerate(arrays)}), shapes)
        _same(found, arrays)


def test_sample_axis_with_labels(tmp_path: Path) -> None:
    """One dimension less than the input: a batch of one is meant."""
    stacked = np.stack([A, A + 1])
    flat = stacked.reshape(2, 6)
    for array in (stacked, flat):
        found = read_samples(
            _npz(tmp_path, in_0=array, y=np.array([3, 4])),
            [(None, None)],
            sample_axis=True,
        )
        _same(found, [A], [A + 1])
        assert found.labels is not None
        assert found.labels.tolist() == [3, 4]


def test_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "one", "w") as file:
        file["value/0"], file["value/1"] = A, B
    _same(read_samples(tmp_path / "one", [(None, None), (None,)]), [A, B])
    with h5py.File(tmp_path / "many", "w") as file:
        file["value/0/0"], file["value/1/0"] = A, A + 1
    found = read_samples(tmp_path / "many", [(None, None)])
    _same(found, [A], [A + 1])
    assert found.layout == "numbered"


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"in_0": A}, "the array in_1 is missing; the model has 2 inputs"),
        ({"in_0": A, "in_1": B, "in_2": B}, "the array in_2 is one too many"),
        ({"in_0_0": A, "in_0_1": B, "in_2_0": A}, "the array in_1_0 is missing"),
        ({"in_0_0": A, "in_0": B}, "both numbered samples and arrays of one sample"),
        ({"x": A}, "the array in_0 is missing"),
        (
            {"in_0": A, "in_1": B, "in_0_-1": B},
            "the array 'in_0_-1' looks like an input, .*; inputs are in_0",
        ),
        ({"in_0": A, "in_1": B, "input_2": B}, "the array 'input_2' looks like an input"),
        ({"in_0": A, "in_1": B, "in_01": B}, "the array 'in_01' occurs twice"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], text: str) -> None:
    path = _npz(tmp_path, **arrays)
    with pytest.raises(InputError, match=text) as raised:
        read_samples(path, [(None, None), (None,)])
    assert raised.value.location == str(path)


def test_sample_counts_must_agree(tmp_path: Path) -> None:
    for arrays in ({"in_0": A[:, :3], "in_1": B}, {"in_0": np.float32(1), "in_1": B}, {"in_0": A[:0], "in_1": B[:0]}):
        with pytest.raises(InputError, match="same number of samples, at least one"):
            read_samples(_npz(tmp_path, **arrays), [(None, None), (None,)], sample_axis=True)


def test_a_missing_array_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the array in_1 is missing.*; the file has in_0, image, y$"):
        read_samples(_npz(tmp_path, in_0=A, image=B, y=B), [(None, None), (None,)])
    many = {f"x{number}": B for number in range(20)}
    with pytest.raises(InputError, match=r"the file has x0, .*, x7, 12 more$"):
        read_samples(_npz(tmp_path, **many), [(None, None), (None,)])


def test_npy_files_hold_the_only_input_or_the_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", A)
    (record,) = read_samples(tmp_path / "a.npy", [(None, None)]).records
    np.testing.assert_array_equal(record[0], A)
    assert len(read_samples(tmp_path / "a.npy", [(None,)], sample_axis=True).records) == len(A)
    np.testing.assert_array_equal(read_labels(tmp_path / "a.npy"), A)
    with pytest.raises(InputError, match="in_1 is missing"):
        read_samples(tmp_path / "a.npy", [(None, None), (None,)])
    content = (tmp_path / "a.npy").read_bytes()
    for damaged in (content[:-1], content[:20], content.replace(b"descr", b"dexcr")):
        (tmp_path / "b.npy").write_bytes(damaged)
        with pytest.raises(InputError, match="cannot read the NPY data"):
            read_samples(tmp_path / "b.npy", [(None, None)])
    np.save(tmp_path / "c.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot read the NPY data"):
        read_samples(tmp_path / "c.npy", [(None, None)])


def test_files_that_hold_no_samples(tmp_path: Path) -> None:
    cases = {"text": (b"hello", "neither NPZ, NPY nor HDF5"), "zip": (b"PK\x03\x04 broken", "cannot read the NPZ data")}
    for name, (data, text) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=text):
            read_samples(tmp_path / name, [(None,)])
    with pytest.raises(InputError, match="No such file"):
        read_samples(tmp_path / "none", [(None,)])


def _with_header(path: Path, header: bytes) -> Path:
    """An NPZ file whose array in_0 has this header and sixteen bytes of data."""
    npy = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(16)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("in_0.npy", npy)
    return path


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,",  # numpy: tokenize.TokenError
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % 2**60,  # numpy: MemoryError
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, %d), }" % 10**30,
        b"{'descr': ',,', 'fortran_order': False, 'shape': (4,), }",
        b"(" * 500,
    ],
)
def test_headers_of_arrays_that_are_wrong(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(InputError, match="cannot read the NPZ data"):
        read_samples(_with_header(tmp_path / "h.npz", header), [(None,)])


def test_a_directory_of_a_zip_that_is_wrong(tmp_path: Path) -> None:
    """Its zip64 field promises more than there is: an IndexError or struct.error in zipfile."""
    data = bytearray(_npz(tmp_path, in_0=A).read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = b"\xff" * 4
    data[at + 30 : at + 32] = b"\x04\x00"
    data[at + 46 + 8 : at + 46 + 12] = b"\x01\x00\x00\x00"
    (tmp_path / "d.npz").write_bytes(data)
    with pytest.raises(InputError, match="cannot read the NPZ data"):
        read_samples(tmp_path / "d.npz", [(None, None)])


def test_arrays_that_claim_to_be_larger_than_believable(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in_0.npy", b"")
    data = bytearray((tmp_path / "b.npz").read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (3 << 30).to_bytes(4, "little")
    (tmp_path / "b.npz").write_bytes(data)
    with pytest.raises(InputError, match="claim 3221225472 bytes"):
        read_samples(tmp_path / "b.npz", [(None,)])
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("value/0", (1 << 33,), "u1", chunks=(1 << 20,))
    with pytest.raises(InputError, match=r"claim to be larger than \d+ bytes, the most"):
        read_samples(tmp_path / "b.h5", [(None,)])


def test_pickles_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.npz", "w") as archive, archive.open("in_0.npy", "w") as member:
        np.lib.format.write_array(member, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot read the NPZ data"):
        read_samples(tmp_path / "p.npz", [(None,)])


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize("layout", ["single", "numbered"])
def test_outputs_in_the_layout_of_inputs(tmp_path: Path, suffix: str, layout: Any) -> None:
    outputs = [[A, B]] if layout == "single" else [[A, B], [A + 1, B]]
    path = tmp_path / f"out{suffix}"
    write_outputs(path, outputs, layout)
    if suffix == ".npz":
        with np.load(path) as archive:
            prefix = "out_1_" if layout == "numbered" else "out_"
            np.testing.assert_array_equal(archive[f"{prefix}0"], outputs[-1][0])
            assert archive[f"{prefix}1"].dtype == np.int8
    else:
        _same(read_samples(path, [(None, None), (None,)]), *outputs)


def test_other_tensors_stand_beside_the_outputs(tmp_path: Path) -> None:
    write_outputs(tmp_path / "o.npz", [[A]], "single", [{"file": B, "a/b;c": A}])
    with np.load(tmp_path / "o.npz") as archive:
        assert set(archive.files) == {"out_0", "file", "a/b;c"}
        np.testing.assert_array_equal(archive["a/b;c"], A)
    write_outputs(tmp_path / "o.npz", [[A], [A]], "numbered", [{"t": A}, {"t": A + 1}])
    with np.load(tmp_path / "o.npz") as archive:
        np.testing.assert_array_equal(archive["1/t"], A + 1)
    write_outputs(tmp_path / "o.npz", [[A], [A]], "axis", [{"t": A}, {"t": A + 1}])
    with np.load(tmp_path / "o.npz") as archive:
        np.testing.assert_array_equal(archive["t"], np.concatenate([A, A + 1]))
    with pytest.raises(OptionError, match="'out_0' has the name of an output"):
        write_outputs(tmp_path / "o.npz", [[A]], "single", [{"out_0": B}])


def test_other_tensors_in_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    write_outputs(tmp_path / "o.h5", [[A]], "single", [{"a/b": B}])
    write_outputs(tmp_path / "n.h5", [[A], [A]], "numbered", [{"t": A}, {"t": A + 1}])
    with h5py.File(tmp_path / "o.h5") as file:
        np.testing.assert_array_equal(file["tensor/a/b"][()], B)
    with h5py.File(tmp_path / "n.h5") as file:
        np.testing.assert_array_equal(file["tensor/1/t"][()], A + 1)


def test_outputs_along_an_axis(tmp_path: Path) -> None:
    write_outputs(tmp_path / "o.npz", [[A, B], [A + 1, B]], "axis")
    with np.load(tmp_path / "o.npz") as archive:
        np.testing.assert_array_equal(archive["out_0"], np.concatenate([A, A + 1]))
        np.testing.assert_array_equal(archive["out_1"], np.stack([B, B]))
    with pytest.raises(InputError, match="differ in shape"):
        write_outputs(tmp_path / "o.npz", [[A], [A[:, :2]]], "axis")


def test_the_suffix_decides_the_format(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot tell the format .* use \.npz, \.h5 or \.hdf5"):
        write_outputs(tmp_path / "out.bin", [[A]], "single")


def test_strings_need_no_pickle(tmp_path: Path) -> None:
    write_outputs(tmp_path / "o.npz", [[np.array([b"ab", b"c"], dtype=object)]], "single")
    with np.load(tmp_path / "o.npz", allow_pickle=False) as archive:
        assert archive["out_0"].tolist() == [b"ab", b"c"]


def test_raw(tmp_path: Path) -> None:
    prefix = str(tmp_path / "raw")
    write_raw(prefix, [A, B])
    described = [(A.dtype, A.shape), (B.dtype, B.shape)]
    for found, expected in zip(read_raw(prefix, described), (A, B), strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(InputError, match=r"the file has 24 bytes, the input 12 \(in .*raw\.0\)"):
        read_raw(prefix, [(A.dtype, (3,))])
    with pytest.raises(InputError, match=r"No such file.*raw\.2"):
        read_raw(prefix, [*described, described[0]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"])
def test_random_inputs(dtype: str) -> None:
    described = [(np.dtype(dtype), (200,))]
    (first,) = random_inputs(described, 1)
    (again,) = random_inputs(described, 1)
    (other,) = random_inputs(described, 2)
    assert first.dtype == dtype
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert len(np.unique(first)) > 1


def test_no_random_strings() -> None:
    with pytest.raises(InputError, match="cannot generate random data of type object"):
        random_inputs([(np.dtype(object), (1,))], 1)


@pytest.mark.parametrize("shape", [(1,) * 5000, (10**20, 4), (2**40, 2**40)])
def test_no_random_data_of_impossible_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"an input of rank \d+ and .* elements is too large"):
        random_inputs([(np.dtype(np.float32), shape)], 1)


def test_names_that_are_folders_of_others_in_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    names = {"w": 1, "w/scale": 2, "w/value": 3, "w/value/scale": 4, "v": 5}
    write_outputs(tmp_path / "t.h5", [[]], "single", [{name: np.array(value) for name, value in names.items()}])
    with h5py.File(tmp_path / "t.h5") as file:
        places = ("w/value_", "w/scale", "w/value/value", "w/value/scale", "v")
        assert [file["tensor"][place][()] for place in places] == [1, 2, 3, 4, 5]
    with pytest.raises(OptionError, match="no unique name"):
        write_outputs(tmp_path / "u.h5", [[]], "single", [{"a/b": np.array(1), "a//b": np.array(2)}])
