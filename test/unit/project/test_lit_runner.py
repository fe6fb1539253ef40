"""The in-process lit runner tells passing RUN lines from failing ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.lit_runner import LitFailure, parse_pipe, run_file, run_lines


def _file(folder: Path, text: str) -> Path:
    path = folder / "case.mlir"
    path.write_text(text)
    return path


def test_run_lines_joins_continuations() -> None:
    assert run_lines("// RUN: cat %s \\\n// RUN:   | filecheck %s\nfoo\n  // RUN: cat\n") == [
        "cat %s | filecheck %s",
        "cat",
    ]


def test_pipe_is_split_into_commands() -> None:
    first, second = parse_pipe("not odc-opt file.mlir -p 'a{b=1},c' 2>&1 | filecheck file.mlir --check-prefix=X")
    assert (first.name, first.inverted, first.merge_errors) == ("odc-opt", True, True)
    assert first.arguments == ("file.mlir", "-p", "a{b=1},c")
    assert (second.name, second.inverted, second.merge_errors) == ("filecheck", False, False)


@pytest.mark.parametrize(
    "line",
    ["cat a && cat b", "cat a > b", "cat a; cat b", "rm -rf a", "cat a 2> b", ""],
)
def test_other_shapes_are_refused(line: str) -> None:
    with pytest.raises(LitFailure, match="RUN line"):
        parse_pipe(line)


def test_matching_output_passes(tmp_path: Path) -> None:
    run_file(_file(tmp_path, "// RUN: cat %s | filecheck %s\nvalue 7\n// CHECK: value [[V:[0-9]+]]\n"), tmp_path)


def test_output_that_does_not_match_fails(tmp_path: Path) -> None:
    with pytest.raises(LitFailure, match="expected status 0"):
        run_file(_file(tmp_path, "// RUN: cat | filecheck %s --allow-empty\n// CHECK: value 8\n"), tmp_path)


def test_a_command_that_must_fail_and_does_not_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(LitFailure, match="expected failure"):
        run_file(_file(tmp_path, "// RUN: not cat %s\n"), tmp_path)


def test_errors_merge_into_the_pipe_only_when_asked(tmp_path: Path) -> None:
    text = "// RUN: not filecheck {merge} %S/none | filecheck %s {flags}\n// CHECK: No such file\n"
    merged = _file(tmp_path, text.format(merge="2>&1", flags=""))
    run_file(merged, tmp_path)
    with pytest.raises(LitFailure, match="filecheck ended with status 1"):
        run_file(_file(tmp_path, text.format(merge="", flags="--allow-empty")), tmp_path)


def test_a_file_without_run_line_fails(tmp_path: Path) -> None:
    with pytest.raises(LitFailure, match="no RUN line"):
        run_file(_file(tmp_path, "// CHECK: nothing\n"), tmp_path)


def test_lit_conditions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LitFailure, match="XFAIL"):
        run_file(_file(tmp_path, "// XFAIL: *\n// RUN: cat %s\n"), tmp_path)
