"""Models and IR text as modules, and what is neither."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import odc_mlir
from odc_mlir import loading, samples
from odc_mlir.errors import ModelError, OptionError


@pytest.mark.parametrize("content", [b"", b"CIR0", bytes(range(64)), b"\xff\xfe" * 40])
def test_what_is_neither_model_nor_text(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "strange.circle"
    path.write_bytes(content)
    with pytest.raises(ModelError):
        loading.load(path)


@pytest.mark.parametrize(
    "text", ["{", '{"a": 1}', "[1, 2]", "hello world", "a,b\n1.5,2\n", "<html><body>", "5 % of it"]
)
def test_other_text_is_called_no_model_in_a_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    path.write_text(text)
    with pytest.raises(ModelError, match=r"^this text is not a model \(in [^\n]*\); give [^\n]*$"):
        loading.load(path)


@pytest.mark.parametrize("entry", ["load", "compile", "quantize", "lint", "optimize"])
@pytest.mark.parametrize("model", [7, None, [b"CIR0"]])
def test_other_objects_are_called_no_model(entry: str, model: Any) -> None:
    with pytest.raises(OptionError, match=f"type {type(model).__name__} is not a model"):
        getattr(odc_mlir, entry)(model)


def test_a_result_of_the_optimiser_is_a_model() -> None:
    optimized = odc_mlir.optimize(samples.path("digits_cnn_int8.circle"))
    assert loading.load(optimized) is loading.load(optimized.model) is optimized.model
    assert loading.copied(optimized) is not optimized.model


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing\.circle"):
        loading.load(tmp_path / "missing.circle")


def test_text_with_a_mistake_says_where() -> None:
    with pytest.raises(ModelError, match=r"stage parse") as caught:
        loading.load(b"func.func @main() {\n  circle.relu\n}\n")
    assert caught.value.location is not None
    assert ":2:" in caught.value.location or ":3:" in caught.value.location


def test_a_notebook_shows_modules_as_text() -> None:
    shown: dict[type, Any] = {}
    html = SimpleNamespace(for_type=shown.__setitem__)
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": html}))
    loading.load_ipython_extension(shell)
    ((kind, show),) = shown.items()
    module = loading.load(samples.path("digits_cnn_int8.circle"))
    assert type(module) is kind
    text = show(module)
    assert text.startswith("<pre>// odc-mlir: the bytes of ")
    assert "circle.conv_2d" in text
    assert "dense_resource" not in text
    assert len(text) < 20_000
