"""onert beside our kernels, where it is installed, and its interface by our runtime anyway."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers import rewrite_parts as parts
from helpers.float_nets import FloatNet
from helpers.source import REPOSITORY
from odc_mlir.errors import ModelError, OptionError, UnsupportedError
from odc_mlir.runtime import onert_session
from odc_mlir.tools.odc_diff import main

MODEL = REPOSITORY / "examples" / "on_device" / "digits_cnn.circle"


def _image() -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 1, (1, 8, 8, 1)).astype(np.float32)


def test_both_give_the_same() -> None:
    pytest.importorskip("onert")
    (ours,), (theirs,) = (odc_mlir.run(MODEL, [_image()], backend=name) for name in ("host", "onert"))
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)


def test_results_have_the_shapes_that_operators_define() -> None:
    pytest.importorskip("onert")
    n = FloatNet(1)
    made = odc_mlir.optimize(
        n.module(n.add("FULLY_CONNECTED", n.real(1, 4, 3), n.weights(2, 3), n.weights(2), keep_num_dims=True))
    )
    assert odc_mlir.run(made.to_circle(), n.inputs, backend="onert")[0].shape == (1, 4, 2)


def test_what_onert_refuses_is_told() -> None:
    pytest.importorskip("onert")
    n = FloatNet(1)
    model = n.module(parts.relu(n, n.add("CUMSUM", n.real(2, 3), n.const(1, "int32"))))
    with pytest.raises(UnsupportedError, match="onert rejects"):
        odc_mlir.run(odc_mlir.optimize(model, level=None).to_circle(), n.inputs, backend="onert")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onert", None)
    with pytest.raises(OptionError, match="the package onert"):
        odc_mlir.run(MODEL, [_image()], backend="onert")


def test_a_script_changes_one_import() -> None:
    session = onert_session.session(str(MODEL), "cpu")
    (found,) = session.infer([_image()])
    np.testing.assert_array_equal(found, odc_mlir.run(MODEL, [_image()])[0])
    assert session.outputs[0] is found
    assert session.session.input_size() == 1
    _, metrics = session.infer([_image()], measure=True)
    assert "run_time_ms" in metrics
    with pytest.raises(ValueError, match="input"):
        session.infer([])


def test_one_model_by_two_backends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(MODEL), "--with", "host"]) == 0
    assert "all agree" in capsys.readouterr().out
    assert main([str(MODEL)]) == 2
    assert main([str(MODEL), str(MODEL), "--with", "host"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_models_of_pytorch_need_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt2", "w") as archive:
        archive.writestr("model/archive_format", "pt2")
    monkeypatch.setitem(sys.modules, "torch", None)
    for call, model in ((odc_mlir.from_torch, object()), (odc_mlir.load, tmp_path / "model.pt2")):
        with pytest.raises(OptionError, match=r"need PyTorch.*odc-mlir\[torch\]"):
            call(model)
    data = (tmp_path / "model.pt2").read_bytes()
    (tmp_path / "model.circle").write_bytes(data)
    for model in (data, tmp_path / "model.circle"):
        with pytest.raises(ModelError, match="PyTorch program, which can contain code"):
            odc_mlir.load(model)
    with pytest.raises(OptionError, match="via is 'onnx'"):
        odc_mlir.from_torch(object(), via="onnx")
