"""The fast simulator against the stepped one: bits identical, cycles identical, whatever a program does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cycle_table
from helpers import npu_listing as listing
from helpers.npu import program
from helpers.npu_programs import MNEMONICS, random_program
from odc_mlir import compiler, targets
from odc_mlir.errors import OptionError, SimulationError
from odc_mlir.isa.instructions import INSTRUCTIONS
from odc_mlir.simulator import MEMORY_MODELS, Program, load, simulate
from odc_mlir.simulator.resources import ExecutionPhase, Resource, Shares, widths
from odc_mlir.simulator.stepped import speeds

NPU = targets.load("npu-256")
CASES = [(name, mode, model) for name in targets.names() for mode in targets.MEMORY_MODES for model in MEMORY_MODELS]


def both(loaded: Program, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """All counters of a timing-only run in either mode."""
    fast, slow = (simulate(loaded, execute=False, mode=mode, **options) for mode in ("fast", "stepped"))
    return fast.counters.to_dict(), slow.counters.to_dict()


def assert_equal(fast: dict[str, Any], slow: dict[str, Any]) -> None:
    """Equal but for how many cycles in a queue are called contended, which rounding moves."""
    for counters in (fast, slow):
        for queue in counters["queues"].values():
            queue.pop("contended_cycles")
            queue["stall_cycles"] = {cause: cycles for cause, cycles in queue["stall_cycles"].items() if cycles}
    assert fast.pop("queues") == _close(slow.pop("queues"))
    assert fast.pop("operators") == _close(slow.pop("operators"))
    assert fast == slow


def _close(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _close(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_close(item) for item in value]
    return pytest.approx(value, abs=0.01) if isinstance(value, float) else value


@pytest.mark.parametrize(("memory", "model"), [("flash", "parity"), ("sram", "strict")])
def test_values_and_counters_of_a_whole_program(memory: str, model: Any) -> None:
    loaded = load(listing.packed(memory=memory))
    fast, slow = (simulate(loaded, [listing.X], mode=mode, memory_model=model) for mode in ("fast", "stepped"))
    assert (slow.outputs[0] == fast.outputs[0]).all()
    assert (slow.outputs[0] == listing.expected()).all()
    assert_equal(fast.counters.to_dict(), slow.counters.to_dict())


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)), ids=str)
def test_random_programs(number: int, case: tuple[str, Any, Any]) -> None:
    name, memory, model = case
    assert_equal(*both(random_program(number, target=name, memory=memory, length=15), memory_model=model))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_random_programs() -> None:
    for seed in range(600):
        name, memory, model = CASES[seed % len(CASES)]
        assert_equal(*both(random_program(1000 + seed, target=name, memory=memory, length=40), memory_model=model))


def test_random_programs_hold_every_instruction() -> None:
    assert {*MNEMONICS, "loop", "end", "halt"} == {spec.mnemonic for spec in INSTRUCTIONS}


MODELS = [
    ("digits_cnn_int8", "npu-256", "sram"),
    ("digits_cnn_int8", "npu-512", "flash"),
    ("digits_cnn_int16", "npu-256", "sram"),
]
LARGE = [
    (model, target, memory)
    for model in (
        "ad01_int8",
        "str_ww_ref_model",
        "kws_ref_model",
        "pretrainedResnet_quant",
        "vww_96_int8",
        "mobilenet_v1_0.25_128_quant",
        "kws_ref_model_float32_int16",
        "digits_mobile_int16",
    )
    for target in targets.names()
    for memory in targets.MEMORY_MODES
]


@pytest.mark.parametrize(
    ("model", "target", "memory"),
    [*MODELS, *(pytest.param(*row, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]) for row in LARGE)],
)
def test_models(model: str, target: str, memory: Any, test_data: Path) -> None:
    package = compiler.compile(cycle_table.model_path(test_data, model), target=target, memory=memory)
    assert package.plan is not None
    for segment in package.plan.segments:
        assert_equal(*both(load(package.segment(segment.file))))


AMOUNTS = st.dictionaries(st.sampled_from(list(Resource)), st.integers(1, 2000), max_size=4)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200), AMOUNTS), min_size=1, max_size=6))
def test_both_share_alike(wishes: list[tuple[int, dict[Resource, int]]]) -> None:
    width = widths(NPU)
    phases = [ExecutionPhase(least, [amounts.get(r, 0) for r in Resource], width) for least, amounts in wishes]
    shares = Shares(width)
    for phase in phases:
        shares.add(phase)
    shares.next_finish()
    exact = speeds([dict(phase.rates) for phase in phases], width)
    assert [p.speed for p in phases] == pytest.approx(exact, rel=1e-6)


def test_a_level_is_what_fits() -> None:
    ports = [{Resource.SRAM: 8.0}, {Resource.SRAM: 8.0}, {Resource.SRAM: 1.0, Resource.OFFCHIP: 1.0}]
    assert speeds(ports, widths(NPU)) == [3.5 / 8, 3.5 / 8, 1.0]
    assert speeds([{Resource.SRAM: 8.0}, {Resource.REQUANT: 8.0}, {}], widths(NPU)) == [1.0, 1.0, 1.0]
    # two share the off-chip port, so that each leaves the third 7 of 8 bytes
    copies = [{Resource.OFFCHIP: 1.0, Resource.SRAM: 1.0}] * 2
    assert speeds([*copies, {Resource.SRAM: 8.0}], widths(NPU)) == [0.5, 0.5, pytest.approx(7 / 8)]


def test_steps_are_at_most_a_cycle_and_time_is_rounded_up() -> None:
    loaded = program("sync@vector\nvop kind=copy size0=5 size1=1 size2=1 a_stride0=1 output=64\nhalt", memory="sram")
    fast, slow = both(loaded)
    # latency, 96 bytes of program at 8 a cycle, sync and vop issued; halt is issued meanwhile
    assert fast["cycles"] == slow["cycles"] == math.ceil(32 + 96 / 8 + 2 * 2 + 12 + 5 / 8)


def test_what_cannot_go_on_is_an_error() -> None:
    with pytest.raises(SimulationError, match="deadlock at cycle"):
        simulate(program("sync@mac wait=0\nhalt"), mode="stepped")
    with pytest.raises(SimulationError, match="semaphores are not zero at halt: 3"):
        simulate(program("sync@mac post=3\nhalt"), mode="stepped")
    with pytest.raises(SimulationError, match="the cycle limit of 100 is exceeded"):
        simulate(program("halt"), mode="stepped", cycle_limit=100)
    with pytest.raises(SimulationError, match=r"instruction 0 \(fill\) writes 0..59999 of the tile buffer"):
        simulate(program("fill bytes=60000\nhalt"), mode="stepped")


def test_modes_are_checked() -> None:
    with pytest.raises(OptionError, match="mode 'slow' is not one of fast, stepped"):
        simulate(program("halt"), mode="slow")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="mode 'stepped' does not support a trace"):
        simulate(program("halt"), mode="stepped", trace=True)
