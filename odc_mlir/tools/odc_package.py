"""``odc-package``: create, inspect, verify and unpack nnpackages, make firmware, and remove installed compiled code."""

from __future__ import annotations

import argparse
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from odc_mlir.errors import OdcError, OptionError
from odc_mlir.formats.kinds import FOLDER, json_kind, package_kind
from odc_mlir.formats.quantities import counted
from odc_mlir.tools.common import EXIT_USER, add_command, base_parser, tool
from odc_mlir.tools.files import add_input, add_json, add_output, add_overwrite, shown

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package


CONTENTS = json_kind("contents of a package", "package", "models", "compiled")
STATE = json_kind("the state of a package", "state", "reason", "target")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-package``."""
    parser = base_parser(
        "odc-package", "Create, inspect, verify, check, unpack and roll back nnpackages, make firmware."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    inspect = add_command(commands, "inspect", "show the contents of a package", _inspect)
    add_input(inspect, "package", metavar="PACKAGE", help="folder or zip file")
    add_json(inspect, CONTENTS, "the contents")
    add_overwrite(inspect)

    pack = add_command(commands, "pack", "create a package from model files", _pack)
    add_input(pack, "models", metavar="MODEL", nargs="+", stdin=False, help="model files, the primary model first")
    add_output(
        pack,
        "-o",
        "--output",
        metavar="PACKAGE",
        required=True,
        kind=lambda arguments: package_kind(arguments.output),
        help="folder, or zip file if it ends with .zip",
    )
    add_input(pack, "-c", "--config", metavar="FILE", help="settings to include (config.cfg)")
    for flag, metavar, text in (
        ("--graph-input", "M:S:I", "input of connected models: model, subgraph, index"),
        ("--graph-output", "M:S:I", "output of connected models: model, subgraph, index"),
        ("--connect", "M:S:I=M:S:I,…", "connect this output to these inputs"),
    ):
        pack.add_argument(flag, metavar=metavar, action="append", default=[], help=text)
    add_overwrite(pack)

    unpack = add_command(commands, "unpack", "unpack a package into a folder", _unpack)
    add_input(unpack, "package", metavar="PACKAGE", help="folder or zip file")
    add_output(unpack, "folder", metavar="FOLDER", kind=lambda arguments: package_kind(arguments.folder))
    add_overwrite(unpack)

    verify = add_command(commands, "verify", "check that a package is complete and undamaged", _verify)
    add_input(verify, "package", metavar="PACKAGE", help="folder or zip file")

    check = add_command(
        commands, "check", "check whether a package runs on this machine: runs, rebuild or cannot", _check
    )
    add_input(check, "package", metavar="PACKAGE", stdin=False, help="folder or zip file")
    check.add_argument("--target", metavar="NAME", help="target to run on (default: the package's)")
    add_json(check, STATE, "the answer")
    add_overwrite(check)

    firmware = add_command(commands, "firmware", "write C sources and objects for the NPU's driver", _firmware)
    add_input(firmware, "package", metavar="PACKAGE", stdin=False, help="folder or zip file")
    add_output(firmware, "-o", "--output", metavar="FOLDER", required=True, kind=FOLDER, help="folder of the files")
    firmware.add_argument("--triple", metavar="NAME", help="LLVM target triple (default: this machine)")
    firmware.add_argument("--cpu", default="", metavar="NAME", help="LLVM processor name")
    add_overwrite(firmware)

    rollback = add_command(
        commands, "rollback", "undo on-device compilation: the package runs its own model again", _rollback
    )
    add_input(rollback, "package", metavar="PACKAGE", stdin=False, help="folder or zip file")
    return parser


def _inspect(arguments: argparse.Namespace) -> None:
    from odc_mlir.formats.package import original_of, read_package
    from odc_mlir.runtime.package import Package, TensorSpec

    files = read_package(arguments.package)
    package, original, plan = Package(files), original_of(files), files.plan

    def tensor(spec: TensorSpec) -> dict[str, object]:
        return {name: getattr(spec, name) for name in ("name", "shape", "dtype", "scale", "zero_point")}

    document: dict[str, object] = {
        "package": shown(arguments.package),
        "bytes": sum(len(files.read(name)) for name in files.members),
        "models": list(files.manifest.models),
        "connected": files.manifest.is_connected,
        "inputs": list(map(tensor, package.inputs)),
        "outputs": list(map(tensor, package.outputs)),
        **({"states": list(map(tensor, package.states))} if package.states else {}),
        "signatures": {
            item.key: "host" if plan is None or item.subgraph else plan.target for item in package.model.signatures
        },
        **_step(package),
        "config": dict(files.config),
        "compiled": None
        if plan is None
        else {
            "plan": files.manifest.plan,
            "target": plan.target,
            "memory": plan.memory,
            "compiler_version": plan.compiler_version,
            "segments": [
                {"file": step.file, "bytes": len(files.segment(step.file)), "operators": len(step.operators)}
                for step in plan.segments
            ],
            "host_operators": sum(len(step.operators) for step in plan.steps if step.kind == "host"),
        },
        "rolls_back_to": None if original is None else list(original.manifest.models),
    }
    arguments.files.show(document, _lines(document))


def _step(package: Package) -> dict[str, object]:
    """Return the interface of a language model's step, or no fields for other models."""
    from odc_mlir.runtime.session.generation import find_interface, with_context

    inputs, outputs = package.graph.input_infos(), package.graph.output_infos()
    with suppress(OdcError):
        found = find_interface(inputs, outputs)
        found = with_context(found, package.graph) if found.context is None and package.states else found
        if found.context is not None:  # a position index alone does not make a language model
            return {"step": found.to_dict(inputs, outputs)}
    return {}


