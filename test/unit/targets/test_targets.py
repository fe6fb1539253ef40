"""Target descriptions are read strictly."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import odc_mlir
from helpers.networks import RandomNetwork
from odc_mlir import targets
from odc_mlir.errors import TargetError

TEXT = (resources.files(targets) / "npu-256.toml").read_text("utf-8")


def test_shipped_targets_load() -> None:
    assert targets.names() == ("npu-128", "npu-2048", "npu-256", "npu-512")
    assert [targets.load(name).name for name in targets.names()] == list(targets.names())


def test_a_file_is_as_good_as_a_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    assert targets.load(path) == targets.load("npu-256")


def test_a_machine_of_ones_own_need_not_be_like_another(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(r"compares_with.*\n", "", TEXT))
    with pytest.raises(TargetError, match="a shipped target is called 'npu-256'"):
        targets.load(path)
    path.write_text(re.sub(r"compares_with.*\n", "", TEXT).replace('"npu-256"', '"mine"'))
    found = targets.load(path)
    assert found.compares_with == ""
    assert targets.from_canonical(found.canonical, "mine") == found


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("clock_hz = 500_000_000", "", "missing key 'clock_hz'"),
        ("clock_hz = 500_000_000", "clock_hz = 1\nvoltage = 1", "unknown key 'voltage'"),
        ("issue_cycles = 2", "issue_cycles = 2\nspare = 1", "unknown key 'fetch.spare'"),
        ("issue_cycles = 2", "issue_cycles = 2.5", "key 'fetch.issue_cycles' has the value 2.5"),
        ("issue_cycles = 2", "issue_cycles = true", "key 'fetch.issue_cycles' has the value True"),
        ("issue_cycles = 2", "issue_cycles = -2", "key 'fetch.issue_cycles' has the value -2"),
        ("depthwise_shape = [16, 16]", "depthwise_shape = [16]", "key 'array.depthwise_shape'"),
        ("depthwise_shape = [16, 16]", "depthwise_shape = [16, 8]", "array shape 16x8 does not use 256 multipliers"),
        (
            "macs_per_cycle = 256",
            "macs_per_cycle = 300",
            "array shape 32x8 does not use 300 multipliers (in mine.toml); pixels times channels must be",
        ),
        (
            "macs_per_cycle = 256",
            "macs_per_cycle = 512",
            "array shape 32x8 does not use 512 multipliers (in mine.toml); use shapes = [[64, 8], [32, 16], [16, 32], "
            "[8, 64]] and depthwise_shape = [32, 16]",
        ),
        ("[[32, 8], [16, 16], [8, 32], [4, 64]]", "[]", "key 'array.shapes'"),
        (
            "[[32, 8], [16, 16], [8, 32], [4, 64]]",
            "[[32, 8], [16, 16], [8, 32], [4, 64], [2, 128]]",
            "at most 4 array shapes",
        ),
        ("requant_lanes = 8", "requant_lanes = 0", "key 'vector.requant_lanes' is 0, it must be at least 1"),
        ("bytes_per_cycle = 1\n", "bytes_per_cycle = 0\n", "key 'offchip.bytes_per_cycle' is 0, it must be at least 1"),
        (
            "buffer_bytes = 256",
            "buffer_bytes = 255",
            "key 'fetch.buffer_bytes' is 255, it must be at least 256: two bursts and two instructions",
        ),
        ('name = "npu-256"', "name = ", "not valid TOML"),
        ('name = "npu-256"', "name = " + "[" * 9999, "not valid TOML"),
        (
            "tile_bytes = 19_168",
            "tile_bytes = 64",
            "key 'local.tile_bytes' is 64, it must be at least 1024: two slots for inputs and two for results",
        ),
        (
            "tile_bytes = 19_168",
            "tile_bytes = 65_537",
            "key 'local.tile_bytes' is 65537, it may be at most 65536: addresses in instructions have 16 bits",
        ),
        ("weight_bytes = 16_384", "weight_bytes = 511", "key 'local.weight_bytes' is 511, it must be at least 512"),
        ("accumulators = 2_048", "accumulators = 31", "key 'local.accumulators' is 31, it must be at least 32: one"),
        ("accumulator_bytes = 5", "accumulator_bytes = 4", "key 'local.accumulator_bytes' is 4, it must be at least 5"),
        ("accumulator_bytes = 5", "accumulator_bytes = 6", "key 'local.accumulator_bytes' is 6, it may be at most 5"),
        ("param_entry_bytes = 9", "param_entry_bytes = 8", "key 'local.param_entry_bytes' is 8, it must be at least 9"),
        ("param_entries = 256", "param_entries = 7", "key 'local.param_entries' is 7, it must be at least 16: two"),
        ("table_bytes = 1_056", "table_bytes = 255", "key 'local.table_bytes' is 255, it must be at least 256: one"),
        ("capacity_bytes = 4_194_304", "capacity_bytes = 1", "key 'sram.capacity_bytes' is 1, it must be at least"),
        (
            "capacity_bytes = 4_194_304",
            "capacity_bytes = 268_435_457",
            "key 'sram.capacity_bytes' is 268435457, it may",
        ),
        ("burst_bytes = 128", "burst_bytes = 96", "key 'offchip.burst_bytes' is 96, it must be at least 1 and divide"),
        ("burst_bytes = 32", "burst_bytes = 0", "key 'sram.burst_bytes' is 0, it must be at least 1 and divide 128"),
        ("clock_hz = 500_000_000", f"clock_hz = {10**30}", f"key 'clock_hz' is {10**30}, it may be at most"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(TargetError) as raised:
        targets.parse(TEXT.replace(old, new), "mine.toml")
    assert str(raised.value).startswith(message)
    assert "in mine.toml" in str(raised.value)


def _numbers(value: Any, path: str = "") -> Iterator[str]:
    """The keys of all whole numbers of a target."""
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if dataclasses.is_dataclass(item) and field.compare:
            yield from _numbers(item, f"{path}{field.name}.")
        elif isinstance(item, int):
            yield path + field.name


def test_every_number_has_limits() -> None:
    machine = targets.load("npu-256")
    ports = {"sram.burst_bytes", "offchip.burst_bytes"}
    assert set(_numbers(machine)) == {limit.key for limit in targets.limits(machine)} | ports


def _with(key: str, value: int) -> str:
    """npu-256 under another name with ``value`` in place of the number ``key``."""
    table, _, name = key.rpartition(".")
    text = TEXT.replace('"npu-256"', '"mine"', 1)
    start = text.index(f"\n[{table}]") if table else 0
    return text[:start] + re.sub(rf"^{name} = [\d_]+", f"{name} = {value}", text[start:], count=1, flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(_numbers(targets.load("npu-256"))))
def test_a_number_is_refused_or_works(key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever its value, a number is refused by name, or a model compiles without a defect."""
    limit = next((item for item in targets.limits(targets.load("npu-256")) if item.key == key), None)
    ends = () if limit is None else (limit.least - 1, limit.least, limit.most, limit.most + 1)
    accepted, model = 0, RandomNetwork(4).build(operators=3)
    for value in {0, 1_000_000_007, 1 << 63, 10**30, *ends} - {-1}:
        path = tmp_path / f"{value}.toml"
        path.write_text(_with(key, value))
        if limit is not None and limit.least <= value <= limit.most and key != "array.macs_per_cycle":
            odc_mlir.compile(model, target=str(path))
            accepted += 1
            continue
        message = "does not use" if key == "array.macs_per_cycle" else f"key {key!r} is {value}, it m"
        with pytest.raises(TargetError, match=re.escape(message)):
            targets.load(path)
    assert accepted or key.endswith("burst_bytes") or key == "array.macs_per_cycle"
    assert "defect" not in caplog.text


