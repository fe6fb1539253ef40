"""Shapes of custom operators."""

from __future__ import annotations

from odc_mlir.ops.infer.common import check_elements
from odc_mlir.ops.spec import Node, ResultType


def registered(node: Node) -> list[ResultType]:
    """The declared element types, with the shapes that the registered operator gives, else any."""
    operator = node.context.custom_ops.get(node.custom_code)
    if operator is None or operator.infer is None:
        return [ResultType(result.dtype, None) for result in node.results]
    shapes = operator.infer(node.operands, node.results, node.custom_options)
    if len(shapes) != len(node.results):
        raise node.error(f"the registered operator infers {len(shapes)} shapes for {len(node.results)} results")
    types = []
    for result, given in zip(node.results, shapes, strict=True):
        shape = None if given is None else tuple(None if dim is None else int(dim) for dim in given)
        if shape is not None and any(dim is not None and dim < 0 for dim in shape):
            raise node.error(f"the registered operator infers the shape {list(shape)}", tensor=result.name)
        check_elements(node, shape or (), result.dtype)
        types.append(ResultType(result.dtype, shape))
    return types
