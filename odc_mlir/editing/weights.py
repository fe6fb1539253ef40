"""Storage of float weights in groups: Circle's blockwise int4, and GGML's 4-bit and 8-bit blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odc_mlir.errors import InputError
from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, Quantization, SubGraph, Tensor
from odc_mlir.numerics.blocks import BLOCK_ELEMENTS, ENCODERS, decode_blocks, four_bit_groups
from odc_mlir.ops.constants import encode_constant
from odc_mlir.ops.spec import Array

_GROUPS = {"int4x32": 32, "int4x64": 64} | dict.fromkeys(ENCODERS, BLOCK_ELEMENTS)
FORMS = tuple(_GROUPS)
"""Storage forms: int4 codes in groups of 32 or 64 neighbours with a float16 scale per group, or GGML types."""

_WEIGHTS = {"FULLY_CONNECTED": 1, "GATHER": 0}


@dataclass(frozen=True)
class StoredWeights:
    """A constant stored in groups: name, size before and after in bytes, and error of values."""

    name: str
    bytes_before: int
    bytes_after: int
    sqnr_db: float


def store_weights(model: Model, form: str) -> list[StoredWeights]:
    """Store float weights of fully connected layers, and tables of GATHER, in a form of :data:`FORMS`.

    Changes ``model``. Constants with other uses, or with rows that are not a multiple of a group, stay unchanged.
    Raises InputError if all stay unchanged.
    """
    group, stored = _GROUPS[form], list[StoredWeights]()
    for buffer, places in _weights(model, group).items():
        (graph, first), before = places[0], model.buffers[buffer]
        values = np.frombuffer(before, "<f4").reshape(graph.tensors[first].shape or ())
        if form in ENCODERS:
            raw = ENCODERS[form](values.reshape(len(values), -1, group))
            reals: Array = decode_blocks(raw, form)
            data, scales = raw.tobytes(), 0
        else:
            codes, factors = four_bit_groups(values.reshape(len(values), -1, group))
            data, reals = encode_constant(codes, "int4"), (codes * factors.astype(np.float32)).reshape(values.shape)
            scales = len(model.buffers)
            model.buffers.append(memoryview(factors.tobytes()))
        model.buffers[buffer] = memoryview(data)
        for owner, index in places:
            tensor = owner.tensors[index]
            tensor.dtype = form if form in ENCODERS else "int4"
            if scales:
                table = {"scales": len(owner.tensors), "zero_points": -1, "block_size": group}
                tensor.quantization = Quantization(details=("BlockwiseQuantization", table))
                shape = (len(values), values.shape[1] // group)
                owner.tensors.append(Tensor(f"{tensor.name}/scales", "float16", shape, None, scales))
        size = len(data) + len(model.buffers[scales])
        stored.append(StoredWeights(graph.tensors[first].name, len(before), size, _sqnr_db(values, reals)))
    if not stored:
        hint = f"it is for float32 constants of fully connected layers and GATHER, in rows of a multiple of {group}"
        raise InputError(f"no weights can be stored as {form}", hint=hint)
    return stored


def _weights(model: Model, group: int) -> dict[int, list[tuple[SubGraph, int]]]:
    """Return, by buffer, the tensors of buffers used only as weights with rows that are multiples of ``group``."""
    places, others = defaultdict[int, list[tuple[SubGraph, int]]](list), {0}
    for number, graph in enumerate(model.subgraphs):
        constants = model.constants(number)
        uses = [(operator, at, index) for operator in graph.operators for at, index in enumerate(operator.inputs)]
        plain = {index for operator, at, index in uses if index != LEFT_OUT and _is_weights(operator, at)}
        plain -= {index for operator, at, index in uses if not _is_weights(operator, at)}
        for index, tensor in enumerate(graph.tensors):
            shape = tensor.shape or ()
            fits = tensor.dtype == "float32" and len(shape) == 2 and shape[1] > 0 and shape[1] % group == 0
            if fits and index in plain - {*graph.outputs} and index in constants and tensor.sparsity is None:
                places[tensor.buffer].append((graph, index))
            else:
                others.add(tensor.buffer)
    return {buffer: found for buffer, found in places.items() if buffer not in others}


def _is_weights(operator: Operator, at: int) -> bool:
    is_plain = operator.options.get("weights_format", "default") == "default"
    return _WEIGHTS.get(operator.name) == at and is_plain and operator.options.get("axis", 0) == 0


def _sqnr_db(values: Array, reals: Sequence[float] | Array) -> float:
    noise = float(np.square(values - reals, dtype=np.float64).sum())
    return 10 * float(np.log10(np.square(values, dtype=np.float64).sum() / noise)) if noise else float("inf")
