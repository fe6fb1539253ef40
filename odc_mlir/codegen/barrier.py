"""The barrier that parts of a segment share, as LLVM's text: atomic operations have no form in xDSL's dialects."""

from __future__ import annotations

import re

BROKEN = 1 << 62
"""A number of arrivals from which on nobody waits: what the barrier is set to when a part will never come."""

_SPINS = 512  # pauses before the processor is given to others: a few microseconds
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
    """An LLVM module that declares the barrier by this name, with its body.

    Whoever arrives counts itself and waits until the count is a multiple of the number of parts again.
    """
    body = _TEXT.format(
        name=name,
        declaration=_DECLARATIONS.get(architecture, ""),
        pause=_PAUSES.get(architecture, ""),
        spins=_SPINS,
        broken=BROKEN,
    )
    return re.sub(rf'^declare void @"?{re.escape(name)}"?\(.*$', "", text, flags=re.MULTILINE) + body
