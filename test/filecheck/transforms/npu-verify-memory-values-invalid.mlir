// RUN: odc-opt %s --split-input-file --print-diagnostics -p npu-verify-memory | filecheck %s

// The second load takes the place of what the first one brought before the store reads it.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" at 0 : !npu.buffer<outputs, 32xi8>
    %s = npu.buffer "slot" at 64 : !npu.buffer<tile, 32xi8> loc("conv1")
    %r = npu.buffer "rows" at 80 : !npu.buffer<tile, 32xi8> loc("pool2")
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.load source %in target %r size0 32 tile_stride1 32 tile_stride2 32 posts [6]
    npu.isa.store target %out source %s size0 32 tile_stride1 32 tile_stride2 32 waits [6]
    npu.isa.halt
  }
}
// CHECK: buffers 'slot' of 'conv1' (tile 64..95) and 'rows' of 'pool2' (tile 80..111) share bytes while both are in use: instruction 1 (load in queue load) overwrites the result of instruction 0 (load in queue load) too early
// CHECK-SAME: move one of them, or remove their addresses and allocate again

// -----

// An instruction overwrites what it reads itself.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" at 0 : !npu.buffer<outputs, 32xi8>
    %a = npu.buffer "a" at 64 : !npu.buffer<tile, 32xi8>
    %b = npu.buffer "b" at 65 : !npu.buffer<tile, 32xi8>
    npu.isa.load source %in target %a size0 32 tile_stride1 32 tile_stride2 32 posts [8]
    npu.isa.vop kind "copy" a_type "i8" out_type "i8" size0 32 a %a a_stride0 1 output %b waits [8] posts [27]
    npu.isa.store target %out source %b size0 32 tile_stride1 32 tile_stride2 32 waits [27]
    npu.isa.halt
  }
}
// CHECK: buffers 'a' (tile 64..95) and 'b' (tile 65..96) share bytes while both are in use: instruction 1 (vop in queue vector) overwrites the result of instruction 0 (load in queue load) too early

// -----

// What is left of the first value, the bytes from 64 to 79, is read after it: so is what was lost.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" at 0 : !npu.buffer<outputs, 32xi8>
    %s = npu.buffer "slot" at 64 : !npu.buffer<tile, 32xi8>
    %r = npu.buffer "rows" at 80 : !npu.buffer<tile, 32xi8>
    %t = npu.buffer "third" at 88 : !npu.buffer<tile, 32xi8>
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.load source %in target %r size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.load source %in target %t size0 32 tile_stride1 32 tile_stride2 32 posts [6]
    npu.isa.store target %out source %s size0 16 tile_stride1 16 tile_stride2 16 waits [6]
    npu.isa.store target %out source %s + 28 size0 4 tile_stride1 4 tile_stride2 4
    npu.isa.halt
  }
}
// CHECK: buffers 'slot' (tile 64..95) and 'rows' (tile 80..111) share bytes

// -----

// Loops hide which bytes are touched when.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %s = npu.buffer "slot" at 64 : !npu.buffer<tile, 32xi8>
    npu.loop 2 {
      npu.isa.load source %in target %s + 0 step 16 size0 16 tile_stride1 16 tile_stride2 16
    }
    npu.isa.halt
  }
}
// CHECK: npu.loop is not an instruction (pass npu-verify-memory); run npu-unroll-loops first
