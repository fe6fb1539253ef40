"""Calibration data in each form that people keep it in, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odc_mlir.errors import InputError, OptionError
from odc_mlir.formats.calibration import Pictures, read_calibration
from odc_mlir.formats.samples import Samples
from odc_mlir.ops.spec import TensorInfo

TWO = (TensorInfo("a", "float32", (1, 2)), TensorInfo("b", "int16", (3,)))
ONE = (TensorInfo("a", "float32", (1, 2)),)
OPEN = (TensorInfo("a", "float32", (None, 2)),)
SAMPLES = [[np.array([[k, -k]], np.float32), np.arange(k, k + 3, dtype=np.int16)] for k in range(4)]


def _values(samples: Samples) -> list[list[Any]]:
    return [[array.tolist() for array in record] for record in samples.records]


def _write_raw(folder: Path) -> None:
    folder.mkdir()
    for k, record in enumerate(SAMPLES):
        (folder / f"sample{k}.bin").write_bytes(b"".join(array.tobytes() for array in record))


EXPECTED = [[array.tolist() for array in record] for record in SAMPLES]


def test_npz_with_a_sample_axis_and_labels(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, in_0=np.stack([a[0] for a, _ in SAMPLES]), in_1=np.stack([b for _, b in SAMPLES]), y=np.arange(4))
    found = read_calibration(path, TWO, most=3)
    assert [record[1].tolist() for record in found.records] == [b.tolist() for _, b in SAMPLES[:3]]
    assert found.records[2][0].reshape(-1).tolist() == [2, -2]
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("inputs", "shape", "count"), [(ONE, (1, 2), 1), (ONE, (5, 2), 5), (OPEN, (5, 2), 5)])
def test_one_sample_or_many(tmp_path: Path, inputs: Any, shape: tuple[int, ...], count: int) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, in_0=np.ones(shape, np.float32))
    records = read_calibration(path, inputs).records
    assert len(records) == count
    assert records[0][0].shape == (1, 2)


def test_numbered_npz(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **{f"in_{k}_{j}": array for k, record in enumerate(SAMPLES) for j, array in enumerate(record)})
    assert _values(read_calibration(path, TWO)) == EXPECTED


@pytest.mark.parametrize("single", [False, True])
def test_hdf5(tmp_path: Path, single: bool) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        for k, record in enumerate(SAMPLES[: 1 if single else None]):
            for j, array in enumerate(record):
                file[f"value/{j}" if single else f"value/{k}/{j}"] = array
    assert _values(read_calibration(path, TWO)) == EXPECTED[: 1 if single else None]


def test_hdf5_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(OptionError, match=r"HDF5 files need the package h5py .*; pip install 'odc-mlir\[hdf5\]'"):
        read_calibration(tmp_path / "data.h5", ONE)


def test_a_folder_of_raw_files(tmp_path: Path) -> None:
    _write_raw(tmp_path / "raw")
    (tmp_path / "raw" / ".hidden").write_bytes(b"none of the samples")
    (tmp_path / "raw" / ".folder").mkdir()
    (tmp_path / "raw" / ".folder" / "x").write_bytes(b"neither")
    assert _values(read_calibration(tmp_path / "raw", TWO)) == EXPECTED
    assert _values(read_calibration(tmp_path / "raw", TWO, most=2)) == EXPECTED[:2]


def test_a_list_of_raw_files(tmp_path: Path) -> None:
    _write_raw(tmp_path / "raw")
    (tmp_path / "list.txt").write_text(f"raw/sample2.bin\n\n  {tmp_path}/raw/sample0.bin\n")
    assert _values(read_calibration(tmp_path / "list.txt", TWO)) == [EXPECTED[2], EXPECTED[0]]


def test_raw_files_of_another_size(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "short").write_bytes(b"12345")
    with pytest.raises(
        InputError, match=r"the file has 5 bytes, but the model's inputs take 14 \(8 \+ 6\) .*raw/short"
    ):
        read_calibration(tmp_path / "raw", TWO)
    with pytest.raises(InputError, match=r"the file has 5 bytes, but the model's inputs take 8 \("):
        read_calibration(tmp_path / "raw", ONE)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (TensorInfo("a", "string", (1,)), "raw files cannot hold strings"),
        (TensorInfo("a", "float32", None), "the input's rank is unknown"),
    ],
)
def test_inputs_that_raw_files_cannot_hold(tmp_path: Path, info: TensorInfo, message: str) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "x").write_bytes(b"12345678")
    with pytest.raises(InputError, match=message):
        read_calibration(tmp_path / "raw", (info,))


def test_open_dimensions_of_raw_files_are_one(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "x").write_bytes(np.array([3, 4], np.float32).tobytes())
    assert _values(read_calibration(tmp_path / "raw", OPEN)) == [[[[3, 4]]]]


def test_lists_of_arrays_and_samples() -> None:
    assert _values(read_calibration(iter(SAMPLES), TWO, most=2)) == EXPECTED[:2]
    assert _values(read_calibration(Samples(SAMPLES, "numbered"), TWO, most=3)) == EXPECTED[:3]
    assert _values(read_calibration([[[[1.0, 2.0]]]], ONE)) == [[[[1, 2]]]]
    with pytest.raises(InputError, match="a sample is ndarray, expected a list of arrays, one per input"):
        read_calibration([np.zeros((1, 2))], ONE)


def test_what_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for source, message in (
        ([], "there is no sample"),
        (tmp_path / "empty", r"there is no sample \(in .*empty\)"),
        (tmp_path / "none", r"cannot read the data: No such file or directory \(in .*none\)"),
        (tmp_path / "binary", "the data is neither NPZ nor HDF5 nor a list of files"),
    ):
        with pytest.raises(InputError, match=message):
            read_calibration(source, ONE)
    for listed in ("missing.bin", "1.5,2,3"):
        (tmp_path / "list").write_text(listed)
        message = rf"as a list of files it names '.*{listed}', which is not there \(in .*list\); give a .npz or HDF5"
        with pytest.raises(InputError, match=message):
            read_calibration(tmp_path / "list", ONE)
    (tmp_path / "there.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
    (tmp_path / "list").write_text("there.bin\nmissing.bin")
    with pytest.raises(InputError, match=r"No such file or directory \(in .*missing.bin\)"):
        read_calibration(tmp_path / "list", ONE)
    with pytest.raises(OptionError, match="the largest number of samples is 0, expected at least 1"):
        read_calibration(SAMPLES, TWO, most=0)


def _picture(path: Path, size: tuple[int, int], colours: tuple[tuple[int, int, int], ...]) -> None:
    """``size`` is [height, width]; stripes of ``colours`` from left to right."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((*size, 3), np.uint8)
    for part, colour in zip(np.array_split(np.arange(size[1]), len(colours)), colours, strict=True):
        pixels[:, part] = colour
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels).save(path)


