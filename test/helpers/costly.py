"""Small models and texts that would cost much time or memory if anything grew faster than they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from helpers.models import ModelBuilder
from odc_mlir.formats.circle.model import Model


def nested_loops(depth: int) -> Model:
    """Subgraphs whose WHILE runs the next one, ``depth`` times."""
    builder = ModelBuilder()
    for level in range(depth):
        if level:
            builder.begin(f"body_{level}")
        x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
        calls = {"cond_subgraph_index": depth + 1, "body_subgraph_index": level + 1}
        builder.operator("WHILE", [x], [y], options=calls)
        builder.finish([x], [y])
    builder.begin("innermost")
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    builder.operator("RELU", [x], [y])
    builder.finish([x], [y])
    builder.begin("condition")
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (), "bool")
    flag = builder.tensor("flag", (), "bool", data=np.array(False))
    builder.operator("LOGICAL_NOT", [flag], [y])
    return builder.finish([x], [y])


def unused_subgraphs(count: int) -> Model:
    """A model of one operator, and ``count`` subgraphs that nothing calls."""
    builder = ModelBuilder()
    for number in range(count + 1):
        if number:
            builder.begin(f"unused_{number}")
        x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
        builder.operator("RELU", [x], [y])
        builder.finish([x], [y])
    return builder.model


def many_inputs(count: int) -> Model:
    """A model with ``count`` inputs, all but one of which are outputs too."""
    builder = ModelBuilder()
    inputs = [builder.tensor(f"x{number}", (1, 4)) for number in range(count)]
    y = builder.tensor("y", (1, 4))
    builder.operator("RELU", [inputs[0]], [y])
    return builder.finish(inputs, [y, *inputs[1:]])


def many_operators(count: int) -> Model:
    """A chain of ``count`` operators."""
    builder = ModelBuilder()
    x = last = builder.tensor("x", (1, 4))
    for number in range(count):
        y = builder.tensor(f"y{number}", (1, 4))
        builder.operator("RELU", [last], [y])
        last = y
    return builder.finish([x], [last])


MODELS: Mapping[str, Callable[[int], Model]] = {
    "nested loops": nested_loops,
    "unused subgraphs": unused_subgraphs,
    "many inputs": many_inputs,
    "many operators": many_operators,
}


def alias_bomb(kind: str, depth: int, uses: int = 1) -> str:
    """IR text whose last alias stands for ``2 ** depth`` values of the first one."""
    first, join, use = _BOMBS[kind]
    lines = [f"{kind}0 = {first}"]
    lines += [f"{kind}{level} = " + join.replace("*", f"{kind}{level - 1}") for level in range(1, depth + 1)]
    return "\n".join([*lines, *[use.replace("*", f"{kind}{depth}")] * uses, ""])


# By the start of the aliases' names: the first one, what joins two, and an operation with one of them.
_BOMBS = {
    "#array": ("[1 : i32, 2 : i32]", "[*, *]", '"test.op"() {a = *} : () -> ()'),
    "#dict": ("{a = 1 : i32}", "{a = *, b = *}", '"test.op"() {a = *} : () -> ()'),
    "!tuple": ("tuple<i32, i32>", "tuple<*, *>", '"test.op"() : () -> *'),
    "!fn": ("(i32) -> i32", "(*) -> *", '"test.op"() {a = *} : () -> ()'),
    "#loc": ('loc("a")', "loc(fused[*, *])", '"test.op"() : () -> () loc(*)'),
    "#module": ("[1 : i32, 2 : i32]", "[*, *]", "builtin.module attributes {a = *} {\n}"),
    "!cached": ("tuple<i32, i32>", "tuple<*, *>", '"test.op"() {a = tensor<4x*>} : () -> ()'),
}
BOMBS = tuple(_BOMBS)
