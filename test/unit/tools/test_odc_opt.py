"""The command line of odc-opt, beyond what the lit files show."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from unittest import mock

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.common_subexpression_elimination import CommonSubexpressionElimination

from helpers.source import REPOSITORY
from odc_mlir.formats.circle.model import Model, Operator, SubGraph, Tensor
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.tools.odc_opt import main
from odc_mlir.tools.opt_passes import pass_names
from odc_mlir.transforms.circle.circle_simplify import CircleSimplifyPass

TENSORS = [Tensor("x", "float32", (2,)), Tensor("y", "float32", (2,)), Tensor("c", "float32", (2, 16), buffer=1)]
GRAPH = SubGraph("main", TENSORS, (0,), (1, 2), [Operator("RELU", inputs=(0,), outputs=(1,))])
CIRCLE = write_model(Model(subgraphs=[GRAPH], buffers=[memoryview(b""), memoryview(bytes(range(128)))]))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    path.write_bytes(CIRCLE)
    return path


def _main(*words: object) -> int:
    return main([str(word) for word in words])


def test_files_are_written_whole_with_constants_and_names(model: Path, tmp_path: Path) -> None:
    text, circle = tmp_path / "out.mlir", tmp_path / "out.circle"
    assert _main(model, "-o", text) == 0
    assert "dialect_resources" in text.read_text()
    assert 'loc("y")' in text.read_text()
    assert _main(text, "-t", "circle", "-o", circle) == 0
    assert circle.read_bytes() == write_model(read_model(circle))
    assert [tensor.name for tensor in read_model(circle).subgraphs[0].tensors] == ["x", "y", "c"]


def test_constants_can_be_left_out(model: Path, tmp_path: Path) -> None:
    elided, again = tmp_path / "elided.mlir", tmp_path / "again.mlir"
    assert _main(model, "--constants", "elide", "-o", elided) == 0
    assert "dialect_resources" not in elided.read_text()
    assert _main(elided, "--dce", "-o", again) == 0  # what is unknown stays unknown
    assert again.read_text() == elided.read_text()
    assert _main(elided, "--constants", "keep", "-o", again) == 1


def test_a_terminal_gets_the_short_form(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(sys.stdout, "isatty", return_value=True):
        assert _main(model) == 0
    assert "loc(" not in (short := capsys.readouterr().out)
    assert "dialect_resources" not in short
    with mock.patch.object(sys.stdout, "isatty", return_value=True):
        assert _main(model, "--constants", "keep", "--print-debuginfo") == 0
    assert "loc(" in (whole := capsys.readouterr().out)
    assert "dialect_resources" in whole


@pytest.mark.parametrize("words", [(), ("-",)])
def test_standard_input(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(CIRCLE))):
        assert _main(*words) == 0
    assert "circle.relu" in capsys.readouterr().out


def test_errors_of_standard_input_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\nnonsense"))):
        assert _main("-") == 1
    assert "<stdin>:2:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        (
            "--list-passes",
            [
                "passes of odc-mlir:\n  circle-infer-shapes          Infer the shape of every result",
                "\n      min-operators=1          Least number of compute operators",
                "\npasses of xDSL:\n  apply-eqsat-pdl",
                "\n  canonicalize",
            ],
        ),
        ("--list-stages", ["circle-opt", "partition", "(circle-infer-shapes)", "(native-divide-layers)"]),
        (
            "--list-targets",
            ["formats (--emit): mlir, circle, npu-listing", "machines (--target): npu-128, npu-2048, npu-256"],
        ),
        (
            "--list-rules",
            ["CONV_2D\n  rank-4: input and result are [N, H, W, C]\n", "PAD -> CONV_2D"],
        ),
    ],
)
def test_lists(flag: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(flag) == 0
    output = capsys.readouterr().out
    assert all(word in output for word in expected)


def test_patterns_are_listed_with_pass_source_and_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main("--list-patterns") == 0
    output = capsys.readouterr().out
    assert re.search(
        r"^npu-swap-axes\n  SwapAxes +transforms/npu/npu_swap_axes.py:\d+  Turn a window operation .*$", output, re.M
    )


def test_patterns_of_passes_that_run_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In place of the IR, also beside a page that shows the same rewrites."""
    page, ir = tmp_path / "page.html", REPOSITORY / "test/filecheck/transforms/convert-circle-to-npu.mlir"
    assert _main(ir, "--list-patterns", "--view", page, "--convert-circle-to-npu") == 0
    output = capsys.readouterr().out
    assert output.startswith("convert-circle-to-npu\n       0 LowerIsland ")
    assert re.findall(r"^ +1 (\w+)", output, re.M) == ["LowerRelu", "EraseUnusedConstant"]
    assert "LowerRelu" in page.read_text()


def test_every_listed_pass_has_a_flag(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main("--list-passes") == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if re.match(r"  \S", line)]
    assert tuple(listed) == pass_names()
    assert _main(model, "--apply-individual-rewrite") == 1
    assert "apply-individual-rewrite requires argument" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--help=npu-form-segments",), ("--help-pass", "npu-form-segments")])
def test_the_help_of_a_pass(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(*words) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "npu-form-segments (stage partition, native-partition)\n\nGather the operators marked for the target"
    )
    assert "Before::" in text
    assert "  min-operators (int, default 1)\n      Least number of compute operators" in text


def test_the_help_of_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main("--help=no-such") == 1
    assert "unknown pass 'no-such'" in capsys.readouterr().err


