"""The binary of a segment: tensors, operators, metadata, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.npu_layers import binary, make_module, program_of, schedule, small_target
from odc_mlir import targets
from odc_mlir.emitter.program import emit_program
from odc_mlir.errors import CompileError
from odc_mlir.isa.container import read
from odc_mlir.simulator import load


def two_layers(body):  # type: ignore[no-untyped-def]
    x = body.conv(body.block.args[0], 8, kernel=(3, 3), pads=(1, 1, 1, 1))
    return body.lut(x), x


def test_tensors_keep_names_types_and_scales() -> None:
    contents = read(binary(make_module(two_layers, (1, 6, 5, 3), dtype="uint8")))
    (source,) = contents.inputs
    assert (source.name, source.dtype, source.shape, source.scale, source.zero_point) == (
        "in0",
        "uint8",
        (1, 6, 5, 3),
        0.5,
        3,
    )
    assert [t.shape for t in contents.outputs] == [(1, 6, 5, 8)] * 2
    assert len({t.offset for t in contents.outputs}) == 2


def test_operators_have_their_instructions_and_products() -> None:
    contents = read(binary(make_module(two_layers, (1, 6, 5, 3))))
    assert {entry.name: entry.macs for entry in contents.operators} == {"t0": 6 * 5 * 8 * 27, "t1": 0}
    taken = [
        index for entry in contents.operators for first, count in entry.ranges for index in range(first, first + count)
    ]
    assert len(taken) == len(set(taken))


def test_a_target_from_a_file_is_described_in_the_binary(tmp_path: Path) -> None:
    path = small_target(tmp_path, tile_bytes=4096)
    assert load(binary(make_module(two_layers, (1, 6, 5, 3), target=path))).target == targets.load(path)


def test_a_body_without_instructions_is_refused() -> None:
    module = make_module(two_layers, (1, 6, 5, 3))
    with pytest.raises(CompileError, match="holds no instructions"):
        emit_program(program_of(module), targets.load("npu-256"), "flash")


def test_a_buffer_without_address_is_refused() -> None:
    module = make_module(two_layers, (1, 6, 5, 3), memory="sram")
    schedule(module, "npu-sched")
    with pytest.raises(CompileError, match="has no address"):
        emit_program(program_of(module), targets.load("npu-256"), "sram")
