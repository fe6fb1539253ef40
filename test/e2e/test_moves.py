"""Operators that move codes, on the NPU and on the host: the same bits, and nothing left to the host."""

from __future__ import annotations

import numpy as np
import pytest

import odc_mlir

Q = "!quant.uniform<i8:f32, 0.05:3>"


def t(*shape: int) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{Q}>"


def const(name: str, values: list[int], *shape: int) -> str:
    dims = "x".join(map(str, shape or (len(values),)))
    return f"%{name} = circle.const {values} : tensor<{dims}xi32>\n"


X, V4 = t(1, 8, 8, 16), "tensor<4xi32>"
PAIRS = "tensor<4x2xi32>"

# Name -> operand types, operations, result types.
CASES: dict[str, tuple[list[str], str, list[str]]] = {
    "concatenation": (
        [X, t(1, 8, 8, 24)],
        f"%r = circle.concatenation(%i0, %i1) {{axis = -1}} : ({X}, {t(1, 8, 8, 24)}) -> {t(1, 8, 8, 40)}",
        [t(1, 8, 8, 40)],
    ),
    "slice": (
        [X],
        const("b", [0, 1, 2, 3])
        + const("s", [1, 4, 5, 6])
        + f"%r = circle.slice(%i0, %b, %s) : ({X}, {V4}, {V4}) -> {t(1, 4, 5, 6)}",
        [t(1, 4, 5, 6)],
    ),
    "split": (
        [X],
        const("n", [8, 8])
        + const("a", [3], 1)
        + f"%r, %r2 = circle.split_v(%i0, %n, %a) {{num_splits = 2}} : ({X}, tensor<2xi32>, tensor<1xi32>)"
        + f" -> ({t(1, 8, 8, 8)}, {t(1, 8, 8, 8)})",
        [t(1, 8, 8, 8)] * 2,
    ),
    "transpose": (
        [X],
        const("p", [0, 3, 1, 2]) + f"%r = circle.transpose(%i0, %p) : ({X}, {V4}) -> {t(1, 16, 8, 8)}",
        [t(1, 16, 8, 8)],
    ),
    "pad channels": (
        [X],
        const("p", [0, 0, 1, 0, 0, 2, 3, 1], 4, 2) + f"%r = circle.pad(%i0, %p) : ({X}, {PAIRS}) -> {t(1, 9, 10, 20)}",
        [t(1, 9, 10, 20)],
    ),
    "mirror": (
        [X],
        const("p", [0, 0, 1, 1, 2, 2, 0, 0], 4, 2)
        + f"%r = circle.mirror_pad(%i0, %p) : ({X}, {PAIRS}) -> {t(1, 10, 12, 16)}",
        [t(1, 10, 12, 16)],
    ),
    "nearest": (
        [X],
        const("p", [16, 20])
        + f"%r = circle.resize_nearest_neighbor(%i0, %p) : ({X}, tensor<2xi32>) -> {t(1, 16, 20, 16)}",
        [t(1, 16, 20, 16)],
    ),
    "backwards": (
        [X],
        const("p", [3]) + f"%r = circle.reverse_v2(%i0, %p) : ({X}, tensor<1xi32>) -> {X}",
        [X],
    ),
    "between layers": (
        [X],
        const("p", [16, 16])
        + f"%t = circle.tanh(%i0) : ({X}) -> {X}\n"
        + f"%s = circle.concatenation(%t, %i0, %t) {{axis = 3}} : ({X}, {X}, {X}) -> {t(1, 8, 8, 48)}\n"
        + f"%n = circle.resize_nearest_neighbor(%s, %p) : ({t(1, 8, 8, 48)}, tensor<2xi32>) -> {t(1, 16, 16, 48)}\n"
        + f"%r = circle.logistic(%n) : ({t(1, 16, 16, 48)}) -> {t(1, 16, 16, 48)}",
        [t(1, 16, 16, 48)],
    ),
    "larger than the tile buffer": (
        [t(1, 48, 48, 40)],
        const("p", [0, 3, 1, 2]) + f"%r = circle.transpose(%i0, %p) : ({t(1, 48, 48, 40)}, {V4}) -> {t(1, 40, 48, 48)}",
        [t(1, 40, 48, 48)],
    ),
    "a constant joins": (
        [t(2, 3)],
        f"%c = circle.const [1, -2, 3, 4, -5, 6] : {t(2, 3)}\n"
        + f"%r = circle.concatenation(%i0, %c) {{axis = 0}} : ({t(2, 3)}, {t(2, 3)}) -> {t(4, 3)}",
        [t(4, 3)],
    ),
}


@pytest.mark.parametrize("memory", ["flash", "sram"])
@pytest.mark.parametrize("name", CASES)
def test_the_npu_moves_what_the_host_does(name: str, memory: str) -> None:
    operands, body, results = CASES[name]
    values = ["%r", "%r2"][: len(results)]
    arguments = ", ".join(f'%i{k}: {kind} loc("i{k}")' for k, kind in enumerate(operands))
    text = f"func.func @main({arguments}) -> ({', '.join(results)}) {{\n{body}\n"
    text += f"func.return {', '.join(values)} : {', '.join(results)}\n}}"
    package = odc_mlir.compile(text.encode(), memory=memory, placement={"strategy": "supported"})
    assert package.plan is not None
    assert not package.plan.host_reasons
    random = np.random.default_rng(0)
    inputs = [random.integers(-128, 128, spec.shape).astype(np.int8) for spec in package.inputs]  # type: ignore[arg-type]
    expected = odc_mlir.run(package, inputs, backend="host")
    for found, wanted in zip(odc_mlir.run(package, inputs, strict=True), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
