"""Instructions of the fetch engine, and ``sync``, which all queues have."""

from __future__ import annotations

from odc_mlir.isa.fields import Instruction, Queue
from odc_mlir.isa.table.shorthand import count

HALT = Instruction(
    "halt",
    0x00,
    Queue.FETCH,
    (count("status", 16, "reported to the driver"),),
    "stop when every queue is empty and every write is complete",
)
SYNC = Instruction("sync", 0x01, None, (), "only waits and posts in its queue")
LOOP = Instruction(
    "loop",
    0x02,
    Queue.FETCH,
    (count("count", 16, "iterations"), count("body_bytes", 16, "bytes of the body, without loop and end")),
    "repeat the body; stepped instructions add iteration x step to their addresses",
)
END = Instruction("end", 0x03, Queue.FETCH, (), "end of a loop body")
