// RUN: odc-opt %s --split-input-file -p npu-share-arena,npu-allocate-memory | filecheck %s

// Each takes the place of the one before, which nothing needs any more.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %in = npu.buffer "in" binds [0] : !npu.buffer<inputs, 32xi8>
    %t = npu.buffer "between" : !npu.buffer<arena, 32xi8>
    %out = npu.buffer "out" binds [0] : !npu.buffer<outputs, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.store target %t source %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.load source %t target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.store target %out source %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.halt
  }
}
// CHECK: npu.input_offsets = array<i64: 0>
// CHECK-SAME: npu.output_offsets = array<i64: 0>
// CHECK-SAME: npu.sram_peak = {arena_bytes = 32 : i64, least_bytes = 32 : i64, instruction = 0 : i64, operator = "", tensors = {{\[}}["in", 32 : i64]]}
// CHECK-DAG: npu.buffer "in" at 0 takes [0] : !npu.buffer<arena, 32xi8>
// CHECK-DAG: npu.buffer "between" at 0 : !npu.buffer<arena, 32xi8>
// CHECK-DAG: npu.buffer "out" at 0 gives [0] : !npu.buffer<arena, 32xi8>

// -----

// What has an address in its region already stays there.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %in = npu.buffer "in" at 0 binds [0] : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" at 0 binds [0] : !npu.buffer<outputs, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.store target %out source %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.halt
  }
}
// CHECK-DAG: npu.buffer "in" at 0 binds [0] : !npu.buffer<inputs, 32xi8>
// CHECK-DAG: npu.buffer "out" at 0 binds [0] : !npu.buffer<outputs, 32xi8>

// -----

// A cache that nothing else needs gets a row where it is.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%c: tensor<4x8x!quant.uniform<i8:f32, 0.5>>, %r: tensor<1x8x!quant.uniform<i8:f32, 0.5>>, %p: tensor<1xi32>) -> tensor<4x8x!quant.uniform<i8:f32, 0.5>> {
    %cache = npu.buffer "cache" binds [0] : !npu.buffer<inputs, 32xi8>
    %row = npu.buffer "row" binds [1] : !npu.buffer<inputs, 8xi8>
    %at = npu.buffer "at" binds [2] : !npu.buffer<inputs, 1xi32>
    %out = npu.buffer "out" binds [0] : !npu.buffer<outputs, 32xi8>
    npu.isa.copy source %cache target %out bytes 32
    npu.isa.scatter source %row position %at target %out count 1 rows 4 row_bytes 8
    npu.isa.halt
  }
}
// CHECK: %[[C:.*]] = npu.buffer "cache" at {{.*}} takes [0] gives [0] : !npu.buffer<arena, 32xi8>
// CHECK-NOT: npu.isa.copy
// CHECK: npu.isa.scatter {{.*}} target %[[C]]

// -----

// It is read afterwards, so it stays.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%c: tensor<4x8x!quant.uniform<i8:f32, 0.5>>, %r: tensor<1x8x!quant.uniform<i8:f32, 0.5>>, %p: tensor<1xi32>) -> (tensor<4x8x!quant.uniform<i8:f32, 0.5>>, tensor<4x8x!quant.uniform<i8:f32, 0.5>>) {
    %cache = npu.buffer "cache" binds [0] : !npu.buffer<inputs, 32xi8>
    %row = npu.buffer "row" binds [1] : !npu.buffer<inputs, 8xi8>
    %at = npu.buffer "at" binds [2] : !npu.buffer<inputs, 1xi32>
    %out = npu.buffer "out" binds [0] : !npu.buffer<outputs, 32xi8>
    %same = npu.buffer "same" binds [1] : !npu.buffer<outputs, 32xi8>
    npu.isa.copy source %cache target %out bytes 32
    npu.isa.scatter source %row position %at target %out count 1 rows 4 row_bytes 8
    npu.isa.copy source %cache target %same bytes 32
    npu.isa.halt
  }
}
// CHECK: %[[O:.*]] = npu.buffer "out" at {{.*}} gives [0] : !npu.buffer<arena, 32xi8>
// CHECK: npu.isa.copy {{.*}} target %[[O]] bytes 32
// CHECK-NEXT: npu.isa.scatter {{.*}} target %[[O]]
