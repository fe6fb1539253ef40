"""Inputs of shapes that no operator expects: a kernel computes something or refuses them with a typed error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from helpers.grown import cases, given
from helpers.nodes import Array, Session
from odc_mlir.errors import OdcError
from odc_mlir.ops import all_specs


def _odd(array: Array) -> Iterator[Array]:
    """Yield the array as a scalar, and with each axis empty, removed, alone or twice."""
    if array.size:
        yield array.reshape(-1)[:1].reshape(())
    for axis, size in enumerate(array.shape):
        yield np.take(array, [], axis)
        if size:
            yield np.asarray(np.take(array, 0, axis))
            yield np.take(array, [0], axis)
        yield np.expand_dims(array, axis)


@pytest.mark.parametrize("name", sorted(all_specs()))
def test_odd_shapes(name: str) -> None:
    seen = set()
    for made, inputs in cases().get(name, ()):
        dtypes = tuple(array.dtype for array in inputs)
        if dtypes in seen:
            continue
        seen.add(dtypes)
        together = zip(*(list(_odd(array)) for array in inputs), strict=False)
        alone = ([*inputs[:i], odd, *inputs[i + 1 :]] for i, array in enumerate(inputs) for odd in _odd(array))
        for arrays in (*map(list, together), *alone):
            with suppress(OdcError):
                found = Session(given(made, arrays))(*arrays)
                assert all(isinstance(array, np.ndarray) for array in found), "a numpy scalar"
