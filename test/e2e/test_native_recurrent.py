"""LSTM cells in native code: the host's codes, its reals within roundings, and state that goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.litert import single_operator
from helpers.nodes import bind
from helpers.recurrent import Form, sequence_lstm
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Node
from odc_mlir.runtime import Session
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

FORMS = {
    "reals": (Form(), {}),
    "reals-time-major": (Form(steps=3, batch=3, cells=33, features=7), {"time_major": True}),
    "reals-clipped": (Form(steps=5, batch=1, cells=16), {"cell_clip": 0.2}),
    "reals-of-one-step": (Form(steps=1, batch=4, cells=18), {}),
    "codes": (Form(weights="codes"), {}),
    "codes-time-major": (Form(weights="codes", steps=3, batch=3, cells=33, features=7), {"time_major": True}),
    "codes-clipped": (Form(weights="codes", steps=5, batch=1, cells=16, features=16), {"cell_clip": 0.2}),
    "codes-of-one-step": (Form(weights="codes", steps=1, batch=4, cells=18), {}),
}
REFUSED = {
    "coupled": "coupled to the forget gate",
    "peephole": "a cell with cell_to_",
    "projection": "a cell with projection_",
    "norm": "layer_norm_coefficients",
    "diagonal": "diagonal weights",
}


def made_model(made: Node, inputs: list[Any]) -> bytes:
    return write_model(single_operator(made, bind(made, inputs)))


@pytest.mark.parametrize("name", FORMS)
def test_state_goes_on_from_run_to_run(name: str) -> None:
    form, options = FORMS[name]
    for seed in range(3):
        made, runs = sequence_lstm(form, seed, **options)
        model = made_model(made, runs[0])
        package = odc_mlir.compile(model, target="cpu")
        native, host = package.executor(strict=True), package.executor("host")
        assert package.plan is not None
        assert len(package.plan.segments) == 1, package.plan.host_reasons
        for _ in range(2):
            for inputs in runs:
                (found,), (expected,) = native.run(inputs), host.run(inputs)
                if form.codes:
                    np.testing.assert_array_equal(found, expected)
                else:
                    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
            native.reset()
            host.reset()


def test_the_first_run_after_a_reset_is_the_first_run() -> None:
    made, runs = sequence_lstm(Form(weights="codes"), 1)
    executor = odc_mlir.compile(made_model(made, runs[0]), target="cpu").executor(strict=True)
    (first,) = executor.run(runs[0])
    (second,) = executor.run(runs[0])
    assert not np.array_equal(first, second)
    executor.reset()
    np.testing.assert_array_equal(executor.run(runs[0])[0], first)


@pytest.mark.parametrize("part", REFUSED)
def test_other_cells_stay_on_the_host(part: str) -> None:
    made, runs = sequence_lstm(Form(**{part: True}), 0)
    plan = odc_mlir.compile(made_model(made, runs[0]), target="cpu").plan
    assert plan is not None
    assert not plan.segments
    assert REFUSED[part] in plan.host_reasons[0]


def test_a_session_runs_a_cell_natively() -> None:
    made, runs = sequence_lstm(Form(weights="codes", cells=20), 3)
    model = made_model(made, runs[0])
    host = HostExecutor(build_graph(read_model(model)))
    with Session(model, backends="native") as session:
        for inputs in runs:
            np.testing.assert_array_equal(session.infer(inputs)[0], host.run(inputs)[0])
