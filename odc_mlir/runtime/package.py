"""Packages for users: inputs and outputs, execution, saving and reports of an nnpackage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import PackageError
from odc_mlir.formats import trust
from odc_mlir.formats.circle.connect import connect
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import identify, read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.package import PackageFiles, is_package, read_package, write_package
from odc_mlir.formats.plan import Plan
from odc_mlir.formats.quantities import model_name
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Shape, TensorInfo, Trait
from odc_mlir.processors import is_cpu
from odc_mlir.runtime.execution.graph import Graph, build_graph

if TYPE_CHECKING:
    from odc_mlir.runtime.execution.executor import Executor, Shapes
    from odc_mlir.runtime.execution.plan import PlanExecutor
    from odc_mlir.runtime.reporting.clocks import Modelled
    from odc_mlir.runtime.reporting.report_object import Report


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output. Unknown dimensions are None. ``scale`` and ``zero_point`` are None if not per-tensor."""

    name: str
    shape: Shape | None
    dtype: str
    scale: float | None
    zero_point: int | None


def tensor_spec(info: TensorInfo) -> TensorSpec:
    """Return the description of a graph input or output."""
    quant = info.quant if info.quant is not None and info.quant.per_tensor else None
    scale, zero_point = (None, None) if quant is None else (quant.scale, quant.zero_point)
    return TensorSpec(info.name, info.shape, info.dtype, scale, zero_point)


