"""The accelerator's driver. There is no hardware: numpy does what it would do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mya.program import Program, Reals, parse
from odc_mlir.formats.plan import Plan
from odc_mlir.runtime.devices.base import DeviceResult, Port


class MyaProgram:
    """A program that is loaded."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.inputs = tuple(Port(item.name, "float32", item.shape) for item in program.inputs)
        self.outputs = tuple(Port(item.name, "float32", item.shape) for item in program.outputs)

    def run(self, inputs: Sequence[Any], *, trace: bool = False) -> DeviceResult:
        """Execute once."""
        registers = {item.number: value for item, value in zip(self._program.inputs, inputs, strict=True)}
        for step in self._program.steps:
            operands = [registers[number] for number in step["in"]]
            result = _FUNCTIONS[step["do"]](*operands, *(self._program.data[place] for place in step["data"]))
            result = np.maximum(result, np.float32(0)) if step["relu"] else result
            registers[step["out"]] = result.astype(np.float32).reshape(step["shape"])
        return DeviceResult(tuple(registers[item.number] for item in self._program.outputs))


def _matrix(value: Reals, weights: Reals, bias: Reals | None = None) -> Reals:
    product = value.reshape(-1, weights.shape[-1]) @ weights.T
    return product if bias is None else product + bias


_FUNCTIONS = {
    "matrix": _matrix,
    "add": lambda left, right: left + right,
    "relu": lambda value: np.maximum(value, np.float32(0)),
    "logistic": lambda value: 1 / (1 + np.exp(-value)),
}


class MyaDevice:
    """Loads ``.mya`` files."""

    name = "mya"
    simulated = False

    def attached(self) -> Sequence[str]:
        """The accelerator is always there, so sessions that are not told otherwise compile for it."""
        return ("mya",)

    def examine(self, data: bytes, plan: Plan, machine: str | None) -> str | None:
        """There is one version of it."""
        parse(data)
        return None

    def load(self, data: bytes) -> MyaProgram:
        """Check and load a program; raises PackageError."""
        return MyaProgram(parse(data))


def open_device() -> MyaDevice:
    """The device, as its entry point names it."""
    return MyaDevice()
