"""``odc-circle``: inspect and edit models: operators, tensors, parts, shapes, quantisation parameters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import OptionError
from odc_mlir.formats.kinds import ARRAYS, FOLDER, MODEL, MODEL_BY_NAME, OutputKind, json_kind
from odc_mlir.formats.quantities import counted
from odc_mlir.tools.common import Body, add_command, base_parser, tool
from odc_mlir.tools.files import add_any_reader, add_input, add_json, add_output, add_overwrite

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from odc_mlir.dialects.circle import CircleOp

Edit = Callable[[argparse.Namespace, "ModuleOp"], "ModuleOp"]
OPERATORS = json_kind("operators of a model", "subgraph", "number", "code", "results")
RECIPE = json_kind("a recipe of parts", "source", "parts")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-circle``."""
    parser = base_parser(
        "odc-circle",
        "Inspect and edit models (.circle, .tflite, .mlir, nnpackage).",
        renamed={"--parameters": ("--parameter-file", bool)},
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    listing = _command(commands, "operators", "list operators: number, opcode, names and types of results", _operators)
    listing.add_argument(
        "--code", metavar="NAME", action="append", default=[], help="only this opcode or custom code; repeatable"
    )
    listing.add_argument(
        "--name", metavar="NAME", help="only operators with a result of this name; * and ? are wildcards"
    )
    add_json(listing, OPERATORS, "the operators")
    add_overwrite(listing)

    dump = _command(commands, "tensors", "write constants, with scales and zero points, as .npz or .h5", _tensors)
    _output(dump, ARRAYS, ".npz, .h5 or .hdf5")
    dump.add_argument("--name", metavar="NAME", help="only constants of this name; * and ? are wildcards")

    resized = _editor(commands, "resize", "change the shapes of inputs", _resize)
    resized.add_argument("--shapes", metavar="SHAPES", required=True, help="a shape for each input, such as [1,3],[4]")

    cut = _editor(commands, "extract", "extract a subgraph, given by tensors or by operators", _extract)
    cut.add_argument("--inputs", metavar="NAME", nargs="+", default=[], help="tensors that become inputs")
    cut.add_argument("--outputs", metavar="NAME", nargs="+", default=[], help="tensors that become outputs")
    cut.add_argument("--operators", metavar="NUMBERS", help="numbers of the operators of the subgraph, such as 1,3-5")

    parts = _command(commands, "partition", "split a model into parts, and write parts and connections", _partition)
    add_input(parts, "--part-file", metavar="FILE", required=True, help="backends of operators, in ONE's format")
    _output(parts, FOLDER, "folder to create for the parts", metavar="FOLDER")

    planted = _editor(commands, "implant", "set quantisation parameters of tensors", _implant)
    text = "types, scales, zero points and codes by tensor name, in the format of ONE's q-implant"
    add_input(planted, "--parameter-file", metavar="FILE.json", required=True, stdin=False, help=text)

    summary = "convert int8 codes to uint8 or the reverse, with the same represented numbers"
    turned = _editor(commands, "requantize", summary, _requantize)
    turned.add_argument("--to", choices=("int8", "uint8"), required=True, help="element type of the result")

    joined = add_command(
        commands, "join", "join models as signatures of one model, and store equal constants once", _join
    )
    text = "models; a file name becomes the name of a signature"
    add_input(joined, "models", metavar="MODEL.circle", nargs="+", stdin=False, help=text)
    _output(joined, MODEL, "joint model, .circle")

    summary = "store weights of fully connected layers and tables in groups of 4-bit or 8-bit codes"
    packed = _command(commands, "store-weights", summary, _store_weights)
    packed.add_argument(
        "--as",
        dest="form",
        choices=("int4x32", "int4x64", "ggml_q4_0", "ggml_q8_0"),
        required=True,
        help="int4 in groups, or a type of GGML",
    )
    _output(packed, MODEL, "model, .circle")

    _editor(commands, "fake-quantize", "convert a quantised model to a float model with fake quantisation", _fake)
    return parser


def _command(commands: Any, name: str, help: str, body: Body) -> argparse.ArgumentParser:
    parser = add_command(commands, name, help, body)
    add_input(parser, "model", metavar="MODEL", help="model file or nnpackage")
    return parser


def _output(parser: argparse.ArgumentParser, kind: OutputKind, help: str, metavar: str = "OUT") -> None:
    add_output(parser, "-o", "--output", metavar=metavar, kind=kind, required=True, help=help)
    add_overwrite(parser)


def _editor(commands: Any, name: str, help: str, edit: Edit) -> argparse.ArgumentParser:
    """Add a subcommand that writes the model returned by ``edit``."""
    parser = _command(commands, name, help, lambda arguments: _edit(arguments, edit))
    _output(parser, MODEL_BY_NAME, "model: .circle or .tflite")
    add_any_reader(parser)
    return parser


def _edit(arguments: argparse.Namespace, edit: Edit) -> None:
    from odc_mlir.frontend.export_circle import save_module
    from odc_mlir.runtime import api

    module = edit(arguments, api.load(arguments.model))
    save_module(module, arguments.output, overwrite=arguments.overwrite, any_reader=arguments.any_reader)
    arguments.files.suggest("odc-lint", arguments.output)


def _operators(arguments: argparse.Namespace) -> None:
    from odc_mlir.dialects.circle import CircleOp
    from odc_mlir.dialects.circle_types import tensor_facts
    from odc_mlir.runtime import api
    from odc_mlir.support.locations import value_name

    codes = {code.upper() for code in arguments.code}
    rows = []
    for function in api.load(arguments.model).body.block.ops:
        found = [op for op in function.walk() if isinstance(op, CircleOp)]
        for number, op in enumerate(found):
            names = [value_name(result) for result in op.results]
            if codes and not codes & {op.SPEC.name, _custom_code(op).upper()}:
                continue
            if arguments.name and not any(fnmatchcase(name, arguments.name) for name in names):
                continue
            facts = [tensor_facts(result.type) for result in op.results]
            rows.append(
                {
                    "subgraph": function.sym_name.data,
                    "number": number,
                    "code": op.SPEC.name,
                    **({"custom_code": _custom_code(op)} if op.SPEC.name == "CUSTOM" else {}),
                    "results": [
                        {"name": name, "dtype": item.dtype, "shape": None if item.shape is None else list(item.shape)}
                        for name, item in zip(names, facts, strict=True)
                    ],
                }
            )
    arguments.files.show(rows, map(_line, rows))


def _custom_code(op: CircleOp) -> str:
    return str(op.option("custom_code")) if op.SPEC.name == "CUSTOM" else ""


def _line(row: Mapping[str, Any]) -> str:
    shapes = ", ".join(f"{item['name']} {item['dtype']}{_shape(item['shape'])}" for item in row["results"])
    custom = f" ({row['custom_code']})" if "custom_code" in row else ""
    return f"{row['number']:5d} {row['code']}{custom}  {shapes}"


def _shape(shape: list[int | None] | None) -> str:
    return "" if shape is None else "[" + ",".join("?" if extent is None else str(extent) for extent in shape) + "]"


def _tensors(arguments: argparse.Namespace) -> None:
    from odc_mlir.editing.parameters import constants
    from odc_mlir.formats.samples import write_outputs
    from odc_mlir.runtime import api

    found = constants(api.load(arguments.model))
    if arguments.name:
        suffixes = ("", "/scale", "/zero_point")
        found = {n: a for n, a in found.items() if any(fnmatchcase(n, arguments.name + s) for s in suffixes)}
    write_outputs(arguments.output, [[]], "single", [found], overwrite=arguments.overwrite)
    arguments.files.tell([counted(len(found), "array")])


def _resize(arguments: argparse.Namespace, module: ModuleOp) -> ModuleOp:
    from odc_mlir.editing.parameters import resize

    return resize(module, _shapes(arguments.shapes))


def _shapes(text: str) -> list[tuple[int, ...]]:
    """Parse ``[1,3],[4]`` as shapes. Raises OptionError."""
    try:
        found = json.loads(f"[{text}]")
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(
        isinstance(shape, list) and all(type(extent) is int and extent > 0 for extent in shape) for shape in found
    ):
        raise OptionError(f"--shapes is {text!r}", hint="write one list of positive numbers for each input: [1,3],[4]")
    return [tuple(shape) for shape in found]


def _extract(arguments: argparse.Namespace, module: ModuleOp) -> ModuleOp:
    from odc_mlir.editing.cutting import extract, keep_operators, main_operators

    if bool(arguments.operators) == bool(arguments.inputs or arguments.outputs):
        raise OptionError(
            "specify a subgraph either by tensors or by operators", hint="give --inputs and --outputs, or --operators"
        )
    if arguments.operators:
        return keep_operators(module, _numbers(arguments.operators, len(main_operators(module))))
    return extract(module, arguments.inputs, arguments.outputs)


def _numbers(text: str, count: int) -> set[int]:
    """Parse ``1,3-5`` as numbers below ``count``. Raises OptionError."""
    found: set[int] = set()
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise OptionError(f"--operators is {text!r}", hint="write numbers and ranges: 1,3-5")
        run = range(int(first), int(last if dash else first) + 1)
        if not run or run[-1] >= count:
            raise OptionError(f"there is no operator {item.strip()}", hint=f"numbers go from 0 to {count - 1}")
        found |= set(run)
    return found


def _partition(arguments: argparse.Namespace) -> None:
    from odc_mlir.editing.cutting import divide, recipe
    from odc_mlir.formats.circle.writer import write_model
    from odc_mlir.formats.one import parse_partition
    from odc_mlir.formats.outputs import write_output
    from odc_mlir.frontend.export_circle import export_model
    from odc_mlir.runtime import api

    module = api.load(arguments.model)
    rules = parse_partition(Path(arguments.part_file).read_text(encoding="utf-8"), arguments.part_file)
    found = divide(module, rules)
    stem = Path(arguments.model).stem
    files = [f"{stem}.{number:05d}_{part.backend}.circle" for number, part in enumerate(found)]
    folder = Path(arguments.output)
    document = recipe(module, found, Path(arguments.model).name, files)
    contents = {file: bytes(write_model(export_model(part.model))) for file, part in zip(files, found, strict=True)}
    contents[f"{stem}.conn.json"] = (json.dumps(document, indent=1) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        kind = RECIPE if name.endswith(".json") else MODEL_BY_NAME
        write_output(folder / name, data, kind, overwrite=arguments.overwrite)
    pairs = zip(files, found, strict=True)
    arguments.files.tell(f"{file}: {counted(len(part.operators), 'operator')}" for file, part in pairs)


def _join(arguments: argparse.Namespace) -> None:
    from odc_mlir.formats.circle.connect import join_signatures
    from odc_mlir.formats.circle.reader import read_model
    from odc_mlir.formats.circle.writer import write_model
    from odc_mlir.formats.outputs import write_output

    models = {Path(path).stem: read_model(path) for path in arguments.models}
    if len(models) < len(arguments.models):
        raise OptionError("two models have the same name, but names of signatures must differ", hint="rename one")
    data = write_model(join_signatures(models))
    write_output(arguments.output, data, MODEL, overwrite=arguments.overwrite)
    arguments.files.tell([f"{counted(len(data), 'byte')} with the signatures {', '.join(models)}"])


def _store_weights(arguments: argparse.Namespace) -> None:
    from odc_mlir.editing.weights import store_weights
    from odc_mlir.formats.circle.reader import read_model
    from odc_mlir.formats.circle.writer import write_model
    from odc_mlir.formats.outputs import write_output

    model = read_model(arguments.model)
    stored = store_weights(model, arguments.form)
    write_output(arguments.output, write_model(model), MODEL, overwrite=arguments.overwrite)
    arguments.files.tell(
        f"{item.name}: {item.bytes_before} to {counted(item.bytes_after, 'byte')}, {item.sqnr_db:.1f} dB"
        for item in stored
    )


def _implant(arguments: argparse.Namespace, module: ModuleOp) -> ModuleOp:
    from odc_mlir.editing.parameters import implant, read_parameters

    return implant(module, read_parameters(arguments.parameter_file), Path(arguments.parameter_file).parent)


def _requantize(arguments: argparse.Namespace, module: ModuleOp) -> ModuleOp:
    from odc_mlir.editing.parameters import require_codes
    from odc_mlir.transforms.quant.quant_flip_sign import QuantFlipSignPass
    from odc_mlir.universe import make_context

    require_codes(module)
    QuantFlipSignPass(arguments.to).apply(make_context(), module)
    return module


def _fake(arguments: argparse.Namespace, module: ModuleOp) -> ModuleOp:
    from odc_mlir.editing.parameters import fake_quantize

    return fake_quantize(module)


main = tool(build_parser)
