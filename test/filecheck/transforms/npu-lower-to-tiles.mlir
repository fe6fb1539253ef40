// RUN: odc-opt %s --split-input-file -p npu-choose-tiles,npu-lower-to-tiles | filecheck %s

// Weights go into array order, equal multipliers are kept once in front of the biases.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv %x kernel [1, 1] weights <"0x01020304"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 2> multiplier <1073741824, 1073741824> exponent <0, 0> : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-DAG: %[[W:.*]] = npu.buffer "weights" data <"0x01030204"> : !npu.buffer<constants, 4xi8>
// CHECK-DAG: %[[P:.*]] = npu.buffer "params" data <"0x00000040000100000002000000"> : !npu.buffer<constants, 13xi8>
// CHECK: npu.isa.load
// CHECK: npu.isa.wload source %[[W]]
// CHECK: npu.isa.param source %[[P]] {{.*}}form "bias"
// CHECK: npu.isa.conv
// CHECK: npu.isa.store
// CHECK-NEXT: npu.isa.halt

// -----

// A tensor between two layers that fits in the tile buffer is neither stored nor loaded.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>> {
    %p = npu.pool max %x kernel [2, 2] stride [2, 2] clamp(-128, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>>
    %y = npu.pool max %p kernel [2, 2] clamp(-128, 127) : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.isa.load
// CHECK-NEXT: npu.isa.pool {{.*}} output %[[R:[a-z0-9_]+]]
// CHECK-NEXT: npu.buffer "output"
// CHECK-NEXT: npu.buffer "output"
// CHECK-NEXT: npu.isa.pool {{.*}} input %[[R]]
// CHECK-NEXT: npu.isa.store
// CHECK-NEXT: npu.isa.halt

// -----

// A move: the fill code everywhere first, then every nest through the tile buffer, transposed by the store.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @move(%a: tensor<1x4x8x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x8x6x!quant.uniform<i8:f32, 0.5>> {
    %m = npu.move %a copies [array<i32: 0, 0, 1, 8, 1, 6, 4, 8, 1>] fill 7 : tensor<1x4x8x!quant.uniform<i8:f32, 0.5>> -> tensor<1x8x6x!quant.uniform<i8:f32, 0.5>>
    odc.yield %m : tensor<1x8x6x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-LABEL: npu.program @move(
// CHECK: npu.isa.fill target %{{.*}} bytes 48 value 7
// CHECK-NEXT: npu.isa.store {{.*}} size0 48
// CHECK-NEXT: npu.isa.load {{.*}} size0 8 size1 4 memory_stride1 8 tile_stride1 8
// CHECK-NEXT: npu.isa.store target %{{.*}} + 1 {{.*}} size0 1 size1 4 size2 8 memory_stride1 1 memory_stride2 6 tile_stride1 8 tile_stride2 1
// CHECK-NEXT: npu.isa.halt

// -----

// A computed right-hand side enters the weight buffer image by image, from where it lies.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%a: tensor<2x1x5x3x!quant.uniform<i8:f32, 0.5:1>>, %b: tensor<2x1x3x40x!quant.uniform<i8:f32, 0.5:2>>) -> tensor<2x1x5x40x!quant.uniform<i8:f32, 0.5:3>> {
    %y = npu.matmul %a, %b a_zero 1 b_zero 2 out_zero 3 scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x5x3x!quant.uniform<i8:f32, 0.5:1>>, tensor<2x1x3x40x!quant.uniform<i8:f32, 0.5:2>> -> tensor<2x1x5x40x!quant.uniform<i8:f32, 0.5:3>>
    odc.yield %y : tensor<2x1x5x40x!quant.uniform<i8:f32, 0.5:3>>
  }
}
// CHECK: %[[B:.*]] = npu.buffer {{.*}} binds [1]
// CHECK: npu.isa.mload source %[[B]] target %{{.*}} rows 3 columns 40 row_stride 40 group 16
// CHECK: npu.isa.conv {{.*}} in_zero 1 weight_zero 2
// CHECK: npu.isa.mload source %[[B]] + 120 target
// CHECK: npu.isa.conv

// -----

// An addition that is computed with each tile: the other operand is loaded, the sum takes the tile's place.
builtin.module attributes {odc.target = #odc.target<"npu-128", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv depthwise %x kernel [1, 1] weights <"0x01010101010101010101010101010101"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1> multiplier <1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824> exponent <0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0> : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> loc("conv")
    %z = npu.elementwise add %x, %y shift 20 a_scale <1073741824, 0> b_scale <1073741824, 0> out_scale <1073741824, 0> clamp(-128, 127) : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>>, tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> loc("add")
    odc.yield %z : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.program @segment_0{{.*}}npu.fused = {add = "conv"}
// CHECK: npu.isa.conv {{.*}} output %[[TILE:[a-z0-9_]+]] {{.*}} loc("conv")
// CHECK-NEXT: npu.isa.load {{.*}} target %[[OTHER:[a-z0-9_]+]] {{.*}} loc("add")
// CHECK-NEXT: npu.isa.vop {{.*}} a %[[OTHER]] {{.*}} b %[[TILE]] {{.*}} output %[[TILE]] {{.*}} loc("add")
// CHECK-NEXT: npu.isa.store {{.*}} source %[[TILE]] {{.*}} loc("add")
