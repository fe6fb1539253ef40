"""Search for properties of a model that cost accuracy or speed, with remedies: ``odc_mlir.lint`` and ``odc-lint``.

The model is neither changed, run nor measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue

from odc_mlir import loading, ops, pipelines, targets
from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp, node_of, tensor_facts
from odc_mlir.formats.package import ModelSource
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.spec import Node, QuantKind, Trait
from odc_mlir.plugins.target import Chosen, Rules, choose, rules_reason
from odc_mlir.runtime.kernels.conditions import refusal
from odc_mlir.runtime.package import Package
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_fold_constants import CircleFoldConstantsPass
from odc_mlir.transforms.circle.circle_optimize import CircleOptimizePass
from odc_mlir.transforms.common.masks import HIDDEN, argument_of, is_beyond, sources
from odc_mlir.transforms.common.rewriting import WeightedLayer, constant, is_real, shape_of
from odc_mlir.transforms.common.tensor_names import outputs_of
from odc_mlir.transforms.partition.odc_fix_batch import OdcFixBatchPass, fix_batch
from odc_mlir.transforms.partition.rules.islands import islands
from odc_mlir.transforms.partition.rules.operator_checks import has_wide_weights
from odc_mlir.transforms.partition.rules.table import rules_of
from odc_mlir.transforms.quant.common.given import has_source_lines
from odc_mlir.universe import make_context

_FOLDED = ("fuse_mul_with", "fuse_add_with", "fuse_batchnorm_with")
_NOT_COMPUTING = frozenset({"QUANTIZE", "DEQUANTIZE"})
_STAGE = "lint"


@dataclass(frozen=True)
class Finding:
    """One finding: ``kind`` is a stable name, ``text`` the observation, ``tensors`` the affected tensors in order."""

    kind: str
    text: str
    remedy: str
    tensors: tuple[str, ...] = ()


class Findings(list[Finding]):
    """Findings in a model, in the order of the checks."""

    def _repr_html_(self) -> str:
        from html import escape

        items = (f"{item.kind}: {item.text}; remedy: {item.remedy} {', '.join(item.tensors)}" for item in self)
        return f"<p>{counted(len(self), 'finding')}</p><ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


@dataclass(frozen=True)
class LintTarget:
    """Hardware to check the model's operators against."""

    name: str
    chosen: Chosen
    rules: Rules
    takes_floats: bool
    is_npu: bool

    @classmethod
    def named(cls, name: str) -> LintTarget:
        """Return the target, or the target's machine, with this name. Raises OptionError and TargetError."""
        chosen = choose(name)
        found = chosen.description()
        rules = chosen.ask(lambda: found.rules_of(chosen.machine))
        return cls(name, chosen, rules, found.takes_floats, found.name == "npu")

    def reason_against(self, node: Node) -> str | None:
        """Return the reason why the target does not run an operator, or None if it does. Raises TargetError."""
        return self.chosen.ask(lambda: rules_reason(self.rules, node, self.name))


@dataclass
class LintedModel:
    """A module with properties that several checks need. ``chosen``: the target that the user named, if any.

    ``operators`` and ``main`` have the compiler's batch size, and decoded constants, as for quantisation.
    ``open_batch``: whether the batch size was unknown.
    """

    module: ModuleOp
    targets: tuple[LintTarget, ...]
    chosen: LintTarget | None
    operators: list[CircleOp] = field(init=False)
    tables: set[CircleOp] = field(init=False)  # operators of islands
    main: FuncOp | None = field(init=False)
    open_batch: bool = field(init=False)

    def __post_init__(self) -> None:
        fixed = clone_module(self.module)
        self.main = next((op for op in fixed.body.block.ops if isinstance(op, FuncOp)), None)
        self.open_batch = self.main is not None and fix_batch(fixed, OdcFixBatchPass.batch, declare=False)
        CircleFoldConstantsPass(decode=True).apply(make_context(), fixed)
        self.operators = [op for op in fixed.walk() if isinstance(op, CircleOp)]
        self.tables = {op for island in islands(self.operators) for op in island.members}

    @property
    def may_stay_real(self) -> bool:
        """True if the hardware also computes real numbers, so that no operator needs quantisation."""
        return self.chosen is not None and self.chosen.takes_floats

    @property
    def is_quantised(self) -> bool:
        """True if any operator computes with codes."""
        return any(
            tensor_facts(result.type).quant is not None and op.SPEC.name not in _NOT_COMPUTING
            for op in self.operators
            for result in op.results
        )

    def arguments(self) -> tuple[BlockArgument, ...]:
        """Return the model's inputs."""
        return () if self.main is None else tuple(self.main.body.block.args)

    def returned(self) -> tuple[SSAValue, ...]:
        """Return the model's outputs."""
        return () if self.main is None else tuple(outputs_of(self.main))