def _lines(document: dict[str, object], indent: str = "") -> list[str]:
    lines: list[str] = []
    for key, value in document.items():
        name = key.replace("_", " ")
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_lines(value, f"{indent}  ")] if value else []
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines.append(f"{indent}{name}:")
            lines += [f"{indent}  {', '.join(f'{k} {v}' for k, v in item.items() if v is not None)}" for item in value]
        elif isinstance(value, list):
            lines.append(f"{indent}{name}: {', '.join(map(str, value))}")
        elif value is not None:
            lines.append(f"{indent}{name}: {str(value).lower() if isinstance(value, bool) else value}")
    return lines


def _pack(arguments: argparse.Namespace) -> None:
    from odc_mlir.formats.package import pack, write_package

    files = pack(
        arguments.models,
        config=arguments.config,
        inputs=arguments.graph_input,
        outputs=arguments.graph_output,
        connections=arguments.connect,
    )
    write_package(files, arguments.output, overwrite=arguments.overwrite)
    arguments.files.suggest("odc-run", arguments.output, "--load", "DATA")


def _unpack(arguments: argparse.Namespace) -> None:
    from odc_mlir.formats.package import unpack

    unpack(arguments.package, arguments.folder, overwrite=arguments.overwrite)
    arguments.files.suggest("odc-run", arguments.folder, "--load", "DATA")


def _verify(arguments: argparse.Namespace) -> int | None:
    from odc_mlir.formats.package import read_package
    from odc_mlir.runtime.validity import verify_package

    checks = list(verify_package(read_package(arguments.package)))
    problems = [check for check in checks if check.problem is not None]
    for check in checks:
        if check.problem is not None or arguments.verbose:
            print(f"{check.what}: {check.problem or 'good'}")
    print(f"{counted(len(checks), 'check')}, {counted(len(problems), 'problem')}")
    return EXIT_USER if problems else None


def _check(arguments: argparse.Namespace) -> int | None:
    from odc_mlir.runtime.validity import PackageState, check

    found = check(arguments.package, arguments.target)
    document = {"state": found.state, "reason": found.reason, "target": found.target}
    arguments.files.show(document, [f"{found.state}: {found.reason}"])
    return None if found.state is PackageState.RUNS else EXIT_USER


def _firmware(arguments: argparse.Namespace) -> None:
    from odc_mlir.firmware import driver_files, emit_firmware
    from odc_mlir.formats.outputs import write_file
    from odc_mlir.runtime.package import Package

    folder = Path(arguments.output).resolve()
    name = re.sub(r"\W", "_", folder.name, flags=re.ASCII)
    files = emit_firmware(Package.from_path(arguments.package), name=name, triple=arguments.triple, cpu=arguments.cpu)
    driver = driver_files()
    if taken := [file for file in ("main.c", *driver) if Path(file).stem == name]:
        raise OptionError(f"the firmware would be called {name}, as its file {taken[0]}", hint="rename the folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in {**files, **driver}.items():
        write_file(folder / file, data)
    arguments.files.tell([f"{arguments.output}: {', '.join(files)}; the NPU's driver: {', '.join(driver)}"])


def _rollback(arguments: argparse.Namespace) -> None:
    from odc_mlir.formats.package import roll_back

    restored = roll_back(arguments.package)
    print(f"{arguments.package} runs {restored.manifest.models[0]} again")


main = tool(build_parser)
