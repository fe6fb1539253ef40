"""Object code in memory, ready to be called."""

from __future__ import annotations

from odc_mlir.codegen.orc import Linked
from odc_mlir.codegen.symbols import read_symbols
from odc_mlir.errors import PackageError, parsing

_MATHEMATICS = (
    "ceil", "cos", "erf", "exp", "exp2", "floor", "fma", "fmax", "fmin", "fmod", "ldexp", "log", "log2", "nearbyint",
    "pow", "rint", "round", "roundeven", "sin", "sqrt", "tanh", "trunc",
)  # fmt: skip
# All that LLVM makes calls of by itself.
_RUNTIME = frozenset(
    ["memcpy", "memmove", "memset", "bzero"] + [f"{name}{suffix}" for name in _MATHEMATICS for suffix in ("", "f")]
)


class LoadedObject:
    """The function ``entry`` of object code; ``address`` is where it is while this object lives.

    Raises PackageError where the code has no such function, or needs more of this process than memory and mathematics:
    names are otherwise looked for among all that the process has, ``system`` included.
    """

    def __init__(self, code: bytes, entry: str) -> None:
        with parsing("the object code is malformed", PackageError, hint="compile the model again"):
            symbols = read_symbols(code)
        if symbols is None or entry not in symbols.defined:
            raise PackageError(f"the object code has no function {entry!r}", hint="compile the model again")
        if foreign := [symbol for symbol in symbols.undefined if symbol not in _RUNTIME]:
            raise PackageError(
                f"the object code calls {foreign[0]!r}, which native code never needs", hint="compile the model again"
            )
        try:
            self._linked = Linked(code, entry)
        except RuntimeError as error:
            raise PackageError(f"the object code cannot be loaded: {str(error).splitlines()[0]}") from error
        self.address = self._linked.address
