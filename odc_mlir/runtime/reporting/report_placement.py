"""Why operators stay on the host, put together by cause, with what to do about each.

The reasons of a plan say for every operator which rule it breaks. Most plans have one cause that many operators share:
a model of real numbers, a type that no machine computes, memory that is too small.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from odc_mlir import targets
from odc_mlir.errors import OdcError, shortened
from odc_mlir.formats.plan import SegmentStep
from odc_mlir.formats.quantities import count_text, counted, listed, share_text, size_text
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.runtime.execution.work import graph_work
from odc_mlir.runtime.reporting.clocks import host_of

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package

_KINDS_SHOWN = 6
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")  # have to do with real numbers, whatever the rest of the model computes
_TYPE_REASON = re.compile(r"element-type: .* is (\w+)", re.DOTALL)
_WHOLE_REASON = re.compile(
    r"fits-sram: (\d+) bytes of (\d+); (.*) of \d+ bytes (enters|leaves) the NPU as a whole", re.DOTALL
)
_MEMORY_REASON = re.compile(r"fits-sram: (\d+) bytes of (\d+)(?:; .*)?")


class HostGroup(NamedTuple):
    """Operators that stay on the host for one ``cause``; ``remedy`` is empty where nothing is known that helps."""

    cause: str
    remedy: str
    operators: Mapping[str, int]
    macs: int

    def line(self, total_macs: int) -> str:
        """All of it in a line."""
        kinds = [f"{count} x {kind}" for kind, count in Counter(self.operators).most_common(_KINDS_SHOWN)]
        more = len(self.operators) - len(kinds)
        listed = ", ".join(kinds) + (f" and {counted(more, 'more kind')}" if more else "")
        share = f" ({share_text(self.macs / total_macs)} of the MACs)" if self.macs and total_macs else ""
        return shortened(f"{listed}{share}: {self.cause}" + (f"; {self.remedy}" if self.remedy else ""))


def host_groups(layers: Iterable[Mapping[str, Any]], target: str | None, *, quantized: bool) -> list[HostGroup]:
    """The groups of those ``layers`` (records with ``op``, ``placed``, ``reason``, ``macs``) that are on the host.

    Those with most multiply-accumulates first, then those with most operators. ``quantized``: the model was quantised
    just now, so that what is real in it was left so on purpose.
    """
    causes: dict[Any, tuple[str, str]] = {}
    kinds: dict[Any, Counter[str]] = {}
    macs: Counter[Any] = Counter()
    needs: dict[Any, int] = {}
    for layer in layers:
        if layer["placed"] == "npu":
            continue
        reason = layer["reason"]
        key, need = _key(layer["op"], reason)
        if key not in causes or need > needs[key]:
            needs[key], causes[key] = need, _explained(key, reason, target, quantized, need)
        kinds.setdefault(key, Counter())[layer["op"]] += 1
        macs[key] += layer["macs"]
    groups = [HostGroup(*causes[key], kinds[key], macs[key]) for key in causes]
    return sorted(groups, key=lambda group: (-group.macs, -sum(group.operators.values())))


def _key(op: str, reason: str) -> tuple[tuple[str, ...], int]:
    """What operators of one cause have in common, and the bytes that this one asks for."""
    if (found := _TYPE_REASON.fullmatch(reason)) and op not in _CONVERSIONS:
        dtype = DTYPES.get(found[1])
        return ("type", "real" if dtype is not None and dtype.kind == "float" else found[1]), 0
    if found := _WHOLE_REASON.fullmatch(reason):
        return ("whole", found[2], found[3], found[4]), int(found[1])
    if found := _MEMORY_REASON.fullmatch(reason):
        return ("memory", found[2]), int(found[1])
    # Reasons start with the rule that said no; the rest of the text differs from operator to operator.
    return ("rule", op, reason.partition(":")[0]), 0


def _explained(key: tuple[str, ...], reason: str, target: str | None, quantized: bool, need: int) -> tuple[str, str]:
    """Cause and remedy."""
    if key[0] in ("memory", "whole"):
        detail = f"with inputs and outputs {size_text(need)} are asked for, {count_text(int(key[1]))} are allowed"
        if key[0] == "memory":
            return f"SRAM is too small: {detail}", _MORE_SRAM
        name, way = key[2:]
        return f"SRAM is too small for {name}, which {way} the NPU as a whole: {detail}", _SMALLER[way]
    if key[0] != "type":
        return reason, ""
    takes = _types(target)
    named = f"{target or 'the target'} takes {listed(takes)}" if takes else "the target does not take that"
    if key[1] == "real":
        example = reason.rpartition(" ")[2]
        remedy = "quantising left them so, see its verdict" if quantized else _QUANTISE
        return f"they compute {example}, but {named}", remedy
    able = [name for name in targets.names() if key[1] in _types(name)]
    if able:
        return f"they compute {key[1]}, but {named}", f"{', '.join(able)} can run it"
    return f"they compute {key[1]}, which no target runs ({', '.join(targets.names())} take {listed(takes)})", (
        "quantise the float model to int8 or uint8"
    )


_MORE_SRAM = (
    "raise --sram-limit (without --allow-host the least one that everything runs with is named), "
    "or take a target with more"
)
_SMALLER = {
    "enters": "give the model a smaller one, or allow more SRAM (--sram-limit, a target with more)",
    "leaves": "let the model end in something smaller, which the NPU computes row by row (ARG_MAX instead of the "
    "scores of all classes), or allow more SRAM (--sram-limit, a target with more)",
}
_QUANTISE = "quantise the model: --quantize int8 --calibration DATA.npz"


def _types(target: str | None) -> Sequence[str]:
    try:
        return () if target is None else targets.load(target).element_types
    except OdcError:  # described by a file that is not here
        return targets.ELEMENT_TYPES


def host_warning(package: Package) -> str | None:
    """A line that says why, when more than half of the multiply-accumulates stay on the host; else None.

    Found without simulating anything.
    """
    plan = package.plan
    if plan is None:
        return None
    work = graph_work(package.graph, host_of(plan))
    on_npu = {index for step in plan.steps if isinstance(step, SegmentStep) for index in step.operators}
    layers = [
        {
            "op": node.spec.name,
            "placed": "npu" if index in on_npu else "host",
            "reason": plan.host_reasons.get(index, "not compiled"),
            "macs": own.macs,
        }
        for index, (node, own) in enumerate(zip(work.nodes, work.works, strict=True))
    ]
    total = sum(own.macs for own in work.works)
    groups = host_groups(layers, plan.target, quantized=package.verdict is not None)
    stay = sum(group.macs for group in groups)
    if 2 * stay <= total:
        return None
    return f"{package.name}: {share_text(stay / total)} of the MACs stay on the host: {groups[0].line(0)}"
