"""Text of modules: aliases, resources, Unicode, locations that are unknown."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import test as test_dialect
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    ModuleOp,
    StringAttr,
    UnitAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.printer import Printer

from helpers.costly import BOMBS, alias_bomb
from odc_mlir.dialects.circle import BlobAttr
from odc_mlir.dialects.circle_types import tensor_type
from odc_mlir.errors import ModelError, OdcError
from odc_mlir.ops.spec import QuantParams
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import name_loc, op_name
from odc_mlir.support.text import OdcPrinter, module_text, parse_module, write_module
from odc_mlir.universe import make_context

AnyOp = test_dialect.TestOp

MANY = QuantParams(tuple(0.5 + i for i in range(20)), (0,) * 20, 0)


def _module(*ops: Operation) -> ModuleOp:
    return ModuleOp(list(ops))


@given(st.text(), st.text())
def test_any_text_survives(name: str, value: str) -> None:
    op = AnyOp(attributes={"text": StringAttr(value)})
    op.location = name_loc(name)
    again = parse_module(make_context(), module_text(_module(op))).body.block.first_op
    assert isinstance(again, AnyOp)
    assert op_name(again) == name
    assert again.attributes == op.attributes


def test_readable_characters_are_not_escaped() -> None:
    assert '"größe \\22x\\22 \\5C\\0A"' in module_text(_module(AnyOp(attributes={"a": StringAttr('größe "x" \\\n')})))


def test_long_types_are_named_in_order_of_appearance() -> None:
    first, second = tensor_type("int8", (20,), MANY), tensor_type("int32", (20,), MANY)
    text = module_text(_module(AnyOp(result_types=[second, first, second])))
    lines = text.splitlines()
    assert lines[0].startswith("!per_axis0 = !quant.uniform<i32:f32:0, {0.5, 1.5,")
    assert lines[1].startswith("!per_axis1 = !quant.uniform<i8:f32:0,")
    assert "(tensor<20x!per_axis0>, tensor<20x!per_axis1>, tensor<20x!per_axis0>)" in text
    assert parse_module(make_context(), text).is_structurally_equivalent(parse_module(make_context(), text))


def test_unknown_locations_are_left_out_and_nested_ones_are_not() -> None:
    named = AnyOp()
    named.location = name_loc("inner")
    text = module_text(_module(named))
    assert text.count("loc(") == 1
    again = parse_module(make_context(), text)
    assert isinstance(again.location, UnknownLoc)
    assert "loc(" not in module_text(_module(AnyOp()))
    assert "loc(" not in module_text(again, locations=False)


def test_bytes_follow_once_and_come_back_as_one_object() -> None:
    data = bytes(range(200))
    module = _module(AnyOp(attributes={"a": BlobAttr.of(data)}), AnyOp(attributes={"b": BlobAttr.of(bytes(data))}))
    text = module_text(module)
    assert text.count("dialect_resources") == 1
    assert text.count(data.hex()) == 1
    first, second = (op.attributes.popitem()[1] for op in parse_module(make_context(), text).body.block.ops)
    assert isinstance(first, BlobAttr)
    assert isinstance(second, BlobAttr)
    assert first.data is second.data
    assert bytes(first.bytes) == data


def test_clones_share_bytes() -> None:
    op = AnyOp(attributes={"a": BlobAttr.of(b"x" * 1000)})
    clone = op.clone()
    assert clone.attributes["a"].data is op.attributes["a"].data  # type: ignore[attr-defined]


def test_a_plain_printer_leaves_bytes_out() -> None:
    text = io.StringIO()
    Printer(text).print_op(_module(AnyOp(attributes={"a": BlobAttr.of(b"x" * 1000)})))
    assert len(text.getvalue()) < 300


def test_printers_and_parsers_of_xdsl_keep_bytes() -> None:
    context = make_context()
    module = parse_module(context, module_text(_module(AnyOp(attributes={"a": BlobAttr.of(b"x" * 1000)}))))
    text = io.StringIO()
    printer = Printer(text)
    printer.print_op(module)
    printer.print_metadata(context.loaded_dialects)
    again = Parser(make_context(), text.getvalue()).parse_module()
    assert module_text(again) == module_text(module)
    assert module_text(parse_module(make_context(), text.getvalue())) == module_text(module)


def test_keeping_needs_all_bytes() -> None:
    text = module_text(_module(AnyOp(attributes={"a": BlobAttr.of(b"x" * 100)})), constants="elide")
    assert "resources" not in text
    module = parse_module(make_context(), text)
    with pytest.raises(ModelError, match="not in this text"):
        write_module(module, io.StringIO(), constants="keep")
    assert module_text(module, constants="known") == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "could not parse entire input"),
        ("func.func @f(", "block argument expected|expected"),
        ('"test.op"() : () -> (tensor<4xi8', "expected '>'"),
        ("{-# dialect_resources: 5 #-}", "expected"),
        ("{-# dialect_resources: { circle: { k: 5 } } #-}", "string literal expected"),
    ],
)
def test_what_does_not_parse_says_where(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        parse_module(make_context(), "\n\n" + text, "file.mlir")
    assert caught.value.location is not None
    assert caught.value.location.startswith("file.mlir:3:")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"test.op"() {a = "' + "x" * 100_000, "end of file reached before closing string"),
        ('"test.op"() {a = @"\\99"} : () -> ()', "escapes are not UTF-8"),
        ('"test.op"() : () -> ' + "tensor<1x" * 5_000, "nested too deeply"),
        ('"test.op"() ({\n^1:\n"test.termop"() : () -> ()\n}) : () -> ()', "cannot be read: Invalid Block name"),
    ],
    ids=["unterminated", "escape", "depth", "block"],
)
def test_hostile_text_is_an_error_at_once(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parse_module(make_context(), text)


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize(("depth", "uses"), [(100, 1), (40, 1), (18, 1), (12, 100)])
def test_aliases_stand_for_so_much(kind: str, depth: int, uses: int) -> None:
    """Text of exponential meaning is refused before anything looks at it; a little of it is read back."""
    with pytest.raises(ModelError, match=r"aliases of this text expand to more than \d+ characters"):
        parse_module(make_context(), alias_bomb(kind, depth, uses))


@pytest.mark.parametrize("kind", BOMBS)
def test_some_aliases_of_aliases(kind: str) -> None:
    text = module_text(parse_module(make_context(), alias_bomb(kind, 8, 2)))
    assert module_text(parse_module(make_context(), text)) == text


def test_other_names_of_an_alias_stand_for_no_more() -> None:
    names = "".join(f"#a{i + 1} = #a{i}\n" for i in range(2000))
    module = parse_module(make_context(), f'#a0 = [1 : i32]\n{names}"test.op"() {{a = #a2000}} : () -> ()')
    assert "a = [1 : i32]" in module_text(module)


@pytest.mark.parametrize(
    "text",
    [
        '"test.op"() {a = dense<1> : tensor<100000000000xi32>} : () -> ()',
        '"test.op"() {a = dense<1.0> : tensor<3000x3000x3000xf32>} : () -> ()',
        '"test.op"() {a = dense<"0x01"> : tensor<16777300xi8>} : () -> ()',
        "#a = dense<1> : tensor<1000x1000xi32>\n" + '"test.op"() {a = #a} : () -> ()\n' * 30,
    ],
)
def test_one_value_stands_for_so_many(text: str) -> None:
    with pytest.raises(ModelError, match=r"dense attributes of this text have more than \d+ elements"):
        parse_module(make_context(), text)


def test_nested_attributes_of_a_module_are_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = 0

    def count(self: OdcPrinter, attribute: Attribute) -> None:
        nonlocal printed
        printed += 1
        original(self, attribute)

    def calls(depth: int) -> int:
        nonlocal printed
        inner = ArrayAttr[Attribute]([])
        for _ in range(depth):
            inner = ArrayAttr([StringAttr("w" * 200), inner])
        module = _module()
        module.attributes["a.deep"] = inner
        printed = 0
        module_text(module)
        return printed

    original = OdcPrinter.print_attribute
    monkeypatch.setattr(OdcPrinter, "print_attribute", count)
    assert calls(90) - calls(50) == calls(50) - calls(10)


def test_aliases_are_numbered_without_counting_all_again() -> None:
    printer = OdcPrinter(io.StringIO())
    for index in range(300):
        printer.print_attribute(name_loc(f"{index}{'n' * 70}"))
    names = [alias for alias, _ in printer.aliases.values()]
    assert names == [f"#loc{index}" for index in range(300)]


SAMPLE = """
func.func @main(%x: tensor<1x8x!quant.uniform<i8:f32, 0.5:-3>> loc("x")) -> tensor<*xf32> {
  %c = circle.const [1, -2] : tensor<2xi32>
  %d = circle.const #circle.blob<"0x01ff"> : tensor<2xi8>
  %y = circle.custom(%x, %c) {custom_code = "a", intermediates = [#circle.tensor<"m", tensor<4xi8>>, none]} :
    (tensor<1x8x!quant.uniform<i8:f32, 0.5:-3>>, tensor<2xi32>) -> tensor<*xf32>
  func.return %y : tensor<*xf32>
}
{-# dialect_resources: { circle: { k: "0x1000000000" } } #-}
"""
WORDS = re.findall(r"[\w.]+|\s+|.", SAMPLE)
STRANGE = (
    "",
    "-1",
    "99999999999999999999",
    "none",
    '"x"',
    "tensor<4xf32>",
    "%x",
    "@main",
    "?",
    "*",
    "nan",
    "]",
    ">",
    "\\",
)


@given(st.lists(st.tuples(st.integers(0, len(WORDS) - 1), st.sampled_from([*STRANGE, *WORDS])), max_size=3))
def test_damaged_text_is_read_or_refused(changes: list[tuple[int, str]]) -> None:
    words = list(WORDS)
    for place, word in changes:
        words[place] = word
    with contextlib.suppress(OdcError), typed_errors():
        module = parse_module(make_context(), "".join(words))
        module.verify()
        module_text(module)


def test_the_type_cache_tells_types_apart() -> None:
    """Types that begin alike, nest, hold strings or stand before an arrow."""
    types = [
        "tensor<4xi8>",
        "tensor<4xi8, #circle.qparams<min = [1.0], max = [2.0]>>",
        "tensor<4x!quant.uniform<i8<-127:127>:f32, 0.5>>",
        "tensor<4x!quant.uniform<i8:f32, 0.5>>",
        "tensor<*xi8>",
        'tensor<4xi8, "a>b">',
        "tensor<4xi8>",
    ]
    text = f'"test.op"() : () -> ({", ".join(types)})\n"test.op"() : () -> {types[1]}'
    first, second = parse_module(make_context(), text).body.block.ops
    assert [str(type) for type in first.result_types] == types
    assert str(second.result_types[0]) == types[1]


def test_long_locations_are_named_once_and_read_back() -> None:
    long = "layer/" + "x" * 80
    module = _module(*(test_dialect.TestOp() for _ in range(2)), test_dialect.TestOp())
    for op, name in zip(module.body.block.ops, (long, long, "short"), strict=True):
        op.location = name_loc(name)
    text = module_text(module)
    assert text.count(long) == 1
    assert text.count("loc(#loc0)") == 2
    assert 'loc("short")' in text
    assert [op_name(op) for op in parse_module(make_context(), text).body.block.ops] == [long, long, "short"]


def test_long_attributes_of_a_module_break_into_lines_and_read_back() -> None:
    module = _module()
    words = ArrayAttr([StringAttr("w" * 30)] * 4)
    module.attributes |= {"a.flag": UnitAttr(), "a.dict": DictionaryAttr({"x y": words}), "b.short": StringAttr("s")}
    text = module_text(module)
    assert max(map(len, text.splitlines())) < 60
    again = parse_module(make_context(), text)
    assert again.attributes == module.attributes
    assert module_text(again) == text


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("dense<[0x3F800000, 2.0]> : tensor<2xf32>", (1.0, 2.0)),
        ("dense<0x40000000> : tensor<2xf32>", (2.0, 2.0)),
        ("dense<0x3C00> : tensor<1xf16>", (1.0,)),
        ("dense<[0x10, 3]> : tensor<2xi32>", (16, 3)),
    ],
)
def test_hexadecimal_elements_are_the_bits_of_reals(text: str, values: tuple[float, ...]) -> None:
    found = parse_module(make_context(), f'"test.op"() {{a = {text}}} : () -> ()').body.block.first_op
    assert found is not None
    attribute = found.attributes["a"]
    assert isinstance(attribute, DenseIntOrFPElementsAttr)
    assert attribute.get_values() == values
