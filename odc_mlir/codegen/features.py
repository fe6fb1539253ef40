"""What the running machine can do, without LLVM: for those who only want to know whether something is of use here."""

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
# Linux's names where LLVM has others.
_NAMES = {"avx512_vnni": "avx512vnni", "asimd": "neon", "asimddp": "dotprod", "avx512_bf16": "avx512bf16"}
_ARCHITECTURES = {"AMD64": "x86_64", "arm64": "aarch64"}


def has_code_generator() -> bool:
    """Whether the package that makes and loads native code is installed; it is not imported."""
    return find_spec(EXTRA) is not None


def architecture() -> str:
    """The first part of the running machine's triple."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


@cache
def known_features() -> frozenset[str] | None:
    """LLVM's names of what the machine can do, as the system tells; None where it does not."""
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
    """Why code for such a processor cannot run here, as far as the system tells; None where nothing is against it."""
    if wanted != (here := architecture()):
        return f"it is for {wanted}, this machine is {here}"
    known = known_features()
    missing = sorted(set(features) - known) if known is not None else []
    return f"this machine lacks {', '.join(missing)}" if missing else None


def machine_facts() -> str:
    """A digest of what tells this machine from another, as far as code is concerned."""
    features = known_features()
    text = "\0".join([architecture(), *sorted(features if features is not None else {platform.processor()})])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
