"""Firmware of a package: C sources and objects that run the plan with the NPU's driver (``driver/``).

The files for the name ``net``: ``net.h`` and ``net.c`` run the plan, with all buffers in one arena. ``net_programs.c``
holds the .npu files. ``net_host0.o``, … hold the host operators of a step. ``main.c`` is an example for a host with the
simulator (``driver/host.h``). Templates of the C files are in ``emitter/c_templates``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path

from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import BlockArgument, OpResult, SSAValue

from odc_mlir import backends
from odc_mlir.codegen.machine import chosen
from odc_mlir.compiler import check_c_name, native_module, refuse_host_operators
from odc_mlir.dialects.circle import CircleOp, info_of
from odc_mlir.dialects.native_attributes import ARENA_BYTES
from odc_mlir.editing.cutting import keep_operators, main_operators
from odc_mlir.emitter.native_segment import fill, module_of, native_object, needs, tensor_definitions
from odc_mlir.errors import PackageError, UnsupportedError
from odc_mlir.formats.native_segment import SLACK_BYTES
from odc_mlir.formats.plan import HostStep, Plan, SegmentStep
from odc_mlir.isa import container
from odc_mlir.isa.fields import REGION_ALIGNMENT_BYTES, Region
from odc_mlir.loading import load
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.processors import HERE, CpuTarget
from odc_mlir.runtime.package import Package
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.placement import is_view, main_function
from odc_mlir.transforms.npu.schedule.arena import Interval, allocate_tightly

_HINT = "move these operators to the NPU, or run the package with odc-mlir's runtime"
_ROW_BYTES = 24  # bytes on one line of a C array


def emit_firmware(package: Package, *, name: str, triple: str | None = None, cpu: str = "") -> dict[str, bytes]:
    """Return the firmware files for a package that is compiled for an NPU.

    ``triple`` and ``cpu``: LLVM's names for the processor of the host operators (default: this machine). Without host
        operators, the files are C alone, and need no code generator. Raises OdcError, in particular UnsupportedError
        for host operators that have no native kernel.
    """
    check_c_name(name)
    if package.plan is None or not package.plan.segments or package.plan.extension != "npu":
        raise PackageError(
            "the package has no segment for an NPU", hint="for a processor alone, use odc-compile --emit object"
        )
    is_plain = triple is None and not cpu and all(isinstance(step, SegmentStep) for step in package.plan.steps)
    return _Firmware(package, package.plan, name, None if is_plain else chosen(HERE, triple, cpu)).files()


def driver_files() -> dict[str, bytes]:
    """Return the sources of the NPU's driver and of its platform on POSIX, by name."""
    installed, clone = Path(__file__).with_name("emitter") / "driver", Path(__file__).parents[1] / "driver"
    folder = installed if installed.is_dir() else clone
    return {name: (folder / name).read_bytes() for name in ("odc_npu.h", "odc_npu.c", "host.h", "host.c")}


