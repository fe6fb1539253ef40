"""Import of exported PyTorch programs into the ``circle`` dialect."""

from __future__ import annotations

import copy
import importlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, NameLoc, StringAttr, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, Region, SSAValue

from odc_mlir.dialects.circle import BlobAttr, tensor_type
from odc_mlir.dialects.odc import StatePlace, put_states
from odc_mlir.errors import ModelError, OdcError, OptionError, UnsupportedError, of_extra
from odc_mlir.formats import source_lines
from odc_mlir.frontend.torch.graph import Builder, dtype_of, narrowed, shape_of
from odc_mlir.frontend.torch.shapes import CHECKED_INDICES
from odc_mlir.frontend.torch.table import ROWS, pattern_of, reason_for
from odc_mlir.support.blob import Blob
from odc_mlir.support.collection import seldom_collected
from odc_mlir.support.diagnostics import verify_module
from odc_mlir.support.locations import Positions, hint_of, name_loc

_PACKAGES = os.path.join("site-packages", "")
_FRAME = re.compile(r'^\s*File "([^"<]*)", line (\d+)', re.MULTILINE)
_ONLY_TENSORS = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # environment variable of PyTorch's unpickler


def torch_module() -> Any:
    """Return PyTorch. Raises OptionError if it is not installed."""
    with of_extra("torch", OptionError, "PyTorch models need PyTorch"):
        import torch
    return torch


@contextmanager
def _as_model_errors(text: str, location: str = "") -> Iterator[None]:
    """Convert errors of other libraries to ModelErrors that begin with ``text``. There is no common base class."""
    with warnings.catch_warnings(action="ignore"):
        try:
            yield
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ModelError(f"{text}: {reason}", location=location or _source_line(str(error))) from error


@seldom_collected()
def exported(module: Any, example_inputs: Any, dynamic_shapes: Any) -> Any:
    """Return the program of a module, exported in evaluation mode. Raises ModelError if PyTorch cannot export it."""
    torch = torch_module()
    if isinstance(module, torch.export.ExportedProgram):
        return module
    if example_inputs is None or not isinstance(module, torch.nn.Module):
        text = "example_inputs is missing" if example_inputs is None else f"a {type(module).__name__} is no module"
        raise OptionError(text, hint="give a torch.nn.Module, and a tuple of tensors that it accepts")
    named = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    given = example_inputs if isinstance(example_inputs, tuple | list) else (example_inputs,)
    modes = {part: part.training for part in module.modules()}
    try:
        with _as_model_errors("PyTorch cannot export the module"), torch.no_grad():
            with suppress(NotImplementedError):  # a module that PyTorch has exported keeps its mode
                module.eval()
            return torch.export.export(module, () if named else tuple(given), named, dynamic_shapes=dynamic_shapes)
    finally:
        for part, mode in modes.items():
            part.training = mode


def read_program(path: str) -> Any:
    """Return the program in a file of ``torch.export.save``. Raises ModelError if PyTorch cannot read it.

    Pickled objects other than tensors are rejected, because they can contain code.
    """
    torch = torch_module()
    with _as_model_errors("PyTorch cannot read the program", path):
        before = {key: os.environ[key] for key in [_ONLY_TENSORS] if key in os.environ}
        os.environ[_ONLY_TENSORS] = "1"
        try:
            with suppress(ImportError):  # declares the operators of quantised programs
                importlib.import_module("torch.ao.quantization.fx._decomposed")
            return torch.export.load(path)
        finally:
            del os.environ[_ONLY_TENSORS]
            os.environ |= before


def answers(program: Any) -> list[list[Any]]:
    """Return the tensors among the example inputs of an exported program, and its outputs. Buffers do not change."""
    torch, run = torch_module(), program.module()
    buffers = {name: buffer.clone() for name, buffer in run.named_buffers()}
    with _as_model_errors("PyTorch cannot run the program"), torch.no_grad():
        made = torch.func.functional_call(run, buffers, *copy.deepcopy(program.example_inputs))
    ends = map(torch.utils._pytree.tree_leaves, (program.example_inputs, made))
    return [[_array(item) for item in end if isinstance(item, torch.Tensor)] for end in ends]


def convert_with_tico(program: Any) -> bytes:
    """Convert an exported program to a Circle file with TICO."""
    try:
        import tico
    except ImportError:
        raise OptionError("via='tico' needs TICO", hint="pip install tico") from None
    with _as_model_errors("TICO cannot convert the module"):
        return bytes(tico.convert_from_exported_program(program).circle_binary)


