"""Comments that expect errors, and errors in text with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from odc_mlir.errors import CompileError, ModelError, OdcError
from odc_mlir.tools.odc_opt import main
from odc_mlir.tools.opt_passes import expectations, unexpected

HERE = ModelError("scale is inf", location="f.mlir:3:5")


@pytest.mark.parametrize(
    ("line", "comment"),
    [
        (3, "expected-error {{scale}}"),
        (2, "expected-error @+1 {{scale}}"),
        (2, "expected-error@below {{scale}}"),
        (4, "expected-error @above {{is inf}}"),
        (5, "expected-error @-2 {{scale is inf}}"),
    ],
)
def test_places(line: int, comment: str) -> None:
    text = "\n" * (line - 1) + f"// {comment}"
    assert unexpected(expectations(text, 1), [HERE], "f.mlir") == []
    assert unexpected(expectations(text, 2), [HERE], "f.mlir") == [
        "f.mlir:3: unexpected error: scale is inf (in f.mlir:3:5)",
        f"f.mlir:{line + 1}: expected error {comment.split('{{')[1][:-2]!r} was not produced",
    ]


@pytest.mark.parametrize(
    ("text", "errors", "problem"),
    [
        ("", [HERE], "f:3: unexpected error: scale is inf"),
        ("// expected-error @unknown {{x}}", [], "f:1: expected error 'x' was not produced"),
        ("// expected-warning {{x}}", [CompileError("x", location="f:1:1")], "f:1: unexpected error: x"),
        ("\n\n// expected-error {{nan}}", [HERE], "f:3: unexpected error: scale is inf"),
        ("// expected-error scale", [], "f:1: no expectation: // expected-error scale"),
        ("\n\n// expected-error {{scale}}", [HERE, HERE], "f:3: unexpected error: scale is inf"),
    ],
)
def test_differences(text: str, errors: list[OdcError], problem: str) -> None:
    assert unexpected(expectations(text, 1), errors, "f")[0].startswith(problem)


def test_unknown_places() -> None:
    assert unexpected(expectations("// expected-error @unknown {{x}}", 1), [CompileError("x")], "f") == []


BAD = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
\t%0 = "circle.relu"(%x) : (tensor<2xf32>) -> tensor<2xi8>
  func.return %x : tensor<2xf32>
}
"""


def test_the_line_and_a_caret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text(BAD)
    assert main([str(path)]) == 1
    message, line, caret = capsys.readouterr().err.splitlines()
    assert f"(in {path}:2:2)" in message
    assert line == BAD.splitlines()[1]
    assert caret == "\t^^"
    assert main([str(path), "--verify-diagnostics"]) == 1
    assert capsys.readouterr().err.startswith(f"{path}:2: unexpected error: ")


def test_long_lines_are_cut_around_the_caret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "long.mlir"
    path.write_text(f'"test.op"() {{a = "{"x" * 5000}"}} : () -> () nonsense {"y" * 5000}')
    assert main([str(path)]) == 1
    _, line, caret = capsys.readouterr().err.splitlines()
    assert len(line) <= 110
    assert line[caret.index("^")] == "y"
    assert line[caret.index("^") - 1] == " "


def test_elided_text_says_so_and_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Path(__file__).parents[3] / "examples" / "digits" / "digits_cnn_int8.circle"
    path = tmp_path / "e.mlir"
    assert main([str(model), "--constants", "elide", "-o", str(path)]) == 0
    assert "large constants are omitted; --constants keep prints them" in path.read_text().splitlines()[0]
    for constants in ("keep", "elide"):  # files that the command wrote may be replaced by it
        assert main([str(model), "--constants", constants, "-o", str(path)]) == 0
    assert main([str(path), "-t", "circle", "-o", str(tmp_path / "x.circle")]) == 1
    message = capsys.readouterr().err
    assert "the 144 bytes of constant 81fecab5df72 are not in this text" in message
    assert "tensor 'conv1/weight'" in message
    assert "print the IR with --constants keep" in message
