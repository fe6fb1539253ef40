"""``npu-choose-segments``: choose the placement with the shortest modelled time.

Before: every operator that the target supports is placed on the NPU (``npu-mark-supported``)::

    %1 = circle.relu %0 {odc.placed = "npu"} : …

After: operators that would take longer on the NPU, transfers included, are on the host with the reason. The module
records the estimated times of the chosen plan and of all other plans in nanoseconds::

    builtin.module attributes {odc.partition = {chosen = {name = "search", estimate_ns = 51200 : i64, …}, …}} {
      %1 = circle.relu %0 {odc.placed = "host", odc.reason = "cost: on the NPU an inference would take 0.003 ms longer"}

Operators also go to the host if no tiling fits the local memories. Groups stay together, and operators with ``odc.place
= "npu"`` stay on the NPU. The preference ``memory`` of the target selects the plan with the fewest bytes among the
nearly fastest plans. The preference ``compile-time`` compares only two plans: all supported operators on the NPU, and
no operators. The options of this pass become part of ``odc.target``, because the compiler runs the pass again if a
segment does not compile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass

from odc_mlir import targets
from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp, info_of, is_known, node_of
from odc_mlir.dialects.odc import LEAST, TARGET, WORDS, TargetAttr, TargetChoice, state_places, target_of
from odc_mlir.errors import CompileError, OptionError
from odc_mlir.ops.work import host_ns, tensor_bytes
from odc_mlir.support.deadline import checkpoint
from odc_mlir.targets import MemoryMode
from odc_mlir.targets.costs import HostCosts
from odc_mlir.transforms.common import placement
from odc_mlir.transforms.common.defects import Defect, record_defect
from odc_mlir.transforms.partition.npu_form_segments import dependencies
from odc_mlir.transforms.partition.plans.costs import npu_works, segment_cycles
from odc_mlir.transforms.partition.plans.plans import (
    Bounds,
    Item,
    OperatorCost,
    PlacementChoice,
    PlacementProblem,
    SegmentEstimate,
    choose,
)


@dataclass(frozen=True)
class NpuChooseSegmentsPass(ModulePass):
    """Choose segments by cost."""

    name = "npu-choose-segments"

    strategy: str = "cost"
    """``cost``: the plan with the least estimated time. ``supported``: everything that the NPU supports."""

    min_operators: int = 1
    """Least number of compute operators (not counting views) in a segment. Smaller segments stay on the host."""

    min_macs: int = 0
    """Least number of multiply-accumulates in a segment. Smaller segments stay on the host."""

    max_segments: int | None = None
    """Maximum number of segments. Segments with the smallest gain stay on the host. Default: no limit."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        choice = target_of(op)
        if choice is None:
            raise CompileError("no target is chosen", hint="run odc-set-target first")
        bounds = self.bounds()
        op.attributes[TARGET] = TargetAttr(replace(choice, **asdict(self)))
        found = list(placement.operators(placement.main_function(op)))
        if not any(placement.placed(item) == placement.NPU for item in found):
            op.attributes.pop(placement.PARTITION, None)
            return
        problem = self.problem(ctx, op, found, choice)
        checkpoint(ctx)
        result = choose(problem, bounds, choice.prefer, lambda: checkpoint(ctx), strategy=self.strategy)
        apply_choice(op, found, result)

    def bounds(self) -> Bounds:
        """Return the options as bounds. Raises OptionError for an invalid option."""
        if self.strategy not in WORDS["strategy"]:
            raise OptionError(f"strategy is {self.strategy!r}, allowed: {', '.join(WORDS['strategy'])}")
        for field in ("min_operators", "min_macs", "max_segments"):
            value, least = getattr(self, field), LEAST[field]
            if value is not None and value < least:
                raise OptionError(f"{field.replace('_', '-')} is {value}, it must be at least {least}")
        return Bounds(self.min_operators, self.min_macs, self.max_segments)

    def problem(
        self, ctx: Context, module: ModuleOp, found: Sequence[CircleOp], choice: TargetChoice
    ) -> PlacementProblem:
        """Return the operator graph with its costs. Place operators that cannot be lowered on the host."""
        target = targets.load(choice.target)
        memory: MemoryMode = "flash" if choice.memory == "flash" else "sram"
        works = npu_works(ctx, module, target, memory)
        for item, work in zip(found, works, strict=True):
            if isinstance(work, str):
                placement.place_on_host(item, f"lowering: {work}")
            elif isinstance(work, Defect):
                record_defect(module, work)
                placement.place_on_host(item, f"lowering: {work.reason}")
        known = [work if isinstance(work, OperatorCost) else None for work in works]
        return problem_of(module, found, known, target.host, target.clock_hz, segment_cycles(target, memory))


