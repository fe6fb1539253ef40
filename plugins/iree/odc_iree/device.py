"""The driver: IREE's runtime on the calling thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import iree.runtime
import numpy as np

from odc_iree.compiler import parse
from odc_mlir.errors import PackageError
from odc_mlir.formats.plan import Plan
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.devices.base import DeviceResult


@lru_cache(maxsize=1)
def _config() -> Any:
    return iree.runtime.Config("local-sync")


class IreeProgram:
    """A program in IREE's runtime."""

    def __init__(self, data: bytes) -> None:
        self.inputs, self.outputs, code = parse(data)
        try:
            context = iree.runtime.SystemContext(config=_config())
            context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, code))
            self._main = context.modules.module.main
        except (RuntimeError, ValueError) as error:
            raise PackageError(f"IREE cannot load the program: {' '.join(str(error).split())}") from None

    def run(self, inputs: Sequence[Array], *, trace: bool = False) -> DeviceResult:
        """Execute once; raise PackageError if IREE fails."""
        try:
            found = self._main(*inputs)
        except (RuntimeError, ValueError) as error:
            raise PackageError(f"IREE failed: {' '.join(str(error).split())}") from None
        results = found if isinstance(found, list | tuple) else (found,)
        return DeviceResult(tuple(np.array(result.to_host()) for result in results))


class IreeDevice:
    """Loads ``.iree`` files."""

    name = "iree"
    simulated = False
    runs_code = True

    def attached(self) -> Sequence[str]:
        """Return nothing: sessions use native code for this processor unless the user names IREE."""
        return ()

    def examine(self, data: bytes, plan: Plan, machine: str | None) -> str | None:
        """Return None: a program of this machine runs; raise PackageError for any other."""
        parse(data)
        return None

    def load(self, data: bytes) -> IreeProgram:
        """Check and load a program; raise PackageError."""
        return IreeProgram(data)


def open_device() -> IreeDevice:
    """Return the device."""
    return IreeDevice()
