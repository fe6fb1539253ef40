"""``minmax.bin``: ranges as onert records them, read and written.

Little-endian: u32 magic, u32 version, u32 number of runs; then for each run u32 number of operators, u32 number of
inputs, and for each of them, operators first, u32 model, u32 subgraph, u32 operator or input index, f32 minimum,
f32 maximum. An operator stands for its first result; further results have no place in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from odc_mlir.calibration.recorded import Records, TensorKey
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import ModelError, RecordsError
from odc_mlir.formats.circle.model import Model, Operator, Tensor
from odc_mlir.ops.dtypes import DTYPES

MAGIC = 0x4F4D4D44
VERSION = 1

_HEADER = np.dtype([("magic", "<u4"), ("version", "<u4"), ("runs", "<u4")])
_RUN = np.dtype([("operators", "<u4"), ("inputs", "<u4")])
_ENTRY = np.dtype([("model", "<u4"), ("subgraph", "<u4"), ("index", "<u4"), ("low", "<f4"), ("high", "<f4")])


def is_minmax(data: bytes) -> bool:
    """Whether the file that starts with ``data`` is one of these."""
    return data[:4] == MAGIC.to_bytes(4, "little")


def read_minmax(data: bytes, model: Model, *, location: str | None = None) -> Records:
    """The records in a file of ``model``; a tensor's statistics are nothing but extremes.

    Each run of the file counts as a run; onert writes one more for each subgraph that an inference calls. Raises
    RecordsError for a file that is damaged, of another version or of another model.
    """
    extremes: dict[TensorKey, list[tuple[float, float]]] = {}
    runs, named = read_runs(data, location), [subgraph.named() for subgraph in model.subgraphs]
    for operators, inputs in runs:
        for entries, of_input in ((operators, False), (inputs, True)):
            for entry in entries.tolist():
                key = _tensor_of(model, named, entry, of_input, location)
                extremes.setdefault(key, []).append((entry[3], entry[4]))
    if runs:
        _check_of_model(extremes, model, named[0], location)
    tensors = {key: TensorStatistics.of_extremes(*zip(*pairs, strict=True)) for key, pairs in extremes.items()}
    return Records("", len(runs), tensors)


# What results of operators and of fused activations lie between, by definition; a little more is rounding.
_BOUNDS = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
    "LOGISTIC": (0.0, 1.0),
    "SOFTMAX": (0.0, 1.0),
    "TANH": (-1.0, 1.0),
    "ABS": (0.0, math.inf),
    "EXP": (0.0, math.inf),
}
_SLACK = 1e-3


def _check_of_model(
    extremes: Mapping[TensorKey, list[tuple[float, float]]], model: Model, tensors: Sequence[Tensor], where: str | None
) -> None:
    """Raise RecordsError if a file cannot have been recorded for ``model``.

    The format does not say what it was recorded of. A recorder may have fused operators, but what the model gives is
    there if an operator computes it alone and in reals; and no result is beyond what its operator can give.
    """
    hint = "the file was recorded with another model: record this one"
    main = model.subgraphs[0]
    constants = model.constants(0)
    for index, operator in enumerate(main.operators):
        if len(operator.outputs) != 1:
            continue
        tensor = tensors[operator.outputs[0]]
        is_real = DTYPES[tensor.dtype].kind == "float"
        found = extremes.get((0, tensor.name))
        is_given = operator.outputs[0] in main.outputs
        if found is None and is_given and is_real and any(i >= 0 and i not in constants for i in operator.inputs):
            text = f"the file has no range of operator {index}"
        elif found is not None and not is_real:
            text = f"the file has a range of operator {index}, whose result is {tensor.dtype}"
        elif found is not None and (beyond := _beyond(operator, found)) is not None:
            text = f"the file has {beyond:g} as result of operator {index}, which cannot be"
        else:
            continue
        raise RecordsError(text, op=operator.label, tensor=tensor.name, location=where, hint=hint)


def _beyond(operator: Operator, found: Sequence[tuple[float, float]]) -> float | None:
    """A recorded value that the operator cannot have given."""
    fused = str(operator.options.get("fused_activation_function") or "").upper()
    least, most = _BOUNDS.get(fused if fused in _BOUNDS else operator.name, (-math.inf, math.inf))
    return next((end for pair in found for end in pair if end < least - _SLACK or end > most + _SLACK), None)


def read_runs(data: bytes, location: str | None = None) -> list[tuple[NDArray[np.void], NDArray[np.void]]]:
    """Each run's entries, of operators and of inputs, with fields model, subgraph, index, low, high.

    Raises RecordsError for a file that is damaged or of another version.
    """
    if len(data) < _HEADER.itemsize or not is_minmax(data):
        raise RecordsError("this is not a minmax.bin", location=location)
    _, version, count = np.frombuffer(data, _HEADER, 1)[0].tolist()
    if version != VERSION:
        raise RecordsError(f"minmax.bin is of version {version}, expected {VERSION}", location=location)
    offset = _HEADER.itemsize
    runs: list[tuple[NDArray[np.void], NDArray[np.void]]] = []

    def take(dtype: np.dtype[np.void], number: int) -> NDArray[np.void]:
        nonlocal offset
        if number * dtype.itemsize > len(data) - offset:
            raise RecordsError(f"minmax.bin ends after {len(data)} bytes, within run {len(runs)}", location=location)
        result = np.frombuffer(data, dtype, number, offset)
        offset += number * dtype.itemsize
        return result

    for _ in range(count):
        operators, inputs = take(_RUN, 1)[0].tolist()
        runs.append((take(_ENTRY, operators), take(_ENTRY, inputs)))
    if offset < len(data):
        raise RecordsError(f"minmax.bin has {len(data) - offset} bytes behind its {count} runs", location=location)
    return runs


def _tensor_of(
    model: Model,
    named: Sequence[Sequence[Tensor]],
    entry: tuple[int, int, int, float, float],
    of_input: bool,
    where: str | None,
) -> TensorKey:
    """The tensor that an entry is about."""
    model_index, subgraph_index, index, low, high = entry
    kind = "input" if of_input else "operator"
    if not (math.isnan(low) or math.isnan(high)) and low > high:
        raise RecordsError(f"the range of {kind} {index} is {low:g} to {high:g}", location=where)
    if model_index == 0 and subgraph_index < len(model.subgraphs):
        subgraph = model.subgraphs[subgraph_index]
        if of_input and index < len(subgraph.inputs):
            return subgraph_index, named[subgraph_index][subgraph.inputs[index]].name
        if not of_input and index < len(subgraph.operators) and subgraph.operators[index].outputs:
            return subgraph_index, named[subgraph_index][subgraph.operators[index].outputs[0]].name
    raise RecordsError(
        f"the file has a range of {kind} {index} in subgraph {subgraph_index} of model {model_index}",
        location=where,
        hint="the model has none such; the file was recorded with another one",
    )


def write_minmax(records: Records, model: Model) -> bytes:
    """The bytes of a ``minmax.bin`` with every run of ``records``; raises ModelError for records of another model.

    Results of an operator after its first are left out, and so are variables: the format has no place for them.
    """
    named = [subgraph.named() for subgraph in model.subgraphs]
    names = {(index, tensor.name) for index, tensors in enumerate(named) for tensor in tensors}
    for key in records.tensors:
        if key not in names:
            raise ModelError("the records are of another model: this one has no such tensor", tensor=key[1])
    operators = list(_addresses(records.tensors, model, named, of_inputs=False))
    inputs = list(_addresses(records.tensors, model, named, of_inputs=True))
    parts = [np.array([(MAGIC, VERSION, records.runs)], _HEADER).tobytes()]
    for run in range(records.runs):
        entries = [_entries(part, run) for part in (operators, inputs)]
        parts.append(np.array([(len(entries[0]), len(entries[1]))], _RUN).tobytes())
        parts += [np.array(part, _ENTRY).tobytes() for part in entries]
    return b"".join(parts)


_Address = tuple[int, int, NDArray[np.float32]]


def _addresses(
    tensors: Mapping[TensorKey, TensorStatistics],
    model: Model,
    named: Sequence[Sequence[Tensor]],
    *,
    of_inputs: bool,
) -> Iterator[_Address]:
    """Subgraph, operator or input index, and extremes of each tensor that has been recorded."""
    for number, subgraph in enumerate(model.subgraphs):
        firsts = [operator.outputs[0] if operator.outputs else None for operator in subgraph.operators]
        for index, tensor in enumerate(subgraph.inputs if of_inputs else firsts):
            if tensor is not None and DTYPES[subgraph.tensors[tensor].dtype].kind == "float":
                found = tensors.get((number, named[number][tensor].name))
                if found is not None:
                    yield number, index, found.run_extremes


def _entries(addresses: list[_Address], run: int) -> list[tuple[int, int, int, float, float]]:
    """The entries of one run: tensors that had a value in it."""
    return [
        (0, subgraph, index, float(extremes[0, run]), float(extremes[1, run]))
        for subgraph, index, extremes in addresses
        if run < extremes.shape[1] and extremes[0, run] <= extremes[1, run]
    ]
