"""The part of a compile report that says why the plan is as it is: what was weighed, and what crosses its edges.

All times here are modelled: the estimates that the partitioner compared, in nanoseconds. Measured and simulated ones
stand elsewhere in the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.ops.work import size
from odc_mlir.runtime.shaping import ShapedGraph


def partition_report(plan: Plan, shaped: ShapedGraph, macs: Sequence[int]) -> dict[str, Any]:
    """What was chosen, the next best, all that was named, the ``difference_ns`` between the first two, and segments.

    A segment's record has its operators, multiply-accumulates, modelled parts, and the bytes of each tensor on its
    boundary.
    """
    record = plan.partition
    chosen, runner_up = record.get("chosen"), record.get("runner_up") or None
    difference = None
    if chosen and runner_up:
        difference = runner_up["modelled_ns"] - chosen["modelled_ns"]
    modelled: Sequence[Mapping[str, Any]] = record.get("segments", ())
    if len(modelled) != len(plan.segments):  # a plan of another maker
        modelled = [{}] * len(plan.segments)
    return {
        "chosen": chosen,
        "runner_up": runner_up,
        "difference_ns": difference,
        "plans": list(record.get("plans", ())),
        "segments": [_segment(step, parts, shaped, macs) for step, parts in zip(plan.segments, modelled, strict=True)],
    }


def host_costs(plan: Plan) -> Mapping[int, int]:
    """Modelled nanoseconds of every operator on the host, by operator; empty where the plan does not say."""
    return dict(enumerate(plan.partition.get("host_ns", ())))


def _segment(step: SegmentStep, parts: Mapping[str, Any], shaped: ShapedGraph, macs: Sequence[int]) -> dict[str, Any]:
    def boundary(tensors: Sequence[int]) -> list[dict[str, Any]]:
        infos = [shaped.tensors[index] for index in tensors]
        return [{"name": info.name, "bytes": size(info) * info.info.numpy.itemsize} for info in infos]

    inputs, outputs = boundary(step.inputs), boundary(step.outputs)
    return {
        "name": step.name,
        "operators": list(step.operators),
        "macs": sum(macs[index] for index in step.operators),
        "inputs": inputs,
        "outputs": outputs,
        "boundary_bytes": sum(item["bytes"] for item in (*inputs, *outputs)),
        **{key: parts.get(key) for key in ("npu_ns", "transfer_ns", "switch_ns")},
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
        share = f", {100 * difference / chosen['modelled_ns']:+.1f} %" if chosen["modelled_ns"] else ""
        yield f"next best: {plan_text(runner_up)} ({difference / 1000:+.1f} us{share})"


def plan_text(plan: Mapping[str, Any]) -> str:
    """``everything on the host, modelled 52.1 us``."""
    count = plan["segments"]
    where = {
        "all-host": "everything on the host",
        "all-supported": "all that the NPU can run there",
        "search": f"{plan['npu_operators']} operators on the NPU",
    }[plan["name"]]
    parts = "" if not count else f", {count} segment{'s' if count != 1 else ''}"
    return f"{where}{parts}, modelled {plan['modelled_ns'] / 1000:.1f} us"
