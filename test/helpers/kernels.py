"""Operators of tests: table entries whose shape functions and kernels are here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from threadpoolctl import ThreadpoolController

from odc_mlir.ops.spec import Array, Execute, Node, Operand, OpSpec, ResultType, TensorInfo
from odc_mlir.runtime.execution.blas_threads import LARGE_MACS
from odc_mlir.runtime.execution.graph import Graph, GraphNode


def same_shape(node: Node) -> Sequence[ResultType]:
    operand = node.operand(0)
    return [ResultType(operand.dtype, operand.shape)]


def unknown_shape(node: Node) -> Sequence[ResultType]:
    return [ResultType(node.operand(0).dtype, None)]


def wrong_dtype(node: Node) -> Sequence[ResultType]:
    return [ResultType("int64", node.operand(0).shape)]


def identity(node: Node) -> Execute:
    return lambda operands: [_given(operands[0])]


def raises(node: Node) -> Execute:
    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        raise ZeroDivisionError("not\nfunny")

    return execute


def raises_when_prepared(node: Node) -> Execute:
    raise KeyError("missing")


def runs_out_of_memory(node: Node) -> Execute:
    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        raise MemoryError

    return execute


def writes_to_its_operand(node: Node) -> Execute:
    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        operand = _given(operands[0])
        operand += 1
        return [operand]

    return execute


def counts_in_its_variable(node: Node) -> Execute:
    """Adds operand 0 to the variable in operand 1 and gives the sum."""

    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        state = _given(operands[1])
        state += _given(operands[0])
        return [state.copy()]

    return execute


def _given(value: Array | None) -> Array:
    assert value is not None
    return value


def spec(
    kernel: str, infer: str = "same_shape", operands: int = 1, mutated: tuple[int, ...] = (), macs: str = ""
) -> OpSpec:
    names = tuple(Operand(f"x{i}", mutated=i in mutated) for i in range(operands))
    home = "helpers.kernels"
    return OpSpec(
        "TEST",
        names,
        (Operand("y"),),
        infer=f"{home}:{infer}",
        kernel=f"{home}:{kernel}",
        macs=macs and f"{home}:{macs}",
    )


def chain(*kernels: str, shape: tuple[int | None, ...] = (2,), infer: str = "same_shape", macs: str = "") -> Graph:
    """x -> kernels, one after another -> y; tensor 0 is x, tensor i the result of kernel i."""
    tensors = tuple(TensorInfo(f"t{i}", "float32", shape) for i in range(len(kernels) + 1))
    nodes = tuple(
        GraphNode(
            i, Node(spec(kernel, infer, macs=macs), (tensors[i],), (tensors[i + 1],), name=f"t{i + 1}"), (i,), (i + 1,)
        )
        for i, kernel in enumerate(kernels)
    )
    return Graph("chain", 0, tensors, nodes, (0,), (len(kernels),))


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def gives_blas_threads(node: Node) -> Execute:
    """Gives the number of threads that BLAS may use while the operator runs."""
    return lambda operands: [np.full_like(_given(operands[0]), max(blas_threads()))]


def blas_threads() -> set[int]:
    return {library.get_num_threads() for library in ThreadpoolController().lib_controllers}


def large(node: Node) -> int:
    return LARGE_MACS


def almost_large(node: Node) -> int:
    return LARGE_MACS - 1
