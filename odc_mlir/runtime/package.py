"""A compiled package (or any nnpackage) as users hold it: what goes in and out, how to run, save and explain it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from odc_mlir.errors import PackageError
from odc_mlir.formats.circle.connect import connect
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import identify, read_model
from odc_mlir.formats.package import PackageFiles, is_package, read_package, write_package
from odc_mlir.formats.plan import Plan
from odc_mlir.formats.quantities import model_name
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Shape, TensorInfo
from odc_mlir.runtime.backends import graph_executor
from odc_mlir.runtime.devices import open_device
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.runtime.reporting.clocks import Modelled
from odc_mlir.runtime.reporting.report_object import Report, small_table
from odc_mlir.targets.cpu import HERE


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output. Unknown dimensions are None; ``scale`` and ``zero_point`` too unless there is one of each."""

    name: str
    shape: Shape | None
    dtype: str
    scale: float | None
    zero_point: int | None


def tensor_spec(info: TensorInfo) -> TensorSpec:
    """What users see of a graph input or output."""
    quant = info.quant if info.quant is not None and info.quant.per_tensor else None
    return TensorSpec(
        info.name,
        info.shape,
        info.dtype,
        None if quant is None else quant.scale,
        None if quant is None else quant.zero_point,
    )


def _extent(dimension: int | None) -> str:
    return "?" if dimension is None else str(dimension)


class Package:
    """An nnpackage in memory or on disk.

    ``name``: of the model, for reports; ``measured``: what was measured on this machine while it was compiled;
    ``verdict``: how close the model is to the float model that it was quantised from just now, None without.
    """

    def __init__(
        self,
        files: PackageFiles,
        *,
        name: str = "",
        measured: Mapping[str, float | int | None] | None = None,
        verdict: dict[str, Any] | None = None,
    ) -> None:
        self.files = files
        self.name = name or model_name(files.location)
        self.measured = dict(measured or {})
        self.verdict = verdict
        self._executors: dict[tuple[Any, ...], Executor] = {}

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Package:
        """Open an nnpackage directory or zip; raises PackageError."""
        return cls(read_package(path))

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the package to the folder ``path``, or to a zip when the name ends with ``.zip``.

        A package of ours that nobody has changed is replaced. Raises PackageError when anything else is there, unless
        ``overwrite``, which keeps files that are no part of a package (:mod:`odc_mlir.formats.outputs`).
        """
        write_package(self.files, path, overwrite=overwrite)

    def __repr__(self) -> str:
        compiled = "nothing compiled" if self.plan is None else f"for {self.plan.target}"
        return f"<Package {self.name or 'without a name'}, {compiled}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: what the package is, and what goes in and out."""
        rows = [
            (kind, spec.name, spec.dtype, "scalar" if spec.shape == () else " x ".join(map(_extent, spec.shape or ())))
            for kind, specs in (("input", self.inputs), ("output", self.outputs))
            for spec in specs
        ]
        return small_table(repr(self)[1:-1], ("", "tensor", "type", "shape"), rows)

    @property
    def plan(self) -> Plan | None:
        """The plan; None in a package that holds nothing compiled."""
        return self.files.plan

    @cached_property
    def model(self) -> Model:
        """The primary model's records, or those of all models as the manifest connects them; raises OdcError."""
        manifest = self.files.manifest
        if manifest.is_connected:
            parts = [read_model(self.files.read(path)) for path in manifest.models]
            model = connect(parts, manifest, self.files.location)
        else:
            model = read_model(self.files.model)
        model.path, model.siblings = manifest.models[0], self.files.members
        return model

    @cached_property
    def graph(self) -> Graph:
        """The first subgraph of the package's model; raises ModelError or UnsupportedError."""
        return build_graph(self.model)

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What the model takes, in order."""
        return tuple(map(tensor_spec, self.graph.input_infos()))

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What the model gives, in order."""
        return tuple(map(tensor_spec, self.graph.output_infos()))

    @cached_property
    def report(self) -> Report:
        """Placement, cycles, bytes and modelled times as plain JSON data; see :mod:`odc_mlir.runtime.reporting.report`.

        Made when first asked for, by timing every segment on the simulator. Of code for machines that nothing models
        there is placement and bytes (:mod:`odc_mlir.runtime.reporting.report_unmodelled`). Raises PackageError where
        nothing is compiled.
        """
        from odc_mlir.runtime.reporting.report import build_report
        from odc_mlir.runtime.reporting.report_unmodelled import is_modelled, unmodelled_report

        if self.plan is not None and not is_modelled(self.plan):
            return unmodelled_report(self, self.plan)
        return build_report(self)

    @cached_property
    def modelled(self) -> Modelled:
        """What one inference takes by the modelled clock, as the report has it; raises PackageError without a plan."""
        from odc_mlir.runtime.reporting.report import modelled_inference

        executor = self.executor()
        assert isinstance(executor, PlanExecutor), "plans are run by nothing else"
        return modelled_inference(executor)

    def executor(
        self,
        backend: str = "npu",
        *,
        context: Context | None = None,
        all_tensors: bool = False,
        strict: bool = False,
        max_bytes: int | None = None,
        resize: bool = False,
        threads: int = 1,
    ) -> Executor:
        """What runs the package: by its plan, or without it by the backend host or litert.

        The options are those of :func:`~odc_mlir.runtime.backends.graph_executor`; without a ``context`` the same
        executor serves the next call. ``threads``: how many run native code together. Raises PackageError when there is
        no plan, or it does not fit the model, and with ``strict`` whatever makes a segment unusable.
        """
        options: dict[str, Any] = {"strict": strict, "max_bytes": max_bytes, "resize": resize}
        if context is not None:
            return self._new_executor(backend, context, all_tensors, threads, options)
        key = (backend, all_tensors, strict, max_bytes, resize, threads)
        if key not in self._executors:
            self._executors[key] = self._new_executor(backend, Context(), all_tensors, threads, options)
        return self._executors[key]

    def _new_executor(
        self, backend: str, context: Context, all_tensors: bool, threads: int, options: dict[str, Any]
    ) -> Executor:
        shared = context.custom_ops is self.graph.custom_ops
        graph = self.graph if shared else build_graph(self.model, custom_ops=context.custom_ops)
        if backend != "npu":
            return graph_executor(graph, backend, context=context, all_tensors=all_tensors, **options)
        if self.plan is None:
            raise PackageError("nothing in this package is compiled", location=self.files.location)
        location = f"{self.files.location}/{self.files.manifest.plan}"
        return PlanExecutor(
            graph,
            self.plan,
            open_device(self.plan.extension),
            self.files.unchanged_segment if self.plan.extension == HERE else self.files.segment,
            context=context,
            location=location,
            threads=threads,
            **options,
        )


def holds_model(path: Path) -> bool:
    """Whether there is a model file or a package at ``path``, told by content; raises OSError."""
    if is_package(path):
        return True
    with path.open("rb") as file:
        return identify(file.read(8)) is not None
