"""The ``quant`` dialect: affine quantised element types in upstream MLIR's syntax.

::

    !quant.uniform<i8:f32, 0.5:-3>                   one scale and zero point
    !quant.uniform<u8:f32, 0.0078125:128>            unsigned storage
    !quant.uniform<i8<-127:127>:f32, 0.5>            narrower code range, zero point 0 omitted
    !quant.uniform<i8:f32:3, {0.1, 0.25:4}>          one scale and zero point per index of dimension 3

Scales are float32 numbers, printed as the shortest decimal that parses to the same number.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Data, Dialect, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.support.floats import are_scales, float32_text, parse_real

# Storage types that upstream's syntax can name. Wider types need #circle.qparams.
STORAGE_WORDS = {
    ("i" if dtype.kind == "int" else "u") + str(dtype.bits): dtype.name
    for dtype in DTYPES.values()
    if dtype.is_integer and dtype.bits <= 32
}
_WORD_OF = {name: word for word, name in STORAGE_WORDS.items()}
_EXPRESSED = "f32"


@dataclass(frozen=True, slots=True)
class Uniform:
    """Parameters of a quantised type: ``real = scale * (code - zero_point)``, codes in [low, high].

    ``storage`` is the element type of the codes. If ``per_axis``, there is one scale per index of ``params.axis``.
    """

    storage: str
    params: QuantParams
    per_axis: bool
    low: int
    high: int


@irdl_attr_definition
class UniformQuantizedType(Data[Uniform], TypeAttribute):
    """Element type of a quantised tensor, per tensor or per axis."""

    name = "quant.uniform"

    @classmethod
    def of(cls, storage: str, params: QuantParams, *, per_axis: bool | None = None) -> UniformQuantizedType:
        """Return the type with all codes of ``storage``. By default, several scales make it per-axis."""
        low, high = DTYPES[storage].range
        return cls(Uniform(storage, params, not params.per_tensor if per_axis is None else per_axis, low, high))

    @staticmethod
    def expresses(storage: str, params: QuantParams) -> bool:
        """Return whether the type can hold ``params``: at most 32 bits, positive scales, zero points in range."""
        if storage not in _WORD_OF:
            return False
        low, high = DTYPES[storage].range
        in_range = low <= min(params.zero_points, default=0) and max(params.zero_points, default=0) <= high
        return in_range and are_scales(params.scales)

    def verify(self) -> None:
        spec = self.data
        if spec.storage not in _WORD_OF:
            raise VerifyException(f"quantised storage is {spec.storage}, allowed: {', '.join(_WORD_OF)}")
        low, high = DTYPES[spec.storage].range
        if not low <= spec.low < spec.high <= high:
            raise VerifyException(f"code range [{spec.low}, {spec.high}] does not fit {spec.storage} [{low}, {high}]")
        params = spec.params
        if not params.scales or len(params.scales) != len(params.zero_points):
            raise VerifyException(f"{len(params.scales)} scales but {len(params.zero_points)} zero points")
        if not spec.per_axis and len(params.scales) != 1:
            raise VerifyException(f"a per-tensor type has one scale, found {len(params.scales)}")
        if spec.per_axis and params.axis < 0:
            raise VerifyException(f"quantised dimension is {params.axis}, must not be negative")
        if not are_scales(params.scales):
            bad = next(scale for scale in params.scales if not are_scales((scale,)))
            raise VerifyException(f"scale is {bad}, must be a positive finite float32 number")
        if (odd := next((z for z in {*params.zero_points} if not spec.low <= z <= spec.high), None)) is not None:
            raise VerifyException(f"zero point {odd} is outside the code range [{spec.low}, {spec.high}]")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Uniform:
        with parser.in_angle_brackets():
            word = parser.parse_identifier(context_msg=" of a storage type")
            if word not in STORAGE_WORDS:
                parser.raise_error(f"unknown storage type {word}, allowed: {', '.join(STORAGE_WORDS)}")
            storage = STORAGE_WORDS[word]
            low, high = DTYPES[storage].range
            if parser.parse_optional_punctuation("<") is not None:
                low = parser.parse_integer(allow_boolean=False)
                parser.parse_punctuation(":")
                high = parser.parse_integer(allow_boolean=False)
                parser.parse_punctuation(">")
            parser.parse_punctuation(":")
            parser.parse_keyword(_EXPRESSED, " as expressed type")
            per_axis = parser.parse_optional_punctuation(":") is not None
            axis = parser.parse_integer(allow_boolean=False, allow_negative=False) if per_axis else 0
            parser.parse_punctuation(",")
            if per_axis:
                pairs = parser.parse_comma_separated_list(parser.Delimiter.BRACES, lambda: _parse_scale(parser))
            else:
                pairs = [_parse_scale(parser)]
        params = QuantParams(tuple(s for s, _ in pairs), tuple(z for _, z in pairs), axis)
        return Uniform(storage, params, per_axis, low, high)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.text()}>")

    def text(self) -> str:
        """Return the text between the angle brackets."""
        spec = self.data
        bounds = "" if (spec.low, spec.high) == DTYPES[spec.storage].range else f"<{spec.low}:{spec.high}>"
        scales = ", ".join(map(_scale_text, spec.params.scales, spec.params.zero_points))
        head = f"{_WORD_OF[spec.storage]}{bounds}:{_EXPRESSED}"
        return f"{head}:{spec.params.axis}, {{{scales}}}" if spec.per_axis else f"{head}, {scales}"


def _scale_text(scale: float, zero_point: int) -> str:
    return float32_text(scale) + (f":{zero_point}" if zero_point else "")


def _parse_scale(parser: AttrParser) -> tuple[float, int]:
    scale = parse_real(parser, " as scale")
    zero_point = 0
    if parser.parse_optional_punctuation(":") is not None:
        zero_point = parser.parse_integer(allow_boolean=False)
    return scale, zero_point


Quant = Dialect("quant", [], [UniformQuantizedType])