def lint(model: ModelSource | Package | ModuleOp, *, target: str | None = None) -> Findings:
    """Return the findings in ``model``, by kind.

    ``target``: the hardware to check operators against: an NPU, ``cpu``, or a plugin's target (default: all shipped
        NPUs). Raises OdcErrors for models that cannot be read and for unknown targets.
    """
    chosen = None if target is None else LintTarget.named(target)
    held = tuple(map(LintTarget.named, targets.names())) if chosen is None else (chosen,)
    with typed_errors(_STAGE):
        module = loading.load(model)
        subject = LintedModel(module, held, chosen)
        if has_source_lines(module) and _count(module, "QUANTIZE") and not subject.is_quantised:
            pipelines.run(make_context(), module := clone_module(module), "quant")
            subject = LintedModel(module, held, chosen)  # the integers that are compiled
        return Findings(finding for check in _CHECKS for finding in check(subject))


def _about(
    kind: str, text: str, remedy: str, found: Sequence[CircleOp | SSAValue | str], *, count: int | None = None
) -> Iterator[Finding]:
    """Yield a finding about the tensors ``found``, if any. The text ends with ``count`` (default: their number)."""
    if found:
        yield Finding(kind, f"{text}: {len(found) if count is None else count}", remedy, _names(found))


def _names(found: Sequence[CircleOp | SSAValue | str]) -> tuple[str, ...]:
    values = (item.results[0] if isinstance(item, CircleOp) else item for item in found)
    return tuple(item if isinstance(item, str) else value_name(item) for item in values)


def _kinds(found: list[CircleOp]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(Counter(op.SPEC.name for op in found).items()))


def _open_shapes(model: LintedModel) -> Iterator[Finding]:
    if model.open_batch:
        size = OdcFixBatchPass.batch
        text = f"inputs have an open batch; compiled code runs a batch of {size}, host kernels run others"
        yield Finding("open-batch", text, "odc-circle resize MODEL --shapes … compiles another batch")
    yield from _about(
        "open-shape",
        "inputs with dimensions that are known only in a run",
        "odc-circle resize MODEL --shapes …, or odc-optimize --dynamic-batch-to-single-batch: compiled code needs them",
        [value for value in model.arguments() if None in (shape_of(value) or (None,))],
    )


def _rewritable(model: LintedModel) -> Iterator[Finding]:
    copy = clone_module(model.module)
    before = _count(copy, "TRANSPOSE")
    counts, _ = CircleOptimizePass().optimize(make_context(), copy)
    after = _count(copy, "TRANSPOSE")
    folded = sum(count for name, count in counts.items() if name.startswith(_FOLDED))
    if folded:
        yield Finding(
            "batch-norm",
            f"products and sums with constants that the layers before them could absorb: {folded}",
            "odc-optimize --O1 folds them; odc-quantize does so itself",
        )
    if before:
        moved = [op for op in model.operators if op.SPEC.name == "TRANSPOSE"]
        if after:  # fast, because few rewrites remain
            CircleOptimizePass(io_layout="nhwc").optimize(make_context(), copy)
        left = _count(copy, "TRANSPOSE")
        known = [f"odc-optimize --O1 leaves {after}"] if after < before else []
        known += [f"odc-optimize --io-layout nhwc leaves {left}"] if left < min(after, before) else []
        remedy = ", ".join(known) or "the computation needs them: no order of dimensions saves one"
        yield Finding("transposes", f"TRANSPOSEs, which only move data: {before}", remedy, _names(moved))
    if counts["fold_dequantize"]:
        yield Finding(
            "packed-weights",
            f"constants stored as half-precision numbers or codes behind DEQUANTIZE: {counts['fold_dequantize']}",
            "odc-optimize --fold-dequantize converts them to the type that layers read",
        )


