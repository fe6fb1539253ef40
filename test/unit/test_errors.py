"""Errors are one line that says what and where."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir import errors
from odc_mlir.errors import (
    CompileError,
    InputError,
    ModelError,
    OdcError,
    PackageError,
    bounded,
    parsing,
    printable,
    shortened,
)

KINDS = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, Exception)]


def test_message_alone() -> None:
    assert str(ModelError("the shape is unknown")) == "the shape is unknown"


def test_everything_that_is_known() -> None:
    error = CompileError(
        "no tile fits", op="CONV_2D", tensor="conv/1", location="model.circle", stage="npu", hint="raise the SRAM limit"
    )
    expected = "no tile fits (in model.circle, stage npu, op CONV_2D, tensor 'conv/1'); raise the SRAM limit"
    assert str(error) == expected
    assert (error.op, error.tensor, error.location, error.stage) == ("CONV_2D", "conv/1", "model.circle", "npu")


def test_one_line_whatever_is_in_a_name() -> None:
    assert str(ModelError("bad\nvalue", tensor="a\n\tb")) == "bad value (tensor 'a\\n\\tb')"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_an_odc_error_with_a_sentence(kind: type[Exception]) -> None:
    assert issubclass(kind, OdcError)
    assert kind.__doc__
    assert "\n" not in str(kind("x"))


HOSTILE = "\x1b[2J\x9b1m\x7f\u202eevil\u2066\r\x00\ud800\U000e0041"


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zs"])))
def test_printable_text(text: str) -> None:
    """Nothing is left that a terminal would obey, what was printable stays, and once is enough."""
    result = printable(text)
    assert all(unicodedata.category(c)[0] not in "CZ" or c in " \n\t" for c in result)
    assert printable(result) == result
    assert result == text or not text.replace("\n", "").replace("\t", "").isprintable()


def test_printable_json_means_the_same() -> None:
    text = json.dumps(HOSTILE.replace("\ud800", ""), ensure_ascii=False)
    assert json.loads(printable(text)) == json.loads(text)


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_carries_control_characters(kind: type[OdcError]) -> None:
    error = kind(HOSTILE, op=HOSTILE, tensor=HOSTILE, location=HOSTILE, stage=HOSTILE, hint=HOSTILE)
    assert str(error).isprintable()
    assert error.message.replace("\n", "").isprintable()
    assert str(error.args[0]).replace("\n", "").isprintable()


def test_what_a_parser_raises_becomes_typed() -> None:
    for raised, text in (
        (KeyError("k"), "cannot read it: 'k' (in f)"),
        (IndexError(), "cannot read it: IndexError (in f)"),
        (MemoryError(), "cannot read it: it needs more memory than is available (in f)"),
        (OSError(2, "No such file"), "cannot read it: No such file (in f)"),
    ):
        with pytest.raises(InputError) as caught, parsing("cannot read it", InputError, location="f"):
            raise raised
        assert str(caught.value) == text
    with pytest.raises(PackageError, match="ours"), parsing("cannot read it", InputError):
        raise PackageError("ours")
    with pytest.raises(KeyboardInterrupt), parsing("cannot read it", InputError):
        raise KeyboardInterrupt


def test_long_names_are_cut_in_text_only() -> None:
    name = "first;" * 200 + "last"
    error = ModelError(f"the tensor {name!r} is odd, not 'short'", tensor=name)
    text = str(error)
    assert "'first;first;" in text
    assert ";last' is odd, not 'short' (tensor 'first;" in text
    assert len(text) < 400
    assert error.tensor == name
    assert shortened(f"it's {'long ' * 50} isn't it") == f"it's {'long ' * 50} isn't it"


def test_a_long_line_is_cut_between_words() -> None:
    words = [f"word{number:03}" for number in range(100)]
    head, tail = bounded(" ".join(words)).split(" … ")
    assert head.split() == words[: len(head.split())]
    assert tail.split() == words[-len(tail.split()) :]
    assert 350 < len(f"{head} … {tail}") <= 400
    assert len(bounded("x" * 999)) == 400
    assert bounded(" ".join(words[:50])) == " ".join(words[:50])
