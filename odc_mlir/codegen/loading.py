"""Object code in memory, ready to be called."""

from __future__ import annotations

from odc_mlir.codegen.orc import Linked
from odc_mlir.codegen.symbols import read_symbols
from odc_mlir.errors import PackageError, parsing

_MATHEMATICS = (
    "ceil", "cos", "erf", "exp", "exp2", "floor", "fma", "fmax", "fmin", "fmod", "ldexp", "log", "log2", "nearbyint",
    "pow", "rint", "round", "roundeven", "sin", "sqrt", "tanh", "trunc",
)  # fmt: skip
# All that LLVM makes calls of by itself, and what parts of a segment call while they wait for one another.
_RUNTIME = frozenset(
    ["memcpy", "memmove", "memset", "bzero", "sched_yield"]
    + [f"{name}{suffix}" for name in _MATHEMATICS for suffix in ("", "f")]
)


class LoadedObject:
    """Functions of object code; ``addresses`` are where they are while this object lives, ``address`` the first.

    Raises PackageError where the code lacks any, or needs more of this process than memory and mathematics:
    names are otherwise looked for among all that the process has, ``system`` included.
    """

    def __init__(self, code: bytes, *names: str) -> None:
        with parsing("the object code is malformed", PackageError, hint="compile the model again"):
            symbols = read_symbols(code)
        lacking = [name for name in names if symbols is None or name not in symbols.defined]
        if symbols is None or lacking:
            raise PackageError(f"the object code has no function {lacking[0]!r}", hint="compile the model again")
        if foreign := [symbol for symbol in symbols.undefined if symbol not in _RUNTIME]:
            raise PackageError(
                f"the object code calls {foreign[0]!r}, which native code never needs", hint="compile the model again"
            )
        try:
            self._linked = Linked(code, names)
        except RuntimeError as error:
            raise PackageError(f"the object code cannot be loaded: {str(error).splitlines()[0]}") from error
        self.addresses = self._linked.addresses
        self.address = self.addresses[0]
