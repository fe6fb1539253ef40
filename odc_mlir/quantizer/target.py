"""What the machine that a model is quantised for says to it: which layers it runs, and how long an inference takes.

Both come from the passes that place operators when the model is compiled, so the quantiser and the partitioner cannot
differ. Times are modelled ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp

from odc_mlir import pipelines, targets, transforms
from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.ops.work import host_ns
from odc_mlir.quantizer.layers import CASTS
from odc_mlir.quantizer.policy.schemes import SCHEMES
from odc_mlir.targets import ELEMENT_TYPES
from odc_mlir.transforms.common.placement import NPU, PARTITION, main_function, operators, placed, reason_of
from odc_mlir.transforms.partition.odc_set_target import OdcSetTargetPass
from odc_mlir.universe import make_context

_STAGE = "partition"
_RULES = ("odc-fix-batch", "npu-mark-supported")
_PLAN = ("npu-form-groups", "npu-choose-segments")


@dataclass(frozen=True, slots=True)
class Placed:
    """One operator that computes something: why the target does not run it (empty: it does), and its products.

    ``host_ns``: modelled time of its host kernel.
    """

    op: str
    reason: str
    macs: int
    host_ns: float


@dataclass(slots=True)
class Placement:
    """All operators of the main function that are no conversions, in order; ``time_ns`` where a plan was made."""

    layers: list[Placed] = field(default_factory=list)
    time_ns: float | None = None

    def taken(self) -> list[bool]:
        """Which operators the target runs."""
        return [not layer.reason for layer in self.layers]

    def share(self, among: Sequence[bool] | None = None) -> float | None:
        """The part of the products (or operators, where there are none) ``among`` these that the target runs."""
        chosen = [
            layer for layer, counts in zip(self.layers, among or [True] * len(self.layers), strict=True) if counts
        ]
        weigh = (lambda layer: layer.macs) if any(layer.macs for layer in chosen) else (lambda layer: 1)
        total = sum(map(weigh, chosen))
        return sum(weigh(layer) for layer in chosen if not layer.reason) / total if total else None


class TargetRules:
    """The rules and costs of ``name``, a shipped target or a .toml file; raises TargetError."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._target = targets.load(name)
        self._choice = OdcSetTargetPass(target=name)

    def takes(self, scheme: str) -> bool:
        """Whether values of ``scheme`` are of a type that the target computes with."""
        return SCHEMES[scheme].activations in ELEMENT_TYPES

    def judge(self, module: ModuleOp, *, plan: bool = False) -> Placement:
        """What the target would run of the quantised ``module``; with a ``plan`` what is worth it, and the time."""
        context, scratch = make_context(), module.clone()
        names = (*_RULES, *(_PLAN if plan else ()))
        passes = [self._choice, *(transforms.load(name)() for name in names)]
        pipelines.run_passes(context, scratch, ((_STAGE, item) for item in passes))
        found = [op for op in operators(main_function(scratch)) if isinstance(op, CircleOp)]
        layers = [self._placed(op) for op in found if op.SPEC.name not in CASTS]
        return Placement(layers, self._time_ns(scratch, found) if plan else None)

    def _placed(self, op: CircleOp) -> Placed:
        node = node_of(op)
        reason = "" if placed(op) == NPU else reason_of(op) or "host"
        return Placed(op.SPEC.name, reason, node.macs, host_ns(node, self._target.host))

    def _time_ns(self, module: ModuleOp, found: Sequence[CircleOp]) -> float:
        """Modelled time of an inference by the plan chosen, or where nothing was placed by the host's kernels."""
        record = module.attributes.get(PARTITION)
        chosen = record.data.get("chosen") if isinstance(record, DictionaryAttr) else None
        estimate = chosen.data.get("estimate_ns") if isinstance(chosen, DictionaryAttr) else None
        if isinstance(estimate, IntegerAttr):
            return float(estimate.value.data)
        return sum(host_ns(node_of(op), self._target.host) for op in found)
