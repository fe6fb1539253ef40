"""Recognition of functions in a network, for reports and for passes that keep them whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.transforms.circle.functions.attentions import ATTENTION, ROPE, attention, rotation
from odc_mlir.transforms.circle.functions.common import Function
from odc_mlir.transforms.circle.functions.gates import logistic_gate, squeeze_excite
from odc_mlir.transforms.circle.functions.normalisations import INSTANCE, RMS, normalisation
from odc_mlir.transforms.circle.functions.recurrent import GRU, LSTM, unrolled

# Operators that are such a function by themselves.
OPERATORS = {
    "GELU": "GELU",
    "HARD_SWISH": "HardSwish",
    "INSTANCE_NORM": INSTANCE,
    "RMS_NORM": RMS,
    "ROPE": ROPE,
    "ATTENTION": ATTENTION,
    "GRU": GRU,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": LSTM,
    "BIDIRECTIONAL_SEQUENCE_LSTM": LSTM,
    "LSTM": LSTM,
}


def functions(module: ModuleOp) -> list[Function]:
    """Return the recognised functions in operator order; an operator may be in two."""
    blocks = {op.parent for op in module.walk() if isinstance(op, CircleOp)}
    ordered = [block for block in _blocks(module) if block in blocks]
    return [found for block in ordered for found in _of_block(block)]


def count_functions(module: ModuleOp) -> Counter[str]:
    """How often each function was recognised, by kind; variations count under their own name, ``Attention (mask)``."""
    counts: Counter[str] = Counter()
    for found in functions(module):
        counts[found.kind] += 1
        for trait in sorted(found.traits):
            counts[f"{found.kind} ({trait})"] += 1
    return counts


def _blocks(module: ModuleOp) -> Iterator[Block]:
    for op in module.walk():
        for region in op.regions:
            yield from region.blocks


def _of_block(block: Block) -> Iterator[Function]:
    for op in block.ops:
        if not isinstance(op, CircleOp):
            continue
        own = OPERATORS.get(op.SPEC.name)
        if own is not None:
            yield Function(own, op.results[0], (op,))
        if (norm := normalisation(op)) is not None:
            yield norm.function()
        if (turned := rotation(op)) is not None:
            yield turned.function()
        if (sequence := unrolled(op)) is not None:
            yield sequence.function()
        for match in (attention, logistic_gate, squeeze_excite):
            if (found := match(op)) is not None:
                yield found
