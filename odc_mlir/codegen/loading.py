"""Symbols of object code, and loading of object code by the C functions of llvmlite's library.

The import of ``llvmlite.binding`` takes several times as long as loading. Only code generation needs it.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import weakref
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from odc_mlir.codegen.machine import EXTRA, HINT
from odc_mlir.errors import OptionError, PackageError, parsing

_NAMES = {"darwin": "libllvmlite.dylib", "win32": "llvmlite.dll"}
_OBJECT, _LIBRARY = 2, 3  # kinds of link elements: object code, symbols of a library ("" for this process)


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
    """Return llvmlite's functions by name. Raises OptionError without llvmlite, or PackageError without a function."""
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


def _release(held: list[tuple[Any, int]]) -> None:
    for dispose, pointer in reversed(held):
        message = ctypes.c_char_p()
        dispose(*((pointer,) if len(dispose.argtypes) == 1 else (pointer, ctypes.byref(message))))


def _failure(functions: dict[str, Any], message: ctypes.c_char_p) -> PackageError:
    text = (message.value or b"LLVM gives no reason").decode(errors="replace")
    functions["DisposeString"](message)
    return PackageError(f"the object code cannot be loaded: {text.splitlines()[0]}")


_SYMTAB = 2
_LOCAL = 0
_OF_THE_LINKER = frozenset({"_GLOBAL_OFFSET_TABLE_"})  # symbols that the linker defines


@dataclass(frozen=True)
class Symbols:
    """Symbols that an object file defines and symbols that it needs, in alphabetical order."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def read_symbols(code: bytes) -> Symbols | None:
    """Return the symbols of an ELF file written by LLVM, or None for another format."""
    if not code.startswith(b"\x7fELF"):
        return None
    wide, order = code[4] == 2, "<" if code[5] == 1 else ">"
    (start,) = struct.unpack_from(order + ("Q" if wide else "I"), code, 0x28 if wide else 0x20)
    size, count = struct.unpack_from(order + "HH", code, 0x3A if wide else 0x2E)
    header = order + ("IIQQQQIIQQ" if wide else "10I")
    sections = [struct.unpack_from(header, code, start + index * size) for index in range(count)]
    found: dict[bool, set[str]] = {False: set(), True: set()}
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != _SYMTAB:
            continue
        names = sections[link][4]
        for fields in struct.iter_unpack(order + ("IBBHQQ" if wide else "IIIBBH"), code[offset : offset + length]):
            name, info, section = (fields[0], fields[1], fields[3]) if wide else (fields[0], fields[3], fields[5])
            if info >> 4 != _LOCAL or (section == 0 and name):
                first = names + name
                found[section != 0].add(code[first : code.index(0, first)].decode())
    return Symbols(tuple(sorted(found[True])), tuple(sorted(found[False] - _OF_THE_LINKER)))


_MATHEMATICS = (
    "ceil", "cos", "erf", "exp", "exp2", "floor", "fma", "fmax", "fmin", "fmod", "ldexp", "log", "log2", "nearbyint",
    "pow", "rint", "round", "roundeven", "sin", "sqrt", "tanh", "trunc",
)  # fmt: skip
# Functions to which LLVM inserts calls, and the function that waiting parts of a segment call.
_RUNTIME = frozenset(
    ["memcpy", "memmove", "memset", "bzero", "sched_yield"]
    + [f"{name}{suffix}" for name in _MATHEMATICS for suffix in ("", "f")]
)


class LoadedObject:
    """Object code for the running machine, linked with this process.

    ``addresses``: addresses of the functions ``names``, valid while this object lives. Raises PackageError if the code
    lacks a function, or if it calls functions other than memory and mathematical functions. The linker would resolve
    any function of this process, even ``system``.
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
        functions, message = _library(), ctypes.c_char_p()
        jit = functions["CreateLLJITCompiler"](None, False, False, ctypes.byref(message))
        if not jit:
            raise _failure(functions, message)
        held = [(functions["LLJITDispose"], jit)]
        weakref.finalize(self, _release, held).atexit = False  # the end of the process frees everything
        parts = (_Element * 2)(_Element(_OBJECT, code, len(code)), _Element(_LIBRARY, b"", 0))
        found = (_Symbol * len(names))(*(_Symbol(name.encode(), 0) for name in names))
        tracker = functions["LLJIT_Link"](
            jit, names[0].encode(), parts, len(parts), None, 0, found, len(found), ctypes.byref(message)
        )
        if not tracker:
            raise _failure(functions, message)
        held.append((functions["LLJIT_Dylib_Tracker_Dispose"], tracker))
        self.addresses = tuple(int(item.address) for item in found)