def _count(module: ModuleOp, name: str) -> int:
    return sum(isinstance(op, CircleOp) and op.SPEC.name == name for op in module.walk())


def _masks(model: LintedModel) -> Iterator[Finding]:
    if model.may_stay_real:
        return
    found = ((op, argument_of(op)) for op in model.operators)
    yield from _about(
        "mask",
        f"SOFTMAXes of scores with a mask constant below {HIDDEN:g}, whose range leaves few codes for other scores",
        "odc-quantize and the pass circle-clip-masks reduce it without effect on SOFTMAX",
        [op for op, argument in found if argument is not None and any(map(is_beyond, sources(*argument)))],
    )


def _real_model(model: LintedModel) -> Iterator[Finding]:
    if model.chosen is not None and not model.chosen.takes_floats and not model.is_quantised:
        yield Finding(
            "float-model",
            f"{model.chosen.name} runs codes, and every operator computes with real numbers",
            "odc-quantize first, or odc-compile --quantize SCHEME",
        )


def _real_tail(model: LintedModel) -> Iterator[Finding]:
    if not model.is_quantised or model.may_stay_real:
        return
    found = [
        op for op in model.operators if any(map(is_real, op.results[:1])) and _computes(op) and op not in model.tables
    ]
    if found:
        yield Finding(
            "unquantised",
            f"operators of a quantised model that compute with real numbers: {_kinds(found)}",
            "no NPU runs them: odc-quantize of the float model quantises them, or says why it keeps them float",
            _names(found),
        )


def _computes(op: CircleOp) -> bool:
    reads_values = any(not isinstance(value.owner, ConstOp) for value in op.operands)
    return reads_values and op.SPEC.name not in _NOT_COMPUTING


def _real_interface(model: LintedModel) -> Iterator[Finding]:
    if not model.is_quantised or model.may_stay_real:
        return
    yield from _about(
        "float-interface",
        "real inputs and outputs of a quantised model, which the host converts in every run",
        "quantise with --io quantized, if the application has codes",
        [value for value in (*model.arguments(), *model.returned()) if is_real(value)],
    )


def _depthwise(model: LintedModel) -> Iterator[Finding]:
    found = []
    for op in model.operators:
        if op.SPEC.name != "DEPTHWISE_CONV_2D" or op.unverified is not None:
            continue
        facts = tensor_facts(op.operands[1].type)
        channels = (facts.shape or (None,))[-1]
        if facts.quant is not None and facts.quant.per_tensor and channels not in (None, 1):
            found.append(op)
    return _about(
        "per-tensor-depthwise",
        "depthwise convolutions with one scale for all channels, although their weights differ most",
        "quantise the float model with a scale for each channel (odc-quantize --granularity channel)",
        found,
    )


def _zero_points(model: LintedModel) -> Iterator[Finding]:
    if not any(target.is_npu for target in model.targets):
        return
    yield from _about(
        "weight-zero-points",
        "layers whose weights have zero points too far apart for one pass, so that an NPU computes two or three times "
        "the products",
        "quantise the float model with --weights symmetric, which has one zero point, or to int8 (odc-quantize)",
        [op for op in model.operators if op.unverified is None and has_wide_weights(node_of(op))],
    )


def _layers(model: LintedModel) -> Iterator[tuple[WeightedLayer, NDArray[Any]]]:
    """Yield layers with constant weights, and the weights minus zero points, output channels first."""
    for op in model.operators:
        layer = WeightedLayer.of(op)
        array = None if layer is None else constant(op.operands[layer.weights])
        if layer is None or array is None or array.dtype.kind not in "fiu" or not array.size:
            continue
        facts = tensor_facts(op.operands[layer.weights].type)
        moved = np.moveaxis(array, layer.axis, 0).reshape(array.shape[layer.axis], -1)
        if facts.quant is not None:
            zeros = np.array(facts.quant.zero_points)
            moved = moved.astype(np.int64) - (zeros[:, None] if zeros.size == len(moved) else zeros[0])
        yield layer, moved


