"""Whether passes keep what a model computes: the same inputs before and after, on host kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers.data import Array
from helpers.models import model_bytes
from odc_mlir import pipelines
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.support.text import parse_module
from odc_mlir.universe import make_context


def module_of(text: str) -> ModuleOp:
    """The verified module of IR text."""
    module = parse_module(make_context(), text)
    module.verify()
    return module


def transformed(module: ModuleOp, pipeline: str) -> ModuleOp:
    """A copy of ``module`` behind the passes that ``pipeline`` names, verified after each."""
    copy = module.clone()
    passes = pipelines.passes_of(pipeline)
    pipelines.run_passes(make_context(), copy, passes)
    return copy


def results_of(module: ModuleOp, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of the model that ``module`` is written as."""
    return odc_mlir.run(model_bytes(export_model(module)), list(inputs), backend="host")


def random_inputs(module: ModuleOp, seed: int = 0) -> list[Array]:
    """Normal numbers for the real arguments of the main function, unknown dimensions at 1; whole numbers are small."""
    from odc_mlir.dialects.circle import info_of
    from odc_mlir.transforms.common.placement import main_function

    random = np.random.default_rng(seed)
    infos = [info_of(argument) for argument in main_function(module).body.block.args]
    shapes = [tuple(extent or 1 for extent in info.shape or ()) for info in infos]
    kinds = [info.info.numpy for info in infos]
    return [
        (random.standard_normal(shape) * 2).astype(kind) if kind.kind == "f" else random.integers(0, 8, shape, kind)
        for shape, kind in zip(shapes, kinds, strict=True)
    ]


def assert_equivalent(
    before: ModuleOp, after: ModuleOp, inputs: Sequence[Array], *, rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    """Real outputs agree within the tolerances, everything else exactly; both 0: every bit."""
    for expected, found in zip(results_of(before, inputs), results_of(after, inputs), strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if expected.dtype.kind == "f" and (rtol or atol):
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(found, expected)
