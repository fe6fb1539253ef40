"""Studies: what is tried, by processes that may die, and what a file remembers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from helpers.data import REPOSITORY
from helpers.exploring import KILLED, deadly, endless, formula
from odc_mlir.errors import OdcError, OptionError, UnsupportedError
from odc_mlir.explore import study
from odc_mlir.explore.space import ParameterAxis
from odc_mlir.explore.study import Bound, Definition, Outcome, Task, run
from odc_mlir.tools.odc_compile import main as compile_main
from odc_mlir.tools.odc_explore import main

MODEL = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"
AXES = (ParameterAxis("array.macs_per_cycle", (128, 256, 512)), ParameterAxis("sram.bytes_per_cycle", (4, 8, 16)))


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Every task that was evaluated, in threads of this process and by a formula."""
    tasks: list[Task] = []

    def evaluate(task: Task) -> Outcome:
        tasks.append(task)
        return formula(task)

    @contextmanager
    def workers(jobs: int, scheduler: str | None) -> Iterator[Callable[[], Executor]]:
        yield lambda: ThreadPoolExecutor(jobs)

    monkeypatch.setattr(study, "evaluate", evaluate)
    monkeypatch.setattr(study, "_workers", workers)
    return tasks


def _definition(**changes: Any) -> Definition:
    return Definition(**{"models": (str(MODEL),), "axes": AXES, "objectives": ("cycles_total",), **changes})


def test_a_grid_is_tried_whole_and_in_order(tried: list[Task]) -> None:
    found = run(_definition(), jobs=3)
    assert [tuple(trial.point.values()) for trial in found] == [(a, b) for a in (128, 256, 512) for b in (4, 8, 16)]
    assert len(tried) == 9
    assert found[1].outcome.value("cycles_total") == pytest.approx(1e6 / 128 + 800)