@seldom_collected()
def decomposed(program: Any) -> Any:
    """Return the program after PyTorch decomposed the operators without a pattern."""
    torch = torch_module()
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        table = torch.export.default_decompositions()
        for target in [target for target in table if str(target).removeprefix("aten.") in ROWS]:
            table.pop(target)

        def batch_norm(x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
            groups = x.transpose(0, 1)
            made = torch.group_norm(groups.reshape(1, len(groups), -1), len(groups), weight, bias, eps)
            return made.reshape(groups.shape).transpose(0, 1), None, None

        aten, norm = torch.ops.aten, torch.linalg.vector_norm
        further = [aten.addmv, aten.bucketize, aten.dist, aten.grid_sampler_2d, aten.tril_indices, aten.triu_indices]
        ours = {
            aten._cdist_forward.default: lambda a, b, p, _: norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1),
            aten._pdist_forward.default: lambda x, p=2: torch.cdist(x, x, p)[*torch.triu_indices(len(x), len(x), 1)],
            aten._native_batch_norm_legit.no_stats: batch_norm,
            aten.var_mean.correction: lambda x, dim=None, **o: (x.var(dim, **o), x.mean(dim, o.get("keepdim", False))),
        }
        table.update(torch._decomp.get_decompositions(further) | ours)
        return program.run_decompositions(table)


@seldom_collected()
def import_program(program: Any) -> ModuleOp:
    """Return the verified module of a decomposed program. Raises an UnsupportedError that lists all problems."""
    module = _Importer(program).module()
    verify_module(module, Positions())
    return module


class _Importer:
    def __init__(self, program: Any) -> None:
        self.program = program
        self.g = Builder()
        self.values: dict[Any, Any] = {}
        self.problems: list[tuple[str, str, str]] = []  # operator, source line and reason
        self.shared: dict[int, SSAValue] = {}
        signature = program.graph_signature
        self.updated: dict[str, str] = dict(signature.buffers_to_mutate)  # output -> buffer
        tensors = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.tensors: dict[str, str] = {**tensors, **signature.inputs_to_lifted_tensor_constants}
        self.states: dict[str, int] = {}  # buffer -> index of its input
        self.lines: dict[str, str] = {}  # by node name

    def module(self) -> ModuleOp:
        nodes = list(self.program.graph.nodes)
        places = {node.args[CHECKED_INDICES[n]] for node in nodes if (n := str(node.target)) in CHECKED_INDICES}
        inputs = [node for node in nodes if node.op == "placeholder"]
        for node in sorted(inputs, key=lambda node: node.name in self.tensors):
            self._input(node)
        for node in nodes:
            if node.op == "call_function":
                self._call(node)
            if node in places and node in self.values:
                self.g.places.add(self.values[node])
        if self.problems:
            raise _joint_error(self.problems)
        states = self._outputs(nodes[-1])
        self.g.drop_unused()
        block = self.g.block
        last = block.last_op
        assert last is not None, "a function ends in func.return"
        function = FuncOp("main", (block.arg_types, list(last.operand_types)), Region(block))
        function.location = name_loc("main")
        module = ModuleOp(list[Operation]([function]), attributes={"circle.version": IntegerAttr(0, i32)})
        if self.lines:
            lines = BlobAttr(Blob(memoryview(source_lines.encode(self.lines))))
            entry = DictionaryAttr({"name": StringAttr(source_lines.NAME), "data": lines})
            module.attributes["circle.metadata"] = ArrayAttr([entry])
        module.location = name_loc("main")
        put_states(module, states)
        return module

    def _input(self, node: Any) -> None:
        target = self.tensors.get(node.name)
        example = node.meta.get("val")
        if target is None or target in self.updated.values():
            if not hasattr(example, "shape"):
                if node.users:
                    self._problem(node, f"the input {node.name!r} is {example!r}", "make it a tensor")
                return
            argument = self.g.block.insert_arg(
                tensor_type(dtype_of(example.dtype), shape_of(example)), len(self.g.block.args)
            )
            name = target or node.name
            argument.location, argument.name_hint = name_loc(name), hint_of(name)
            self.values[node] = argument
            if target is not None:
                self.states[target] = argument.index
            return
        if node.users:
            tensor = self._tensor(target)
            known = self.shared.get(id(tensor))
            self.values[node] = self.g.constant(_array(tensor), target) if known is None else known
            self.shared[id(tensor)] = self.values[node]

    def _tensor(self, target: str) -> Any:
        found = self.program.state_dict.get(target)
        return self.program.constants[target] if found is None else found

    def _call(self, node: Any) -> None:
        pattern = pattern_of(node.target)
        if pattern is None:
            self._problem(node, "no equivalent", reason_for(node.target))
            return self._undefined(node)
        self.g.begin(node, name := _name_of(node))
        if place := _source_line(node.meta.get("stack_trace")):
            self.lines[name] = place
        try:
            options = {key: self._value(item) for key, item in node.kwargs.items()}
            made = pattern(self.g, *map(self._value, node.args), **options)
            is_tensor = isinstance(made, SSAValue) and hasattr(self.g.out, "shape")
            location = NameLoc(StringAttr(name), name_loc(place))
            self.values[node] = self.g.finish(made, location) if is_tensor else made
        except Exception as error:  # any type: patterns may not support this form of the operator
            text = error.message if isinstance(error, OdcError) else f"its conversion fails: {error}"
            self._problem(node, text, getattr(error, "hint", None) or reason_for(node.target))
            self._undefined(node)

    def _undefined(self, node: Any) -> None:
        """Give ``node`` placeholder results, so that the search for problems continues."""
        out = node.meta.get("val")
        parts = tuple(
            self.g.undefined(part) if hasattr(part, "shape") else self.g.number(1, "int32")
            for part in (out if isinstance(out, tuple | list) else (out,))
        )
        self.values[node] = parts if isinstance(out, tuple | list) else parts[0]

    def _value(self, item: Any) -> Any:
        if isinstance(item, list | tuple):
            return [self._value(part) for part in item]
        if type(item).__name__ != "Node":
            return item
        if item not in self.values:
            raise UnsupportedError(f"it reads {item.name}, which is no tensor")
        if self.values[item] is None:
            raise UnsupportedError(f"it reads {item.name}, a result without equivalent", hint=reason_for(item.target))
        return self.values[item]

    def _outputs(self, node: Any) -> list[StatePlace]:
        specs = self.program.graph_signature.output_specs
        kept: list[SSAValue] = []
        updates: list[tuple[str, Any]] = []
        for item, spec in zip(node.args[0], specs, strict=True):
            value = self._value(item) if type(item).__name__ == "Node" else None
            if spec.kind.name == "BUFFER_MUTATION":
                updates.append((spec.target, value))
            elif spec.kind.name == "USER_OUTPUT" and isinstance(value, SSAValue):
                kept.append(value)
            elif spec.kind.name != "USER_OUTPUT":
                text = f"the program changes its input {spec.target!r}"
                raise UnsupportedError(text, hint="change a clone of it, or make it a buffer")
        result = ReturnOp(*kept, *(value for _, value in updates))
        result.location = name_loc("main")
        self.g.block.add_op(result)
        places = []
        for place, (target, _) in enumerate(updates, len(kept)):
            start = _array(self._tensor(target))
            places.append((place, self.states[target], start.tobytes() if start.any() else None))
        return places

    def _problem(self, node: Any, text: str, hint: str) -> None:
        operator, place = str(node.target), _source_line(node.meta.get("stack_trace"))
        if operator == "with_effects":  # PyTorch's wrapper of an operator, often a check of a result of the same line
            if any(place == known for _, known, _ in self.problems):
                return
            operator = str(node.args[1])
        self.problems.append((operator, place, f"{text}; {hint}" if hint else text))