def _image_input(height: int, width: int, channels: int = 3, dtype: str = "float32") -> tuple[TensorInfo]:
    return (TensorInfo("picture", dtype, (1, height, width, channels)),)


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    _picture(tmp_path / "cats" / "b.png", (4, 4), ((255, 0, 51),))
    _picture(tmp_path / "cats" / "a.png", (4, 4), ((0, 102, 0),))
    (tmp_path / "cats" / "readme.txt").write_text("not one of them")
    found = read_calibration(tmp_path, _image_input(2, 2))
    assert [record[0].shape for record in found.records] == [(1, 2, 2, 3)] * 2
    np.testing.assert_allclose(found.records[0][0][0, 0, 0], [0, 0.4, 0], atol=1e-6)
    np.testing.assert_allclose(found.records[1][0][0, 1, 1], [1, 0, 0.2], atol=1e-6)
    assert found.records[0][0].dtype == np.float32


def test_mean_and_scale_by_channel(tmp_path: Path) -> None:
    _picture(tmp_path / "a.png", (2, 2), ((10, 20, 30),))
    pictures = Pictures(mean=(10.0, 10.0, 20.0), scale=(1.0, 0.5, 0.1))
    (record,) = read_calibration(tmp_path, _image_input(2, 2), pictures=pictures).records
    np.testing.assert_allclose(record[0][0, 0, 0], [0, 5, 1], rtol=1e-6)
    with pytest.raises(OptionError, match="mean has 2 values, expected 1 or one per channel: 3"):
        read_calibration(tmp_path, _image_input(2, 2), pictures=Pictures(mean=(1.0, 2.0)))


def test_the_middle_of_a_wide_picture(tmp_path: Path) -> None:
    _picture(tmp_path / "a.png", (2, 6), ((255, 0, 0), (0, 255, 0), (0, 0, 255)))
    (record,) = read_calibration(tmp_path, _image_input(2, 2)).records
    np.testing.assert_allclose(record[0][0, :, :, 1], 1.0)


@pytest.mark.parametrize(("dtype", "expected"), [("uint8", 200), ("int8", 72)])
def test_pictures_for_quantised_inputs(tmp_path: Path, dtype: str, expected: int) -> None:
    _picture(tmp_path / "a.png", (2, 2), ((200, 200, 200),))
    (record,) = read_calibration(tmp_path, _image_input(2, 2, 1, dtype)).records
    assert record[0].dtype == np.dtype(dtype)
    assert record[0].tolist() == [[[[expected]] * 2] * 2]


def test_pictures_that_do_not_fit(tmp_path: Path) -> None:
    _picture(tmp_path / "a.png", (2, 2), ((1, 2, 3),))
    for inputs in (ONE, TWO, _image_input(2, 2, 4)):
        with pytest.raises(InputError, match="images are for models with one input"):
            read_calibration(tmp_path, inputs)
    with pytest.raises(InputError, match="images cannot be int32"):
        read_calibration(tmp_path, _image_input(2, 2, 3, "int32"))
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"cannot read the picture: .*a.png"):
        read_calibration(tmp_path, _image_input(2, 2))


def test_pictures_without_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(OptionError, match=r"images need the package Pillow; pip install 'odc-mlir\[images\]'"):
        read_calibration(tmp_path, _image_input(2, 2))


def test_a_list_with_a_name_that_no_system_takes(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"a\0b.raw\n")
    with pytest.raises(InputError, match=r"it names .*a\\x00b.raw', which is not there"):
        read_calibration(tmp_path / "list.txt", [TensorInfo("x", "float32", (1, 4))])
