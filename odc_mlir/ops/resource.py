"""Operators on resource variables and hash tables, both referred to by handles."""

from __future__ import annotations

from odc_mlir.ops.infer.common import check_single, option, result, shape_of
from odc_mlir.ops.spec import STATEFUL, Node, OperatorFamily, ResultType, real_only

_ENTRIES = ("int32", "int64", "string")


def verify_hashtable(node: Node) -> None:
    """Check that keys and values are integers or strings."""
    for name in ("key_dtype", "value_dtype"):
        if option(node, name) not in _ENTRIES:
            raise node.error(f"the option {name} is {option(node, name)}; allowed are {', '.join(_ENTRIES)}")


def hashtable_find(node: Node) -> list[ResultType]:
    """Infer the keys' shape and the default's element type."""
    check_single(node, 2)
    return result(node, node.operand(2).dtype, shape_of(node, 1))


def hashtable_size(node: Node) -> list[ResultType]:
    """Infer one number."""
    return result(node, "int64", (1,))


_SHARED = real_only("operators of other functions may share its contents")


_op = OperatorFamily(__name__, quant=_SHARED, traits=STATEFUL, infer="infer.common:open_results", verify=None)

SPECS = (
    _op("VAR_HANDLE", "", "handle of a variable by name", gives="resource:resource"),
    _op("READ_VARIABLE", "resource:resource", "value of a variable", gives="value"),
    _op("ASSIGN_VARIABLE", "resource:resource value", "assignment to a variable", gives=""),
    _op("HASHTABLE", "", "handle of a hash table by number", gives="resource:resource", verify="own"),
    _op(
        "HASHTABLE_FIND",
        "resource:resource keys:int|string default",
        "look-up of keys in a hash table, with a default",
        gives="values",
        infer="hashtable_find",
    ),
    _op("HASHTABLE_IMPORT", "resource:resource keys:int|string values", "filling of an empty hash table", gives=""),
    _op(
        "HASHTABLE_SIZE",
        "resource:resource",
        "number of entries of a hash table",
        gives="size:int64",
        infer="hashtable_size",
    ),
)