class _Firmware:
    """Steps, tensors and files of one package.

    In lines of C, ``@7@`` is the address of tensor 7 in the arena, and ``@-1@`` is the address of the first step's
    scratch memory. A step is stored as tensors and lines of C.
    """

    def __init__(self, package: Package, plan: Plan, name: str, processor: CpuTarget | None) -> None:
        self._package, self._plan, self._name, self._processor = package, plan, name, processor
        self._graph, self._module = package.graph, load(package)
        self._infos: dict[int, TensorInfo] = {}  # tensors between steps, with the shapes that the steps use
        self._sizes: dict[int, int] = {}  # bytes of tensors and scratch memories
        self._programs: list[bytes] = []
        self._objects: dict[str, bytes] = {}
        self._declared: list[str] = []
        # Unique names of the module's values -> tensors.
        operators = main_operators(self._module)
        values = [*_interface(self._module)[0], *(v for op in operators for v in (*op.operands, *op.results))]
        tensors = [*package.model.subgraphs[0].inputs]
        tensors += [t for node in self._graph.nodes for t in (*node.inputs, *node.outputs)]
        self._tensors = dict(zip(map(value_name, values), tensors, strict=True))
        self._steps = [
            self._host(step, ~number) if isinstance(step, HostStep) else self._segment(step, ~number)
            for number, step in enumerate(plan.steps)
        ]
        for tensor in {*self._graph.sources, *self._graph.results} - self._infos.keys():
            self._note(tensor, self._graph.tensors[tensor].static_shape)
        self._kept = {state.input: state.initial for state in self._graph.states}
        if any(state.output in self._kept for state in self._graph.states):
            raise UnsupportedError("the new value of a state is another state, unchanged", hint=_HINT)
        self._kept |= {t: initial_contents(info).tobytes() for t, info in self._infos.items() if info.is_variable}
        self._kept |= {t: info.array().tobytes() for t, info in self._infos.items() if info.is_const}

    def _note(self, tensor: int, shape: tuple[int, ...]) -> None:
        info = self._infos.setdefault(tensor, replace(self._graph.tensors[tensor], shape=shape))
        if info.static_shape != shape:
            raise UnsupportedError("a tensor in two shapes passes between steps", tensor=info.name, hint=_HINT)
        self._sizes[tensor] = math.prod(shape) * info.info.numpy.itemsize

    def _segment(self, step: SegmentStep, memory: int) -> tuple[Sequence[int], Sequence[str]]:
        data = self._package.files.unchanged(self._package.files.segment_path(step.file))
        contents = container.read(data, step.file)
        for tensor, record in zip((*step.inputs, *step.outputs), (*contents.inputs, *contents.outputs), strict=True):
            self._note(tensor, record.shape)
        regions = (size for region, size in contents.region_bytes.items() if region != Region.CONSTANTS)
        self._sizes[memory] = sum(-(-size // REGION_ALIGNMENT_BYTES) * REGION_ALIGNMENT_BYTES for size in regions)
        given, made = (f"{{{', '.join(map(_place, tensors)) or 'NULL'}}}" for tensors in (step.inputs, step.outputs))
        arguments = f"model, {len(self._programs)}, {_place(memory)}, (const void *[]){given}, (void *[]){made}"
        self._programs.append(data)
        lines = [f"status = run_program({arguments}); /* {step.file} */", "if (status != ODC_NPU_OK) return status;"]
        return (*step.inputs, *step.outputs), lines

    def _host(self, step: HostStep, memory: int) -> tuple[Sequence[int], Sequence[str]]:
        part = keep_operators(self._module, step.operators)
        reads, writes = ([self._tensors[value_name(v)] for v in values] for values in _interface(part))
        assert self._processor is not None, "there are host operators"
        lowered = native_module(part, self._processor)
        refuse_host_operators(lowered, _HINT, views=True)
        (inputs, outputs), segments = _interface(lowered), backends.segments(lowered)
        if len(inputs) != len(reads) or len(outputs) != len(writes) or len(segments) > 1:
            raise UnsupportedError("the host operators between two segments are no single program", hint=_HINT)
        for tensor, value in zip((*reads, *writes), (*inputs, *outputs), strict=True):
            self._note(tensor, info_of(value).static_shape)
        origins, lines = [_origin(value) for value in outputs], []
        sources: dict[SSAValue, int] = dict(zip(inputs, reads, strict=True))
        for segment in segments:
            function = f"{self._name}_host{len(self._objects)}"
            self._objects[function], _ = native_object(segment, self._processor, function)
            arena = module_of(segment).attributes[ARENA_BYTES]
            assert isinstance(arena, IntegerAttr), "the arena is allocated"
            size, updates = arena.value.data + SLACK_BYTES, []
            places = [_place(self._source(value, sources)) for value in segment.operands]
            for result, end in zip(segment.results, segment.ending.operands, strict=True):
                if isinstance(end, BlockArgument):  # the new value of a variable, beside the old one until the end
                    variable = self._source(segment.operands[end.index], sources)
                    size += -size % REGION_ALIGNMENT_BYTES
                    places.append(f"{_place(memory)} + {size}")
                    updates.append(self._copy(_place(variable), places[-1], variable))
                    size += self._sizes[variable] + SLACK_BYTES
                else:
                    sources[result] = writes[origins.index(result)]
                    places.append(_place(sources[result]))
            self._sizes[memory] = size
            places.append(_place(memory))
            self._declared.append(f"int32_t {function}_run({', '.join(['void *'] * len(places))});")
            lines += [f"if ({function}_run({', '.join(places)}) != 0) return ODC_NPU_E_HOST;", *updates]
        pairs = [(to, self._source(origin, sources)) for to, origin in zip(writes, origins, strict=True)]
        lines += [self._copy(_place(to), _place(source), to) for to, source in pairs if source != to]
        return (*reads, *writes), lines

    def _source(self, value: SSAValue, sources: Mapping[SSAValue, int]) -> int:
        """Return the tensor of a value of a host step. Record constants and variables."""
        origin = _origin(value)
        if origin in sources:
            return sources[origin]
        tensor = self._tensors[value_name(origin)]
        self._note(tensor, info_of(origin).static_shape)
        return tensor

    def _copy(self, to: str, source: str, tensor: int) -> str:
        return f"memcpy({to}, {source}, {self._sizes[tensor]});"

    def _allocate(self) -> tuple[dict[int, int], int]:
        """Return the offsets of tensors and scratch memories in the arena, and the size of the arena."""
        uses = {place: [~place] for place in self._sizes if place < 0}
        for tensor in self._infos:
            uses[tensor] = [n for n, (tensors, _) in enumerate(self._steps) if tensor in tensors]
            uses[tensor] += [-1] * (tensor in self._graph.sources or tensor in self._kept)
            uses[tensor] += [len(self._steps)] * (tensor in self._graph.results or tensor in self._kept)
        intervals = [
            Interval(place, self._sizes[place] + SLACK_BYTES, min(steps), max(steps), REGION_ALIGNMENT_BYTES)
            for place, steps in uses.items()
        ]
        size = allocate_tightly(intervals)
        return {interval.owner: interval.start for interval in intervals}, size

    def files(self) -> dict[str, bytes]:
        """Return the contents of all files by name."""
        name, plan, objects = self._name, self._plan, self._objects
        texts = {"name": name, "upper": name.upper(), "programs": str(len(self._programs)), **self._plan_texts()}
        processor = "any processor" if self._processor is None else f"the processor {self._processor.triple}"
        texts |= {"target": plan.target or "", "memory": plan.memory or "", "processor": processor}
        texts["needs"] = "\n".join(f"/* {needs(code, f'{function}.o')} */" for function, code in objects.items())
        texts["tensors"] = ""
        for kind, tensors in (("input", self._graph.inputs), ("output", self._graph.outputs)):
            prefixes = [f"{name}_{kind}{index}".upper() for index in range(len(tensors))]
            texts["tensors"] += "".join(map(tensor_definitions, prefixes, (self._infos[t] for t in tensors), repeat(0)))
            texts[f"{kind}_count"] = str(len(tensors))
            texts[f"{kind}_bytes"] = ", ".join(f"{prefix}_BYTES" for prefix in prefixes)
        arrays = [f"program{i}[] ODC_NPU_ALIGNED = {_array(data)};" for i, data in enumerate(self._programs)]
        texts["arrays"] = "\n\n".join(f"static const uint8_t {array}" for array in arrays)
        texts["images"] = "\n".join(f"  {{program{i}, sizeof program{i}}}," for i in range(len(self._programs)))
        made = {f"{name}.h": "model.h", f"{name}.c": "model.c", f"{name}_programs.c": "programs.c", "main.c": "main.c"}
        files = {file: fill(template, **texts).encode() for file, template in made.items()}
        return files | {f"{function}.o": code for function, code in objects.items()}

    def _plan_texts(self) -> dict[str, str]:
        graph, (places, arena_bytes) = self._graph, self._allocate()
        lines = [self._copy(_place(tensor), f"inputs[{i}]", tensor) for i, tensor in enumerate(graph.inputs)]
        lines += [line for _, lines in self._steps for line in lines]
        lines += [self._copy(f"outputs[{i}]", _place(tensor), tensor) for i, tensor in enumerate(graph.outputs)]
        lines += [self._copy(_place(state.input), _place(state.output), state.input) for state in graph.states]
        resets = [self._copy(_place(tensor), f"start{tensor}", tensor) for tensor in self._kept]
        starts = [f"static const uint8_t start{tensor}[] = {_array(data)};" for tensor, data in self._kept.items()]

        def placed(lines: Sequence[str]) -> str:
            text = "\n".join(f"  {line}" for line in lines)
            return re.sub(r"@(-?\d+)@", lambda match: f"model->arena + {places[int(match[1])]}", text)

        texts = {"arena_bytes": str(arena_bytes), "declarations": "\n".join([*self._declared, *starts])}
        return texts | {"resets": placed(resets), "steps": placed(lines)}


def _interface(module: ModuleOp) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
    block = main_function(module).body.block
    last = block.last_op
    assert isinstance(last, ReturnOp), "a verified function ends in a return"
    return block.args, last.operands


def _origin(value: SSAValue) -> SSAValue:
    """Return the value that ``value`` is an alias of."""
    while isinstance(value, OpResult) and isinstance(value.op, CircleOp) and is_view(value.op):
        value = value.op.operands[0]
    return value


def _place(place: int) -> str:
    return f"@{place}@"


def _array(data: bytes) -> str:
    rows = (data[first : first + _ROW_BYTES] for first in range(0, len(data), _ROW_BYTES))
    return "{\n" + "\n".join(f"  {','.join(map(str, row))}," for row in rows) + "\n}"
