"""``native-divide-layers``: add a second function to a segment, where threads share large layers.

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

``parts`` threads call the new function at the same time, each with a different ``part``. Layers with at least
``layer-products`` multiplications are divided by pixels, which does not change results. Part 0 performs the other
calls. A vector may write beyond the last channel of a pixel, into the next part's results. Each part therefore computes
the last pixels in a separate region of ``scratch`` and copies the result. Segments whose divided layers have fewer than
``segment-products`` multiplications in total do not change, because waking a thread would cost more than it saves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    FunctionType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import SymbolTable

from odc_mlir.dialects.native_attributes import PART, SCRATCH_BYTES, THREAD_PARAMETERS
from odc_mlir.formats.native_segment import ALIGNMENT_BYTES, BARRIER
from odc_mlir.transforms.native.kernels.loops import BYTES, INDEX, Loops
from odc_mlir.transforms.native.kernels.registry import BY_PIXEL, LANES
from odc_mlir.transforms.native.lowering.segment_writer import SLACK, declaration, declared_kernel
from odc_mlir.transforms.native.native_allocate_memory import (
    item_bytes,
    known_number,
    segment_function,
    segment_modules,
)

_COPY = "copy_rows"
_RESULT = "first_result"  # parameter of kernels that write into the middle of a buffer
_EXTRA: dict[str, Attribute] = dict(zip(THREAD_PARAMETERS, (BYTES, BYTES, INDEX, INDEX), strict=True))


@dataclass(frozen=True)
class NativeDivideLayersPass(ModulePass):
    """Add functions for parts of layers."""

    name = "native-divide-layers"

    layer_products: int = 1 << 20
    """Least number of multiplications in a layer to divide it."""

    segment_products: int = 1 << 25
    """Least number of multiplications in the divided layers of a segment to change it."""

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
    """Divisible call of a kernel. ``places``: operand indices by kernel parameter."""

    places: Mapping[str, int]
    rows: int
    pixels: int
    channels: int
    item_bytes: int
    beyond: int  # elements that a vector writes after the last channel of a pixel
    products: int

    @property
    def tail(self) -> int:
        """Number of last pixels, in whole tiles, into which vectors of the preceding pixels may write."""
        reached = -(-self.beyond // self.channels)
        return -(-reached // self.rows) * self.rows

    @property
    def most_parts(self) -> int:
        """Largest number of parts for which every part has a tail and at least one tile before the tail."""
        return self.pixels // self.rows // (self.tail // self.rows + 1)

    @property
    def scratch_bytes(self) -> int:
        """Size in bytes of a part's region for its tail."""
        size = self.tail * self.channels * self.item_bytes + SLACK
        return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES if self.tail else 0


def _layer_of(module: ModuleOp, call: func.CallOp) -> _DivisibleCall | None:
    declared = SymbolTable.lookup_symbol(module, call.callee.root_reference.data)
    assert isinstance(declared, func.FuncOp)
    kernel, options = declared_kernel(declared)
    if not kernel.depth:
        return None
    places = {parameter: index for index, parameter in enumerate(kernel.parameters(options))}

    def number(parameter: str) -> int:
        return known_number(call.operands[places[parameter]])

    width = LANES * options.get("vectors", 1)
    channels, pixels = number("channels"), number("pixels")
    layer = _DivisibleCall(
        places,
        options["rows"],
        pixels,
        channels,
        item_bytes(call.operands[places["output"]]),
        number("blocks") * width - channels,
        pixels * number("blocks") * width * math.prod(map(number, kernel.depth)),
    )
    return layer if layer.most_parts > 1 else None


def _divide(module: ModuleOp, function: func.FuncOp, layers: Sequence[_DivisibleCall | None]) -> None:
    """Add the function of one part. ``layers``: an item per call, None if only the first part performs the call."""
    part = function.clone()
    part.sym_name = StringAttr(f"{function.sym_name.data}_part")
    block = part.body.block
    for name, type in _EXTRA.items():
        block.insert_arg(type, len(block.args)).name_hint = name
    part.function_type = FunctionType.from_lists(list(block.arg_types), list(function.function_type.outputs))
    scratch_bytes = max(layer.scratch_bytes for layer in layers if layer is not None)
    _Parts(Loops.of(part, dict(zip(_EXTRA, block.args[-len(_EXTRA) :], strict=True))), scratch_bytes).rewrite(layers)
    module.body.block.insert_op_after(part, function)
    if scratch_bytes and SymbolTable.lookup_symbol(module, _COPY) is None:
        module.body.block.add_op(declaration(_COPY, _COPY, {}))
    module.body.block.add_op(func.FuncOp.external(BARRIER, [BYTES, INDEX], []))
    module.attributes[PART] = part.sym_name
    module.attributes[SCRATCH_BYTES] = IntegerAttr(scratch_bytes, i64)


