"""Studies: selection of points, parallel evaluation, storage of trials by Optuna, and results.

Grid and random points are listed in advance. They do not depend on the number of processes, and need no Optuna if no
file stores them.
"""

from __future__ import annotations

import json
import math
import random
import signal
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from odc_mlir.errors import OdcError, OptionError, UnsupportedError, of_extra
from odc_mlir.explore.space import MOST_POINTS, OPTIONS, Machines, ParameterAxis, Point, points, size
from odc_mlir.formats.cache import path_digest
from odc_mlir.formats.quantities import bytes_of, count_text, csv_text
from odc_mlir.pages import charts
from odc_mlir.pages.markup import Column, Figure, Html, Section, TableCell, table
from odc_mlir.pages.markup import render as render_page

if TYPE_CHECKING:
    import optuna


MEASURES: Mapping[str, str] = {
    "cycles_total": "NPU cycles",
    "latency_ms": "latency, modelled, ms",
    "sram_peak_bytes": "peak SRAM, bytes",
    "offchip_read_bytes": "read off-chip, bytes",
    "program_bytes": "program, bytes",
    "binary_bytes": "binaries, bytes",
    "host_op_count": "operators on the host",
}
"""Measures that can be minimised, with their titles."""


_LEAST = 1e-9  # minimum of a latency, in milliseconds


