"""What each instruction does and costs: one function per instruction, found by mnemonic in :func:`executors`."""

from __future__ import annotations

from collections.abc import Mapping

from odc_mlir.simulator.engines.convolution import conv
from odc_mlir.simulator.engines.machine import Executor
from odc_mlir.simulator.engines.transfer import copy, fill, load, mload, param, store, table, wload
from odc_mlir.simulator.engines.vector import pool, reduce, softmax, vop


def executors() -> Mapping[str, Executor]:
    """Functions by mnemonic; instructions of the fetch engine and ``sync`` have none."""
    return {
        function.__name__: function
        for function in (conv, copy, fill, load, mload, param, pool, reduce, softmax, store, table, vop, wload)
    }
