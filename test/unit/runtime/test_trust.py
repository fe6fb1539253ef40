"""Machine code from elsewhere: in none of the ways to touch a package does it run without consent.

The code in question is real. It sets a flag in this process and writes a wrong answer; the last test of the first part
shows that it does so with consent.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.codegen.machine import emit_object, resolve
from odc_mlir.errors import OdcError, PackageError
from odc_mlir.formats import private, trust
from odc_mlir.formats.manifest import Connection, IoIndex
from odc_mlir.formats.native_segment import NativeSegment, parse_native_segment
from odc_mlir.formats.package import PackageFiles, install, read_package, sealed, write_package, zip_bytes
from odc_mlir.runtime import Session
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.auto.artefacts import Artefacts, JobResult
from odc_mlir.runtime.package import Package
from odc_mlir.support.text import module_text
from odc_mlir.tools import odc_compile, odc_diff, odc_dump, odc_lint, odc_package, odc_report, odc_run

FLAG = ctypes.c_int32(0)
X, Z = np.arange(8, dtype=np.float32).reshape(2, 4), np.full((2, 4), 3, np.float32)
ANSWER = Z - X


def model(first: str = "SUB") -> bytes:
    """The file of a model of two segments and an operator of the host between them: ``y = -(x - z)``."""
    builder = ModelBuilder()
    x, z, h, g, y = (builder.tensor(name, (2, 4)) for name in "xzhgy")
    ids = builder.tensor("ids", (2,), "int32", data=np.array([0, 1], np.int32))
    builder.operator(first, [x, z], [h])
    builder.operator("SEGMENT_SUM", [h, ids], [g])
    builder.operator("NEG", [g], [y])
    return model_bytes(builder.finish([x, z], [y]))


def foreign(data: bytes, **fields: Any) -> bytes:
    """The ``.cpu`` file ``data`` with code that sets FLAG and writes 99; its checksum is right."""
    segment = parse_native_segment(data)
    count = len(segment.inputs) + len(segment.outputs) + 2
    parameters = ", ".join(f"ptr %p{index}" for index in range(count))
    text = ""
    for name, more in ((segment.entry, ""), ("part", ", ptr %a, ptr %b, i64 %c, i64 %d")):
        text += (
            f"define i32 @{name}({parameters}{more}) {{\n"
            f"  store i32 1, ptr inttoptr (i64 {ctypes.addressof(FLAG)} to ptr)\n"
            f"  store float 99.0, ptr %p{len(segment.inputs)}\n  ret i32 0\n}}\n"
        )
    code = emit_object(text, resolve("cpu"))
    return NativeSegment(**{**_fields(segment), "code": code, **fields}).to_bytes()


def _fields(segment: NativeSegment) -> dict[str, Any]:
    return {name: getattr(segment, name) for name in NativeSegment.__slots__}


def with_segment(files: PackageFiles, file: str, data: bytes) -> PackageFiles:
    """The package with another binary and a manifest that lists it."""
    return sealed(replace(files, members={**files.members, files.segment_path(file): data}))


class Scene(NamedTuple):
    """``genuine``: a package that was compiled here; ``path``: one with other code in both segments."""

    genuine: Path
    path: Path
    folder: Path

    @property
    def inputs(self) -> str:
        """A file of X and Z."""
        file = self.folder / "in.npz"
        np.savez(file, in_0=X, in_1=Z)
        return str(file)

    def write(self, files: PackageFiles, name: str = "other") -> Path:
        path = self.folder / name
        write_package(files, path)
        return path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[PackageFiles, PackageFiles]:
    """The package that was compiled here, and one with other code."""
    files = odc_mlir.compile(model(), target="cpu").files
    assert files.plan is not None
    assert [step.operators for step in files.plan.segments] == [(0,), (2,)]
    bad = files
    for step in files.plan.segments:
        bad = with_segment(bad, step.file, foreign(files.segment(step.file)))
    return files, bad


@pytest.fixture
def scene(compiled: tuple[PackageFiles, PackageFiles], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Package(compiled[0]).save(tmp_path / "genuine")
    write_package(compiled[1], tmp_path / "p")
    FLAG.value = 0
    return Scene(tmp_path / "genuine", tmp_path / "p", tmp_path)


def outputs(found: Any) -> list[NDArray[Any]]:
    return list(found[0] if isinstance(found, tuple) else found)


def session(model: Any, **options: Any) -> list[NDArray[Any]]:
    """The outputs of a session, whose status has the reason."""
    with Session(model, **options) as opened:
        found = opened.infer([X, Z])
        assert any("not compiled on this machine" in item.reason for item in opened.odc_status.fallbacks)
    return found


def session_by_call(scene: Scene) -> list[NDArray[Any]]:
    with Session() as opened:
        opened.load_model_from_file(scene.path)
        opened.set_available_backends("npu;cpu")
        opened.set_prepare_config("ENABLE_INTERNAL_OUTPUT_ALLOC")
        opened.prepare()
        opened.set_input(0, X)
        opened.set_input(1, Z)
        opened.run_async()
        opened.wait()
        return [opened.get_output(0).copy()]


def tool(scene: Scene, main: Callable[[list[str]], int], *arguments: str) -> list[NDArray[Any]]:
    """The outputs that a command dumps."""
    dump = scene.folder / "out.npz"
    assert main([str(scene.path), "--load", scene.inputs, "--dump", str(dump), *arguments]) == 0
    with np.load(dump) as found:
        return [found["out_0"]]


def changed_later(scene: Scene) -> list[NDArray[Any]]:
    """The file changes between the first look at it and its loading."""
    files = read_package(scene.genuine)
    good, bad = dict(files.members), read_package(scene.path).members
    reads: list[str] = []

    class Changing(Mapping[str, bytes]):
        def __getitem__(self, name: str) -> bytes:
            reads.append(name)
            return bad[name] if name.endswith(".cpu") and reads.count(name) > 1 else good[name]

        def __iter__(self) -> Iterator[str]:
            return iter(good)

        def __len__(self) -> int:
            return len(good)

    return odc_mlir.run(Package(replace(files, members=Changing())), [X, Z])


def with_link(scene: Scene, link: Callable[[Path, Path], None], target: Path) -> list[NDArray[Any]]:
    """A package whose binary is a link to the foreign one."""
    segment = next(scene.genuine.glob("odc/*/segment-0.cpu"))
    bad = next(scene.path.glob("odc/*/segment-0.cpu"))
    if target != bad:
        shutil.copy(bad, target)
    segment.unlink()
    link(target, segment)
    return odc_mlir.run(scene.genuine, [X, Z])


def saved_again(scene: Scene) -> list[NDArray[Any]]:
    """Loading and saving makes no trust."""
    Package.from_path(scene.path).save(scene.folder / "again")
    return odc_mlir.run(scene.folder / "again", [X, Z])


def installed(scene: Scene) -> list[NDArray[Any]]:
    """Code that was installed in a package as a result of compiling on the device."""
    plain = scene.folder / "plain"
    (scene.folder / "model.circle").write_bytes(model())
    assert odc_package.main(["pack", str(scene.folder / "model.circle"), "-o", str(plain)]) == 0
    install(plain, read_package(scene.path))
    return session(plain)


def restored(scene: Scene) -> list[NDArray[Any]]:
    """The manifest names a plan that is missing, MANIFEST.orig the foreign code."""
    manifest = scene.path / "metadata" / "MANIFEST"
    shutil.copy(manifest, manifest.with_name("MANIFEST.orig"))
    text = manifest.read_text()
    plan = next(scene.path.glob("odc/*/plan.json")).parent.name
    manifest.write_text(text.replace(f"odc/{plan}/plan.json", "odc/none/plan.json"))
    return session(scene.path)


def in_native_cache(scene: Scene) -> list[NDArray[Any]]:
    """A file of the cache of native code."""
    file = scene.folder / "model.circle"
    file.write_bytes(model())
    odc_mlir.run(file, [X, Z], backend="native")
    (kept,) = (scene.folder / "cache" / "native").glob("*.zip")
    private.write_file(kept, zip_bytes(read_package(scene.path).members))
    return odc_mlir.run(file, [X, Z], backend="native")


def connected(scene: Scene) -> list[NDArray[Any]]:
    """Recorded code in a package that connects its model to another one, so that operators have other indices."""
    files = read_package(scene.genuine)
    manifest = replace(
        files.manifest,
        models=("model.circle", "model2.circle"),
        inputs=(IoIndex(0, 0, 0), IoIndex(0, 0, 1), IoIndex(1, 0, 1)),
        outputs=(IoIndex(1, 0, 0),),
        connections=(Connection(IoIndex(0, 0, 0), (IoIndex(1, 0, 0),)),),
    )
    assert trust.distrust(files) is None
    assert "belongs to several models" in (trust.distrust(replace(files, manifest=manifest)) or "")
    return session(scene.path)


def second_segment(scene: Scene) -> list[NDArray[Any]]:
    files, bad = read_package(scene.genuine), read_package(scene.path)
    return odc_mlir.run(scene.write(with_segment(files, "segment-1.cpu", bad.segment("segment-1.cpu"))), [X, Z])


def part_entry(scene: Scene) -> list[NDArray[Any]]:
    files = read_package(scene.genuine)
    data = foreign(files.segment("segment-0.cpu"), part_entry="part", scratch_bytes=64)
    return outputs(odc_mlir.run(scene.write(with_segment(files, "segment-0.cpu", data)), [X, Z], threads=2))


def on_device(scene: Scene) -> list[NDArray[Any]]:
    settings = {"OnDeviceCompilation": "1", "ODC_TRIGGER": "explicit"}
    return session(scene.path, settings=settings)


def cache_in_package(scene: Scene) -> list[NDArray[Any]]:
    """The package brings records of its code and a setting that names their folder."""
    files = trust.compiled_here(read_package(scene.path))
    folder = scene.path / "cache" / trust.FOLDER
    folder.mkdir(parents=True, mode=0o700)
    for key in files.compiled_here:
        (folder / key).touch()
    assert trust.distrust(read_package(scene.path), cache=folder.parent) is None
    with (scene.path / "metadata" / "config.cfg").open("a") as config:
        config.write(f"ODC_CACHE_DIR={folder.parent}\n")
    return session(scene.path)


def zipped(scene: Scene) -> Path:
    path = scene.folder / "p.zip"
    write_package(read_package(scene.path), path)
    return path


WAYS: dict[str, Callable[[Scene], Any]] = {
    "run": lambda scene: odc_mlir.run(scene.path, [X, Z]),
    "run a zip": lambda scene: odc_mlir.run(zipped(scene), [X, Z]),
    "run a package": lambda scene: odc_mlir.run(odc_mlir.load_package(scene.path), [X, Z]),
    "run natively": lambda scene: odc_mlir.run(scene.path, [X, Z], backend="native"),
    "run on the host": lambda scene: odc_mlir.run(scene.path, [X, Z], backend="host"),
    "run with threads": lambda scene: odc_mlir.run(scene.path, [X, Z], threads=2),
    "run for tensors": lambda scene: odc_mlir.run(scene.path, [X, Z], tensors=["h"]),
    "an executor": lambda scene: Package.from_path(scene.path).executor().run([X, Z]),
    "an executor that resizes": lambda scene: open_executor(scene.path, resize=True).run([X, Z]),
    "a session": lambda scene: session(scene.path),
    "a session of a zip": lambda scene: session(zipped(scene)),
    "a session of a package": lambda scene: session(odc_mlir.load_package(scene.path)),
    "a session by calls": session_by_call,
    "a session that compiles natively": lambda scene: Session(scene.path, "native").infer([X, Z]),
    "a session that compiles on the device": on_device,
    "odc-run": lambda scene: tool(scene, odc_run.main),
    "odc-run natively": lambda scene: tool(scene, odc_run.main, "--backend", "native"),
    "a changing file": changed_later,
    "a symbolic link": lambda s: with_link(s, lambda old, new: new.symlink_to(old), s.genuine / "odc" / "x"),
    "a hard link": lambda s: with_link(s, lambda old, new: os.link(old, new), next(s.path.glob("odc/*/segment-0.cpu"))),
    "saved again": saved_again,
    "installed": installed,
    "restored": restored,
    "in the native cache": in_native_cache,
    "connected models": connected,
    "a cache in the package": cache_in_package,
    "the second segment": second_segment,
    "the function of threads": part_entry,
}


@pytest.mark.parametrize("way", WAYS)
def test_foreign_code_does_not_run(scene: Scene, way: str) -> None:
    (found,) = outputs(WAYS[way](scene))
    np.testing.assert_array_equal(found, ANSWER)
    assert not FLAG.value


def test_commands_that_look_at_packages_do_not_run_them(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    path, segment = str(scene.path), str(next(scene.path.glob("odc/*/segment-0.cpu")))
    for main, *line in (
        (odc_package.main, "inspect", path),
        (odc_package.main, "verify", path),
        (odc_package.main, "check", path),
        (odc_package.main, "unpack", path, "unpacked"),
        (odc_dump.main, path),
        (odc_dump.main, segment),
        (odc_report.main, path),
        (odc_lint.main, path),
        (odc_compile.main, path, "--target", "cpu", "-o", "compiled", "--json", "report.json"),
        (odc_diff.main, path, "host", "--load", scene.inputs),
        (odc_diff.main, f"{path}@native", path, "--load", scene.inputs),
    ):
        main(list(line))
    assert odc_mlir.load_package(scene.path).report["segments"]
    assert odc_mlir.check(scene.path).state == "rebuild"
    assert "rebuild: segment-0.cpu: the code was not compiled on this machine" in capsys.readouterr().out
    assert not FLAG.value


def test_programs_in_text_are_foreign(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """In a module of this process they are not."""
    builder = ModelBuilder()
    x, z, y = (builder.tensor(name, (2, 4)) for name in "xzy")
    builder.operator("SUB", [x, z], [y])
    module = odc_mlir.load(model_bytes(builder.finish([x, z], [y])))
    lowered = odc_mlir.lower(module, "native-loops", target="cpu")
    path = scene.folder / "lowered.mlir"
    path.write_text(module_text(lowered).replace("arith.subf", "arith.addf"))
    np.testing.assert_array_equal(odc_mlir.run(lowered, [X, Z])[0], X - Z)
    assert not caplog.text
    with pytest.raises(PackageError, match="was not compiled on this machine"):  # never the circle body in its place
        odc_mlir.run(path, [X, Z])
    np.testing.assert_array_equal(odc_mlir.run(path, [X, Z], trust_code=True)[0], X + Z)


def test_strict_refuses(scene: Scene) -> None:
    for attempt in (
        lambda: odc_mlir.run(scene.path, [X, Z], strict=True),
        lambda: Session(scene.path, strict=True).prepare(),
    ):
        with pytest.raises(PackageError, match="the code was not compiled on this machine"):
            attempt()
    assert odc_run.main([str(scene.path), "--strict"]) == 1
    assert not FLAG.value


@pytest.mark.parametrize(
    "consent",
    [
        lambda scene: odc_mlir.run(scene.path, [X, Z], trust_code=True),
        lambda scene: odc_mlir.run(odc_mlir.load_package(scene.path, trust_code=True), [X, Z]),
        lambda scene: Session(scene.path, trust_code=True).infer([X, Z]),
        lambda scene: tool(scene, odc_run.main, "--trust-code"),
    ],
)
def test_it_runs_with_consent(scene: Scene, consent: Callable[[Scene], Any]) -> None:
    """The counter-test of all others here: the code is real."""
    (found,) = outputs(consent(scene))
    assert FLAG.value
    assert not np.array_equal(found, ANSWER)


def test_a_changed_file_is_refused_even_with_consent(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    segment = next(scene.genuine.glob("odc/*/segment-0.cpu"))
    segment.write_bytes(next(scene.path.glob("odc/*/segment-0.cpu")).read_bytes())
    reason = "was changed: its digest is not the one in metadata/MANIFEST"
    executor = open_executor(scene.genuine, trust_code=True)
    assert reason in executor.fallbacks["segment-0"]
    np.testing.assert_array_equal(executor.run([X, Z])[0], ANSWER)
    with Session(scene.genuine, trust_code=True) as opened:
        np.testing.assert_array_equal(opened.infer([X, Z])[0], ANSWER)
        assert reason in opened.odc_status.fallbacks[0].reason
    assert odc_run.main([str(scene.genuine), "--trust-code"]) == 0
    assert odc_diff.main([str(scene.genuine), "host", "--trust-code"]) == 1  # the code was not compared
    assert capsys.readouterr().err.count(reason) == 2
    for command in ("verify", "check"):
        assert odc_package.main([command, str(scene.genuine)]) == 1
        assert "digest is not the one in metadata/MANIFEST" in capsys.readouterr().out
    assert not FLAG.value


def test_code_that_was_compiled_here_runs_without_asking(scene: Scene) -> None:
    """Also after a move, as a zip, installed in a package and in a later process, which has only the record."""
    shutil.move(scene.genuine, scene.folder / "moved")
    files = read_package(scene.folder / "moved")
    write_package(files, scene.folder / "moved.zip")
    assert not files.compiled_here
    for path in (scene.folder / "moved", scene.folder / "moved.zip"):
        for executor in (open_executor(path), Package.from_path(path).executor(strict=True)):
            assert executor.fallbacks == {}
            assert executor.units[0].program is not None  # type: ignore[attr-defined]
    assert odc_mlir.check(scene.folder / "moved").state == "runs"


def test_the_model_is_compiled_again_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    package = odc_mlir.load_package(scene.path)
    for _ in range(3):
        np.testing.assert_array_equal(odc_mlir.run(package, [X, Z])[0], ANSWER)
    executor = open_executor(package)
    assert executor.fallbacks == {}
    assert executor.units[0].program is not None  # type: ignore[attr-defined]
    assert caplog.text.count("the model is compiled again for this machine") == 1
    assert len(list((scene.folder / "cache" / "native").glob("*.zip"))) == 1


def test_records_are_of_code_with_its_model_and_operators(scene: Scene) -> None:
    files = read_package(scene.genuine)
    assert files.plan is not None
    assert trust.distrust(files) is None
    other = odc_mlir.compile(model("ADD"), target="cpu").files
    swapped = [replace(step, inputs=step.inputs[::-1]) for step in files.plan.segments]
    steps = tuple(swapped[0] if step == files.plan.segments[0] else step for step in files.plan.steps)
    for changed in (
        replace(files, members={**files.members, files.plan.model: other.model}),
        replace(files, plan=replace(files.plan, steps=steps)),
    ):
        assert "not compiled on this machine" in (trust.distrust(sealed(changed)) or "")


def test_records_count_only_where_others_cannot_write(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    files, folder = read_package(scene.genuine), scene.folder / "cache" / "trusted"
    assert folder.stat().st_mode & 0o777 == 0o700
    records = sorted(folder.iterdir())
    assert {record.stat().st_mode & 0o777 for record in records} == {0o600}
    folder.chmod(0o777)
    assert "other users can write to the folder of records" in (trust.distrust(files) or "")
    with pytest.raises(OdcError, match="other users can write"):
        trust.write_records(replace(files, compiled_here=frozenset({"0" * 64})))
    folder.chmod(0o700)
    assert trust.distrust(files) is None
    records[0].unlink()
    records[0].symlink_to(records[1])
    assert "not compiled on this machine" in (trust.distrust(files) or "")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert trust.distrust(files) is not None


def test_a_cache_folder_that_others_can_change_is_not_used(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, files = scene.folder / "cache", read_package(scene.genuine)
    cache.chmod(0o777)
    assert trust.distrust(files) is None
    assert cache.stat().st_mode & 0o777 == 0o775  # it is ours
    cache.chmod(0o1777)
    assert trust.distrust(files) is None
    stat = os.stat
    for owner, mode, reason in ((13, 0o700, "it belongs to user 13"), (0, 0o777, "everyone can write to")):
        cache.chmod(mode)
        fields = list(cache.stat())
        fields[4] = owner

        def of_others(path: Any, found: list[int] = fields, **options: Any) -> os.stat_result:
            return os.stat_result(found) if path == cache else stat(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", of_others)
            patch.setattr(os, "geteuid", lambda: 12)
            assert reason in (trust.distrust(files) or "")
            with pytest.raises(OdcError, match=reason):
                private.make_folder(cache / "compiled", within=cache)


def test_foreign_code_in_a_cached_result_is_made_again(scene: Scene) -> None:
    """All digests of the result are right."""
    artefacts = Artefacts(scene.folder / "cache")
    for path, is_kept in ((scene.genuine, True), (scene.path, False)):
        work = artefacts.new_folder("key")
        private.write_file(work / "compiled.cpu", zip_bytes(read_package(path).members))
        artefacts.commit("key", work, JobResult("direct", compiled="compiled.cpu"))
        found, problem = artefacts.find("key")
        assert (found is not None) == is_kept
        assert ("not compiled on this machine" in (problem or "")) != is_kept
        assert (scene.folder / "cache" / "compiled" / "key").exists() == is_kept


@pytest.mark.parametrize("place", ["relative", "/proc/none"])
def test_without_a_cache_it_says_what_to_do(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", place)
    package = odc_mlir.compile(model(), target="cpu")
    assert package.executor(strict=True).fallbacks == {}
    package.save(scene.folder / "saved")
    assert "will run only with consent (--trust-code), as it cannot be recorded" in caplog.text
    executor = open_executor(scene.folder / "saved")
    assert executor.fallbacks == {}  # compiled again
    assert "--trust-code" in caplog.text
    np.testing.assert_array_equal(executor.run([X, Z])[0], ANSWER)


def test_a_session_with_a_cache_of_its_own_finds_its_records(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = str(scene.folder / "cache")
    monkeypatch.setenv("ODC_CACHE_DIR", str(scene.folder / "other"))
    for settings, serving in (({}, "original"), ({"ODC_CACHE_DIR": cache}, "compiled")):
        with Session(scene.genuine, settings=settings) as opened:
            opened.prepare()
            assert opened.odc_status.serving == serving


def test_old_records_are_deleted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    files, folder = read_package(scene.genuine), scene.folder / "cache" / "trusted"
    monkeypatch.setattr(trust, "MAX_RECORDS", 4)
    for record in folder.iterdir():
        os.utime(record, (1, 1))
    for number in range(3):
        trust.write_records(replace(files, compiled_here=frozenset({str(number) * 64})))
    assert len(list(folder.iterdir())) <= 4
    assert trust.distrust(files) is not None
