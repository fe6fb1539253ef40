"""Imports go downwards only, and heavy packages load late."""

from __future__ import annotations

from functools import cache

import pytest

from helpers.source import Import, imports, package_files
from odc_mlir.plugins.registry import OWN_ENTRIES

pytestmark = pytest.mark.xdist_group("source")  # one process parses all files

FACTS = frozenset({"errors", "isa", "formats", "targets", "processors", "numerics", "ops"})
IR = FACTS | {"support", "dialects"}

# Room (top-level module or folder of the package) -> what it may import. The whole import rule is this table.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "process_limits": frozenset(),
    "numerics": frozenset({"errors"}),
    "targets": frozenset({"errors", "isa"}),
    "processors": frozenset({"errors"}),
    "ops": frozenset({"errors"}),
    "isa": frozenset({"errors"}),
    "formats": frozenset({"errors", "ops"}),
    "calibration": frozenset({"errors", "ops", "numerics", "formats"}),
    # What is decided about numbers, without IR: the passes and the session's worker follow it.
    "quantizer.policy": frozenset({"errors", "isa", "ops", "numerics", "formats", "calibration"}),
    # How reports look to people; what they say is their own.
    "pages": frozenset({"errors", "formats"}),
    "simulator": frozenset({"errors", "isa", "targets", "numerics"}),
    # Object code for processors and loading it: knows no IR, so that the runtime can use it.
    "codegen": frozenset({"errors", "processors"}),
    "runtime": FACTS
    | {"simulator", "plugins", "calibration", "quantizer.policy", "codegen", "pages", "process_limits"},
    # Only the plugins of our own compilers import them, in the process that a plugin runs in; our own targets name
    # the rules that their passes follow.
    "plugins": FACTS
    | {"backends", "codegen", "compiler", "process_limits", "runtime.auto.build", "universe"}
    | {"transforms.partition.rules", "transforms.native.lowering.operators"},
    "plugins.universes": frozenset({"errors", "plugins"}),
    "support": FACTS,
    # Canonicalization patterns are imported by a trait of the operations when they are first applied, as in xDSL.
    "dialects": FACTS | {"support", "transforms.circle.rewrites.canonical"},
    # Of a file for other readers it is asked what these run.
    "frontend": IR | {"quantizer.policy"},
    # Native code takes parameters from the host kernels that it has to equal, prepared.
    "transforms": IR | {"calibration", "quantizer.policy", "runtime.kernels", "legality"},
    "emitter": IR | {"codegen"},
    "interpreters": frozenset({"errors", "ops", "numerics", "support", "dialects", "runtime.kernels"}),
    "legality": IR,
    "pipelines": IR | {"frontend", "transforms", "emitter", "legality", "plugins.universes"},
    # Which program is the fastest is asked of the simulator, which runs what the passes that follow make.
    "transforms.npu.npu_search_plans": IR | {"transforms", "emitter", "pipelines", "simulator"},
    "loading": IR | {"frontend", "transforms", "universe", "runtime"},
    "backends": IR | {"codegen", "frontend", "transforms", "emitter", "pipelines", "plugins", "universe"},
    # What stages make is run, and compared with what they were given.
    "validation": IR
    | {"backends", "emitter", "interpreters", "optimizer", "pipelines", "runtime", "transforms"}
    | {"universe"},
    "compiler": IR
    | {"backends", "validation", "frontend", "transforms", "emitter", "pipelines", "universe"}
    | {"codegen", "loading", "plugins.universes"},
    "firmware": IR | {"backends", "codegen", "compiler", "editing", "emitter", "loading", "runtime", "transforms"},
    "universe": IR | {"frontend", "transforms", "emitter", "pipelines", "plugins.universes"},
    # What is quantised is also run, to be compared, and compiled, to know its time.
    "quantizer": IR
    | {"frontend", "transforms", "pipelines", "loading", "universe", "calibration", "runtime", "pages"}
    | {"process_limits", "compiler"},
    "samples": frozenset({"errors"}),
    "explore": frozenset({"errors", "formats", "targets", "pages", "runtime"}),
    "editing": IR | {"frontend", "transforms", "universe", "quantizer.policy"},
    # Of the rewrites only their names; which steps there are, not what they do.
    "flow": frozenset({"errors", "formats", "targets", "transforms.circle.rewrites.table"}),
    "ir_api": IR | {"compiler", "runtime", "simulator"},
    "viewer": IR | {"transforms", "pages"},
    "linter": IR | {"frontend", "transforms", "loading", "universe", "pipelines", "plugins", "runtime"},
    "optimizer": IR | {"frontend", "transforms", "loading", "universe", "runtime"},
}
# Rooms within rooms, that have a rule of their own.
NESTED = tuple(room for room in MAY_IMPORT if "." in room)
# The Python interface and the commands may use everything, but only inside functions (heavy things load late).
COMMANDS = frozenset({"__main__", "start", "tools"})
ENTRANCES = COMMANDS | {"", "_version"}

