"""Two lower bounds of a segment's cycles on its machine, one of the model and one of our program.

``model_floor_cycles`` knows the operators and the machine only: no program that computes these operators here, each
result in its place and every weight fetched, takes less. It is the largest of

* multiply-accumulates by those of a cycle, which are of bytes: 16-bit codes take two, with 16-bit weights four;
* results of operators with multiply-accumulates, each of which goes through a requantisation lane, by lanes;
* bytes that have to pass each port: weights at the least that a coder of single bytes can make of them (their entropy),
  or all that our program stores where codes of runs make that less, through the off-chip port, in memory mode ``sram``
  through the SRAM port; and there what goes in and comes out.

``ideal_cycles`` knows our program: its own instructions, and constants as stored, of tables the rows that are looked
up, have to pass the ports as well. It is never below the floor, which holds of every program. What is between it and
the cycles is lost in our schedule, what is between the two bounds in our code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from odc_mlir.formats.plan import SegmentStep
from odc_mlir.ops.spec import Array, Node, TensorInfo
from odc_mlir.ops.work import size, tensor_bytes
from odc_mlir.targets import Target


def model_floor_cycles(
    step: SegmentStep,
    nodes: Sequence[Node],
    tensors: Sequence[TensorInfo],
    target: Target,
    memory: str,
    stored_bytes: int,
) -> int:
    """The bound of the operators of ``step``; ``stored_bytes``: our program's constants. See the module's text."""
    inside = [nodes[index] for index in step.operators]
    results = sum(size(node.results[0]) for node in inside if node.macs)
    moved = sum(tensor_bytes(tensors[index]) for index in (*step.inputs, *step.outputs))
    weights = min(float(stored_bytes), sum(map(coded_bytes, _weights(inside))))
    cycles = _port_cycles(target, memory, moved, weights)
    macs = sum(byte_products(node) for node in inside)
    return max(math.ceil(macs / target.array.macs_per_cycle), math.ceil(results / target.vector.requant_lanes), *cycles)


def byte_products(node: Node) -> int:
    """Multiply-accumulates of bytes that the array takes for an operator."""
    if not node.macs:
        return 0
    factors = node.results[0], node.operand(1)
    return node.macs * math.prod(factor.info.numpy.itemsize for factor in factors if factor.dtype == "int16")


def layer_floor(node: Node, target: Target, memory: str) -> dict[str, int]:
    """Least cycles of one operator by what it cannot do without: the array, lanes, and the port of its weights.

    What goes in and comes out is left out: it may stay inside the machine.
    """
    port = target.offchip if memory == "flash" else target.sram
    results = size(node.results[0]) if node.macs else 0
    return {
        "array": math.ceil(byte_products(node) / target.array.macs_per_cycle),
        "lanes": math.ceil(results / target.vector.requant_lanes),
        "offchip" if memory == "flash" else "sram": math.ceil(
            sum(map(coded_bytes, _weights([node]))) / port.bytes_per_cycle
        ),
    }


def ideal_cycles(
    step: SegmentStep, tensors: Sequence[TensorInfo], target: Target, counters: Mapping[str, Any], floor_cycles: int
) -> int:
    """The bound of the program that gave ``counters``, of a model with this floor; see the module's text."""
    moved = sum(tensor_bytes(tensors[index]) for index in (*step.inputs, *step.outputs))
    read = min(counters["constant_bytes"], counters["constant_bytes_read"])  # of tables a few rows
    fixed = read + counters["program_bytes"]
    macs: int = sum(operator["macs"] for operator in counters["operators"])
    cycles = _port_cycles(target, counters["memory"], moved, fixed)
    return max(floor_cycles, math.ceil(macs / target.array.macs_per_cycle), *cycles)


def _port_cycles(target: Target, memory: str, moved_bytes: float, fixed_bytes: float) -> tuple[int, int]:
    """Least cycles of the off-chip and the SRAM port; ``fixed_bytes`` lie where the memory mode says."""
    offchip, sram = (fixed_bytes, moved_bytes) if memory == "flash" else (0.0, moved_bytes + fixed_bytes)
    return math.ceil(offchip / target.offchip.bytes_per_cycle), math.ceil(sram / target.sram.bytes_per_cycle)


def _weights(nodes: Iterable[Node]) -> Iterable[TensorInfo]:
    """The quantised constants that operators with multiply-accumulates read, equal ones once.

    Biases are left out: what is stored of them depends on the machine.
    """
    read = (info for node in nodes if node.macs for info in node.operands if info is not None)
    return {bytes(i.data): i for i in read if i.data is not None and i.info.numpy.itemsize == 1}.values()


def coded_bytes(info: TensorInfo) -> float:
    """Entropy of a constant's bytes: the least that codes of single bytes need for it."""
    return _entropy_bytes(np.frombuffer(info.data or b"", np.uint8))


def _entropy_bytes(values: Array) -> float:
    counts = np.bincount(values)
    counts = counts[counts > 0]
    return float(-(counts * np.log2(counts / max(1, values.size))).sum() / 8)