@dataclass(frozen=True, slots=True)
class Task:
    """A point with model paths, TOML text of the ``machine``, and ``options`` of ``compile``."""

    point: Point
    models: tuple[str, ...]
    machine: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a point: values by model and measure, or the reason for a failure."""

    by_model: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    failure: str | None = None

    def value(self, measure: str) -> float:
        """Return the value over all models: geometric mean of latencies, sum of all other measures (may be 0)."""
        values = [found[measure] for found in self.by_model.values()]
        if len(values) == 1 or measure != "latency_ms":
            return sum(values)  # exact for one value
        return math.exp(sum(math.log(max(value, _LEAST)) for value in values) / len(values))


def evaluate(task: Task) -> Outcome:
    """Evaluate a point. An impossible machine or model is a failed outcome, never an exception."""
    from odc_mlir.runtime import api
    from odc_mlir.runtime.reporting.report import build_report

    chosen = {key: value for key, value in task.point.items() if key in OPTIONS}
    found: dict[str, Mapping[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="odc-explore-") as folder:
        target = Path(folder) / "machine.toml"
        target.write_text(task.machine)
        for name in task.models:
            try:
                package = api.compile(name, target=str(target), **{**task.options, **chosen})
                report = build_report(package, quick=True)
            except OdcError as error:
                return Outcome(failure=f"{Path(name).name}: {error.message}")
            found[name] = {key: float(report[key]) for key in MEASURES}
    return Outcome(found)


@dataclass(frozen=True, slots=True)
class Bound:
    """A constraint ``measure <= limit``."""

    measure: str
    limit: float

    def excess(self, outcome: Outcome) -> float:
        """Return the excess relative to the limit, which is 0 or less if the constraint holds."""
        return outcome.value(self.measure) / self.limit - 1 if self.limit else outcome.value(self.measure)


def parse_bound(text: str) -> Bound:
    """Parse a constraint ``MEASURE<=LIMIT``. Raises OptionError."""
    name, sign, limit = text.partition("<=")
    if not sign or name.strip() not in MEASURES:
        raise OptionError(f"{text!r} is not a constraint", hint=f"write MEASURE<=LIMIT, of {', '.join(MEASURES)}")
    try:
        value = float(limit)
    except ValueError:
        value = bytes_of(limit.strip())
    if not 0 <= value < math.inf:
        raise OptionError(f"{limit.strip()!r} is not a limit", hint="write a number that is not negative")
    return Bound(name.strip(), value)


def parse_objectives(names: Sequence[str]) -> tuple[str, ...]:
    """Parse measures to minimise. Raises OptionError for an unknown measure."""
    for name in names:
        if name not in MEASURES:
            raise OptionError(f"{name!r} is not an objective", hint=f"use some of {', '.join(MEASURES)}")
    if not names or len(set(names)) < len(names):
        raise OptionError("objectives must be distinct measures")
    return tuple(names)


Sampler = Literal["grid", "random", "bayes"]

_DEFINITION, _OUTCOME, _FAILURE = "odc_definition", "odc_outcome", "odc_failure"
_MOST_DEATHS = 2  # limit on dead worker processes of one point; beyond it, the point counts as the cause
_CONNECT_SECONDS = 10.0
_WORST = 1e30  # value of a failed point for the sampler


@dataclass(frozen=True)
class Definition:
    """Identity of a study, and the number of points. ``options``: options of ``compile``."""

    models: tuple[str, ...]
    axes: tuple[ParameterAxis, ...]
    objectives: tuple[str, ...]
    target: str = "npu-256"
    bounds: tuple[Bound, ...] = ()
    sampler: Sampler = "grid"
    count: int | None = None
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def identity(self) -> str:
        """Return canonical text of all settings that outcomes depend on."""
        facts = {
            "models": [[name, path_digest(name)] for name in self.models],
            "axes": [[axis.key, list(axis.values)] for axis in self.axes],
            "objectives": self.objectives,
            "machine": Machines(self.target).text({}),
            "bounds": [[bound.measure, bound.limit] for bound in self.bounds],
            "options": dict(self.options),
            "sampler": [self.sampler, self.seed],
        }
        return json.dumps(facts, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Trial:
    """An evaluated point."""

    point: Point
    outcome: Outcome


Tell = Callable[[Trial, int, int], None]
_Asked = tuple[Any, Point]  # Optuna's trial, and its point


def run(
    definition: Definition,
    *,
    storage: str | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    tell: Tell | None = None,
) -> list[Trial]:
    """Evaluate the study's points and return all trials, in the order of proposal.

    ``storage``: a SQLite file that keeps trials. ``scheduler``: address of a Dask scheduler with workers that replace
        the ``jobs`` processes. ``tell`` receives every new trial, the count so far and the total. Raises OdcError.
    """
    machines = Machines(definition.target)
    machines.check(definition.axes)
    study = None if storage is None and definition.sampler != "bayes" else _open(definition, storage)
    runner = _StudyRunner(definition, machines, study, _wanted(definition), tell)
    with _workers(jobs, scheduler) as make:
        runner.run(make, jobs if scheduler is None else 4 * jobs)
    return runner.trials()


def _wanted(definition: Definition) -> int:
    whole = size(definition.axes)
    if definition.sampler == "grid" and whole > MOST_POINTS:
        raise OptionError(f"the grid has {whole} points", hint="use --sampler random or bayes, with --points")
    if definition.sampler != "grid" and definition.count is None:
        raise OptionError(f"the {definition.sampler} sampler needs a number of points", hint="use --points")
    return whole if definition.count is None else min(definition.count, whole)


def _open(definition: Definition, storage: str | None) -> optuna.Study:
    with of_extra("explore", UnsupportedError, "--storage and --sampler bayes need Optuna"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = _sampler(definition)
    identity = definition.identity()
    try:
        study = optuna.create_study(
            storage=None if storage is None else f"sqlite:///{Path(storage).absolute()}",
            study_name="odc-explore",
            load_if_exists=True,
            directions=["minimize"] * len(definition.objectives),
            sampler=sampler,
        )
        known = study.user_attrs.get(_DEFINITION)
    except Exception as error:  # any exception of the database's libraries for a file of another program
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise OptionError(f"{storage} cannot store the study: {reason}", hint="name a new file") from error
    if known is None:
        study.set_user_attr(_DEFINITION, identity)
    elif known != identity:
        raise OptionError(f"{storage} belongs to another study", hint="name a new file, or resume that study")
    return study


def _sampler(definition: Definition) -> Any:
    import optuna

    if definition.sampler != "bayes":
        return optuna.samplers.RandomSampler(seed=definition.seed)

    def excesses(trial: optuna.trial.FrozenTrial) -> Sequence[float]:
        outcome = _outcome(trial)
        return [1.0 if outcome.failure else bound.excess(outcome) for bound in definition.bounds]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's warnings about experimental features
        constraints = excesses if definition.bounds else None
        return optuna.samplers.TPESampler(seed=definition.seed, multivariate=True, constraints_func=constraints)


class _StudyRunner:
    """Scheduler that hands points to workers and outcomes to the study."""

    def __init__(
        self, definition: Definition, machines: Machines, study: optuna.Study | None, wanted: int, tell: Tell | None
    ) -> None:
        self.definition, self.machines, self.study, self.wanted, self.tell = definition, machines, study, wanted, tell
        self._listed = self._list()
        self._done = {_key(trial.point): trial for trial in self._stored()}
        self._count = len(self._done)
        self._deaths: Counter[tuple[Any, ...]] = Counter()

    def _stored(self) -> list[Trial]:
        trials = [] if self.study is None else self.study.get_trials(deepcopy=False)
        finished = (trial for trial in trials if trial.state.is_finished() and _OUTCOME in trial.user_attrs)
        return [Trial(self._point(trial), _outcome(trial)) for trial in finished]

    def _list(self) -> Iterator[Point] | None:
        axes = self.definition.axes
        if self.definition.sampler == "bayes":
            return None
        if self.definition.sampler == "grid":
            return points(axes)
        chance = random.Random(self.definition.seed)
        indices = chance.sample(range(size(axes)), self.wanted)
        return (_numbered(axes, index) for index in indices)

    def _point(self, trial: Any) -> Point:
        return {axis.key: axis.values[trial.params[axis.key]] for axis in self.definition.axes}

    def _propose(self) -> Iterator[_Asked]:
        for point in self._listed or ():
            if self._count >= self.wanted:
                return
            if _key(point) not in self._done:
                self._count += 1
                yield self._ask(point), point
        while self._listed is None and self._count < self.wanted:
            self._count += 1
            trial = self._ask()
            yield trial, self._point(trial)

    def _ask(self, point: Point | None = None) -> optuna.Trial | None:
        """Return a new trial of the study at ``point``, or at a point of the sampler's choice."""
        if self.study is None:
            return None
        from optuna.distributions import BaseDistribution, IntDistribution

        axes = self.definition.axes
        spaces: dict[str, BaseDistribution] = {axis.key: IntDistribution(0, len(axis.values) - 1) for axis in axes}
        if point is not None:
            self.study.enqueue_trial({axis.key: axis.values.index(point[axis.key]) for axis in axes})
        return self.study.ask(spaces)

    def run(self, make: Callable[[], Executor], parallel: int) -> None:
        """Evaluate points, ``parallel`` at a time, until all are done."""
        proposals = self._propose()
        executor = make()
        running: dict[Future[Outcome], _Asked] = {}
        try:
            while True:
                while len(running) < parallel and (asked := next(proposals, None)) is not None:
                    known = self._done.get(_key(asked[1]))
                    task = known.outcome if known is not None else self._task(asked[1])
                    if isinstance(task, Outcome):
                        self._finish(*asked, task)
                    else:
                        running[executor.submit(evaluate, task)] = asked
                if not running:
                    break
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                broken = any(isinstance(future.exception(), BrokenProcessPool) for future in done)
                for future in done:
                    if not isinstance(future.exception(), BrokenProcessPool):
                        self._finish(*running.pop(future), _result(future))
                if broken:
                    executor.shutdown(wait=False)
                    executor = make()
                    running = dict(self._again(executor, running.values()))
        except BaseException:
            for future in running:
                future.cancel()
            executor.shutdown(wait=False)  # the creator of the executor ends its processes
            raise
        executor.shutdown()

    def _again(self, executor: Executor, lost: Iterable[_Asked]) -> Iterator[tuple[Future[Outcome], _Asked]]:
        """Repeat in a new pool the points that were running when a worker process died."""
        for trial, point in list(lost):
            key = _key(point)
            self._deaths[key] += 1
            task = self._task(point)
            if self._deaths[key] > _MOST_DEATHS or isinstance(task, Outcome):
                self._finish(trial, point, Outcome(failure="the process that compiled it died"))
            else:
                yield executor.submit(evaluate, task), (trial, point)

    def _task(self, point: Point) -> Task | Outcome:
        try:
            machine = self.machines.text(point)
        except OptionError as error:
            return Outcome(failure=error.message)
        return Task(point, self.definition.models, machine, self.definition.options)

    def _finish(self, trial: optuna.Trial | None, point: Point, outcome: Outcome) -> None:
        self._done[_key(point)] = Trial(point, outcome)
        if trial is not None and self.study is not None:
            trial.set_user_attr(_OUTCOME, {name: dict(values) for name, values in outcome.by_model.items()})
            trial.set_user_attr(_FAILURE, outcome.failure)
            failed = outcome.failure is not None
            self.study.tell(trial, [_WORST if failed else outcome.value(name) for name in self.definition.objectives])
        if self.tell is not None:
            self.tell(self._done[_key(point)], len(self._done), self.wanted)

    def trials(self) -> list[Trial]:
        """Return every point once: in the order of the list for listed points, else of the proposals."""
        if (listed := self._list()) is None:
            return list({_key(trial.point): trial for trial in self._stored()}.values())
        first = {key: self._done[key] for point in listed if (key := _key(point)) in self._done}
        return list((first if self.definition.sampler == "grid" else first | self._done).values())


