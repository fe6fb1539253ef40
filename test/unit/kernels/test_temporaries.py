"""Temporaries of host kernels: little beside operands and results, which are all that counts as activations."""

from __future__ import annotations

import tracemalloc

import pytest

from helpers.data import MISSING, data_folder
from helpers.grown import grown_cases
from helpers.nodes import Array, Session
from odc_mlir.ops import all_specs
from odc_mlir.ops.spec import Node

_BYTES = 8 << 20  # of operands and results
_SHARE, _BUFFERS = 0.6, 2 << 20  # temporaries that are allowed: a share of these, and buffers of any kernel

_NOT_GROWN = {
    **dict.fromkeys(("IF", "WHILE", "CALL", "CALL_ONCE", "RUN_MODEL", "CUSTOM"), "runs other operators"),
    **dict.fromkeys(
        ("ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE", "HASHTABLE", "HASHTABLE_FIND"), "passes state on"
    ),
    **dict.fromkeys(("HASHTABLE_IMPORT", "HASHTABLE_LOOKUP", "HASHTABLE_SIZE"), "passes state on"),
    **dict.fromkeys(("BROADCAST_ARGS", "SHAPE"), "computes sizes"),
    **dict.fromkeys(("BCQ_GATHER", "DENSIFY", "EMBEDDING_LOOKUP_SPARSE", "SPARSE_TO_DENSE"), "writes single elements"),
    **dict.fromkeys(("GRU", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"), "takes minutes: it loops"),
    **dict.fromkeys(
        ("MULTINOMIAL", "LSH_PROJECTION", "SKIP_GRAM"), "loops over rows, and its limit counts temporaries"
    ),
    "RANGE": "has one array",
}
"""Operators that are not run here, with the reason."""

_STEP, _SORT = "a step computes up to 2^20 gates", "its limit counts the indices that it sorts"
_MORE = {
    **dict.fromkeys(("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM"), (5.0, _STEP)),
    **dict.fromkeys(("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"), (2.0, _STEP)),
    **dict.fromkeys(("UNIQUE", "TOPK_V2"), (5.0, _SORT)),
    "TRANSPOSE_CONV": (1.4, "its sums, 2^20 at a time, are wider than codes"),
    "SVDF": (2.0, "it keeps the old memory until it has the new one"),
    "REVERSE_SEQUENCE": (2.0, "it holds 64-bit places, as many as small elements here"),
    "WHERE": (1.0, "it collects the coordinates of all axes before it joins them"),
    "FULLY_CONNECTED": (3.0, "it prepares computed weights, which its limit counts"),
}
"""Operators with more temporaries: their share of operands and results, and the reason."""


def _temporaries(made: Node, inputs: list[Array]) -> tuple[int, int]:
    """Return the most bytes of temporaries of a run, and the bytes of its operands and results."""
    session = Session(made)
    session.kernel = made.spec.kernel_function(made)  # prepares constants, which belong to the model
    tracemalloc.start()
    try:
        results = session(*inputs)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    made_bytes = sum(array.nbytes for array in results)
    return peak - made_bytes, made_bytes + sum(array.nbytes for array in (*inputs, *session.variables.values()))


@pytest.mark.skipif(data_folder() is None, reason=MISSING)
@pytest.mark.parametrize("name", sorted(all_specs().keys() - _NOT_GROWN.keys()))
def test_temporaries_are_few(name: str) -> None:
    large = grown_cases(name, _BYTES)
    assert large, "no case of this operator grows: add one to helpers/grown.py, or the operator to _NOT_GROWN"
    share, _ = _MORE.get(name, (_SHARE, ""))
    for dtypes, case in large.items():
        temporaries, counted = _temporaries(*case)
        assert temporaries <= share * counted + _BUFFERS, f"{dtypes}: {temporaries / counted:.2f} of {counted} bytes"


def test_exceptions_are_operators() -> None:
    assert {*_NOT_GROWN, *_MORE} <= all_specs().keys()
