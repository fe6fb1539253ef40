"""What records must satisfy beyond a well-formed file: indices in range, and one definition per tensor."""

from __future__ import annotations

from collections.abc import Iterable

from odc_mlir.formats.circle.decoder import MalformedError
from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, SubGraph
from odc_mlir.formats.circle.schema import circle_schema


def check_indices(indices: Iterable[int], count: int, field: str, things: str, *, low: int = 0) -> None:
    """Raise MalformedError at ``field`` for an index outside ``low`` .. ``count - 1``."""
    for position, index in enumerate(indices):
        if not low <= index < count:
            allowed = f"{low} to {count - 1}" if count else "none, because there are none"
            raise MalformedError(f"{index} is no index of {things}; allowed: {allowed}", path=f"{field}[{position}]")


def check_operator(operator: Operator, tensor_count: int) -> None:
    """Raise MalformedError where an operator names a tensor that its subgraph lacks."""
    try:
        check_indices(operator.inputs, tensor_count, "inputs", "a tensor", low=LEFT_OUT)
        check_indices(operator.outputs, tensor_count, "outputs", "a tensor")
        check_indices(operator.intermediates, tensor_count, "intermediates", "a tensor", low=LEFT_OUT)
    except MalformedError as error:
        error.op = operator.label
        raise


def check_model(model: Model) -> None:
    """Raise MalformedError unless control flow names existing subgraphs and every subgraph is in execution order."""
    for index, subgraph in enumerate(model.subgraphs):
        try:
            for position, operator in enumerate(subgraph.operators):
                _check_references(operator, len(model.subgraphs), f"operators[{position}]")
            _check_order(model, index)
        except MalformedError as error:
            raise error.within(f"subgraphs[{index}]") from None


def _check_references(operator: Operator, subgraph_count: int, path: str) -> None:
    """Options that name subgraphs do so in their field names; the schema has no other mark."""
    if operator.options_type is None or "subgraph" not in "".join(operator.options):
        return
    fields = circle_schema().tables[operator.options_type].by_name
    for name, value in operator.options.items():
        if "subgraph" in name and fields[name].type in ("int", "uint"):
            try:
                check_indices(value if isinstance(value, tuple) else (value,), subgraph_count, name, "a subgraph")
            except MalformedError as error:
                error.op = operator.label
                raise error.within(path) from None


def _check_order(model: Model, subgraph_index: int) -> None:
    """Every tensor has one definition, and operators use only what is defined before them.

    Outputs may dangle: such files exist, and whoever runs them says which output has no value.
    """
    subgraph = model.subgraphs[subgraph_index]
    defined = set(model.constants(subgraph_index)) | set(subgraph.inputs) | {LEFT_OUT}
    defined |= {index for index, tensor in enumerate(subgraph.tensors) if tensor.is_variable}
    for position, operator in enumerate(subgraph.operators):
        for index in operator.inputs:
            if index not in defined:
                raise _misuse(subgraph, index, position, "is used before it has a value")
        for index in operator.outputs:
            if index in defined:
                raise _misuse(subgraph, index, position, "is computed although it has a value already")
            defined.add(index)


def _misuse(subgraph: SubGraph, index: int, position: int, what: str) -> MalformedError:
    return MalformedError(
        f"tensor {index} {what}",
        path=f"operators[{position}]",
        op=subgraph.operators[position].label,
        tensor=subgraph.tensors[index].name,
    )
