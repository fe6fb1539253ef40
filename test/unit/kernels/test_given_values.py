"""Wrong shapes, axes and indices that are given at run time are errors of the input, not of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.errors import InputError, ModelError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONE = np.float32(1)


def i(*values: int) -> NDArray[Any]:
    return np.array(values, np.int32)


def number(value: int) -> NDArray[Any]:
    return np.array(value, np.int32)


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("SLICE", [X, i(0, -1), i(1, 1)], {}),
    ("SLICE", [X, i(0, 3), i(1, 1)], {}),
    ("SLICE", [X, i(0, 0), i(1, -2)], {}),
    ("STRIDED_SLICE", [X, i(0, 0), i(1, 1), i(0, 1)], {}),
    ("STRIDED_SLICE", [X, i(0, 7), i(1, 8), i(1, 1)], {"shrink_axis_mask": 2}),
    ("RESHAPE", [X, i(4, 2)], {}),
    ("PAD", [X, i(0, -1, 0, 0).reshape(2, 2)], {}),
    ("MIRROR_PAD", [X, i(0, 5, 0, 0).reshape(2, 2)], {}),
    ("TILE", [X, i(-1, 1)], {}),
    ("FILL", [i(-1, 2), ONE], {}),
    ("RANGE", [number(0), number(5), number(-1)], {}),
    ("BROADCAST_TO", [X, i(2, 4)], {}),
    ("TRANSPOSE", [X, i(0, 0)], {}),
    ("GATHER", [X, i(5)], {}),
    ("GATHER_ND", [X, i(0, 5).reshape(1, 2)], {}),
    ("SPLIT", [number(5), X], {"num_splits": 1}),
    ("CUMSUM", [X, number(4)], {}),
    ("REVERSE_V2", [X, i(4)], {}),
    ("ARG_MAX", [X, number(4)], {}),
    ("SUM", [X, i(4)], {}),
    ("EXPAND_DIMS", [X, number(9)], {}),
    ("ONE_HOT", [i(0, 1), number(-2), ONE, ONE], {}),
    ("SCATTER_ND", [i(7).reshape(1, 1), np.ones((1, 3), np.float32), i(2, 3)], {}),
    ("SPACE_TO_BATCH_ND", [X.reshape(1, 2, 3, 1), i(0, 1), i(0, 0, 0, 0).reshape(2, 2)], {}),
    ("BATCH_TO_SPACE_ND", [X.reshape(2, 1, 3, 1), i(3, 1), i(0, 0, 0, 0).reshape(2, 2)], {}),
    ("RESIZE_BILINEAR", [X.reshape(1, 2, 3, 1), i(0, 1)], {}),
    ("SPARSE_TO_DENSE", [i(9), i(4), ONE, ONE], {}),
    ("SEGMENT_SUM", [X, i(1, 0)], {}),
    ("REVERSE_SEQUENCE", [X, i(9, 1)], {"seq_dim": 1, "batch_dim": 0}),
    ("EMBEDDING_LOOKUP", [i(9), X], {}),
]
RESULTS = {"ARG_MAX": "int64", "RANGE": "int32"}


def run(name: str, values: list[Any], options: dict[str, Any], constant: int | None = None) -> None:
    """Run the operator with ``values`` as inputs, the one at index ``constant`` as a constant."""
    builder = ModelBuilder()
    arrays = [np.asarray(value) for value in values]
    tensors = [
        builder.tensor(
            f"i{index}",
            array.shape,
            str(array.dtype),
            signature=None if index == constant else (-1,) * array.ndim,
            data=array if index == constant else None,
        )
        for index, array in enumerate(arrays)
    ]
    out = builder.tensor("out", (1,), RESULTS.get(name, "float32"), signature=(-1,))
    builder.operator(name, tensors, [out], options=options)
    fed = [index for index in range(len(arrays)) if index != constant]
    odc_mlir.run(
        model_bytes(builder.finish([tensors[index] for index in fed], [out])), [arrays[index] for index in fed]
    )


@pytest.mark.parametrize(("name", "values", "options"), CASES)
def test_a_wrong_value_is_an_error_of_the_input(name: str, values: list[Any], options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as raised:
        run(name, values, options)
    assert raised.value.op == name
    assert raised.value.hint


def test_a_wrong_constant_is_an_error_of_the_model() -> None:
    with pytest.raises(ModelError, match="the permutation"):
        run("TRANSPOSE", [X, i(0, 0)], {}, constant=1)