def test_chance_is_the_same_for_one_seed(tried: list[Task]) -> None:
    first, again, other = (
        [trial.point for trial in run(_definition(sampler="random", count=5, seed=seed))] for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len({tuple(point.values()) for point in first}) == 5


def test_a_sampler_that_learns(tried: list[Task]) -> None:
    found = run(_definition(sampler="bayes", count=12, bounds=(Bound("sram_peak_bytes", 4000),)))
    assert 1 < len(found) <= 9
    assert len(tried) == len(found), "no point is tried twice"


def test_a_study_goes_on_where_it_was(tried: list[Task], tmp_path: Path) -> None:
    file = str(tmp_path / "s.sqlite")
    first = run(_definition(count=4), storage=file)
    assert len(tried) == len(first) == 4
    found = run(_definition(), storage=file)
    assert len(tried) == 9
    assert found[:4] == first
    assert run(_definition(), storage=file) == found == run(_definition())
    with pytest.raises(OptionError, match="belongs to another study"):
        run(_definition(objectives=("latency_ms",)), storage=file)
    (tmp_path / "text").write_text("not a database")
    with pytest.raises(OptionError, match="cannot store the study"):
        run(_definition(), storage=str(tmp_path / "text"))


class _Dying(ThreadPoolExecutor):
    """The first ``deaths`` calls of submit in all pools kill what the pool is doing."""

    deaths = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if _Dying.deaths:
            _Dying.deaths -= 1
            future: Future[Any] = Future()
            future.set_exception(BrokenProcessPool("died"))
            return future
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize("deaths", [1, 2, 100])
def test_a_process_that_dies_loses_nothing(deaths: int, tried: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def workers(jobs: int, scheduler: str | None) -> Iterator[Callable[[], Executor]]:
        yield lambda: _Dying(jobs)

    expected = run(_definition())
    monkeypatch.setattr(study, "_workers", workers)
    _Dying.deaths = deaths
    found = run(_definition())
    assert [trial.point for trial in found] == [trial.point for trial in expected]
    if deaths < 100:
        assert found == expected
    else:
        assert {trial.outcome.failure for trial in found} == {"the process that compiled it died"}


def test_an_interrupted_study_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*news: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "evaluate", endless)
    with pytest.raises(KeyboardInterrupt):
        run(_definition(axes=(AXES[0], ParameterAxis("sram.bytes_per_cycle", (8,)))), jobs=2, tell=interrupt)
    for process in active_children():
        process.join()


def test_a_machine_that_cannot_be_built_is_a_failure(tried: list[Task]) -> None:
    found = run(_definition(axes=(ParameterAxis("array.macs_per_cycle", (100, 256)), AXES[1])))
    assert [trial.outcome.failure is None for trial in found] == [False] * 3 + [True] * 3


@pytest.mark.parametrize(
    "changes",
    [
        {"sampler": "random"},
        {
            "axes": (
                ParameterAxis("fetch.queue_depth", tuple(range(400))),
                ParameterAxis("fetch.issue_cycles", tuple(range(400))),
            )
        },
        {"axes": (ParameterAxis("bananas", (1,)),)},
        {"target": "npu-7"},
    ],
)
def test_what_is_no_study(changes: dict[str, Any], tried: list[Task]) -> None:
    with pytest.raises(OdcError):
        run(_definition(**changes))
    assert tried == []


def test_listed_points_need_no_optuna(tried: list[Task], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: tuple[Definition, ...] = (_definition(), _definition(sampler="random", count=4))
    stored = [run(definition, storage=str(tmp_path / definition.sampler)) for definition in given]
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    assert [run(definition, jobs=3) for definition in given] == stored
    for changes in ({"storage": str(tmp_path / "new")}, {"definition": _definition(sampler="bayes", count=4)}):
        with pytest.raises(UnsupportedError, match="--storage and --sampler bayes need Optuna"):
            run(**{"definition": given[0], **changes})


def test_a_study_without_a_usable_point(tried: list[Task], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    axes = ["array.macs_per_cycle=128,256", "sram.bytes_per_cycle=4,8"]
    best = tmp_path / "best.toml"
    options = ["--vary", *axes, "--constraint", "sram_peak_bytes<=1", "--best", str(best), "-q"]
    assert main([str(MODEL), *options]) == 1
    assert capsys.readouterr().err.startswith("odc-explore: error: no point is feasible: the constraints allow none")
    assert not best.exists()


@pytest.mark.parametrize(("axis", "told"), [("prefer=memory", True), ("sram.bytes_per_cycle=4", False)])
def test_the_next_step_compiles_a_point_of_the_given_machine(
    axis: str, told: bool, tried: list[Task], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = Outcome({str(MODEL): dict.fromkeys(study.MEASURES, 1.0)})
    monkeypatch.setattr(study, "evaluate", lambda task: measured)
    assert main([str(MODEL), "--vary", axis, "--memory", "sram"]) == 0
    step = "next: odc-compile MODEL --target npu-256 --memory sram --prefer memory\n"
    assert capsys.readouterr().out.endswith(step) == told


@pytest.mark.slow
def test_axes_may_be_given_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    axes = ["--vary", "array.macs_per_cycle=128,256", "--vary", "offchip.bytes_per_cycle=1,2"]
    assert main([str(MODEL), *axes, "--objective", "cycles_total"]) == 0
    printed = capsys.readouterr()
    assert "4 points" in printed.out + printed.err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real machines in real processes: the best one's description compiles to what the study says."""
    names = ("page.html", "study.json", "points.csv", "best.toml", "study.sqlite")
    page, document, table, best, storage = (str(tmp_path / name) for name in names)
    options = ["--jobs", "2", "--storage", storage, "-o", page, "--json", document, "--csv", table, "--best", best]
    axes = ["array.macs_per_cycle=128,256,300", "memory=sram"]
    for _ in range(2):  # the second time all is known, and our own files are replaced
        assert main([str(MODEL), "--vary", *axes, "--objective", "cycles_total", *options]) == 0
    out = capsys.readouterr()
    assert "3 points, 2 usable, 1 best" in out.out
    found = json.loads(Path(document).read_text())
    chosen = next(entry for entry in found["points"] if entry["best"])
    assert chosen["point"] == {"array.macs_per_cycle": 256, "memory": "sram"}
    assert "has no shape like" in found["points"][2]["failure"]
    report = str(tmp_path / "r.json")
    command = next(line.split()[1:] for line in out.out.splitlines() if line.startswith("next: odc-compile MODEL"))
    assert " ".join(command) in Path(best).read_text()
    assert "--memory" in command, "options of the best point are no part of its machine"
    assert compile_main([str(MODEL), *command[2:], "--json", report, "-q"]) == 0
    cycles = json.loads(Path(report).read_text())["cycles_total"]
    assert chosen["by_model"][str(MODEL)]["cycles_total"] == cycles
    text = Path(page).read_text()
    assert "array.macs_per_cycle" in text
    assert "has no shape like" in text[text.rindex("<table") :]  # all points are in the last table
    Path(table).write_text("mine")
    assert main([str(MODEL), "--vary", *axes, "--csv", table, "-q"]) == 1


@pytest.mark.slow
def test_a_cluster_with_a_worker_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers of a Dask cluster, one of which dies: the table is the same."""
    from distributed import LocalCluster

    monkeypatch.setenv(KILLED, str(tmp_path / "killed"))
    monkeypatch.setattr(study, "evaluate", deadly)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "test"))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:  # type: ignore[no-untyped-call]
        found = run(_definition(), scheduler=cluster.scheduler_address)
    assert (tmp_path / "killed").exists()
    assert [trial.outcome for trial in found] == [formula(Task(trial.point, (str(MODEL),), "", {})) for trial in found]
    assert len(found) == 9


def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "_CONNECT_SECONDS", 0.3)
    with pytest.raises(OptionError, match="no Dask scheduler answers"):
        run(_definition(), scheduler="tcp://127.0.0.1:9")
