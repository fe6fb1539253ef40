"""``odc-reduce``: shrink a model while a command still fails on it."""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from odc_mlir.errors import OdcError, OptionError
from odc_mlir.formats.kinds import MODEL_BY_NAME
from odc_mlir.formats.quantities import counted
from odc_mlir.tools.common import base_parser, tool
from odc_mlir.tools.files import add_input, add_output, add_overwrite, add_switch

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

_PLACE = "{}"
_CANNOT_RUN = (126, 127)  # exit codes of shells for commands that they cannot start


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-reduce``."""
    parser = base_parser(
        "odc-reduce",
        "Shrink a model on which a command fails: remove operators, then set weights to zero, as long as the exit code "
        "of the command stays the same.",
        epilog="The command runs in a shell; {} is replaced by the path of the model, which is appended if {} is "
        "missing. The command may be any test of a property: it must fail if the property holds.",
    )
    add_input(parser, "model", metavar="MODEL", help="model file or nnpackage")
    parser.add_argument("--check", metavar="COMMAND", required=True, help="command that fails on the model")
    text = "smaller model: .circle, .tflite"
    add_output(parser, "-o", "--output", metavar="OUT", kind=MODEL_BY_NAME, required=True, help=text)
    parser.add_argument("--match", metavar="TEXT", help="text that the command must also print (stdout or stderr)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="limit of one run (%(default)s s)")
    parser.add_argument(
        "--max-checks", type=int, default=1000, metavar="N", help="maximum number of runs of the command (%(default)s)"
    )
    add_switch(parser, "--keep-weights", "do not set weights to zero")
    add_overwrite(parser)
    return parser


def _body(arguments: argparse.Namespace) -> None:
    import tempfile

    from odc_mlir.editing.cutting import reduce
    from odc_mlir.frontend.export_circle import save_module
    from odc_mlir.runtime import api

    if arguments.max_checks < 1:
        raise OptionError(f"--max-checks is {arguments.max_checks}", hint="give 1 or more")
    if not arguments.check.strip():
        raise OptionError("--check is empty", hint="give a command that fails")
    module = api.load(arguments.model)
    suffix = Path(arguments.output).suffix.lower()
    with tempfile.TemporaryDirectory(prefix="odc-reduce-") as folder:
        path = Path(folder, f"model{suffix}")

        def run(candidate: ModuleOp) -> tuple[int, str]:
            save_module(candidate, path, overwrite=True, any_reader=True)
            return _run(arguments.check, path, arguments.timeout)

        def fails(candidate: ModuleOp) -> bool:
            try:
                ended, printed = run(candidate)
            except OdcError:  # a model that cannot be written is not a candidate
                return False
            return ended == code and (arguments.match is None or arguments.match in printed)

        code, text = run(module)
        if code == 0:
            raise OptionError("the command succeeds on the whole model", hint="it has to fail; see --help")
        if code in _CANNOT_RUN:
            said = " ".join(text.split())
            raise OptionError(f"the command cannot be run, exit code {code}" + (f": {said}" if said else ""))
        if arguments.match and arguments.match not in text:
            raise OptionError(f"the command fails on the whole model, but does not print {arguments.match!r}")
        path.write_bytes(b"")
        is_blind = _run(arguments.check, path, arguments.timeout) == (code, text)
        found = reduce(module, fails, most_checks=arguments.max_checks, zeros=not arguments.keep_weights)
    # A program may fail on a model that LiteRT does not run.
    save_module(found.model, arguments.output, overwrite=arguments.overwrite, any_reader=True)
    if is_blind:
        print(
            f"odc-reduce: note: the command ends with {code} and the same output on an empty file: it may not read the "
            "model",
            file=sys.stderr,
        )
    operators = f"{counted(found.before, 'operator')} before, {found.after} after"
    arguments.files.tell([f"{operators} {counted(found.checks, 'check')}"])
    arguments.files.suggest("odc-circle", "operators", arguments.output)


def _run(command: str, path: Path, timeout: float) -> tuple[int, str]:
    """Return exit code and output of ``command`` on the file. A timeout counts as a failure."""
    from odc_mlir.process_limits import end_group

    place = shlex.quote(str(path))
    text = command.replace(_PLACE, place) if _PLACE in command else f"{command} {place}"
    with subprocess.Popen(
        text,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            end_group(process.pid)
            process.communicate()
            return -signal.SIGALRM, ""
        except BaseException:
            end_group(process.pid)
            raise
    return process.returncode, output.decode(errors="replace")


main = tool(build_parser, _body)
