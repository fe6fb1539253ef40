"""Resource variables and hash tables.

Handles are arrays of rank 0 that hold the resource itself. Resources live in the state of the run's context until it is
reset, and operators of all subgraphs share resources by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from odc_mlir.ops.infer.common import option
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import fetch, input_error, single

T = TypeVar("T")


@dataclass(slots=True)
class Variable:
    """A resource variable. ``value`` is None until the first assignment."""

    name: str
    value: Array | None = None


@dataclass(slots=True)
class HashTable:
    """A hash table. ``entries`` is None until the import."""

    number: int
    key_dtype: str
    value_dtype: str
    entries: dict[Any, Any] | None = None


def _handle(resource: Any) -> Array:
    array = np.empty((), object)
    array[()] = resource
    return array


def _resource(node: Node, kind: type[T], name: str) -> Callable[[Sequence[Array | None]], T]:
    source = fetch(node, 0)

    def resource(operands: Sequence[Array | None]) -> T:
        held = single(node, source(operands), "the handle")[()]
        if not isinstance(held, kind):
            raise input_error(node, f"the handle does not refer to a {name}")
        return held

    return resource


def var_handle(node: Node) -> Execute:
    """Return the handle of the variable named by the options."""
    name = "/".join(part for part in (option(node, "container"), option(node, "shared_name")) if part)
    key = "variable", option(node, "container"), option(node, "shared_name")
    return lambda operands: [_handle(node.context.state.resource(key, lambda: Variable(name)))]


def read_variable(node: Node) -> Execute:
    """Read a variable. Raises ModelError before the first assignment."""
    variable_of, dtype = _resource(node, Variable, "variable"), node.results[0].info.numpy

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        variable = variable_of(operands)
        if variable.value is None:
            raise node.error(f"the variable {variable.name!r} is read before the first assignment")
        if variable.value.dtype != dtype:
            raise node.error(f"the variable {variable.name!r} holds {variable.value.dtype}, the result is {dtype}")
        return [variable.value]

    return execute


def assign_variable(node: Node) -> Execute:
    """Put operand 1 into a variable."""
    variable_of, value_of = _resource(node, Variable, "variable"), fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        # The operand may be the caller's input or a view of a buffer that changes.
        value = value_of(operands).copy()
        value.flags.writeable = False
        variable_of(operands).value = value
        return []

    return execute


def hashtable(node: Node) -> Execute:
    """Return the handle of the table numbered by the options."""
    number, dtypes = int(option(node, "table_id")), (option(node, "key_dtype"), option(node, "value_dtype"))
    key = "table", number, *dtypes
    return lambda operands: [_handle(node.context.state.resource(key, lambda: HashTable(number, *dtypes)))]


def hashtable_import(node: Node) -> Execute:
    """Fill an empty table with keys and values. A filled table stays unchanged."""
    table_of, keys_of, values_of = _resource(node, HashTable, "table"), fetch(node, 1), fetch(node, 2)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        table, keys, values = table_of(operands), keys_of(operands), values_of(operands)
        _check_dtypes(node, table, 1, 2)
        if keys.shape != values.shape:
            raise input_error(node, f"there are keys {list(keys.shape)} and values {list(values.shape)}")
        if table.entries is None:
            table.entries = {}
            for key, value in zip(keys.ravel().tolist(), values.ravel().tolist(), strict=True):
                table.entries.setdefault(key, value)
        return []

    return execute


def hashtable_find(node: Node) -> Execute:
    """Look up the value of each key, or the default. Raises ModelError before the table is filled."""
    table_of, keys_of, default_of = _resource(node, HashTable, "table"), fetch(node, 1), fetch(node, 2)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        table, keys, default = table_of(operands), keys_of(operands), default_of(operands)
        _check_dtypes(node, table, 1, 2)
        other = single(node, default, "the default").tolist()
        entries = _entries(node, table)
        found = np.empty(keys.size, default.dtype)
        for place, key in enumerate(keys.ravel().tolist()):
            found[place] = entries.get(key, other)
        return [found.reshape(keys.shape)]

    return execute


def hashtable_size(node: Node) -> Execute:
    """Count the entries, ``[1]``. Raises ModelError before the table is filled."""
    table_of = _resource(node, HashTable, "table")
    return lambda operands: [np.array([len(_entries(node, table_of(operands)))], np.int64)]


def _entries(node: Node, table: HashTable) -> dict[Any, Any]:
    if table.entries is None:
        raise node.error(f"hash table {table.number} is used before its import")
    return table.entries


def _check_dtypes(node: Node, table: HashTable, keys: int, values: int) -> None:
    seen = node.operand(keys).dtype, node.operand(values).dtype
    if seen != (table.key_dtype, table.value_dtype):
        raise node.error(
            f"keys are {seen[0]} and values {seen[1]}; table {table.number} has {table.key_dtype} and "
            f"{table.value_dtype}"
        )
