"""Tokenizers: binary files of llama2.c, and ``tokenizer.json`` through the ``tokenizers`` package."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from odc_mlir.errors import InputError, UnsupportedError, of_extra, parsing
from odc_mlir.formats.samples import read_regular

_RECORD = struct.Struct("<fi")
_BYTE = re.compile(rb"<0x([0-9A-F]{2})>")
_BEGIN, _END, _FIRST_BYTE = 1, 2, 3
_END_NAMES = ("</s>", "<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "<eos>")


class Llama2Tokenizer:
    """Byte-pair tokenizer of llama2.c. ``ends`` are the tokens that end a text.

    The file holds the longest length, then score, length and bytes of each token.
    """

    ends: tuple[int, ...] = (_BEGIN, _END)

    def __init__(self, data: bytes, location: str) -> None:
        self.pieces: list[bytes] = []
        self.scores: list[float] = []
        at, damaged = 4, InputError("the tokenizer is damaged", location=location)
        while at < len(data):
            if at + _RECORD.size > len(data):
                raise damaged
            score, length = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            if not 0 <= length <= len(data) - at:
                raise damaged
            self.scores.append(score)
            self.pieces.append(data[at : at + length])
            at += length
        if len(self.pieces) < _FIRST_BYTE:
            raise damaged
        self._ids = {piece: id for id, piece in reversed(list(enumerate(self.pieces)))}

    def encode(self, text: str) -> list[int]:
        """Return the start token and the ids of ``text``.

        Tokens of characters, or else of bytes, are merged as long as a pair is a token, in order of decreasing score.
        """
        ids: list[int] = []
        for character in f" {text}" if text else "":
            piece = character.encode("utf-8", "surrogateescape")
            known = self._ids.get(piece)
            ids += [_FIRST_BYTE + byte for byte in piece] if known is None else [known]
        if max(ids, default=0) >= len(self.pieces):
            raise InputError(f"the text {text!r} has characters that the tokenizer lacks")
        while True:
            pairs = [self._ids.get(self.pieces[a] + self.pieces[b]) for a, b in pairwise(ids)]
            places = [at for at, found in enumerate(pairs) if found is not None]
            if not places:
                return [_BEGIN, *ids]
            best = max(places, key=lambda at: self.scores[pairs[at] or 0])
            ids[best : best + 2] = [pairs[best] or 0]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids`` without the space that encoding adds. Incomplete characters become U+FFFD."""
        wrong = next((id for id in ids if not 0 <= id < len(self.pieces)), None)
        if wrong is not None:
            raise InputError(f"the tokenizer has {len(self.pieces)} tokens, there is no token {wrong}")
        pieces = [self.pieces[id] for id in ids if id not in self.ends]
        raw = (bytes([int(found[1], 16)]) if (found := _BYTE.fullmatch(piece)) else piece for piece in pieces)
        return b"".join(raw).decode("utf-8", "replace").removeprefix(" ")


class JsonTokenizer:
    """Tokenizer of a ``tokenizer.json`` file. ``ends`` are the tokens that end a text."""

    def __init__(self, data: bytes, location: str) -> None:
        need = "tokenizer.json needs the package tokenizers, which is not installed"
        with of_extra("tokenizers", UnsupportedError, need, location=location):
            import tokenizers
        with parsing("the tokenizer cannot be read", InputError, location=location):
            self._inner: Any = tokenizers.Tokenizer.from_str(data.decode())
        found = (self._inner.token_to_id(name) for name in _END_NAMES)
        self.ends: tuple[int, ...] = tuple(id for id in found if id is not None)

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, including ids of the file's template."""
        return list(self._inner.encode(text).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids`` without special tokens."""
        return str(self._inner.decode(list(ids)))


Tokenizer = Llama2Tokenizer | JsonTokenizer


def read_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Return the tokenizer in a file of either kind. Raises InputError for a damaged file, or UnsupportedError."""
    data = read_regular(Path(path))
    location = os.fspath(path)
    return JsonTokenizer(data, location) if data.lstrip()[:1] == b"{" else Llama2Tokenizer(data, location)
