// RUN: not odc-opt %s -p npu-allocate-memory 2>&1 | filecheck %s

// Two tensors of 32 bytes, the input and the output exceed the limit.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram, sram_limit = 127>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" at 0 : !npu.buffer<outputs, 32xi8>
    %t = npu.buffer "first" : !npu.buffer<arena, 32xi8>
    %u = npu.buffer "second" : !npu.buffer<arena, 32xi8>
    %v = npu.buffer "third" : !npu.buffer<arena, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.store target %t source %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.store target %u source %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.load source %t target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.load source %u target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.store target %v source %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.load source %v target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.store target %out source %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.halt
  }
}
// CHECK: tensors need 64 bytes of SRAM at a time, inputs and outputs leave 63; the largest are 'first' (32 bytes)