# The quantiser's areas and their modules; a module imports only from those before it.
QUANTIZER_ORDER: dict[str, tuple[str, ...]] = {
    "policy": (
        "policy.declarations",
        "policy.readers",
        "policy.schemes",
        "policy.ranges",
        "policy.products",
        "policy.verdict",
    )
    + ("policy.options",),
    "samples": ("states", "samples"),
    "measure": ("outputs", "execution", "measurement", "reference", "layers"),
    "make": ("refinement", "models", "candidates"),
    "search": ("target", "evaluator", "help", "pareto", "precisions"),
    "driver": ("driver",),
    "verdict": ("verdict", "report", "summary", "quantize"),
}

# The one module of the runtime that compiles on the device, by an import inside a function.
RUNTIME_TO_COMPILER = "odc_mlir.runtime.api"
_ASKED_FOR = frozenset({"compiler", "loading", "quantizer", "support"})

USES_XDSL = frozenset(
    {"support", "dialects", "frontend", "transforms", "emitter", "interpreters", "pipelines", "compiler", "universe"}
    | {
        "backends",
        "editing",
        "firmware",
        "ir_api",
        "legality",
        "linter",
        "loading",
        "optimizer",
        "quantizer",
        "transforms.npu.npu_search_plans",
        "validation",
        "viewer",
    }
)
HEAVY = frozenset({"numpy", "xdsl", "flatbuffers", "h5py"})


def room_of(module: str) -> str:
    """``odc_mlir.runtime.execution.executor`` -> ``runtime``; the package itself -> the empty string.

    A room within a room goes first: ``odc_mlir.quantizer.policy.schemes`` -> ``quantizer.policy``.
    """
    name = module.partition(".")[2]
    return next((room for room in NESTED if f"{name}.".startswith(f"{room}.")), name.partition(".")[0])


@cache
def _all_imports() -> tuple[Import, ...]:
    return tuple(found for path in package_files() for found in imports(path))


def _allowed(found: Import) -> bool:
    importer, target = room_of(found.importer), room_of(found.target)
    if (
        importer.partition(".")[0] == importer == target.partition(".")[0]
        or importer == target
        or importer in ENTRANCES
        or target == "_version"
    ):
        return True
    if found.importer == RUNTIME_TO_COMPILER and target in _ASKED_FOR:
        return found.lazy
    return any(
        found.target == f"odc_mlir.{allowed}" or found.target.startswith(f"odc_mlir.{allowed}.")
        for allowed in MAY_IMPORT[importer]
    )


def test_every_room_has_a_rule() -> None:
    rooms = {room_of(found.importer) for found in _all_imports()}
    assert rooms - ENTRANCES <= set(MAY_IMPORT), "add the new room to the import rule"


def test_imports_go_downwards() -> None:
    wrong = [found for found in _all_imports() if found.target.startswith("odc_mlir") and not _allowed(found)]
    assert not wrong, "\n".join(map(str, wrong))


