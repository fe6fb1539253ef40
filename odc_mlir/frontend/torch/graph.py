"""Builder of a ``circle`` function for the conversion patterns of PyTorch's operators.

64-bit integers become int32. 16-bit and 64-bit floats become float32. Extents of a shape are integers, or int32 scalars
if they are known only at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import (
    BlobAttr,
    CircleOp,
    ConstOp,
    NoneOp,
    UndefinedOp,
    info_of,
    node_of,
    op_class,
    tensor_facts,
    tensor_type,
)
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.errors import UnsupportedError
from odc_mlir.frontend.import_circle import add_named
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams, Shape
from odc_mlir.support.blob import Blob
from odc_mlir.support.locations import hint_of, names_loc, value_name

Extent = int | SSAValue
Operand = SSAValue | NDArray[Any] | Sequence[Extent] | float | None

DTYPES_OF_TORCH = {
    **{f"torch.{name}": name for name in ("bool", "int8", "uint8", "int16", "int32", "float32")},
    **dict.fromkeys(("torch.float16", "torch.bfloat16", "torch.float64"), "float32"),
    **dict.fromkeys(("torch.int64", "torch.uint16"), "int32"),
}
"""Element types by PyTorch's element types."""

_RANGE = np.iinfo(np.int32)


def dtype_of(kind: object) -> str:
    """Return the element type for a ``torch.dtype``. Raises UnsupportedError if there is no equivalent."""
    if (found := DTYPES_OF_TORCH.get(str(kind))) is None:
        raise UnsupportedError(f"the element type {kind} has no equivalent", hint="use real numbers of 32 bits")
    return found


def is_float(dtype: str) -> bool:
    """Return whether ``dtype`` holds real numbers."""
    return DTYPES[dtype].numpy.kind == "f"


def shape_of(example: Any) -> Shape:
    """Return the shape of PyTorch's example of a tensor. Extents known only at run time are None."""
    return tuple(extent if isinstance(extent, int) else None for extent in example.shape)


