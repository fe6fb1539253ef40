"""Files for LiteRT: however they are written, it runs them, or they are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.errors import UnsupportedError
from odc_mlir.frontend.export_circle import save_module
from odc_mlir.runtime import api
from odc_mlir.tools import odc_circle, odc_optimize, odc_quantize


def _products(operand: str, weights: str) -> bytes:
    """FULLY_CONNECTED of codes of these types."""
    builder = ModelBuilder()
    zeros = {"int8": 0, "uint8": 128}
    x, y = (builder.tensor(n, (1, 4), operand, quant=(0.1, zeros[operand])) for n in "xy")
    codes = np.full((4, 4), zeros[weights] + 1, weights)
    w = builder.tensor("w", (4, 4), weights, data=codes, quant=(0.1, zeros[weights]))
    builder.operator("FULLY_CONNECTED", [x, w, -1], [y])
    return bytes(model_bytes(builder.finish([x], [y])))


def _negated() -> bytes:
    """NEG of codes, which LiteRT has no kernel for that knows zero points."""
    builder = ModelBuilder()
    x, y = (builder.tensor(n, (1, 4), "int8", quant=(0.1, 3)) for n in "xy")
    builder.operator("NEG", [x], [y])
    return bytes(model_bytes(builder.finish([x], [y])))


def _narrow(dtype: str) -> bytes:
    """FULLY_CONNECTED of codes of four bits, two in a byte."""
    builder = ModelBuilder()
    x, y = (builder.tensor(n, (1, 4), dtype, quant=(0.1, 0)) for n in "xy")
    w = builder.tensor("w", (4, 4), dtype, data=np.full(8, 0x11, np.uint8), quant=(0.1, 0))
    builder.operator("FULLY_CONNECTED", [x, w, -1], [y])
    return bytes(model_bytes(builder.finish([x], [y])))


def _hybrid() -> bytes:
    """FULLY_CONNECTED of reals with uint8 weights."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    w = builder.tensor("w", (4, 4), "uint8", data=np.full((4, 4), 200, np.uint8), quant=(0.1, 128))
    builder.operator("FULLY_CONNECTED", [x, w, -1], [y])
    return bytes(model_bytes(builder.finish([x], [y])))


def _sliced(begin: int, size: int) -> bytes:
    """SLICE of a vector."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (4,)), builder.tensor("y", (1,))
    places = [
        builder.tensor(name, (1,), "int32", data=np.array([value], np.int32))
        for name, value in (("begin", begin), ("size", size))
    ]
    builder.operator("SLICE", [x, *places], [y])
    return bytes(model_bytes(builder.finish([x], [y])))


def _recurrent(*, variable: bool) -> bytes:
    """A recurrent layer whose state begins at zero in each run, or that has a variable for it."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 3, 2)), builder.tensor("y", (1, 3, 2))
    w, r, b = (
        builder.tensor(name, shape, data=np.full(shape, 0.5, np.float32))
        for name, shape in (("w", (2, 2)), ("r", (2, 2)), ("b", (2,)))
    )
    state = builder.tensor("state", (1, 2), variable=True) if variable else -1
    builder.operator("UNIDIRECTIONAL_SEQUENCE_RNN", [x, w, r, b, state], [y])
    return bytes(model_bytes(builder.finish([x], [y])))


