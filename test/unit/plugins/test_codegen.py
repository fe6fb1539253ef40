"""Codegen plugins: how they are found, what they are told, and that nothing they do breaks what was there."""

from __future__ import annotations

import ast
import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.data import REPOSITORY
from odc_mlir.errors import CompileError, OptionError, UnsupportedError
from odc_mlir.plugins import registry
from odc_mlir.plugins.codegen import Limits, Preference, default_output, describe, generate
from odc_mlir.plugins.isolation import isolated_environment
from odc_mlir.plugins.request import CodegenRequest

INSTALLED = REPOSITORY / "test" / "data" / "plugins"
T = "tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>"
RELU = f"func.func @main(%x: {T}) -> {T} {{\n%y = circle.relu(%x) : ({T}) -> {T}\nfunc.return %y : {T}\n}}"


@pytest.fixture(autouse=True)
def no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(registry.PATH_VARIABLE, raising=False)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.circle"
    path.write_bytes(b"some model")
    return path


def plugin(folder: Path, body: str, extension: str = "bad") -> Path:
    """A plugin in one file whose ``compile`` has ``body``."""
    folder.mkdir(exist_ok=True)
    lines = ["import os, pathlib, subprocess, sys, time", "class Plugin:", f"    name = extension = {extension!r}"]
    lines += ["    def compile(self, request):", *(f"        {line}" for line in body.splitlines())]
    lines += ["def create_codegen():", "    return Plugin()"]
    (folder / f"{extension}-gen.py").write_text("\n".join(lines))
    return folder


# ---- finding


def test_an_installed_package_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.syspath_prepend(str(INSTALLED))
    monkeypatch.setenv("PYTHONPATH", str(INSTALLED))
    source = registry.find("tvn-gen")
    assert (source.extension, source.origin) == ("tvn", "tvn-codegen 1.2 (tvn_codegen:create_codegen)")
    made = generate(model, "tvn-gen")
    assert made == model.with_suffix(".tvn")
    assert made.read_bytes().endswith(b"\nsome model")


def test_a_folder_may_hold_installed_packages(model: Path) -> None:
    assert describe("tvn-gen", directory=INSTALLED).quantization == "uint8"
    assert generate(model, "tvn-gen", directory=INSTALLED).read_bytes().startswith(b"TVN1")


def test_metadata_is_read_once_until_something_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sessions ask several times before their first run, and hundreds of files may be installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.entries(registry.DEVICES)
    read: list[str] = []
    declared = registry._declared
    monkeypatch.setattr(registry, "_declared", lambda folder, info: read.append(folder) or declared(folder, info))
    assert "tvn" not in {
        entry.target for group in (registry.DEVICES, registry.TARGETS) for entry in registry.entries(group)
    }
    assert not read
    info = tmp_path / "late-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(f"[{registry.DEVICES}]\ntvn = late:open_device\n")
    found = {entry.target: entry.origin for entry in registry.entries(registry.DEVICES)}
    assert found["tvn"] == "late 1.0 (late:open_device)"
    assert read == [str(tmp_path)]


def test_only_devices_replace_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    groups = {registry.GROUP: "cpu-gen", registry.DEVICES: "cpu", registry.TARGETS: "cpu"}
    text = "".join(f"[{group}]\n{name} = other:make\n" for group, name in groups.items())
    (info / "entry_points.txt").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registry.find("cpu-gen").is_ours
    found = {group: registry.entries(group) for group in (registry.DEVICES, registry.TARGETS)}
    ours = {group: [entry.is_ours for entry in known if entry.target == "cpu"] for group, known in found.items()}
    assert ours == {registry.DEVICES: [False], registry.TARGETS: [True]}


def test_folders_come_before_what_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(INSTALLED))
    given, variable = (plugin(tmp_path / name, "pass", "tvn") for name in ("given", "variable"))
    monkeypatch.setenv(registry.PATH_VARIABLE, f"{tmp_path / 'none'}{os.pathsep}{variable}")
    assert registry.find("tvn-gen", given).origin == str(given / "tvn-gen.py")
    assert registry.find("tvn-gen").origin == str(variable / "tvn-gen.py")
    monkeypatch.delenv(registry.PATH_VARIABLE)
    assert registry.find("tvn-gen").origin.startswith("tvn-codegen 1.2")
    assert {source.target for source in registry.available(given)} >= {"npu-gen", "tvn-gen"}


def test_the_error_lists_what_was_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(registry.PATH_VARIABLE, str(INSTALLED))
    given = plugin(tmp_path / "given", "pass")
    with pytest.raises(OptionError) as caught:
        registry.find("abc-gen", given)
    assert str(caught.value).startswith(
        f"there is no codegen plugin 'abc-gen'; searched: the folder {given} (bad-gen); "
        f"the folder {INSTALLED} of ODC_PLUGIN_PATH (tvn-gen); entry points of the group odc_mlir.codegen ("
    )


