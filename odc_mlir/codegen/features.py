"""Features of the running machine, as the operating system reports them, without LLVM."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.util import find_spec
from pathlib import Path

EXTRA = "llvmlite"
HINT = "install odc-mlir with the extra native: pip install 'odc-mlir[native]'"

_CPUINFO = Path("/proc/cpuinfo")
_FLAG_LINES = ("flags", "Features")  # of x86 and of Arm
# Names of Linux that differ from those of LLVM.
_NAMES = {"avx512_vnni": "avx512vnni", "asimd": "neon", "asimddp": "dotprod", "avx512_bf16": "avx512bf16"}
_ARCHITECTURES = {"AMD64": "x86_64", "arm64": "aarch64"}


def has_code_generator() -> bool:
    """Return whether the package that generates and loads native code is installed, without importing it."""
    return find_spec(EXTRA) is not None


def architecture() -> str:
    """Return the first part of the triple of the running machine."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


@cache
def known_features() -> frozenset[str] | None:
    """Return the features of the machine by LLVM's names; None if the system does not report them."""
    try:
        text = _CPUINFO.read_text("utf-8", "replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in _FLAG_LINES:
            return frozenset(_NAMES.get(flag, flag) for flag in flags.split())
    return None


def why_not_known_here(wanted: str, features: tuple[str, ...]) -> str | None:
    """Return the reason why code for such a processor cannot run here; None if the system reports none."""
    if wanted != (here := architecture()):
        return f"it is for {wanted}, this machine is {here}"
    known = known_features()
    missing = sorted(set(features) - known) if known is not None else []
    return f"this machine lacks {', '.join(missing)}" if missing else None


def machine_facts() -> str:
    """Return a digest of the architecture and the features of this machine."""
    features = known_features()
    text = "\0".join([architecture(), *sorted(features if features is not None else {platform.processor()})])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
