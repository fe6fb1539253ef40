"""Folding: as large as it may be, and nothing that a kernel refuses or that has effects."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from odc_mlir.dialects.circle import ConstOp, info_of
from odc_mlir.support.locations import op_name
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.circle.circle_fold_constants import ALWAYS_BYTES, ALWAYS_DECODED_BYTES, CircleFoldConstantsPass
from odc_mlir.transforms.common.placement import operators
from odc_mlir.universe import make_context


def folded(body: str, limit_bytes: int = 16 << 20, *, decode: bool = False) -> ModuleOp:
    """The module of a function with ``body``, which ends in a use of %r, after folding."""
    text = f'func.func @main() {{\n{body}\n"test.op"(%r) : (!any) -> ()\nfunc.return\n}}'
    result = body.rstrip().rpartition("-> ")[2].partition(" loc(")[0]
    module = parse_module(make_context(), text.replace("!any", result))
    CircleFoldConstantsPass(limit_bytes, decode).apply(make_context(), module)
    module.verify()
    return module


def blob(count: int) -> str:
    return f'#circle.blob<"0x{np.arange(count, dtype=np.uint8).tobytes().hex()}">'


def repeated(count: int) -> str:
    """A broadcast of a single float32 number to ``count`` elements: grows from 8 to 4*count bytes."""
    return (
        "%a = circle.const [1.5] : tensor<1xf32>\n"
        f"%s = circle.const [{count}] : tensor<1xi32>\n"
        f"%r = circle.broadcast_to(%a, %s) : (tensor<1xf32>, tensor<1xi32>) -> tensor<{count}xf32>"
    )


def test_the_constant_has_name_type_and_value() -> None:
    module = folded(
        "%a = circle.const [1.0, 2.0] : tensor<2xf32>\n"
        '%r = circle.add(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc("total")'
    )
    constants = [op for op in module.walk() if isinstance(op, ConstOp)]
    assert not list(operators(module))
    assert op_name(constants[-1]) == "total"
    assert info_of(constants[-1].result).array().tolist() == [2.0, 4.0]


@pytest.mark.parametrize(("decode", "limit"), [(False, ALWAYS_BYTES), (True, ALWAYS_DECODED_BYTES)])
def test_small_constants_do_not_become_large_ones(decode: bool, limit: int) -> None:
    for count, folds in ((limit // 4, True), (limit // 4 + 1, False)):
        assert bool(list(operators(folded(repeated(count), decode=decode)))) != folds


@pytest.mark.parametrize(("limit", "folds"), [(64, True), (63, False)])
def test_the_limit(limit: int, folds: bool) -> None:
    assert bool(list(operators(folded(repeated(16), limit)))) != folds


@pytest.mark.parametrize("decode", [False, True])
def test_codes_become_real_numbers_where_that_is_asked_for(decode: bool) -> None:
    """Small ones always do."""
    for count, folds in ((ALWAYS_BYTES // 4, True), (ALWAYS_BYTES // 4 + 1, decode)):
        type, result = f"tensor<{count}x!quant.uniform<i8:f32, 0.5:2>>", f"tensor<{count}xf32>"
        body = f"%a = circle.const {blob(count)} : {type}\n%r = circle.dequantize(%a) : ({type}) -> {result}"
        assert bool(list(operators(folded(body, decode=decode)))) != folds


def test_what_the_kernel_refuses_stays() -> None:
    """An integer division by zero is for the run to report."""
    module = folded(
        "%a = circle.const [1, 2] : tensor<2xi32>\n%z = circle.const [1, 0] : tensor<2xi32>\n"
        "%r = circle.div(%a, %z) : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>"
    )
    assert [op.SPEC.name for op in operators(module)] == ["DIV"]


def test_operators_with_effects_stay() -> None:
    module = folded(
        "%a = circle.const [1.0] : tensor<1xf32>\n"
        '%r = circle.custom(%a) {custom_code = "log"} : (tensor<1xf32>) -> tensor<1xf32>'
    )
    assert [op.SPEC.name for op in operators(module)] == ["CUSTOM"]


def test_unknown_bytes_stay_unknown() -> None:
    """Text whose constants were left out can still be worked on."""
    digest = "ab" * 32
    module = folded(
        f"%a = circle.const #circle.blob<sha256_{digest}, 400> : tensor<100xf32>\n"
        "%r = circle.relu(%a) : (tensor<100xf32>) -> tensor<100xf32>"
    )
    assert len(list(operators(module))) == 1
