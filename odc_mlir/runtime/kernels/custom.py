"""Custom operators that the application computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import unsupported


def registered(node: Node) -> Execute:
    """Calls what is registered for the custom code; raises UnsupportedError where nothing is."""
    operator = node.context.custom_ops.get(node.custom_code)
    if operator is None:
        error = unsupported(node, f"nobody computes custom operators with the code {node.custom_code!r}")
        error.hint = f"register a function with odc_mlir.register_custom_op({node.custom_code!r}, function)"
        raise error
    constants = [info.array() if info is not None and info.is_const else None for info in node.operands]
    written = node.mutated

    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        inputs = [
            constant if value is None else value if index in written else _locked(value)
            for index, (value, constant) in enumerate(zip(operands, constants, strict=True))
        ]
        given = operator.evaluate(inputs, node.results, node.custom_options)
        if len(given) != len(node.results):
            raise node.error(f"the registered function gave {len(given)} results, the model has {len(node.results)}")
        results = []
        for info, value in zip(node.results, given, strict=True):
            array = np.asarray(value)
            if array.dtype != info.info.numpy:
                raise node.error(
                    f"the registered function gave {array.dtype}, the model declares {info.dtype}", tensor=info.name
                )
            results.append(array)
        return results

    return execute


def _locked(value: Array) -> Array:
    """The same array, read-only."""
    view = value.view()
    view.flags.writeable = False
    return view
