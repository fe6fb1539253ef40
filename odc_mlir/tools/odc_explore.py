"""``odc-explore``: compile the same models for many machines and options, and show the best trade-offs."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import OptionError
from odc_mlir.formats.kinds import OWN_MARK, PAGE, OutputKind, json_kind, starts_with
from odc_mlir.formats.quantities import counted
from odc_mlir.tools.common import UsageError, base_parser, tool
from odc_mlir.tools.files import add_input, add_json, add_output, add_overwrite

if TYPE_CHECKING:
    from odc_mlir.explore.study import Definition, Trial

TABLE = starts_with("a table of explored points", b"odc-explore,")
DOCUMENT = json_kind("a study's results", "study", "points")
_OPTION_KEYS = frozenset({"memory", "prefer", "sram_limit", "quantize", "calibration", "min_macs", "min_operators"})
_BEST_SHOWN = 10


def _is_study(path: Path) -> bool:
    """Return whether the file is an Optuna database, which new trials extend and never replace."""
    import sqlite3

    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return {"studies", "trials", "trial_params"} <= names


STUDY = OutputKind("a study", _is_study)
_MACHINE_HEAD = f"# {OWN_MARK}: the best machine of a study\n"
MACHINE = starts_with("a machine", _MACHINE_HEAD.encode())


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-explore``."""
    parser = base_parser(
        "odc-explore",
        "Compile models for many machines and with many options, and show which choices pay off.",
        epilog="VALUES: a list (128,256,512), or LOW:HIGH:N and LOW:HIGH:logN for N values with equal "
        "differences or ratios; numbers may end in K, M, G. KEY: a key of the target, such as "
        "array.macs_per_cycle, or memory, prefer, sram_limit, quantize.",
    )
    add_input(parser, "models", metavar="MODEL", nargs="*", help="models (default: the models of --study)")
    add_input(parser, "--study", metavar="FILE.toml", help="file with models, vary, objective, constraint, options …")
    parser.add_argument(
        "--vary", metavar="KEY=VALUES", nargs="+", action="extend", default=[], help="keys to vary, and their values"
    )
    add_input(
        parser, "--target", metavar="NAME|FILE.toml", stdin=False, help="base machine that --vary modifies (npu-256)"
    )
    parser.add_argument("--objective", metavar="MEASURE,…", help="measures to minimise (latency_ms,sram_peak_bytes)")
    parser.add_argument("--constraint", metavar="MEASURE<=LIMIT", action="append", default=[], help="limit; repeatable")
    parser.add_argument("--memory", choices=("flash", "sram"), help="memory for constants, unless varied")
    parser.add_argument("--sampler", choices=("grid", "random", "bayes"), help="method to choose points (grid)")
    parser.add_argument("--points", type=int, metavar="N", help="limit on the number of points")
    parser.add_argument("--seed", type=int, metavar="N", help="random seed (0)")
    parser.add_argument("--jobs", type=int, metavar="N", default=1, help="processes (%(default)s)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="run on the workers of a Dask cluster")
    add_output(parser, "--storage", metavar="FILE.sqlite", kind=STUDY, help="file that keeps trials, to resume a study")
    add_output(parser, "-o", "--output", metavar="FILE.html", kind=PAGE, help="write the results as a page")
    add_json(parser, DOCUMENT, "the results")
    add_output(parser, "--csv", metavar="FILE", kind=TABLE, help="write one line per point")
    add_output(parser, "--best", metavar="FILE.toml", kind=MACHINE, help="write the machine of the best point")
    add_overwrite(parser)
    return parser


def _body(arguments: argparse.Namespace) -> int | None:
    from odc_mlir.explore import study
    from odc_mlir.explore.space import OPTIONS

    settings = _settings(arguments)
    if not settings["models"] or not settings["vary"]:
        raise UsageError("give models and --vary, or a --study that has them")
    if arguments.jobs < 1 or (settings["points"] or 1) < 1:
        raise UsageError("--jobs and --points are at least 1")
    definition = _definition(settings)
    tell = None if arguments.quiet else _tell
    trials = study.run(
        definition, storage=arguments.storage, jobs=arguments.jobs, scheduler=arguments.scheduler, tell=tell
    )
    arguments.files.write("output", lambda: study.render(definition, trials))
    arguments.files.write_json("json", lambda: study.document(definition, trials))
    arguments.files.write("csv", lambda: study.to_csv(definition, trials))
    best = study.front(definition, trials)
    if arguments.best and best:
        _write_best(arguments, definition, best[0])
    arguments.files.tell(_summary(definition, trials, best))
    if best and (arguments.best or OPTIONS.keys() >= best[0].point.keys()):
        arguments.files.suggest(*compile_command(definition, best[0], arguments.best or definition.target))
    if not best:
        why = next((trial.outcome.failure for trial in trials if trial.outcome.failure), "the constraints allow none")
        raise OptionError(f"no point is feasible: {why}", hint="try other values, or relax the constraints")
    return None


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Merge the study file's settings with flags. Flags take precedence."""
    from odc_mlir.explore.space import read_study

    settings = read_study(arguments.study, _OPTION_KEYS) if arguments.study else {}
    given = {
        "models": arguments.models,
        "vary": arguments.vary,
        "objective": arguments.objective.split(",") if arguments.objective else [],
        "constraint": arguments.constraint,
        "target": arguments.target,
        "sampler": arguments.sampler,
        "points": arguments.points,
        "seed": arguments.seed,
    }
    defaults = {"objective": ["latency_ms", "sram_peak_bytes"], "target": "npu-256", "sampler": "grid", "seed": 0}
    merged = {key: value or settings.get(key) or defaults.get(key) or value for key, value in given.items()}
    options = dict(settings.get("options", {}))
    return merged | {"options": options | ({"memory": arguments.memory} if arguments.memory else {})}


def _definition(settings: dict[str, Any]) -> Definition:
    from odc_mlir.explore.space import parse_axis
    from odc_mlir.explore.study import Definition, parse_bound, parse_objectives

    return Definition(
        models=tuple(str(Path(name).absolute()) for name in settings["models"]),
        axes=tuple(map(parse_axis, settings["vary"])),
        objectives=parse_objectives([name.strip() for name in settings["objective"]]),
        target=settings["target"],
        bounds=tuple(map(parse_bound, settings["constraint"] or ())),
        sampler=settings["sampler"],
        count=settings["points"],
        seed=settings["seed"] or 0,
        options=settings["options"],
    )


def _tell(trial: Trial, done: int, wanted: int) -> None:
    from odc_mlir.explore.study import point_text

    what = trial.outcome.failure or f"{trial.outcome.value('cycles_total'):,.0f} cycles"
    print(f"odc-explore: {done} of {wanted}: {point_text(trial.point)}: {what}", file=sys.stderr)


def _write_best(arguments: argparse.Namespace, definition: Definition, best: Trial) -> None:
    from odc_mlir.explore.space import Machines

    text = Machines(definition.target).text(best.point, name=Path(arguments.best).stem)
    command = shlex.join(compile_command(definition, best, arguments.best))
    arguments.files.write("best", lambda: f"{_MACHINE_HEAD}# {command}\n{text}")


def compile_command(definition: Definition, trial: Trial, target: str) -> list[str]:
    """Return the command that repeats the compilation of a point: machine file and options."""
    from odc_mlir.explore.space import OPTIONS
    from odc_mlir.flow import option_words

    point = {key: value for key, value in trial.point.items() if key in OPTIONS}
    chosen = {"target": target, **definition.options, **point}
    words = [word for key, value in chosen.items() for word in option_words(f"--{key.replace('_', '-')}", str(value))]
    return ["odc-compile", "MODEL", *words]


def _summary(definition: Definition, trials: Sequence[Trial], best: Sequence[Trial]) -> Iterator[str]:
    from odc_mlir.explore.study import MEASURES, point_text, usable

    yield f"{counted(len(trials), 'point')}, {len(usable(definition, trials))} usable, {len(best)} best"
    for trial in best[:_BEST_SHOWN]:
        values = ", ".join(f"{MEASURES[name]} {trial.outcome.value(name):,.6g}" for name in definition.objectives)
        yield f"  {point_text(trial.point)}: {values}"
    if len(best) > _BEST_SHOWN:
        yield f"  and {len(best) - _BEST_SHOWN} more"


main = tool(build_parser, _body)
