"""What ``odc-opt`` runs: the passes of a command line in order, each by itself or as part of a stage."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odc_mlir.tools.opt_watch import Timing, reproducer_pipeline

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass

    from odc_mlir.support.sources import Positions


@dataclass(frozen=True)
class Step:
    """A pass to run. ``stage``: the stage that it is run as a part of, if any."""

    item: ModulePass
    stage: str | None = None

    @property
    def label(self) -> str:
        """What the pass is listed under."""
        return self.stage or self.item.name

    @property
    def text(self) -> str:
        """What -p takes to run the pass."""
        from odc_mlir.pipelines import StageWithoutPasses

        return self.item.stage if isinstance(self.item, StageWithoutPasses) else str(self.item.spec())

    def run(self, context: Context, module: ModuleOp, timing: Timing, positions: Positions | None) -> None:
        """Run the pass, and where ``positions`` are given verify what it leaves; raises OdcError."""
        from odc_mlir.legality import check_stage
        from odc_mlir.pipelines import StageWithoutPasses, ends_stage
        from odc_mlir.support.diagnostics import typed_errors, verify_module

        alone = self.stage is None
        name = None if isinstance(self.item, StageWithoutPasses) else self.item.name
        with timing.part(self.label) as whole, typed_errors(self.stage, pass_name=name if alone else None):
            with whole.part("run" if alone else self.item.name), typed_errors(pass_name=name):
                self.item.apply(context, module)
            if positions is not None:
                with whole.part("verify" if alone else f"verify {self.item.name}"):
                    verify_module(module, positions)
                    if self.stage is not None and ends_stage(self.stage, self.item):
                        check_stage(module, self.stage)


def steps_of(arguments: argparse.Namespace) -> Iterator[Step]:
    """What to run in order; raises OdcError for names, options and reproducers that are none."""
    from odc_mlir import pipelines
    from odc_mlir.transforms.partition.odc_set_target import OdcSetTargetPass

    chosen = [] if arguments.npu is None else [OdcSetTargetPass(arguments.npu)]
    for kind, text in _words(arguments):
        if kind == "stage":
            yield from (Step(item, stage) for stage, item in pipelines.passes_until(text, options=chosen))
            continue
        if kind == "pass":
            name, given, options = text.partition("=")
            text = f"{name}{{{options}}}" if given else name
        for stage, spec in pipelines.expand_stages(text):
            if spec is None:
                yield Step(pipelines.StageWithoutPasses(stage or ""), stage)
                continue
            item = pipelines.build_pass(spec)
            yield Step(chosen[0] if chosen and item == OdcSetTargetPass() else item, stage)


def _words(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """What the command line wants to run, as (kind, text)."""
    if arguments.run_reproducer:
        from odc_mlir.errors import ModelError

        pipeline = reproducer_pipeline(Path(arguments.input).read_text())
        if pipeline is None:
            raise ModelError("this is not a reproducer: it does not start with its RUN line", location=arguments.input)
        yield "pipeline", pipeline
    yield from arguments.steps


def starts_with_stages(arguments: argparse.Namespace) -> bool:
    """Whether the first thing to run is all passes up to a stage."""
    return bool(arguments.steps) and arguments.steps[0][0] == "stage" and not arguments.run_reproducer


def silent_options(arguments: argparse.Namespace, steps: Sequence[Step]) -> Iterator[str]:
    """The options that name a pass to print IR around, of those that do not run."""
    running = {step.item.name for step in steps}
    for when in ("before", "after"):
        for name in getattr(arguments, f"print_ir_{when}"):
            if name not in running:
                yield f"--print-ir-{when}={name}"
