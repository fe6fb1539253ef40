"""Quantised models compiled for the NPU: exact outputs, everything placed, honest cycle counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers import large_networks
from helpers.compiled import Compiled
from helpers.data import Array, GoldenModel, golden_models, golden_samples
from helpers.graph import graph_macs, operator_names
from odc_mlir import targets
from odc_mlir.errors import AllocationError, SimulationError
from odc_mlir.isa import container
from odc_mlir.runtime.api import open_executor
from odc_mlir.simulator import load, simulate

QUANTISED = golden_models("zoo", "zoo-int16", "lstm", quantised=True)
LARGE = "mobilenet_v2_1.0_224_quant"  # a run takes seconds in the simulator, a report of its cycles ten
SMALL = ("kws_ref_model", "pretrainedResnet_quant")

# Operators of these models that the host must never be left with.
ON_NPU = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "AVERAGE_POOL_2D", "MAX_POOL_2D"})


def assert_equal(found: Sequence[Array], expected: Sequence[Array]) -> None:
    assert len(found) == len(expected)
    for ours, golden in zip(found, expected, strict=True):
        assert ours.dtype == golden.dtype
        np.testing.assert_array_equal(ours, golden)


def segments(package: Path) -> list[bytes]:
    """The binaries of a saved package, in plan order."""
    found = sorted(package.rglob("*.npu"))
    assert found, "nothing was compiled"
    return [path.read_bytes() for path in found]


@pytest.mark.parametrize("model", QUANTISED)
def test_golden_outputs(model: GoldenModel, compiled: Compiled) -> None:
    package = odc_mlir.load_package(compiled(model.circle))
    for sample in islice(model.samples(), 1 if model.name == LARGE else None):
        assert_equal(odc_mlir.run(package, sample.inputs, backend="npu", strict=True), sample.outputs)


@pytest.mark.soak
def test_all_golden_outputs_of_a_large_model(test_data: Path, compiled: Compiled) -> None:
    zoo = test_data / "models" / "zoo"
    package = odc_mlir.load_package(compiled(zoo / f"{LARGE}.circle"))
    for sample in golden_samples(zoo / "golden" / f"{LARGE}.npz"):
        assert_equal(odc_mlir.run(package, sample.inputs, backend="npu", strict=True), sample.outputs)


@pytest.mark.parametrize("model", [found for found in QUANTISED if found.id != LARGE])
def test_the_tflite_file_compiles_to_the_same_program(model: GoldenModel, compiled: Compiled) -> None:
    """Same code and constants as the Circle file's, which are run on every sample above."""

    def program(data: bytes) -> tuple[bytes, bytes]:
        read = container.read(data)
        return bytes(read.code), bytes(read.constants)

    ours = map(program, segments(compiled(model.tflite)))
    assert list(ours) == list(map(program, segments(compiled(model.circle))))


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(
            *found.values, id=found.id, marks=[*found.marks, *([pytest.mark.soak] if found.id == LARGE else [])]
        )
        for found in QUANTISED
    ],
)
def test_placement_and_cycles(model: GoldenModel, compiled: Compiled) -> None:
    package = compiled(model.circle)
    report = odc_mlir.load_package(package).report
    layers = report["layers"]
    assert [layer["op"] for layer in layers] == operator_names(model.circle)
    left = [f"{layer['op']} {layer['name']}: {layer['reason']}" for layer in layers if layer["placed"] != "npu"]
    assert not [text for text in left if text.split()[0] in ON_NPU], left
    assert report["host_op_count"] == len(left)
    assert all(layer["reason"] for layer in layers if layer["placed"] != "npu")
    # What is computed: channels that nothing needs are in no model of a package.
    (stored,) = package.rglob("*.circle")
    assert 0 < report["macs"] == graph_macs(stored) <= graph_macs(model.circle)
    assert 0 < report["model_floor_cycles"] <= report["ideal_cycles"]
    assert report["ideal_cycles"] <= report["cycles_total"] <= report["cycles_total_strict"]
    assert report["sram_peak_bytes"] <= targets.load("npu-256").sram.capacity_bytes


def test_state_goes_on_from_run_to_run(test_data: Path, compiled: Compiled) -> None:
    """Variables hold after each run of a segment what they hold after one of host kernels, until they are reset."""
    model = test_data / "models" / "lstm" / "keras_lstm_mnist_ptq.circle"
    package = odc_mlir.load_package(compiled(model))
    host, npu = (open_executor(source, backend=name) for source, name in ((model, "host"), (package, "npu")))
    sample = next(golden_samples(model.parent / "golden" / f"{model.stem}.npz"))
    host.run(sample.inputs)
    assert_equal(npu.run(sample.inputs), sample.outputs)
    again = npu.run(sample.inputs)
    assert_equal(again, host.run(sample.inputs))
    assert (again[0] != sample.outputs[0]).any()
    assert not npu.fallbacks
    npu.reset()
    assert_equal(npu.run(sample.inputs), sample.outputs)


@pytest.mark.parametrize("memory", ["flash", "sram"])
@pytest.mark.parametrize("target", ["npu-128", "npu-256", "npu-512", "npu-2048"])
@pytest.mark.parametrize("name", ["digits_cnn_int8"])
def test_every_target_and_memory_mode(name: str, target: str, memory: str, test_data: Path, compiled: Compiled) -> None:
    folder = test_data / "models" / "digits"
    package = odc_mlir.load_package(compiled(folder / f"{name}.circle", target=target, memory=memory))
    for sample in list(golden_samples(folder / "golden" / f"{name}.npz"))[:8]:
        assert_equal(odc_mlir.run(package, sample.inputs, backend="npu", strict=True), sample.outputs)


