"""Float operators as StableHLO text, the input of IREE's compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from odc_mlir.errors import UnsupportedError
from odc_mlir.ops.spec import Array, Node, TensorInfo
from odc_mlir.runtime.execution.graph import Graph

Shape = tuple[int, ...]

_MOST_TERMS = 64  # of one sum: IREE adds one after another in float32, so longer sums lose precision


class Value(NamedTuple):
    """An SSA value of type float32."""

    name: str
    shape: Shape


def module_text(graph: Graph) -> str:
    """Return a module with the function ``main``, which has the inputs and outputs of ``graph``.

    Raises UnsupportedError for an operator that has no form here.
    """
    writer = _Writer()
    values = {
        tensor: Value(f"%arg{place}", graph.tensors[tensor].static_shape) for place, tensor in enumerate(graph.inputs)
    }
    arguments = ", ".join(f"{value.name}: {_type(value.shape)}" for value in values.values())
    for item in graph.nodes:
        if item.node.spec.name not in OPERATORS:
            raise UnsupportedError(f"there is no StableHLO form of {item.node.spec.name}")
        operands = [None if tensor < 0 else values.get(tensor) for tensor in item.inputs]
        found = OPERATORS[item.node.spec.name](writer, item.node, _Operands(writer, item.node, operands))
        values[item.outputs[0]] = writer.reshape(found, item.node.results[0].static_shape)
    results = [values[tensor] for tensor in graph.outputs]
    types = ", ".join(_type(value.shape) for value in results)
    lines = [f"func.func @main({arguments}) -> ({types}) {{", *writer.lines]
    lines.append(f"  return {', '.join(value.name for value in results)} : {types}")
    return "\n".join([*lines, "}\n"])


def _type(shape: Sequence[int]) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}f32>"


class _Writer:
    """Lines of a function body."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, text: str, shape: Sequence[int]) -> Value:
        name = f"%{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return Value(name, tuple(shape))

    def constant(self, value: Array | float) -> Value:
        array = np.asarray(value, "<f4", order="C")
        return self.add(f'stablehlo.constant dense<"0x{array.tobytes().hex()}"> : {_type(array.shape)}', array.shape)

    def unary(self, name: str, value: Value) -> Value:
        return self.add(f"stablehlo.{name} {value.name} : {_type(value.shape)}", value.shape)

    def binary(self, name: str, left: Value, right: Value | float) -> Value:
        right = right if isinstance(right, Value) else self.constant(right)
        shape = np.broadcast_shapes(left.shape, right.shape)
        left, right = (self.broadcast(value, shape) for value in (left, right))
        return self.add(f"stablehlo.{name} {left.name}, {right.name} : {_type(shape)}", shape)

    def broadcast(self, value: Value, shape: Shape, axes: Sequence[int] | None = None) -> Value:
        """Return ``value`` in ``shape``; its axes are the last ones, or ``axes``."""
        if value.shape == shape:
            return value
        found = list(range(len(shape) - len(value.shape), len(shape))) if axes is None else list(axes)
        types = f"({_type(value.shape)}) -> {_type(shape)}"
        return self.add(f"stablehlo.broadcast_in_dim {value.name}, dims = {found} : {types}", shape)

    def reshape(self, value: Value, shape: Shape) -> Value:
        if value.shape == shape:
            return value
        return self.add(f"stablehlo.reshape {value.name} : ({_type(value.shape)}) -> {_type(shape)}", shape)

    def clamp(self, value: Value, low: float, high: float) -> Value:
        return self.binary("minimum", self.binary("maximum", value, low), high)

    def activation(self, node: Node, value: Value) -> Value:
        """Return ``value`` after the fused activation of an operator."""
        name = node.options.get("fused_activation_function", "none")
        match name:
            case "none":
                return value
            case "relu":
                return self.binary("maximum", value, 0.0)
            case "relu6":
                return self.clamp(value, 0.0, 6.0)
            case "relu_n1_to_1":
                return self.clamp(value, -1.0, 1.0)
            case "tanh":
                return self.unary("tanh", value)
        raise UnsupportedError(f"the activation {name}")

    def reduce(self, name: str, value: Value, axes: Sequence[int]) -> Value:
        """Return ``value`` reduced along ``axes``, which are gone, by ``add`` or ``maximum``."""
        start = self.constant(-np.inf if name == "maximum" else 0.0)
        shape = tuple(size for axis, size in enumerate(value.shape) if axis not in axes)
        types = f"({_type(value.shape)}, tensor<f32>) -> {_type(shape)}"
        text = f"applies stablehlo.{name} across dimensions = {list(axes)} : {types}"
        return self.add(f"stablehlo.reduce({value.name} init: {start.name}) {text}", shape)

    def window(self, name: str, value: Value, node: Node, axes: Sequence[int] = (0, 1)) -> Value:
        """Return ``value`` [N, H, W, C] pooled by ``add`` or ``maximum`` along ``axes`` of height (0) and width (1)."""
        kernel = (node.options["filter_height"], node.options["filter_width"])
        strides, padding = _padding(node, value.shape, kernel)
        start, result = self.constant(-np.inf if name == "maximum" else 0.0), node.results[0].static_shape
        shape = tuple(result[axis] if axis - 1 in axes else size for axis, size in enumerate(value.shape))
        kernel, strides = ([size[axis] if axis in axes else 1 for axis in (0, 1)] for size in (kernel, strides))
        padding = [padding[axis] if axis in axes else [0, 0] for axis in (0, 1)]
        window = ", ".join(
            f"window_{key} = array<i64: 1, {a}, {b}, 1>"
            for key, (a, b) in (("dimensions", kernel), ("strides", strides))
        )
        pads = f"dense<{[[0, 0], *padding, [0, 0]]}> : tensor<4x2xi64>"
        lines = ["  ^bb0(%a: tensor<f32>, %b: tensor<f32>):", f"    %c = stablehlo.{name} %a, %b : tensor<f32>"]
        body = "\n".join([*lines, "    stablehlo.return %c : tensor<f32>"])
        attributes = f"<{{{window}, padding = {pads}}}>"
        types = f"({_type(value.shape)}, tensor<f32>) -> {_type(shape)}"
        operands = f"{value.name}, {start.name}"
        return self.add(f'"stablehlo.reduce_window"({operands}) {attributes} ({{\n{body}\n  }}) : {types}', shape)


