"""Common parts of tensor-level ``npu`` operations: attributes, integer helpers, checks against instructions."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence, Sized
from types import new_class
from typing import Any, ClassVar, TypeVar

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, IntegerType, TensorType, UnitAttr, i32
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, Data, Operation, ParametrizedAttribute, SpacedOpaqueSyntaxAttribute, SSAValue
from xdsl.irdl import EqAttrConstraint, IRDLOperation, irdl_attr_definition, param_def, result_def, traits_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from odc_mlir.dialects.circle import info_of
from odc_mlir.dialects.circle_types import parse_named_blob, print_named_blob
from odc_mlir.isa.instructions import field_range
from odc_mlir.ops.dtypes import CODE_DTYPES, DTYPES
from odc_mlir.support.blob import Blob

Ints = DenseArrayBase[IntegerType]
Int = IntegerAttr[IntegerType]

INT = IntegerAttr.constr(type=EqAttrConstraint(i32))
INTS = DenseArrayBase.constr(i32)
TENSOR = TensorType.constr()
UNIT_PAIR = DenseArrayBase.from_list(i32, [1, 1])
_CHANNEL_BYTES = 4
_INLINE_CHANNELS = 16
NO_PADS = DenseArrayBase.from_list(i32, [0, 0, 0, 0])
ZERO = IntegerAttr(0, i32)


class ElementwiseKind(StrEnum):
    """Kinds of element-wise operations."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    MAX = "max"
    MIN = "min"


class PoolKind(StrEnum):
    """Kinds of pooling."""

    MAX = "max"
    AVERAGE = "average"


class ReduceKind(StrEnum):
    """Kinds of reductions."""

    SUM = "sum"
    MAX = "max"


class ResizeKind(StrEnum):
    """Kinds of interpolation."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"


class SigmoidKind(StrEnum):
    """Functions that ``npu.sigmoid`` computes from one table."""

    LOGISTIC = "logistic"
    TANH = "tanh"


class CodeType(StrEnum):
    """Element types that the NPU computes with."""

    U8 = "u8"
    I8 = "i8"
    I16 = "i16"


Word = TypeVar("Word", bound=StrEnum)


def _attribute_of(kind: type[Word], name: str) -> type[EnumAttribute[Word]]:
    body = {"name": name, "__doc__": kind.__doc__, "__module__": __name__}
    bases = (EnumAttribute[kind], SpacedOpaqueSyntaxAttribute)  # type: ignore[valid-type]
    return irdl_attr_definition(new_class(f"{kind.__name__}Attr", bases, exec_body=lambda found: found.update(body)))


ElementwiseKindAttr = _attribute_of(ElementwiseKind, "npu.elementwise_kind")
PoolKindAttr = _attribute_of(PoolKind, "npu.pool_kind")
ReduceKindAttr = _attribute_of(ReduceKind, "npu.reduce_kind")
ResizeKindAttr = _attribute_of(ResizeKind, "npu.resize_kind")
SigmoidKindAttr = _attribute_of(SigmoidKind, "npu.sigmoid_kind")
CodeTypeAttr = _attribute_of(CodeType, "npu.code_type")


@irdl_attr_definition
class ScaleAttr(ParametrizedAttribute):
    """``#npu.scale<q, e>``: the real factor ``q * 2**(e - 31)``, applied as ``numerics.fixed.multiply``."""

    name = "npu.scale"
    multiplier: Int = param_def(INT)
    exponent: Int = param_def(INT)

    @classmethod
    def of(cls, multiplier: int, exponent: int) -> ScaleAttr:
        return cls(IntegerAttr(multiplier, i32), IntegerAttr(exponent, i32))

    @property
    def values(self) -> tuple[int, int]:
        """(multiplier, exponent)."""
        return self.multiplier.value.data, self.exponent.value.data

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> tuple[Attribute, ...]:
        with parser.in_angle_brackets():
            multiplier = parser.parse_integer()
            parser.parse_punctuation(",")
            exponent = parser.parse_integer()
        return IntegerAttr(multiplier, i32), IntegerAttr(exponent, i32)

    def print_parameters(self, printer: Printer) -> None:
        multiplier, exponent = self.values
        printer.print_string(f"<{multiplier}, {exponent}>")