def problem_of(
    module: ModuleOp,
    found: Sequence[CircleOp],
    works: Sequence[OperatorCost | None],
    host: HostCosts,
    clock_hz: int,
    segment_cycles: Callable[[Sequence[OperatorCost]], float],
    place: str = "the NPU",
) -> PlacementProblem:
    """Return the placement problem of ``module``. ``works``: cost of each operator on ``place``, or None."""
    tensors = _Tensors()
    items = [_item(op, work, tensors, host) for op, work in zip(found, works, strict=True)]
    block = placement.main_function(module).body.block
    last = () if block.last_op is None else block.last_op.operands
    states = [(tensors.number(block.args[i]), tensors.number(last[o])) for o, i, _ in state_places(module)]
    return PlacementProblem(
        items,
        dependencies(found),
        _units(found),
        tensors.sizes,
        frozenset(tensors.numbers(last)),
        host,
        clock_hz,
        segment_cycles,
        place,
        states,
    )


def apply_choice(module: ModuleOp, found: Sequence[CircleOp], result: PlacementChoice) -> None:
    """Place the operators that are not chosen on the host, with reasons, and record the plans on the module."""
    for index, reason in result.reasons.items():
        placement.place_on_host(found[index], reason)
    module.attributes[placement.PARTITION] = _record(result)


class _Tensors:
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._numbers: dict[SSAValue, int] = {}

    def numbers(self, values: Sequence[SSAValue]) -> tuple[int, ...]:
        """Return the numbers of the values that are not constants."""
        return tuple(
            self.number(v) for v in values if not isinstance(v.owner, ConstOp | NoneOp) and not is_known(v.owner)
        )

    def number(self, value: SSAValue) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self.sizes)
            self.sizes.append(tensor_bytes(info_of(value)))
        return self._numbers[value]


def _item(op: CircleOp, work: OperatorCost | None, tensors: _Tensors, host: HostCosts) -> Item:
    node = node_of(op)
    return Item(
        host_ns(node, host),
        work,
        tensors.numbers(op.operands),
        tensors.numbers(op.results),
        placement.is_view(op),
        placement.wanted_place(op) == placement.NPU,
        node.macs,
        tensors.numbers([op.operands[index] for index in node.mutated]),
    )


def _units(found: Sequence[CircleOp]) -> list[tuple[int, ...]]:
    """Return the sets of operators that are placed together, in program order: groups and single operators."""
    units: dict[object, list[int]] = {}
    for index, op in enumerate(found):
        group = op.attributes.get(placement.GROUP)
        units.setdefault(group if isinstance(group, IntegerAttr) else index, []).append(index)
    return [tuple(members) for members in units.values()]


def _record(result: PlacementChoice) -> DictionaryAttr:
    others = [plan for plan in (result.all_host, result.all_supported, result.runner_up) if plan is not None]
    distinct = {plan.on_npu: plan for plan in (*others, result.chosen)}
    return DictionaryAttr(
        {
            "chosen": _attribute(result.chosen.to_dict()),
            "runner_up": _attribute(result.runner_up.to_dict() if result.runner_up else {}),
            "plans": ArrayAttr([_attribute(plan.to_dict()) for plan in reversed(distinct.values())]),
            "segments": ArrayAttr([_attribute(_segment_record(segment)) for segment in result.chosen.segments]),
        }
    )


def _segment_record(segment: SegmentEstimate) -> dict[str, str | int]:
    return {
        "operators": len(segment.members),
        "npu_ns": round(segment.npu_ns),
        "transfer_ns": round(segment.transfer_ns),
        "switch_ns": round(segment.switch_ns),
        "input_bytes": segment.input_bytes,
        "output_bytes": segment.output_bytes,
    }


def _attribute(values: Mapping[str, str | int]) -> DictionaryAttr:
    entries: dict[str, Attribute] = {}
    for key, value in values.items():
        entries[key] = StringAttr(value) if isinstance(value, str) else IntegerAttr(value, i64)
    return DictionaryAttr(entries)
