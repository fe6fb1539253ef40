"""The part of a compile report that says why the plan is as it is: what was weighed, and what crosses its edges.

What plans were compared by are estimates, made before there was a program; once there is one, its modelled time stands
beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.formats.quantities import counted, time_text
from odc_mlir.ops.work import tensor_bytes
from odc_mlir.runtime.execution.work import Measured
from odc_mlir.runtime.reporting.clocks import Modelled, ModelledTime


def partition_report(plan: Plan, work: Measured, clock: Modelled) -> dict[str, Any]:
    """What was chosen, the next best, all that was named, the ``difference_ns`` between the first two, and segments.

    A segment's record has its operators, multiply-accumulates, the bytes of each tensor on its boundary, its modelled
    parts (None where it cannot run), and under ``estimate`` what the partitioner took them to be.
    """
    record = plan.partition
    plans = [entry for entry in _listed(record, "plans") if _is_plan(entry)]
    chosen, runner_up = (entry if _is_plan(entry := record.get(key)) else None for key in ("chosen", "runner_up"))
    difference = None
    if chosen and runner_up:
        difference = runner_up["estimate_ns"] - chosen["estimate_ns"]
    estimates = [entry for entry in _listed(record, "segments") if isinstance(entry, dict)]
    if len(estimates) != len(plan.segments):  # a plan of another maker
        estimates = [{}] * len(plan.segments)
    parts = {part.name: part for part in clock.parts if part.operator is None}
    return {
        "chosen": chosen,
        "runner_up": runner_up,
        "difference_ns": difference,
        "plans": plans,
        "segments": [
            _segment(step, parts.get(step.name), estimate, work)
            for step, estimate in zip(plan.segments, estimates, strict=True)
        ],
    }


def _listed(record: Mapping[str, Any], key: str) -> Sequence[Any]:
    found = record.get(key)
    return found if isinstance(found, list) else ()


def _is_plan(entry: Any) -> bool:
    """Whether a plan's file says something that we wrote; the rest of the report does not depend on it."""
    numbers = ("estimate_ns", "segments", "npu_operators")
    return (
        isinstance(entry, dict)
        and entry.get("name") in _PLAN_TEXTS
        and all(type(entry.get(number)) is int for number in numbers)
    )


_PARTS = ("npu_ns", "transfer_ns", "switch_ns")


def _segment(
    step: SegmentStep, part: ModelledTime | None, estimate: Mapping[str, Any], work: Measured
) -> dict[str, Any]:
    def boundary(tensors: Sequence[int]) -> list[dict[str, Any]]:
        infos = [work.tensors[index] for index in tensors]
        return [{"name": info.name, "bytes": tensor_bytes(info)} for info in infos]

    inputs, outputs = boundary(step.inputs), boundary(step.outputs)
    return {
        "name": step.name,
        "operators": list(step.operators),
        "macs": sum(work.works[index].macs for index in step.operators),
        "inputs": inputs,
        "outputs": outputs,
        "boundary_bytes": sum(item["bytes"] for item in (*inputs, *outputs)),
        **{key: None if part is None else round(getattr(part, key)) for key in _PARTS},
        "estimate": {key: estimate.get(key) for key in _PARTS},
    }


def plan_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The plan in a line, and the next best one in another, for terminals."""
    partition = report["partition"]
    chosen, runner_up = partition["chosen"], partition["runner_up"]
    if chosen is None:
        return
    yield f"plan: {plan_text(chosen)}"
    if runner_up is not None:
        difference = partition["difference_ns"]
        share = f", {100 * difference / chosen['estimate_ns']:+.1f} %" if chosen["estimate_ns"] else ""
        yield f"next best: {plan_text(runner_up)} ({'+' if difference >= 0 else ''}{time_text(difference)}{share})"


_PLAN_TEXTS = {
    "all-host": "everything on the host",
    "all-supported": "all that the NPU can run there",
    "search": "{npu_operators} operators on the NPU",
}


def plan_text(plan: Mapping[str, Any]) -> str:
    """``everything on the host, estimated 0.0521 ms``."""
    where = _PLAN_TEXTS[plan["name"]].format(**plan)
    parts = f", {counted(plan['segments'], 'segment')}" if plan["segments"] else ""
    return f"{where}{parts}, estimated {time_text(plan['estimate_ns'])}"
