"""``odc-mlir``: commands by name, completion for shells, the sample files, and all steps for one model.

``odc-mlir compile MODEL`` is ``odc-compile MODEL``; ``odc-mlir MODEL`` is in :mod:`odc_mlir.tools.front`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.kinds import FOLDER
from odc_mlir.tools import front
from odc_mlir.tools.common import EXIT_USAGE, base_parser, guarded, run_tool
from odc_mlir.tools.files import add_overwrite
from odc_mlir.tools.front import PROGRAM

if TYPE_CHECKING:
    from types import ModuleType

SHELLS = ("bash", "zsh", "fish")


def commands() -> dict[str, str]:
    """Return ``compile`` -> the module of ``odc-compile``, and so on."""
    files = sorted(Path(__file__).parent.glob("odc_*.py"))
    return {path.stem.removeprefix("odc_"): f"odc_mlir.tools.{path.stem}" for path in files}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name in (own := {"completion": _completion, "samples": _samples}):
        return own[name](rest)
    if (module := commands().get(name.removeprefix("odc-"))) is not None:
        code: int = importlib.import_module(module).main(rest)
        return code
    if name in ("", "-h", "--help"):
        return guarded(PROGRAM, _print_commands)
    if name.startswith("-") or Path(name).suffix or os.path.lexists(name):
        return front.main(arguments)
    print(
        f"{PROGRAM}: error: there is neither a model file nor a command {name!r}; commands: "
        + ", ".join([*commands(), *own]),
        file=sys.stderr,
    )
    return EXIT_USAGE


def _print_commands() -> None:
    front.build_parser().print_help()
    print("\ncommands, each with --help:")
    for command, where in commands().items():
        print(f"  {command:<12} {_summary(where)}")
    print("  completion   print the completion script for a shell: bash, zsh or fish")
    print("  samples      copy sample models and images to a folder")


def _summary(module: str) -> str:
    """Return the first line of a command's module, without its name."""
    with (Path(__file__).parent / f"{module.rpartition('.')[2]}.py").open(encoding="utf-8") as source:
        return source.readline().strip().strip('"').partition(": ")[2]


def _completion(arguments: Sequence[str]) -> int:
    parser = base_parser(
        f"{PROGRAM} completion",
        "Print what makes a shell complete the options of the commands, for its eval or a file that it sources.",
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.add_argument("command", nargs="?", type=_command, metavar="COMMAND", help="only this one")
    return run_tool(parser, _print_completion, arguments)


def _command(text: str) -> str:
    """Return the name of a command without ``odc-``; raise ArgumentTypeError."""
    name = text.removeprefix("odc-")
    if name not in commands():
        raise argparse.ArgumentTypeError(f"there is no command {text!r}; one of {', '.join(commands())}")
    return name


def _print_completion(arguments: argparse.Namespace) -> None:
    try:
        import shtab
    except ImportError:
        raise UnsupportedError("completion needs shtab", hint="pip install 'odc-mlir[completion]'") from None
    for name, where in commands().items():
        if arguments.command in (None, name):
            module: ModuleType = importlib.import_module(where)
            built: argparse.ArgumentParser = module.build_parser()
            print(shtab.complete(built, shell=arguments.shell))


def _samples(arguments: Sequence[str]) -> int:
    parser = base_parser(f"{PROGRAM} samples", "Copy sample models and pictures of handwritten digits to a folder.")
    parser.add_argument("folder", metavar="FOLDER", help="new or empty folder, or one of samples")
    add_overwrite(parser)
    return run_tool(parser, _copy_samples, arguments)


def _copy_samples(arguments: argparse.Namespace) -> None:
    from odc_mlir import samples
    from odc_mlir.formats.kinds import UNKNOWN
    from odc_mlir.formats.outputs import check_output, write_output

    folder = Path(arguments.folder)
    found = {name: samples.path(name).read_bytes() for name in samples.FILES}
    # A second copy to the same folder is none: it finds what the first one wrote.
    is_copy = folder.is_dir() and all(
        path.name in found and path.is_file() and path.read_bytes() == found[path.name] for path in folder.iterdir()
    )
    check_output(folder, FOLDER, overwrite=arguments.overwrite or is_copy)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in found.items():
        write_output(folder / name, data, UNKNOWN, overwrite=arguments.overwrite)