def test_both_spellings_of_the_format(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("-t", "--emit", "--target"):
        assert _main(model, flag, "mlir") == 0
    assert capsys.readouterr().out.count("circle.relu") == 3


@pytest.mark.parametrize("words", [("--stage", "circle-opt"), ("-p", "circle,circle-opt")])
def test_passes_are_added_by_position(model: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    added = ("--before", "circle-simplify=dce,canonicalize", "--before", "circle-simplify=cse")
    assert _main(model, *words, *added, "--print-ir-after-change", "-o", "-") == 0
    order = re.findall(r"IR after ([\w-]+)", capsys.readouterr().err)
    place = order.index("circle-simplify")
    assert order[place - 3 : place] == ["dce", "canonicalize", "cse"]
    assert order.count("circle-simplify") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("circle-simplfy=cse", "no stage runs a pass 'circle-simplfy'; did you mean 'circle-simplify'?"),
        ("circle-simplify", "write --before circle-simplify=PIPELINE"),
        ("circle-simplify=nothing", "nothing"),
        ("npu-choose-tiles=cse", "no pass can be inserted before 'npu-choose-tiles', which does not run here"),
    ],
)
def test_a_position_that_is_none(model: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(model, "--stage", "circle-opt", "--before", text) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--stage", "circle-opt"), ("-p", "circle,circle-opt")])
def test_an_added_pass_is_named_in_errors(
    model: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def undo(self: object, ctx: object, module: ModuleOp) -> None:
        for op in module.walk():
            op.properties.clear()

    monkeypatch.setattr(CommonSubexpressionElimination, "apply", undo)
    assert _main(model, *words, "--before", "circle-simplify=cse", "--verify-each=passes") == 1
    assert "pass cse" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--stage", "partition"), ("-p", "partition"), ("--odc-set-target",)])
def test_the_machine_to_compile_for(words: tuple[str, ...], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(model, *words, "--target", "npu-512") == 0
    assert '#odc.target<"npu-512"' in capsys.readouterr().out
    assert _main(model, "-p", "odc-set-target{target=npu-128}", "--target", "npu-512") == 0
    assert '#odc.target<"npu-128"' in capsys.readouterr().out


def _titles(model: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert _main(model, "-p", "dce,circle-simplify,odc-set-target", *words) == 0
    return re.findall(r"^IR .*", capsys.readouterr().err, re.MULTILINE)


def test_ir_around_passes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = ("--print-ir-before=odc-set-target", "--print-ir-after", "odc-set-target")
    assert _titles(model, capsys, *one) == ["IR before odc-set-target:", "IR after odc-set-target:"]
    assert len(_titles(model, capsys, "--print-ir-before-all", "--print-ir-after-all")) == 6
    assert _titles(model, capsys, "--print-ir-after-change") == [
        "IR after dce: no change",
        "IR after circle-simplify: no change",
        "IR after odc-set-target:",
    ]
    assert _titles(model, capsys, "--print-ir-after-change", "--print-ir-after=dce") == ["IR after dce: no change"]
    assert _main(model, "--print-ir-after=no-such") == 2


def test_passes_that_do_not_run_print_nothing_and_say_so(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(model, "--dce", "--print-ir-before=cse", "--print-ir-after=dce") == 0
    error = capsys.readouterr().err
    assert error.startswith(
        "odc-opt: warning: --print-ir-before=cse prints nothing: that pass does not run\nIR after dce"
    )


def test_times_are_a_tree_with_the_longest_first(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(model, "--stage", "circle-opt", "--dce", "--timing") == 0
    lines = [line.split(maxsplit=4) for line in capsys.readouterr().err.splitlines()]
    names = [line[4] for line in lines]
    assert names[0] == "total"
    assert set(names) >= {"read", "write", "circle-opt", "cse", "dce", "verify"}
    assert lines[0][2] == "100.0"
    tops = [float(line[0]) for line in lines if line[4] in ("read", "write", "circle", "circle-opt", "dce")]
    assert tops[:2] == sorted(tops[:2], reverse=True)


def test_a_crash_leaves_what_runs_by_one_command(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("one")

    words = (model, "-p", "odc-set-target{target=npu-128},circle-simplify,dce")
    with mock.patch.object(CircleSimplifyPass, "apply", crash):
        assert _main(*words) == 3
        first = capsys.readouterr().err
        path = first.split("with the file ")[1].strip()
        assert f"; odc-opt --run-reproducer {path} runs the pass again; please report" in first
        text = Path(path).read_text()
        assert text.startswith("// RUN: odc-opt %s -p 'circle-simplify,dce'\n// Traceback")
        assert "ZeroDivisionError: one" in text
        assert _main("--run-reproducer", path) == 3
        assert "ZeroDivisionError: one" in capsys.readouterr().err
    assert _main("--run-reproducer", path) == 0
    assert '#odc.target<"npu-128"' in capsys.readouterr().out


def test_only_a_reproducer_is_run_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.mlir"
    path.write_text("builtin.module {}\n")
    assert _main("--run-reproducer", path) == 1
    assert "this is not a reproducer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status"),
    [(("--no-such",), 2), (("-t", "no-such"), 2), (("--constants", "some"), 2), (("--", "--dce"), 1), (("-h",), 0)],
)
def test_exit_codes(words: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(*words) == status
    assert capsys.readouterr()


@pytest.mark.parametrize(("name", "told"), [("npu-256", True), ("mine.toml", True), ("elf", False)])
def test_a_machine_is_no_format(name: str, told: bool, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(model, "--emit", name) == 2
    assert ("--target names the machine" in capsys.readouterr().err) == told