def _joint_error(problems: list[tuple[str, str, str]]) -> UnsupportedError:
    found: dict[tuple[str, str], list[str]] = {}
    for operator, place, text in problems:
        found.setdefault((operator, text), []).append(place)
    lines = []
    for (operator, text), places in found.items():
        distinct = sorted({place for place in places if place})
        lines.append(f"{operator}{' at ' * bool(distinct)}{', '.join(distinct)}: {text}")
    count = f"{len(found)} operators of the program cannot be converted: " if len(found) > 1 else ""
    error = UnsupportedError(count + "; ".join(lines))
    error.is_list = True
    return error


def _array(tensor: Any) -> Any:
    found = tensor.detach().cpu()
    dtype_of(found.dtype)
    return narrowed((found.float() if str(found.dtype) == "torch.bfloat16" else found).contiguous().numpy())


def _name_of(node: Any) -> str:
    stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    paths = [str(entry[0]) for entry in stack.values()]
    path = paths[-1] if paths else ""
    own = path.isidentifier() or "." in path
    return f"{path}/{node.name}" if path and own and not path.startswith("_") else str(node.name)


def _source_line(trace: str | None) -> str:
    """Return file and line of the innermost call of a stack trace outside of PyTorch, or "".

    Files of packages are relative to the packages' folder, all other files to the current folder.
    """
    frames = _FRAME.findall(trace or "")
    inside = os.path.join(_PACKAGES, "torch", "")
    own = [frame for frame in frames if inside not in frame[0] and not frame[0].startswith("torch/")]
    file, line = (own or frames or [("", "")])[-1]
    file = file.rpartition(_PACKAGES)[2]
    return f"{os.path.relpath(file) if os.path.exists(file) else file}:{line}" if file else ""
