"""The conformance suite of ``odc-plugin check``, for targets, codegen plugins and devices.

The suite compiles small models, compares runs with host kernels, damages files, and compiles files that are no models.
:func:`check_plugin` runs the suite in a separate process. A plugin can therefore neither end nor stall the command.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from odc_mlir import ops
from odc_mlir.errors import OdcError, OptionError
from odc_mlir.formats.circle.model import Model, Operator, SubGraph, Tensor
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.package import is_package
from odc_mlir.formats.samples import random_inputs
from odc_mlir.ops.spec import Array, Node
from odc_mlir.plugins import codegen, registry
from odc_mlir.plugins.foreign import WORKER, Answer, raised
from odc_mlir.plugins.isolation import started
from odc_mlir.plugins.target import FLOAT, Chosen, TargetDescription, choose, operator_ns, rules_reason
from odc_mlir.process_limits import Limits
from odc_mlir.quantizer.policy.schemes import scheme as scheme_of
from odc_mlir.runtime import api
from odc_mlir.runtime.devices import MissingDevice, ask_devices, open_device, sources_of
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.validity import Check, PackageState, check, verify_package

_RUNS = 4
_DAMAGES = 24
_SUITE_SECONDS = 1800.0
_TOLERANCE = 1e-4  # difference of float results, relative to the largest; the order of sums may differ


class _FailedError(Exception):
    """A check failed."""


@dataclass
class _Suite:
    name: str
    folder: Path
    chosen: Chosen | None = None
    described: TargetDescription | None = None
    made: dict[str, Path] = field(default_factory=dict)

    def found(self) -> str:
        """A codegen plugin with this name answers in a separate process."""
        self.chosen = choose(self.name)
        self.described = None if self.chosen.facts is None else self.chosen.description()
        source = registry.find(self.chosen.codegen)
        said = codegen.describe(self.chosen.codegen)
        wants = said.quantization or "real numbers"
        return f"{said.name} from {source.origin}, wants {wants}"

    def target(self) -> str:
        """The rules are lines of text, reject something and never raise."""
        description = self.described
        if description is None:
            return "none is described, so sessions and partitioning know nothing of it"
        if not description.schemes:
            raise _FailedError("it names no scheme that models should be in")
        for scheme in description.schemes:
            if scheme != FLOAT:
                scheme_of(scheme)
        rules = description.rules_of(self._chosen.machine)
        lines = list(rules.lines())
        if not lines or any("\n" in line for line in lines):
            raise _FailedError("its rules are not lines of text")
        answers = [rules_reason(rules, node, description.name) for node in _nodes()]
        if not any(answers):
            raise _FailedError("no rule says no to anything, not even to random numbers")
        if any("\n" in answer for answer in answers if answer is not None):
            raise _FailedError("a rule's reason is not a line of text")
        return f"{len(lines)} lines of rules"

    def costs(self) -> str:
        """The cost of every accepted operator is a time."""
        description = self.described
        costs = None if description is None else description.costs_of(self._chosen.machine)
        if description is None or costs is None:
            return "none of its own, so everything goes there that can"
        rules = description.rules_of(self._chosen.machine)
        taken = [node for node in _nodes() if rules_reason(rules, node, description.name) is None]
        times = [operator_ns(costs, node, description.name) for node in taken]
        return f"{min(times):g} to {max(times):g} ns for {len(times)} operators" if times else "not asked for"

    def compiles(self) -> str:
        """Small models compile, twice to the same bytes."""
        for name, model in self._wanted().items():
            file = self.folder / f"{name}.circle"
            file.write_bytes(model)
            one, two = (self._generate(file, f"{name}-{number}") for number in (1, 2))
            if one.read_bytes() != two.read_bytes():
                raise _FailedError(f"the model {name!r} is compiled to other bytes the second time")
            self.made[name] = one
        return f"{len(self.made)} models"

    def packages(self) -> str:
        """Outputs are complete packages for this machine, with compiled segments."""
        packages = self._packages()
        for name, package in packages.items():
            for item in verify_package(package.files):
                if item.problem is not None:
                    raise _FailedError(f"{name!r}: {item.what}: {item.problem}")
            found = check(package)
            if found.state is not PackageState.RUNS:
                raise _FailedError(f"{name!r}: {found.state}: {found.reason}")
        segments = sum(len(package.plan.segments) for package in packages.values() if package.plan is not None)
        if packages and not segments:
            raise _FailedError("not one operator of the models is compiled")
        return f"{segments} segments in {len(packages)} packages" if packages else self._no_packages()

    def device(self) -> str:
        """The device computes the same as host kernels, in every run."""
        packages = self._packages()
        if not packages:
            return self._no_packages()
        device = open_device(self._extension)
        if isinstance(device, MissingDevice):
            raise _FailedError(str(device.reason))
        for facts in ask_devices(sources_of(self._extension)[:1]):
            if isinstance(facts, OdcError):
                raise facts
        for name, package in packages.items():
            _compare(name, package.executor(strict=True), package.executor("host"))
        return f"{device.name}{', simulated' if device.simulated else ''}"

    def damage(self) -> str:
        """Damaged binaries are refused or run, and have no side effects."""
        load, packages = open_device(self._extension).load, self._packages().values()
        files = [
            (step.file, package.files.segment(step.file))
            for package in packages
            for step in (package.plan.segments if package.plan is not None else ())
        ]
        refused = sum(_damaged(name, data, load) for name, data in files)
        return f"{refused} damaged files were refused" if packages else self._no_packages()

    def refuses(self) -> str:
        """A file that is no model is refused, and nothing is written."""
        file = self.folder / "nothing.circle"
        file.write_bytes(b"\0" * 64)
        try:
            made = self._generate(file, "nothing")
        except OdcError as error:
            return error.message
        raise _FailedError(f"64 zero bytes were compiled to {made.name}")

    @property
    def _chosen(self) -> Chosen:
        if self.chosen is None:
            raise _FailedError("there is no such plugin")
        return self.chosen

    @property
    def _extension(self) -> str:
        return registry.extension_of(self._chosen.codegen)

    def _generate(self, model: Path, name: str) -> Path:
        machine = {} if self._chosen.machine is None else {"target": self._chosen.machine}
        output = self.folder / f"{name}.{self._extension}"
        return codegen.generate(model, self._chosen.codegen, output, target_options=machine)

    def _wanted(self) -> dict[str, bytes]:
        said = codegen.describe(self._chosen.codegen)
        models = {name: bytes(write_model(model)) for name, model in _models().items()}
        if said.quantization is None:
            return models
        quantised = {
            f"{name}-{said.quantization}": _quantised(models[name], said.quantization) for name in ("layers", "image")
        }
        return quantised | (models if said.takes_floats else {})

    def _packages(self) -> dict[str, Package]:
        if not self.made:
            raise _FailedError("nothing was made")
        return {name: Package.from_path(path, trust_code=True) for name, path in self.made.items() if is_package(path)}

    def _no_packages(self) -> str:
        return f"it makes .{self._extension} files, which are not packages: nothing here runs them"


def _damaged(name: str, data: bytes, load: Callable[[bytes], Any]) -> int:
    chance, refused = random.Random(name), 0
    for _ in range(_DAMAGES):
        bad = bytearray(data)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.2:
            bad = bad[: chance.randrange(len(bad))]
        try:
            load(bytes(bad))
        except OdcError:
            refused += 1
        except (Exception, SystemExit) as error:
            raise _FailedError(f"{name}: a damaged file makes it raise {raised(error)}") from error
    return refused


def check_plugin(name: str) -> list[Check]:
    """Run the suite for a target or plugin in a separate process and return the outcomes."""
    job = {"file": None, "reference": None, "ask": f"{__name__}:suite_answer", "question": {"name": name}}
    try:
        with started(WORKER, job, Limits(_SUITE_SECONDS, None), whole_environment=True) as result:
            answer = result()
        if answer["error"] is not None:
            raise OptionError(answer["error"]["text"])
        return [Check(**outcome) for outcome in answer["said"]["outcomes"]]
    except (OdcError, KeyError, TypeError) as error:
        return [Check("The suite runs to its end", str(error))]


def suite_answer(_plugin: object, question: Answer) -> Answer:
    """Run the suite for ``question["name"]`` and return the outcomes as JSON data."""
    return {"outcomes": [asdict(outcome) for outcome in run_suite(question["name"])]}


def run_suite(name: str) -> Iterator[Check]:
    """Yield the outcomes of the suite for a target or plugin."""
    with TemporaryDirectory(prefix="odc-plugin-") as folder:
        suite = _Suite(name, Path(folder))
        described = (suite.found, suite.target, suite.costs)
        steps = (*described, suite.compiles, suite.packages, suite.device, suite.damage, suite.refuses)
        for step in steps:
            what = (step.__doc__ or "").strip().rstrip(".")
            try:
                yield Check(what, note=step())
            except (_FailedError, OdcError) as error:
                yield Check(what, str(error))
                if step == suite.found:
                    return
            except (Exception, SystemExit) as error:  # an error of the plugin or of ours
                yield Check(what, raised(error))


def _compare(name: str, executor: Executor, host: Executor) -> None:
    for seed in range(_RUNS):
        inputs = _random_inputs(executor.graph, seed)
        kept = [value.copy() for value in inputs]
        outputs, again, expected = executor.run(inputs), executor.run(inputs), host.run(inputs)
        if any(not np.array_equal(one, two) for one, two in zip(inputs, kept, strict=True)):
            raise _FailedError(f"{name!r}: it writes into its inputs")
        for ours, second, theirs in zip(outputs, again, expected, strict=True):
            if ours.tobytes() != second.tobytes():
                raise _FailedError(f"{name!r}: the same inputs give other outputs the second time")
            apart = np.abs(ours.astype(np.float64) - theirs)
            allowed = _TOLERANCE * np.max(np.abs(theirs), initial=1e-6) if ours.dtype.kind == "f" else 0
            if ours.shape != theirs.shape or np.any(apart > allowed):
                raise _FailedError(f"{name!r}: it computes something else than host kernels, by {apart.max():g}")
    if isinstance(executor, PlanExecutor) and executor.fallbacks:
        raise _FailedError(f"{name!r}: {next(iter(executor.fallbacks.values()))}")


def _random_inputs(graph: Graph, seed: int) -> list[Array]:
    return random_inputs([(info.info.numpy, info.static_shape) for info in graph.input_infos()], seed)


def _quantised(model: bytes, scheme: str) -> bytes:
    graph = build_graph(read_model(model))
    samples = [_random_inputs(graph, seed) for seed in range(12)]
    return bytes(api.quantize(model, scheme=scheme, calibration=samples, help=False).to_circle())


def _models() -> dict[str, Model]:
    chance = np.random.default_rng(9)

    def weights(*shape: int) -> Any:
        return chance.normal(0, 0.4, shape).astype(np.float32)

    relu: dict[str, Any] = {"fused_activation_function": "relu"}
    layers = _ChainBuilder((1, 64))
    layers.add("FULLY_CONNECTED", (1, 48), weights(48, 64), weights(48), **relu)
    layers.add("FULLY_CONNECTED", (1, 32), weights(32, 48), weights(32))
    layers.add("SOFTMAX", (1, 32), beta=1.0)
    image = _ChainBuilder((1, 8, 8, 8))
    strides: dict[str, Any] = {"padding": "same", "stride_h": 1, "stride_w": 1}
    image.add("CONV_2D", (1, 8, 8, 16), weights(16, 3, 3, 8), weights(16), **strides, **relu)
    image.add("MAX_POOL_2D", (1, 8, 8, 16), **strides, filter_height=2, filter_width=2)
    image.add("LOGISTIC", (1, 8, 8, 16))
    odd = _ChainBuilder((1, 8), "int64")
    odd.add("CUMSUM", (1, 8), np.array(1, np.int32))
    return {"layers": layers.model(), "image": image.model(), "odd": odd.model()}


def _nodes() -> list[Node]:
    stateful = _ChainBuilder((2,), "int32")
    stateful.add("RANDOM_UNIFORM", (1, 8), dtype="float32")
    models = (*_models().values(), stateful.model())
    return [item.node for model in models for item in build_graph(model).nodes]


class _ChainBuilder:
    """Builder of a chain of operators. Constants follow the first operand of each."""

    def __init__(self, shape: Sequence[int], dtype: str = "float32") -> None:
        self._dtype = dtype
        self._graph = SubGraph("main")
        self._buffers = [memoryview(b"")]
        self._last = self._tensor("input", shape, dtype)
        self._graph.inputs = (self._last,)

    def add(self, name: str, shape: Sequence[int], *constants: Any, dtype: str | None = None, **options: Any) -> None:
        inputs = [self._last]
        for value in constants:
            buffer = len(self._buffers)
            self._buffers.append(memoryview(value.tobytes()))
            inputs.append(self._tensor(f"constant_{buffer}", value.shape, value.dtype.name, buffer))
        self._last = self._tensor(f"{name.lower()}_{len(self._graph.operators)}", shape, dtype or self._dtype)
        table = ops.get(name).options
        fields: dict[str, Any] = {"options_type": table, "options": default_options(table) | options}
        self._graph.operators.append(Operator(name, inputs=tuple(inputs), outputs=(self._last,), **fields))

    def model(self) -> Model:
        self._graph.outputs = (self._last,)
        return Model(subgraphs=[self._graph], buffers=self._buffers)

    def _tensor(self, name: str, shape: Sequence[int], dtype: str, buffer: int = 0) -> int:
        self._graph.tensors.append(Tensor(name, dtype, tuple(shape), None, buffer))
        return len(self._graph.tensors) - 1
