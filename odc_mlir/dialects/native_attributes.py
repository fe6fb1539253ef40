"""Names of the attributes that passes for native code write for later passes and for the emitter."""

from __future__ import annotations

KERNEL, OPTIONS = "native.kernel", "native.options"
"""Attributes of a declared kernel: its name, and the options that select its code."""

CONSTANTS = "native.constants"
"""Attribute of a segment's module: the bytes of its packed constants."""

ARENA_BYTES = "native.arena_bytes"
"""Attribute of a segment's module: the size of its arena."""

PART, SCRATCH_BYTES = "native.part", "native.scratch_bytes"
"""Attributes of a divided segment's module: the function that several threads call, and the scratch bytes of each."""

THREAD_PARAMETERS = ("scratch", "barrier", "part", "parts")
"""Further parameters of the function that several threads call."""

INLINE = "native.inline"
"""Attribute of a function that is inlined into all its callers."""

CHOOSE = "llvm.odc.choose."
"""Prefix of intrinsics that select elements of two vectors by comparing floats; the emitter defines them."""