@pytest.mark.parametrize("target", ["", "npu", "-gen", "NPU-gen", "a/b-gen", "npu-gen "])
def test_targets_have_one_form(target: str) -> None:
    with pytest.raises(OptionError, match="expected <extension>-gen"):
        registry.find(target)


# ---- where the result goes


def test_a_taken_place_is_left_for_the_cache(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    beside = model.with_suffix(".tvn")
    beside.write_bytes(b"a note of mine")
    with pytest.raises(OptionError, match="not a compiled model that odc-mlir wrote"):
        generate(model, "tvn-gen", beside, directory=INSTALLED)
    for _ in range(2):
        made = generate(model, "tvn-gen", directory=INSTALLED)
        assert made.is_relative_to(tmp_path / "cache")
        assert made.read_bytes().startswith(b"TVN1")
    assert beside.read_bytes() == b"a note of mine"
    assert str(made) in caplog.text
    assert generate(model, "tvn-gen", beside, directory=INSTALLED, overwrite=True) == beside
    assert beside.read_bytes().startswith(b"TVN1")


# ---- what a plugin is told


def test_the_request_reaches_the_plugin(model: Path) -> None:
    made = generate(
        model,
        "tvn-gen",
        model.parent / "out.tvn",
        preference="memory_first",
        target_options={"memory": "sram"},
        shapes=[(1, 2), None],
        options={"level": 3},
        directory=INSTALLED,
    )
    request = json.loads(made.read_bytes()[4:].split(b"\n")[0])
    assert request.pop("output").startswith(str(model.parent / ".odc-"))
    assert request == {
        "model": str(model),
        "preference": 2,
        "target": {"memory": "sram"},
        "shapes": [[1, 2], None],
        "options": {"level": 3},
    }


def test_requests_survive_json() -> None:
    request = CodegenRequest("a", "b", Preference.COMPILE_TIME_FIRST, {"target": "x"}, ((1, 2), None), {"o": True})
    assert CodegenRequest.from_json(request.to_json()) == request


@pytest.mark.parametrize("value", [4, -1, "fast"])
def test_preferences_are_checked(value: int | str, model: Path) -> None:
    with pytest.raises(OptionError, match=r"unknown preference .* performance_first \(1\)"):
        generate(model, "tvn-gen", preference=value, directory=INSTALLED)


def test_default_output() -> None:
    assert default_output("a/net.circle", "tvn-gen") == Path("a/net.tvn")


# ---- failures


FAILURES = {
    "code": ("return 3", "it returned 3"),
    "raise": ("raise ValueError('no\\nluck')", "it raised ValueError: no luck"),
    "exit": ("os._exit(7)", "the plugin's process ended with code 7 and no answer"),
    "crash": ("print('so long', flush=True)\nos.abort()", "the plugin's process was ended by SIGABRT: so long"),
    "nothing": ("pass", "the plugin made no file"),
    "empty": ("pathlib.Path(request.output).touch()", "the plugin made an empty file"),
    "folder": ("pathlib.Path(request.output).mkdir()", "the plugin made no file"),
    "partial": ("pathlib.Path(request.output).write_text('half')\nraise OSError('disk')", "it raised OSError: disk"),
    "broken": (
        "pathlib.Path(request.output).write_bytes(b'\\x08\\0\\0\\0CIR0\\0\\0')",
        "the plugin made a file that cannot be read: ",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_is_typed_and_keeps_the_old_file(case: str, model: Path, tmp_path: Path) -> None:
    body, text = FAILURES[case]
    folder = plugin(tmp_path / "plugins", body)
    old = model.with_suffix(".bad")
    old.write_bytes(b"old")
    with pytest.raises(CompileError) as caught:
        generate(model, "bad-gen", directory=folder)
    assert text in str(caught.value)
    assert f"in bad-gen from {folder / 'bad-gen.py'}, stage codegen" in str(caught.value)
    assert old.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.bad", "net.circle", "plugins"]


def test_a_hanging_plugin_is_ended_with_all_it_started(model: Path, tmp_path: Path) -> None:
    child = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    mark = tmp_path / "pid"
    folder = plugin(
        tmp_path / "plugins", f"{child}\npathlib.Path({str(mark)!r}).write_text(str(child.pid))\nchild.wait()"
    )
    for seconds in (2, 6, 20):  # a slow machine needs longer to get there
        with pytest.raises(CompileError, match=rf"took longer than {seconds} s and was ended"):
            generate(model, "bad-gen", directory=folder, limits=Limits(seconds=seconds))
        if mark.exists():
            break
    pid = int(mark.read_text())
    deadline = time.monotonic() + 60
    while _is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_running(pid)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_memory_is_limited(model: Path, tmp_path: Path) -> None:
    folder = plugin(tmp_path / "plugins", "data = bytearray(4 << 30)")
    with pytest.raises(CompileError, match="it ran out of memory, with a limit of 1073741824 bytes"):
        generate(model, "bad-gen", directory=folder, limits=Limits(memory_bytes=1 << 30))


def test_a_plugin_may_refuse_a_model(model: Path) -> None:
    model.write_bytes(b"refuse me")
    with pytest.raises(UnsupportedError, match="the plugin refuses the model: the model asks for it"):
        generate(model, "tvn-gen", directory=INSTALLED)


def test_a_file_that_is_no_plugin(model: Path, tmp_path: Path) -> None:
    (tmp_path / "odd-gen.py").write_text("def create_codegen():\n    return 5")
    with pytest.raises(CompileError, match="the plugin failed: int lacks name, extension or compile"):
        generate(model, "odd-gen", directory=tmp_path)
    (tmp_path / "odd-gen.py").write_text("import nothing_of_this_name")
    with pytest.raises(CompileError, match="it raised ModuleNotFoundError"):
        generate(model, "odd-gen", directory=tmp_path)
    plugin(tmp_path, "pass", "one").joinpath("one-gen.py").rename(tmp_path / "two-gen.py")
    with pytest.raises(CompileError, match="its extension is 'one', its target has 'two'"):
        generate(model, "two-gen", directory=tmp_path)


def test_the_model_is_never_replaced(model: Path) -> None:
    with pytest.raises(OptionError, match="the model itself"):
        generate(model, "tvn-gen", model, directory=INSTALLED)
    with pytest.raises(OptionError, match="there is no model file"):
        generate(model.with_name("none.circle"), "tvn-gen", directory=INSTALLED)


# ---- ours


def test_npu_gen_makes_a_package(tmp_path: Path) -> None:
    model = tmp_path / "relu.mlir"
    model.write_text(RELU)
    made = generate(model, "npu-gen", preference=Preference.MEMORY_FIRST, target_options={"memory": "sram"})
    assert made == tmp_path / "relu.npu"
    package = odc_mlir.load_package(made)
    assert package.plan is not None
    assert (package.plan.memory, package.plan.options["prefer"]) == ("sram", "memory")
    codes = np.array([[-7, 0, 3, 90]], np.int8)
    (result,) = odc_mlir.run(package, [codes])
    np.testing.assert_array_equal(result, np.maximum(codes, 3))


def test_a_model_of_real_values_is_not_what_npu_gen_wants(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted = "the model is float, and npu-gen supports only int8; quantize it first"
    for text, told in ((RELU, False), (RELU.replace(T, "tensor<1x4xf32>"), True)):
        path = tmp_path / f"{told}.circle"
        path.write_bytes(odc_mlir.compile(text.encode()).files.model)
        caplog.clear()
        generate(path, "npu-gen")
        assert (wanted in caplog.text) is told


@pytest.mark.parametrize("option", [{"verify": "run"}, {"verify": "passes"}, {"strict": True}, {"states": {"y": "x"}}])
def test_options_that_plugins_do_not_know_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"^{next(iter(option))} does not apply to 'npu-gen', a plugin"):
        odc_mlir.compile(RELU.encode(), target="npu-gen", **option)


def test_progress_names_the_plugin() -> None:
    told: list[tuple[str, int, int | None]] = []
    odc_mlir.compile(RELU.encode(), target="npu-gen", verify="stages", progress=lambda *state: told.append(state))
    assert told == [("compiling with npu-gen", 0, None)]


def test_npu_gen_fixes_shapes(tmp_path: Path) -> None:
    open_type = T.replace("1x4", "?x4")
    model = tmp_path / "relu.circle"
    model.write_bytes(odc_mlir.compile(RELU.replace(T, open_type).encode()).files.model)
    package = odc_mlir.load_package(generate(model, "npu-gen", shapes=[(3, 4)]))
    assert package.inputs[0].shape == (3, 4)
    assert package.plan is not None
    assert package.plan.segments
    with pytest.raises(CompileError, match="2 input shapes given, but the model has 1 input"):
        generate(model, "npu-gen", shapes=[(3, 4), None])


def test_npu_gen_names_what_is_wrong_with_a_model(model: Path) -> None:
    with pytest.raises(CompileError, match="failed: "):
        generate(model, "npu-gen")


# ---- what gets into the process


def test_modules_of_the_working_folder_do_not_get_in(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "application"
    work.mkdir()
    for name in ("secrets", "json", "numpy", "sitecustomize"):
        (work / f"{name}.py").write_text("raise RuntimeError('a stray module')")
    monkeypatch.chdir(work)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", str(work)]))
    monkeypatch.setenv("PYTHONSTARTUP", str(work / "secrets.py"))
    body = "import json, secrets\npathlib.Path(request.output).write_text(os.getcwd())"
    made = generate(model, "bad-gen", directory=plugin(tmp_path / "plugins", body))
    assert Path(made.read_text()).name == "work"
    assert not Path(made.read_text()).exists()  # a folder of its own, that is gone


def test_the_environment_is_small(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("LICENCE", "y")
    monkeypatch.setenv("ODC_PASS_ENV", "LICENCE; OTHER")
    folder = plugin(tmp_path / "plugins", "pathlib.Path(request.output).write_text(repr(sorted(os.environ)))")
    names = ast.literal_eval(generate(model, "bad-gen", directory=folder).read_text())
    assert {"PATH", "LICENCE", "ODC_PASS_ENV", "TMPDIR"} <= set(names)
    assert not {"SECRET_TOKEN", "LD_PRELOAD", "PYTHONPATH", "PYTEST_CURRENT_TEST"} & set(names)


def test_folders_may_be_relative(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path / "plugins", "pathlib.Path(request.output).write_text('made')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(registry.PATH_VARIABLE, "plugins")
    assert generate("net.circle", "bad-gen").read_text() == "made"
    assert isolated_environment()[registry.PATH_VARIABLE] == str(tmp_path / "plugins")


def test_a_plugin_that_holds_the_interpreter_does_not_outlive_its_parent(model: Path, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    # Matching backtracks for ages, in one call that lets no other thread run.
    body = (
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"pathlib.Path({str(mark)!r}).write_text(f'{{os.getpid()}} {{child.pid}} {{os.getcwd()}}')\n"
        "import re\nre.match('(a*)*b', 'a' * 100)"
    )
    folder = plugin(tmp_path / "plugins", body)
    code = "import sys; from odc_mlir.plugins.codegen import generate\n"
    code += "generate(sys.argv[1], 'bad-gen', directory=sys.argv[2])"
    parent = subprocess.Popen([sys.executable, "-c", code, str(model), str(folder)])
    deadline = time.monotonic() + 60
    while not (mark.is_file() and len(mark.read_text().split()) == 3) and time.monotonic() < deadline:
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    *pids, folder = mark.read_text().split()
    while any(map(_is_running, map(int, pids))) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_is_running, map(int, pids)))
    assert not Path(folder).parent.exists()


def test_processor_time_is_limited(model: Path, tmp_path: Path) -> None:
    folder = plugin(
        tmp_path / "plugins", "import resource\nraise ValueError(resource.getrlimit(resource.RLIMIT_CPU)[0])"
    )
    with pytest.raises(CompileError, match=rf"ValueError: {3 * (os.cpu_count() or 1) + 1}\b"):
        generate(model, "bad-gen", directory=folder, limits=Limits(seconds=3))


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)"])
def test_being_killed_may_pass(how: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="was ended by SIG") as caught:
        generate(model, "bad-gen", directory=plugin(tmp_path / "plugins", how))
    assert caught.value.passing


def test_a_description_that_is_late_may_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session then tries again instead of giving up on the model."""
    folder = plugin(tmp_path / "plugins", "pass")
    with folder.joinpath("bad-gen.py").open("a") as file:
        file.write("\ntime.sleep(60)\n")
    monkeypatch.setenv("ODC_PLUGIN_TIMEOUT_S", "1")
    with pytest.raises(CompileError, match="it took longer than 1 s") as caught:
        describe("bad-gen", directory=folder)
    assert caught.value.passing


def test_a_system_without_processes_may_pass(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*arguments: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", none_left)
    with pytest.raises(CompileError, match="the plugin's process cannot be started") as caught:
        generate(model, "tvn-gen", directory=INSTALLED)
    assert caught.value.passing


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"error": 1}', '{"error": null, "name": 3}', "[" * 100_000])
def test_answers_of_a_plugin_itself_are_not_believed(answer: str, model: Path, tmp_path: Path) -> None:
    body = f"place = pathlib.Path(os.getcwd()).parent / 'answer.json'\nplace.write_text({answer!r})\nos._exit(0)"
    with pytest.raises(CompileError, match="ended with code 0 and no answer"):
        generate(model, "bad-gen", directory=plugin(tmp_path / "plugins", body))
