"""Copies of modules."""

from __future__ import annotations

import pytest
from xdsl.ir import Block

import odc_mlir
from helpers.costly import many_inputs
from helpers.data import REPOSITORY
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.text import module_text, parse_module
from odc_mlir.universe import make_context

DIGITS = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"


def test_a_copy_is_equal_and_independent() -> None:
    module = odc_mlir.lower(odc_mlir.load(DIGITS), "partition", target="npu-256")
    before = module_text(module)
    made = clone_module(module)
    made.verify()
    assert module_text(made) == before
    hints = [[value.name_hint for op in m.walk() for value in op.results] for m in (module, made)]
    assert hints[0] == hints[1]
    made.body.block.erase_op(made.body.block.first_op, safe_erase=False)
    assert module_text(module) == before


def test_blocks_and_later_values() -> None:
    text = """builtin.module {
  "test.op"() ({
  ^bb0(%a : i32):
    %0 = "test.op"(%1) : (i32) -> i32
    %1 = "test.op"(%a) [^bb1] : (i32) -> i32
  ^bb1(%b : i32):
    "test.termop"(%b) [^bb0] : (i32) -> ()
  }) : () -> ()
}
"""
    module = parse_module(make_context(allow_unregistered=True), text)
    assert module_text(clone_module(module)) == module_text(module)


def test_arguments_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserting them one by one takes time that grows with the square of their number."""
    monkeypatch.delattr(Block, "insert_arg")
    assert len(clone_module(import_model(many_inputs(100))).body.block.first_op.regions[0].block.args) == 100
