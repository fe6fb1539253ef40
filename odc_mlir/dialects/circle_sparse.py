"""How a sparse constant is stored, as the dictionary that ``circle.const`` holds, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, DictionaryAttr, IntegerAttr, StringAttr, i32
from xdsl.ir import Attribute

from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.errors import ModelError
from odc_mlir.ops.sparse import DimMetadata, Sparsity


def sparsity_attribute(sparsity: Sparsity) -> DictionaryAttr:
    """How a sparse constant is stored, as ``circle.const`` holds it."""
    return DictionaryAttr(
        {
            "traversal_order": DenseArrayBase.from_list(i32, sparsity.traversal_order),
            "block_map": DenseArrayBase.from_list(i32, sparsity.block_map),
            "dims": ArrayAttr([_level_attribute(level) for level in sparsity.dims]),
        }
    )


def _level_attribute(level: DimMetadata) -> DictionaryAttr:
    fields: dict[str, Attribute] = {
        "format": StringAttr(level.format),
        "dense_size": IntegerAttr(level.dense_size, i32),
    }
    for name in ("segments", "indices"):
        vector = getattr(level, name)
        if vector is not None:
            fields[name] = ArrayAttr([StringAttr(vector.dtype.str), BlobAttr.of(vector.tobytes())])
    return DictionaryAttr(fields)


def sparsity_record(attribute: DictionaryAttr) -> Sparsity:
    """The file record of :func:`sparsity_attribute`; raises ModelError for a dictionary that is none."""
    try:
        order, blocks = (tuple(attribute.data[key].get_values()) for key in ("traversal_order", "block_map"))  # type: ignore[attr-defined]
        levels = tuple(_level_record(level.data) for level in attribute.data["dims"])  # type: ignore[attr-defined]
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"a sparse constant's description is malformed: {error}") from error
    return Sparsity(order, blocks, levels)


def _level_record(fields: Mapping[str, Any]) -> DimMetadata:
    import numpy as np

    vectors: dict[str, Any] = {}
    for name in ("segments", "indices"):
        if name in fields:
            dtype, blob = fields[name]
            vectors[name] = np.frombuffer(blob.bytes, np.dtype(dtype.data))
    return DimMetadata(fields["format"].data, fields["dense_size"].value.data, **vectors)
