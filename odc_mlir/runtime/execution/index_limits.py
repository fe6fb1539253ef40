"""Limits on graph inputs that are indices into tables, for random inputs."""

from __future__ import annotations

from odc_mlir.runtime.execution.graph import Graph, GraphNode

# Operators that copy numbers of these operands to their results.
_PASSED_ON = {
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "CAST", "TRANSPOSE", "SLICE", "STRIDED_SLICE"), (0,)),
    **dict.fromkeys(("TILE", "BROADCAST_TO", "REVERSE_V2", "UNPACK", "SPLIT_V", "GATHER", "GATHER_ND"), (0,)),
    "SPLIT": (1,),
}
_JOINED = ("CONCATENATION", "PACK")  # all operands


def index_limits(graph: Graph) -> tuple[int | None, ...]:
    """Return the exclusive limit on indices in each input; None for inputs that are not indices."""
    limits: dict[int, int] = {}
    for item in reversed(graph.nodes):
        for place, tensor in enumerate(item.inputs):
            found = _limit(item, place, limits)
            if found is not None and tensor >= 0:
                limits[tensor] = min(found, limits.get(tensor, found))
    return tuple(limits.get(tensor) for tensor in graph.inputs)


def _limit(item: GraphNode, place: int, limits: dict[int, int]) -> int | None:
    """Return the limit on numbers of one operand: as indices, or as copies in a limited result."""
    name = item.node.spec.name
    if place == (0 if name == "EMBEDDING_LOOKUP" else 1) and name in ("GATHER", "GATHER_ND", "EMBEDDING_LOOKUP"):
        return _extent(item, name)
    if name in _JOINED or place in _PASSED_ON.get(name, ()):
        return min((limits[tensor] for tensor in item.outputs if tensor in limits), default=None)
    return None


def _extent(item: GraphNode, name: str) -> int | None:
    """Return the smallest extent of the indexed dimensions of the table."""
    table = item.node.operands[1 if name == "EMBEDDING_LOOKUP" else 0]
    shape = None if table is None else table.shape
    if not shape:
        return None
    if name == "EMBEDDING_LOOKUP":
        return shape[0]
    if name == "GATHER":
        return shape[int(item.node.options.get("axis") or 0) % len(shape)]
    indices = item.node.operands[1]
    depth = None if indices is None or not indices.shape else indices.shape[-1]
    known = [extent for extent in shape[:depth] if extent is not None]
    return min(known) if depth is not None and known else None