class _Pool(ProcessPoolExecutor):
    """Worker processes that ignore SIGINT. A terminal sends it to all processes, and the parent ends the workers."""

    def submit(self, *arguments: Any, **keywords: Any) -> Future[Any]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # new processes inherit it
        try:
            return super().submit(*arguments, **keywords)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _result(future: Future[Outcome]) -> Outcome:
    error = future.exception()
    if error is None:
        return future.result()
    return Outcome(failure=f"{type(error).__name__}: {str(error) or 'unknown reason'}".splitlines()[0])


def _numbered(axes: Sequence[ParameterAxis], index: int) -> Point:
    point: Point = {}
    for axis in reversed(axes):
        index, place = divmod(index, len(axis.values))
        point[axis.key] = axis.values[place]
    return {axis.key: point[axis.key] for axis in axes}


def _key(point: Point) -> tuple[Any, ...]:
    return tuple(point.items())


def _outcome(trial: optuna.trial.FrozenTrial) -> Outcome:
    return Outcome(trial.user_attrs[_OUTCOME], trial.user_attrs.get(_FAILURE))


@contextmanager
def _workers(jobs: int, scheduler: str | None) -> Iterator[Callable[[], Executor]]:
    if scheduler is None:
        others = active_children()
        try:
            yield lambda: _Pool(jobs, mp_context=get_context("spawn"))
        except BaseException:
            for process in active_children():
                if process not in others:
                    process.kill()
            raise
        return
    with of_extra("explore", UnsupportedError, "a cluster needs Dask"):
        from distributed import Client
    try:
        client: Any = Client(scheduler, timeout=_CONNECT_SECONDS)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError) as error:
        raise OptionError(f"no Dask scheduler answers at {scheduler!r}: {error}") from None
    with client:
        yield lambda: client.get_executor(pure=False, retries=3)


