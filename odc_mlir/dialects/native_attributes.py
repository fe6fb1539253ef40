"""Names of the attributes that passes on the way to native code leave for later ones, and for the emitter."""

from __future__ import annotations

KERNEL, OPTIONS = "native.kernel", "native.options"
"""Of a declared kernel: its name, and the options that select its code."""

CONSTANTS = "native.constants"
"""Of a segment's module: the bytes of its packed constants."""

ARENA_BYTES = "native.arena_bytes"
"""Of a segment's module: the size of its arena."""

PART, SCRATCH_BYTES = "native.part", "native.scratch_bytes"
"""Of a divided segment's module: the function for one of several threads, and what each needs of scratch."""

THREAD_PARAMETERS = ("scratch", "barrier", "part", "parts")
"""Further parameters of that function."""

INLINE = "native.inline"
"""Of a function whose body takes the place of every call."""

CHOOSE = "llvm.odc.choose."
"""Prefix of intrinsics that choose between vectors by comparing reals; the emitter defines them."""
