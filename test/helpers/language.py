"""A tiny language model with caches, for any numbers of tokens in a step, and a tokenizer for it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from helpers.models import ModelBuilder
from odc_mlir.formats.circle.model import Model, Signature

VOCABULARY, CONTEXT, WIDTH = 20, 8, 4
PIECES = ["<unk>", "<s>", "</s>", " ", *"abcdefghijklmno", "ab"]


def _weights() -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(5)
    shapes = {"e": (VOCABULARY, WIDTH), "p": (CONTEXT, WIDTH), "o": (VOCABULARY, WIDTH)}
    shapes |= dict.fromkeys("qkv", (WIDTH, WIDTH))
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


class _Steps(ModelBuilder):
    def __init__(self) -> None:
        super().__init__()
        self.buffers: dict[str, int] = {}

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> int:
        """A constant whose buffer all subgraphs share."""
        made = self.tensor(name, value.shape, value.dtype.name, data=None if name in self.buffers else value)
        self.subgraph.tensors[made].buffer = self.buffers.setdefault(name, self.subgraph.tensors[made].buffer)
        return made

    def apply(self, kind: str, name: str, inputs: Sequence[int], shape: tuple[int, ...], **options: Any) -> int:
        made = self.tensor(name, shape)
        self.operator(kind, inputs, [made], options=options)
        return made

    def step(self, count: int) -> tuple[list[int], list[int]]:
        values = {name: self.constant(name, value) for name, value in _weights().items()}
        token, position = self.tensor("tok", (1, count), "int64"), self.tensor("pos", (count,), "int64")
        mask = self.tensor("mask", (1, 1, count, CONTEXT))
        past = [self.tensor(f"past_{name}", (1, 1, CONTEXT - count, WIDTH)) for name in "kv"]
        rows = self.constant(f"rows{count}", np.array([1, 1, count, WIDTH], np.int32))
        flat = self.constant(f"flat{count}", np.array([count, WIDTH], np.int32))
        last = self.constant(f"last{count}", np.array([count - 1], np.int32))
        found = self.apply("GATHER", "found", [values["e"], token], (1, count, WIDTH))
        placed = self.apply("GATHER", "placed", [values["p"], position], (count, WIDTH))
        x = self.apply("ADD", "x", [found, placed], (1, count, WIDTH))
        x = self.apply("RESHAPE", "x_rows", [x, flat], (count, WIDTH))
        heads = {}
        for name in "qkv":
            made = self.apply("FULLY_CONNECTED", f"{name}_rows", [x, values[name], -1], (count, WIDTH))
            heads[name] = self.apply("RESHAPE", f"new_{name}", [made, rows], (1, 1, count, WIDTH))
        keys, all_values = (
            self.apply("CONCATENATION", f"all_{name}", [old, heads[name]], (1, 1, CONTEXT, WIDTH), axis=2)
            for name, old in zip("kv", past, strict=True)
        )
        shape = (1, 1, count, CONTEXT)
        scores = self.apply("BATCH_MATMUL", "scores", [heads["q"], keys], shape, adjoint_rhs=True)
        shown = self.apply("ADD", "shown", [scores, mask], shape)
        chances = self.apply("SOFTMAX", "chances", [shown], shape, beta=1.0)
        mixed = self.apply("BATCH_MATMUL", "mixed", [chances, all_values], (1, 1, count, WIDTH))
        mixed = self.apply("RESHAPE", "mixed_rows", [mixed, flat], (count, WIDTH))
        mixed = self.apply("GATHER", "mixed_last", [mixed, last], (1, WIDTH))
        logits = self.apply("FULLY_CONNECTED", "logits", [mixed, values["o"], -1], (1, VOCABULARY))
        return [token, position, mask, *past], [logits, heads["k"], heads["v"]]


def language_model(sizes: Mapping[str, int]) -> Model:
    """Subgraphs and signatures with the names and numbers of tokens in ``sizes``; their constants are stored once."""
    builder = _Steps()
    for place, (name, count) in enumerate(sizes.items()):
        if place:
            builder.begin(name)
        inputs, outputs = builder.step(count)
        builder.finish(inputs, outputs)
        names = [{builder.subgraph.tensors[at].name: at for at in ends} for ends in (inputs, outputs)]
        builder.model.signatures.append(Signature(name, place, *names))
    return builder.model


def single_models() -> dict[str, Model]:
    """Decode and prefill as models of their own."""
    return {"decode": language_model({"decode": 1}), "prefill": language_model({"prefill": 3})}


def logits_of(ids: Sequence[int]) -> np.ndarray[Any, Any]:
    """What the model says after ``ids``, from the whole text at once."""
    values = _weights()
    x = values["e"][list(ids)] + values["p"][: len(ids)]
    q, k, v = (x @ values[name].T for name in "qkv")
    scores = q[-1] @ k.T
    scores = np.exp(scores - scores.max())
    result: np.ndarray[Any, Any] = scores / scores.sum() @ v @ values["o"].T
    return result


def likeliest(ids: Sequence[int], count: int) -> list[int]:
    """The ``count`` tokens that follow ``ids``, each the likeliest."""
    text = list(ids)
    for _ in range(count):
        text.append(int(logits_of(text).argmax()))
    return text[len(ids) :]


def tokenizer_bytes() -> bytes:
    """The tokenizer of the model as llama2.c writes it: letters, and one pair of them."""
    pieces = [piece.encode() for piece in PIECES]
    records = (struct.pack("<fi", float(place), len(piece)) + piece for place, piece in enumerate(pieces))
    return struct.pack("<i", max(map(len, pieces))) + b"".join(records)
