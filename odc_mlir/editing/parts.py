"""A model in parts, one for each run of operators that a backend gets, as ONE's ``circle-partitioner`` divides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.editing.cutting import keep_operators, main_function, main_operators
from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.partition_ini import PartitionFile
from odc_mlir.support.locations import op_name, value_name


@dataclass(frozen=True)
class ModelPart:
    """``operators``: their numbers in the main function; ``model``: they alone."""

    backend: str
    operators: tuple[int, ...]
    model: ModuleOp

    @property
    def inputs(self) -> list[str]:
        """Names of the part's inputs."""
        return [value_name(argument) for argument in main_function(self.model).body.block.args]

    @property
    def outputs(self) -> list[str]:
        """Names of the part's outputs."""
        return _given(main_function(self.model).body.block)


def _given(block: Block) -> list[str]:
    last = block.last_op
    return [value_name(value) for value in last.operands] if isinstance(last, ReturnOp) else []


def divide(module: ModuleOp, rules: PartitionFile) -> list[ModelPart]:
    """Return the parts in execution order; raise UnsupportedError for models with control flow.

    An operator joins the part of what it reads where that has its backend, and no way leads out of the part and back.
    """
    if sum(1 for _ in module.body.block.ops) > 1:
        raise UnsupportedError(
            "a model with several subgraphs cannot be partitioned", hint="extract the main one first"
        )
    ops = main_operators(module)
    backend = [_backend(op, rules) for op in ops]
    part_of: dict[CircleOp, int] = {}
    reaches: list[set[int]] = []  # the parts that each part reads of, directly or not
    members: list[list[int]] = []
    for number, op in enumerate(ops):
        sources = {part_of[v.owner] for v in op.operands if isinstance(v.owner, CircleOp) and v.owner in part_of}
        behind = set().union(sources, *(reaches[source] for source in sources))
        fitting = [
            part
            for part in sorted(sources)
            if backend[members[part][0]] == backend[number]
            and not any(part in reaches[other] for other in sources if other != part)
        ]
        if fitting:
            chosen = fitting[-1]
            members[chosen].append(number)
            reaches[chosen] |= behind - {chosen}
            _spread(chosen, reaches)
        else:
            chosen = len(members)
            members.append([number])
            reaches.append(behind)
        part_of[op] = chosen
    order = sorted(range(len(members)), key=lambda part: (len(reaches[part]), members[part][0]))
    return [ModelPart(backend[members[p][0]], tuple(members[p]), keep_operators(module, members[p])) for p in order]


def _spread(part: int, reaches: list[set[int]]) -> None:
    """What reads of ``part`` reads of all that it reads of."""
    for other in reaches:
        if part in other:
            other |= reaches[part]


def _backend(op: CircleOp, rules: PartitionFile) -> str:
    key = op.SPEC.name if rules.comply == "opcode" else op_name(op)
    return rules.by_name.get(key, rules.default)


def recipe(module: ModuleOp, parts: list[ModelPart], source: str, files: list[str]) -> dict[str, Any]:
    """How parts make the model again, as ``circle-partitioner`` writes it: tensors join them by name."""
    block = main_function(module).body.block
    return {
        "source": {
            "file": source,
            "inputs": [value_name(argument) for argument in block.args],
            "outputs": _given(block),
        },
        "parts": [
            {"file": file, "backend": part.backend, "inputs": part.inputs, "outputs": part.outputs}
            for file, part in zip(files, parts, strict=True)
        ],
    }
