"""What serves when: triggers, input shapes, preferences, models that must not be exchanged. Workers are pretended."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.auto import fail_results
from helpers.models import ModelBuilder, add_model, choosing_model, model_bytes
from helpers.pretended import SHAPE, Pretended, phases, served, session_of, settings_in, subtract_model
from odc_mlir.errors import SessionError
from odc_mlir.formats.circle.model import Model, Signature, Tensor
from odc_mlir.formats.manifest import Manifest
from odc_mlir.formats.package import PackageFiles
from odc_mlir.formats.states import NAME, StatePair, encode
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto import aim, controller
from odc_mlir.runtime.auto.artefacts import Artefact, JobResult
from odc_mlir.runtime.auto.candidates import Opened
from odc_mlir.runtime.auto.controller import AutoCompiler
from odc_mlir.runtime.auto.jobs import Job, Milestone, progress_line, read_progress
from odc_mlir.runtime.auto.settings import AutoStatus, Level, Phase
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.session import switcher

pytestmark = pytest.mark.usefixtures("pretended")


@pytest.mark.parametrize("level", [None, "quantized"])
def test_auto_goes_on_to_the_next_target(
    level: str | None, pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing can be built for the first, which is said; the last one's refusal is kept."""
    monkeypatch.setattr(aim, "attached", lambda: (["npu-128", "npu-256"], []))
    session = session_of(ODC_TARGET="auto")
    pretended.result = JobResult(level, "the plugin refuses it", "unsupported", "compile")
    assert [served(session) for _ in range(2)] == [Level.ORIGINAL] * 2
    assert session.odc_status.target == "npu-256"
    assert session.odc_status.notes == ["npu-128 is not compiled for: the plugin refuses it"]
    if level is None:
        pretended.result = JobResult("quantized", scheme="int8")
    levels = [served(session) for _ in range(4)]
    assert levels[-1] is Level.QUANTIZED
    assert [job.machine for job in pretended.jobs] == ["npu-128", "npu-256"]
    assert session.odc_status.target == "npu-256"