def _looped(shape: tuple[int, ...]) -> bytes:
    """A loop whose condition has this shape, as what it compares."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", shape), builder.tensor("y", shape)
    builder.operator("WHILE", [x], [y], options={"cond_subgraph_index": 1, "body_subgraph_index": 2})
    builder.finish([x], [y])
    for name, kind, dtype in (("condition", "LESS", "bool"), ("body", "ADD", "float32")):
        builder.begin(name)
        a = builder.tensor("a", shape)
        one, c = builder.tensor("one", (), data=np.float32(1)), builder.tensor("c", shape, dtype)
        builder.operator(kind, [a, one], [c])
        model = builder.finish([a], [c])
    return bytes(model_bytes(model))


def _dangling() -> bytes:
    """A model with an output that nothing computes."""
    builder = ModelBuilder()
    x, y, z = (builder.tensor(name, (4,)) for name in "xyz")
    builder.operator("NEG", [x], [y])
    return bytes(model_bytes(builder.finish([x], [y, z])))


FORMS = {
    "uint4": (_narrow("uint4"), r"no kernel for codes of uint4.*FULLY_CONNECTED.*'y'"),
    "int4": (_narrow("int4"), r"no kernel for computed codes of int4.*FULLY_CONNECTED"),
    "hybrid": (_hybrid(), r"no kernel for uint8 weights beside real inputs.*FULLY_CONNECTED"),
    "begin": (_sliced(-1, 1), r"no kernel for a begin below 0 or a size below -1.*SLICE"),
    "size": (_sliced(0, -2), r"no kernel for a begin below 0 or a size below -1.*SLICE"),
    "state": (_recurrent(variable=False), r"state that no variable holds.*UNIDIRECTIONAL_SEQUENCE_RNN"),
    "condition": (_looped((2,)), r"no kernel for a condition of several values.*WHILE"),
    "output": (_dangling(), r"no operator computes this tensor.*'z'"),
}
RUN = {
    "slice": _sliced(0, -1),
    "state": _recurrent(variable=True),
    "scalar condition": _looped(()),
    "condition of one value": _looped((1,)),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_that_litert_does_not_run_are_refused_by_name(name: str, tmp_path: Path) -> None:
    file, text = FORMS[name]
    with pytest.raises(UnsupportedError, match=f"{text}.*any_reader"):
        _saved(file, tmp_path)
    path = _saved(file, tmp_path, any_reader=True)
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    if name not in ("output", "hybrid"):  # these it runs, and gives other numbers
        with pytest.raises((RuntimeError, ValueError)):
            litert.Interpreter(model_path=str(path)).allocate_tensors()


@pytest.mark.parametrize("name", RUN)
def test_forms_that_it_runs_are_written(name: str, tmp_path: Path) -> None:
    path = _saved(RUN[name], tmp_path)
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    interpreter = litert.Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    detail = interpreter.get_input_details()[0]
    x = np.zeros(detail["shape"], np.float32) + np.float32(0.25)
    interpreter.set_tensor(detail["index"], x)
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(found, api.run(path, [x])[0], rtol=1e-6)


SCALES = {"int8": (0.1, 3), "uint8": (0.07, 130), "int16": (0.001, 0), "int32": (0.001, 0), "int4": (1.0, 1)}


def _converted(source: str, result: str) -> bytes:
    """A conversion of codes, or of reals, to others."""
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (64,), kind, quant=SCALES.get(kind)) for name, kind in (("x", source), ("y", result)))
    builder.operator("DEQUANTIZE" if result == "float32" else "QUANTIZE", [x], [y])
    return bytes(model_bytes(builder.finish([x], [y])))


CODES = ("int8", "uint8", "int16")


@pytest.mark.parametrize(
    ("source", "result"),
    [
        *((source, result) for source in ("float32", *CODES, "int32") for result in CODES),
        *((source, "float32") for source in CODES),
        ("int16", "int32"),
    ],
)
def test_conversions_give_the_same_codes(source: str, result: str, tmp_path: Path) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    path = _saved(_converted(source, result), tmp_path)
    kernels = litert.OpResolverType.BUILTIN_REF
    interpreter = litert.Interpreter(model_path=str(path), experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    least, most = (-9, 9) if source == "float32" else (0, 255) if source == "uint8" else (-128, 127)
    spread = 200 if source in ("int16", "int32") else 1
    x = (np.linspace(least, most, 64) * spread).astype(source)
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_array_equal(found, api.run(_converted(source, result), [x])[0])


@pytest.mark.parametrize(
    ("source", "result"),
    [
        *((source, "int32") for source in ("float32", "int8", "uint8", "int32")),
        *((source, "int4") for source in (*CODES, "int32")),
        ("int32", "float32"),
    ],
)
def test_conversions_that_it_lacks_are_refused(source: str, result: str, tmp_path: Path) -> None:
    name = "DEQUANTIZE" if result == "float32" else "QUANTIZE"
    with pytest.raises(UnsupportedError, match=rf"no kernel that converts {source} to {result}.*{name}.*any_reader"):
        _saved(_converted(source, result), tmp_path)
    path = _saved(_converted(source, result), tmp_path, any_reader=True)
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    with pytest.raises(RuntimeError):
        litert.Interpreter(model_path=str(path)).allocate_tensors()


REFUSED = {
    "weights": (_products("int8", "uint8"), r"no kernel for weights of uint8 beside int8.*FULLY_CONNECTED.*'y'"),
    "codes": (_negated(), r"no kernel that knows zero points.*NEG"),
}


def _saved(file: bytes, folder: Path, **options: Any) -> Path:
    save_module(api.load(file), folder / "out.tflite", **options)
    return folder / "out.tflite"


def _optimized(file: bytes, folder: Path, **options: Any) -> Path:
    odc_mlir.optimize(file).save(folder / "out.tflite", **options)
    return folder / "out.tflite"


@pytest.mark.parametrize("write", [_saved, _optimized])
@pytest.mark.parametrize("name", REFUSED)
def test_what_litert_does_not_run_is_written_on_request_only(
    name: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    file, text = REFUSED[name]
    with pytest.raises(UnsupportedError, match=f"{text}.*any_reader"):
        write(file, tmp_path)
    assert not list(tmp_path.iterdir())
    assert write(file, tmp_path, any_reader=True).read_bytes()[4:8] == b"TFL3"


def test_what_it_runs_is_written(tmp_path: Path) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    path = _saved(_products("int8", "int8"), tmp_path)
    interpreter = litert.Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.full((1, 4), 5, np.int8))
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert np.array_equal(found, api.run(path, [np.full((1, 4), 5, np.int8)])[0])


def test_a_quantised_model_is_checked_when_it_is_saved(tmp_path: Path) -> None:
    """Not only where its bytes are asked for."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    builder.operator("SIN", [x], [y])
    samples = [[np.linspace(-1, 1, 4, dtype=np.float32)[None] * n] for n in range(1, 5)]
    made = odc_mlir.quantize(bytes(model_bytes(builder.finish([x], [y]))), calibration=samples, help=False)
    with pytest.raises(UnsupportedError, match="reader='litert'"):
        made.save(tmp_path / "out.tflite")
    assert not list(tmp_path.iterdir())
    made.save(tmp_path / "out.tflite", any_reader=True)