class _Operands:
    """Operands of an operator as values; constants are written when they are used."""

    def __init__(self, writer: _Writer, node: Node, values: Sequence[Value | None]) -> None:
        self._writer, self._node, self._values = writer, node, values

    def __getitem__(self, index: int) -> Value:
        value, info = self._values[index], self._node.operand(index)
        return self._writer.constant(info.array()) if value is None else value

    def optional(self, index: int) -> Value | None:
        return None if self._node.optional(index) is None else self[index]


def _padding(node: Node, shape: Shape, kernel: tuple[int, int]) -> tuple[list[int], list[list[int]]]:
    """Return strides and padding of height and width; ``kernel`` includes dilation."""
    strides = [node.options["stride_h"], node.options["stride_w"]]
    if node.options["padding"] != "same":
        return strides, [[0, 0], [0, 0]]
    results = node.results[0].static_shape[1:3]
    needed = zip(results, strides, kernel, shape[1:3], strict=True)
    totals = [max(0, (result - 1) * stride + size - given) for result, stride, size, given in needed]
    return strides, [[total // 2, total - total // 2] for total in totals]


Form = Callable[[_Writer, Node, _Operands], Value]


def _unary(name: str) -> Form:
    return lambda writer, node, operands: writer.unary(name, operands[0])


def _binary(name: str) -> Form:
    return lambda writer, node, operands: writer.activation(node, writer.binary(name, operands[0], operands[1]))


def _clamp(low: float, high: float) -> Form:
    return lambda writer, node, operands: writer.clamp(operands[0], low, high)


def _view(writer: _Writer, node: Node, operands: _Operands) -> Value:
    return operands[0]  # the result's shape is set for all operators


def _convolution(writer: _Writer, node: Node, operands: _Operands) -> Value:
    options, x, weights = node.options, operands[0], operands[1]
    is_depthwise = node.spec.name == "DEPTHWISE_CONV_2D"
    dilation = [options["dilation_h_factor"], options["dilation_w_factor"]]
    height, width = ((size - 1) * factor + 1 for size, factor in zip(weights.shape[1:3], dilation, strict=True))
    strides, padding = _padding(node, x.shape, (height, width))
    order, groups = ("[i, 0, 1, o]", x.shape[3]) if is_depthwise else ("[o, 0, 1, i]", x.shape[3] // weights.shape[3])
    shape = node.results[0].static_shape
    window = f"{{stride = {strides}, pad = {padding}, rhs_dilate = {dilation}}}"
    counts = f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}"
    found = writer.add(
        f"stablehlo.convolution({x.name}, {weights.name}) dim_numbers = [b, 0, 1, f]x{order}->[b, 0, 1, f], "
        f"window = {window} {counts} : ({_type(x.shape)}, {_type(weights.shape)}) -> {_type(shape)}",
        shape,
    )
    bias = operands.optional(2)
    return writer.activation(node, found if bias is None else writer.binary("add", found, bias))


def _fully_connected(writer: _Writer, node: Node, operands: _Operands) -> Value:
    if node.options.get("weights_format", "default") != "default":
        raise UnsupportedError("weights are stored in another order")
    weights = operands[1]
    x = writer.reshape(operands[0], (int(np.prod(operands[0].shape)) // weights.shape[1], weights.shape[1]))
    shape = (x.shape[0], weights.shape[0])
    types = f"({_type(x.shape)}, {_type(weights.shape)}) -> {_type(shape)}"
    found = writer.add(f"stablehlo.dot_general {x.name}, {weights.name}, contracting_dims = [1] x [1] : {types}", shape)
    bias = operands.optional(2)
    return writer.activation(node, found if bias is None else writer.binary("add", found, bias))


def _average_pool(writer: _Writer, node: Node, operands: _Operands) -> Value:
    x = operands[0]
    ones = writer.constant(np.ones((1, *x.shape[1:3], 1)))  # their sums are the numbers of elements inside
    counts = writer.window("add", writer.broadcast(ones, x.shape), node)
    is_large = node.options["filter_height"] * node.options["filter_width"] > _MOST_TERMS
    for axes in ((0,), (1,)) if is_large else ((0, 1),):
        x = writer.window("add", x, node, axes)
    return writer.activation(node, writer.binary("divide", x, counts))


def _max_pool(writer: _Writer, node: Node, operands: _Operands) -> Value:
    return writer.activation(node, writer.window("maximum", operands[0], node))


def _softmax(writer: _Writer, node: Node, operands: _Operands) -> Value:
    x, axis = writer.binary("multiply", operands[0], float(node.options["beta"])), len(operands[0].shape) - 1
    others = range(axis)
    largest = writer.broadcast(writer.reduce("maximum", x, [axis]), x.shape, others)
    powers = writer.unary("exponential", writer.binary("subtract", x, largest))
    return writer.binary("divide", powers, writer.broadcast(writer.reduce("add", powers, [axis]), x.shape, others))


def _reduction(name: str, *, is_mean: bool = False) -> Form:
    def write(writer: _Writer, node: Node, operands: _Operands) -> Value:
        x = operands[0]
        axes = sorted({int(axis) % len(x.shape) for axis in np.ravel(node.const(1))})
        found = writer.reduce(name, x, axes)
        count = int(np.prod([x.shape[axis] for axis in axes]))
        return writer.binary("divide", found, float(count)) if is_mean else found

    return write


def _leaky_relu(writer: _Writer, node: Node, operands: _Operands) -> Value:
    negative = writer.binary("multiply", writer.binary("minimum", operands[0], 0.0), float(node.options["alpha"]))
    return writer.binary("add", writer.binary("maximum", operands[0], 0.0), negative)


def _prelu(writer: _Writer, node: Node, operands: _Operands) -> Value:
    negative = writer.binary("multiply", writer.binary("minimum", operands[0], 0.0), operands[1])
    return writer.binary("add", writer.binary("maximum", operands[0], 0.0), negative)


def _hard_swish(writer: _Writer, node: Node, operands: _Operands) -> Value:
    gate = writer.clamp(writer.binary("add", operands[0], 3.0), 0.0, 6.0)
    return writer.binary("divide", writer.binary("multiply", operands[0], gate), 6.0)


def _transpose(writer: _Writer, node: Node, operands: _Operands) -> Value:
    x, axes, shape = operands[0], [int(axis) for axis in node.const(1)], node.results[0].static_shape
    return writer.add(f"stablehlo.transpose {x.name}, dims = {axes} : ({_type(x.shape)}) -> {_type(shape)}", shape)


def _pad(writer: _Writer, node: Node, operands: _Operands) -> Value:
    x, amounts, shape = operands[0], node.const(1), node.results[0].static_shape
    value = writer.constant(0.0) if node.optional(2) is None else writer.reshape(operands[2], ())
    low, high = ([int(size) for size in amounts[:, side]] for side in (0, 1))
    types = f"({_type(x.shape)}, tensor<f32>) -> {_type(shape)}"
    inside = [0] * len(shape)
    return writer.add(
        f"stablehlo.pad {x.name}, {value.name}, low = {low}, high = {high}, interior = {inside} : {types}", shape
    )


def _concatenation(writer: _Writer, node: Node, operands: _Operands) -> Value:
    parts, shape = [operands[place] for place in range(len(node.operands))], node.results[0].static_shape
    names, types = ", ".join(part.name for part in parts), ", ".join(_type(part.shape) for part in parts)
    axis = node.options["axis"] % len(shape)
    found = writer.add(f"stablehlo.concatenate {names}, dim = {axis} : ({types}) -> {_type(shape)}", shape)
    return writer.activation(node, found)


OPERATORS: Mapping[str, Form] = MappingProxyType(
    {
        "ABS": _unary("abs"),
        "ADD": _binary("add"),
        "AVERAGE_POOL_2D": _average_pool,
        "CONCATENATION": _concatenation,
        "CONV_2D": _convolution,
        "DEPTHWISE_CONV_2D": _convolution,
        "DEQUANTIZE": _view,  # of constants of type float16
        "DIV": _binary("divide"),
        "EXP": _unary("exponential"),
        "EXPAND_DIMS": _view,
        "FULLY_CONNECTED": _fully_connected,
        "HARD_SWISH": _hard_swish,
        "LEAKY_RELU": _leaky_relu,
        "LOGISTIC": _unary("logistic"),
        "MAXIMUM": _binary("maximum"),
        "MAX_POOL_2D": _max_pool,
        "MEAN": _reduction("add", is_mean=True),
        "MINIMUM": _binary("minimum"),
        "MUL": _binary("multiply"),
        "NEG": _unary("negate"),
        "PAD": _pad,
        "PADV2": _pad,
        "PRELU": _prelu,
        "REDUCE_MAX": _reduction("maximum"),
        "RELU": _clamp(0.0, np.inf),
        "RELU6": _clamp(0.0, 6.0),
        "RESHAPE": _view,
        "RSQRT": _unary("rsqrt"),
        "SOFTMAX": _softmax,
        "SQRT": _unary("sqrt"),
        "SQUEEZE": _view,
        "SUB": _binary("subtract"),
        "SUM": _reduction("add"),
        "TANH": _unary("tanh"),
        "TRANSPOSE": _transpose,
    }
)
"""Forms of operators, by name."""


def constant_problem(info: TensorInfo) -> str | None:
    """Return why a constant has no form here, None if it has one."""
    if info.quant is not None or info.dtype not in ("float32", "float16", "int32", "int64"):
        return f"{info.name!r} is {'quantised ' if info.quant is not None else ''}{info.dtype}"
    return None
