"""``quant-verify-params``: check the parameters of a quantised module. Changes nothing.

For every quantised operator:

- An activation has one scale, and zero point 0 if it has 16 bits.
- Weights have scales along the channel axis. Signed weights of convolutions have zero point 0.
- A bias has the product of input scale and weight scale, zero point 0, and 64 bits for 16-bit activations, else 32.
- A result has the parameters that the operator fixes under the module's scheme (softmax, logistic …).
- If an operator moves data, result and operand have the same parameters. The kernel supports these types.

A failed check is an error that names operator and tensor. Does nothing if neither module nor ``scheme`` has a scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.errors import CompileError, OdcError
from odc_mlir.ops.spec import Node, QuantKind, QuantParams, TensorInfo, Trait
from odc_mlir.quantizer.policy.schemes import FLOAT, Scheme, bias_params, scheme
from odc_mlir.transforms.quant.common.conversion import bias_dtype
from odc_mlir.transforms.quant.common.ir import PRECISION, READER, SCHEME, all_ops, quantized_function, read_word

_WIDE = "int16"
_TOLERANCE = 1e-6  # relative tolerance of scales, for products in float32


@dataclass(frozen=True)
class QuantVerifyParamsPass(ModulePass):
    """Check quantisation parameters."""

    name = "quant-verify-params"

    scheme: str | None = None
    """Scheme to check against. Default: the module's scheme."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        name, function = self.scheme or read_word(op, SCHEME), quantized_function(op)
        if name is None or function is None:
            return
        reader = read_word(op, READER) or ""
        default = scheme(name).read_by(reader)
        for item in all_ops(function):
            node = node_of(item)
            if any(info is not None and info.is_coded for info in (*node.operands, *node.results)):
                precision = read_word(item, PRECISION)
                used = default if precision in (None, FLOAT) else scheme(precision).read_by(reader)
                for check in CHECKS:
                    check(item, node, used)


def _error(node: Node, message: str, tensor: TensorInfo) -> CompileError:
    return CompileError(message, op=node.spec.name, tensor=tensor.name)


def _check_activations(op: CircleOp, node: Node, used: Scheme) -> None:
    rule = op.SPEC.quant
    operands = [info for i, info in enumerate(node.operands) if i not in rule.weights and i not in rule.biases]
    for info in (*operands, *node.results):
        if info is None or not info.is_coded or (info.is_const and node.spec.name == "DEQUANTIZE"):
            continue
        assert info.quant is not None
        if not info.quant.per_tensor:
            raise _error(node, f"an activation has one scale, this one has {len(info.quant.scales)}", info)
        if info.dtype == _WIDE and info.quant.zero_point:
            raise _error(node, f"codes of 16 bits have the zero point 0, not {info.quant.zero_point}", info)


def _check_weights(op: CircleOp, node: Node, used: Scheme) -> None:
    for index, axis in op.SPEC.quant.weights.items():
        weights = node.optional(index)
        if weights is None or weights.quant is None:
            continue
        if weights.info.kind == "int" and any(weights.quant.zero_points) and node.spec.name != "FULLY_CONNECTED":
            zero = next(filter(None, weights.quant.zero_points))
            raise _error(node, f"signed weights have the zero point 0, not {zero}", weights)
        if not weights.quant.per_tensor and weights.quant.axis != axis:
            raise _error(node, f"weights have their scales along axis {weights.quant.axis}, not {axis}", weights)


def _check_biases(op: CircleOp, node: Node, used: Scheme) -> None:
    for index, bias in op.SPEC.quant.biases.items():
        info, source, weights = node.optional(index), node.operand(bias.input), node.operand(bias.weights)
        if info is None or not source.is_coded or not weights.is_coded:
            continue
        wanted = bias_dtype(source.dtype)
        if info.dtype != wanted:
            raise _error(node, f"a bias of activations of {source.dtype} is {wanted}, not {info.dtype}", info)
        assert source.quant is not None
        assert weights.quant is not None
        expected = bias_params(source.quant, weights.quant)
        if info.quant is None or len(info.quant.scales) != len(expected.scales):
            count = 0 if info.quant is None else len(info.quant.scales)
            raise _error(node, f"a bias has as many scales as the weights, {len(expected.scales)}, not {count}", info)
        if any(info.quant.zero_points):
            raise _error(node, f"a bias has the zero point 0, not {max(info.quant.zero_points, key=abs)}", info)
        for channel, (found, product) in enumerate(zip(info.quant.scales, expected.scales, strict=True)):
            if abs(found - product) > _TOLERANCE * product:
                raise _error(
                    node,
                    f"the scale of the bias in channel {channel} is {found:.9g}, input times weights is {product:.9g}",
                    info,
                )


def _check_fixed(op: CircleOp, node: Node, used: Scheme) -> None:
    rule = op.SPEC.quant
    if rule.kind is not QuantKind.FIXED:
        return
    for info in node.results:
        wanted = used.fixed(rule.table)
        if info.is_coded and info.dtype == used.activations and wanted is not None and info.quant != wanted:
            raise _error(node, f"the result must have {_text(wanted)}, it has {_text(info.quant)}", info)


def _check_moved(op: CircleOp, node: Node, used: Scheme) -> None:
    rule, result = op.SPEC.quant, next(iter(node.results), None)
    if rule.kind is not QuantKind.SAME or result is None:
        return
    moved = [rule.source] if rule.source is not None else [i for i in range(len(node.operands)) if rule.is_joined(i)]
    sources = [info for index in moved if (info := node.optional(index)) is not None and _holds_reals(info)]
    for info in (*sources, *node.results):
        other = sources[0] if rule.source is not None and sources else result
        if _holds_reals(info) and (info.dtype, info.quant) != (other.dtype, other.quant):
            raise _error(
                node,
                f"codes are moved between {other.dtype} with {_text(other.quant)} "
                f"and {info.dtype} with {_text(info.quant)}; both must be the same",
                info,
            )


def _holds_reals(info: TensorInfo) -> bool:
    return info.is_coded or info.dtype == "float32"


def _check_kernel(op: CircleOp, node: Node, used: Scheme) -> None:
    if Trait.CONTROL_FLOW in op.SPEC.traits or not op.SPEC.kernel:
        return
    try:
        op.SPEC.kernel_function(node)
    except OdcError as error:
        error.op, error.tensor = error.op or node.spec.name, error.tensor or node.name
        raise


def _text(params: QuantParams | None) -> str:
    if params is None:
        return "no scale"
    return f"scale {params.scale:g} and zero point {params.zero_point}"


CHECKS: tuple[Callable[[CircleOp, Node, Scheme], None], ...] = (
    _check_activations,
    _check_weights,
    _check_biases,
    _check_fixed,
    _check_moved,
    _check_kernel,
)