@irdl_attr_definition
class ChannelsAttr(Data[Blob]):
    """One 32-bit integer per channel: ``#npu.channels<5, -6>``. Long lists are printed as blobs, ``<"4f5a…", 512>``."""

    name = "npu.channels"

    @classmethod
    def of(cls, values: Iterable[int]) -> ChannelsAttr:
        return cls(Blob(array("i", values).tobytes()))

    def __len__(self) -> int:
        return self.data.size // _CHANNEL_BYTES

    @property
    def values(self) -> memoryview:
        """Return a read-only view of the integers. Raises ModelError if the text of the IR omitted them."""
        return self.data.data.cast("i")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Blob:
        with parser.in_angle_brackets():
            if (handle := parser.parse_optional_identifier()) is None:
                found = parser.parse_comma_separated_list(
                    parser.Delimiter.NONE, lambda: parser.parse_integer(allow_boolean=False)
                )
                try:
                    return Blob(array("i", found).tobytes())
                except OverflowError:
                    parser.raise_error("a channel's value does not fit in 32 bits")
            return parse_named_blob(parser, handle)

    def print_parameter(self, printer: Printer) -> None:
        if len(self) <= _INLINE_CHANNELS and self.data.is_resolved:
            printer.print_string(f"<{', '.join(map(str, self.values))}>")
        else:
            print_named_blob(printer, self.data)


def ints(values: Iterable[int]) -> Ints:
    """Return a dense i32 array attribute."""
    return DenseArrayBase.from_list(i32, [int(v) for v in values])


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """Return the static shape of a tensor value."""
    assert isinstance(value.type, TensorType)
    return tuple(value.type.get_shape())


def dtype_of(value: SSAValue) -> str:
    """Return the storage element type of a tensor value, such as ``int8`` or ``uint8``."""
    return info_of(value).dtype


def item_bytes(value: SSAValue) -> int:
    """Return the size of an element of a tensor value in bytes."""
    return DTYPES[dtype_of(value)].numpy.itemsize


def size_bytes(value: SSAValue) -> int:
    """Return the size of a tensor value in bytes."""
    return math.prod(shape_of(value)) * item_bytes(value)


CODE_TYPES = {
    "bool": CodeType.U8,
    **{name: CodeType(f"{DTYPES[name].kind[0]}{DTYPES[name].bits}") for name in CODE_DTYPES},
}


def code_range(dtype: str) -> tuple[int, int]:
    """Return the smallest and largest result of an element type. Instructions limit numbers to 16 bits."""
    low, high = DTYPES[dtype].range
    return max(low, -1 << 15), min(high, (1 << 15) - 1)


KINDS: dict[type[StrEnum], type[EnumAttribute[Any]]] = {
    ElementwiseKind: ElementwiseKindAttr,
    PoolKind: PoolKindAttr,
    ReduceKind: ReduceKindAttr,
    ResizeKind: ResizeKindAttr,
    SigmoidKind: SigmoidKindAttr,
    CodeType: CodeTypeAttr,
}


def _property(value: Attribute | StrEnum | Iterable[Any] | int | None) -> Attribute | None:
    if value is None or isinstance(value, Attribute):
        return value
    if isinstance(value, bool):
        return UnitAttr() if value else None
    if isinstance(value, StrEnum):
        return KINDS[type(value)](value)
    if isinstance(value, int):
        return IntegerAttr(value, i32)
    items = tuple(value)
    return ArrayAttr(items) if items and isinstance(items[0], Attribute) else ints(items)


# The operand or result that each zero point belongs to, by property.
_ZERO_POINTS = {
    "in_zero": "input", "a_zero": "a", "b_zero": "b", "zero": "input", "hidden_zero": "hidden", "out_zero": "output"
}  # fmt: skip


