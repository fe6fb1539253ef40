"""The package of examples/plugin: found, compiled for, run, chosen by sessions, and explained."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from helpers.plugins import install_example
from odc_mlir import compiler
from odc_mlir.backends import ExternalBackend
from odc_mlir.errors import CompileError, OptionError, TargetError, UnsupportedError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.package import PackageFiles
from odc_mlir.plugins import registry
from odc_mlir.plugins.target import Costs, Rule, RuleTable, SegmentModel, TargetFacts, choose, described
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.aim import aim_at
from odc_mlir.runtime.auto.settings import Level, Phase
from odc_mlir.runtime.devices import attached, open_device
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.targets.costs import load_host
from odc_mlir.tools import odc_compile, odc_dump, odc_run
from odc_mlir.tools.odc_doctor import diagnose
from odc_mlir.universe import make_context


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = install_example(tmp_path / "site")
    monkeypatch.setenv(registry.PATH_VARIABLE, str(folder))
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "mya"]:
        del sys.modules[name]
    sys.path[:] = [place for place in sys.path if place != str(folder)]


def network(columns: int = 64) -> Model:
    """Two layers with a SOFTMAX behind them, which the accelerator does not know."""
    rng = np.random.default_rng(5)

    def normal(scale: float, shape: tuple[int, ...]) -> Any:
        return rng.normal(0, scale, shape).astype(np.float32)

    builder = ModelBuilder()
    x = builder.tensor("x", (1, columns))
    last = x
    for name in ("first", "second"):
        weights = builder.tensor(
            f"{name}/w", (columns, columns), data=rng.normal(0, 0.2, (columns, columns)).astype("f4")
        )
        bias = builder.tensor(f"{name}/b", (columns,), data=normal(1, (columns,)))
        following = builder.tensor(name, (1, columns))
        options = {"fused_activation_function": "relu"} if name == "first" else {}
        builder.operator("FULLY_CONNECTED", [last, weights, bias], [following], options=options)
        last = following
    y = builder.tensor("y", (1, columns))
    builder.operator("SOFTMAX", [last], [y], options={"beta": 1.0})
    return builder.finish([x], [y])


def sample(columns: int = 64) -> Any:
    return np.random.default_rng(6).normal(0, 1, (1, columns)).astype(np.float32)


def test_it_is_found() -> None:
    chosen = choose("mya")
    assert (chosen.codegen, chosen.machine) == ("mya-gen", None)
    assert choose("mya-gen").codegen == "mya-gen"
    known = [source.target for source, found in described() if isinstance(found, TargetFacts)]
    assert known == ["cpu", "npu", "mya"]
    assert open_device("mya").name == "mya"
    assert attached()[0][0] == "mya"  # before the processor, of which every machine has one


def test_it_compiles_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "net.circle"
    model.write_bytes(model_bytes(network()))
    assert odc_compile.main([str(model), "-o", str(tmp_path / "p"), "--target", "mya-gen"]) == 0
    said = capsys.readouterr().out
    assert "2 of 3 operators as code for mya in 1 segment" in said
    assert "host: 1 x SOFTMAX: operator: the target has no SOFTMAX" in said
    package = odc_mlir.load_package(tmp_path / "p")
    assert [layer["placed"] for layer in package.report["layers"]] == ["mya", "mya", "host"]
    assert package.report["segments"][0]["bytes"] == package.report["binary_bytes"] > 0
    executor = package.executor()
    assert isinstance(executor, PlanExecutor)
    (out,), (expected,) = executor.run([sample()]), odc_mlir.run(model, [sample()])
    assert not executor.fallbacks
    np.testing.assert_allclose(out, expected, rtol=1e-5)
    assert odc_mlir.check(package).state == "runs"  # type: ignore[attr-defined]


def test_commands_show_its_packages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is modelled of it and it is not simulated; its files are no programs of ours."""
    (tmp_path / "net.circle").write_bytes(model_bytes(network()))
    package = str(tmp_path / "package")
    assert odc_compile.main(["-q", str(tmp_path / "net.circle"), "-o", package, "--target", "mya"]) == 0
    capsys.readouterr()
    assert odc_dump.main([package, "--json"]) == 0
    (segment,) = json.loads(capsys.readouterr().out)["segments"]
    assert segment["format"] == "mya"
    assert odc_dump.main([package]) == 0
    assert "segment-0.mya" in capsys.readouterr().out
    assert odc_run.main([package]) == 0
    shown = capsys.readouterr().out
    assert "modelled" not in shown
    assert "simulator" not in shown


def compiled(model: Model, **options: Any) -> PackageFiles:
    """The package, made in this process."""
    target = choose("mya").description()
    found = {"rules": target.rules(None), "costs": target.costs(None), **options}
    strict = found.pop("strict", False)
    found = {"compile_segment": lambda segment: segment.model, **found}
    backend = ExternalBackend(target="mya", extension="mya", **found)
    return compiler.compile_with(backend, make_context(), model_bytes(model), strict=strict)


