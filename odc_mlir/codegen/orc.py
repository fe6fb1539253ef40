"""The part of llvmlite's library that loads object code, by its C functions.

The whole of ``llvmlite.binding`` takes several times as long to import as loading takes, and more where Python cannot
keep its byte code. Making code needs it; running what was made does not.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from odc_mlir.codegen.features import EXTRA, HINT
from odc_mlir.errors import OptionError, PackageError

_NAMES = {"darwin": "libllvmlite.dylib", "win32": "llvmlite.dll"}
_OBJECT, _LIBRARY = 2, 3  # kinds of what is linked: object code, names of another library ("": of the process)


class _Element(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint8), ("value", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class _Symbol(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("address", ctypes.c_uint64)]


_ELEMENTS, _SYMBOLS = ctypes.POINTER(_Element), ctypes.POINTER(_Symbol)
_TEXT = ctypes.POINTER(ctypes.c_char_p)
_P, _SIZE, _BOOL, _STRING = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool, ctypes.c_char_p
# Result and parameters of each function.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "InitializeNativeTarget": (ctypes.c_int,),
    "InitializeNativeAsmPrinter": (ctypes.c_int,),
    "CreateLLJITCompiler": (_P, _P, _BOOL, _BOOL, _TEXT),
    "LLJIT_Link": (_P, _P, _STRING, _ELEMENTS, _SIZE, _SYMBOLS, _SIZE, _SYMBOLS, _SIZE, _TEXT),
    "LLJIT_Dylib_Tracker_Dispose": (_BOOL, _P, _TEXT),
    "LLJITDispose": (None, _P),
    "DisposeString": (None, _STRING),
}


@cache
def _library() -> dict[str, Any]:
    """The functions by name; raises OptionError without llvmlite, PackageError for one that lacks any."""
    spec = find_spec(EXTRA)
    if spec is None or not spec.submodule_search_locations:
        raise OptionError(f"native code needs the package {EXTRA}", hint=HINT)
    path = Path(spec.submodule_search_locations[0], "binding", _NAMES.get(sys.platform, "libllvmlite.so"))
    functions = {}
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, *parameters) in _FUNCTIONS.items():
            function = functions[name] = getattr(library, f"LLVMPY_{name}")
            function.restype, function.argtypes = result, parameters
    except (OSError, AttributeError) as error:
        raise PackageError(f"the package {EXTRA} cannot load code: {error}", hint=HINT) from error
    functions["InitializeNativeTarget"]()
    functions["InitializeNativeAsmPrinter"]()
    return functions


class Linked:
    """Object code for the running machine, linked with this process; raises RuntimeError with LLVM's words.

    ``addresses`` are where the functions ``names`` are as long as this object lives.
    """

    def __init__(self, code: bytes, names: Sequence[str]) -> None:
        functions = _library()
        message = ctypes.c_char_p()
        jit = functions["CreateLLJITCompiler"](None, False, False, ctypes.byref(message))
        if not jit:
            raise RuntimeError(_text(functions, message))
        held = [(functions["LLJITDispose"], jit)]
        weakref.finalize(self, _release, held).atexit = False  # the process gives everything back by itself
        parts = (_Element * 2)(_Element(_OBJECT, code, len(code)), _Element(_LIBRARY, b"", 0))
        found = (_Symbol * len(names))(*(_Symbol(name.encode(), 0) for name in names))
        message = ctypes.c_char_p()
        tracker = functions["LLJIT_Link"](
            jit, names[0].encode(), parts, len(parts), None, 0, found, len(found), ctypes.byref(message)
        )
        if not tracker:
            raise RuntimeError(_text(functions, message))
        held.append((functions["LLJIT_Dylib_Tracker_Dispose"], tracker))
        self.addresses = tuple(int(item.address) for item in found)


def _release(held: list[tuple[Any, int]]) -> None:
    """Give back what is held, the last first."""
    for dispose, pointer in reversed(held):
        message = ctypes.c_char_p()
        dispose(*((pointer,) if len(dispose.argtypes) == 1 else (pointer, ctypes.byref(message))))


def _text(functions: dict[str, Any], message: ctypes.c_char_p) -> str:
    """LLVM's message, which is given back."""
    text = (message.value or b"LLVM does not say why").decode(errors="replace")
    functions["DisposeString"](message)
    return text