def narrowed(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array`` in at most 32 bits per element. Raises UnsupportedError for values that do not fit."""
    is_wide = array.dtype in (np.int64, np.uint16)
    if is_wide and array.size and not (_RANGE.min <= array.min() and array.max() <= _RANGE.max):
        raise UnsupportedError(f"a constant has the value {array.max()}, which is no 32-bit integer")
    kind = np.int32 if is_wide else np.float32 if array.dtype.kind == "f" else array.dtype
    return np.ascontiguousarray(array, kind).reshape(array.shape)


class Builder:
    """Builder of a function. ``out`` is PyTorch's example of the result of the current ``node``."""

    def __init__(self) -> None:
        self.block = Block()
        self.out: Any = None
        self.node: Any = None
        self.name = ""
        self.places = set[SSAValue]()  # indices that are never negative
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], SSAValue] = {}
        self._permuted: dict[tuple[SSAValue, tuple[int, ...]], SSAValue] = {}
        self._steps = 0

    def begin(self, node: Any, name: str) -> None:
        self.node, self.name, self.out, self._steps = node, name, node.meta.get("val"), 0

    def __call__(
        self,
        name: str,
        *operands: Operand,
        dtype: str = "",
        second: str = "",
        results: int = 1,
        quant: QuantParams | None = None,
        **options: Any,
    ) -> Any:
        """Add operator ``name`` and return its result, or a tuple of several results.

        Numbers as operands get the element type of the first tensor. Sequences are lists of int32. ``dtype`` is the
        element type of the first result, ``second`` the element type of further results. Default types are inferred, or
        equal the type of the first tensor.
        """
        kind = next((self.dtype(item) for item in operands if isinstance(item, SSAValue)), "float32")
        values = [self._operand(item, kind) for item in operands]
        declared = [tensor_type(dtype or kind, None), *[tensor_type(second or dtype or kind, None)] * (results - 1)]
        made = op_class(name).make(values, declared, options)
        missing = {key: option for key, option in made.OPTIONS.items() if key not in made.properties}
        made.properties |= {key: o.encode(o.default) for key, o in missing.items() if o.default is not None}
        node = node_of(made)
        for result, found in zip(tuple(made.results), node.spec.infer_function(node), strict=True):
            type = tensor_type(dtype if quant else found.dtype, found.shape, quant)
            Rewriter.replace_value_with_new_type(result, type)
        self._steps += 1
        label = f"{self.name}/{made.SPEC.mnemonic}" + (f"_{self._steps}" if self._steps > 1 else "")
        made.location = names_loc([label, *(f"{label}:{i}" for i in range(1, results))])
        for result in made.results:
            result.name_hint = hint_of(label)
        self.block.add_op(made)
        return made.results[0] if results == 1 else tuple(made.results)

    def _operand(self, item: Operand, kind: str) -> SSAValue:
        if isinstance(item, SSAValue):
            return item
        if item is None:
            return add_named(self.block, NoneOp(), "none")
        if isinstance(item, np.ndarray):
            return self.constant(item)
        return self.ints(item) if isinstance(item, Sequence) else self.number(item, kind)

    def finish(self, value: SSAValue, location: LocationAttr) -> SSAValue:
        """Return ``value``, the result of the current node, with the location and the extents that PyTorch knows."""
        wanted, dtype = shape_of(self.out), dtype_of(self.out.dtype)
        found = self.shape(value)
        fits = found is None or (
            len(found) == len(wanted) and all(a is None or b in (None, a) for a, b in zip(found, wanted, strict=True))
        )
        if not fits or self.dtype(value) != dtype:
            raise UnsupportedError(f"its conversion gives {self.dtype(value)} {found}, PyTorch {dtype} {wanted}")
        merged = wanted if found is None else tuple(b if a is None else a for a, b in zip(found, wanted, strict=True))
        if merged != found:
            value = Rewriter.replace_value_with_new_type(value, with_shape(value.type, merged))
        owner = value.owner
        if isinstance(owner, CircleOp) and len(owner.results) == 1 and value_name(value).startswith(f"{self.name}/"):
            owner.location, value.name_hint = location, hint_of(self.name)
        return value

    def constant(self, array: NDArray[Any], name: str = "") -> SSAValue:
        """Return a constant. Equal constants without a name are the same value."""
        array = narrowed(array)
        type = tensor_type(str(array.dtype), array.shape)
        if name:
            return add_named(self.block, ConstOp(BlobAttr(Blob(array.reshape(-1).view(np.uint8).data)), type), name)
        key = (array.tobytes(), str(array.dtype), array.shape)
        if key not in self._constants:
            made = ConstOp(BlobAttr(Blob(key[0])), type)
            self._constants[key] = add_named(self.block, made, f"constant_{len(self._constants)}")
        return self._constants[key]

    def undefined(self, example: Any) -> SSAValue:
        """Return a placeholder for a result that cannot be computed."""
        dtype = DTYPES_OF_TORCH.get(str(example.dtype), "float32")
        return add_named(self.block, UndefinedOp(tensor_type(dtype, shape_of(example))), "undefined")

    def number(self, value: float, dtype: str) -> SSAValue:
        """Return a scalar. Limits of 64-bit integers and larger numbers become limits of a narrower integer type."""
        kind = DTYPES[dtype].numpy
        if kind.kind in "iu":
            fitting = int(min(max(value, np.iinfo(kind).min), np.iinfo(kind).max))
            if not -1 < value - fitting < 1 and abs(value) < 2**63 - 1:
                raise UnsupportedError(f"a constant has the value {value}, which is no {dtype}")
            value = fitting
        return self.constant(np.array(value, kind))

    def ints(self, values: Sequence[Extent]) -> SSAValue:
        numbers = [value for value in values if isinstance(value, int)]
        if len(numbers) == len(values):
            return self.constant(np.array(numbers, np.int32))
        parts = [self.cast(value, "int32") for value in values]
        made: SSAValue = self("PACK", *parts, values_count=len(parts), axis=0)
        return made

    def array(self, value: SSAValue) -> NDArray[Any] | None:
        return info_of(value).array() if isinstance(value.owner, ConstOp) else None

    def shape(self, value: SSAValue) -> Shape | None:
        return tensor_facts(value.type).shape

    def dtype(self, value: SSAValue) -> str:
        return tensor_facts(value.type).dtype

    def rank(self, value: SSAValue) -> int:
        return len(self.shape(value) or ())

    def static(self, value: SSAValue, *axes: int) -> tuple[int, ...]:
        """Return the extents of axes (default: all). Raises UnsupportedError for extents known only at run time."""
        shape = self.shape(value) or ()
        shape = tuple(shape[axis] for axis in axes) if axes else shape
        known = tuple(extent for extent in shape if extent is not None)
        if len(known) < len(shape):
            raise UnsupportedError("this operator needs static shapes", hint="export it without dynamic_shapes")
        return known

    def dims(self, value: SSAValue) -> list[Extent]:
        return [self.dim(value, axis) for axis in range(self.rank(value))]

    def dim(self, value: SSAValue, axis: int) -> Extent:
        shape = self.shape(value) or ()
        if (known := shape[axis]) is not None:
            return known
        sizes = self("SHAPE", value, dtype="int32", out_type="int32")
        made: SSAValue = self("GATHER", sizes, self.number(axis % len(shape), "int32"))
        return made

    @property
    def out_dtype(self) -> str:
        """Element type of the current node's result."""
        return dtype_of(self.out.dtype)

    def cast(self, value: Extent | float, dtype: str) -> SSAValue:
        if not isinstance(value, SSAValue):
            return self.number(value, dtype)
        found = self.dtype(value)
        if found == dtype:
            return value
        if (array := self.array(value)) is not None:
            return self.constant(array.astype(DTYPES[dtype].numpy))
        options: dict[str, Any] = {"dtype": dtype, "in_data_type": found, "out_data_type": dtype}
        made: SSAValue = self("NOT_EQUAL", value, 0) if dtype == "bool" else self("CAST", value, **options)
        return made

    def reshape(self, value: SSAValue, dims: Sequence[Extent]) -> SSAValue:
        """Return ``value`` in another shape. One extent may be -1."""
        if tuple(dims) == self.shape(value):
            return value
        unknown = [place for place, extent in enumerate(dims) if not isinstance(extent, int)]
        if len(unknown) == 1 and -1 not in [extent for extent in dims if isinstance(extent, int)]:
            dims = [-1 if place == unknown[0] else extent for place, extent in enumerate(dims)]
        new = [extent if isinstance(extent, int) else -1 for extent in dims]
        options: dict[str, Any] = {"new_shape": new} if new.count(-1) < 2 else {}
        made: SSAValue = self("RESHAPE", value, self.ints(dims), **options)
        return made

    def transpose(self, value: SSAValue, order: Sequence[int]) -> SSAValue:
        """Return ``value`` with its axes in another order. Constants are transposed immediately."""
        order = tuple(axis % len(order) for axis in order)
        if order == tuple(range(len(order))):
            return value
        if (array := self.array(value)) is None:
            made: SSAValue = self("TRANSPOSE", value, order)
            return made
        if (value, order) not in self._permuted:
            self._permuted[value, order] = self.constant(array.transpose(order), value_name(value))
        return self._permuted[value, order]

    def broadcast(self, value: SSAValue, dims: Sequence[Extent]) -> SSAValue:
        if (array := self.array(value)) is not None and all(isinstance(extent, int) for extent in dims):
            return self.constant(np.broadcast_to(array, dims))  # type: ignore[arg-type]
        return value if tuple(dims) == self.shape(value) else self("BROADCAST_TO", value, self.ints(dims))

    def drop_unused(self) -> None:
        """Erase unused constants and operators."""
        for op in reversed(list(self.block.ops)):
            if isinstance(op, ConstOp | NoneOp | CircleOp) and not any(result.uses for result in op.results):
                Rewriter.erase_op(op)
