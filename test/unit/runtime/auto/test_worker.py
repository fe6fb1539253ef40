"""What the background process quantises by, and which failures it keeps as refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.language import language_model
from helpers.models import add_model, model_bytes
from helpers.pretended import SHAPE, SHAPES, settings_in
from helpers.streaming import elman
from odc_mlir.calibration.recorded import Records, Shapes, shapes_of
from odc_mlir.calibration.records import RecordStore
from odc_mlir.errors import CacheError, CompileError, InputError, OdcError, RecordsError, SessionError, UnsupportedError
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.quantizer.policy.verdict import PROBLEM, Limit, make_verdict
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto import build
from odc_mlir.runtime.auto.aim import aim_at
from odc_mlir.runtime.auto.artefacts import RECORD_NAME, WATCH, Artefacts, JobResult
from odc_mlir.runtime.auto.jobs import Job
from odc_mlir.runtime.auto.watch import Terms, Watch
from odc_mlir.runtime.auto.worker import Worker
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.recording import record as record_runs

KEY = "0" * 40
OTHER = ((2, 4), (2, 4))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job for ``a + b`` of which no run is recorded."""
    monkeypatch.setattr("tempfile.tempdir", None)
    model = tmp_path / "model.circle"
    model.write_bytes(model_bytes(add_model(SHAPE)))
    return Job(
        key=KEY,
        settings=settings_in(tmp_path / "cache", scheme="int8"),
        model=str(model),
        digest=content_digest(model),
        records=str(tmp_path / "minmax.db"),
        quantized=False,
        plugin="npu-gen",
        machine="npu-256",
        shapes=[list(shape) for shape in SHAPES],
        target=list(aim_at("npu-256").facts),
    )


def record(job: Job, shapes: Shapes, count: int = 2) -> None:
    inputs = [[np.full(shape, number, np.float32) for shape in shapes] for number in range(1, count + 1)]
    RecordStore(job.records).append(Records(runs=count), shapes, inputs)


