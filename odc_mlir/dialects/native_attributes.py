"""Names of attributes that passes for native code write for later passes and the emitter."""

from __future__ import annotations

KERNEL, OPTIONS = "native.kernel", "native.options"
"""Attributes of a declared kernel: its name, and the options that select its code."""

CONSTANTS = "native.constants"
"""Attribute of a segment's module that holds the bytes of packed constants."""

ARENA_BYTES = "native.arena_bytes"
"""Attribute of a segment's module that holds the size of its arena."""

PART, SCRATCH_BYTES = "native.part", "native.scratch_bytes"
"""Attributes of a divided segment's module: the function that several threads call, and scratch bytes per thread."""

THREAD_PARAMETERS = ("scratch", "barrier", "part", "parts")
"""Additional parameters of the function that several threads call."""

INLINE = "native.inline"
"""Attribute of a function that is inlined into all its callers."""

CHOOSE = "llvm.odc.choose."
"""Prefix of intrinsics that select elements of two vectors by comparing floats; the emitter defines them."""
