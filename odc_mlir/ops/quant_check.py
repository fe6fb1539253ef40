"""Checks that reject quantised tensors which an operator would misinterpret.

Kernels compute with the scales that they read. These checks cover parameters that kernels do not use: different
parameters before and after a move of codes, several scales instead of one, and scales of plain integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from odc_mlir.errors import UnsupportedError
from odc_mlir.ops.spec import Node, QuantKind, QuantParams, TensorInfo

# Operators that move codes, and rescale operands to the result's scale if necessary.
_REQUANTISING = frozenset({"CONCATENATION"})
# Operators that support several scales or ignore scales by definition. LSTM has two lists of operands.
_READING_ALL = frozenset({"QUANTIZE", "DEQUANTIZE", "CAST", "BITCAST", "IF", "WHILE", "CALL", "CUSTOM", "LSTM"})
_VIEWS = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})
# Operators on plain integers of any width.
_PLAIN = frozenset({"FLOOR_DIV", "FLOOR_MOD", "SCATTER_ND"})
_NARROW = ("int4", "uint4", "int8", "uint8", "int16")


def check_quantisation(node: Node) -> None:
    """Raise ModelError or UnsupportedError if results would contradict the file's quantisation."""
    infos = [info for info in (*node.operands, *node.results) if info is not None]
    for info in infos:
        if info.foreign_quant:
            raise UnsupportedError(
                f"{info.name!r} has a custom quantisation that only its author knows ({info.foreign_quant})",
                op=node.spec.name,
                tensor=node.name,
            )
    if not any(info.is_coded for info in infos):
        return
    if node.spec.quant.kind is QuantKind.SAME and node.spec.name not in _REQUANTISING:
        _check_moved(node)
    if node.spec.name not in _READING_ALL:
        _check_scales(node)
        _check_plain(node)


def _check_moved(node: Node) -> None:
    rule = node.spec.quant
    moved = [node.operand(index) for index in rule.moved(node.operands)]
    first, *others = (*moved, *node.results) if rule.moves else (*node.results, *moved)
    for other in others:
        if not first.is_coded or not other.is_coded or other.dtype != first.dtype:
            continue
        assert first.quant is not None
        assert other.quant is not None
        if not first.quant.agrees(other.quant):
            raise node.error(
                f"{first.name!r} and {other.name!r} have different scales or zero points; they must be equal",
                hint="requantise one of them before this operator",
            )


def _check_scales(node: Node) -> None:
    for index, info in _computed(node):
        if info.quant is None or info.quant.per_tensor or _is_factor(node, index):
            continue
        if node.spec.name in (*_VIEWS, "TRANSPOSE") and _axis_is_kept(node):
            continue
        raise node.error(f"tensor {info.name!r} has {len(info.quant.scales)} scales; one is allowed here")


def _computed(node: Node) -> Iterator[tuple[int | None, TensorInfo]]:
    for index, info in enumerate(node.operands):
        if info is not None and not info.is_const and info.is_coded:
            yield index, info
    yield from ((None, info) for info in node.results if info.is_coded)


def _is_factor(node: Node, index: int | None) -> bool:
    rule = node.spec.quant
    return index is not None and (
        index in rule.weights or index in rule.biases or (node.spec.name == "BATCH_MATMUL" and index == 1)
    )


def _is_bias(node: Node, index: int) -> bool:
    return index < len(node.operands) and node.spec.operand_name(index).endswith("bias")


def _axis_is_kept(node: Node) -> bool:
    source, result = node.operand(0), node.results[0]
    if source.quant is None or result.quant is None or source.shape is None or result.shape is None:
        return False
    if node.spec.name == "TRANSPOSE":
        order = (
            [int(axis) % len(source.shape) for axis in node.const(1).reshape(-1)] if node.operand(1).is_const else []
        )
        return order[result.quant.axis : result.quant.axis + 1] == [source.quant.axis]
    before = _elements_before_axis(source, source.quant)
    return before is not None and before == _elements_before_axis(result, result.quant)


def _elements_before_axis(info: TensorInfo, quant: QuantParams) -> int | None:
    shape = (info.shape or ())[: quant.axis]
    return (
        None if any(extent is None for extent in shape) else math.prod(extent for extent in shape if extent is not None)
    )


def _check_plain(node: Node) -> None:
    rule = node.spec.quant
    if rule.kind in (QuantKind.NONE, QuantKind.SAME):
        return
    for index, info in enumerate((*node.operands, *node.results)):
        if info is None or not info.is_coded or _is_factor(node, index) or _is_bias(node, index):
            continue
        assert info.quant is not None
        if info.dtype in _NARROW and node.spec.name not in _PLAIN:
            continue
        if set(info.quant.scales) != {1.0} or any(info.quant.zero_points):
            raise UnsupportedError(
                f"{info.dtype} tensor {info.name!r} has a scale or zero point; here it counts as plain integers",
                op=node.spec.name,
                tensor=node.name,
                hint="dequantise it before this operator",
            )
