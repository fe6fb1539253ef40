"""Passes of stage ``npu-alloc`` hand nothing on but IR."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.npu_layers import Body, make_module, schedule
from odc_mlir import pipelines
from odc_mlir.support.text import module_text
from odc_mlir.universe import make_context


def two_layers(body: Body) -> SSAValue:
    return body.softmax(body.conv(body.block.args[0], 32, kernel=(3, 3), pads=(1, 1, 1, 1)))


def scheduled(memory: str, stage: str) -> ModuleOp:
    module = make_module(two_layers, (1, 40, 40, 16), memory=memory)
    schedule(module, stage)
    return module


@pytest.mark.parametrize("memory", ["flash", "sram"])
def test_passes_on_copies_make_the_same(memory: str) -> None:
    together, apart = scheduled(memory, "npu-alloc"), scheduled(memory, "npu-sched")
    for _, item in pipelines.passes_until("npu-alloc", after="npu-sched"):
        apart = apart.clone()
        item.apply(make_context(), apart)
    assert module_text(apart) == module_text(together)
