"""Operators on resource variables and hash tables, which have handles."""

from __future__ import annotations

from odc_mlir.ops.quantization import real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.resource"
_KERNELS = "odc_mlir.runtime.kernels.resource"

_HANDLE = Operand("resource", dtypes=("resource",))
_SHARED = real_only("operators of other functions may share its contents")
_KEYS = ("int32", "int64", "string")


def _resource(
    name: str, summary: str, operands: tuple[Operand, ...], results: tuple[Operand, ...] = (), *, options: str
) -> OpSpec:
    return OpSpec(
        name=name,
        operands=operands,
        results=results,
        options=options,
        infer=f"{_INFER}:{name.lower()}",
        kernel=f"{_KERNELS}:{name.lower()}",
        verify=f"{_INFER}:verify_{name.lower()}" if name == "HASHTABLE" else "",
        traits=frozenset({Trait.STATEFUL}),
        quant=_SHARED,
        summary=summary,
    )


SPECS = (
    _resource("VAR_HANDLE", "handle of a variable by name", (), (_HANDLE,), options="VarHandleOptions"),
    _resource("READ_VARIABLE", "value of a variable", (_HANDLE,), (Operand("value"),), options="ReadVariableOptions"),
    _resource(
        "ASSIGN_VARIABLE",
        "assignment to a variable",
        (_HANDLE, Operand("value")),
        options="AssignVariableOptions",
    ),
    _resource("HASHTABLE", "handle of a hash table by number", (), (_HANDLE,), options="HashtableOptions"),
    _resource(
        "HASHTABLE_FIND",
        "look-up of keys in a hash table, with a default",
        (_HANDLE, Operand("keys", dtypes=_KEYS), Operand("default")),
        (Operand("values"),),
        options="HashtableFindOptions",
    ),
    _resource(
        "HASHTABLE_IMPORT",
        "filling of an empty hash table",
        (_HANDLE, Operand("keys", dtypes=_KEYS), Operand("values")),
        options="HashtableImportOptions",
    ),
    _resource(
        "HASHTABLE_SIZE",
        "number of entries of a hash table",
        (_HANDLE,),
        (Operand("size", dtypes=("int64",)),),
        options="HashtableSizeOptions",
    ),
)