def test_the_rule_says_no() -> None:
    assert not _allowed(Import("odc_mlir.simulator.core", "odc_mlir.dialects.npu", 1, lazy=True))
    assert not _allowed(Import("odc_mlir.dialects.npu", "odc_mlir.transforms.tile", 1, lazy=False))
    assert not _allowed(Import("odc_mlir.interpreters.module", "odc_mlir.runtime.api", 1, lazy=False))
    assert not _allowed(Import(RUNTIME_TO_COMPILER, "odc_mlir.compiler", 1, lazy=False))
    assert not _allowed(Import("odc_mlir.compiler", "odc_mlir.tools.common", 1, lazy=False))
    assert not _allowed(Import("odc_mlir.quantizer.policy.readers", "odc_mlir.runtime.backends", 1, lazy=False))


def test_the_quantizer_is_ordered() -> None:
    order = [f"odc_mlir.quantizer.{name}" for names in QUANTIZER_ORDER.values() for name in names]
    files = {found.importer for found in _all_imports() if room_of(found.importer).startswith("quantizer")}
    assert files == set(order), "add the module to its area"
    wrong = [f for f in _all_imports() if f.importer in files and f.target in order and not _is_below(order, f)]
    assert not wrong, "\n".join(map(str, wrong))
    assert not _is_below(order, Import(order[0], order[1], 1, lazy=False))


def _is_below(order: list[str], found: Import) -> bool:
    return order.index(found.target) < order.index(found.importer)


def _own_modules() -> set[str]:
    """Modules of our own targets, codegen plugins and devices, as they are registered."""
    return {reference.partition(":")[0] for group in OWN_ENTRIES.values() for reference in group.values()}


def test_own_targets_and_devices_come_by_the_door() -> None:
    own = _own_modules()
    assert len(own) == 3
    wrong = [f for f in _all_imports() if f.importer not in own and (f.target in own or _parent(f.target) in own)]
    assert not wrong, "\n".join(map(str, wrong))


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def test_tools_are_imported_by_nobody() -> None:
    wrong = [f for f in _all_imports() if room_of(f.target) == "tools" and room_of(f.importer) not in COMMANDS]
    assert not wrong, "\n".join(map(str, wrong))


def test_xdsl_stays_in_the_compiler() -> None:
    wrong = [
        found
        for found in _all_imports()
        if found.target.partition(".")[0] == "xdsl"
        and room_of(found.importer) not in USES_XDSL
        and not (room_of(found.importer) in ENTRANCES and found.lazy)
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_entrances_import_nothing_heavy_at_the_top() -> None:
    light = {"odc_mlir._version", "odc_mlir.errors", "odc_mlir.formats.kinds", "odc_mlir.calibration.record_files"}
    light |= {"odc_mlir.formats.cache", "odc_mlir.formats.quantities", "odc_mlir.quantizer.policy.declarations"}
    # and the entrances' own parts, of which the same is asked
    wrong = [
        found
        for found in _all_imports()
        if room_of(found.importer) in ENTRANCES
        and not found.lazy
        and (
            found.target.partition(".")[0] in HEAVY
            or (
                found.target.startswith("odc_mlir")
                and found.target not in light
                and room_of(found.target) not in COMMANDS
            )
        )
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_quantising_loads_the_npu_back_end_for_a_target_only() -> None:
    eager: dict[str, set[str]] = {}
    for found in _all_imports():
        if not found.lazy and found.target.startswith("odc_mlir"):
            eager.setdefault(found.importer, set()).add(found.target)
    loaded, waiting = set[str](), ["odc_mlir.quantizer.quantize"]
    while waiting:
        name = waiting.pop()
        if name not in loaded:
            loaded.add(name)
            waiting += eager.get(name, ())
    heavy = ("odc_mlir.transforms.npu", "odc_mlir.simulator", "odc_mlir.compiler")
    assert "odc_mlir.quantizer.driver" in loaded
    assert not [name for name in loaded if name.startswith(heavy)]


def test_dialects_do_not_import_numpy_at_the_top() -> None:
    wrong = [
        found
        for found in _all_imports()
        if room_of(found.importer) == "dialects" and found.target == "numpy" and not found.lazy
    ]
    assert not wrong, "\n".join(map(str, wrong))
