"""Allocation of native memory is verified by something that knows nothing of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.rewriter import InsertPoint, Rewriter

import odc_mlir
from helpers.data import REPOSITORY
from odc_mlir.errors import CompileError
from odc_mlir.support.text import module_text
from odc_mlir.transforms.native import native_allocate_memory
from odc_mlir.transforms.native.native_allocate_memory import segment_function, segment_modules, verify_arena

DIGITS = str(REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle")
VIEWS = REPOSITORY / "test" / "filecheck" / "transforms" / "native" / "native-allocate-memory-views.mlir"


def test_a_view_that_outlives_its_buffer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = odc_mlir.load(str(VIEWS))

    def shallow(value: Any, position: Any) -> list[int]:
        return [0, *(position[use.operation] for use in value.uses)]

    odc_mlir.run_passes(module, "native-allocate-memory")
    monkeypatch.setattr(native_allocate_memory, "_uses", shallow)
    with pytest.raises(CompileError, match=r"bytes 0 to .* of the arena are used while '.*' is in some of them"):
        odc_mlir.run_passes(module, "native-allocate-memory")


def test_every_move_of_a_buffer_onto_its_neighbour_is_noticed() -> None:
    """Of the buffers that the digits model needs: each goes to the place of the one that its operation reads."""
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), "native-alloc", target="cpu")
    (function,) = map(segment_function, segment_modules(lowered))
    verify_arena(function)
    views = [op for op in function.body.block.ops if op.name == "memref.view" and op.operands[0] is function.args[-2]]
    assert len(views) > 4
    for before, view in pairwise(views):
        place = view.operands[1]
        view.operands[1] = before.operands[1]
        with pytest.raises(CompileError):
            verify_arena(function)
        view.operands[1] = place
    verify_arena(function)


@pytest.mark.parametrize(
    ("stage", "before", "after", "found"),
    [
        ("native-alloc", "arena_bytes = 3648", "arena_bytes = 64", "of the arena, which has 64"),
        ("native-divide", "arena_bytes = 3648", "arena_bytes = 3647", "to 3648 of the arena, which has 3647"),
        ("native-alloc", "constant 320 : index", "constant -64 : index", "bytes -64 to .* of the arena"),
        (
            "native",
            "constant 17152 : index",
            "constant 1171520000 : index",
            "of the constants, which has 19200",
        ),
        ("native-loops", "constant 17152 : index", "constant 117152 : index", "bytes 117152 to .* of the constants"),
        ("native", "constant 17152 : index", "constant 17148 : index", "byte 17148 of .*; begin at a multiple of 64"),
    ],
)
def test_views_beyond_their_buffers_are_refused_before_code_is_made(
    stage: str, before: str, after: str, found: str
) -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), stage, target="x86-64-vnni")
    text = module_text(lowered)
    assert text.count(before) == 1
    with pytest.raises(CompileError, match=found):
        odc_mlir.package(odc_mlir.load(text.replace(before, after).encode()))


@pytest.mark.parametrize("stage", ["native", "native-alloc", "native-divide", "native-loops"])
def test_accesses_beyond_their_buffers_are_refused_before_code_is_made(stage: str) -> None:
    """The result of the first convolution is made smaller; in later stages, the view of the arena that holds it."""
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), stage, target="x86-64-vnni")
    (function,) = map(segment_function, segment_modules(lowered))
    calls = [op for op in function.walk() if isinstance(op, func.CallOp) and "convolve" in op.callee.string_value()]
    result = calls[0].operands[-4].owner
    assert isinstance(result, memref.AllocOp | memref.ViewOp)
    small = arith.ConstantOp(IntegerAttr(10, IndexType()))
    Rewriter.insert_op(small, InsertPoint.before(result))
    result.operands[len(result.operands) - 1] = small.result
    with pytest.raises(CompileError, match=r"@convolve\w+ uses bytes .* of 'conv1', which has 10"):
        odc_mlir.package(odc_mlir.load(module_text(lowered).encode()))


@pytest.mark.parametrize(
    ("kernel", "before", "after", "found"),
    [
        ("convolve_rows1_", 64, 1 << 20, "uses bytes"),  # distance of weights, which a loop carries
        ("convolve_rows8_vectors1_", 7, 1 << 20, "uses bytes"),  # added to an index from a table of constants
        ("convolve_rows8_vectors1_", 5, -5, "uses bytes -"),  # in the first iteration only
        ("convolve_rows8_vectors1_", 4, 0, "has a loop with the step 0"),
    ],
)
def test_numbers_of_kernels_that_lead_outside_buffers_are_refused(
    kernel: str, before: int, after: int, found: str
) -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), "native-loops", target="x86-64-vnni")
    (body,) = [op for op in lowered.walk() if isinstance(op, func.FuncOp) and op.sym_name.data.startswith(kernel)]
    numbers = [op for op in body.walk() if isinstance(op, arith.ConstantOp) and op.result.type == IndexType()]
    (number,) = [op for op in numbers if op.value == IntegerAttr(before, IndexType())]
    number.properties["value"] = IntegerAttr(after, IndexType())
    with pytest.raises(CompileError, match=rf"@{kernel}\w+ {found}"):
        odc_mlir.package(lowered)
