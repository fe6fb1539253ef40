"""Table lookups, text features and hashes."""

from __future__ import annotations

from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import Node, OperatorFamily, ResultType, Shape, moved, real_only


def embedding_lookup(node: Node) -> list[ResultType]:
    """Infer one table row per id, with the declared element type."""
    ids, table, dtype = common.shape_of(node, 0, 1), common.shape_of(node, 1, least=2), node.results[0].dtype
    if table is None:
        return common.result(node, dtype, None)
    return common.result(node, dtype, (ids[0] if ids else None, *table[1:]))


def embedding_lookup_sparse(node: Node) -> list[ResultType]:
    """Infer the dense shape except its last entry, followed by the shape of a table row."""
    ids, indices, weights = common.shape_of(node, 0, 1), common.shape_of(node, 1, 2), common.shape_of(node, 3, 1)
    dense, length = common.static_ints(node, 2), common.vector_length(node, 2)
    table = common.shape_of(node, 4, least=2)
    if indices is not None:
        common.same_dim(node, indices[0], ids[0] if ids else None, "numbers of ids and indices")
        common.same_dim(node, indices[0], weights[0] if weights else None, "numbers of weights and indices")
        common.same_dim(node, indices[1], length, "entries of an index and of the dense shape")
    if length is not None and length < 1:
        raise node.error("the dense shape is empty")
    dtype = node.results[0].dtype
    if table is None or length is None:
        return common.result(node, dtype, None)
    if dense is not None and min(dense) < 0:
        raise node.error(f"the dense shape {list(dense)} must not have negative sizes")
    outer: Shape = (None,) * (length - 1) if dense is None else dense[:-1]
    return common.result(node, dtype, (*outer, *table[1:]))


def hashtable_lookup(node: Node) -> list[ResultType]:
    """Infer one value and one hit flag per key."""
    lookup, keys, values = common.shape_of(node, 0, 1), common.shape_of(node, 1, 1), common.shape_of(node, 2, least=1)
    count, dtype = lookup[0] if lookup else None, node.operand(2).dtype
    hits = common.result(node, "uint8", (count,))
    if values is None:
        return [*common.result(node, dtype, None), *hits]
    common.same_dim(node, values[0], keys[0] if keys else None, "numbers of keys and values")
    return [*common.result(node, dtype, (count, *values[1:])), *hits]


LARGEST_HASH_BITS = 32


def lsh_projection(node: Node) -> list[ResultType]:
    """Infer one number per hash function, or one bit per entry of the hash matrix."""
    hashes, x = common.shape_of(node, 0, 2), common.shape_of(node, 1, least=1)
    weight = common.shape_of(node, 2, 1) if node.optional(2) else None
    if x is not None and weight is not None:
        common.same_dim(node, x[0], weight[0], "numbers of rows and weights")
    functions, bits = hashes or (None, None)
    if bits is not None and bits > LARGEST_HASH_BITS:
        raise node.error(f"the hash functions give {bits} bits; at most {LARGEST_HASH_BITS} are possible")
    if is_dense(node):
        return common.result(node, "int32", (None if functions is None or bits is None else functions * bits,))
    return common.result(node, "int32", (functions,))


def is_dense(node: Node) -> bool:
    """Return whether an LSH_PROJECTION is dense. Raises ModelError for unknown types."""
    return common.choice(node, "type", "sparse", "dense") == "dense"


def skip_gram(node: Node) -> list[ResultType]:
    """Infer one string per skip-gram."""
    common.check_single(node, 0)
    if int(common.option(node, "ngram_size")) < 0:
        raise node.error(f"ngram_size is {common.option(node, 'ngram_size')}; it must not be negative")
    return common.result(node, "string", (None,))


_op = OperatorFamily(__name__, quant=real_only("its arithmetic is defined for real values"), verify="shapes")

SPECS = (
    _op(
        "EMBEDDING_LOOKUP",
        "ids:int table",
        "rows of a table, dequantised if the result is float",
        options=None,
        version=4,
        quant=moved(1, table=0),
    ),
    _op(
        "EMBEDDING_LOOKUP_SPARSE",
        "ids:int indices:int dense_shape:int weights:float32 table",
        "weighted sums or weighted means of table rows",
    ),
    _op(
        "HASHTABLE_LOOKUP",
        "lookup:int keys:int values",
        "values of keys (0 for a missing key), and whether each key exists",
        gives="output hits:uint8",
        options=None,
        quant=moved(2),
        verify="first",
    ),
    _op(
        "LSH_PROJECTION",
        "hash:float32 input weight?:float32",
        "signs of weighted sums of hashes of the input's rows",
        gives="output:int32",
        options="LSHProjectionOptions",
    ),
    _op(
        "SKIP_GRAM",
        "input:string",
        "n-grams of a sentence that may skip a few words",
        gives="output:string",
    ),
)