class NpuTensorOp(IRDLOperation):
    """Base class of tensor-level operations, with common checks."""

    DTYPES: ClassVar[tuple[str, ...]] = tuple(CODE_TYPES)
    OPERAND_DTYPES: ClassVar[tuple[str, ...]] = ()  # if they differ from DTYPES
    RESULT_DTYPES: ClassVar[tuple[str, ...]] = ()
    ZEROS: ClassVar[tuple[str, ...]] = ()  # properties with the zero points of operands and result

    output = result_def(TENSOR)

    traits = traits_def(Pure())

    def __init__(
        self,
        *parts: Any,
        clamp: Sequence[int] | None = None,
        zeros: Sequence[int] = (),
        **values: Attribute | StrEnum | Iterable[Any] | int | None,
    ) -> None:
        """Create the operation from ``parts``: kind (if any), operands, and result type or types.

        ``values`` become properties of the same names, without None and False. ``clamp`` is ``act_min`` and
        ``act_max``. ``zeros`` are the values of the properties in :attr:`ZEROS`.
        """
        *operands, types = parts
        if operands and isinstance(operands[0], StrEnum):
            values["kind"] = operands.pop(0)
        if clamp is not None:
            values |= {"act_min": clamp[0], "act_max": clamp[1]}
        values |= dict(zip(self.ZEROS, zeros, strict=bool(zeros)))
        properties = {name: _property(value) for name, value in values.items()}
        result_types = [types] if isinstance(types, Attribute) else types
        super().__init__(operands=operands, properties=properties, result_types=result_types)

    def verify_(self) -> None:
        for value in (*self.operands, *self.results):
            if isinstance(value.type, TensorType):
                if any(d < 0 for d in value.type.get_shape()):
                    raise VerifyException(f"{self.name} needs static shapes, {value.type} has an unknown dimension")
                verb, dtypes = "computes with codes", self.DTYPES
                if value in self.results and self.RESULT_DTYPES:
                    verb, dtypes = "gives numbers", self.RESULT_DTYPES
                elif value in self.operands and self.OPERAND_DTYPES:
                    verb, dtypes = "takes numbers", self.OPERAND_DTYPES
                if dtype_of(value) not in dtypes:
                    raise VerifyException(f"{self.name} {verb} of {', '.join(dtypes)}, not {dtype_of(value)}")
        self.verify_operation()
        for name, place in _ZERO_POINTS.items() if self.has_zeros else ():
            zero = self.properties.get(name)
            if not isinstance(zero, IntegerAttr):
                continue
            quant = info_of(getattr(self, place)).quant
            if quant is not None and quant.per_tensor and quant.zero_point != zero.value.data:
                raise VerifyException(
                    f"{self.name}: {name} is {zero.value.data}, allowed is the zero point in the type of its {place}, "
                    f"{quant.zero_point}"
                )

    @property
    def has_zeros(self) -> bool:
        """Return whether the result depends on zero points."""
        return True

    def verify_operation(self) -> None:
        """Check properties and types that are specific to the operation. All shapes are static."""

    def check_rank4(self, *values: SSAValue) -> None:
        for value in values:
            if len(shape_of(value)) != 4:
                raise VerifyException(f"{self.name} needs [N, H, W, C] tensors, not rank {len(shape_of(value))}")

    def check_images(self, source: SSAValue) -> None:
        """Check that the result has the element type, batch and channels of ``source``."""
        kept = [(dtype_of(value), shape_of(value)[0], shape_of(value)[3]) for value in (source, self.output)]
        if kept[0] != kept[1]:
            raise VerifyException(
                f"{self.name} keeps element type, batch and channels, {source.type} became {self.output.type}"
            )

    def check_length(self, what: str, values: Sized, length: int) -> None:
        if len(values) != length:
            raise VerifyException(f"{self.name} needs {length} values in {what}, not {len(values)}")

    def check_properties(self, instruction: str, *names: str, **renamed: str) -> None:
        """Check that properties fit fields of ``instruction``. ``renamed`` maps field names to property names."""
        held = {name: name for name in names} | renamed
        self.check_fields(instruction, **{field: getattr(self, name).value.data for field, name in held.items()})

    def check_act_range(self) -> None:
        """Check that ``act_min`` and ``act_max`` are codes of the result type, in order."""
        self.check_clamp(*(getattr(self, name).value.data for name in ("act_min", "act_max")))

    def check_fields(self, instruction: str, **values: int) -> None:
        for field, value in values.items():
            low, high = field_range(instruction, field)
            if not low <= value <= high:
                raise VerifyException(f"{self.name}: {field} is {value}, the instruction holds {low} to {high}")

    def check_clamp(self, low: int, high: int) -> None:
        first, last = code_range(dtype_of(self.results[0]))
        if not first <= low <= high <= last:
            raise VerifyException(f"{self.name}: clamp [{low}, {high}] is not an interval inside [{first}, {last}]")

    def check_window(
        self, kernel: Ints, stride: Ints, dilation: Ints, pads: Ints, source: SSAValue, result: SSAValue
    ) -> None:
        """Check height and width of the result against window, strides and padded source."""
        self.check_length("kernel", kernel, 2)
        self.check_length("stride", stride, 2)
        self.check_length("dilation", dilation, 2)
        self.check_length("pads", pads, 4)
        top, left, bottom, right = pads.get_values()
        for axis, name, before, after in ((0, "height", top, bottom), (1, "width", left, right)):
            taps, step, gap = (p.get_values()[axis] for p in (kernel, stride, dilation))
            if min(taps, step, gap) < 1 or min(before, after) < 0:
                raise VerifyException(f"{self.name}: kernel, stride and dilation are at least 1, pads at least 0")
            size = shape_of(source)[axis + 1] + before + after - ((taps - 1) * gap + 1)
            expected, seen = size // step + 1, shape_of(result)[axis + 1]
            if expected != seen:
                raise VerifyException(f"{self.name}: the window gives {name} {expected}, the result has {seen}")


def same_shape(op: Operation, source: SSAValue, result: SSAValue) -> None:
    """Raise VerifyException if the two shapes differ."""
    if shape_of(source) != shape_of(result):
        raise VerifyException(f"{op.name} keeps the shape, {list(shape_of(source))} became {list(shape_of(result))}")


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the common shape after broadcasting dimensions of size 1, or None if there is none."""
    rank = max(len(a), len(b))
    padded = [(1,) * (rank - len(shape)) + shape for shape in (a, b)]
    if any(x != y and 1 not in (x, y) for x, y in zip(*padded, strict=True)):
        return None
    return tuple(y if x == 1 else x for x, y in zip(*padded, strict=True))