def _dead_channels(model: LintedModel) -> Iterator[Finding]:
    counts = {layer.name: int(np.sum(~weights.any(axis=1))) for layer, weights in _layers(model)}
    return _about(
        "dead-channels",
        "channels with only zero weights, whose results are constant",
        "prune them before conversion; they cost as much as other channels",
        [name for name, count in counts.items() if count],
        count=sum(counts.values()),
    )


def _not_finite(model: LintedModel) -> Iterator[Finding]:
    return _about(
        "not-finite",
        "layers with infinite or NaN weights",
        "convert the model again: such weights have no range",
        [layer.name for layer, weights in _layers(model) if not np.isfinite(weights).all()],
    )


def _saturated(model: LintedModel) -> Iterator[Finding]:
    found = []
    for op in model.operators:
        layer = WeightedLayer.of(op)
        bias = None if layer is None else constant(layer.bias_value)
        if bias is None or bias.dtype.kind != "i":
            continue
        limits = np.iinfo(bias.dtype)
        if np.any((bias == limits.max) | (bias == limits.min)):
            found.append(op)
    return _about(
        "saturated-bias",
        "layers with a bias at the end of its integers' range, which was probably larger",
        "quantise again, with a wider range of the layer's input, or with equalised channels",
        found,
    )


def _without_target(model: LintedModel) -> Iterator[Finding]:
    reasons: dict[tuple[bool, str], list[CircleOp]] = {}
    for op in model.operators:
        reason = _reason(op, model.targets) if _computes(op) and op not in model.tables else None
        if reason is not None:
            error = refusal(node_of(op)) if op.unverified is None else None
            reasons.setdefault((error is None, reason if error is None else error.message), []).append(op)
    subject = "no NPU runs" if model.chosen is None else f"{model.chosen.name} does not run"
    rules = "; odc-opt --list-rules lists the NPU's rules"
    on_host = f"host kernels run them{rules if model.chosen is None or model.chosen.is_npu else ''}"
    for (runs, reason), found in reasons.items():
        if runs:
            yield Finding("no-target", f"{subject} {_kinds(found)}: {reason}", on_host, _names(found))
        else:
            remedy = "odc-compile rejects the model; quantise the float model with odc-quantize"
            yield Finding("cannot-run", f"nothing runs {_kinds(found)}: {reason}", remedy, _names(found))


def _reason(op: CircleOp, held: Sequence[LintTarget]) -> str | None:
    """Return why no target runs ``op``, or None if a target runs it, or would run it after quantisation."""
    if op.unverified is not None:
        return str(op.unverified)
    values = [value for value in (*op.operands, *op.results) if not isinstance(value.owner, NoneOp)]
    is_real_op = all(tensor_facts(value.type).quant is None for value in values)
    stays_real = is_real_op and op.SPEC.quant.kind is QuantKind.FLOAT and any(map(is_real, values))
    reasons: list[str | None] = []
    for target in held:
        if target.is_npu and (stays_real or op.SPEC.name == "CUSTOM" or rules_of(ops.get(op.SPEC.name)) is None):
            reasons.append(f"{op.SPEC.name} is not supported by the NPU")
        elif is_real_op and not target.takes_floats:
            return None
        else:
            reasons.append(target.reason_against(node_of(op)))
    return None if None in reasons else reasons[0]


def _state(model: LintedModel) -> Iterator[Finding]:
    found = [op for op in model.operators if Trait.STATEFUL in op.SPEC.traits]
    if found:
        yield Finding(
            "state",
            f"operators that keep state between runs: {_kinds(found)}",
            "reset it between unrelated sequences",
            _names(found),
        )


_CHECKS: tuple[Callable[[LintedModel], Iterator[Finding]], ...] = (
    _open_shapes,
    _not_finite,
    _rewritable,
    _masks,
    _real_model,
    _real_tail,
    _real_interface,
    _depthwise,
    _zero_points,
    _dead_channels,
    _saturated,
    _without_target,
    _state,
)