def reasons(files: PackageFiles) -> set[str]:
    assert files.plan is not None
    return set(files.plan.host_reasons.values())


def test_rules_and_costs_keep_operators_on_the_host() -> None:
    softmax = "operator: the target has no SOFTMAX"
    assert reasons(compiled(network(516))) == {"narrow: 516 columns", softmax}
    (cost,) = reasons(compiled(network(2))) - {softmax}
    assert re.fullmatch(r"cost: on mya an inference would take [\d.]+ [mu]s longer", cost)
    assert reasons(compiled(network(2), costs=None)) == {softmax}
    with pytest.raises(UnsupportedError, match="1 operator stays on the host: SOFTMAX"):
        compiled(network(), strict=True)


HOST = load_host("reference", "test")
ODD_COSTS: list[tuple[Any, str]] = [
    (Costs(lambda _: -1e9, HOST), r"operator_ns gives -1000000000.0, expected nanoseconds from 0 to 1e\+15"),
    (Costs(lambda _: float("nan"), HOST), "operator_ns gives nan"),
    (Costs(lambda _: float("inf"), HOST), "operator_ns gives inf"),
    (Costs(lambda _: 10**400, HOST), "operator_ns gives 1000"),
    (Costs(lambda _: "5", HOST), "operator_ns gives '5'"),  # type: ignore[arg-type, return-value]
    (Costs(lambda _: True, HOST), "operator_ns gives True"),
    (Costs(lambda _: 1 / 0, HOST), "operator_ns raises ZeroDivisionError: division by zero"),
]


def test_an_operator_may_take_no_time() -> None:
    assert "cost: " not in " ".join(reasons(compiled(network(2), costs=Costs(lambda _: 0, HOST))))


@pytest.mark.parametrize(("costs", "message"), ODD_COSTS, ids=[message for _, message in ODD_COSTS])
def test_costs_that_are_no_times_are_refused(costs: Costs, message: str) -> None:
    with pytest.raises(TargetError, match=message + ".*in target mya, .*op FULLY_CONNECTED"):
        compiled(network(), costs=costs)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (7, "costs are 7, expected Costs or None"),
        (Costs(5, HOST), "operator_ns is 5, expected a function"),  # type: ignore[arg-type]
        (Costs(lambda _: 1.0, None), "the host of the costs is None"),  # type: ignore[arg-type]
        (Costs(lambda _: 1.0, replace(HOST, switch_ns=-1.0)), "'host.switch_ns' has the value -1.0"),
    ],
)
def test_what_are_no_costs_is_refused(costs: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message + ".*in target mya"):
        compiled(network(), costs=costs)


def test_whole_numbers_are_times_too() -> None:
    for time in (50, np.float32(50)):
        costs = Costs(lambda _, time=time: time, HOST)  # type: ignore[misc]
        assert reasons(compiled(network(), costs=costs)) == {"operator: the target has no SOFTMAX"}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: 1 / 0, "rule 'odd' raises ZeroDivisionError: division by zero"),
        (lambda _: True, "rule 'odd' gives True, expected None or text"),
        (lambda _: "", "rule 'odd' gives '', expected None or text"),
    ],
)
def test_rules_that_answer_no_text_are_named(answer: Any, message: str) -> None:
    rules = RuleTable((Rule("odd", "it is even", answer),), {"FULLY_CONNECTED": ()})
    with pytest.raises(TargetError, match=message + ".*in target mya, .*op FULLY_CONNECTED"):
        compiled(network(), rules=rules)


def test_a_segment_that_cannot_be_compiled_stays_on_the_host() -> None:
    def refuse(segment: SegmentModel) -> bytes:
        names = [item.name for item in read_model(segment.model).subgraphs[0].operators]
        raise CompileError(f"no room for {len(names)}")

    files = compiled(network(), compile_segment=refuse)
    assert reasons(files) == {"compile: no room for 2", "operator: the target has no SOFTMAX"}
    assert files.plan is not None
    assert not files.plan.segments


def test_a_refused_segment_takes_no_other_operators_without_names_along() -> None:
    model, refused = network(), []
    graph = model.subgraphs[0]
    weights, bias = graph.operators[1].inputs[1:]
    graph.tensors.append(replace(graph.tensors[graph.outputs[0]]))
    end = len(graph.tensors) - 1
    graph.operators.append(replace(graph.operators[1], inputs=(graph.outputs[0], weights, bias), outputs=(end,)))
    graph.outputs = (end,)
    for tensor in graph.tensors:
        tensor.name = ""

    def refuse_first(segment: SegmentModel) -> bytes:
        if not refused:
            refused.append(segment.name)
            raise CompileError("no room")
        return segment.model

    files = compiled(model, compile_segment=refuse_first, costs=None)
    assert files.plan is not None
    assert [step.operators for step in files.plan.segments] == [(3,)]
    assert files.plan.host_reasons == {
        0: "compile: no room",
        1: "compile: no room",
        2: "operator: the target has no SOFTMAX",
    }


