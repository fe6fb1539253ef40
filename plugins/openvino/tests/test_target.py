"""Machines, rules, costs and programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from networks import sample
from odc_mlir import ops
from odc_mlir.errors import OptionError, PackageError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo
from odc_mlir.plugins.request import CodegenRequest
from odc_mlir.plugins.target import SegmentModel, choose, operator_model
from odc_mlir.runtime import conformance
from odc_mlir.runtime.devices import attached, open_device
from odc_openvino import judging, machines
from odc_openvino.compiler import create_codegen
from odc_openvino.machines import Machine, machine_of
from odc_openvino.program import parse
from odc_openvino.target import OpenVinoRules

X, Y = (TensorInfo(name, "float32", (1, 8)) for name in "xy")
CPU = "openvino-cpu"


def node(name: str, x: TensorInfo = X, y: TensorInfo = Y) -> Node:
    return Node(ops.get(name), (x,), (y,))


def test_the_conformance_suite_passes() -> None:
    outcomes = conformance.check_plugin("openvino")
    assert len(outcomes) == 8
    assert [outcome.problem for outcome in outcomes if outcome.problem is not None] == []


def test_machines_have_names_and_a_missing_device_is_an_error() -> None:
    assert machine_of(CPU) == Machine("CPU") == machine_of(Machine("CPU").name)
    assert machine_of("openvino-gpu-f16") == Machine("GPU", "f16")
    assert CPU in attached()[0]
    assert choose(CPU).machine == CPU
    with pytest.raises(OptionError, match=r"OpenVINO finds no device GPU\.7 here"):
        Machine("GPU.7").facts()
    with pytest.raises(OptionError, match="unknown machine 'openvino-tpu'"):
        machine_of("openvino-tpu")


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (node("COS"), None),
        (node("NEG", replace(X, shape=(None, 8))), "static-shape: the shape of 'x' is not known"),
        (node("NEG", replace(X, dtype="float16"), replace(Y, dtype="float16")), "types: 'x' is float16"),
        (node("NEG", replace(X, dtype="int8", quant=QuantParams((0.5,), (0,)))), "types: 'x' is quantised int8"),
        (Node(ops.get("ASSIGN_VARIABLE"), (X, X), ()), "pure: it has state"),
        (node("SEGMENT_SUM"), "OpenVINO: "),
    ],
    ids=lambda value: value.spec.name if isinstance(value, Node) else None,
)
def test_rules(operator: Node, reason: str | None) -> None:
    found = OpenVinoRules(CPU).reason_against(operator)
    assert found is None if reason is None else found is not None and found.startswith(reason)


def test_an_operator_that_gives_other_results_stays_on_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))
    run = odc_mlir.run
    monkeypatch.setattr(judging.odc_mlir, "run", lambda model, inputs: [1.001 * value for value in run(model, inputs)])
    judgement = judging.Judge(Machine("CPU")).judge(node("COS"))
    assert judgement.reason is not None
    assert judgement.reason.startswith("it differs from host kernels by 1.0e-03")


def test_a_measurement_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))
    first = judging.Judge(Machine("CPU")).judge(node("COS"))
    monkeypatch.setattr(judging.Judge, "_measure", None)
    assert judging.Judge(Machine("CPU")).judge(node("COS")) == first
    (file,) = (tmp_path / "plugins").iterdir()
    assert list(first) in json.loads(file.read_text()).values()
    file.write_text("[")
    with pytest.raises(TypeError):
        judging.Judge(Machine("CPU")).judge(node("COS"))


def test_large_constants_of_one_shape_are_one_measurement() -> None:
    def layer(seed: int, size: int) -> str:
        data = memoryview(np.random.default_rng(seed).normal(size=(size,)).astype(np.float32).tobytes())
        return judging._key(Node(ops.get("ADD"), (X, TensorInfo("w", "float32", (size,), data=data)), (Y,)))

    assert layer(1, 80) == layer(2, 80) != layer(1, 88)
    assert layer(1, 8) != layer(2, 8)


@pytest.mark.parametrize("machine", ["openvino", "openvino-cpu-bf16"])
def test_a_package_computes_the_same_as_host_kernels(machine: str, model: Path) -> None:
    package = odc_mlir.compile(model, target=machine)
    assert [layer["placed"] for layer in package.report["layers"]] == [machine] * 6
    executor = package.executor()
    (found,), (expected,) = executor.run([sample()]), odc_mlir.run(model, [sample()])
    assert not executor.fallbacks
    tolerance = executor.segments[0].program.tolerance
    assert tolerance == {"openvino": 1e-4, "openvino-cpu-bf16": 5e-2}[machine]
    assert 0 <= np.abs(found - expected).max() <= tolerance * np.abs(expected).max()
    assert odc_mlir.check(package).state == "runs"


def test_a_program_of_another_version_or_machine_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = odc_mlir.compile(model, target=CPU)
    data = package.files.segment(package.plan.segments[0].file)
    device = open_device("openvino")
    assert device.examine(data, package.plan, None) is None
    assert device.examine(data, package.plan, "openvino-gpu") == "it was compiled for openvino-cpu"
    changed = replace(parse(data), facts=("openvino-cpu", "OpenVINO 2020.1", *parse(data).facts[2:]))
    with pytest.raises(
        PackageError, match=r"compiled for other software or hardware: OpenVINO 2020\.1 there, OpenVINO 20"
    ):
        device.load(changed.to_bytes())
    with pytest.raises(PackageError, match="OpenVINO finds no device NPU here"):
        device.load(replace(parse(data), machine="openvino-npu").to_bytes())
    with pytest.raises(PackageError, match="damaged"):
        device.load(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(PackageError, match="OpenVINO cannot load the program"):
        device.load(replace(parse(data), blob=b"nothing").to_bytes())
    monkeypatch.setattr(machines, "devices", tuple)
    with pytest.raises(PackageError, match="OpenVINO finds no device CPU here"):
        device.load(data)


@pytest.mark.parametrize(("padding", "shape"), [("valid", (1, 1, 2, 8)), ("same", (1, 2, 2, 8))])
def test_an_average_over_a_large_window_keeps_its_precision(padding: str, shape: tuple[int, ...]) -> None:
    x, y = replace(X, shape=(1, 128, 128, 8)), replace(Y, shape=shape)
    window = {"filter_height": 128, "filter_width": 64, "stride_h": 64, "stride_w": 64}
    options = {**window, "padding": padding, "fused_activation_function": "relu"}
    averages = Node(ops.get("AVERAGE_POOL_2D"), (x,), (y,), options)
    data = SegmentModel("averages", write_model(operator_model(averages)))
    request = CodegenRequest("", "", target={"target": CPU})
    program = open_device("openvino").load(create_codegen().compile_segment(data, request))
    value = np.random.default_rng(2).uniform(0, 1, x.static_shape).astype(np.float32)
    rows = [slice(0, 128)] if padding == "valid" else [slice(0, 96), slice(32, 128)]
    columns = [value[:, part].astype(np.float64).reshape(1, -1, 2, 64, 8).mean((1, 3)) for part in rows]
    np.testing.assert_allclose(program.run([value]).outputs[0], np.stack(columns, axis=1), rtol=5e-7)