def usable(definition: Definition, trials: Sequence[Trial]) -> list[Trial]:
    """Return trials that succeeded and meet all constraints."""
    return [
        trial
        for trial in trials
        if trial.outcome.failure is None and all(bound.excess(trial.outcome) <= 0 for bound in definition.bounds)
    ]


def front(definition: Definition, trials: Sequence[Trial]) -> list[Trial]:
    """Return the Pareto front of usable trials, sorted by the first objective."""
    named = [([t.outcome.value(name) for name in definition.objectives], t) for t in usable(definition, trials)]
    best = [
        (values, trial)
        for values, trial in named
        if not any(all(a <= b for a, b in zip(other, values, strict=True)) and other != values for other, _ in named)
    ]
    return [trial for _, trial in sorted(best, key=lambda item: item[0])]


def document(definition: Definition, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the study with all trials as JSON data."""
    best = [trial.point for trial in front(definition, trials)]
    return {
        "study": {
            "models": list(definition.models),
            "target": definition.target,
            "axes": {axis.key: list(axis.values) for axis in definition.axes},
            "objectives": list(definition.objectives),
            "constraints": [f"{bound.measure}<={bound.limit:g}" for bound in definition.bounds],
            "sampler": definition.sampler,
            "seed": definition.seed,
            "options": dict(definition.options),
        },
        "points": [
            {
                "point": trial.point,
                "failure": trial.outcome.failure,
                "by_model": {name: dict(values) for name, values in trial.outcome.by_model.items()},
                "best": trial.point in best,
            }
            for trial in trials
        ],
    }


def to_csv(definition: Definition, trials: Sequence[Trial]) -> str:
    """Return a line per point: axes, measures over all models, membership of the front, and failures."""
    best = [trial.point for trial in front(definition, trials)]
    keys = [axis.key for axis in definition.axes]
    rows: list[list[object]] = [["odc-explore", *keys, *MEASURES, "best", "failure"]]
    for index, trial in enumerate(trials):
        failed = trial.outcome.failure is not None
        values = ["" if failed else f"{trial.outcome.value(name):.10g}" for name in MEASURES]
        point = (trial.point[key] for key in keys)
        rows.append([index, *point, *values, int(trial.point in best), trial.outcome.failure])
    return csv_text(rows)


def point_text(point: Point) -> str:
    """Return the text of a point, such as ``array.macs_per_cycle 256, memory flash``."""
    return ", ".join(f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in point.items())


def render(definition: Definition, trials: Sequence[Trial]) -> str:
    """Return the page of a study."""
    best = front(definition, trials)
    first = definition.objectives[0]
    figures = [
        Figure("points tried", count_text(len(trials)), f"{count_text(len(usable(definition, trials)))} usable"),
        Figure("best points", count_text(len(best)), "no other is better in one objective and as good in the rest"),
    ]
    if best:
        value = best[0].outcome.value(first)
        figures.append(Figure(f"least {MEASURES[first]}", _number(value), point_text(best[0].point)))
    sections = [
        Section("Best points", _table(definition, best, "best points")),
        Section("Objectives against each other", _scatter(definition, trials, best)),
        Section("All points", _table(definition, trials, "all points")),
    ]
    names = ", ".join(name.rpartition("/")[2] for name in definition.models)
    return render_page(
        f"Exploration of {definition.target}", figures, sections, note=f"{names}; modelled, not measured"
    )


def _scatter(definition: Definition, trials: Sequence[Trial], best: Sequence[Trial]) -> Html:
    if len(definition.objectives) < 2:
        return Html("")
    x, y = definition.objectives[:2]
    places = [
        (point_text(t.point), t.outcome.value(x), t.outcome.value(y), t in best)
        for t in trials
        if t.outcome.failure is None
    ]
    return charts.scatter(places, (MEASURES[x], MEASURES[y]), title=f"{MEASURES[y]} over {MEASURES[x]}")


def _table(definition: Definition, trials: Sequence[Trial], caption: str) -> Html:
    columns = [
        *(Column(axis.key, number=all(isinstance(v, int) for v in axis.values)) for axis in definition.axes),
        *(Column(name, number=True) for name in MEASURES.values()),
        Column("failure"),
    ]
    rows = []
    for trial in trials:
        outcome = trial.outcome
        cells = [TableCell(f"{v:,}" if isinstance(v, int) else v, v) for v in trial.point.values()]
        if outcome.failure is None:
            cells += [TableCell(_number(v), v) for v in map(outcome.value, MEASURES)]
        else:
            cells += [TableCell(None)] * len(MEASURES)
        rows.append([*cells, outcome.failure or ""])
    return table(columns, rows, caption=caption)


def _number(value: float) -> str:
    return count_text(value) if value == round(value) else f"{value:,.4g}"