def test_other_shapes_are_no_samples(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    record(job, SHAPES)
    record(job, OTHER, 3)
    seen: list[Shapes] = []

    def quantize(_model: Path, _scheme: str, **options: Any) -> build.QuantizedModel:
        seen.extend(map(shapes_of, options["samples"]))
        raise UnsupportedError("not here")

    monkeypatch.setattr(build, "quantize", quantize)
    Worker(job, lambda *_, **__: None).run()
    assert seen == [SHAPES, SHAPES]


def test_without_samples_of_its_shapes_more_is_recorded(job: Job) -> None:
    record(job, OTHER)
    Worker(job, lambda *_, **__: None).run()
    found, _ = Artefacts(job.settings.folder).find(KEY)
    assert found is not None
    assert (found.result.kind, found.result.reason) == ("coverage", "no recorded input of these shapes is kept")


@pytest.mark.parametrize(("runs", "needed"), [(0, 2), (10, 20), (20, 32), (31, 32), (32, 64)])
def test_records_that_are_taken_as_they_are_need_not_be_doubled(runs: int, needed: int, job: Job) -> None:
    """Another process may have so many, while this one was refused with fewer."""
    record(job, OTHER)
    Worker(replace(job, runs=runs, patience_runs=32), lambda *_, **__: None).run()
    found, _ = Artefacts(job.settings.folder).find(KEY)
    assert found is not None
    assert (found.result.kind, found.result.records_needed) == ("coverage", needed)


def test_a_limit_that_these_records_cannot_miss_waits_for_others(job: Job) -> None:
    """Inputs of one class alone say nothing of the share that a limit asks for."""
    record(job, SHAPES, 10)
    settings = replace(job.settings, metric="top1", limit=0.99)
    Worker(replace(job, settings=settings, runs=10), lambda *_, **__: None).run()
    found, _ = Artefacts(job.settings.folder).find(KEY)
    assert found is not None
    assert found.result.kind == "coverage"
    assert found.result.waits_for_records
    assert found.result.records_needed == 20
    assert "the limit of top1_match is 0.99" in (found.result.reason or "")


@pytest.mark.parametrize(("telling", "kind"), [(False, "coverage"), (True, "accuracy")])
def test_a_verdict_of_samples_that_decide_nothing_waits_for_others(
    telling: bool, kind: str, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(job, SHAPES, 10)
    made = make_verdict((Limit("mpeir", 0.1),), {"mpeir": 0.0}, findings=[(PROBLEM, "so it is")])
    made["samples"] = {"telling": telling}
    monkeypatch.setattr(build, "quantize", lambda *_, **__: build.QuantizedModel(b"", made))
    Worker(replace(job, runs=10), lambda *_, **__: None).run()
    found, _ = Artefacts(job.settings.folder).find(KEY)
    assert found is not None
    assert found.result.kind == kind
    assert (found.result.reason or "").startswith("the quantised model failed: so it is")


def test_an_uncertain_verdict_on_states_waits_for_more_runs(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    record(job, SHAPES, 10)
    made = make_verdict((Limit("mpeir", 0.1),), {"mpeir": 0.0}) | {"states": {"pairs": []}, "certain": False}
    made["samples"] = {"telling": True}
    monkeypatch.setattr(build, "quantize", lambda *_, **__: build.QuantizedModel(b"", made))
    Worker(replace(job, runs=10), lambda *_, **__: None).run()
    found, _ = Artefacts(job.settings.folder).find(KEY)
    assert found is not None
    assert (found.result.kind, found.result.records_needed) == ("coverage", 20)
    assert found.result.reason == "10 recorded runs do not determine how errors of the model's states add up"


def test_clipped_masks_are_inside_of_the_recorded_ranges(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "decoder.circle"
    model.write_bytes(model_bytes(language_model({"decode": 1})))
    samples: list[list[Any]] = []
    with Session(model) as session:
        infer = session.infer
        monkeypatch.setattr(session, "infer", lambda inputs: (samples.append(inputs), infer(inputs))[1])
        for prompt in ([1, 5], [4, 2], [7, 3]):
            session.generate(prompt, 5)

    def refuse(*_: object) -> Path:
        raise UnsupportedError("not here")

    shapes = shapes_of(samples[0])
    RecordStore(job.records).append(Records(runs=len(samples)), shapes, samples)
    monkeypatch.setattr(Worker, "_compile", refuse)
    job = replace(job, model=str(model), digest=content_digest(model), shapes=[list(shape) for shape in shapes])
    Worker(job, lambda *_, **__: None).run()
    found, _ = Artefacts(job.settings.folder).find(KEY)
    assert found is not None
    assert found.model is not None
    executor, verdict = HostExecutor(build_graph(read_model(found.model))), found.result.verdict or {}
    clipped = Watch(Terms.of(verdict | {"input_ranges": None}, 0.0), None, lambda _: None)
    watch = Watch(Terms.of(verdict, 0.0), None, lambda _: None)
    assert not clipped.admits(executor, samples[0])
    assert all(watch.admits(executor, sample) for sample in samples)
    token, position, mask, *past = samples[0]
    assert not watch.admits(executor, [token, position, 2.0 * mask, *past])


@pytest.mark.parametrize(("before", "now"), [(True, True), (True, False), (False, False), (None, False)])
def test_scores_that_later_inputs_make_numbers_wait_for_more_runs_and_then_are_a_finding(
    before: bool | None, now: bool, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(job, SHAPES, 10)
    if before is not None:  # the verdict of a result that the watch has withdrawn
        artefacts = Artefacts(job.settings.folder)
        earlier = {"outputs": [{"name": "sum", "classifies": before}]}
        artefacts.commit(KEY, artefacts.new_folder(KEY), JobResult(None, "outside", WATCH, "watch", verdict=earlier))
    verdict = make_verdict((Limit("mpeir", 0.1),), {"mpeir": 0.0}) | {"outputs": [{"name": "sum", "classifies": now}]}
    verdict |= {"samples": {"telling": True}, "findings": []}
    monkeypatch.setattr(build, "quantize", lambda *_, **__: build.QuantizedModel(b"", verdict))
    monkeypatch.setattr(build, "normal_saturation", lambda *_: {})
    kinds, texts = [], []
    for runs in (10, 40):
        verdict["findings"].clear()
        Worker(replace(job, runs=runs, patience_runs=40, again=True), lambda *_, **__: None).run()
        found, _ = Artefacts(job.settings.folder).find(KEY)
        assert found is not None
        kinds.append(found.result.kind)
        texts.append((found.result.reason or "") if kinds[-1] == "coverage" else "".join(verdict["findings"]))
    lost = bool(before) and not now
    assert ("coverage" in kinds) == lost
    assert [text.startswith("output 'sum' counted as class scores before") for text in texts] == [lost, lost]


def test_a_metric_that_no_output_has_waits_for_nothing(job: Job) -> None:
    record(job, SHAPES, 10)
    settings = replace(job.settings, metric="top5", limit=0.99)
    Worker(replace(job, settings=settings, runs=10), lambda *_, **__: None).run()
    found, _ = Artefacts(job.settings.folder).find(KEY)
    assert found is not None
    assert (found.result.kind, found.result.waits_for_records) == ("failed", False)


@pytest.mark.parametrize("kind", [InputError, SessionError, RecordsError, CacheError])
def test_what_says_nothing_of_the_model_is_no_refusal(
    kind: type[OdcError], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise kind("something of ours")

    monkeypatch.setattr(Worker, "_fill", fail)
    with pytest.raises(CompileError, match="something of ours") as caught:
        Worker(job, lambda *_, **__: None).run()
    assert caught.value.passing
    assert Artefacts(job.settings.folder).find(KEY) == (None, None)


def test_a_model_is_quantised_in_the_shapes_of_its_samples(tmp_path: Path) -> None:
    model = tmp_path / "model.circle"
    model.write_bytes(model_bytes(add_model(SHAPE)))
    samples = [[np.full(shape, number, np.float32) for shape in OTHER] for number in range(8)]
    made = build.quantize(model, "int8", samples=samples)
    assert [info.shape for info in build_graph(read_model(made.model)).input_infos()] == [SHAPE, SHAPE]
    assert made.verdict["samples"]["checked_on"] == 8


def test_states_of_the_session_are_rolled_out(tmp_path: Path) -> None:
    streaming, model, state = elman(), tmp_path / "model.circle", np.zeros((1, 12), np.float32)
    model.write_bytes(streaming.model)
    samples = []
    for frame in streaming.frames(40, 1):
        samples.append([frame, state])
        state = HostExecutor(build_graph(read_model(model))).run(samples[-1])[1]
    made = build.quantize(model, "int8", samples=samples, states={"h_out": "h_in"})
    assert (made.verdict["states"]["pairs"], made.verdict["states"]["known"]) == ({"h_out": "h_in"}, "declared")
    graph = build_graph(read_model(made.model), states=True)
    assert len(graph.inputs) == 2
    assert not graph.states


def test_recorded_inputs_are_samples_to_check_on(tmp_path: Path) -> None:
    """Few of them only check what records of more runs gave ranges to; schemes of weights alone can do without any."""
    model = tmp_path / "model.circle"
    model.write_bytes(model_bytes(add_model(SHAPE)))
    samples = [[np.full(SHAPE, number, np.float32) for _ in range(2)] for number in range(1, 10)]
    records = record_runs(HostExecutor(build_graph(read_model(model))), samples)
    RecordStore(tmp_path / "minmax.db").append(records, (SHAPE, SHAPE), samples[:3])
    spoilt = [np.where(np.eye(*SHAPE) > 0, np.nan, value).astype(np.float32) for value in samples[0]]
    RecordStore(tmp_path / "minmax.db").append(Records(runs=1), (SHAPE, SHAPE), [spoilt])
    assert len(build.recorded_inputs(tmp_path / "minmax.db")) == 3, "what is not finite is no sample"
    for scheme, given in (("int8", samples), ("int8", samples[:3]), ("int8_wo", samples[:3]), ("int8_wo", [])):
        made = build.quantize(model, scheme, samples=given, records=tmp_path / "minmax.db")
        assert made.verdict["samples"]["made_up"] is (not given)


@pytest.mark.parametrize(("native_us", "level"), [(9.0, "direct"), (4.0, None)])
def test_code_for_a_plugin_must_beat_the_native_code_of_the_model(
    native_us: float, level: str | None, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gained(models: dict[str, Path], *_: Any) -> build.Gain:
        assert all(path.exists() for path in models.values())
        before = {"original": 20.0, "cpu-gen": native_us}[next(iter(models))]
        return build.Gain(before, 5.0, 0.1 if before > 5 else -0.1)

    monkeypatch.setattr(build, "gained", gained)
    monkeypatch.setattr("odc_mlir.plugins.codegen.generate", lambda source, plugin, made, **_: copy(source, made))
    job = replace(job, direct=True, must_be_faster=True, competitor="cpu-gen")
    Worker(job, lambda *_, **__: None).run()
    found, _ = Artefacts(job.settings.folder).find(KEY)
    assert found is not None
    assert found.result.level == level
    assert found.result.latency_us == {"original": 20.0, "cpu-gen": native_us, "direct": 5.0}
    assert level or found.result.reason == "it takes 5.0 us here, the code of cpu-gen 4.0 us"


def test_a_competitor_that_cannot_be_compiled_is_no_rival(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def generate(source: Path, plugin: str, made: Path, **_: Any) -> Path:
        if plugin == "cpu-gen":
            raise CompileError("no code generator")
        return copy(source, made)

    monkeypatch.setattr(build, "gained", lambda *_: build.Gain(20.0, 5.0, 0.1))
    monkeypatch.setattr("odc_mlir.plugins.codegen.generate", generate)
    job = replace(job, direct=True, must_be_faster=True, competitor="cpu-gen")
    Worker(job, lambda *_, **__: None).run()
    found, _ = Artefacts(job.settings.folder).find(KEY)
    assert found is not None
    assert (found.result.level, found.result.notes) == ("direct", ["no code generator"])


def copy(source: Path, made: Path) -> Path:
    made.write_bytes(Path(source).read_bytes())
    return made


def test_of_the_files_of_a_job_those_that_its_result_names_are_kept(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def generate(source: Path, plugin: str, made: Path, **_: object) -> Path:
        made.write_bytes(b"code")
        made.with_name("scratch.o").write_bytes(b"")
        return made

    monkeypatch.setattr("odc_mlir.plugins.codegen.generate", generate)
    record(job, SHAPES, 10)
    Worker(replace(job, quantized=True, runs=10), lambda *_, **__: None).run()
    found, _ = Artefacts(job.settings.folder).find(KEY)
    assert found is not None
    assert found.compiled is not None
    assert {file.name for file in found.compiled.parent.iterdir()} == {found.compiled.name, RECORD_NAME}