@pytest.mark.parametrize(
    ("refusal", "goes_on"),
    [
        (JobResult(None, "there is no layer for it", "unsupported", "compile"), True),
        (JobResult(None, "it takes longer than the original model", "slower", "measure"), True),
        (JobResult(None, "the disk is full", "passing", "compile"), False),
    ],
)
def test_auto_goes_on_from_a_target_of_real_numbers(
    refusal: JobResult, goes_on: bool, pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a target compiles the model itself alone; the next session, which finds the refusal, goes on at once."""
    of_reals = replace(aim.aim_at("npu-128"), takes_floats=True, takes_codes=False)
    known = {"npu-128": of_reals, "npu-256": aim.aim_at("npu-256")}
    monkeypatch.setattr(aim, "attached", lambda: (list(known), []))
    monkeypatch.setattr(aim, "_aim", lambda name, _chosen: known[name])
    for _ in range(2):
        pretended.result = refusal
        session = session_of(ODC_TARGET="auto")
        served(session)
        if not goes_on:
            assert (session.odc_status.target, session.odc_status.notes) == ("npu-128", [])
            continue
        assert session.odc_status.target == "npu-256"
        assert session.odc_status.notes == [f"npu-128 is not compiled for: {refusal.reason}"]
        assert phases(session) is not Phase.REJECTED  # nobody takes what goes on for an end
        pretended.result = JobResult("quantized", scheme="int8")
        assert [served(session) for _ in range(4)][-1] is Level.QUANTIZED
        session.close()
    assert {job.machine for job in pretended.jobs} == ({"npu-128", "npu-256"} if goes_on else {"npu-128"})


def test_the_status_as_json() -> None:
    import json

    assert json.loads(AutoStatus().to_json())["phase"] == "float"
    session = session_of()
    served(session)
    status = json.loads(session.odc_status.to_json())
    assert status["schema_version"] == 1
    assert (status["phase"], status["serving"], status["records"], status["records_needed"]) == (
        "collecting",
        "original",
        1,
        2,
    )
    assert status["progress"] == pytest.approx(0.2)
    assert status["shapes"] == [[1, 4], [1, 4]]


# When it starts.


def test_after_so_many_records() -> None:
    session = session_of()
    assert [served(session) for _ in range(4)] == [Level.ORIGINAL] * 2 + [Level.QUANTIZED] * 2
    (job,) = Pretended.jobs
    assert (job.plugin, job.machine, job.quantized) == ("npu-gen", "npu-256", False)
    assert job.fixed_shapes == [[1, 4], [1, 4]]  # the model's own are not known
    assert Path(job.model).read_bytes() == model_bytes(add_model(SHAPE, signature=(-1, 4)))


def test_the_number_of_records_by_call() -> None:
    session = session_of()
    session.set_odc_param_minmax_records_count(1)
    assert [served(session) for _ in range(2)] == [Level.ORIGINAL, Level.QUANTIZED]
    for count in (0, -1, 1.5, True):
        with pytest.raises(SessionError, match="allowed are integers from 1"):
            session.set_odc_param_minmax_records_count(count)  # type: ignore[arg-type]


def test_records_of_an_earlier_session_count() -> None:
    session = session_of(ODC_TRIGGER="explicit")
    served(session)
    session.close()
    again = session_of()
    assert [served(again) for _ in range(2)] == [Level.ORIGINAL, Level.QUANTIZED]


def test_records_of_a_session_that_nobody_closes_count() -> None:
    session = session_of(ODC_TRIGGER="explicit")
    served(session)
    del session
    gc.collect()
    again = session_of()
    assert [served(again) for _ in range(2)] == [Level.ORIGINAL, Level.QUANTIZED]


def test_when_the_application_asks() -> None:
    session = session_of(ODC_TRIGGER="explicit")
    served(session)
    session.start_auto_compilation()  # not enough yet
    assert not Pretended.jobs
    assert [served(session) for _ in range(12)] == [Level.ORIGINAL] * 12
    assert session.odc_status.records == 8  # recording does not go on for ever
    session.start_auto_compilation()
    assert served(session) is Level.QUANTIZED


def test_when_nothing_runs_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "IDLE_SECONDS", 1e9)  # however slow this machine is
    session = session_of(ODC_TRIGGER="idle")
    assert [served(session) for _ in range(5)] == [Level.ORIGINAL] * 5
    monkeypatch.setattr(controller, "IDLE_SECONDS", 0.05)
    deadline = time.monotonic() + 60
    while not Pretended.jobs and time.monotonic() < deadline:
        time.sleep(0.02)
    assert session.wait_for_auto_compilation(60)
    assert served(session) is Level.QUANTIZED


def quantised_model() -> Model:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 4), "int8", quant=(0.5, 0)) for name in "xy")
    builder.operator("RELU", [x], [y])
    return builder.finish([x], [y])


@pytest.mark.parametrize("trigger", ["first-run", "after-records"])
def test_a_quantised_model_needs_no_records(trigger: str) -> None:
    Pretended.model = model_bytes(quantised_model())
    session = session_of(quantised_model(), ODC_TRIGGER=trigger)
    session.prepare()
    (job,) = Pretended.jobs
    assert job.quantized
    assert phases(session) is Phase.ACTIVE
    assert session.odc_status.records_needed == 0


def test_run_with_auto_compilation(tmp_path: Path) -> None:
    session = Session(model_bytes(add_model()), settings={"ODC_RECORDS": "2"})
    session.set_quantization_type("U8_ASYM")
    session.set_quantized_model_path(tmp_path / "quantized.circle")
    session.prepare()
    session.set_inputs(2)
    for _ in range(3):
        session.run_with_auto_compilation("npu-gen", "MEMORY_FIRST")
    (job,) = Pretended.jobs
    assert (job.settings.scheme, job.settings.preference, job.fixed_shapes) == ("uint8", 2, None)
    assert phases(session) is Phase.ACTIVE
    assert (tmp_path / "quantized.circle").read_bytes() == Pretended.model
    for target in ("npu", "-gen", 7):
        with pytest.raises(SessionError, match="expected <extension>-gen"):
            session.run_with_auto_compilation(target)  # type: ignore[arg-type]


# Several shapes.


def test_each_set_of_shapes_is_compiled_for(pretended: type[Pretended]) -> None:
    session = session_of()
    for _ in range(3):
        served(session)
    pretended.hold = True
    assert served(session, 2) is Level.QUANTIZED  # at once, by the model that was quantised for the first shapes
    assert phases(session) is Phase.COMPILING
    (waiting,) = pretended.waiting
    assert waiting.job.quantized
    assert waiting.job.fixed_shapes == [[2, 4], [2, 4]]
    assert Path(waiting.job.model).read_bytes() == Pretended.model
    assert served(session, 3) is Level.QUANTIZED
    assert len(pretended.jobs) == 2  # one process at a time
    waiting.finish()
    assert served(session, 3) is Level.QUANTIZED
    assert len(pretended.jobs) == 3
    assert len({job.key for job in pretended.jobs}) == 3


def test_programs_for_few_shapes_are_kept_in_memory(
    pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    open_artefact = controller.open_artefact

    def counted(artefact: Artefact, *arguments: Any) -> Opened:
        opened.append(artefact.folder)
        return open_artefact(artefact, *arguments)

    monkeypatch.setattr(controller, "open_artefact", counted)
    monkeypatch.setattr(controller, "SHAPES_KEPT", 4)
    session = session_of()
    for rows in (1, 1, *range(1, 9)):
        served(session, rows)
    jobs = len(pretended.jobs)
    assert len(opened) == len(set(opened)) == jobs
    assert [served(session, rows) for rows in (8, 7, 6)] == [Level.QUANTIZED] * 3
    assert len(opened) == jobs  # still in memory
    assert served(session, 1) is Level.QUANTIZED
    assert len(opened) == jobs + 1  # from the disk
    assert len(pretended.jobs) == jobs


def test_who_prefers_short_compiling_has_other_shapes_run_on_the_host(pretended: type[Pretended]) -> None:
    session = session_of(ODC_PREF="compile-time")
    for _ in range(3):
        served(session)
    assert [served(session, 2) for _ in range(3)] == [Level.QUANTIZED] * 3
    assert len(pretended.jobs) == 1


# What is refused.


def test_a_refusal_is_remembered_until_another_try_is_asked_for(pretended: type[Pretended]) -> None:
    pretended.result = JobResult(None, "too inaccurate", "accuracy", "check")
    session = session_of()
    assert [served(session) for _ in range(4)] == [Level.ORIGINAL] * 4
    assert (phases(session), session.odc_status.reason) == (Phase.REJECTED, "too inaccurate")
    later = session_of()
    assert served(later) is Level.ORIGINAL
    assert (phases(later), later.odc_status.reason) == (Phase.REJECTED, "too inaccurate")
    assert len(pretended.jobs) == 1
    pretended.result = JobResult("quantized")
    later.retry_auto_compilation()
    assert served(later) is Level.QUANTIZED  # the records are enough


# What is watched.

LIMITS = {"limits": [{"metric": "mpeir", "limit": 0.1}]}


def settle(session: Session, runs: int = 1, rows: int = 1) -> list[Level]:
    """What serves one run after another, when nothing works beside them."""
    found = []
    for _ in range(runs):
        found.append(served(session, rows))
        assert session.wait_for_auto_compilation(10)
    return found


def test_answers_that_leave_the_limits_are_given_up(pretended: type[Pretended]) -> None:
    pretended.result = JobResult("quantized", verdict=LIMITS)
    session = session_of(ODC_WATCH_PERCENT="100")
    levels = settle(session, 20)
    first = levels.index(Level.QUANTIZED)
    assert first == 2
    back = levels.index(Level.ORIGINAL, first)
    assert back - first <= 8  # four shadow runs, the first of which has to be afforded
    status = session.odc_status
    assert "shadow runs: mpeir" in (status.reason or status.fallbacks[-1].reason)
    assert (status.fallbacks[0].level, status.fallbacks[0].stage) == ("quantized", "watch")
    assert len(pretended.jobs) >= 2  # after twice as many records it is tried again
    assert pretended.jobs[1].runs == 4
    assert pretended.jobs[1].key == pretended.jobs[0].key


def test_what_was_given_up_does_not_serve_later_processes(pretended: type[Pretended]) -> None:
    pretended.result = JobResult("quantized", verdict=LIMITS)
    session = session_of(ODC_WATCH_PERCENT="100", ODC_RECORDS="5")
    settle(session, 5)
    while settle(session) == [Level.QUANTIZED]:
        pass
    assert (phases(session), session.odc_status.records_needed) == (Phase.COLLECTING, 10)
    session.close()
    later = session_of(ODC_RECORDS="5")
    assert settle(later) == [Level.ORIGINAL]
    status = later.odc_status
    assert (status.phase, status.records_needed) == (Phase.COLLECTING, 10)
    assert "shadow runs: mpeir" in (status.reason or "")
    assert status.fallbacks[0].stage == "watch"
    assert len(pretended.jobs) == 1
    while settle(later) == [Level.ORIGINAL]:
        pass
    assert [job.runs for job in pretended.jobs] == [5, 10]


def test_what_a_verdict_could_not_know_of_an_input_is_noted(pretended: type[Pretended]) -> None:
    pretended.result = JobResult("quantized", verdict={**LIMITS, "samples": {"same_inputs": ["mask"]}})
    session = session_of(ODC_WATCH_PERCENT="0")
    settle(session, 3)
    assert "the quantised model was judged on recorded inputs: input 'mask' was the same in all samples" in (
        session.odc_status.notes
    )


def test_all_shapes_are_given_up_together(pretended: type[Pretended]) -> None:
    pretended.result = JobResult("quantized", verdict=LIMITS)
    session = session_of(ODC_WATCH_PERCENT="0")
    settle(session, 3)
    pretended.hold = True
    assert served(session, 2) is Level.QUANTIZED  # borrowed, while a process works on it
    assert phases(session) is Phase.COMPILING
    auto = session._switcher.auto
    assert isinstance(auto, AutoCompiler)
    auto.leave("on purpose")
    assert served(session, 2) is Level.ORIGINAL
    assert served(session, 1) is Level.ORIGINAL
    (waiting,) = pretended.waiting
    assert waiting.job.verdict == LIMITS
    waiting.finish()
    assert served(session, 2) is Level.ORIGINAL  # what was made from it is not used either
    status = session.odc_status
    assert (status.phase, status.reason) == (Phase.COLLECTING, "on purpose")


def test_without_watching(pretended: type[Pretended]) -> None:
    pretended.result = JobResult("quantized", verdict=LIMITS)
    session = session_of(ODC_WATCH="off")
    assert settle(session, 20)[2:] == [Level.QUANTIZED] * 18
    assert session.odc_status.watch is None
    assert pretended.jobs[0].patience_runs == 0


def test_records_that_show_too_little_are_waited_for(pretended: type[Pretended]) -> None:
    pretended.result = JobResult(None, "all alike", "coverage", "check", budget={"runs": 3.0})
    session = session_of()
    assert settle(session, 3) == [Level.ORIGINAL] * 3
    status = session.odc_status
    assert (status.phase, status.records_needed) == (Phase.COLLECTING, 4)
    assert status.reason == "all alike; recording more runs first"
    assert pretended.jobs[0].patience_runs == 8
    pretended.result = JobResult("quantized")
    assert settle(session, 2) == [Level.ORIGINAL, Level.QUANTIZED]


def test_records_are_not_waited_for_without_end(pretended: type[Pretended]) -> None:
    pretended.result = JobResult(None, "all alike", "coverage", "check", budget={"runs": 7.0})
    session = session_of()
    settle(session, 9)
    assert (phases(session), session.odc_status.reason) == (
        Phase.REJECTED,
        "all alike; the next session records more",
    )
    assert len(pretended.jobs) == 2


def stateful_model() -> Model:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    builder.tensor("state", (1, 4), variable=True)
    builder.operator("ABS", [x], [y])
    return builder.finish([x], [y])


def random_model() -> Model:
    builder = ModelBuilder()
    x = builder.tensor("shape", (2,), "int32")
    y = builder.tensor("y", None)
    builder.operator("RANDOM_UNIFORM", [x], [y])
    return builder.finish([x], [y])


@pytest.mark.parametrize(("model", "name"), [(stateful_model(), "the model"), (random_model(), "RANDOM_UNIFORM 'y'")])
def test_models_that_keep_state_are_left_alone(model: Model, name: str) -> None:
    session = session_of(model)
    session.prepare()
    session.infer([np.ones((1, 4), np.float32)] if name == "the model" else [np.ones(2, np.int32)])
    status = session.odc_status
    assert status.phase is Phase.REJECTED
    assert status.reason == f"{name} keeps state from run to run, which an exchange would lose"


def accumulator(dtype: str) -> Model:
    """``h_out = h_in + x`` and ``y = |h_out|``, in float32 with ``h`` as state, or in codes of a half."""
    builder, quant = ModelBuilder(), None if dtype == "float32" else (0.5, 0)
    x, h, total, y = (builder.tensor(name, (1, 4), dtype, quant=quant) for name in ("x", "h_in", "h_out", "y"))
    builder.operator("ADD", [x, h], [total])
    builder.operator("ABS", [total], [y])
    model = builder.finish([x, h], [total, y, total])  # the state is an output as well
    if quant is None:
        model.metadata.append((NAME, len(model.buffers)))
        model.buffers.append(memoryview(encode([StatePair("h_out", "h_in")])))
    return model


def test_declared_states_go_on_in_a_result_and_back(
    pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switcher, "_FRAMES", 2)
    pretended.model = model_bytes(accumulator("int8"))
    session = session_of(accumulator("float32"))

    def answer(value: float = 0.3) -> float:
        total, y = session.infer([np.full((1, 4), value, np.float32)])
        assert np.array_equal(y, np.abs(total))
        return round(float(y[0, 0]), 3)

    # Two runs are recorded in float; then 0.6 becomes the code of 0.5, and each 0.3 as well.
    assert [answer() for _ in range(5)] == [0.3, 0.6, 1.0, 1.5, 2.0]
    assert session.odc_status.serving is Level.QUANTIZED
    assert pretended.jobs[0].shapes == [[1, 4], [1, 4]]
    assert pretended.jobs[0].states == {"h_out": "h_in"}
    assert session.get_state()["h_in"].tolist() == [[2.0] * 4]
    session.set_state({"h_in": np.full((1, 4), 4, np.float32)})
    assert answer() == 4.5
    fail_results(monkeypatch, "the device is gone")
    assert answer() == 4.8
    assert session.odc_status.serving is Level.ORIGINAL
    session.reset_state()
    assert answer() == 0.3


def variable_accumulator() -> Model:
    """The same with a variable, which begins as 1, and without the other output."""
    builder = ModelBuilder()
    handles = [builder.tensor("handle", (), "resource")]
    x, h, total, y = (builder.tensor(name, (1, 4)) for name in ("x", "h", "total", "y"))
    named: dict[str, Any] = {"options": {"container": "", "shared_name": "sum"}}
    builder.operator("CALL_ONCE", [], [], options={"init_subgraph_index": 1})
    builder.operator("VAR_HANDLE", [], handles, **named)
    builder.operator("READ_VARIABLE", handles, [h])
    builder.operator("ADD", [x, h], [total])
    builder.operator("ASSIGN_VARIABLE", [*handles, total], [])
    builder.operator("ABS", [total], [y])
    builder.finish([x], [y])
    builder.begin("initial")
    first = builder.tensor("handle", (), "resource")
    builder.operator("VAR_HANDLE", [], [first], **named)
    builder.operator("ASSIGN_VARIABLE", [first, builder.constant("start", np.ones((1, 4)))], [])
    return builder.finish([], [])


def test_variables_go_on_in_a_result_and_back(pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switcher, "_FRAMES", 2)
    result = accumulator("int8")
    result.subgraphs[0].outputs = result.subgraphs[0].outputs[1:]  # as in the model whose variable is a state
    pretended.model = model_bytes(result)
    session = session_of(variable_accumulator())

    def answer() -> float:
        return round(float(session.infer([np.full((1, 4), 0.3, np.float32)])[0][0, 0]), 3)

    # Two runs are recorded in float; then 1.6 becomes the code of 1.5, and each 0.3 that of 0.5.
    assert [answer() for _ in range(4)] == [1.3, 1.6, 2.0, 2.5]
    assert session.odc_status.serving is Level.QUANTIZED
    assert session.get_state()["sum"].tolist() == [[2.5] * 4]
    fail_results(monkeypatch, "the device is gone")
    assert answer() == 2.8
    assert session.odc_status.serving is Level.ORIGINAL
    session.reset_state()
    assert answer() == 1.3


def test_branches_keep_state_if_their_subgraphs_do() -> None:
    model = choosing_model()
    assert aim.why_not(build_graph(model)) is None
    model.subgraphs[2].tensors.append(Tensor("state", "float32", (1,), is_variable=True))
    assert "keeps state" in (aim.why_not(build_graph(model)) or "")


def test_backends_without_the_npu() -> None:
    session = session_of(BACKENDS="cpu")
    served(session)
    assert (phases(session), session.odc_status.reason) == (Phase.REJECTED, "the backends cpu leave out npu")
    session = session_of(BACKENDS="npu;cpu")
    served(session)
    assert phases(session) is Phase.COLLECTING


def test_backends_of_single_operators() -> None:
    session = session_of()
    session.set_backends_per_operation("0=cpu")
    served(session)
    assert session.odc_status.reason == "backends were chosen for single operators"


def test_another_signature() -> None:
    model = add_model()
    model.subgraphs.append(subtract_model().subgraphs[0])
    model.signatures.append(Signature("other", 1, {}, {}))
    session = session_of(model)
    session.configure_signature("other")
    session.infer([np.ones((1, 4), np.float32)] * 2)
    assert session.odc_status.reason == "only the first subgraph can be compiled"


def test_what_a_package_sets_wrongly_stops_nothing() -> None:
    config = {"OnDeviceCompilation": "1", "ODC_RECORDS": "many"}
    manifest = Manifest(("model.circle",), ("circle",))
    members = {"metadata/MANIFEST": manifest.to_json(), "model.circle": model_bytes(add_model(SHAPE))}
    session = Session(Package(PackageFiles(members, manifest, config, None, "test")))
    assert [served(session) for _ in range(3)] == [Level.ORIGINAL] * 3
    status = session.odc_status
    assert (status.enabled, status.phase, status.records_needed) == (True, Phase.COLLECTING, 10)
    (note,) = status.notes
    assert "ODC_RECORDS is 'many'" in note


def test_without_the_switch_nothing_happens() -> None:
    session = Session(model_bytes(add_model()))
    for _ in range(3):
        session.infer([np.ones(SHAPE, np.float32)] * 2)
    assert session.odc_status == AutoStatus()
    with pytest.raises(SessionError, match="set OnDeviceCompilation to 1"):
        session.retry_auto_compilation()


# What was made does not fit.


def with_integers() -> Model:
    """As the model, but its inputs and outputs are quantised: real values become codes and codes real values."""
    builder = ModelBuilder()
    a, b, out = (builder.tensor(name, SHAPE, "int8", quant=(0.5, 0)) for name in ("a", "b", "out"))
    builder.operator("SUB", [a, b], [out])
    return builder.finish([a, b], [out])


def test_integers_are_converted(pretended: type[Pretended]) -> None:
    pretended.model = model_bytes(with_integers())
    session = session_of(add_model())
    assert [served(session) for _ in range(4)] == [Level.ORIGINAL] * 2 + [Level.QUANTIZED] * 2
    assert session.input_tensorinfo(0).dtype == session.output_tensorinfo(0).dtype == "float32"


@pytest.mark.parametrize("what", ["inputs", "types", "garbage"])
def test_another_interface_is_not_used(what: str, pretended: type[Pretended]) -> None:
    builder = ModelBuilder()
    x, y, z = (builder.tensor(name, SHAPE, "int32") for name in "xyz")
    builder.operator("ABS", [x], [z])
    models = {
        "inputs": model_bytes(builder.finish([x], [z])),
        "types": model_bytes(builder.finish([x, y], [z])),
        "garbage": b"this is not a model at all",
    }
    pretended.model = models[what]
    session = session_of()
    assert [served(session) for _ in range(4)] == [Level.ORIGINAL] * 4
    status = session.odc_status
    assert status.phase is Phase.REJECTED
    expected = {
        "inputs": "1 input, the original has 2",
        "types": "int32 inputs, the original float32",
        "garbage": "no Circle",
    }
    assert expected[what] in (status.reason or "")


def test_jobs_and_progress_as_text() -> None:
    job = Job("k", settings_in(Path("f"), limit=0.5), "m", "d", "r", False, "npu-gen", None, [[1]], None)
    assert Job.from_json(job.to_json()) == job
    assert read_progress(progress_line(Milestone.QUANTIZED, samples=3)) == {"step": "quantized", "samples": 3}
    for line in (b"", b"warning: something", b"[1]", b'{"other": 1}', b"\xff\xfe"):
        assert read_progress(line) is None


def test_the_controller_is_closed_with_its_session() -> None:
    session = session_of()
    served(session)
    auto = session._switcher.auto
    assert isinstance(auto, AutoCompiler)
    session.close()
    auto.answered(((1, 4), (1, 4)), None, [])
    assert not Pretended.jobs
