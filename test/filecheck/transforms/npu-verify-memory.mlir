// RUN: odc-opt %s --split-input-file -p npu-verify-memory | filecheck %s

// A program whose conflicts are ordered passes unchanged.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" at 0 : !npu.buffer<outputs, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32 posts [6]
    npu.isa.store target %out source %s size0 32 tile_stride1 32 tile_stride2 32 waits [6]
    npu.isa.halt
  }
}
// CHECK: npu.isa.load {{.*}} posts [6]
// CHECK-NEXT: npu.isa.store {{.*}} waits [6]

// -----

// Bytes serve another buffer when what they held has been read: all of it, or the part that is overwritten.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @reused(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" at 0 : !npu.buffer<outputs, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 32xi8>
    %r = npu.buffer "rows" at 16 : !npu.buffer<tile, 32xi8>
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32 posts [6]
    npu.isa.store target %out source %s + 16 size0 16 tile_stride1 16 tile_stride2 16 waits [6] posts [26]
    npu.isa.load source %in target %r size0 32 tile_stride1 32 tile_stride2 32 waits [26] posts [6]
    npu.isa.store target %out source %s size0 16 tile_stride1 16 tile_stride2 16
    npu.isa.store target %out source %r size0 32 tile_stride1 32 tile_stride2 32 waits [6]
    npu.isa.halt
  }
}
// CHECK: npu.program @reused

// -----

// What an instruction of a former loop means by an address in the whole memory is not known: no value is lost by it.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @unrolled(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %tile = npu.memory : !npu.buffer<tile, 64xi8>
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" at 0 : !npu.buffer<outputs, 32xi8>
    %s = npu.buffer "slot" at 32 : !npu.buffer<tile, 32xi8>
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.load source %in target %tile + 32 size0 32 tile_stride1 32 tile_stride2 32 posts [6]
    npu.isa.store target %out source %s size0 32 tile_stride1 32 tile_stride2 32 waits [6]
    npu.isa.halt
  }
}
// CHECK: npu.program @unrolled