class Package:
    """An nnpackage in memory or on disk.

    ``name``: the model's name in reports. ``measured``: measurements of the compilation on this machine. ``verdict``:
        the accuracy verdict if the model was quantised in the same call. ``trust_code``: consent to run machine code of
        the package that was not compiled on this machine. ``cache``: folder of the records of code compiled here
        (:mod:`odc_mlir.formats.trust`), by default in the user's cache.
    """

    def __init__(
        self,
        files: PackageFiles,
        *,
        name: str = "",
        measured: Mapping[str, float | int | None] | None = None,
        verdict: dict[str, Any] | None = None,
        trust_code: bool = False,
        cache: Path | None = None,
    ) -> None:
        self.files = files
        self.name = name or model_name(files.location)
        self.measured = dict(measured or {})
        self.verdict = verdict
        self.trust_code = trust_code
        self.replacement: Package | None = None  # the model compiled here, for a package with untrusted code
        self._cache = cache
        self._executors: dict[tuple[Any, ...], Executor] = {}

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], *, trust_code: bool = False, cache: Path | None = None) -> Package:
        """Open an nnpackage directory or zip. Raises PackageError."""
        return cls(read_package(path), trust_code=trust_code, cache=cache)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the package to the folder ``path``, or to a zip if the name ends with ``.zip``.

        An unchanged package of ours is replaced. Raises PackageError if other files exist in the folder. With
        ``overwrite`` this is no error, and files that are no part of a package stay (:mod:`odc_mlir.formats.outputs`).
        Machine code compiled by this process is recorded. It runs from ``path`` without consent of the user.
        """
        write_package(self.files, path, overwrite=overwrite)
        trust.record(self.files)

    def with_program(self, file: str, program: bytes | str) -> Package:
        """Return a copy with another program for segment ``file``: a binary, or the text of a listing.

        Raises PackageError for an unknown segment, and for text that cannot be assembled.
        """
        from odc_mlir.isa.assembly import read_listing
        from odc_mlir.isa.container import write as write_container

        data = program if isinstance(program, bytes) else write_container(read_listing(program))
        return Package(self.files.with_segment(file, data), name=self.name)

    def __repr__(self) -> str:
        compiled = "nothing compiled" if self.plan is None else f"for {self.plan.target}"
        return f"<Package {self.name or 'without a name'}, {compiled}>"

    def _repr_html_(self) -> str:
        from odc_mlir.runtime.reporting.report_object import small_table

        rows = []
        for kind, specs in (("input", self.inputs), ("output", self.outputs)):
            for spec in specs:
                extents = " x ".join("?" if extent is None else str(extent) for extent in spec.shape or ())
                rows.append((kind, spec.name, spec.dtype, "scalar" if spec.shape == () else extents))
        return small_table(repr(self)[1:-1], ("", "tensor", "type", "shape"), rows)

    @property
    def plan(self) -> Plan | None:
        """The plan, or None if nothing in the package is compiled."""
        return self.files.plan

    @cached_property
    def model(self) -> Model:
        """The primary model, or all models joined as in the manifest, as records. Raises OdcError."""
        manifest = self.files.manifest
        if manifest.is_connected:
            parts = [read_model(self.files.unchanged(path)) for path in manifest.models]
            model = connect(parts, manifest, self.files.location)
        else:
            model = read_model(self.files.model)
        model.path, model.siblings = manifest.models[0], self.files.members
        return model

    @cached_property
    def graph(self) -> Graph:
        """The first subgraph of the package's model. Raises ModelError or UnsupportedError."""
        return build_graph(self.model, states=True)

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs of the model, in order."""
        return tuple(map(tensor_spec, self.graph.input_infos()))

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Outputs of the model, in order."""
        return tuple(map(tensor_spec, self.graph.output_infos()))

    @cached_property
    def states(self) -> tuple[TensorSpec, ...]:
        """Inputs of the states that runs keep. These tensors are not part of :attr:`inputs`."""
        return tuple(tensor_spec(self.graph.tensors[state.input]) for state in self.graph.states)

    @cached_property
    def report(self) -> Report:
        """Placement, cycles, bytes and modelled times as plain JSON data (see
        :mod:`odc_mlir.runtime.reporting.report`).

        The first access times every segment on the simulator. If no time model is known, there are only placement and
        bytes (:mod:`odc_mlir.runtime.reporting.report_object`). Raises PackageError if nothing is compiled.
        """
        from odc_mlir.runtime.reporting.report import build_report
        from odc_mlir.runtime.reporting.report_object import is_modelled, unmodelled_report

        if self.plan is not None and not is_modelled(self.plan):
            return unmodelled_report(self, self.plan)
        return build_report(self)

    @cached_property
    def modelled(self) -> Modelled:
        """Modelled time of one inference, as in the report. Raises PackageError if there is no plan."""
        from odc_mlir.runtime.execution.plan import PlanExecutor
        from odc_mlir.runtime.reporting.report import modelled_inference

        executor = self.executor()
        assert isinstance(executor, PlanExecutor), "plans are run by nothing else"
        return modelled_inference(executor)

    def distrust(self) -> str | None:
        """Return the reason why machine code of the package needs consent to run, or None."""
        from odc_mlir.runtime.devices import open_device
        from odc_mlir.runtime.devices.base import runs_code

        if self.plan is None or not runs_code(open_device(self.plan.extension)):
            return None
        return trust.distrust(self.files, consent=self.trust_code, cache=self._cache)

    def executor(
        self,
        backend: str = "npu",
        *,
        context: Context | None = None,
        all_tensors: bool = False,
        strict: bool = False,
        max_bytes: int | None = None,
        resize: bool = False,
        threads: int | None = None,
        trust_code: bool = False,
    ) -> Executor:
        """Return an executor of the plan, or of the model on the backend host or litert.

        The options are parameters of :func:`~odc_mlir.runtime.backends.graph_executor`. If there is no ``context``, the
        next call returns the same executor. ``threads``: as in the context. ``trust_code``: consent, as for the
        package. Raises PackageError if there is no plan or it does not fit the model. With ``strict``, raises the error
        of an unusable segment.
        """
        options: dict[str, Any] = {"strict": strict, "max_bytes": max_bytes, "resize": resize}
        if backend == "npu":
            options["trust_code"] = trust_code
        else:
            options["all_tensors"] = all_tensors
        if context is not None:
            return self._new_executor(backend, context, options)
        key = (backend, threads, *options.items())
        if key not in self._executors:
            self._executors[key] = self._new_executor(backend, Context(threads=threads), options)
        return self._executors[key]

    def _new_executor(self, backend: str, context: Context, options: dict[str, Any]) -> Executor:
        from odc_mlir.runtime.backends import graph_executor

        shared = context.custom_ops is self.graph.custom_ops
        graph = self.graph if shared else build_graph(self.model, custom_ops=context.custom_ops, states=True)
        if backend != "npu":
            return graph_executor(graph, backend, context=context, **options)
        if self.plan is None:
            raise PackageError("nothing in this package is compiled", location=self.files.location)
        return self.plan_executor(graph, self.plan, context=context, **options)

    def plan_executor(
        self, graph: Graph, plan: Plan, *, trust_code: bool = False, cache: Path | None = None, **options: Any
    ) -> PlanExecutor:
        """Return an executor of ``plan`` (the package's plan or a part of it) for ``graph`` (the package's model).

        Raises errors for changed segments and untrusted machine code. ``trust_code`` and ``cache``: as for the package.
        ``options``: see :class:`~odc_mlir.runtime.execution.plan.PlanExecutor`.
        """
        from odc_mlir.runtime.devices import open_device
        from odc_mlir.runtime.devices.base import runs_code
        from odc_mlir.runtime.execution.plan import PlanExecutor

        def recompile(shapes: Shapes) -> Executor:
            from odc_mlir.runtime.api import native_in_place
            from odc_mlir.runtime.auto.build import with_shapes

            made = native_in_place(with_shapes(model_of(self), shapes), strict=False)
            return made.executor(context=options.get("context"), max_bytes=options.get("max_bytes"))

        device, consent = open_device(plan.extension), trust_code or self.trust_code

        def read(file: str) -> bytes:
            if not runs_code(device):
                return self.files.unchanged(self.files.segment_path(file))
            return trust.read_code(self.files, file, consent=consent, cache=cache or self._cache)

        location = f"{self.files.location}/{self.files.manifest.plan}"
        # Code for other shapes would have a state of its own.
        stateful = graph.states or any(Trait.STATEFUL in item.node.spec.traits for item in graph.nodes)
        again = recompile if is_cpu(plan.target or "") and plan == self.plan and not stateful else None
        return PlanExecutor(graph, plan, device, read, recompile=again, location=location, **options)


def holds_model(path: Path) -> bool:
    """Return whether ``path`` is a model file or a package, by content. Raises OSError."""
    if is_package(path):
        return True
    with path.open("rb") as file:
        return identify(file.read(8)) is not None


def model_of(source: Any) -> Any:
    """Return ``source``, or the bytes of the primary model of a package."""
    if isinstance(source, (str, os.PathLike)) and is_package(Path(source)):
        source = Package.from_path(source)
    if isinstance(source, Package):
        return write_model(source.model) if source.files.manifest.is_connected else source.files.model
    return source