@pytest.mark.slow
def test_sessions_compile_for_it(tmp_path: Path) -> None:
    model = tmp_path / "net.circle"
    model.write_bytes(model_bytes(network()))
    (expected,) = odc_mlir.run(model, [sample()])
    with Session(model, settings={"OnDeviceCompilation": "1"}) as session:
        for _ in range(2):
            session.infer([sample()])
            assert session.wait_for_auto_compilation(60)
        status = session.odc_status
        if status.target == "cpu":  # numpy is no accelerator: it may well be slower, which is then told
            assert [note for note in status.notes if "mya is not compiled for: it takes " in note]
        else:
            assert (status.target, status.phase, status.serving) == ("mya", Phase.ACTIVE, Level.DIRECT)
        np.testing.assert_allclose(session.infer([sample()])[0], expected, rtol=1e-5)


def test_the_doctor_knows_it() -> None:
    found = {(item.area, item.name): item for item in diagnose()}
    assert "made-up accelerator" in found["targets", "mya"].text
    assert found["plugins", "mya-gen"].status == "good"
    assert found["devices", "mya"].text.startswith("mya, from mya 0.1")


def single(operator: str, *, columns: int = 64, dynamic: bool = False) -> Model:
    """A model of one operator."""
    builder = ModelBuilder()
    signature = (-1, columns) if dynamic else None
    x = builder.tensor("x", (1, columns), signature=signature)
    y = builder.tensor("y", (1, columns), signature=signature)
    operands = [x]
    if operator == "FULLY_CONNECTED":
        operands.append(builder.tensor("w", (columns, columns), data=np.ones((columns, columns), "f4")))
    builder.operator(operator, operands, [y])
    return builder.finish([x], [y])


AIMS = [
    ("LOGISTIC", 64, "mya", None),
    ("COS", 64, "cpu", "mya is not compiled for: it has none of the model's operators, COS"),
    ("FULLY_CONNECTED", 64, "mya", None),
    ("FULLY_CONNECTED", 513, "cpu", "none of the model's operators: FULLY_CONNECTED: narrow: 513 columns"),
]


@pytest.mark.parametrize(("operator", "columns", "target", "why"), AIMS)
def test_hardware_that_runs_nothing_of_a_model_is_passed_over(
    operator: str, columns: int, target: str, why: str | None
) -> None:
    settings = {"OnDeviceCompilation": "1", "ODC_TRIGGER": "explicit"}
    with Session(model_bytes(single(operator, columns=columns)), settings=settings) as session:
        session.prepare()  # which waits until the target is known
        session.infer([sample(columns)])
        assert session.wait_for_auto_compilation(60)
        status = session.odc_status
        assert status.target == target
        assert [why in note for note in status.notes] == ([] if why is None else [True])  # type: ignore[operator]


def test_native_code_competes_with_a_target_that_nobody_chose() -> None:
    assert aim_at("auto").competitor[0] == "cpu-gen"
    assert aim_at("mya").competitor == ()
    assert set(aim_at("auto").competitor) <= set(aim_at("auto").key_facts)


def test_what_is_not_known_of_a_model_is_no_reason_and_broken_rules_are(installed: Path, tmp_path: Path) -> None:
    model = tmp_path / "dynamic.circle"
    model.write_bytes(model_bytes(single("FULLY_CONNECTED", columns=513, dynamic=True)))
    assert (aim_at("auto", lambda: model).name, aim_at("auto").name) == ("mya", "mya")
    target = installed / "mya" / "target.py"
    target.write_text(target.read_text().replace("rules=lambda _machine: RULES", "rules=lambda _machine: 1 / 0"))
    found = aim_at("auto", lambda: model)
    assert found.name == "cpu"
    (note,) = found.passed_over
    assert note.startswith(
        "mya is not compiled for: 'mya' of mya 0.1 (mya.target:describe) cannot be used: rules raises"
    )
    assert "ZeroDivisionError: division by zero" in note


def test_what_is_broken_is_told_and_hurts_nobody(installed: Path) -> None:
    (installed / "mya" / "target.py").write_text("raise RuntimeError('no licence')")
    (installed / "mya" / "device.py").write_text("import nothing_like_this")
    assert choose("cpu").codegen == "cpu-gen"
    with pytest.raises(OptionError, match=r"'mya' of mya 0\.1 .* cannot be used: it raised RuntimeError: no licence"):
        choose("mya")
    assert attached()[0][0] == "cpu"
    with pytest.raises(odc_mlir.OdcError, match=r"'mya' of mya 0\.1 .* cannot be used: it raised ModuleNotFoundError"):
        open_device("mya").load(b"")
    problems = {item.area: item.text for item in diagnose() if item.status == "problem"}
    assert "no licence" in problems["targets"]
    assert "nothing_like_this" in problems["devices"]
