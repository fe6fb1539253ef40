// RUN: odc-opt %s --split-input-file -p npu-choose-tiles | filecheck %s

// A pointwise convolution is one row of pixels, taken in one tile.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv %x kernel [1, 1] weights <"0x01020304"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 2> multiplier <1073741824, 1073741824> exponent <0, 0> : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.conv {{.*}} {npu.tiling = #npu.tiling<rows = 1, cols = 16, group = 2, block = 2, k_slice = 2

// -----

// A small result that another layer reads stays in the tile buffer; the result of the segment does not.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>> {
    %p = npu.pool max %x kernel [2, 2] stride [2, 2] clamp(-128, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>>
    %y = npu.pool max %p kernel [2, 2] clamp(-128, 127) : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.pool {{.*}}#npu.tiling<{{.*}}out_slots = 0{{.*}}npu.resident = #npu.resident<>
// CHECK: npu.pool {{.*}}in_slots = 0
// CHECK-NOT: npu.resident

// -----

// What only an addition reads is not stored when it finds no room in the tile buffer: tiles are added as they come.
builtin.module attributes {odc.target = #odc.target<"npu-128", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv depthwise %x kernel [1, 1] weights <"0x01010101010101010101010101010101"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1> multiplier <1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824> exponent <0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0> : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> loc("conv")
    %z = npu.elementwise add %x, %y shift 20 a_scale <1073741824, 0> b_scale <1073741824, 0> out_scale <1073741824, 0> clamp(-128, 127) : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>>, tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> loc("add")
    odc.yield %z : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.conv {{.*}}#npu.tiling<{{.*}}operand_slots = {{[12]}}
// CHECK: npu.elementwise

// -----

// An addition that reads a resident, also by another shape, is not computed with the tiles: these load from memory.
builtin.module attributes {odc.target = #odc.target<"npu-128", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x1x256x16x!quant.uniform<i8:f32, 0.5>>, %v: tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>> {
    %a = npu.conv depthwise %x kernel [1, 1] weights <"0x01010101010101010101010101010101"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1> multiplier <1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824> exponent <0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0> : tensor<1x1x256x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x256x16x!quant.uniform<i8:f32, 0.5>>
    %r = npu.reshape %a : tensor<1x1x256x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>>
    %y = npu.conv depthwise %v kernel [1, 1] weights <"0x01010101010101010101010101010101"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1> multiplier <1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824> exponent <0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0> : tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>>
    %s = npu.elementwise add %y, %r shift 20 a_scale <1073741824, 0> b_scale <1073741824, 0> out_scale <1073741824, 0> clamp(-128, 127) : tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>>, tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>>
    %z = npu.elementwise add %s, %r shift 20 a_scale <1073741824, 0> b_scale <1073741824, 0> out_scale <1073741824, 0> clamp(-128, 127) : tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>>, tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>>
    odc.yield %z : tensor<1x16x16x16x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.conv {{.*}}npu.resident
// CHECK: npu.reshape
// CHECK: npu.conv
// CHECK-NOT: operand_slots
// CHECK: npu.elementwise

// -----

// A small image that is resized stays in the tile buffer, and so does what is made of it.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>> {
    %p = npu.pool max %x kernel [2, 2] stride [2, 2] clamp(-128, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>>
    %r = npu.resize nearest %p start [0, 0] step [8388608, 8388608] : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
    %y = npu.pool max %r kernel [2, 2] stride [2, 2] clamp(-128, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.pool {{.*}}out_slots = 0{{.*}}npu.resident = #npu.resident<>
// CHECK: npu.resize {{.*}}npu.resident = #npu.resident<>
// CHECK: npu.pool {{.*}}in_slots = 0

// -----

// A tiling that somebody gave is kept: its input and its result stay in memory, as its slots say.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x8x8x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x7x7x2x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv %x kernel [1, 1] weights <"0x01020304"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 2> multiplier <1073741824, 1073741824> exponent <0, 0> {npu.tiling = #npu.tiling<rows = 1, cols = 24, group = 2, block = 2, k_slice = 2, in_slots = 1>} : tensor<1x8x8x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x8x8x2x!quant.uniform<i8:f32, 0.5>>
    %z = npu.pool max %y kernel [2, 2] clamp(-128, 127) : tensor<1x8x8x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x7x7x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %z : tensor<1x7x7x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.conv {{.*}} {npu.tiling = #npu.tiling<rows = 1, cols = 24, group = 2, block = 2, k_slice = 2, in_slots = 1>}
// CHECK-NOT: npu.resident
// CHECK: npu.pool {{.*}} {npu.tiling =

// -----

// Tiles may be chosen for another machine: this one has half the port to SRAM, and larger tiles.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x32x32x16xi8>) -> tensor<1x32x32x16xi8> attributes {npu.tiled_for = {sram = 50}} {
    %y = npu.pool max %x kernel [3, 3] pads [1, 1, 1, 1] clamp(-128, 127) : tensor<1x32x32x16xi8> -> tensor<1x32x32x16xi8>
    odc.yield %y : tensor<1x32x32x16xi8>
  }
}
// CHECK: npu.program {{.*}}16xi8> {
// CHECK-NEXT: npu.tiling<rows = 8, cols = 16,

// -----

// A softmax that finds no room beside %a, %b, %c and %s: one of these is stored, and not the larger %big, which no longer
// exists at that time.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x1x96x96xi8>, %y: tensor<1x1x64x64xi8>) -> (tensor<1x1x96x96xi8>, tensor<1x1x64x64xi8>, tensor<1x1x64x64xi8>) {
    %big = npu.scale %x scale <1073741824, 0> clamp(-128, 127) : tensor<1x1x96x96xi8> -> tensor<1x1x96x96xi8>
    %z = npu.scale %big scale <1073741824, 0> clamp(-128, 127) : tensor<1x1x96x96xi8> -> tensor<1x1x96x96xi8>
    %a = npu.scale %y scale <1073741824, 0> clamp(-128, 127) : tensor<1x1x64x64xi8> -> tensor<1x1x64x64xi8>
    %b = npu.scale %a scale <1073741824, 0> clamp(-128, 127) : tensor<1x1x64x64xi8> -> tensor<1x1x64x64xi8>
    %c = npu.scale %b scale <1073741824, 0> clamp(-128, 127) : tensor<1x1x64x64xi8> -> tensor<1x1x64x64xi8>
    %s = npu.scale %c scale <1073741824, 0> clamp(-128, 127) : tensor<1x1x64x64xi8> -> tensor<1x1x64x64xi8>
    %p = npu.softmax %s scale <1073741824, 22> diff_min -31 : tensor<1x1x64x64xi8> -> tensor<1x1x64x64xi8>
    %d = npu.elementwise max %a, %b clamp(-128, 127) : tensor<1x1x64x64xi8>, tensor<1x1x64x64xi8> -> tensor<1x1x64x64xi8>
    %e = npu.elementwise max %d, %c clamp(-128, 127) : tensor<1x1x64x64xi8>, tensor<1x1x64x64xi8> -> tensor<1x1x64x64xi8>
    odc.yield %z, %p, %e : tensor<1x1x96x96xi8>, tensor<1x1x64x64xi8>, tensor<1x1x64x64xi8>
  }
}
// CHECK: %big = npu.scale {{.*}}npu.resident
// CHECK: %z = npu.scale
// CHECK-COUNT-3: npu.scale {{.*}}npu.resident
// CHECK: npu.softmax
// CHECK: npu.elementwise max {{.*}}npu.resident
