"""Rewrites of declared states: outputs of only new rows, and integer states with float inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import info_of
from odc_mlir.dialects.odc import put_states, state_places
from odc_mlir.formats.states import StatePair
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.placement import main_function
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.rewriting import make_constant, part, producer

_LEAST_RANK = 3  # minimum rank of a cache; vectors of different lengths are more likely a mistake


def append_rows(module: ModuleOp, pairs: Iterable[StatePair]) -> list[StatePair]:
    """Return ``pairs`` with outputs of the size of the inputs: the last rows of the input, then the new rows.

    A pair changes if there are three or more axes, and the output is shorter than the input along exactly one axis.
    """
    main = main_function(module)
    last = main.body.block.last_op
    assert isinstance(last, ReturnOp), "a verified function ends with a return"
    inputs = {value_name(value): value for value in main.body.block.args}
    places = {value_name(value): place for place, value in enumerate(last.operands)}
    made: list[StatePair] = []
    for pair in pairs:
        source, place = inputs.get(pair.input), places.get(pair.output)
        rows = None if place is None else last.operands[place]
        axis = None if source is None or rows is None else _appended_axis(source, rows)
        if source is None or rows is None or place is None or axis is None:
            made.append(pair)
            continue
        last.operands[place] = joined = _joined(source, rows, axis, last)
        made.append(StatePair(value_name(joined), pair.input, pair.initial))
    set_function_type(main)
    return made


def _appended_axis(source: SSAValue, rows: SSAValue) -> int | None:
    old, new = info_of(source), info_of(rows)
    if (old.dtype, old.quant) != (new.dtype, new.quant) or not old.shape or not new.shape:
        return None
    if None in old.shape or len(old.shape) != len(new.shape) or len(old.shape) < _LEAST_RANK:
        return None
    axes = [axis for axis, (whole, some) in enumerate(zip(old.shape, new.shape, strict=True)) if whole != some]
    is_one = len(axes) == 1 and (new.shape[axes[0]] or 0) < (old.shape[axes[0]] or 0)
    return axes[0] if is_one and new.shape[axes[0]] else None


def _joined(source: SSAValue, rows: SSAValue, axis: int, last: ReturnOp) -> SSAValue:
    """Return the last rows of ``source`` followed by ``rows``, with the shape of ``source``.

    A model that reads all rows contains the same operators, so that equal operators can be merged.
    """
    shape, count = info_of(source).static_shape, info_of(rows).static_shape[axis]
    whole, begin = np.array(shape, np.int32), np.zeros(len(shape), np.int32)
    whole[axis], begin[axis] = shape[axis] + count, count
    joined = part("CONCATENATION", [source, rows], source, "all", shape=tuple(map(int, whole)), axis=axis)
    numbers = (("begin", begin), ("end", whole), ("strides", np.ones(len(shape), np.int32)))
    ends = [make_constant(array, "int32", f"{value_name(source)}/{name}") for name, array in numbers]
    kept = part("STRIDED_SLICE", [joined.results[0], *(op.result for op in ends)], source, "next")
    Rewriter.insert_op([joined, *ends, kept], InsertPoint.before(last))
    return kept.results[0]


def keep_state_codes(module: ModuleOp) -> None:
    """Remove the conversions of states that are only dequantised for the output and quantised again by the next run.

    Both conversions must have one scale and zero point. The codes then survive them unchanged, so results stay equal,
    and a device can keep the state. States with a float initial value that is not zero stay float.
    """
    main = main_function(module)
    last, places = main.body.block.last_op, list(state_places(module))
    assert isinstance(last, ReturnOp), "a verified function ends with a return"
    for number, (place, source, initial) in enumerate(places):
        argument, writer = main.body.block.args[source], producer(last.operands[place], "DEQUANTIZE")
        readers = [use.operation for use in argument.uses]
        if writer is None or any(initial or b"") or set(map(_coded_as, readers)) != {writer.operands[0].type}:
            continue
        last.operands[place] = codes = writer.operands[0]
        new = retype(argument, codes.type)
        for reader in readers:
            Rewriter.replace_op(reader, [], [new])
        places[number] = (place, source, None)
    put_states(module, places)
    set_function_type(main)


def _coded_as(reader: Operation) -> Attribute | None:
    """Return the type to which ``reader`` quantises, or None for other operations."""
    made = producer(reader.results[0], "QUANTIZE") if reader.results else None
    return None if made is None else made.results[0].type
