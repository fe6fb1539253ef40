"""What records must satisfy beyond a well-formed file: indices and shapes in range, and one definition per tensor."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from odc_mlir.formats.circle.decoder import MalformedError
from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, Signature, SubGraph, Tensor
from odc_mlir.formats.circle.schema import subgraph_fields

# No process can address a tensor of more elements.
MAX_ELEMENTS = 1 << 47


def check_model(model: Model) -> None:
    """Raise MalformedError where an index or a shape is impossible, or a tensor is used before it has a value."""
    if not model.subgraphs:
        raise MalformedError("the model has none", path="subgraphs")
    check_indices(model.metadata_buffer, len(model.buffers), "metadata_buffer", "a buffer")
    for position, (_, buffer) in enumerate(model.metadata):
        check_index(buffer, len(model.buffers), f"metadata[{position}].buffer", "a buffer")
    for position, signature in enumerate(model.signatures):
        _check_signature(model, signature, f"signature_defs[{position}]")
    for index, subgraph in enumerate(model.subgraphs):
        try:
            _check_subgraph(model, subgraph)
            _check_order(subgraph, model.constants(index).keys())
        except MalformedError as error:
            raise error.within(f"subgraphs[{index}]") from None


def check_index(index: int, count: int, path: str, things: str, *, low: int = 0) -> None:
    """Raise MalformedError at ``path`` for an index outside ``low`` .. ``count - 1``."""
    if not low <= index < count:
        allowed = f"{low} to {count - 1}" if count else "none, because there are none"
        raise MalformedError(f"{index} is not an index of {things}; allowed: {allowed}", path=path)


def check_indices(indices: Iterable[int], count: int, field: str, things: str, *, low: int = 0) -> None:
    """Raise MalformedError at ``field`` for an index outside ``low`` .. ``count - 1``."""
    for position, index in enumerate(indices):
        if not low <= index < count:
            check_index(index, count, f"{field}[{position}]", things, low=low)


def _check_signature(model: Model, signature: Signature, path: str) -> None:
    check_index(signature.subgraph, len(model.subgraphs), f"{path}.subgraph_index", "a subgraph")
    count = len(model.subgraphs[signature.subgraph].tensors)
    check_indices(signature.inputs.values(), count, f"{path}.inputs", "a tensor")
    check_indices(signature.outputs.values(), count, f"{path}.outputs", "a tensor")


def _check_subgraph(model: Model, subgraph: SubGraph) -> None:
    for index, tensor in enumerate(subgraph.tensors):
        try:
            check_index(tensor.buffer, len(model.buffers), "buffer", "a buffer")
            _check_shape(tensor)
            if tensor.is_variable and len(model.buffers[tensor.buffer]):
                raise MalformedError("a variable starts at zero, so its buffer must be empty", path="buffer")
        except MalformedError as error:
            error.tensor = tensor.name
            raise error.within(f"tensors[{index}]") from None
    count = len(subgraph.tensors)
    check_indices(subgraph.inputs, count, "inputs", "a tensor")
    check_indices(subgraph.outputs, count, "outputs", "a tensor")
    for index, operator in enumerate(subgraph.operators):
        try:
            check_indices(operator.inputs, count, "inputs", "a tensor", low=LEFT_OUT)
            check_indices(operator.outputs, count, "outputs", "a tensor")
            check_indices(operator.intermediates, count, "intermediates", "a tensor", low=LEFT_OUT)
            _check_references(operator, len(model.subgraphs))
        except MalformedError as error:
            error.op = operator.label
            raise error.within(f"operators[{index}]") from None


def _check_shape(tensor: Tensor) -> None:
    shape, signature = tensor.shape, tensor.shape_signature
    for name, dims in (("shape", shape), ("shape_signature", signature)):
        if dims is None:
            continue
        if min(dims, default=0) < -1:
            raise MalformedError(f"{list(dims)} has a negative dimension other than -1 (unknown)", path=name)
        if prod(max(dim, 1) for dim in dims) > MAX_ELEMENTS:
            raise MalformedError(f"{list(dims)} has more elements than fit in any memory", path=name)
    if shape is not None and signature and len(signature) != len(shape):
        raise MalformedError(f"{list(signature)} has another rank than the shape {list(shape)}", path="shape_signature")


def _check_references(operator: Operator, subgraph_count: int) -> None:
    for name in subgraph_fields(operator.options_type):
        value = operator.options.get(name, ())
        check_indices(value if isinstance(value, tuple) else (value,), subgraph_count, name, "a subgraph")


def _check_order(subgraph: SubGraph, constants: Iterable[int]) -> None:
    """Check that each tensor has one definition, before its first use.

    Outputs may dangle: such files exist, and whoever runs them says which output has no value.
    """
    defined = {LEFT_OUT, *constants, *subgraph.inputs}
    defined |= {index for index, tensor in enumerate(subgraph.tensors) if tensor.is_variable}
    computed = {index for operator in subgraph.operators for index in operator.outputs}
    # Custom operators of other compilers have scratch buffers as operands, which nothing computes.
    customs = [operator for operator in subgraph.operators if operator.name == "CUSTOM"]
    defined |= {index for operator in customs for index in operator.inputs if index not in computed}
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
