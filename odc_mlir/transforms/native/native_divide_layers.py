"""``native-divide-layers``: add a second function to a segment, which several threads run together.

Before, in a segment's module::

    func.func @segment_0(%in0: memref<?xi8>, %out0: memref<?xi8>, %arena: …, %constants: …) -> i32 {
      func.call @flip_sign(%in0, %0, %c768) : …
      func.call @convolve_rows8_vectors2_offset0(%0, …, %c1024, …) : …

After, in addition::

    func.func @segment_0_part(…, %scratch: memref<?xi8>, %barrier: memref<?xi8>, %part: index, %parts: index) -> i32 {
      scf.if %first {
        func.call @flip_sign(%in0, %0, %c768) : …
      }
      func.call @odc_barrier(%barrier, %parts) : (memref<?xi8>, index) -> ()
      scf.if %busy {
        func.call @convolve_rows8_vectors2_offset0(%0, …, %pixels, …) : …

``parts`` threads call it at the same time, each with a different ``part``. Layers with at least ``layer-products``
products are divided by pixels, so that every result is computed as before; part 0 does the rest. A vector may write
beyond the last channel of a pixel, into the next part's results, so each part computes its last pixels in a region of
its own in ``scratch`` and copies them. Segments whose divided layers have fewer than ``segment-products`` products in
total are left unchanged: waking a thread would take longer than it saves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import (
    DictionaryAttr,
    FixedBitwidthType,
    FunctionType,
    IndexType,
    IntegerAttr,
    LocationAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    UnknownLoc,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import SymbolTable

from odc_mlir.dialects.native_attributes import PART, SCRATCH_BYTES
from odc_mlir.formats.native_segment import ALIGNMENT_BYTES, BARRIER
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.kernels.registry import BY_PIXEL, find_kernel
from odc_mlir.transforms.native.lowering.loops import BYTES, INDEX
from odc_mlir.transforms.native.lowering.segment_writer import KERNEL, OPTIONS, SLACK, declaration
from odc_mlir.transforms.native.native_allocate_memory import segment_function, segment_modules

_COPY = "copy_rows"
_RESULT = "first_result"  # a parameter of kernels that write into the middle of a buffer


@dataclass(frozen=True)
class NativeDivideLayersPass(ModulePass):
    """Add the functions; see the module's text."""

    name = "native-divide-layers"

    layer_products: int = 1 << 20
    """A layer with fewer products is not divided."""

    segment_products: int = 1 << 25
    """A segment whose divided layers have fewer products in total is not changed."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for module in segment_modules(op):
            function = segment_function(module)
            calls = [call for call in function.body.block.ops if isinstance(call, func.CallOp)]
            layers = [_layer_of(module, call) for call in calls]
            large = [None if item is None or item.products < self.layer_products else item for item in layers]
            if sum(item.products for item in large if item is not None) >= self.segment_products:
                _divide(module, function, large)


@dataclass(frozen=True)
class _DivisibleCall:
    """A call of a kernel that can be divided. ``places``: of its operands, by the name of the kernel's parameter."""

    places: Mapping[str, int]
    rows: int
    pixels: int
    channels: int
    item_bytes: int
    beyond: int  # elements that are written behind the last channel of a pixel
    products: int

    @property
    def tail(self) -> int:
        """The last pixels of a part, in whole tiles: what is written behind the one before them stays within them."""
        reached = -(-self.beyond // self.channels)
        return -(-reached // self.rows) * self.rows

    @property
    def most_parts(self) -> int:
        """How many parts have enough pixels: those of the tail, and a tile before."""
        return self.pixels // self.rows // (self.tail // self.rows + 1)

    @property
    def scratch_bytes(self) -> int:
        size = self.tail * self.channels * self.item_bytes + SLACK
        return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES if self.tail else 0


def _layer_of(module: ModuleOp, call: func.CallOp) -> _DivisibleCall | None:
    """What a call computes, None where it cannot be divided."""
    declared = SymbolTable.lookup_symbol(module, call.callee.root_reference.data)
    assert declared is not None
    name, given = declared.attributes[KERNEL], declared.attributes[OPTIONS]
    assert isinstance(name, StringAttr)
    assert isinstance(given, DictionaryAttr)
    kernel = find_kernel(name.data)
    if not kernel.depth:
        return None
    options = {key: value.value.data for key, value in given.data.items() if isinstance(value, IntegerAttr)}
    places = {parameter: index for index, parameter in enumerate(kernel.parameters(options))}

    def number(parameter: str) -> int:
        return _number(call.operands[places[parameter]])

    width = LANES * options.get("vectors", 1)
    output = call.operands[places["output"]].type
    assert isinstance(output, MemRefType)
    assert isinstance(output.element_type, FixedBitwidthType)
    channels, pixels = number("channels"), number("pixels")
    layer = _DivisibleCall(
        places,
        options["rows"],
        pixels,
        channels,
        output.element_type.size,
        number("blocks") * width - channels,
        pixels * number("blocks") * width * math.prod(map(number, kernel.depth)),
    )
    return layer if layer.most_parts > 1 else None


def _number(value: SSAValue) -> int:
    """A number that is known, as those are that say how large a layer is."""
    assert isinstance(value.owner, arith.ConstantOp)
    assert isinstance(value.owner.value, IntegerAttr)
    return value.owner.value.value.data


def _divide(module: ModuleOp, function: func.FuncOp, layers: Sequence[_DivisibleCall | None]) -> None:
    """Add the function of one part; ``layers`` belong to the calls, None where only the first part makes the call."""
    part = function.clone()
    part.sym_name = StringAttr(f"{function.sym_name.data}_part")
    block = part.body.block
    extra = {}
    for name in ("scratch", "barrier", "part", "parts"):
        type: Attribute = BYTES if name in ("scratch", "barrier") else INDEX
        extra[name] = block.insert_arg(type, len(block.args))
        extra[name].name_hint = name
    part.function_type = FunctionType.from_lists(list(block.arg_types), list(function.function_type.outputs))
    scratch_bytes = max(layer.scratch_bytes for layer in layers if layer is not None)
    _Parts(block, extra, scratch_bytes).rewrite(layers)
    module.body.block.insert_op_after(part, function)
    if scratch_bytes and SymbolTable.lookup_symbol(module, _COPY) is None:
        module.body.block.add_op(declaration(_COPY, _COPY, {}))
    module.body.block.add_op(func.FuncOp.external(BARRIER, [BYTES, INDEX], []))
    module.attributes[PART] = part.sym_name
    module.attributes[SCRATCH_BYTES] = IntegerAttr(scratch_bytes, i64)


class _Parts:
    """The body of a segment's function while it becomes that of one part."""

    def __init__(self, block: Block, extra: Mapping[str, SSAValue], scratch_bytes: int) -> None:
        self._block = block
        self._arguments = extra
        self._scratch_bytes = scratch_bytes
        self._top = self._builder = Builder(InsertPoint.at_start(block))
        self._location: LocationAttr = UnknownLoc()
        self._constants: dict[int, SSAValue] = {}

    def rewrite(self, layers: Sequence[_DivisibleCall | None]) -> None:
        """Let the first part make the calls that are not divided, and all parts wait for one another in between."""
        calls = [op for op in self._block.ops if isinstance(op, func.CallOp)]
        end = next(op for op in self._block.ops if isinstance(op, memref.LoadOp | func.ReturnOp))
        steps = itertools.groupby(
            enumerate(zip(calls, layers, strict=True)), key=lambda item: -1 if item[1][1] is None else item[0]
        )
        wait = False
        for _, step in steps:
            together = [item for _, item in step]
            self._location = together[0][0].location
            self._builder = Builder(InsertPoint.after(together[-1][0]))
            if wait:
                self._wait()
            wait = True
            first, layer = together[0]
            if layer is None:
                self._by_the_first([call for call, _ in together])
            else:
                self._by_all(first, layer)
        if layers[-1] is not None:
            self._location, self._builder = end.location, Builder(InsertPoint.before(end))
            self._wait()

    def _wait(self) -> None:
        self._add(func.CallOp(BARRIER, [self._arguments["barrier"], self._arguments["parts"]], []))

    def _by_the_first(self, calls: Sequence[func.CallOp]) -> None:
        """Calls one after the other, in part 0."""
        with self._if(self._compare(self._arguments["part"], "eq", self._constant(0))):
            for call in calls:
                self._block.detach_op(call)
                self._add(call, call.location)

    def _by_all(self, call: func.CallOp, layer: _DivisibleCall) -> None:
        """A call for some of the pixels in every part, as long as there are pixels enough."""
        part, parts = self._arguments["part"], self._arguments["parts"]
        busy = self._emit(arith.MinSIOp(parts, self._constant(layer.most_parts)))
        with self._if(self._compare(part, "slt", busy)):
            following = self._emit(arith.AddiOp(part, self._constant(1)))
            first, limit = self._tile_start(part, busy, layer), self._tile_start(following, busy, layer)
            pixels = self._constant(layer.pixels)
            end = self._emit(arith.SelectOp(self._compare(following, "eq", busy), pixels, limit))
            if layer.tail:
                self._aside(call, layer, first, end)
            else:
                self._call(call, layer, first, self._emit(arith.SubiOp(end, first)))
        Rewriter.erase_op(call)

    def _tile_start(self, part: SSAValue, parts: SSAValue, layer: _DivisibleCall) -> SSAValue:
        """The first pixel of a part: tiles are divided as evenly as can be."""
        share = self._times(part, layer.pixels // layer.rows)
        return self._times(self._emit(arith.DivUIOp(share, parts)), layer.rows)

    def _aside(self, call: func.CallOp, layer: _DivisibleCall, first: SSAValue, end: SSAValue) -> None:
        """All pixels from ``first`` to ``end``, the last of which are computed in a place of their own."""
        tail = self._constant(layer.tail)
        last = self._emit(arith.SubiOp(end, tail))
        self._call(call, layer, first, self._emit(arith.SubiOp(last, first)))
        scratch = self._arguments["scratch"]
        begin = self._times(self._arguments["part"], self._scratch_bytes)
        self._call(call, layer, last, tail, output=(scratch, begin))
        nothing, row = self._constant(0), self._constant(layer.tail * layer.channels * layer.item_bytes)
        source = self._view(scratch, begin, BYTES, row)
        place = self._times(last, layer.channels)
        if _RESULT in layer.places:
            place = self._emit(arith.AddiOp(place, call.operands[layer.places[_RESULT]]))
        target = self._from(call.operands[layer.places["output"]], self._times(place, layer.item_bytes), row, BYTES)
        # of copy_rows: input, output, rows, row_bytes, input_pitch, first, pitch
        arguments = [source, target, self._constant(1), row, nothing, nothing, nothing]
        self._add(func.CallOp(_COPY, arguments, []))

    def _call(
        self,
        call: func.CallOp,
        layer: _DivisibleCall,
        first: SSAValue,
        pixels: SSAValue,
        output: tuple[SSAValue, SSAValue] | None = None,
    ) -> None:
        """The call for ``pixels`` from ``first`` on; ``output``: a buffer of bytes, and where results go in it."""
        operands = list(call.operands)
        operands[layer.places["pixels"]] = pixels
        for name in BY_PIXEL:
            if name in layer.places:
                whole = operands[layer.places[name]]
                operands[layer.places[name]] = self._from(whole, self._times(first, 4), pixels)
        place = layer.places["output"]
        size = self._times(pixels, layer.channels)
        if output is None:
            operands[place] = self._from(operands[place], self._times(first, layer.channels * layer.item_bytes), size)
        else:
            operands[place] = self._view(*output, operands[place].type, size)
            if _RESULT in layer.places:
                operands[layer.places[_RESULT]] = self._constant(0)
        self._add(func.CallOp(call.callee, operands, []))

    def _from(self, value: SSAValue, distance: SSAValue, size: SSAValue, type: Attribute | None = None) -> SSAValue:
        """``size`` elements of a buffer, ``distance`` bytes further on; ``type``: where they are not of its own."""
        source, shift = _bytes_of(value)
        place = distance if shift is None else self._emit(arith.AddiOp(shift, distance))
        return self._view(source, place, value.type if type is None else type, size)

    def _view(self, source: SSAValue, place: SSAValue, type: Attribute, size: SSAValue) -> SSAValue:
        assert isinstance(type, MemRefType)
        return self._emit(memref.ViewOp(source, place, [size], type))

    def _compare(self, a: SSAValue, predicate: str, b: SSAValue) -> SSAValue:
        return self._emit(arith.CmpiOp(a, b, predicate))

    def _times(self, a: SSAValue, factor: int) -> SSAValue:
        return a if factor == 1 else self._emit(arith.MuliOp(a, self._constant(factor)))

    def _constant(self, value: int) -> SSAValue:
        """A number, made once at the top."""
        if value not in self._constants:
            op = self._top.insert(arith.ConstantOp(IntegerAttr(value, IndexType())))
            self._constants[value] = op.result
        return self._constants[value]

    def _emit(self, op: Operation) -> SSAValue:
        self._add(op)
        return op.results[0]

    def _add(self, op: Operation, location: LocationAttr | None = None) -> None:
        op.location = self._location if location is None else location
        self._builder.insert(op)

    @contextmanager
    def _if(self, condition: SSAValue) -> Iterator[None]:
        """What is added inside happens where ``condition`` holds."""
        body = Block()
        self._add(scf.IfOp(condition, [], Region(body)))
        outer, self._builder = self._builder, Builder(InsertPoint.at_end(body))
        yield
        self._add(scf.YieldOp())
        self._builder = outer


def _bytes_of(value: SSAValue) -> tuple[SSAValue, SSAValue | None]:
    """The buffer of bytes that ``value`` is a view of, and where in it that begins (None: at its beginning)."""
    if isinstance(value.owner, memref.ViewOp):
        return value.owner.source, value.owner.byte_shift
    return value, None
