"""Tokenizers: llama2.c's files, and tokenizer.json by the package that reads it."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.language import tokenizer_bytes
from odc_mlir.errors import InputError, OdcError, UnsupportedError
from odc_mlir.formats.tokenizer import Llama2Tokenizer, read_tokenizer


def test_characters_are_joined_by_score() -> None:
    tokenizer = Llama2Tokenizer(tokenizer_bytes(), "here")
    assert tokenizer.encode("") == [1]
    assert tokenizer.encode("cab") == [1, 3, 6, 19]  # the pair "ab" is a token
    assert tokenizer.decode([1, 3, 6, 19, 2]) == "cab"
    with pytest.raises(InputError, match="the text 'z' has characters that the tokenizer lacks"):
        tokenizer.encode("z")
    with pytest.raises(InputError, match="the tokenizer has 20 tokens, there is no token 20"):
        tokenizer.decode([20])


def test_of_several_pairs_the_best_score_is_joined_first() -> None:
    pieces = [("", 0), ("", 0), ("", 0), (" ", 0), ("a", 0), ("b", 0), ("ab", -2), ("ba", -1), (" a", -3)]
    records = (struct.pack("<fi", score, len(piece)) + piece.encode() for piece, score in pieces)
    tokenizer = Llama2Tokenizer(bytes(4) + b"".join(records), "here")
    assert tokenizer.encode("aba") == [1, 8, 7]  # not [3, 6, 4]
    assert tokenizer.decode([1, 8, 7]) == "aba"


def test_other_characters_are_bytes() -> None:
    pieces = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256)), b" "]
    tokenizer = Llama2Tokenizer(bytes(4) + b"".join(struct.pack("<fi", 0, len(p)) + p for p in pieces), "here")
    ids = tokenizer.encode("\u00fc")
    assert ids == [1, 259, 3 + 0xC3, 3 + 0xBC]
    assert tokenizer.decode(ids) == "\u00fc"
    assert tokenizer.decode(ids[:-1]) == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("data", [b"", bytes(30), bytes(8), tokenizer_bytes()[:-1], bytes(8) + struct.pack("<i", -1)])
def test_damaged_files_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(data)
    with pytest.raises(InputError, match="the tokenizer is damaged"):
        read_tokenizer(path)


def test_the_package_reads_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"words": ["</s>", "a"]}')
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UnsupportedError, match="needs the package tokenizers, which is not installed"):
        read_tokenizer(path)
    inner = SimpleNamespace(
        token_to_id={"</s>": 0}.get,
        encode=lambda text: SimpleNamespace(ids=[1] * len(text)),
        decode=lambda ids: "a" * len(ids),
    )
    package = SimpleNamespace(Tokenizer=SimpleNamespace(from_str=lambda text: inner))
    monkeypatch.setitem(sys.modules, "tokenizers", package)
    tokenizer = read_tokenizer(path)
    assert (tokenizer.encode("aa"), tokenizer.decode([1]), tokenizer.ends) == ([1, 1], "a", (0,))
    package.Tokenizer.from_str = lambda text: 1 / 0
    with pytest.raises(OdcError, match="the tokenizer cannot be read"):
        read_tokenizer(path)
