"""Float networks built operator by operator, whose values are known as they are built: to be quantised by passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from helpers import nodes
from odc_mlir import transforms
from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, NoneOp, VariableOp, info_of, op_class, tensor_type
from odc_mlir.dialects.circle_types import sparsity_attribute
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.ops import get
from odc_mlir.ops.custom import spec_of_code
from odc_mlir.ops.registry import default_custom_ops
from odc_mlir.ops.sparse import DimMetadata, Sparsity
from odc_mlir.ops.spec import Node
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.support.locations import name_loc, names_loc, op_name
from odc_mlir.transforms.quant.common.ir import all_ops, quantized_function
from odc_mlir.transforms.quant.quant_attach_ranges import attach_ranges
from odc_mlir.universe import make_context

Array = NDArray[Any]


class FloatNet:
    """A function whose operators run as they are added; :attr:`values` has what each real value was."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.values: dict[str, Array] = {}
        self.inputs: list[Array] = []
        self._arrays: dict[SSAValue, Array] = {}
        self._block = Block()

    def input(self, array: Array) -> SSAValue:
        """A graph input, with the sample that is recorded."""
        value = self._block.insert_arg(tensor_type(str(array.dtype), array.shape), len(self._block.args))
        value.location = name_loc(f"in{len(self.inputs)}")
        self.inputs.append(array)
        self._remember(value, f"in{len(self.inputs) - 1}", array)
        return value

    def real(self, *shape: int, low: float = -1.0, high: float = 1.0) -> SSAValue:
        """A graph input of random reals."""
        return self.input(self.rng.uniform(low, high, shape).astype(np.float32))

    def const(self, values: Any, dtype: str = "float32") -> SSAValue:
        """A constant."""
        array = np.ascontiguousarray(values, dtype)
        op = ConstOp(BlobAttr.of(array.tobytes()), tensor_type(dtype, array.shape))
        op.location = name_loc(f"const{len(self._arrays)}")
        self._block.add_op(op)
        self._arrays[op.result] = array
        return op.result

    def diagonal(self, *numbers: float) -> SSAValue:
        """A constant matrix stored sparse: nothing but its diagonal."""
        size = len(numbers)
        places = DimMetadata("sparse_csr", 0, np.arange(size + 1, dtype=np.int32), np.arange(size, dtype=np.int32))
        sparsity = sparsity_attribute(Sparsity((0, 1), (), (DimMetadata("dense", size), places)))
        stored = BlobAttr.of(np.array(numbers, np.float32).tobytes())
        op = ConstOp(stored, tensor_type("float32", (size, size)), sparsity)
        op.location = name_loc(f"const{len(self._arrays)}")
        self._block.add_op(op)
        self._arrays[op.result] = np.diag(np.array(numbers, np.float32))
        return op.result

    def variable(self, *shape: int, name: str) -> SSAValue:
        """State, at first zero; afterwards what the operator left there."""
        array = np.zeros(shape, np.float32)
        op = VariableOp(tensor_type("float32", shape))
        op.location = name_loc(name)
        self._block.add_op(op)
        self._remember(op.result, name, array)
        return op.result

    def weights(self, *shape: int, spread: float = 1.0) -> SSAValue:
        """Random constant reals."""
        return self.const(self.rng.normal(0, spread, shape))

    def add(
        self,
        operator: str,
        *operands: SSAValue | None,
        count: int = 1,
        dtypes: Sequence[str] = (),
        name: str = "",
        code: str = "",
        data: bytes = b"",
        **options: Any,
    ) -> Any:
        """An operator: its result, or a list where there are several; ``dtypes`` are theirs if not all are real.

        ``code`` and ``data`` say which custom operator, and its options.
        """
        label = name or f"{operator.lower()}{len(self.values)}"
        labels = [label if index == 0 else f"{label}:{index}" for index in range(count)]
        given = [operand if operand is not None else self._nothing() for operand in operands]
        spec = spec_of_code(code, default_custom_ops()) if code else get(operator)
        infos = [None if operand is None else info_of(operand) for operand in operands]
        made = Node(
            spec,
            tuple(infos),
            tuple(nodes.tensor(d, None, name=n) for d, n in zip(dtypes or ["float32"] * count, labels, strict=True)),
            {**default_options(spec.options), **options},
            label,
            custom_code=code,
            custom_options=data,
        )
        inferred = spec.infer_function(made)
        made.results = tuple(
            nodes.tensor(item.dtype, item.shape, name=n) for item, n in zip(inferred, labels, strict=True)
        )
        arrays = spec.kernel_function(made)([None if o is None else self._arrays[o] for o in operands])
        types = [tensor_type(item.dtype, array.shape) for item, array in zip(inferred, arrays, strict=True)]
        properties = {"custom_code": code, "custom_options": data or None} if code else default_options(spec.options)
        op = op_class(operator).make(given, types, {**properties, **options}, location=names_loc(labels))
        self._block.add_op(op)
        for item, result, array in zip(labels, op.results, arrays, strict=True):
            self._remember(result, item, array)
        return op.results[0] if count == 1 else list(op.results)

    def module(self, *outputs: SSAValue) -> ModuleOp:
        """The network with the ranges of its values in its types."""
        self._block.add_op(ReturnOp(*outputs))
        function = FuncOp("main", (list(self._block.arg_types), [o.type for o in outputs]), Region(self._block))
        made = ModuleOp([function])
        ranges = {
            n: (float(a.min()), float(a.max())) for n, a in self.values.items() if a.dtype == np.float32 and a.size
        }
        attach_ranges(function, ranges)
        made.verify()
        return made

    def array(self, value: SSAValue) -> Array:
        """What a value was."""
        return self._arrays[value]

    def name(self, value: SSAValue) -> str:
        """What a value is called."""
        return next(name for name, array in self.values.items() if array is self._arrays[value])

    def _nothing(self) -> SSAValue:
        op = NoneOp()
        self._block.add_op(op)
        return op.result

    def _remember(self, value: SSAValue, name: str, array: Array) -> None:
        self._arrays[value] = self.values[name] = array


def run_pass(module: ModuleOp, name: str, **options: Any) -> None:
    """Run one pass in place and verify."""
    transforms.load(name)(**options).apply(make_context(), module)
    module.verify()


def assign(module: ModuleOp, scheme: str, **options: Any) -> ModuleOp:
    """Assigned and propagated element types, in place."""
    run_pass(module, "quant-assign-params", scheme=scheme, **options)
    run_pass(module, "quant-propagate-params")
    return module


def operator(module: ModuleOp, name: str) -> CircleOp:
    """The operator whose first result is called ``name``."""
    function = quantized_function(module)
    assert function is not None
    return next(op for op in all_ops(function) if op_name(op) == name)


def quantised_results(module: ModuleOp, inputs: Sequence[Array]) -> list[Array]:
    """Results of an assigned module with real inputs and outputs."""
    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "quant-insert-requantize")
    return HostExecutor(build_graph(export_model(module))).run(list(inputs))