class _Parts:
    def __init__(self, w: Loops, scratch_bytes: int) -> None:
        self.w = w
        self._scratch_bytes = scratch_bytes

    def rewrite(self, layers: Sequence[_DivisibleCall | None]) -> None:
        """Restrict undivided calls to the first part, and add barriers between them and divided calls."""
        w, ops = self.w, list(self.w.entry.ops)
        calls = [op for op in ops if isinstance(op, func.CallOp)]
        end = next(op for op in ops if isinstance(op, memref.LoadOp | func.ReturnOp))
        steps = itertools.groupby(
            enumerate(zip(calls, layers, strict=True)), key=lambda item: -1 if item[1][1] is None else item[0]
        )
        wait = False
        for _, step in steps:
            together = [item for _, item in step]
            w.insert_by(Builder(InsertPoint.after(together[-1][0])), together[0][0].location)
            if wait:
                self._wait()
            wait = True
            first, layer = together[0]
            if layer is None:
                self._by_the_first([call for call, _ in together])
            else:
                self._by_all(first, layer)
        if layers[-1] is not None:
            w.insert_by(Builder(InsertPoint.before(end)), end.location)
            self._wait()

    def _wait(self) -> None:
        self.w.run(func.CallOp(BARRIER, [self.w["barrier"], self.w["parts"]], []))

    def _by_the_first(self, calls: Sequence[func.CallOp]) -> None:
        w = self.w

        def body() -> None:
            for call in calls:
                w.entry.detach_op(call)
                w.location = call.location
                w.run(call)

        w.when(w.compare(w["part"], "eq", 0), body)

    def _by_all(self, call: func.CallOp, layer: _DivisibleCall) -> None:
        """Perform the call for a share of the pixels in every part. Parts beyond ``most_parts`` do nothing."""
        w, part = self.w, self.w["part"]
        busy = w.least(w["parts"], layer.most_parts)

        def body() -> None:
            following = w.add(part, 1)
            first, limit = self._tile_start(part, busy, layer), self._tile_start(following, busy, layer)
            end = w.select(w.compare(following, "eq", busy), w.constant(layer.pixels), limit)
            if layer.tail:
                self._aside(call, layer, first, end)
            else:
                self._call(call, layer, first, w.sub(end, first))

        w.when(w.compare(part, "slt", busy), body)
        Rewriter.erase_op(call)

    def _tile_start(self, part: SSAValue, parts: SSAValue, layer: _DivisibleCall) -> SSAValue:
        """Return the first pixel of a part. Tiles are divided as evenly as possible."""
        share = self.w.mul(part, layer.pixels // layer.rows)
        return self.w.mul(self.w.emit(arith.DivUIOp(share, parts)), layer.rows)

    def _aside(self, call: func.CallOp, layer: _DivisibleCall, first: SSAValue, end: SSAValue) -> None:
        """Compute the pixels from ``first`` to ``end``: write the tail to ``scratch``, then copy it."""
        w = self.w
        last = w.sub(end, layer.tail)
        self._call(call, layer, first, w.sub(last, first))
        begin = w.mul(w["part"], self._scratch_bytes)
        self._call(call, layer, last, w.constant(layer.tail), output=(w["scratch"], begin))
        row = w.constant(layer.tail * layer.channels * layer.item_bytes)
        source = self._view(w["scratch"], begin, BYTES, row)
        place = w.mul(last, layer.channels)
        if _RESULT in layer.places:
            place = w.add(place, call.operands[layer.places[_RESULT]])
        target = self._from(call.operands[layer.places["output"]], w.mul(place, layer.item_bytes), row, BYTES)
        # operands of copy_rows: input, output, rows, row_bytes, input_pitch, first, pitch
        w.run(func.CallOp(_COPY, [source, target, w.constant(1), row, *[w.constant(0)] * 3], []))

    def _call(
        self,
        call: func.CallOp,
        layer: _DivisibleCall,
        first: SSAValue,
        pixels: SSAValue,
        output: tuple[SSAValue, SSAValue] | None = None,
    ) -> None:
        """Perform the call for ``pixels`` from ``first``. ``output``: another buffer for results, and an offset."""
        w, operands = self.w, list(call.operands)
        operands[layer.places["pixels"]] = pixels
        for name in BY_PIXEL:
            if name in layer.places:
                whole = operands[layer.places[name]]
                operands[layer.places[name]] = self._from(whole, w.mul(first, 4), pixels)
        place = layer.places["output"]
        size = w.mul(pixels, layer.channels)
        if output is None:
            operands[place] = self._from(operands[place], w.mul(first, layer.channels * layer.item_bytes), size)
        else:
            operands[place] = self._view(*output, operands[place].type, size)
            if _RESULT in layer.places:
                operands[layer.places[_RESULT]] = w.constant(0)
        w.run(func.CallOp(call.callee, operands, []))

    def _from(self, value: SSAValue, distance: SSAValue, size: SSAValue, type: Attribute | None = None) -> SSAValue:
        source, shift = value, None
        if isinstance(value.owner, memref.ViewOp):
            source, shift = value.owner.source, value.owner.byte_shift
        place = distance if shift is None else self.w.add(shift, distance)
        return self._view(source, place, value.type if type is None else type, size)

    def _view(self, source: SSAValue, place: SSAValue, type: Attribute, size: SSAValue) -> SSAValue:
        assert isinstance(type, MemRefType)
        return self.w.emit(memref.ViewOp(source, place, [size], type))
