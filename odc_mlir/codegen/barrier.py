"""The barrier between the parts of a segment, as LLVM text: xDSL's dialects have no atomic operations."""

from __future__ import annotations

import re

BROKEN = 1 << 62
"""The number of arrivals that ends all waiting: the barrier is set to it if a part fails."""

_SPINS = 512  # pauses before the thread yields the processor: a few microseconds
_PAUSES = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
_DECLARATIONS = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}
_TEXT = """
declare i32 @sched_yield()
{declaration}
define internal void @{name}(ptr %arrivals, i64 %parts) noinline {{
entry:
  %before = atomicrmw add ptr %arrivals, i64 1 acq_rel
  %round = udiv i64 %before, %parts
  %next = add i64 %round, 1
  %enough = mul i64 %next, %parts
  br label %look
look:
  %spins = phi i64 [ 0, %entry ], [ %more, %pause ], [ %spins, %give ]
  %now = load atomic i64, ptr %arrivals acquire, align 8
  %all = icmp uge i64 %now, %enough
  %broken = icmp uge i64 %now, {broken}
  %done = or i1 %all, %broken
  br i1 %done, label %leave, label %wait
wait:
  %short = icmp ult i64 %spins, {spins}
  br i1 %short, label %pause, label %give
pause:
  {pause}
  %more = add i64 %spins, 1
  br label %look
give:
  %ignored = call i32 @sched_yield()
  br label %look
leave:
  ret void
}}
"""


def with_barrier(text: str, name: str, architecture: str) -> str:
    """Return the text of an LLVM module with the body of the barrier that it declares by this name.

    A part that arrives increments the count and waits until it is a multiple of the number of parts.
    """
    body = _TEXT.format(
        name=name,
        declaration=_DECLARATIONS.get(architecture, ""),
        pause=_PAUSES.get(architecture, ""),
        spins=_SPINS,
        broken=BROKEN,
    )
    return re.sub(rf'^declare void @"?{re.escape(name)}"?\(.*$', "", text, flags=re.MULTILINE) + body
