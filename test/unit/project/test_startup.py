"""What a fresh process loads: commands answer --help without numpy or xDSL, the runtime never loads xDSL."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from helpers.commands import COMMANDS

HELP = """
import contextlib, io, json, sys
from {module} import main
text = io.StringIO()
status = None
with contextlib.redirect_stdout(text):
    try:
        status = main(["{flag}"])
    except SystemExit as stop:
        status = stop.code
loaded = [name for name in ("numpy", "xdsl", "flatbuffers", "h5py", "email", "concurrent") if name in sys.modules]
print(json.dumps([status or 0, text.getvalue(), loaded]))
"""


def _fresh(code: str) -> str:
    """Standard output of ``code`` run in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("flag", ["--help", "--version"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_light(command: str, flag: str) -> None:
    status, text, loaded = json.loads(_fresh(HELP.format(module=COMMANDS[command], flag=flag)))
    assert status == 0
    assert command in text
    assert loaded == []


@pytest.mark.parametrize(
    "module",
    ["odc_mlir", "odc_mlir.runtime", "odc_mlir.simulator", "odc_mlir.formats", "odc_mlir.isa", "odc_mlir.numerics"],
)
def test_no_xdsl(module: str) -> None:
    assert _fresh(f"import sys, {module}; print('xdsl' in sys.modules)").strip() == "False"


def test_the_package_itself_is_light() -> None:
    assert _fresh("import sys, odc_mlir; print([m for m in ('numpy', 'xdsl') if m in sys.modules])").strip() == "[]"


def test_the_whole_operator_table_needs_no_xdsl() -> None:
    code = """
import sys
from odc_mlir.ops import all_specs
for spec in all_specs().values():
    spec.infer_function, spec.kernel_function, spec.verify_function
print('xdsl' in sys.modules)
"""
    assert _fresh(code).strip() == "False"
