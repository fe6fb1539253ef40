"""Partitioning in a compile report: compared plans, traffic across segments, and operators on the host by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from odc_mlir import targets
from odc_mlir.errors import shortened
from odc_mlir.formats import source_lines
from odc_mlir.formats.host_reasons import MemoryReason, TypeReason
from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.formats.quantities import count_text, counted, listed, share_text, size_text, time_text
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.work import tensor_bytes
from odc_mlir.runtime.execution.work import Measured, graph_work
from odc_mlir.runtime.reporting.clocks import Modelled, ModelledTime, host_of

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package


def placements(package: Package, plan: Plan, work: Measured, target: str | None) -> list[dict[str, Any]]:
    """Return a record for each operator of the model, in order. ``placed`` is ``target`` or the host."""
    lines = source_lines.decode(package.graph.metadata.get(source_lines.NAME))
    segments = {index: step.name for step in plan.segments for index in step.operators}
    return [
        {
            "operator": index,
            "name": node.name,
            "op": node.spec.name,
            "placed": target if index in segments else "host",
            "reason": None if index in segments else plan.host_reasons.get(index, "not compiled"),
            "segment": segments.get(index),
            "macs": own.macs,
            **({} if (line := source_lines.line_of(lines, node.name)) is None else {"source": line}),
        }
        for index, (node, own) in enumerate(zip(work.nodes, work.works, strict=True))
    ]


def partition_report(plan: Plan, work: Measured, clock: Modelled) -> dict[str, Any]:
    """Return the chosen plan, the next best plan, all candidates, ``difference_ns`` of the first two, and segments.

    A segment has operators, work, tensors on the boundary, modelled parts, and the partitioner's ``estimate``.
    """
    record = plan.partition
    plans = [entry for entry in _listed(record, "plans") if _is_plan(entry)]
    chosen, runner_up = (entry if _is_plan(entry := record.get(key)) else None for key in ("chosen", "runner_up"))
    difference = None
    if chosen and runner_up:
        difference = runner_up["estimate_ns"] - chosen["estimate_ns"]
    estimates = [entry for entry in _listed(record, "segments") if isinstance(entry, dict)]
    if len(estimates) != len(plan.segments):  # a plan from another compiler
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
    """Return whether a partition record has our form. Other records are left out of the report."""
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
    """Yield one line for the plan and one for the next best plan, for terminals."""
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
    """Format ``everything on the host, estimated 0.0521 ms``."""
    where = _PLAN_TEXTS[plan["name"]].format(**plan)
    parts = f", {counted(plan['segments'], 'segment')}" if plan["segments"] else ""
    return f"{where}{parts}, estimated {time_text(plan['estimate_ns'])}"


_KINDS_SHOWN = 6
_LINES_SHOWN = 3
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE", "CAST")  # have real numbers in every model


class HostGroup(NamedTuple):
    """Operators on the host for one ``cause``. ``remedy`` is empty if unknown."""

    cause: str
    remedy: str
    operators: Mapping[str, int]
    macs: int
    lines: Sequence[str] = ()
    host_ns: float = 0.0  # modelled, or 0 if unknown

    def line(self, total_macs: int) -> str:
        """Format the group in a line."""
        kinds = [f"{count} x {kind}" for kind, count in Counter(self.operators).most_common(_KINDS_SHOWN)]
        more = len(self.operators) - len(kinds)
        listed = ", ".join(kinds) + (f" and {counted(more, 'more kind')}" if more else "")
        where = f" at {', '.join(self.lines[:_LINES_SHOWN])}" if self.lines else ""
        where += f" and {counted(len(self.lines) - _LINES_SHOWN, 'more line')}" if self.lines[_LINES_SHOWN:] else ""
        facts = [f"{share_text(self.macs / total_macs)} of the MACs"] if self.macs and total_macs else []
        facts += [time_text(self.host_ns)] if self.host_ns else []
        told = f" ({', '.join(facts)})" if facts else ""
        return shortened(f"{listed}{told}{where}: {self.cause}" + (f"; {self.remedy}" if self.remedy else ""))


def host_groups(layers: Iterable[Mapping[str, Any]], target: str | None, *, quantized: bool) -> list[HostGroup]:
    """Group ``layers`` on the host by cause, sorted by multiply-accumulates, then time and number of operators.

    ``quantized``: the model was quantised in the same call, so real tensors are intentional
    """
    layers = list(layers)
    # In a float model, the NPU may run operators on integers or truths, but no products.
    needed = 1 if any(layer["macs"] for layer in layers) else 0
    has_integers = any(layer["placed"] == "npu" and layer["macs"] >= needed for layer in layers)
    of_reals = _SEE_VERDICT if quantized else _REST if has_integers else _QUANTISE
    causes: dict[Any, tuple[str, str]] = {}
    members: dict[Any, list[Mapping[str, Any]]] = {}
    needs: dict[Any, int] = {}
    for layer in layers:
        if layer["placed"] != "npu":
            key, need = _key(layer["op"], reason := layer["reason"])
            if key not in causes or need > needs[key]:
                needs[key], causes[key] = need, _explained(key, reason, target, of_reals, need)
            members.setdefault(key, []).append(layer)
    groups = [_group(causes[key], members[key]) for key in causes]
    return sorted(groups, key=lambda group: (-group.macs, -group.host_ns, -sum(group.operators.values())))


def _group(cause: tuple[str, str], layers: Sequence[Mapping[str, Any]]) -> HostGroup:
    macs, host_ns = (sum(layer.get(key, 0) for layer in layers) for key in ("macs", "host_modelled_ns"))
    sources = dict.fromkeys(layer.get("source") for layer in layers)
    return HostGroup(*cause, Counter(layer["op"] for layer in layers), macs, [*filter(None, sources)], host_ns)


def _key(op: str, reason: str) -> tuple[tuple[str, ...], int]:
    if (found := TypeReason.parse(reason)) and op not in _CONVERSIONS:
        dtype = DTYPES.get(found.dtype)
        return ("type", "real" if dtype is not None and dtype.kind == "float" else found.dtype), 0
    if memory := MemoryReason.parse(reason):
        if memory.edge is None:
            return ("memory", str(memory.allowed_bytes)), memory.needed_bytes
        name, _, way = memory.edge
        return ("whole", str(memory.allowed_bytes), name, way), memory.needed_bytes
    # The text before the colon is the violated rule, the rest depends on the operator.
    return ("rule", op, reason.partition(":")[0]), 0


def _explained(key: tuple[str, ...], reason: str, target: str | None, of_reals: str, need: int) -> tuple[str, str]:
    if key[0] in ("memory", "whole"):
        detail = f"with inputs and outputs it needs {size_text(need)}, {count_text(int(key[1]))} are allowed"
        if key[0] == "memory":
            return f"SRAM is too small: {detail}", _MORE_SRAM
        name, way = key[2:]
        return f"SRAM is too small for {name}, which {way} the NPU as a whole: {detail}", _SMALLER[way]
    if key[0] != "type":
        return reason, ""
    takes = listed(targets.ELEMENT_TYPES)
    named = f"{target} takes {takes}" if target is not None else "the target does not take this type"
    if key[1] == "real":
        example = reason.rpartition(" ")[2]
        return f"they compute {example}, but {named}", of_reals
    return f"they compute {key[1]}, which no target runs ({', '.join(targets.names())} take {takes})", (
        "quantise the float model to int8 or uint8" if of_reals == _QUANTISE else ""
    )


_MORE_SRAM = (
    "raise --sram-limit, leave out --allow-host (results may then stay in the tile buffer), or use a target with more"
)
_SMALLER = {
    "enters": "give the model a smaller one, or allow more SRAM (--sram-limit, a target with more)",
    "leaves": "let the model end in something smaller, which the NPU computes row by row (ARG_MAX instead of the "
    "scores of all classes), or allow more SRAM (--sram-limit, a target with more)",
}
_QUANTISE = "quantise the model: --quantize int8 --calibration DATA.npz"
_SEE_VERDICT = "the quantiser kept them real, see its verdict"
_REST = (
    "the rest is quantised: odc-quantize says why layers stay float, often for LiteRT: then write .circle, not .tflite"
)


def host_warning(package: Package) -> str | None:
    """Return a line with the cause if more than half of the multiply-accumulates stay on the host, else None.

    Needs no simulation.
    """
    plan = package.plan
    if plan is None:
        return None
    work = graph_work(package.graph, host_of(plan))
    layers = placements(package, plan, work, "npu")
    total = sum(own.macs for own in work.works)
    groups = host_groups(layers, plan.target, quantized=package.verdict is not None)
    stay = sum(group.macs for group in groups)
    if 2 * stay <= total:
        return None
    return f"{package.name}: {share_text(stay / total)} of the MACs stay on the host: {groups[0].line(0)}"
