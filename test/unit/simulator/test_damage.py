"""Damaged files end in an error of ours or in a run, soon and in little memory, whatever the damage."""

from __future__ import annotations

import resource
import time
from collections import Counter

import numpy as np
import pytest

from helpers import npu_listing as listing
from helpers.npu import pack, repair_checksums
from odc_mlir.errors import OdcError, PackageError, SimulationError, TargetError
from odc_mlir.simulator import load, simulate

LOOPED = pack(
    """
    loop count=4 body_bytes=96
    load source=inputs:0 target=0 size0=64 size1=1 size2=1 step.source=64 step.target=64 post=1
    store target=outputs:0 source=0 size0=64 size1=1 size2=1 step.target=64 step.source=64 wait=1
    end
    halt""",
    inputs=[(256,)],
    outputs=[(256,)],
)
FILES = {"tiled": (listing.packed(), listing.X), "looped": (LOOPED, np.zeros(256, "int8"))}
SECONDS, BYTES = 5.0, 1 << 30


def outcome(data: bytes, x: np.ndarray) -> str:
    """What comes of a file: the kind of error, or what ran. Anything but an OdcError propagates."""
    try:
        return "run" if simulate(load(data), [x], instruction_limit=20_000, cycle_limit=50_000_000) else ""
    except OdcError as error:
        return type(error).__name__ if "\n" not in str(error) else "an error of several lines"


def outcomes(files: list[bytes], x: np.ndarray) -> Counter[str]:
    counts: Counter[str] = Counter()
    before = peak_bytes()
    for data in files:
        began = time.process_time()
        counts[outcome(data, x)] += 1
        assert time.process_time() - began < SECONDS
    assert peak_bytes() - before < BYTES
    return counts


def peak_bytes() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("name", FILES)
def test_truncated_files_are_refused(name: str) -> None:
    data, x = FILES[name]
    lengths = np.linspace(0, len(data) - 1, 500).astype(int).tolist()
    cut = [data[:length] for length in lengths]
    halves = [piece if number % 2 else resized(repair_checksums(piece)) for number, piece in enumerate(cut)]
    counts = outcomes(halves, x)
    assert counts.total() == 500
    assert set(counts) <= {"PackageError", "SimulationError"}


def resized(data: bytes) -> bytes:
    """A truncated file whose header says how long it is: the damage is found further in."""
    if len(data) < 64:
        return data
    return repair_checksums(data[:20] + len(data).to_bytes(4, "little") + data[24:])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("where", ["anywhere", "code"])
def test_flipped_bits_are_refused_or_run(name: str, where: str) -> None:
    """Half of the files have right checksums again: then only the contents can tell."""
    data, x = FILES[name]
    rng = np.random.default_rng(sum(name.encode()) + len(where))
    files = []
    for number in range(250):
        damaged = bytearray(data)
        start, end = (0, len(data)) if where == "anywhere" else (256, 256 + 600)
        damaged[int(rng.integers(start, min(end, len(data))))] ^= 1 << int(rng.integers(8))
        files.append(bytes(damaged) if number % 2 else repair_checksums(bytes(damaged)))
    counts = outcomes(files, x)
    assert counts["PackageError"] >= 125  # a checksum finds every single flip
    assert counts["SimulationError"] > 0
    assert set(counts) <= {"PackageError", "SimulationError", "TargetError", "UnsupportedError", "InputError", "run"}


def test_a_flip_without_repair_never_runs() -> None:
    data, _ = FILES["looped"]
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(PackageError):
            load(bytes(damaged))


def test_random_code_is_refused_or_run() -> None:
    """Valid instructions with random fields, thousands of them: the worst that a file can ask for."""
    rng = np.random.default_rng(7)
    data, x = FILES["tiled"]
    header, code_start = data[:256], 256
    code_bytes = int.from_bytes(data[64 + 16 : 64 + 24], "little")
    files = []
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(int(rng.integers(1, 12))):
            # beyond the prefixes, so that most of it still decodes
            position = code_start + int(rng.integers(code_bytes)) // 16 * 16 + int(rng.integers(5, 16))
            damaged[position] = int(rng.integers(256))
        files.append(repair_checksums(bytes(damaged)))
    assert files[0][:20] == header[:20]
    counts = outcomes(files, x)
    assert counts["SimulationError"] > 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loop count=65535 body_bytes=16\nsync@mac\nend\n" * 40 + "halt", "the program issues 5242841 instructions"),
        ("loop count=65535 body_bytes=64\n" + "sync@mac\n" * 4 + "end\nhalt", "more than 20000"),
    ],
)
def test_long_loops_are_refused_before_they_run(text: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(SimulationError, match=message):
        simulate(load(pack(text)), instruction_limit=20_000)
    assert time.process_time() - began < 1


def test_the_largest_convolutions_end() -> None:
    """Few bytes can ask for many products: bounded by local memory, computed in pieces."""
    fields = "emit=1 in_type=i8 weight_type=i8 out_type=i8 multiplier=1 in_channels=1 channels=1 shape=0"
    fields += " stride_y=1 stride_x=1 dilation_y=1 dilation_x=1 act_min=-128 act_max=127 in_stride_x=1"
    geometry = "in_stride_y=96 out_width=32 out_height=32 kernel_height=64 kernel_width=64 output=18000 out_stride_x=1"
    text = f"""
        fill target=0 bytes=16000
        wload source=constants:0 coded_bytes=4096 bytes=4096
        param source=constants:4096 count=1 post=1
        fill target=0 bytes=16000 post=0
        conv {fields} {geometry} out_stride_y=32 wait=0,1
        halt"""
    began = time.process_time()
    result = simulate(load(pack(text, constants=bytes(4096 + 16))))
    assert result.counters.macs_useful == 32 * 32 * 64 * 64
    assert time.process_time() - began < SECONDS


def test_sizes_are_bounded_by_the_target() -> None:
    with pytest.raises(PackageError, match="take 4194305 bytes, npu-256 has 4194304 of SRAM"):
        load(pack("halt", arena=4_194_305))
    assert load(pack("halt", arena=4_194_304))
    with pytest.raises(PackageError, match="take 4194432 bytes"):
        load(pack("halt", arena=4_194_304 - 128, inputs=[(128,)], outputs=[(128,)]))


def test_another_target_is_refused() -> None:
    data = listing.packed()
    with pytest.raises(TargetError, match="compiled for another version of target 'npu-256' or another memory mode"):
        load(data, target="npu-512")
    assert load(data, target="npu-256").target.name == "npu-256"
