// RUN: not odc-opt %s -p npu-verify-memory 2>&1 | filecheck %s

// The load writes beyond its slot.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" at 0 : !npu.buffer<outputs, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 16xi8>
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32 posts [6]
    npu.isa.store target %out source %s size0 32 tile_stride1 32 tile_stride2 32 waits [6]
    npu.isa.halt
  }
}
// CHECK: instruction 0 (load in queue load) touches 0..31 of buffer 'slot', which has 16 units