@pytest.mark.parametrize("name", SMALL)
def test_memory_modes_differ_where_they_should(name: str, test_data: Path, compiled: Compiled) -> None:
    """In sram mode nothing is off-chip; outputs are the same."""
    model = test_data / "models" / "zoo" / f"{name}.circle"
    sample = next(golden_samples(test_data / "models" / "zoo" / "golden" / f"{name}.npz"))
    package = odc_mlir.load_package(compiled(model, memory="sram"))
    assert_equal(odc_mlir.run(package, sample.inputs, backend="npu", strict=True), sample.outputs)
    flash, sram = odc_mlir.compile(model).report, odc_mlir.compile(model, memory="sram").report
    assert (flash["memory"], sram["memory"]) == ("flash", "sram")
    assert sram["offchip_read_bytes"] == 0
    assert 0 < sram["model_floor_cycles"] <= sram["ideal_cycles"] <= sram["cycles_total"]
    assert flash["offchip_read_bytes"] >= flash["weights_encoded_bytes"] > 0


@pytest.mark.parametrize("kib", [28, 64])
def test_a_small_sram_limit_is_kept(kib: int, test_data: Path) -> None:
    zoo = test_data / "models" / "zoo"
    package = odc_mlir.compile(zoo / "pretrainedResnet_quant.circle", sram_limit=kib << 10)
    assert package.report["host_op_count"] == 0
    assert package.report["sram_peak_bytes"] <= kib << 10
    for sample in golden_samples(zoo / "golden" / "pretrainedResnet_quant.npz"):
        assert_equal(odc_mlir.run(package, sample.inputs, backend="npu", strict=True), sample.outputs)


def test_an_impossible_sram_limit_is_refused_with_the_smallest_possible_one(test_data: Path) -> None:
    path = test_data / "models" / "zoo" / "kws_ref_model.circle"
    with pytest.raises(AllocationError, match=r"SRAM limit of 1024 bytes is too small .* \d+ bytes suffice") as raised:
        odc_mlir.compile(path, sram_limit=1024)
    least = raised.value.needed_bytes
    assert odc_mlir.compile(path, sram_limit=least).report["sram_peak_bytes"] <= least
    assert odc_mlir.compile(path, sram_limit=1024, allow_host=True).plan.host_reasons


@pytest.mark.soak
@pytest.mark.parametrize("limit", [1_393_120, 1_433_600])
def test_limits_of_a_segmentation_network_are_kept_in_stripes(limit: int) -> None:
    """More than what is enough is enough too: copies of constants find the room that was planned for them."""
    model = large_networks.deeplab_v3(257)
    image = np.random.default_rng(1).integers(-128, 128, (1, 257, 257, 3)).astype(np.int8)
    package = odc_mlir.compile(model, sram_limit=limit, placement={"strategy": "supported"})
    assert package.report["host_op_count"] == 0
    assert package.report["sram_peak_bytes"] <= limit
    assert_equal(
        odc_mlir.run(package, [image], backend="npu", strict=True), odc_mlir.run(model, [image], backend="host")
    )


@pytest.mark.soak
def test_a_limit_makes_programs_slower_and_moves_nothing_to_the_host(test_data: Path) -> None:
    path = test_data / "models" / "zoo" / "mobilenet_v2_1.0_224_quant.circle"
    report = odc_mlir.compile(path, sram_limit="384K").report
    assert report["host_op_count"] == 0
    assert report["sram_peak_bytes"] <= 384 << 10
    assert report["cycles_total"] <= 5_600_000


@pytest.mark.parametrize("name", SMALL)
def test_executed_macs_are_the_graphs(name: str, test_data: Path, compiled: Compiled) -> None:
    model = test_data / "models" / "zoo" / f"{name}.circle"
    done = 0
    for data in segments(compiled(model)):
        program = load(data)
        inputs = [np.zeros(tensor.shape, tensor.dtype) for tensor in program.inputs]
        done += simulate(program, inputs).counters.macs_useful
    assert done == graph_macs(model)


def test_cycles_do_not_depend_on_data(test_data: Path, compiled: Compiled) -> None:
    (data,) = segments(compiled(test_data / "models" / "zoo" / "kws_ref_model.circle"))
    program = load(data)
    random = np.random.default_rng(1)
    inputs = [[random.integers(-128, 128, t.shape).astype(t.dtype) for t in program.inputs] for _ in range(2)]
    first, second = (simulate(program, values).counters for values in inputs)
    untimed = simulate(program, inputs[0], execute=False).counters
    assert first == second == untimed


def test_the_program_computes_with_its_own_constants(test_data: Path, compiled: Compiled) -> None:
    """Flipped constants (checksums repaired) give other outputs: the simulator knows the weights from nowhere else."""
    folder = test_data / "models" / "digits"
    (data,) = segments(compiled(folder / "digits_cnn_int8.circle"))
    samples = [sample.inputs for sample in golden_samples(folder / "golden" / "digits_cnn_int8.npz")]

    def outputs(binary: bytes) -> bytes:
        program = load(binary)
        return b"".join(array.tobytes() for inputs in samples for array in simulate(program, inputs).outputs)

    original = container.read(data)
    unchanged = outputs(data)
    assert outputs(container.write(original)) == unchanged
    seen = 0
    positions = range(0, len(original.constants), len(original.constants) // 12)
    for position in positions:
        constants = bytearray(original.constants)
        constants[position] ^= 0x40
        try:
            seen += outputs(container.write(dataclasses.replace(original, constants=bytes(constants)))) != unchanged
        except SimulationError:  # no coded weights or scales any more
            seen += 1
    # Padding, unused low bits of a parameter and channels that never win may hide a flip, most are seen.
    assert seen > len(positions) // 2
