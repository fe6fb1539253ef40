"""Every row of the importer's table against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import odc_mlir
from helpers.pytorch_cases import CASES
from odc_mlir.frontend.torch.table import ROWS

# Rows that have no result of their own to compare: checks, and sizes, which dynamic shapes test.
WITHOUT_RESULT = {name for name in ROWS if name.startswith(("_assert", "sym_", "_local_scalar", "item"))}


_FIRST_ONLY = {
    "max_pool2d_with_indices", "max_pool3d_with_indices", "native_layer_norm", "native_group_norm", "native_dropout",
    "_native_batch_norm_legit_no_training", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "log_sigmoid_forward", "_native_batch_norm_legit",
}  # fmt: skip


class Calls(torch.nn.Module):
    """Calls of one operator; tensors among their arguments are inputs, except buffers."""

    def __init__(self, name: str, cases: list[tuple[Any, ...]]) -> None:
        super().__init__()
        stem, _, form = name.partition(".")
        self.operator = getattr(getattr(torch.ops.aten, stem), form)
        self.cases = cases
        parts = [part for case in cases for item in case for part in (item if isinstance(item, list) else [item])]
        kept = [part for part in parts if isinstance(part, torch.nn.Buffer)]
        self.kept = torch.nn.ParameterList([torch.nn.Parameter(part.data, requires_grad=False) for part in kept])
        self.inputs = [
            part for part in parts if isinstance(part, torch.Tensor) and not isinstance(part, torch.nn.Buffer)
        ]
        self.first_only = stem in _FIRST_ONLY  # indices of pools and statistics of normalisations are left out

    def forward(self, *inputs: torch.Tensor) -> Any:
        given, kept = iter(inputs), iter(self.kept)

        def value(item: Any) -> Any:
            if isinstance(item, list):
                return [value(part) for part in item]
            if isinstance(item, torch.nn.Buffer):
                return next(kept)
            return next(given) if isinstance(item, torch.Tensor) else item

        results = []
        for case in self.cases:
            *arguments, last = map(value, case)
            options = last if isinstance(last, dict) else {}
            found = self.operator(*arguments, *([] if isinstance(last, dict) else [last]), **options)
            parts = list(found) if isinstance(found, tuple | list) else [found]
            results += parts[:1] if self.first_only else parts
        return results


def check(module: torch.nn.Module, inputs: list[torch.Tensor], near: float = 1e-5) -> None:
    """Compare a module with its conversion."""
    converted = odc_mlir.from_torch(module, tuple(inputs))
    given = [item.numpy() for item in inputs]
    narrow = [item.astype(np.int32) if item.dtype == np.int64 else item for item in given]
    for found, wanted in zip(odc_mlir.run(converted, narrow), module(*inputs), strict=True):
        right = wanted.detach().numpy()
        assert found.shape == right.shape
        assert found.dtype.kind == right.dtype.kind
        np.testing.assert_allclose(found, right, rtol=near, atol=near)


@pytest.mark.parametrize("name", sorted(CASES))
def test_row(name: str) -> None:
    module = Calls(name, CASES[name])
    check(module, module.inputs)


def test_every_row_is_tested() -> None:
    assert sorted(ROWS.keys() - CASES.keys() - WITHOUT_RESULT) == []