@pytest.mark.parametrize("name", targets.names())
def test_the_canonical_text_describes_the_target(name: str) -> None:
    target = targets.load(name)
    assert targets.from_canonical(target.canonical, "x") == target


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a canonical target description"),
        ("[" * 100_000, "not a canonical target description"),
        ("[]", "key '' must be a table"),
        ("{}", "missing key 'name'"),
    ],
)
def test_a_malformed_canonical_text_is_named(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message) as raised:
        targets.from_canonical(text, "x.npu")
    assert "in x.npu" in str(raised.value)


def test_a_table_must_be_a_table() -> None:
    start, end = TEXT.index("[dma]"), len(TEXT)
    with pytest.raises(TargetError, match="key 'dma' must be a table"):
        targets.parse("dma = 1\n" + TEXT[:start] + TEXT[end:], "mine.toml")


@pytest.mark.parametrize("name", ["npu-1", "", "npu-256.tom"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(TargetError, match="npu-128, npu-2048, npu-256, npu-512, or"):
        targets.load(name)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"none\.toml"):
        targets.load(tmp_path / "none.toml")


def test_the_digest_tells_targets_and_memory_modes_apart() -> None:
    digests = {targets.load(name).digest(mode) for name in targets.names() for mode in targets.MEMORY_MODES}
    assert len(digests) == 2 * len(targets.names())
    changed = targets.parse(TEXT.replace("issue_cycles = 2", "issue_cycles = 3"), "mine.toml")
    assert changed.digest("flash") not in digests


def test_comments_do_not_change_the_digest() -> None:
    same = targets.parse("# a comment\n" + TEXT, "mine.toml")
    assert same.digest("flash") == targets.load("npu-256").digest("flash")


def test_descriptions_are_regular_files_of_some_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "folder.toml").mkdir()
    for name in ("pipe.toml", "zero.toml", "folder.toml"):
        with pytest.raises(TargetError, match="is not a regular file"):
            targets.load(tmp_path / name)
    (tmp_path / "large.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(TargetError, match="more than 1048576 bytes"):
        targets.load(tmp_path / "large.toml")
    with pytest.raises(TargetError, match="cannot read the target description"):
        targets.load("a\0.toml")
