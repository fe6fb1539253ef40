"""Object code in memory, ready to be called."""

from __future__ import annotations

from typing import Any

from odc_mlir.codegen.machine import import_llvm, target_machine
from odc_mlir.errors import PackageError
from odc_mlir.targets.cpu import CpuTarget


class LoadedObject:
    """The function ``entry`` of object code; ``address`` is where it is while this object lives."""

    def __init__(self, code: bytes, entry: str, target: CpuTarget, name: str) -> None:
        llvm = import_llvm()
        try:
            self._jit = llvm.create_lljit_compiler(target_machine(target))
            library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(entry)
            self._tracker: Any = library.link(self._jit, name)
            self.address = int(self._tracker[entry])
        except (RuntimeError, KeyError) as error:
            raise PackageError(f"the object code cannot be loaded: {str(error).splitlines()[0]}") from error
