"""States as pairs: texts, metadata of files and modules, and the checks against a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.models import ModelBuilder
from odc_mlir.dialects.odc import set_states, states_of
from odc_mlir.errors import ModelError, OptionError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.states import (
    NAME,
    StatePair,
    decode,
    encode,
    initial_bytes,
    others,
    pairs_of,
    positions,
)
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.ops.spec import QuantParams, TensorInfo
from odc_mlir.support.text import module_text, parse_module
from odc_mlir.universe import make_context

QUANT = QuantParams((0.5,), (3,))
H_IN = TensorInfo("h_in", "int8", (1, 2), QUANT)
H_OUT = TensorInfo("h_out", "int8", (1, 2), QUANT)
X = TensorInfo("x", "float32", (1, 2))
PAIR = StatePair("h_out", "h_in")


def test_pairs_are_given_as_texts_or_by_output() -> None:
    assert pairs_of(["h_out=h_in", PAIR]) == (PAIR, PAIR)
    assert pairs_of({"a=b": "c"}) == (StatePair("a=b", "c"),)


@pytest.mark.parametrize("text", ["", "h", "=h", "h=", "a=b=c"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="is not OUT=IN"):
        pairs_of([text])


def test_metadata_hold_names_and_initial_values() -> None:
    pairs = (PAIR, StatePair("größe", "x", b"\x00\xff"))
    assert decode(encode(pairs)) == pairs


@pytest.mark.parametrize("data", [b"x", b"{}1", b'[{"output": "a"}]', b'[{"output": 1, "input": "a"}]'])
def test_damaged_metadata_are_refused(data: bytes) -> None:
    with pytest.raises(ModelError):
        decode(data)


def test_positions_count_outputs_and_inputs() -> None:
    assert positions([PAIR], [X, H_IN], [H_OUT, X]) == ((0, 1),)
    assert others("abc", [1]) == ("a", "c")


def test_the_application_keeps_the_first_of_equal_outputs() -> None:
    other = replace(H_IN, name="g_in")
    pairs = [PAIR, StatePair("h_out", "g_in")]
    assert positions(pairs, [H_IN, other], [H_OUT, H_OUT, H_OUT]) == ((2, 0), (1, 1))
    assert positions(pairs, [H_IN, other], [H_OUT]) == ((0, 0), (0, 1))


@pytest.mark.parametrize(
    ("pairs", "changed", "message"),
    [
        ([StatePair("h_aut", "h_in")], {}, "did you mean 'h_out'"),
        ([StatePair("h_out", "y")], {}, "names no input"),
        ([PAIR, PAIR], {}, "two states have the input 'h_in'"),
        ([PAIR], {"shape": (1, 3)}, r"'h_out' is int8\[1, 2\], input 'h_in' is int8\[1, 3\]"),
        ([PAIR], {"dtype": "int16"}, r"int16\[1, 2\]"),
        ([PAIR], {"shape": (1, None)}, r"int8\[1, \?\]"),
        ([PAIR], {"quant": None}, "--state h_out=h_in"),
        ([PAIR], {"quant": QuantParams((0.25,), (3,))}, "scale 0.25 and zero point 3"),
    ],
)
def test_pairs_that_do_not_fit_are_refused(pairs: list[StatePair], changed: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        positions(pairs, [X, replace(H_IN, **changed)], [H_OUT])  # type: ignore[arg-type]


def test_an_initial_value_has_the_size_of_its_tensor() -> None:
    with pytest.raises(ModelError, match=r"3 bytes, int8\[1, 2\] needs 2"):
        positions([StatePair("h_out", "h_in", b"abc")], [H_IN], [H_OUT])


def test_states_start_at_real_zero() -> None:
    assert initial_bytes(PAIR, H_IN) == b"\x03\x03"
    assert initial_bytes(StatePair("h_out", "h_in", b"ab"), H_IN) == b"ab"


def _model() -> Model:
    builder = ModelBuilder()
    h, one, new = builder.tensor("h", (1,)), builder.tensor("one", (1,), data=np.ones(1, np.float32)), 0
    new = builder.tensor("new", (1,))
    builder.operator("ADD", [h, one], [new])
    return builder.finish([h], [new])


def test_states_survive_import_text_and_export() -> None:
    pairs = (StatePair("new", "h", np.float32(2).tobytes()),)
    module = import_model(_model())
    assert states_of(module) == ()
    set_states(module, pairs)
    assert states_of(parse_module(make_context(), module_text(module))) == pairs
    data = bytes(write_model(export_model(module)))
    again = import_model(read_model(data))
    assert states_of(again) == pairs
    assert bytes(write_model(export_model(again))) == data
    assert [name for name, _ in read_model(data).metadata] == [NAME]
    set_states(again, ())
    assert not export_model(again).metadata


def test_a_module_attribute_of_another_form_is_refused() -> None:
    text = module_text(import_model(_model()))
    module = parse_module(
        make_context(), text.replace("circle.version", "odc.states = [{output = 0 : i64}], circle.version", 1)
    )
    with pytest.raises(ModelError, match=r"allowed are output, input"):
        states_of(module)
