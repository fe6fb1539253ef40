"""What can be chosen about compiling on the device."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from odc_mlir.errors import OptionError, TargetError, UnsupportedError
from odc_mlir.plugins.request import Preference
from odc_mlir.plugins.target import choose
from odc_mlir.runtime.auto.aim import aim_at
from odc_mlir.runtime.auto.settings import DEFAULTS, AutoSettings, Trigger, read_settings
from odc_mlir.runtime.session.settings import Settings


def read(**values: str) -> AutoSettings:
    settings = Settings(chosen=values)
    return read_settings(settings.get, settings.flag)


def of_package(**values: str) -> AutoSettings:
    settings = Settings(values)
    return read_settings(settings.get, settings.flag)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key in DEFAULTS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))


def test_defaults(tmp_path: Path) -> None:
    assert read() == AutoSettings(
        target="auto",
        scheme=None,
        records=10,
        metric=None,
        limit=None,
        trigger=Trigger.AFTER_RECORDS,
        preference=Preference.DEFAULT,
        timeout_seconds=600.0,
        memory_bytes=4096 << 20,
        processes=1,
        folder=tmp_path,
        cache_bytes=1 << 30,
        update_package=False,
        watch=True,
        shadow_share=0.02,
    )


def test_everything_can_be_chosen(tmp_path: Path) -> None:
    found = read(
        ODC_TARGET="npu-512",
        ODC_QUANT_TYPE="uint8",
        ODC_RECORDS="7",
        ODC_ACC_METRIC="SQNR",
        ODC_ACC_LIMIT="-3.5",
        ODC_TRIGGER="Explicit",
        ODC_PREF="memory",
        ODC_TIMEOUT_S="1.5",
        ODC_MEM_LIMIT_MB="512",
        ODC_UPDATE_PACKAGE="yes",
    )
    assert found.target == "npu-512"
    aim = aim_at(found.target)
    assert (aim.machine, aim.plugin, aim.takes_floats, aim.is_measured) == ("npu-512", "npu-gen", False, False)
    assert (found.scheme, found.records, found.metric, found.limit) == ("uint8", 7, "sqnr_db", -3.5)
    assert (found.trigger, found.preference) == (Trigger.EXPLICIT, Preference.MEMORY_FIRST)
    assert (found.timeout_seconds, found.memory_bytes, found.update_package) == (1.5, 512 << 20, True)


def test_the_environment_counts_more_than_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_RECORDS", "3")
    assert of_package(ODC_RECORDS="7").records == 3
    chosen = Settings({"ODC_RECORDS": "7"}, {"ODC_RECORDS": "5"})
    assert read_settings(chosen.get, chosen.flag).records == 5


def test_a_plugin_as_target() -> None:
    found = choose(read(ODC_TARGET="tvn-gen").target)
    assert (found.codegen, found.machine, found.facts) == ("tvn-gen", None, None)


def test_what_this_machine_has_is_aimed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    aim = aim_at("auto")
    assert (aim.name, aim.plugin, aim.machine) == ("cpu", "cpu-gen", "cpu")
    assert aim.takes_floats
    assert aim.is_measured
    monkeypatch.setitem(sys.modules, "llvmlite", None)  # as if it were not installed
    with pytest.raises(UnsupportedError, match=r"there is no device.*pip install 'odc-mlir\[native\]'"):
        aim_at("auto")


@pytest.mark.parametrize(
    ("text", "preference"),
    [
        ("0", Preference.DEFAULT),
        ("2", Preference.MEMORY_FIRST),
        ("PERFORMANCE_FIRST", Preference.PERFORMANCE_FIRST),
        ("compile-time", Preference.COMPILE_TIME_FIRST),
        ("compile_time_first", Preference.COMPILE_TIME_FIRST),
    ],
)
def test_spellings_of_preferences(text: str, preference: Preference) -> None:
    assert read(ODC_PREF=text).preference is preference


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("first_prepare", Trigger.FIRST_RUN),
        ("records", Trigger.AFTER_RECORDS),
        ("manual", Trigger.EXPLICIT),
        ("background", Trigger.IDLE),
    ],
)
def test_other_names_of_triggers(text: str, trigger: Trigger) -> None:
    assert read(ODC_TRIGGER=text).trigger is trigger


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("ODC_RECORDS", "0", "ODC_RECORDS is '0', expected a whole number above 0"),
        ("ODC_RECORDS", "2.5", "expected a whole number above 0"),
        ("ODC_TIMEOUT_S", "inf", "ODC_TIMEOUT_S is 'inf', expected a number above 0"),
        ("ODC_MEM_LIMIT_MB", "-1", "expected a whole number above 0"),
        ("ODC_ACC_LIMIT", "much", "ODC_ACC_LIMIT is 'much', expected a number"),
        ("ODC_ACC_METRIC", "luck", "unknown metric 'luck'"),
        ("ODC_QUANT_TYPE", "int9", "unknown quantisation scheme 'int9'"),
        ("ODC_TRIGGER", "never", "ODC_TRIGGER is 'never', expected one of first-run, after-records, idle, explicit"),
        ("ODC_PREF", "quality", "unknown preference 'quality-first'"),
    ],
)
def test_values_that_cannot_be(key: str, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read(**{key: text})


def test_targets_that_cannot_be() -> None:
    with pytest.raises((OptionError, TargetError), match="npu-7"):
        read(ODC_TARGET="npu-7")


def test_the_cache_is_an_absolute_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ODC_CACHE_DIR")
    with pytest.raises(OptionError, match="ODC_CACHE_DIR is 'here', expected an absolute path"):
        read(ODC_CACHE_DIR="here")
    assert read(ODC_CACHE_DIR="/there").folder == Path("/there")


@pytest.mark.parametrize("key", ["ODC_CACHE_DIR", "WORKSPACE_DIR"])
def test_a_package_does_not_say_where_files_are_written(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings({key: "/elsewhere", "ODC_RECORDS": "3"})
    assert settings.get(key, "none") == ("none" if key == "WORKSPACE_DIR" else str(tmp_path))
    assert settings.ignored == [
        f"the package's config.cfg chooses {key} '/elsewhere', which only the application and the environment may"
    ]
    assert settings.get("ODC_RECORDS") == "3"
    monkeypatch.setenv(key, "/env")
    assert settings.get(key) == "/env"
    settings.chosen[key] = "/chosen"
    assert settings.get(key) == "/chosen"
    for value, expected in (("sub", "sub"), ("../up", "none"), ("a/../../up", "none")):
        monkeypatch.delenv("WORKSPACE_DIR", raising=False)
        assert Settings({"WORKSPACE_DIR": value}).get("WORKSPACE_DIR", "none") == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [("ODC_TARGET", "npu-7"), ("ODC_TARGET", "../x-gen"), ("ODC_TARGET", "X-gen"), ("ODC_RECORDS", "many")]
    + [("ODC_PROCESSES", "8"), ("ODC_QUANT_TYPE", "int3"), ("ODC_TRIGGER", "never"), ("ODC_WATCH_PERCENT", "101")],
)
def test_what_a_package_cannot_mean_is_ignored(key: str, value: str) -> None:
    settings = Settings({key: value, "ODC_TIMEOUT_S": "7"})
    assert read_settings(settings.get, settings.flag) == of_package(ODC_TIMEOUT_S="7")
    (note,) = settings.ignored
    assert note.startswith(f"the package's config.cfg chooses {key} {value!r}, which ")


def test_a_package_names_no_file_as_target(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "npu-256").touch()
    for target in (tmp_path / "pipe.toml", tmp_path / "npu-256", "/dev/zero", "here.toml "):
        assert of_package(ODC_TARGET=str(target)).target == "auto"
        (note,) = Settings({"ODC_TARGET": str(target)}).ignored
        assert note.endswith("which only the application and the environment may")
    assert of_package(ODC_TARGET=" npu-512").target == "npu-512"
    assert of_package(ODC_TARGET="tvn-gen").target == "tvn-gen"