@pytest.mark.parametrize("is_asked", [False, True])
def test_commands(is_asked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "in.circle"
    model.write_bytes(_negated())
    flags = ["--any-reader"] if is_asked else []
    commands: dict[str, Callable[[list[str]], int]] = {
        "optimize": odc_optimize.main,
        "circle": lambda arguments: odc_circle.main(["fake-quantize", *arguments]),
    }
    for name, main in commands.items():
        out = tmp_path / f"{name}.tflite"
        code = main([str(model), "-o", str(out), *flags])
        is_written = is_asked or name == "circle"  # what rounds reals has no codes
        assert (code == 0, out.exists()) == (is_written, is_written)
    assert ("--any-reader" in capsys.readouterr().err) != is_asked


def test_quantising_for_another_reader(tmp_path: Path) -> None:
    """Codes stay where LiteRT would need reals."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    builder.operator("SIN", [x], [y])
    model, samples = tmp_path / "in.circle", tmp_path / "samples.npz"
    model.write_bytes(bytes(model_bytes(builder.finish([x], [y]))))
    np.savez(samples, in_0=np.random.default_rng(1).normal(size=(16, 1, 4)).astype(np.float32))
    arguments = [str(model), "--calibration", str(samples), "-o", str(tmp_path / "out.tflite"), "--quiet"]
    assert odc_quantize.main(arguments) != 0
    assert odc_quantize.main([*arguments, "--any-reader"]) == 0
