// RUN: odc-opt %s --split-input-file -p npu-choose-tiles --print-diagnostics | filecheck %s

// Sizes of tiles are at most the result's.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x40x40x64x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.pool max %x kernel [2, 2] clamp(-128, 127) {npu.tiling = #npu.tiling<rows = 40, cols = 4, group = 64, block = 64, k_slice = 64>} : tensor<1x40x40x64x!quant.uniform<i8:f32, 0.5>> -> tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: rows of the tiling is 40, allowed: 1 to 39

// -----

// Channels too.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x40x40x64x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.pool max %x kernel [2, 2] clamp(-128, 127) {npu.tiling = #npu.tiling<rows = 4, cols = 4, group = 65, block = 64, k_slice = 64>} : tensor<1x40x40x64x!quant.uniform<i8:f32, 0.5>> -> tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: group of the tiling is 65, allowed: 1 to 64

// -----

// Channels that are read as well.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x40x40x64x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.pool max %x kernel [2, 2] clamp(-128, 127) {npu.tiling = #npu.tiling<rows = 4, cols = 4, group = 64, block = 64, k_slice = 65>} : tensor<1x40x40x64x!quant.uniform<i8:f32, 0.5>> -> tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: k_slice of the tiling is 65, allowed: 1 to 64

// -----

// Tiles fit in the local memories.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x40x40x64x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.pool max %x kernel [2, 2] clamp(-128, 127) {npu.tiling = #npu.tiling<rows = 39, cols = 39, group = 64, block = 64, k_slice = 64>} : tensor<1x40x40x64x!quant.uniform<i8:f32, 0.5>> -> tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: the given tiling needs 399488 bytes of the tile buffer

// -----

// A tensor in memory has slots.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x40x40x64x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.pool max %x kernel [2, 2] clamp(-128, 127) {npu.tiling = #npu.tiling<rows = 4, cols = 4, group = 64, block = 64, k_slice = 64, in_slots = 0>} : tensor<1x40x40x64x!quant.uniform<i8:f32, 0.5>> -> tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x39x39x64x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: in_slots of the given tiling is 0, but that tensor is not in the tile buffer {{.*}}; give 1 or 2

// -----

// Another machine has percentages of the target's resources.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x8xi8>) -> tensor<1x4x4x8xi8> attributes {npu.tiled_for = {lanes = 0 : i64}} {
    %y = npu.pool max %x kernel [1, 1] clamp(-128, 127) : tensor<1x4x4x8xi8> -> tensor<1x4x4x8xi8>
    odc.yield %y : tensor<1x4x4x8xi8>
  }
}
// CHECK: npu.tiled_for is {lanes = 0 : i64}
