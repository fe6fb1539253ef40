"""Functions of loops, compiled for the machine that runs the tests and called with arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from odc_mlir.codegen.loading import LoadedObject
from odc_mlir.codegen.machine import emit_object, resolve, why_not_here
from odc_mlir.emitter.native_segment import llvm_text
from odc_mlir.transforms.native.convert_native_to_llvm import convert_functions
from odc_mlir.universe import make_context


def native_function(function: FuncOp, helpers: Sequence[FuncOp] = (), target: str = "cpu") -> Callable[..., None]:
    """``function``, which takes buffers and indices, as a callable of arrays and integers."""
    function.properties.pop("sym_visibility", None)
    name, machine = function.sym_name.data, resolve(target)
    module = ModuleOp([function, *helpers])
    convert_functions(make_context(), module)
    module.verify()
    loaded = LoadedObject(emit_object(llvm_text(module), machine), name)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(function.function_type.inputs))(loaded.addresses[0])

    def run(*arguments: NDArray[Any] | int) -> None:
        assert loaded is not None  # the code lives as long as this function
        call(*(value if isinstance(value, int) else value.ctypes.data for value in arguments))

    return run


def skip_unless_it_runs(target: str) -> None:
    """Skip a test where code for ``target`` cannot run on this machine."""
    machine = resolve(target)
    if reason := why_not_here(machine.architecture, machine.features):
        pytest.skip(reason)
