"""The adapter that Model Explorer loads: ``.circle``, ``.mlir`` and zipped packages become graphs.

Needs the extra ``explorer``. The viewer has a reader of its own for ``.tflite`` and offers both.
"""

from __future__ import annotations

from typing import Any

from model_explorer import Adapter, AdapterMetadata, ModelExplorerGraphs
from model_explorer import graph_builder as viewer

from odc_mlir.model_explorer.graphs import graph, opened


class OdcAdapter(Adapter):  # type: ignore[misc]
    """Reads what odc-mlir reads."""

    metadata = AdapterMetadata(
        id="odc_mlir",
        name="odc-mlir",
        description="Circle models, IR and compiled packages: where operators run, why, and what they cost.",
        fileExts=["circle", "tflite", "mlir", "zip"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        """The graph of the file; raises OdcError."""
        found = graph(*opened(model_path))
        nodes = [_node(**node) for node in found["nodes"]]
        return {"graphs": [viewer.Graph(id=found["id"], nodes=nodes)]}


def _node(**fields: Any) -> Any:
    """A node of the viewer's own classes."""
    made = {name: fields[name] for name in ("id", "label", "namespace")}
    made["attrs"] = _pairs(fields["attrs"])
    made["incomingEdges"] = [viewer.IncomingEdge(**edge) for edge in fields["incomingEdges"]]
    for side in ("inputsMetadata", "outputsMetadata"):
        items = fields.get(side, [])
        made[side] = [viewer.MetadataItem(id=item["id"], attrs=_pairs(item["attrs"])) for item in items]
    return viewer.GraphNode(**made)


def _pairs(attrs: list[dict[str, str]]) -> list[Any]:
    return [viewer.KeyValue(**attr) for attr in attrs]
