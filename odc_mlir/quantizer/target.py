"""Target queries: the layers that a target runs, the modelled time, and the costs of precisions.

The answers come from the passes that partition a model during compilation. Quantiser and partitioner thus agree.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp

from odc_mlir import compiler, pipelines, targets
from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Trait
from odc_mlir.ops.work import host_ns
from odc_mlir.quantizer.models import graph_of
from odc_mlir.quantizer.outputs import CASTS
from odc_mlir.quantizer.policy.schemes import SCHEMES
from odc_mlir.runtime.execution.work import Work, graph_work
from odc_mlir.runtime.package import Package
from odc_mlir.support.locations import op_name
from odc_mlir.targets import ELEMENT_TYPES, MemoryMode
from odc_mlir.transforms.common.placement import NPU, PARTITION, main_function, operators, placed, reason_of
from odc_mlir.transforms.partition.odc_set_target import OdcSetTargetPass
from odc_mlir.transforms.partition.plans.costs import npu_works, segment_cycles
from odc_mlir.transforms.partition.plans.plans import OperatorCost
from odc_mlir.universe import make_context

LOG = logging.getLogger(__name__)

_MOST_COMPILED_MACS = 1 << 30  # limit for models that are compiled for their time, which takes about 10 s


@dataclass(frozen=True, slots=True)
class Time:
    """Latency of an inference: from a package if ``modelled``, otherwise the estimate of a plan."""

    ns: float
    modelled: bool


@dataclass(frozen=True, slots=True)
class PlacedOperator:
    """Operator that computes, with placement."""

    op: str
    reason: str  # why the target does not run it, or ""
    macs: int
    ns: float = 0.0  # modelled time of the operator alone; 0 if not determined
    name: str = ""


@dataclass(slots=True)
class Placement:
    """All operators of the main function except conversions, in order. ``time_ns``: set if a plan was made."""

    layers: list[PlacedOperator] = field(default_factory=list)
    time_ns: float | None = None

    def taken(self) -> list[bool]:
        """Return which operators the target runs."""
        return [not layer.reason for layer in self.layers]

    def on_host(self) -> list[dict[str, str]]:
        """Return the operators that the target does not run, with reasons."""
        return [{"op": layer.op, "name": layer.name, "reason": layer.reason} for layer in self.layers if layer.reason]

    def share(self, among: Sequence[bool] | None = None) -> float | None:
        """Return the share of multiplications (of operators, if there are none) in ``among`` that the target runs."""
        chosen = [
            layer for layer, counts in zip(self.layers, among or [True] * len(self.layers), strict=True) if counts
        ]
        weigh = (lambda layer: layer.macs) if any(layer.macs for layer in chosen) else (lambda layer: 1)
        total = sum(map(weigh, chosen))
        return sum(weigh(layer) for layer in chosen if not layer.reason) / total if total else None


class TargetRules:
    """Rules and costs of the target ``name``, a shipped target or a .toml file. Raises TargetError for other names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._target = targets.load(name)
        self._memory: MemoryMode = "sram" if OdcSetTargetPass(target=name).memory == "sram" else "flash"
        self._context = make_context()  # shared, because it caches tilings and most layers stay the same
        self._judged: WeakKeyDictionary[ModuleOp, dict[bool, Placement]] = WeakKeyDictionary()  # by plan
        self._timed: WeakKeyDictionary[ModuleOp, Time] = WeakKeyDictionary()  # of models to compile

    def takes(self, scheme: str) -> bool:
        """Return whether the target computes with values of ``scheme``."""
        return SCHEMES[scheme].activations in ELEMENT_TYPES

    def judge(self, module: ModuleOp, *, plan: bool = False) -> Placement:
        """Return the cached placement of ``module``. ``plan``: place only worthwhile layers, and determine the time."""
        known = self._judged.setdefault(module, {})
        if plan not in known:
            known |= self._judgements(module, plan)
        return known[plan]

    def time(self, module: ModuleOp, *, compiled: bool = False) -> Time:
        """Return the time of the package if ``module`` has been compiled or is to be ``compiled``, else an estimate."""
        if module not in self._timed:
            plan = self.judge(module, plan=True)
            assert plan.time_ns is not None
            estimate = Time(plan.time_ns, modelled=False)
            if not compiled:
                return estimate
            is_large = sum(layer.macs for layer in plan.layers) > _MOST_COMPILED_MACS
            self._timed[module] = (None if is_large else self._packaged(module)) or estimate
        return self._timed[module]

    def host_ns(self, module: ModuleOp) -> float:
        """Return the modelled time of ``module`` on the target's host alone."""
        return sum(work.host_ns for work in self._host_works(module).values())

    def is_timed(self, module: ModuleOp) -> bool:
        """Return whether the time of ``module`` is final."""
        return module in self._timed

    def _packaged(self, module: ModuleOp) -> Time | None:
        try:
            package = Package(compiler.compile(module, target=self.name))
            return Time(package.modelled.latency_ns, modelled=True)
        except OdcError:
            LOG.info("the model cannot be compiled", exc_info=True)
            return None

    def _judgements(self, module: ModuleOp, plan: bool) -> dict[bool, Placement]:
        scratch = module.clone()
        self._run(scratch, pipelines.PLACE)
        found = {False: Placement(self._layers(scratch))}
        if plan:
            self._run(scratch, pipelines.PLAN)
            found[True] = Placement(self._layers(scratch), self._time_ns(scratch))
        return found

    def _layers(self, module: ModuleOp) -> list[PlacedOperator]:
        works = self._host_works(module)
        return [_placed(op, work) for op, work in works.items() if op.SPEC.name not in CASTS]

    def _host_works(self, module: ModuleOp) -> dict[CircleOp, Work]:
        """Return the work of each operator on the host, for all iterations of loops."""
        found, rates = list(operators(main_function(module))), self._target.host
        works: dict[str, Work] = {}
        if any(Trait.CONTROL_FLOW in op.SPEC.traits for op in found):
            graph = graph_of(module)
            every = zip(graph.nodes, graph_work(graph, rates).works, strict=True)
            works = {graph.tensors[item.outputs[0]].name: work for item, work in every if item.calls and item.outputs}
        return {op: works.get(op_name(op)) or Work((node := node_of(op)).macs, host_ns(node, rates)) for op in found}

    def _run(self, module: ModuleOp, names: Sequence[str]) -> None:
        options = {"odc-set-target": {"target": self.name}}
        passes = (("partition", pipelines.find_pass(name)(**options.get(name, {}))) for name in names)
        pipelines.run_passes(self._context, module, passes, verify=False)

    def priced(self, module: ModuleOp) -> Placement:
        """Return the layers of ``module`` that the target runs, and the time of each operator alone."""
        scratch, layers = module.clone(), []
        self._run(scratch, pipelines.PLACE)
        works = npu_works(self._context, scratch, self._target, self._memory, alone=True)
        for (op, on_host), work in zip(self._host_works(scratch).items(), works, strict=True):
            if op.SPEC.name in CASTS:
                continue
            layer = _placed(op, on_host)
            if isinstance(work, OperatorCost):
                cycles = segment_cycles(self._target, self._memory)([work])
                layers.append(replace(layer, ns=1e9 * cycles / self._target.clock_hz))
            else:
                reason = layer.reason or (work if isinstance(work, str) else "no lowering")
                layers.append(replace(layer, reason=reason, ns=on_host.host_ns))
        return Placement(layers)

    def conversion_ns(self, elements: int) -> tuple[float, float]:
        """Return the modelled time to requantise a tensor on the target, and to pass it between target and host."""
        passes = elements / self._target.vector.requant_lanes * 1e9 / self._target.clock_hz
        return passes, self._target.host.switch_ns + self._target.host.transfer_ns(1, elements)

    def _time_ns(self, module: ModuleOp) -> float:
        record = module.attributes.get(PARTITION)
        chosen = record.data.get("chosen") if isinstance(record, DictionaryAttr) else None
        estimate = chosen.data.get("estimate_ns") if isinstance(chosen, DictionaryAttr) else None
        if isinstance(estimate, IntegerAttr):
            return float(estimate.value.data)
        return self.host_ns(module)


def _placed(op: CircleOp, work: Work) -> PlacedOperator:
    reason = "" if placed(op) == NPU else reason_of(op) or "host"
    return PlacedOperator(op.SPEC.name, reason, work.macs, name=op_name(op))
